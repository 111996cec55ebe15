//! The hook in the settings of Claude Code: put in, taken out, and tried.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::failure::{FAILED, Failure};
use super::super::runs::object;
use super::super::whole_file;

/// What is judged: command lines; and our tools, of whatever server they are, also of one that a plugin brings. A pattern has to fit
/// the whole name, and a name of the server alone fits nothing.
const MATCHERS: [&str; 2] = ["Bash", "mcp__.*__chaos_.*"];
/// How long a client waits for the hook, in seconds: more than the hook itself takes.
const TIMEOUT: u32 = 15;
/// How the command ends by which the hook is known among others.
const COMMAND: &str = "hook pretooluse";
/// The names by which a client has our tools: of a server that its user has set up, and of one that a plugin brings.
const SPELLINGS: [&str; 2] = ["mcp__chaos__", "mcp__plugin_chaos-daemon_chaos__"];

#[derive(Debug, Args)]
pub(in super::super) struct Settings {
    /// The settings of Claude Code [default: those of this project]
    #[arg(long, value_name = "FILE", default_value = ".claude/settings.json")]
    settings: PathBuf,
}

#[derive(Debug, Args)]
pub(in super::super) struct InstallArgs {
    #[command(flatten)]
    settings: Settings,
    /// Only show what the settings would be
    #[arg(long)]
    dry_run: bool,
    /// The policy file, by which the hook decides where no daemon runs [default: the daemon's]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(in super::super) struct UninstallArgs {
    #[command(flatten)]
    settings: Settings,
    /// Only show what the settings would be
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(in super::super) struct TestArgs {
    #[command(flatten)]
    settings: Settings,
}

/// Does it. Returns text for people, the answer for programs, and the exit code.
///
/// # Errors
/// When the settings cannot be read or written, or are not what they have to be.
pub(in super::super) fn carry_out(
    command: &super::HookCommand,
    socket: Option<&Path>,
) -> Result<(String, Value, u8), Failure> {
    match command {
        super::HookCommand::Install(args) => {
            let command = command_line(socket, args.policy.as_deref())?;
            change(&args.settings.settings, args.dry_run, |settings| add(settings, &command))
        }
        super::HookCommand::Uninstall(args) => change(&args.settings.settings, args.dry_run, remove),
        super::HookCommand::Test(args) => test(&args.settings.settings),
        super::HookCommand::Pretooluse(_) => Err(Failure::Other("it is told on stdin".to_owned())),
    }
}

/// What a client runs: this program, by its absolute path, since a client may have another `PATH`.
fn command_line(socket: Option<&Path>, policy: Option<&Path>) -> Result<String, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("find the path of this program: {error}")))?;
    let mut words = vec![quoted(&program)?];
    if let Some(socket) = socket {
        words.extend(["--socket".to_owned(), quoted(socket)?]);
    }
    words.push(COMMAND.to_owned());
    if let Some(policy) = policy {
        let policy = std::path::absolute(policy)
            .map_err(|error| Failure::Other(format!("find {}: {error}", policy.display())))?;
        words.extend(["--policy".to_owned(), quoted(&policy)?]);
    }
    Ok(words.join(" "))
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or_else(|| Failure::Other(format!("{} is no text", path.display())))?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:".contains(&byte));
    Ok(if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) })
}

/// Settings, as far as hooks are in them; all else stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Whole {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hooks: Option<Hooks>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Hooks {
    #[serde(default, rename = "PreToolUse", skip_serializing_if = "Vec::is_empty")]
    before: Vec<Entry>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// For which tools which hooks are run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    matcher: Option<String>,
    #[serde(default)]
    hooks: Vec<Hook>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Hook {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Hook {
    /// Whether it is ours, whichever version of us has put it in.
    fn is_ours(&self) -> bool {
        self.command
            .as_deref()
            .is_some_and(|command| command.contains("chaosctl") && command.contains(COMMAND))
    }
}

impl Entry {
    /// Whether it is for a tool: nothing and `*` are for all, and otherwise it is an expression that fits the whole name.
    fn fits(&self, tool: &str) -> bool {
        match self.matcher.as_deref() {
            None | Some("" | "*") => true,
            Some(matcher) => {
                let expression = Regex::new(&format!("^(?:{matcher})$"));
                expression.is_ok_and(|expression| expression.is_match(tool))
            }
        }
    }
}

/// The entries of the hook, where this command is run for it.
fn entries(command: &str) -> Vec<Entry> {
    // By itself a client lets a call pass when a hook cannot be run; from 2.1.295 on it can be told not to.
    let rest = object(json!({"type": "command", "timeout": TIMEOUT, "onFailure": "block"}));
    let hook = Hook { command: Some(command.to_owned()), rest };
    let entry = |matcher: &str| Entry {
        matcher: Some(matcher.to_owned()),
        hooks: vec![hook.clone()],
        rest: Map::new(),
    };
    MATCHERS.map(entry).into()
}

fn read(path: &Path) -> Result<Whole, Failure> {
    let wrong = |problem: String| Failure::Other(format!("{}: {problem}", path.display()));
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Whole::default()),
        Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
    };
    serde_json::from_str(&text).map_err(|error| wrong(format!("these are no settings: {error}")))
}

