//! Which tools a `chaosctl` command calls, found out without running it: by this a hook judges a command line.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind as ParseError;
use serde_json::{Map, Value, json};

use super::ctl::{Cli, Command};
use super::document;
use super::experiments::ExperimentCommand;
use super::fault_args::{self, with_files};
use super::hook::HookCommand;
use super::policy::PolicyCommand;
use super::runs::{Subject, object};
use super::top::TopArgs;
use crate::mcp::judge::ToolCall;
use crate::spec::{FaultName, FaultOptions, Probability, SpecError};

/// The longest document of an experiment that is looked at, in bytes.
const LONGEST_DOCUMENT: u64 = 1 << 20;

/// Where a command would be run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The socket of the daemon whose decisions are asked for.
    pub(super) socket: &'a Path,
    /// Whether names of files mean what they mean to this process.
    pub(super) is_known: bool,
}

/// What a command, from its name on, would call.
///
/// # Errors
/// Why that cannot be told, or why a model has no business with it.
pub(super) fn of_words(words: &[String], place: Place<'_>) -> Result<Vec<ToolCall>, String> {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ParseError::DisplayHelp | ParseError::DisplayVersion) => {
            return Ok(Vec::new());
        }
        Err(error) => {
            return Err(format!("chaosctl would not understand it: {}", first_line(&error.to_string())));
        }
    };
    if cli.socket != place.socket {
        return Err(format!(
            "it goes to the daemon at {}, and this hook speaks for the one at {}",
            cli.socket.display(),
            place.socket.display()
        ));
    }
    of_command(&cli.command, words, place)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn call(tool: &str, arguments: Value) -> Vec<ToolCall> {
    vec![ToolCall::new(tool, object(arguments))]
}

fn of_command(command: &Command, words: &[String], place: Place<'_>) -> Result<Vec<ToolCall>, String> {
    Ok(match command {
        Command::Inject(args) => {
            let name = named(&args.fault)?;
            let planned = of_fault("chaos_plan", (&args.fault, &name), args.more.probability)?;
            let mut fields = planned.arguments.clone();
            fields.insert("action".to_owned(), json!("register"));
            let register = ToolCall::new("chaos_inject_fault", fields);
            let inject = call("chaos_inject_fault", json!({"fault_name": name, "action": "inject"}));
            match args.more.dry_run {
                true => vec![planned],
                false => [vec![planned, register], inject].concat(),
            }
        }
        Command::Targets { fault: Some(args), .. } => {
            vec![of_fault("chaos_plan", (&args.fault, &named(&args.fault)?), 1.0)?]
        }
        Command::Remove { name } => {
            call("chaos_inject_fault", json!({"fault_name": name, "action": "remove"}))
        }
        Command::Stop { .. } => call("chaos_stop", json!({})),
        Command::Targets { .. } => call("chaos_targets", json!({})),
        Command::Advise(_) => call("chaos_advise", json!({})),
        Command::Status { .. } | Command::Top(TopArgs { once: true }) => call("chaos_status", json!({})),
        Command::Top(_) => return Err("its keys are not seen here: call chaosctl top --once".to_owned()),
        Command::Runs(_) => call("chaos_list_runs", json!({})),
        Command::Show(_) | Command::Report(_) | Command::Compare(_) => call("chaos_get_run", json!({})),
        Command::Stats(_) => call("chaos_statistics", json!({})),
        Command::Doctor { .. } => call("chaos_doctor", json!({})),
        Command::Run(args) => {
            let (mut calls, name) = of_subject(&args.subject, place)?;
            calls.push(ToolCall::new("chaos_run_experiment", args.how.fields(&name)));
            calls
        }
        Command::Plan(args) => {
            let (document, _) = read(&args.file, place)?;
            call("chaos_plan_experiment", json!({"document": document}))
        }
        Command::Experiment(command) => of_experiments(command, place)?,
        Command::Schedule(command) => vec![ToolCall::new("chaos_schedule", command.fields())],
        Command::Search(args) => {
            let (action, subject) = args.asks();
            let (mut calls, name) = match subject {
                Some(subject) => of_subject(subject, place)?,
                None => (Vec::new(), String::new()),
            };
            calls.extend(call("chaos_search", json!({"action": action, "name": name})));
            calls
        }
        Command::Probe(_) => {
            let words: Vec<_> = words.iter().skip_while(|word| *word != "probe").skip(1).collect();
            call("chaos_probe", json!({"arguments": words}))
        }
        Command::Mcp { print_config: Some(_) }
        | Command::Validate(_)
        | Command::Convert(_)
        | Command::Schema
        | Command::Audit(_)
        | Command::Hub(_)
        | Command::Faults { .. }
        | Command::Completions { .. }
        | Command::Manual { .. } => Vec::new(),
        Command::Policy(PolicyCommand::Init { .. }) => {
            return Err("the policy is the operator's to write".to_owned());
        }
        Command::Approve(_) => {
            return Err("an approval is a person's to give, another one's than who asks".to_owned());
        }
        Command::Policy(_) | Command::Approvals(_) => Vec::new(),
        Command::Hook(HookCommand::Pretooluse(_) | HookCommand::Test(_)) => Vec::new(),
        Command::Hook(HookCommand::Install(_) | HookCommand::Uninstall(_)) => {
            return Err("the hook is a person's to set up, and to take away".to_owned());
        }
        Command::Mcp { print_config: None } | Command::McpProxy(_) => {
            return Err("what passes through it is not seen here; call the tools themselves".to_owned());
        }
    })
}

