//! `chaosctl run` and `show --wait`: a run to its end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::client::{Client, ClientError};
use super::history;
use super::progress::Progress;
use super::show::text;
use crate::experiment::Verdict;
use crate::mcp::LONGEST_WAIT;

/// How often it is shown how a run goes.
const LOOK: Duration = Duration::from_millis(500);
/// How long a daemon that has gone may take to come back and tell what has become of the run.
const RETURN: Duration = Duration::from_secs(15);

/// The exit codes of `chaosctl run`.
pub(super) const EXIT_CODES: &str = "Exit codes:
  0  held: the steady state was met after the run, or whenever it was to be verified
  1  deviated: it was not met after the run, or at times during it, or again later than its rto
  2  refused: it was not met before, so that nothing was done; also when the command line makes no sense
  3  failed: an error; also when the daemon refuses, or cannot be reached
  4  tripped: a gate was breached
  5  aborted: somebody stopped it
  6  interrupted: the daemon ended while it went on
  7  unverified: nobody knows what became of the steady state: it was to be verified only before, or was not sampled in time

With --dry-run: 0, or 2 where it would be refused.";

/// The exit codes of `chaosctl show`.
pub(super) const SHOW_EXIT_CODES: &str =
    "Exit codes: with --wait those of chaosctl run; without it 0, or those of the other commands.";

/// The exit codes of `chaosctl plan`.
pub(super) const PLAN_EXIT_CODES: &str = "Exit codes:
  0  it would be run now
  2  it would be refused; also when the document or the command line makes no sense
  3  an error; also when the daemon cannot be reached";

/// The exit code of `chaosctl run` for what the daemon, or its client, failed with.
pub(super) const FAILED: u8 = 3;
/// That of a run, or a plan, which is refused.
const REFUSED: u8 = 2;

/// A registered experiment.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Name
    pub(super) name: String,
    /// Check without the action
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Of a document with blast_radius: which of its stages; without it, the one that is due
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    stage: Option<u8>,
}

impl RunArgs {
    /// As the fields of the tool.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut fields = object(json!({"experiment_name": self.name, "dry_run": self.dry_run}));
        fields.extend(self.stage.map(|stage| ("stage".to_owned(), json!(stage))));
        fields
    }
}

/// A run.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Its handle, or the beginning of it
    run: String,
    /// Wait until it has ended, and tell meanwhile how it goes; the exit code is the verdict
    #[arg(long)]
    pub(super) wait: bool,
}

/// An experiment in a file.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// JSON or YAML file, or - for stdin
    pub(super) file: PathBuf,
    /// Of a document with blast_radius: which of its stages; without it, the one that is due
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    stage: Option<u8>,
}

/// What running `document` would do.
pub(super) async fn plan(socket: &Path, args: &PlanArgs, document: Value) -> Result<Value, ClientError> {
    let mut fields = object(json!({"document": document}));
    fields.extend(args.stage.map(|stage| ("stage".to_owned(), json!(stage))));
    let client = Client::connect(socket).await?;
    let answer = client.call("chaos_plan_experiment", fields).await;
    client.close().await;
    answer
}

/// The exit code of `chaosctl plan` for what has `code` elsewhere. What the daemon refuses to plan, it would refuse to run.
pub(super) fn plan_failure(code: u8, answered: bool) -> u8 {
    match code {
        // A command line that makes no sense, and a daemon that cannot be reached, have the same codes here as there.
        REFUSED | FAILED => code,
        _ if answered => REFUSED,
        _ => FAILED,
    }
}

/// The exit code of a run.
pub(super) fn exit_code(result: &Value) -> u8 {
    match result["verdict"].as_str().and_then(Verdict::parse) {
        Some(Verdict::Held) => 0,
        Some(Verdict::Deviated) => 1,
        Some(Verdict::Refused) => REFUSED,
        Some(Verdict::Failed) => FAILED,
        Some(Verdict::Tripped) => 4,
        Some(Verdict::Aborted) => 5,
        Some(Verdict::Interrupted) => 6,
        Some(Verdict::Unverified) => 7,
        None if result["dry_run"] == json!(true) => {
            if result["success"] == json!(true) {
                0
            } else {
                REFUSED
            }
        }
        None => FAILED,
    }
}

