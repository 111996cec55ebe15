//! `chaosctl`: its commands, and its exit codes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::advise::{self, AdviseArgs};
use super::approvals::{self, ApprovalsArgs, ApproveArgs};
use super::audit::{self, AuditCommand};
use super::calls::{self, Place};
use super::client::{Answer, Client};
use super::clients::McpClient;
use super::compare::{self, CompareArgs};
use super::convert::{self, ConvertArgs};
use super::experiments::{self, ExperimentCommand};
use super::failure::{FAILED, Failure, INTERRUPTED, UNREACHABLE, USAGE, client_failure};
use super::fault_args::{self, OfFault, with_files};
use super::history::{RunsArgs, StatsArgs};
use super::hook::{self, HookCommand};
use super::hub::{self, HubArgs};
use super::inject::{InjectArgs, inject};
use super::mcp_proxy::{self, ProxyArgs, ProxyError};
use super::policy::{self, PolicyCommand};
use super::report::{self as reports, ReportArgs};
use super::runs::{PlanArgs, RunArgs, ShowArgs, object};
use super::schedule::{self, ScheduleCommand};
use super::search::{self, SearchArgs};
use super::top::{self, TopArgs};
use super::validate::{self, ValidateArgs};
use super::words::in_shell;
use super::{bridge, claude_md, document, history, runs, sample, show, watch};
use crate::experiment::schema;
use crate::host::words;
use crate::mcp::control::DoctorOutput;
use crate::mcp::history::StatisticsOutput;
use crate::mcp::plan::PlanOutput;
use crate::mcp::results::RunOutput;
use crate::probe::arguments::ProbeArgs;
use crate::request::host_targets::MOST_TOLD;
use crate::request::targets::UNKNOWN_TARGETS;
use crate::spec::{FaultOptions, GivenName, Probability, SpecError};

/// Where an installed daemon has its socket.
const SOCKET: &str = "/run/chaos-daemon/mcp.sock";

