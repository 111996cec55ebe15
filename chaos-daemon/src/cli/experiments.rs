//! `chaosctl experiment`: what is done with experiments, and which there are.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{Client, ClientError};
use super::history::verdict;
use super::runs::{How, object};
use super::show::{list, seconds, text};
use crate::experiment::Verdict;
use crate::server::catalogue::Origin;

/// What is done with experiments.
#[derive(Debug, Subcommand)]
pub(super) enum ExperimentCommand {
    /// List those that are registered, with the verdict of their latest run, and those built in
    List(Box<ListArgs>),
    /// Show one, registered or built in: what it samples and injects, its variables, and its latest runs
    Show {
        /// Name
        name: String,
    },
    /// Register an experiment from a Chaos Toolkit document
    Register {
        /// JSON or YAML file, or - for stdin
        file: PathBuf,
    },
    /// Run a registered experiment, and wait for its end for 44 seconds; see run
    Run {
        /// Name
        name: String,
        #[command(flatten)]
        how: How,
    },
}

/// Which experiments.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only with this text in their name or title
    #[arg(long)]
    text: Option<String>,
    /// Only with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only with a fault of this type or name
    #[arg(long)]
    fault: Option<String>,
    /// Only with this text in the target of a fault, e.g. eth0
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// Only those whose latest run has this verdict: held, deviated, refused, failed, tripped, aborted, interrupted or unverified
    #[arg(long, value_parser = verdict)]
    last_verdict: Option<Verdict>,
    /// Only these: registered or built-in
    #[arg(long, value_parser = origin)]
    origin: Option<Origin>,
}

impl ListArgs {
    /// As the fields of the tool.
    fn fields(&self, cursor: Option<&Value>) -> Map<String, Value> {
        let mut fields = object(json!({
            "text": self.text, "tag": self.tag, "fault": self.fault, "target": self.target,
            "last_verdict": self.last_verdict, "origin": self.origin, "cursor": cursor,
        }));
        fields.retain(|_, value| !value.is_null());
        fields
    }
}

fn origin(word: &str) -> Result<Origin, String> {
    Origin::parse(word).ok_or_else(|| format!("{word:?} is neither registered nor built-in"))
}

/// The experiments that are asked for, of all pages.
pub(super) async fn find(client: &Client, args: &ListArgs) -> Result<Value, ClientError> {
    let mut experiments = Vec::new();
    let mut cursor = None;
    loop {
        let mut page = client.call("chaos_list_experiments", args.fields(cursor.as_ref())).await?;
        if let Some(found) = page["experiments"].as_array_mut() {
            experiments.append(found);
        }
        match page["next_cursor"].take() {
            Value::Null => return Ok(json!({"experiments": experiments})),
            next => cursor = Some(next),
        }
    }
}

/// The same for people, a line each.
pub(super) fn lines(answer: &Value) -> String {
    let mut out = String::new();
    for found in list(answer, "experiments") {
        let (name, title, origin) =
            (text(found, "experiment_name"), text(found, "title"), text(found, "origin"));
        let words = |field: &str| {
            let words: Vec<_> = list(found, field).iter().filter_map(Value::as_str).collect();
            words.join(", ")
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "{name}");
        if !title.is_empty() && title != name {
            let _ = write!(out, ": {title}");
        }
        let _ = write!(out, " [{}] {}", words("tags"), words("fault_types"));
        let _ = match (found["problem"].as_str(), found["running"].as_str(), &found["last_run"]) {
            (Some(problem), ..) => write!(out, "; cannot be run: {problem}"),
            (None, Some(run), _) => write!(out, "; runs as {run}"),
            (None, None, Value::Null) if origin == "registered" => write!(out, "; never run"),
            (None, None, Value::Null) => write!(out, "; {origin}"),
            (None, None, last) => {
                write!(out, "; {} in {} at {}", ended(last), text(last, "run_id"), text(last, "started_at"))
            }
        };
        out.push('\n');
    }
    if out.is_empty() { "nothing was found\n".to_owned() } else { out }
}

/// Everything about one.
pub(super) async fn show(client: &Client, name: &str) -> Result<Value, ClientError> {
    client.call("chaos_describe_experiment", object(json!({"experiment_name": name}))).await
}

/// The same for people, but for the document.
pub(super) fn page(answer: &Value) -> String {
    let found = &answer["experiment"];
    let mut out = lines(&json!({"experiments": [found]}));
    let mut add = |what: &str, line: String| _ = writeln!(out, "  {what} {line}");
    if !text(answer, "description").is_empty() {
        add("expects:", text(answer, "description").to_owned());
    }
    add("digest", text(found, "digest").to_owned());
    for variable in list(answer, "variables") {
        let from = variable["environment"].as_str().map(|name| format!(" from {name}")).unwrap_or_default();
        add("variable", format!("{}{from}: {}", text(variable, "name"), variable["default"]));
    }
    for secret in list(answer, "secrets").iter().filter_map(Value::as_str) {
        add("secret", secret.to_owned());
    }
    for probe in list(answer, "probes") {
        let role = text(probe, "role").replace('_', " ");
        add("probe", format!("{} ({role}): {}", text(probe, "name"), text(probe, "check")));
    }
    for fault in list(answer, "faults") {
        let (kind, name, target) = (text(fault, "fault_type"), text(fault, "name"), text(fault, "target"));
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        add("fault", format!("{kind}{name} at {target}, for {}", seconds(fault, "seconds")));
    }
    for run in list(answer, "runs") {
        add("run", format!("{} at {}: {}", text(run, "run_id"), text(run, "started_at"), ended(run)));
    }
    add("the document:", "chaosctl --json experiment show".to_owned());
    out
}

/// How a run has ended.
fn ended(run: &Value) -> &str {
    let success = if run["success"] == json!(true) { "success" } else { "failed" };
    run["verdict"].as_str().unwrap_or(success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_is_and_what_became_of_it_last() {
        let found = |name: &str, more: Value| {
            let mut found = object(json!({"experiment_name": name, "origin": "registered", "title": name,
                "tags": ["network"], "fault_types": ["latency", "timeout"]}));
            found.extend(object(more));
            found
        };
        let run = json!({"run_id": "ab", "verdict": "held", "success": true, "started_at": "2026-02-05T10:00:00.000Z"});
        let answer = json!({"experiments": [
            found("a", json!({})),
            found("b", json!({"last_run": run})),
            found("c", json!({"last_run": run, "running": "cd"})),
            found("d", json!({"problem": "method: missing"})),
            found("e", json!({"origin": "built-in", "title": "it holds"})),
        ]});
        assert_eq!(
            lines(&answer),
            "a [network] latency, timeout; never run\n\
             b [network] latency, timeout; held in ab at 2026-02-05T10:00:00.000Z\n\
             c [network] latency, timeout; runs as cd\n\
             d [network] latency, timeout; cannot be run: method: missing\n\
             e: it holds [network] latency, timeout; built-in\n"
        );
        assert_eq!(lines(&json!({"experiments": []})), "nothing was found\n");
    }
}