/// Runs an experiment and waits for its end, however long it takes, also if the daemon's server is started anew meanwhile; shows
/// how it goes, unless the answer is for programs.
pub(super) async fn run(socket: &Path, args: &RunArgs, json: bool) -> Result<Value, ClientError> {
    let mut fields = args.fields();
    if !args.dry_run {
        fields.insert("wait_seconds".to_owned(), json!(0));
    }
    let client = Client::connect(socket).await?;
    let begun = client.call("chaos_run_experiment", fields).await;
    client.close().await;
    match begun? {
        result if args.dry_run || !result["verdict"].is_null() => Ok(result),
        result => until_ended(socket, text(&result, "run_id"), true, json).await,
    }
}

/// Everything about a run, at its end if that is to be waited for; and the exit code.
pub(super) async fn show(socket: &Path, args: &ShowArgs, json: bool) -> Result<(Value, u8), ClientError> {
    let (run, code) = match args.wait {
        true => {
            let run = until_ended(socket, &args.run, false, json).await?;
            (text(&run, "run_id").to_owned(), exit_code(&run))
        }
        false => (args.run.clone(), 0),
    };
    let client = Client::connect(socket).await?;
    let answer = history::run(&client, &run).await;
    client.close().await;
    Ok((answer?, code))
}

/// How a run has ended. `known`: there is such a run, whatever a server that has just started says.
async fn until_ended(socket: &Path, run: &str, known: bool, json: bool) -> Result<Value, ClientError> {
    let mut progress = Progress::new(json);
    let ended = follow(socket, run, known, &mut progress).await;
    progress.end();
    ended
}

async fn follow<W: Write>(
    socket: &Path,
    run: &str,
    mut known: bool,
    progress: &mut Progress<W>,
) -> Result<Value, ClientError> {
    let wait = if progress.is_shown() { LOOK } else { LONGEST_WAIT };
    // First without waiting, so that it is known whether there is such a run before anything is lost.
    let mut asked = object(json!({"run_id": run}));
    let (mut client, mut lost) = (None, None);
    loop {
        match look(socket, &mut client, &asked).await {
            Ok(mut answer) if answer["ended"] == json!(true) => return Ok(answer["run"].take()),
            Ok(answer) => {
                progress.show(&answer["running"]);
                asked =
                    object(json!({"run_id": answer["run"]["run_id"], "wait_seconds": wait.as_secs_f64()}));
                (known, lost) = (true, None);
            }
            Err(error) if known => {
                let (first, end) = lost.take().unwrap_or((error, Instant::now() + RETURN));
                if Instant::now() >= end {
                    return Err(first);
                }
                lost = Some((first, end));
                client = None;
                sleep(LOOK).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What the daemon says of a run; `client` is connected if it is not.
async fn look(
    socket: &Path,
    client: &mut Option<Client>,
    asked: &Map<String, Value>,
) -> Result<Value, ClientError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(socket).await?),
    };
    client.call("chaos_get_run", asked.clone()).await
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::verdict::VERDICTS;

    #[test]
    fn every_verdict_has_an_exit_code_of_its_own_which_the_help_explains() {
        let codes: Vec<_> = VERDICTS.iter().map(|verdict| exit_code(&json!({"verdict": verdict}))).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7]);
        for (verdict, code) in VERDICTS.iter().zip(codes) {
            assert!(EXIT_CODES.contains(&format!("\n  {code}  {verdict}: ")), "{verdict}");
        }
        assert_eq!(exit_code(&json!({"error": "still running"})), FAILED);
        assert_eq!(exit_code(&json!({"dry_run": true, "success": true})), 0);
        assert_eq!(exit_code(&json!({"dry_run": true, "success": false})), REFUSED);
    }
}
