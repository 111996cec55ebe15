//! `chaosctl run` and `show --wait`: a run to its end.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use clap::{Args, ValueHint};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::client::{Answer, Client, ClientError};
use super::document;
use super::failure::INTERRUPTED;
use super::history;
use super::interrupts::Interrupts;
use super::progress::{Followed, Progress};
use crate::experiment::Verdict;
use crate::mcp::LONGEST_WAIT;
use crate::mcp::experiment::RegisterOutput;
use crate::mcp::history::RunDetails;
use crate::mcp::results::RunOutput;
use crate::spec::SpecError;

/// How often it is shown how a run goes.
const LOOK: Duration = Duration::from_millis(500);
/// How long a daemon that has gone may take to come back and tell what has become of the run.
const RETURN: Duration = Duration::from_secs(15);
/// How often it is seen to that the screen is as it should be, while the daemon has not answered.
const TICK: Duration = Duration::from_secs(1);
/// How long it may take from an interrupt to the end of the run. The removal of a delay waits for the packets in it, for 20 s at most.
const ENDING: Duration = Duration::from_secs(60);

/// The exit codes of `chaosctl run`.
pub(super) const EXIT_CODES: &str = "Exit codes:
  0  held: the steady state was met after the run, or whenever it was to be verified
  1  deviated: it was not met after the run, or at times during it, or again later than its rto
  2  refused: it was not met before, so that nothing was done; also when the command line makes no sense
  3  failed: an error; also when the daemon refuses, or cannot be reached
  4  tripped: a gate was breached
  5  aborted: somebody stopped it, as Ctrl-C or SIGTERM of this command does
  6  interrupted: the daemon ended while it went on
  7  unverified: a fault acted on nothing, or the steady state was verified only before, or was not sampled in time

With --dry-run: 0, or 2 where it would be refused. With --detach: 0 once it has begun.";

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

/// How an experiment is run.
#[derive(Debug, Args)]
pub(super) struct How {
    /// Check without the action
    #[arg(long)]
    dry_run: bool,
    /// Of a document with blast_radius: which of its stages; without it, the one that is due
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    stage: Option<u8>,
    /// Begin no second run, and follow the first, if an earlier command of yours had this key; known for an hour
    #[arg(long, value_name = "KEY", conflicts_with = "dry_run")]
    idempotency_key: Option<String>,
    /// Run nothing but what was planned: the plan digest that chaosctl plan, or --dry-run, has shown
    #[arg(long, value_name = "DIGEST", conflicts_with = "dry_run")]
    plan_digest: Option<String>,
}

impl How {
    /// Of the experiment `name`, as the fields of the tool.
    pub(super) fn fields(&self, name: &str) -> Map<String, Value> {
        let mut fields = object(json!({"experiment_name": name, "dry_run": self.dry_run}));
        fields.extend(self.stage.map(|stage| ("stage".to_owned(), json!(stage))));
        for (field, given) in [("idempotency_key", &self.idempotency_key), ("plan_digest", &self.plan_digest)]
        {
            fields.extend(given.as_ref().map(|given| (field.to_owned(), json!(given))));
        }
        fields
    }
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// The experiment that is registered under this name.
    Name(String),
    /// The document in this file, or on stdin if it is `-`.
    File(PathBuf),
}

impl Subject {
    /// By its form alone, so that no file that comes or goes changes what is run.
    fn parse(text: &str) -> Self {
        let is_file = text == "-"
            || ["/", "./", "../"].iter().any(|start| text.starts_with(start))
            || [".json", ".yaml", ".yml"].iter().any(|end| text.ends_with(end));
        match is_file {
            true => Self::File(text.into()),
            false => Self::Name(text.to_owned()),
        }
    }

    /// The same, of what was typed.
    pub(super) fn of(text: &str) -> Result<Self, Infallible> {
        Ok(Self::parse(text))
    }