const EXIT_CODES: &str = "Exit codes:
  0  done (also when an injection's probability said no)
  1  refused or failed by the daemon; a probe or an experiment that was not met
  2  the command line makes no sense
  3  the daemon cannot be reached, or went away
  4  not permitted
  5  doctor --residue: something of ours is left, and does nothing
  7  doctor --residue: a fault that nobody keeps still acts

Where no daemon answers, `chaos-daemon recover --dry-run` looks for leftovers without one.";

const PROXY_HELP: &str = "It needs no daemon and no privilege: put it before the server's command in the client's configuration, as in
  chaosctl mcp-proxy --delay 2s --delay-share 0.5 --fail 0.1 -- my-server --its-option

A call meets at most one of --fail, --drop, --truncate and --corrupt, and a delay beside it. Batches of messages pass
untouched. The exit code is the server's.";

/// Injects real faults into this node, each of which ends.
#[derive(Debug, Parser)]
#[command(name = "chaosctl", version, after_help = EXIT_CODES)]
pub(super) struct Cli {
    /// The daemon's socket
    #[arg(
        long,
        global = true,
        env = "CHAOS_SOCKET",
        value_name = "PATH",
        default_value = SOCKET
    )]
    pub(super) socket: PathBuf,
    /// Print the daemon's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Inject a fault, which ends by itself
    #[command(subcommand)]
    Inject(Box<OfFault<InjectArgs>>),
    /// End a fault and forget it
    Remove {
        /// Name; of another user's as chaosctl status has it, e.g. 1001/slow
        #[arg(value_parser = GivenName::parse)]
        name: GivenName,
    },
    /// End one active fault, one run, or everything
    Stop {
        /// Name; of another user's as chaosctl status has it, e.g. 1001/slow. Without it, every fault and experiment ends
        #[arg(value_parser = GivenName::parse)]
        name: Option<GivenName>,
        /// In place of a fault: the run with this handle, or the beginning of it
        #[arg(long, value_name = "RUN", conflicts_with_all = ["name", "experiment"], value_parser = NonEmptyStringValueParser::new())]
        run: Option<String>,
        /// In place of a fault: the run of this experiment
        #[arg(long, value_name = "NAME", conflicts_with = "name", value_parser = NonEmptyStringValueParser::new())]
        experiment: Option<String>,
        /// Every fault and experiment
        #[arg(long, conflicts_with_all = ["name", "run", "experiment"])]
        all: bool,
    },
    /// List what can be aimed at on this host; or, with a fault and the options of inject, show which processes it would hit
    #[command(args_conflicts_with_subcommands = true)]
    Targets {
        /// Only what has this text in its name, addresses, programs or owner
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        #[command(subcommand)]
        fault: Option<Box<OfFault<NoMore>>>,
    },
    /// Show what is registered and active
    Status {
        /// Go on showing, until Ctrl-C
        #[arg(long)]
        watch: bool,
        /// Results of experiments as well
        #[arg(long)]
        results: bool,
    },
    /// Show the faults, runs and gates of this host, again and again, with keys that stop one or all
    Top(TopArgs),
    /// Run an experiment, registered or in a file, to its end; the exit code is the verdict. Ctrl-C stops it
    #[command(after_help = runs::EXIT_CODES)]
    Run(RunArgs),
    /// Show what running an experiment would do, and whether it would be admitted now; it need not be registered
    #[command(after_help = runs::PLAN_EXIT_CODES)]
    Plan(PlanArgs),
    /// List what has run, with its verdict, and what runs
    Runs(RunsArgs),
    /// Show a run: what happened, and when
    #[command(after_help = runs::SHOW_EXIT_CODES)]
    Show(ShowArgs),
    /// Write a report on a run that has ended, on two side by side, or on all of an experiment
    Report(ReportArgs),
    /// Show two runs side by side, such as before and after a fix: verdicts, recovery, the worst of each gate, evidence
    #[command(after_help = compare::EXIT_CODES)]
    Compare(CompareArgs),
    /// Show what all recorded runs say together, or those that a search finds: success, verdicts, failure modes, scores, what is flaky
    Stats(StatsArgs),
    /// List, show, register or run experiments
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Have registered experiments run at times, by themselves
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Find the mildest faults at which an experiment misses its objective, by runs of it, within the search of its document
    #[command(after_help = search::EXIT_CODES)]
    Search(Box<SearchArgs>),
    /// Rank the services of this host by what deserves chaos next, with reasons, and an experiment for each
    Advise(AdviseArgs),
    /// Check experiments without running them, and without the daemon; exit code 0 or 2
    Validate(ValidateArgs),
    /// Turn an experiment of Chaos Toolkit into one of chaos-daemon, as far as that means the same; without the daemon
    Convert(ConvertArgs),
    /// Print the JSON Schema of an experiment
    Schema,
    /// Experiments that are ready to be used, and a page about each type of fault; without the daemon
    #[command(after_help = hub::USE)]
    Hub(HubArgs),
    /// Take one sample: does it answer
    Probe(ProbeArgs),
    /// List the types of fault
    Faults {
        /// As a Markdown table
        #[arg(long)]
        markdown: bool,
    },
    /// Write, check and explain the file by which the daemon decides who may do what; without the daemon
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Approve of what another user wants to do, once; for approvers
    Approve(ApproveArgs),
    /// List what waits for an approval, or take one back
    Approvals(ApprovalsArgs),
    /// Show who did what, or was refused; check that nothing of that record was changed
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Show what this host can do, and what is missing
    Doctor {
        /// Instead look everywhere on the host for what faults have left; exit code 0, 1, 5 or 7
        #[arg(long)]
        residue: bool,
    },
    /// Connect stdio with the daemon, for MCP clients that start a command
    Mcp {
        /// Only print how this client is told to start it
        #[arg(long, value_name = "CLIENT")]
        print_config: Option<McpClient>,
    },
    /// Have Claude Code ask by the policy before a model calls a tool
    #[command(subcommand)]
    Hook(HookCommand),
    /// Run an MCP server that speaks over stdio, and delay, fail or spoil a share of the calls to it
    #[command(after_help = PROXY_HELP)]
    McpProxy(Box<ProxyArgs>),
    /// Print a completion script
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Manual {
        /// Folder
        folder: PathBuf,
    },
}

