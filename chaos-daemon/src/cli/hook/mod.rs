//! `chaosctl hook`: what Claude Code asks before it lets a model call a tool. It is the second layer of three: the file of rules comes
//! before it, and the daemon's own decision after it, which holds whatever becomes of this one.
//!
//! It fails closed. Only exit code 2 blocks a call: every other one, and a hook that is too slow, lets it pass
//! (<https://code.claude.com/docs/en/hooks>, "Exit code 2 behavior").

mod bash;
mod court;
mod mention;
mod settings;
mod shell;

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::duration;
use super::policy::POLICY;
use crate::host::words;
use crate::mcp::judge::ToolCall;
pub(super) use settings::{TestArgs, UninstallArgs, carry_out};

/// The exit code by which a client refuses the call.
const REFUSED: u8 = 2;
/// How much longer than its deadline anything of it may take.
const GRACE: Duration = Duration::from_secs(1);
/// The most that a client says of one call, in bytes.
const LONGEST_INPUT: u64 = 4 << 20;
/// The tools of a client in which a model gives a command line.
const SHELL_TOOLS: &[&str] = &["Bash"];
/// What the names of our tools begin with.
const OURS: &str = "chaos_";

#[derive(Debug, Subcommand)]
pub(super) enum HookCommand {
    /// Judge one call of a tool, which Claude Code describes on stdin; exit code 2 refuses it
    Pretooluse(PretooluseArgs),
    /// Put the hook into the settings of Claude Code, beside all that is there
    Install(settings::InstallArgs),
    /// Take it out again
    Uninstall(UninstallArgs),
    /// Try the hook that the settings have, with calls that have to be refused and others that have to pass
    Test(TestArgs),
}

#[derive(Debug, Args)]
pub(super) struct PretooluseArgs {
    /// The policy file, by which it is decided where no daemon runs
    #[arg(long, value_name = "FILE", default_value = POLICY)]
    policy: PathBuf,
    /// How long a decision may take: after that the call is refused
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5s")]
    deadline: Duration,
}

/// What the client says of a call. It says more, which is of no use here.
#[derive(Debug, Deserialize)]
struct Input {
    hook_event_name: String,
    tool_name: String,
    #[serde(default)]
    tool_input: Value,
    /// The folder in which commands of a shell are run.
    cwd: Option<PathBuf>,
}

/// What a model gives a tool that has a shell.
#[derive(Debug, Deserialize)]
struct Line {
    command: String,
}

/// What is told to the client.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes its usual way: by whatever else the user has set up.
    Passes,
    /// A person has to look at it.
    Ask(String),
    Refused(String),
}

/// Which tools a `chaosctl` command calls: its words, and whether names of files mean here what they mean there.
pub(super) type Reading<'a> = dyn Fn(&[String], bool) -> Result<Vec<ToolCall>, String> + 'a;

/// Judges the call that is described on stdin.
pub(super) fn pretooluse(args: &PretooluseArgs, socket: &Path, reading: &Reading<'_>) -> ExitCode {
    // A panic would end with a code that lets the call pass, and so would a client that gives up.
    std::panic::set_hook(Box::new(|panic| end_refused(&format!("it broke: {panic}"))));
    let limit = args.deadline + GRACE;
    thread::spawn(move || {
        thread::sleep(limit);
        end_refused(&format!("it is not decided within {limit:?}"));
    });
    let begun = Instant::now();
    let said = read_within(args.deadline);
    let verdict = said.map(|said| judge(&said, (args, begun), socket, reading));
    match verdict.unwrap_or_else(Verdict::Refused) {
        Verdict::Passes => ExitCode::SUCCESS,
        Verdict::Ask(why) => match writeln!(std::io::stdout(), "{}", decision("ask", &why)) {
            Ok(()) => ExitCode::SUCCESS,
            // Nobody is asked then.
            Err(_) => ExitCode::from(REFUSED),
        },
        Verdict::Refused(why) => {
            tell_refused(&why);
            ExitCode::from(REFUSED)
        }
    }
}

/// The exit code tells it all the same where nobody reads.
fn tell_refused(why: &str) {
    let why = format!("chaosctl hook: refused: {}", words::plain(why));
    let _ = writeln!(std::io::stdout(), "{}", decision("deny", &why));
    let _ = writeln!(std::io::stderr(), "{why}");
}