    /// The same with what is in the file.
    ///
    /// # Errors
    /// As [`document::read`].
    pub(super) fn read(&self) -> Result<Experiment, SpecError> {
        Ok(match self {
            Self::Name(name) => Experiment::Registered(name.clone()),
            Self::File(file) => Experiment::Document(document::read(file)?.0),
        })
    }
}

/// What is run, read.
pub(super) enum Experiment {
    /// What is registered under this name.
    Registered(String),
    /// A document that makes sense.
    Document(Value),
}

/// An experiment, registered or in a file.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Name of a registered one; or a file, which is checked and registered first: what begins with / ./ or ../ or ends in .json,
    /// .yaml or .yml, or - for stdin
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::FilePath, value_parser = Subject::of)]
    pub(super) subject: Subject,
    #[command(flatten)]
    pub(super) how: How,
    /// Only begin it, and print its handle: it goes on by itself, and chaosctl show --wait follows it
    #[arg(long, conflicts_with = "dry_run")]
    pub(super) detach: bool,
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
    pub(super) stage: Option<u8>,
}

/// What running `document` would do.
pub(super) async fn plan(
    socket: &Path,
    stage: Option<u8>,
    document: &Value,
) -> Result<RunOutput, ClientError> {
    let mut fields = object(json!({"document": document}));
    fields.extend(stage.map(|stage| ("stage".to_owned(), json!(stage))));
    call(socket, "chaos_plan_experiment", fields).await
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
pub(super) fn exit_code(result: &RunOutput) -> u8 {
    match result.verdict {
        Some(Verdict::Held) => 0,
        Some(Verdict::Deviated) => 1,
        Some(Verdict::Refused) => REFUSED,
        Some(Verdict::Failed) => FAILED,
        Some(Verdict::Tripped) => 4,
        Some(Verdict::Aborted) => 5,
        Some(Verdict::Interrupted) => INTERRUPTED,
        Some(Verdict::Unverified) => 7,
        None if result.dry_run == Some(true) && result.success => 0,
        None if result.dry_run == Some(true) => REFUSED,
        None => FAILED,
    }
}

/// Why a run was not followed to its end.
pub(super) enum RunError {
    /// The daemon refused it, or cannot be asked.
    Client(ClientError),
    /// Anything else: what, and what to do.
    Other(String),
}

impl From<ClientError> for RunError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Runs an experiment and waits for its end, however long it takes, also if the daemon's server is started anew meanwhile; shows
/// how it goes, unless the answer is for programs. An interrupt ends the run, a second one only the waiting.
pub(super) async fn run(
    socket: &Path,
    args: &RunArgs,
    experiment: Experiment,
    json: bool,
) -> Result<RunOutput, RunError> {
    let begin = begin(socket, &args.how, experiment);
    if args.how.dry_run || args.detach {
        return Ok(begin.await?);
    }
    let mut interrupts = Interrupts::new().map_err(RunError::Other)?;
    let (stop, stopped) = oneshot::channel();
    let (run, mut progress) = (OnceCell::new(), Progress::new(json));
    let ended = {
        let mut ended = pin!(to_the_end(socket, begin, &run, &mut progress, stopped));
        tokio::select! {
            ended = &mut ended => Ok(ended),
            signal = interrupts.next() => {
                // Nobody hears it if the run has just ended.
                let _ = stop.send(signal);
                tokio::select! {
                    ended = &mut ended => Ok(ended),
                    () = sleep(ENDING) => Err(format!("no end within {ENDING:?}")),
                    again = interrupts.next() => Err(format!("ended by {again}")),
                }
            }
        }
    };
    progress.end();
    let ended = ended.unwrap_or_else(|why| Err(left(run.get(), &why)))?;
    progress.verdict(&ended);
    Ok(ended)
}

/// What becomes of a run that nobody waits for any more.
fn left(run: Option<&String>, why: &str) -> RunError {
    RunError::Other(match run {
        Some(run) => format!(
            "{why}: run {run} may go on: stop it with chaosctl stop --run {run}, or see its end with chaosctl show --wait {run}"
        ),
        None => {
            format!("{why}, before the daemon had answered: see with chaosctl status whether the run goes on")
        }
    })
}

/// Begins a run, which then goes on by itself; or only looks, with `--dry-run`, which registers nothing.
async fn begin(socket: &Path, how: &How, experiment: Experiment) -> Result<RunOutput, ClientError> {
    let name = match experiment {
        Experiment::Registered(name) => name,
        Experiment::Document(document) if how.dry_run => return plan(socket, how.stage, &document).await,
        Experiment::Document(document) => {
            let registered: RegisterOutput =
                call(socket, "chaos_register_experiment", object(document)).await?;
            registered.experiment_name
        }
    };
    let mut fields = how.fields(&name);
    if !how.dry_run {
        fields.insert("wait_seconds".to_owned(), json!(0));
    }
    call(socket, "chaos_run_experiment", fields).await
}

/// Has a run begun, whose handle goes to `known`, and follows it to its end, which is asked for as soon as `stopped` has the name of a signal.
async fn to_the_end<W: Write>(
    socket: &Path,
    begin: impl Future<Output = Result<RunOutput, ClientError>>,
    known: &OnceCell<String>,
    progress: &mut Progress<W>,
    stopped: oneshot::Receiver<&'static str>,
) -> Result<RunOutput, RunError> {
    let begun = begin.await.map_err(|error| match error {
        // Which may have been after it had begun.
        ClientError::Call(_) => left(None, &error.to_string()),
        error => error.into(),
    })?;
    if begun.verdict.is_some() {
        return Ok(begun);
    }
    let run = known.get_or_init(|| begun.run_id);
    progress.begin(run, &begun.experiment_name, "stops it");
    tokio::select! {
        ended = follow(socket, run, true, progress) => return ended,
        Ok(signal) = stopped => {
            progress.end();
            eprintln!("chaosctl: {signal}: stopping run {run}, and waiting for its end; again to wait no longer");
        }
    }
    match call::<Value>(socket, "chaos_stop", object(json!({"run_id": run}))).await {
        // It may take longer, leave something, or have ended by itself: that is told of the run.
        Ok(_) => {}
        Err(ClientError::Refused { code, .. })
            if ["UNAVAILABLE", "REVERT_FAILED", "RUN_NOT_FOUND"].contains(&code.as_str()) => {}
        Err(error @ (ClientError::Refused { .. } | ClientError::NotServed(_))) => {
            return Err(left(Some(run), &error.to_string()));
        }
        // Where the daemon is gone, so is the run: that is seen when it is followed.
        Err(_) => {}
    }
    follow(socket, run, true, progress).await
}

/// One call in a session of its own.
async fn call<T: DeserializeOwned>(
    socket: &Path,
    tool: &'static str,
    fields: Map<String, Value>,
) -> Result<T, ClientError> {
    let client = Client::connect(socket).await?;
    let answer = client.ask(tool, fields).await;
    client.close().await;
    Ok(answer?.read)
}

/// Everything about a run, at its end if that is to be waited for; and the exit code.
pub(super) async fn show(
    socket: &Path,
    args: &ShowArgs,
    json: bool,
) -> Result<(Answer<RunDetails>, u8), RunError> {
    let (run, code) = match args.wait {
        true => {
            let run = until_ended(socket, &args.run, json).await?;
            let code = exit_code(&run);
            (run.run_id, code)
        }
        false => (args.run.clone(), 0),
    };
    let client = Client::connect(socket).await?;
    let answer = history::run(&client, &run).await;
    client.close().await;
    Ok((answer?, code))
}

/// How a run has ended.
async fn until_ended(socket: &Path, run: &str, json: bool) -> Result<RunOutput, RunError> {
    let mut progress = Progress::new(json);
    let ended = follow(socket, run, false, &mut progress).await;
    progress.end();
    let ended = ended?;
    progress.verdict(&ended);
    Ok(ended)
}

/// How a run has ended. `known`: there is such a run, whatever a server that has just started says.
async fn follow<W: Write>(
    socket: &Path,
    run: &str,
    mut known: bool,
    progress: &mut Progress<W>,
) -> Result<RunOutput, RunError> {
    let wait = if progress.is_shown() { LOOK } else { LONGEST_WAIT };
    // First without waiting, so that it is known whether there is such a run before anything is lost.
    let mut asked = object(json!({"run_id": run, "all_samples": progress.wants_all()}));
    let (mut client, mut lost) = (None, None);
    loop {
        match look_and_draw(socket, &mut client, &asked, progress).await {
            Ok(followed) => {
                match (followed.ended, known) {
                    // Nothing of it was waited for.
                    (true, false) => return Ok(followed.run),
                    (false, false) => {
                        let Followed { run, .. } = &followed;
                        progress.begin(&run.run_id, &run.experiment_name, "ends the waiting alone");
                    }
                    (_, true) => {}
                }
                progress.show(&followed);
                if followed.ended {
                    return Ok(followed.run);
                }
                asked = object(json!({"run_id": followed.run.run_id, "wait_seconds": wait.as_secs_f64()}));
                (known, lost) = (true, None);
            }
            Err(error) if known => {
                let end = *lost.get_or_insert_with(|| Instant::now() + RETURN);
                if Instant::now() >= end {
                    return Err(gone(run, error));
                }
                progress.lose(&error.to_string(), RETURN.as_secs());
                client = None;
                sleep(LOOK).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why a run is followed no more, when this came of it to the end.
fn gone(run: &str, error: ClientError) -> RunError {
    match error {
        // What it refuses, it is there to refuse.
        ClientError::Refused { .. } => error.into(),
        ClientError::NotServed(_) => left(Some(&run.to_owned()), &error.to_string()),
        ClientError::Connect { ref source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            left(Some(&run.to_owned()), &error.to_string())
        }
        error => ClientError::Ended { run: run.to_owned(), why: error.to_string() }.into(),
    }
}

/// What the daemon says of a run. While it does not, it is shown that it does not.
async fn look_and_draw<W: Write>(
    socket: &Path,
    client: &mut Option<Client>,
    asked: &Map<String, Value>,
    progress: &mut Progress<W>,
) -> Result<Followed, ClientError> {
    let mut looking = pin!(look(socket, client, asked));
    loop {
        tokio::select! {
            looked = &mut looking => return looked,
            () = sleep(TICK) => progress.is_silent(),
        }
    }
}

/// What the daemon says of a run; `client` is connected if it is not.
async fn look(
    socket: &Path,
    client: &mut Option<Client>,
    asked: &Map<String, Value>,
) -> Result<Followed, ClientError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(socket).await?),
    };
    Ok(client.ask("chaos_get_run", asked.clone()).await?.read)
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
        let ended = |verdict: &Verdict| RunOutput { verdict: Some(*verdict), ..RunOutput::default() };
        let codes: Vec<_> = VERDICTS.iter().map(|verdict| exit_code(&ended(verdict))).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7]);
        for (verdict, code) in VERDICTS.iter().zip(codes) {
            assert!(EXIT_CODES.contains(&format!("\n  {code}  {verdict}: ")), "{verdict}");
        }
        assert_eq!(
            exit_code(&RunOutput { error: Some("still running".into()), ..RunOutput::default() }),
            FAILED
        );
        for (success, code) in [(true, 0), (false, REFUSED)] {
            let looked_at = RunOutput { dry_run: Some(true), success, ..RunOutput::default() };
            assert_eq!(exit_code(&looked_at), code);
        }
    }

    #[test]
    fn a_file_is_told_from_a_name_by_its_form() {
        for file in ["-", "/a/b", "./a", "../a b", "a.json", "b/c.yaml", "it holds.yml"] {
            assert_eq!(Subject::parse(file), Subject::File(file.into()), "{file}");
        }
        for name in ["it holds", "p95 of a/b", "a.yaml holds", "--", "~", "json", ".hidden"] {
            assert_eq!(Subject::parse(name), Subject::Name(name.to_owned()), "{name}");
        }
    }
}