/// Nothing beside a fault.
#[derive(Debug, Args)]
pub(super) struct NoMore {}

/// What was done: text for people, the answer for programs, and how it went.
struct Done {
    text: String,
    answer: Value,
    code: u8,
}

impl From<(String, Value, u8)> for Done {
    fn from((text, answer, code): (String, Value, u8)) -> Self {
        Self { text, answer, code }
    }
}

impl From<(String, Value)> for Done {
    fn from((text, answer): (String, Value)) -> Self {
        Self::well(text, answer)
    }
}

impl Done {
    fn well(text: String, answer: Value) -> Self {
        Self { text, answer, code: 0 }
    }

    /// What the daemon has answered, as `show` has it for people.
    fn shown<T>(answer: Answer<T>, show: impl FnOnce(&T) -> String) -> Self {
        Self::well(show(&answer.read), answer.json)
    }
}

/// What a command line means of those that have a place in an experiment, to be held against what a document means.
#[cfg(test)]
pub(crate) fn native(
    parser: &mut clap::Command,
    arguments: &[String],
) -> Result<crate::experiment::Native, String> {
    use crate::experiment::Native;

    let words = std::iter::once("chaosctl".to_owned()).chain(arguments.iter().cloned());
    let matches = parser.try_get_matches_from_mut(words);
    let cli = matches.and_then(|matches| clap::FromArgMatches::from_arg_matches(&matches));
    let cli: Cli = cli.map_err(|error| error.to_string())?;
    match cli.command {
        Command::Inject(inject) => {
            let InjectArgs { probability, dry_run, plan_digest, wait } = inject.more;
            if dry_run || wait || plan_digest.is_some() || (probability - 1.0).abs() > f64::EPSILON {
                let problem =
                    "--dry-run, --plan-digest, --wait and --probability have no place in an experiment";
                return Err(problem.to_owned());
            }
            if inject.owner.is_some() {
                return Err("--name says whose the fault is: in an experiment it is the experiment's owner"
                    .to_owned());
            }
            let fault = inject.fault.request(Probability::CERTAIN).map_err(|error| error.to_string())?;
            Ok(Native::Inject { name: inject.fault.name, fault: Box::new(fault) })
        }
        Command::Probe(probe) => probe.probe().map(Native::Probe).map_err(|error| error.to_string()),
        Command::Remove { name: GivenName { owner: None, name } } => Ok(Native::Remove(name)),
        _ => Err("only chaosctl inject, probe and remove have a place in an experiment".to_owned()),
    }
}

/// The parser of `chaosctl`.
#[cfg(test)]
pub(crate) fn parser() -> clap::Command {
    Cli::command()
}

/// Runs `chaosctl` with the arguments of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.command {
        Command::Mcp { print_config: None } => return bridge_until_end(&cli),
        Command::Hook(HookCommand::Pretooluse(args)) => {
            let socket = cli.socket.as_path();
            let reading = |words: &[String], is_known| calls::of_words(words, Place { socket, is_known });
            return hook::pretooluse(args, socket, &reading);
        }
        Command::McpProxy(args) => return proxy_until_end(args, cli.json),
        _ => {}
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&cli, Err(Failure::Other(format!("starting: {error}")))),
    };
    let done = runtime.block_on(carry_out(&cli));
    // A name lookup that hangs must not keep the command from ending.
    runtime.shutdown_timeout(Duration::from_millis(100));
    report(&cli, done)
}

/// What it did goes to stderr: stdout is the client's.
fn proxy_until_end(args: &ProxyArgs, json: bool) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("starting: {error}"), FAILED),
    };
    let ended = runtime.block_on(mcp_proxy::run(args));
    // A thread of it may still be waiting for stdin.
    runtime.shutdown_background();
    match ended {
        Ok(ended) => {
            match json {
                true => eprintln!("{}", json!(ended)),
                false => eprintln!("chaosctl mcp-proxy: {ended}"),
            }
            ExitCode::from(ended.code)
        }
        Err(error @ ProxyError::Usage(_)) => complain(&error.to_string(), USAGE),
        Err(error @ ProxyError::Server { .. }) => complain(&error.to_string(), FAILED),
    }
}

