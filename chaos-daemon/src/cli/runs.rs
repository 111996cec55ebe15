//! `chaosctl run`: an experiment to its end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::client::{Client, ClientError};
use super::progress::Progress;
use crate::experiment::Verdict;
use crate::server::runs::now;

/// How often a run that goes on is asked for.
const LOOK: Duration = Duration::from_millis(500);
/// How long a daemon that has gone may take to come back and tell what has become of the run.
const RETURN: Duration = Duration::from_secs(15);

/// The exit codes of `chaosctl run`.
pub(super) const EXIT_CODES: &str = "Exit codes:
  0  held: the steady state was met after the run
  1  deviated: it was not met after the run, or at times during it, or again later than its rto
  2  refused: it was not met before, so that nothing was done; also when the command line makes no sense
  3  failed: an error; also when the daemon refuses, or cannot be reached
  4  tripped: a gate was breached
  5  aborted: somebody stopped it
  6  interrupted: the daemon ended while it went on

With --dry-run: 0, or 2 where it would be refused.";

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
    let mut progress = Progress::new(json || args.dry_run);
    let ended = follow(socket, args, &mut progress).await;
    progress.end();
    ended
}

/// The answer to `call`, while it is shown how the run goes.
async fn shown<T, W: Write>(
    client: &Client,
    name: &str,
    progress: &mut Progress<W>,
    call: impl Future<Output = T>,
) -> T {
    tokio::pin!(call);
    loop {
        tokio::select! {
            answer = &mut call => return answer,
            () = sleep(LOOK), if progress.is_shown() => {
                let only = object(json!({"experiment_name": name}));
                if let Ok(status) = client.call("chaos_status", only).await
                    && let Some(running) = status["running"].get(0)
                {
                    progress.show(running);
                }
            }
        }
    }
}

async fn follow<W: Write>(
    socket: &Path,
    args: &RunArgs,
    progress: &mut Progress<W>,
) -> Result<Value, ClientError> {
    let since = now();
    let client = Client::connect(socket).await?;
    let call = client.call("chaos_run_experiment", args.fields());
    let begun = shown(&client, &args.name, progress, call).await;
    let (mut lost, run_id) = match begun {
        Ok(result) if !result["verdict"].is_null() || args.dry_run => {
            client.close().await;
            return Ok(result);
        }
        Ok(result) => (None, result["run_id"].as_str().map(str::to_owned)),
        Err(error @ ClientError::Call(_)) => (Some(error), None),
        Err(error) => return Err(error),
    };
    let mut client = Some(client);
    let mut end = Instant::now() + RETURN;
    loop {
        sleep(LOOK).await;
        let status = match &client {
            Some(client) => client.call("chaos_status", results(Some(&args.name))).await,
            None => Err(ClientError::Call("the connection was lost".to_owned())),
        };
        match status {
            Ok(status) => match find(&status, run_id.as_deref(), &since) {
                Some(Found::Over(result)) => return Ok(result),
                Some(Found::Running(running)) => {
                    progress.show(&running);
                    end = Instant::now() + RETURN;
                }
                // A server that has just started may not have written it down yet.
                None if Instant::now() < end => {}
                None => {
                    return Err(lost.unwrap_or_else(|| ClientError::Call("the run is unknown".to_owned())));
                }
            },
            Err(error) if Instant::now() < end => {
                lost.get_or_insert(error);
                client = Client::connect(socket).await.ok();
            }
            Err(error) => return Err(lost.unwrap_or(error)),
        }
    }
}

/// What `chaos_status` is asked for results with.
fn results(experiment: Option<&str>) -> Map<String, Value> {
    let mut arguments = object(json!({"include_results": true}));
    arguments.extend(experiment.map(|name| ("experiment_name".to_owned(), json!(name))));
    arguments
}

enum Found {
    Over(Value),
    Running(Value),
}

/// The run of this handle; without one, the one that began since then.
fn find(status: &Value, run_id: Option<&str>, since: &str) -> Option<Found> {
    let is_it = |run: &&Value| match run_id {
        Some(run_id) => run["run_id"] == json!(run_id),
        None => run["started_at"].as_str().is_some_and(|began| began >= since),
    };
    let list = |field: &str| status[field].as_array().into_iter().flatten();
    let over = list("results").rev().find(is_it).map(|result| Found::Over(result.clone()));
    over.or_else(|| list("running").find(is_it).map(|run| Found::Running(run.clone())))
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
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6]);
        for (verdict, code) in VERDICTS.iter().zip(codes) {
            assert!(EXIT_CODES.contains(&format!("\n  {code}  {verdict}: ")), "{verdict}");
        }
        assert_eq!(exit_code(&json!({"error": "still running"})), FAILED);
        assert_eq!(exit_code(&json!({"dry_run": true, "success": true})), 0);
        assert_eq!(exit_code(&json!({"dry_run": true, "success": false})), REFUSED);
    }
}