/// Ends this process, whatever it is at.
fn end_refused(why: &str) {
    tell_refused(why);
    std::process::exit(i32::from(REFUSED));
}

/// The decision as JSON. A client reads it where the exit code is 0, and others than Claude Code at any.
fn decision(decision: &str, why: &str) -> Value {
    json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": why,
    }})
}

/// All of stdin.
fn read_within(limit: Duration) -> Result<Vec<u8>, String> {
    let (sender, receiver) = mpsc::channel();
    // It may stay blocked; the process ends all the same.
    thread::spawn(move || {
        let mut said = Vec::new();
        let read = std::io::stdin().lock().take(LONGEST_INPUT + 1).read_to_end(&mut said);
        let _ = sender.send(read.map(|_| said));
    });
    match receiver.recv_timeout(limit) {
        Ok(Ok(said)) if said.len() as u64 > LONGEST_INPUT => {
            Err(format!("the call has more than {} MiB", LONGEST_INPUT >> 20))
        }
        Ok(Ok(said)) => Ok(said),
        Ok(Err(error)) => Err(format!("the call cannot be read: {error}")),
        Err(_) => Err(format!("nothing came at stdin within {limit:?}")),
    }
}

fn judge(
    said: &[u8],
    (args, begun): (&PretooluseArgs, Instant),
    socket: &Path,
    reading: &Reading<'_>,
) -> Verdict {
    let input: Input = match serde_json::from_slice(said) {
        Ok(input) => input,
        Err(error) => return Verdict::Refused(format!("the call cannot be understood: {error}")),
    };
    if input.hook_event_name != "PreToolUse" {
        let text = format!("this is a hook for PreToolUse, and not for {:?}", input.hook_event_name);
        return Verdict::Refused(text);
    }
    let (calls, ask) = match calls(&input, reading) {
        Ok(found) => found,
        Err(why) => return Verdict::Refused(why),
    };
    if calls.is_empty() {
        return ask.map_or(Verdict::Passes, Verdict::Ask);
    }
    // Nobody is kept from stopping anything because nobody can be asked.
    let harmless = calls.iter().all(ToolCall::looks_or_ends);
    let limit = args.deadline.saturating_sub(begun.elapsed());
    match decide_within(limit, socket, &args.policy, calls) {
        Ok(Some(refused)) => Verdict::Refused(refused),
        Ok(None) => ask.map_or(Verdict::Passes, Verdict::Ask),
        Err(_) if harmless => Verdict::Passes,
        Err(why) => Verdict::Refused(format!("nobody decides: {why}")),
    }
}

fn decide_within(
    limit: Duration,
    socket: &Path,
    policy: &Path,
    calls: Vec<ToolCall>,
) -> Result<court::Refused, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("starting: {error}"))?;
    let decided = async { tokio::time::timeout(limit, court::decide(socket, policy, calls)).await };
    let decided = runtime.block_on(decided);
    runtime.shutdown_background();
    decided.unwrap_or_else(|_| Err(format!("the daemon does not answer within {limit:?}")))
}

/// What the tool would call of ours, and why a person should look at it.
fn calls(input: &Input, reading: &Reading<'_>) -> Result<(Vec<ToolCall>, Option<String>), String> {
    let arguments = || match &input.tool_input {
        Value::Object(arguments) => Ok(arguments.clone()),
        Value::Null => Ok(Map::new()),
        _ => Err("tool_input is no object".to_owned()),
    };
    // mcp__SERVER__TOOL, where a plugin's server is plugin_PLUGIN_SERVER.
    let name = input.tool_name.rsplit("__").next().unwrap_or_default();
    if name.starts_with(OURS) {
        return Ok((vec![ToolCall::new(name, arguments()?)], None));
    }
    if !SHELL_TOOLS.contains(&input.tool_name.as_str()) {
        return Ok((Vec::new(), None));
    }
    let line = Line::deserialize(&input.tool_input)
        .map_err(|error| format!("a command line that cannot be understood: {error}"))?;
    let is_known = match &input.cwd {
        Some(folder) => std::env::set_current_dir(folder).is_ok(),
        None => true,
    };
    let of_command = |words: &[String], stays: bool| reading(words, stays && is_known);
    let found = bash::look(&line.command, &of_command)?;
    Ok((found.calls, found.ask))
}