fn complain(problem: &str, code: u8) -> ExitCode {
    eprintln!("chaosctl mcp-proxy: {problem}");
    ExitCode::from(code)
}

fn bridge_until_end(cli: &Cli) -> ExitCode {
    match bridge::run(&cli.socket) {
        Ok(bridge::End::Client) => ExitCode::SUCCESS,
        Ok(bridge::End::Daemon(reason)) => {
            let reason = reason.unwrap_or_else(|| "see its log, and start it again".to_owned());
            eprintln!("chaosctl mcp: the daemon closed the connection: {reason}");
            ExitCode::from(UNREACHABLE)
        }
        Err(error) => report(cli, Err(Failure::Client(error))),
    }
}

fn report(cli: &Cli, done: Result<Done, Failure>) -> ExitCode {
    let (mut code, text, answer) = match done {
        Ok(done) => {
            say(&if cli.json { format!("{}\n", done.answer) } else { words::plain(&done.text).into_owned() });
            return ExitCode::from(done.code);
        }
        Err(Failure::Usage(error)) => (USAGE, error.to_string(), None),
        Err(Failure::Other(error)) => (FAILED, error, None),
        Err(Failure::Client(error)) => client_failure(error),
    };
    code = match cli.command {
        Command::Run(_) if code == USAGE => USAGE,
        Command::Run(_) | Command::Show(ShowArgs { wait: true, .. }) if code == INTERRUPTED => INTERRUPTED,
        Command::Run(_) | Command::Show(ShowArgs { wait: true, .. }) => runs::FAILED,
        Command::Plan(_) => runs::plan_failure(code, answer.is_some()),
        _ => code,
    };
    match answer {
        Some(answer) if cli.json => say(&format!("{answer}\n")),
        _ if cli.json => say(&format!("{}\n", json!({"error": {"message": text}}))),
        _ => {}
    }
    eprintln!("chaosctl: {}", words::plain(&text));
    ExitCode::from(code)
}

/// Prints; a reader that has gone, such as `head`, is no reason to complain.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

async fn carry_out(cli: &Cli) -> Result<Done, Failure> {
    match &cli.command {
        Command::Faults { markdown } => Ok(Done::well(show::faults(*markdown), show::faults_json())),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "chaosctl", &mut script);
            let script = String::from_utf8_lossy(&script).into_owned();
            Ok(Done::well(script.clone(), Value::String(script)))
        }
        Command::Manual { folder } => manual(folder),
        Command::Probe(probe) => {
            let (text, answer, ok) = sample::carry_out(&probe.clone().probe()?, &cli.socket).await?;
            Ok(Done { text, answer, code: if ok { 0 } else { FAILED } })
        }
        Command::Policy(PolicyCommand::Export(args)) => {
            Ok(claude_md::carry_out(args, &cli.socket).await?.into())
        }
        Command::Policy(command) => Ok(policy::carry_out(command)?.into()),
        Command::Hook(command) => Ok(hook::carry_out(command, other_socket(&cli.socket))?.into()),
        Command::Mcp { print_config: Some(client) } => config_of(*client, &cli.socket),
        Command::Audit(command) => Ok(audit::carry_out(command, &cli.socket, cli.json).await?.into()),
        Command::Convert(args) => Ok(convert::carry_out(args, cli.json)?.into()),
        Command::Validate(args) => Ok(validate::carry_out(args)?.into()),
        Command::Hub(args) => Ok(hub::carry_out(args)?.into()),
        Command::Run(args) => {
            let experiment = args.subject.read()?;
            let answer = runs::run(&cli.socket, args, experiment, cli.json).await?;
            if args.detach {
                return Ok(Done::well(format!("{}\n", answer.run_id), json!(answer)));
            }
            Ok(Done { text: show::run(&answer), code: runs::exit_code(&answer), answer: json!(answer) })
        }
        Command::Show(args) => {
            let (answer, code) = runs::show(&cli.socket, args, cli.json).await?;
            Ok(Done { text: history::details(&answer.read), code, answer: answer.json })
        }
        Command::Top(args) => Ok(Done::well(top::carry_out(&cli.socket, args, cli.json).await?, Value::Null)),
        Command::Plan(args) => {
            let document = document::read(&args.file)?.0;
            let answer = runs::plan(&cli.socket, args.stage, &document).await?;
            Ok(Done { text: show::run(&answer), code: runs::exit_code(&answer), answer: json!(answer) })
        }
        Command::Schema => {
            let schema = schema::document();
            Ok(Done::well(format!("{schema:#}\n"), schema))
        }
        Command::Inject(args) => inject_fault(cli, args).await,
        Command::Targets { fault: Some(args), .. } => {
            let fault = with_files(args.fault.clone())?;
            let request = fault.request(Probability::CERTAIN)?;
            let client = Client::connect(&cli.socket).await?;
            let done = targets(&client, &fault, object(json!(request))).await;
            client.close().await;
            done
        }
        command => {
            let client = Client::connect(&cli.socket).await?;
            let done = ask(&client, command, cli.json).await;
            client.close().await;
            done
        }
    }
}