fn change(
    path: &Path,
    dry_run: bool,
    change: impl FnOnce(&mut Whole),
) -> Result<(String, Value, u8), Failure> {
    let before = read(path)?;
    let mut settings = before.clone();
    change(&mut settings);
    let answer = json!({"settings": path, "changed": settings != before, "hooks": settings.hooks});
    let text = format!("{:#}\n", json!(settings));
    if dry_run {
        return Ok((text, answer, 0));
    }
    if settings == before {
        return Ok((format!("{} is as it should be; nothing was changed\n", path.display()), answer, 0));
    }
    whole_file::replace(path, text.as_bytes())
        .map_err(|error| Failure::Other(format!("write {}: {error}", path.display())))?;
    Ok((format!("wrote {}; `chaosctl hook test` tries it\n", path.display()), answer, 0))
}

fn add(settings: &mut Whole, command: &str) {
    remove(settings);
    settings.hooks.get_or_insert_default().before.extend(entries(command));
}

/// Takes out what is ours, and what is empty without it.
fn remove(settings: &mut Whole) {
    let Some(hooks) = &mut settings.hooks else { return };
    hooks.before.retain_mut(|entry| {
        let had = entry.hooks.len();
        entry.hooks.retain(|hook| !hook.is_ours());
        entry.hooks.len() == had || !entry.hooks.is_empty()
    });
    if *hooks == Hooks::default() {
        settings.hooks = None;
    }
}

/// A call that the hook is tried with.
struct Trial {
    tool: String,
    input: Value,
    passes: bool,
}

/// Calls that have to be refused whatever the policy says, and one that has to pass whatever it says.
fn trials() -> Vec<Trial> {
    let odd = json!({"fault_name": "trial", "action": "register", "env": "production"});
    let mut trials = vec![
        Trial {
            tool: "Bash".to_owned(),
            input: json!({"command": "sh -c \"chaosctl inject $FAULT\""}),
            passes: false,
        },
        Trial { tool: "Bash".to_owned(), input: json!({"command": "true"}), passes: true },
    ];
    for spelling in SPELLINGS {
        trials.extend([
            Trial { tool: format!("{spelling}chaos_inject_fault"), input: odd.clone(), passes: false },
            Trial { tool: format!("{spelling}chaos_stop"), input: json!({}), passes: true },
        ]);
    }
    trials
}

fn test(path: &Path) -> Result<(String, Value, u8), Failure> {
    let settings = read(path)?;
    let entries = settings.hooks.unwrap_or_default().before;
    let mut text = String::new();
    let mut all = Vec::new();
    let mut is_well = true;
    for Trial { tool, input, passes } in trials() {
        let mut hooks = entries.iter().filter(|entry| entry.fits(&tool)).flat_map(|entry| &entry.hooks);
        let command = hooks.find(|hook| hook.is_ours()).and_then(|hook| hook.command.as_deref());
        let told = match command {
            None => Err("no hook of ours is asked for it".to_owned()),
            Some(command) => run(command, &tool, &input).and_then(|code| match (code, passes) {
                (0, true) | (2, false) => Ok(()),
                (code, _) => Err(format!("the hook ended with {code}")),
            }),
        };
        is_well &= told.is_ok();
        let wanted = if passes { "passes" } else { "is refused" };
        text += &match &told {
            Ok(()) => format!("ok      {tool} {wanted}\n"),
            Err(problem) => format!("NOT ok  {tool} {wanted}: {problem}\n"),
        };
        all.push(json!({"tool": tool, "passes": passes, "ok": told.is_ok(), "problem": told.err()}));
    }
    if !is_well {
        text += "set it up: chaosctl hook install\n";
    }
    Ok((text, json!({"ok": is_well, "trials": all}), if is_well { 0 } else { FAILED }))
}

