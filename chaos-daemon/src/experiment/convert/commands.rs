//! What command lines do, in the words of `chaosctl inject`.

use serde_json::Value;

use super::meaning::Meaning;
use super::{netfilter, others, pressure, traffic};
use crate::experiment::native::{flatten, split};

/// The program of a process provider and its arguments.
///
/// # Errors
/// Why they are not known.
pub(super) fn words(provider: &Value) -> Result<Vec<String>, String> {
    let mut words = plain(provider["path"].as_str().unwrap_or_default())?;
    words.extend(match &provider["arguments"] {
        Value::Null => Vec::new(),
        Value::String(line) => plain(line)?,
        Value::Object(mapping) if mapping.len() > 1 && mapping.keys().any(|key| !key.starts_with('-')) => {
            return Err("its arguments are a mapping, which has no order".to_owned());
        }
        Value::Object(mapping) => {
            let pairs = mapping.iter().flat_map(|(key, value)| [Value::String(key.clone()), value.clone()]);
            flatten("", Value::Array(pairs.collect())).map_err(|error| error.problem)?
        }
        list => flatten("", list.clone()).map_err(|error| error.problem)?,
    });
    Ok(words)
}

fn plain(line: &str) -> Result<Vec<String>, String> {
    split("", line).map_err(|error| error.problem.split(':').next().unwrap_or_default().to_owned())
}

/// What a command line does.
///
/// # Errors
/// Why no fault does the same, and which comes near.
pub(super) fn understand(words: &[String]) -> Result<Meaning, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut rest = words.as_slice();
    // The daemon has the rights that it needs.
    while let [first, after @ ..] = rest
        && matches!(name(first), "sudo" | "nohup")
    {
        rest = after;
    }
    let [program, arguments @ ..] = rest else { return Err("it runs no program".to_owned()) };
    match name(program) {
        "sh" | "bash" | "dash" => match arguments {
            ["-c", line] => understand(&plain(line)?),
            ["-c", ..] => Err("a shell runs the one word after -c: write the command line as one".to_owned()),
            _ => Err("a shell could do anything".to_owned()),
        },
        "tc" => traffic::tc(arguments),
        "ip" => traffic::ip(arguments),
        program @ ("iptables" | "ip6tables") => netfilter::iptables(program, arguments),
        "stress-ng" | "stress" => pressure::stress(arguments),
        "kill" | "pkill" | "killall" => pressure::signal(name(program), arguments),
        "systemctl" | "service" => pressure::service(name(program), arguments),
        other => Err(others::program(other)),
    }
}

/// The name of a program, wherever it is.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