/// Writes the manual pages into a folder.
fn manual(folder: &Path) -> Result<Done, Failure> {
    clap_mangen::generate_to(Cli::command(), folder)
        .map_err(|error| Failure::Other(format!("writing to {}: {error}", folder.display())))?;
    Ok(Done::well(String::new(), Value::Null))
}

/// How a client is told to start the bridge. Where that goes is no part of it.
fn config_of(client: McpClient, socket: &Path) -> Result<Done, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("find the path of this program: {error}")))?;
    let text = client.text(&program, other_socket(socket)).map_err(Failure::Other)?;
    eprintln!("chaosctl mcp: this goes into {}", client.file());
    Ok(Done::well(text.clone(), Value::String(text)))
}

/// A socket that has to be named, because it is not where every command looks for one.
fn other_socket(socket: &Path) -> Option<&Path> {
    (socket != Path::new(SOCKET)).then_some(socket)
}

async fn inject_fault(cli: &Cli, args: &OfFault<InjectArgs>) -> Result<Done, Failure> {
    // Understood before anyone is asked, so that a mistake is told as one even without a daemon.
    let fault = with_files(args.fault.clone())?;
    let request = fault.request(Probability::new("--probability", args.more.probability)?)?;
    let client = Client::connect(&cli.socket).await?;
    let told = |text: &str| {
        if !cli.json {
            say(text)
        }
    };
    let done = inject(&client, args, object(json!(request)), told).await;
    client.close().await;
    done.map(|(text, answer)| Done::well(text, answer))
}