fn of_experiments(command: &ExperimentCommand, place: Place<'_>) -> Result<Vec<ToolCall>, String> {
    Ok(match command {
        ExperimentCommand::List(_) => call("chaos_list_experiments", json!({})),
        ExperimentCommand::Show { .. } => call("chaos_describe_experiment", json!({})),
        ExperimentCommand::Run { name, how } => {
            vec![ToolCall::new("chaos_run_experiment", how.fields(name))]
        }
        ExperimentCommand::Register { file } => {
            vec![ToolCall::new("chaos_register_experiment", read(file, place)?.0)]
        }
    })
}

/// A call of `tool` with what an `inject` says.
fn of_fault(
    tool: &str,
    (fault, name): (&FaultOptions, &FaultName),
    probability: f64,
) -> Result<ToolCall, String> {
    let understood = || {
        let fault = with_files(fault.clone())?;
        let request = fault.request(Probability::new("--probability", probability)?)?;
        let mut fields = object(json!(request));
        fields.insert("fault_name".to_owned(), json!(name));
        Ok(ToolCall::new(tool, fields))
    };
    understood().map_err(|error: SpecError| error.to_string())
}

fn named(fault: &FaultOptions) -> Result<FaultName, String> {
    fault_args::name(fault).map_err(|error| error.to_string())
}

/// What has to be registered, and the name by which it is run then.
fn of_subject(subject: &Subject, place: Place<'_>) -> Result<(Vec<ToolCall>, String), String> {
    match subject {
        Subject::Name(name) => Ok((Vec::new(), name.clone())),
        Subject::File(file) => {
            let (document, name) = read(file, place)?;
            Ok((vec![ToolCall::new("chaos_register_experiment", document)], name))
        }
    }
}

/// The document in a file, and its name.
fn read(file: &PathBuf, place: Place<'_>) -> Result<(Map<String, Value>, String), String> {
    let shown = file.display();
    if file.as_os_str() == "-" {
        return Err("what comes in at stdin is not seen here: give a file".to_owned());
    }
    if !place.is_known && file.is_relative() {
        return Err(format!("it is not known which {shown} is meant: give its absolute path"));
    }
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => return Err(format!("{shown} is no regular file")),
        Ok(found) if found.len() > LONGEST_DOCUMENT => {
            return Err(format!("{shown} is longer than {LONGEST_DOCUMENT} bytes"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(format!("{shown} is not there yet: write it first, and run it then"));
        }
        _ => {}
    }
    let (document, experiment) = document::read(file).map_err(|error| error.to_string())?;
    Ok((object(document), experiment.name))
}
