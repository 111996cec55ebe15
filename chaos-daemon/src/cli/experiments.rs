//! `chaosctl experiment`: what is done with experiments, and which there are.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{Answer, Client, ClientError};
use super::history::verdict;
use super::runs::{How, object};
use super::show::seconds;
use crate::experiment::Verdict;
use crate::mcp::catalogue::{ListOutput, Listed};
use crate::mcp::describe::{Description, Sampled, Variable};
use crate::mcp::results::RunOutput;
use crate::server::catalogue::Origin;
use crate::server::history::{Latest, RunFault};

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
    fn fields(&self, cursor: Option<&str>) -> Map<String, Value> {
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
pub(super) async fn find(client: &Client, args: &ListArgs) -> Result<Vec<Listed>, ClientError> {
    let mut experiments = Vec::new();
    let mut cursor = None;
    loop {
        let page: ListOutput =
            client.ask("chaos_list_experiments", args.fields(cursor.as_deref())).await?.read;
        experiments.extend(page.experiments);
        match page.next_cursor {
            None => return Ok(experiments),
            next => cursor = next,
        }
    }
}

/// The same for people, a line each.
pub(super) fn lines(experiments: &[Listed]) -> String {
    match experiments {
        [] => "nothing was found\n".to_owned(),
        _ => experiments.iter().map(line).collect(),
    }
}

/// One in a line.
fn line(found: &Listed) -> String {
    let Listed { experiment_name: name, origin, title, tags, fault_types, .. } = found;
    let title = match title.is_empty() || title == name {
        true => String::new(),
        false => format!(": {title}"),
    };
    let last = match (&found.problem, &found.running, &found.last_run) {
        (Some(problem), ..) => format!("cannot be run: {problem}"),
        (None, Some(run), _) => format!("runs as {run}"),
        (None, None, Some(Latest { run_id, started_at, verdict, success })) => {
            format!("{} in {run_id} at {started_at}", ended(*verdict, *success))
        }
        (None, None, None) if *origin == Origin::Registered => "never run".to_owned(),
        (None, None, None) => origin.name().to_owned(),
    };
    format!("{name}{title} [{}] {}; {last}\n", tags.join(", "), fault_types.join(", "))
}

/// Everything about one.
pub(super) async fn show(client: &Client, name: &str) -> Result<Answer<Description>, ClientError> {
    client.ask("chaos_describe_experiment", object(json!({"experiment_name": name}))).await
}

/// The same for people, but for the document.
pub(super) fn page(answer: &Description) -> String {
    let mut out = answer.experiment.as_ref().map(line).unwrap_or_default();
    // Writing to a string cannot fail.
    let mut add = |what: &str, line: String| _ = writeln!(out, "  {what} {line}");
    if !answer.description.is_empty() {
        add("expects:", answer.description.clone());
    }
    if let Some(found) = &answer.experiment {
        add("digest", found.digest.clone());
    }
    for Variable { name, environment, default } in &answer.variables {
        let from = environment.as_ref().map(|name| format!(" from {name}")).unwrap_or_default();
        add("variable", format!("{name}{from}: {}", default.as_ref().unwrap_or(&Value::Null)));
    }
    for secret in &answer.secrets {
        add("secret", secret.clone());
    }
    for Sampled { name, role, check } in &answer.probes {
        add("probe", format!("{name} ({}): {check}", role.replace('_', " ")));
    }
    for RunFault { name, fault_type, target, seconds: lasting, .. } in &answer.faults {
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        add("fault", format!("{fault_type}{name} at {target}, for {}", seconds(*lasting)));
    }
    for RunOutput { run_id, started_at, verdict, success, .. } in answer.runs.iter().map(|found| &found.run) {
        add("run", format!("{run_id} at {started_at}: {}", ended(*verdict, *success)));
    }
    add("the document:", "chaosctl --json experiment show".to_owned());
    out
}

/// How a run has ended.
fn ended(verdict: Option<Verdict>, success: bool) -> &'static str {
    match (verdict, success) {
        (Some(verdict), _) => verdict.name(),
        (None, true) => "success",
        (None, false) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_is_and_what_became_of_it_last() {
        let found = |name: &str| Listed {
            experiment_name: name.into(),
            owner: None,
            origin: Origin::Registered,
            title: name.into(),
            tags: vec!["network".into()],
            fault_types: vec!["latency".into(), "timeout".into()],
            digest: String::new(),
            last_run: None,
            running: None,
            problem: None,
        };
        let run = Latest {
            run_id: "ab".into(),
            started_at: "2026-02-05T10:00:00.000Z".into(),
            verdict: Some(Verdict::Held),
            success: true,
        };
        let listed = [
            found("a"),
            Listed { last_run: Some(run.clone()), ..found("b") },
            Listed { last_run: Some(run), running: Some("cd".into()), ..found("c") },
            Listed { problem: Some("method: missing".into()), ..found("d") },
            Listed { origin: Origin::BuiltIn, title: "it holds".into(), ..found("e") },
        ];
        assert_eq!(
            lines(&listed),
            "a [network] latency, timeout; never run\n\
             b [network] latency, timeout; held in ab at 2026-02-05T10:00:00.000Z\n\
             c [network] latency, timeout; runs as cd\n\
             d [network] latency, timeout; cannot be run: method: missing\n\
             e: it holds [network] latency, timeout; built-in\n"
        );
        assert_eq!(lines(&[]), "nothing was found\n");
    }
}