async fn ask(client: &Client, command: &Command, json: bool) -> Result<Done, Failure> {
    match command {
        Command::Remove { name } => {
            said(client, "chaos_inject_fault", json!({"fault_name": name, "action": "remove"})).await
        }
        Command::Stop { name, run, experiment, .. } => {
            let mut which = object(json!({"fault_name": name, "run_id": run, "experiment_name": experiment}));
            which.retain(|_, value| !value.is_null());
            said(client, "chaos_stop", Value::Object(which)).await
        }
        Command::Status { watch: true, .. } => {
            Ok(watch::status(client, json).await.map(|()| Done::well(String::new(), Value::Null))?)
        }
        Command::Status { results, .. } => {
            let asked = client.ask("chaos_status", object(json!({"include_results": results}))).await?;
            Ok(Done::shown(asked, show::status))
        }
        Command::Doctor { residue } => doctor(client, *residue).await,
        Command::Targets { text, .. } => {
            let mut asked = object(json!({"text": text, "limit": MOST_TOLD}));
            asked.retain(|_, value| !value.is_null());
            Ok(Done::shown(client.ask("chaos_targets", asked).await?, show::targets))
        }
        Command::Runs(args) => {
            let found = history::runs(client, args).await?;
            Ok(Done::well(found.lines(), json!(found)))
        }
        Command::Schedule(command) => Ok(schedule::carry_out(client, command).await?.into()),
        Command::Approve(args) => Ok(approvals::approve(client, args).await?.into()),
        Command::Approvals(args) => Ok(approvals::carry_out(client, args).await?.into()),
        Command::Search(args) => Ok(search::carry_out(client, args, json).await?.into()),
        Command::Compare(args) => Ok(compare::carry_out(client, args).await?.into()),
        Command::Advise(args) => Ok(advise::carry_out(client, args).await?.into()),
        Command::Report(args) => {
            let (text, answer) = reports::carry_out(client, args).await?;
            Ok(Done::well(text, answer))
        }
        Command::Stats(args) => {
            let figures = |found: &StatisticsOutput| history::figures(&found.statistics);
            Ok(Done::shown(history::statistics(client, args).await?, figures))
        }
        Command::Experiment(command) => experiment(client, command).await,
        other => Err(Failure::Other(format!("{other:?} does not ask the daemon"))),
    }
}

async fn experiment(client: &Client, command: &ExperimentCommand) -> Result<Done, Failure> {
    Ok(match command {
        ExperimentCommand::List(args) => {
            let found = experiments::find(client, args).await?;
            Done::well(experiments::lines(&found), json!({"experiments": found}))
        }
        ExperimentCommand::Show { name } => {
            Done::shown(experiments::show(client, name).await?, experiments::page)
        }
        ExperimentCommand::Run { name, how } => {
            let answer: Answer<RunOutput> = client.ask("chaos_run_experiment", how.fields(name)).await?;
            let code = if answer.read.success { 0 } else { FAILED };
            Done { code, ..Done::shown(answer, show::run) }
        }
        ExperimentCommand::Register { file } => {
            let document = object(document::read(file)?.0);
            Done::shown(client.ask("chaos_register_experiment", document).await?, show::registered)
        }
    })
}

/// Asks for something that is answered in a sentence.
async fn said(client: &Client, tool: &'static str, arguments: Value) -> Result<Done, Failure> {
    let answer = client.ask(tool, object(arguments)).await?;
    Ok(Done::shown(answer, |Sentence { message }| {
        format!("{}\n", in_shell(message.as_deref().unwrap_or("done")))
    }))
}

/// What several tools say, among other things.
#[derive(Deserialize)]
struct Sentence {
    message: Option<String>,
}

/// What this host can do, or what is left on it.
async fn doctor(client: &Client, residue: bool) -> Result<Done, Failure> {
    let answer: Answer<DoctorOutput> =
        client.ask("chaos_doctor", object(json!({"residue": residue}))).await?;
    Ok(match answer.read.everywhere {
        Some(report) => {
            Done { text: report.to_string(), code: report.level.exit_code(), answer: json!(report) }
        }
        None if residue => return Err(Failure::Other("the daemon has said nothing of leftovers".to_owned())),
        None => Done::shown(answer, show::doctor),
    })
}

/// Which processes a fault would hit: a part of what would be done.
async fn targets(
    client: &Client,
    fault: &FaultOptions,
    mut fields: Map<String, Value>,
) -> Result<Done, Failure> {
    fields.insert("fault_name".to_owned(), json!(fault_args::name(fault)?));
    let plan: PlanOutput = client.ask("chaos_plan", fields).await?.read;
    let Some(report) = plan.targets else {
        if let Some(unknown) = plan.warnings.into_iter().find(|warning| warning.starts_with(UNKNOWN_TARGETS))
        {
            return Err(Failure::Other(unknown));
        }
        let problem =
            "this fault is the whole host's: name a unit, a cgroup, processes or a network namespace";
        return Err(Failure::Usage(SpecError::new("target", problem)));
    };
    Ok(Done::well(report.to_string(), json!(report)))
}