/// Runs a hook as a client does; its exit code.
fn run(command: &str, tool: &str, input: &Value) -> Result<i32, String> {
    let said = json!({"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input});
    let child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| format!("it cannot be started: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read it has another exit code.
        let _ = stdin.write_all(said.to_string().as_bytes());
    }
    let status = child.wait().map_err(|error| format!("it cannot be waited for: {error}"))?;
    status.code().ok_or_else(|| "it was ended by a signal".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::super::clients::McpClient;
    use super::*;

    fn whole(value: Value) -> Whole {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn installing_keeps_what_is_there_and_installing_again_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".claude/settings.json");
        let other = json!({"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]});
        let before = json!({"model": "x", "hooks": {"PreToolUse": [other], "Stop": [{"hooks": []}]}});
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, before.to_string()).unwrap();
        let install =
            |dry_run, command: &str| change(&path, dry_run, |settings| add(settings, command)).ok().unwrap();
        let (shown, ..) = install(true, "/usr/bin/chaosctl hook pretooluse");
        assert!(shown.contains("mcp__.*__chaos_.*"), "{shown}");
        assert_eq!(fs::read_to_string(&path).unwrap(), before.to_string(), "a dry run changes nothing");
        install(false, "/old/chaosctl hook pretooluse");
        install(false, "/usr/bin/chaosctl hook pretooluse");
        let (said, answer, _) = install(false, "/usr/bin/chaosctl hook pretooluse");
        assert!(said.contains("nothing was changed") && answer["changed"] == false, "{said}");
        let now = json!(read(&path).ok().unwrap());
        assert_eq!(now["hooks"]["PreToolUse"].as_array().unwrap().len(), 3);
        assert_eq!((&now["hooks"]["PreToolUse"][0], &now["model"]), (&other, &json!("x")));
        assert!(!now.to_string().contains("/old/"));
        change(&path, false, remove).ok().unwrap();
        assert_eq!(json!(read(&path).ok().unwrap()), before);
    }

    #[test]
    fn a_hook_of_somebody_else_within_our_entry_stays() {
        let mut settings = whole(json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
            {"command": "'/a b/chaosctl' hook pretooluse"}, {"command": "mine"}]}]}}));
        remove(&mut settings);
        let mine = json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": "mine"}]}]}});
        assert_eq!(json!(settings), mine);
    }

    #[test]
    fn the_plugin_brings_this_hook_this_server_and_this_version() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/claude-code");
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let value = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap();
        let hooks = read(&folder.join("hooks/hooks.json")).ok().unwrap().hooks.unwrap();
        assert_eq!(hooks.before, entries("/usr/bin/chaosctl hook pretooluse"));
        let server = McpClient::ClaudeCode.text(Path::new("/usr/bin/chaosctl"), None).unwrap();
        assert_eq!(value(".mcp.json"), serde_json::from_str::<Value>(&server).unwrap());
        let plugin = value(".claude-plugin/plugin.json");
        assert_eq!(plugin["version"], env!("CARGO_PKG_VERSION"));
        // A client names the tools of a plugin's server by both.
        let named = format!("mcp__plugin_{}_chaos__", plugin["name"].as_str().unwrap());
        assert!(SPELLINGS.contains(&named.as_str()));
        let listed = value("../.claude-plugin/marketplace.json");
        assert_eq!(
            (&listed["plugins"][0]["name"], &listed["plugins"][0]["source"]),
            (&plugin["name"], &json!("./claude-code"))
        );
        assert!(text("skills/chaos-rules/SKILL.md").starts_with("---\nname: chaos-rules\n"));
    }

    #[test]
    fn what_is_no_settings_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        for text in
            ["", "[]", "{\"a\": 1,}", "// c\n{}", "{\"hooks\": []}", "{\"hooks\": {\"PreToolUse\": {}}}"]
        {
            fs::write(&path, text).unwrap();
            assert!(change(&path, false, remove).is_err(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn the_matchers_fit_our_tools_in_every_spelling_and_no_others() {
        let fits_any = |tool: &str| entries("x").iter().any(|entry| entry.fits(tool));
        for spelling in SPELLINGS {
            assert!(fits_any(&format!("{spelling}chaos_run_experiment")));
        }
        for tool in ["Read", "BashOutput", "mcp__chaos", "mcp__other__run"] {
            assert!(!fits_any(tool), "{tool}");
        }
        let of = |matcher: Option<&str>| Entry { matcher: matcher.map(str::to_owned), ..Entry::default() };
        assert!(of(None).fits("Read") && of(Some("*")).fits("Read") && !of(Some("(")).fits("Read"));
        assert_eq!(quoted(Path::new("/a b/c")).ok().unwrap(), "'/a b/c'");
    }
}
