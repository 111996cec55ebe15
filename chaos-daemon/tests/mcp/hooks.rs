//! `chaosctl hook` before the real server: what it says of a call is what the daemon does with it.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::process::Command;

use crate::chaosctl::chaosctl;
use crate::client::{Client, PATIENCE};
use crate::double::Server;
use crate::experiments::port;

/// Calls, a line each: which, whether it has to be refused, and what the daemon is asked for the same.
const CORPUS: &str = include_str!("hook_corpus.jsonl");
/// The policy of all of them.
const POLICY: &str = r#"
environment = "staging"
fault_types = ["latency", "process_kill"]
interfaces = ["eth0"]
max_duration_seconds = 600
experiments.require_gate = true
experiments.require_stages = true
single_faults.without_requirements = true
"#;
/// So many have to be there.
const FEWEST: usize = 200;

/// One of the corpus.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What is said to the hook, as it is; or else a call.
    raw: Option<String>,
    /// What is said is too long, in this way.
    huge: Option<String>,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    input: Value,
    refused: bool,
    /// The commands of chaosctl that a command line is, if it is any.
    means: Option<Vec<Vec<String>>>,
    /// It is about what the daemon alone knows.
    #[serde(default)]
    state: bool,
}

impl Case {
    fn said(&self) -> String {
        match (&self.raw, self.huge.as_deref()) {
            (Some(raw), _) => raw.clone(),
            (_, Some("spaces")) => " ".repeat(5 << 20),
            (_, Some("brackets")) => "[".repeat(1 << 20),
            (_, Some(_)) => json!({"hook_event_name": "PreToolUse", "tool_name": "x".repeat(5 << 20)}).to_string(),
            _ => json!({
                "session_id": "s", "transcript_path": "/dev/null", "cwd": "/", "permission_mode": "default",
                "hook_event_name": "PreToolUse", "tool_name": self.tool, "tool_input": self.input, "tool_use_id": "t",
            })
            .to_string(),
        }
    }
}

fn cases(address: &str, folder: &Path) -> Vec<Case> {
    let folder = folder.to_str().unwrap();
    let lines = CORPUS.lines().map(|line| line.replace("@ADDRESS@", address).replace("@FOLDER@", folder));
    lines.map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// What the hook says: its exit code, what it told, and how long it took.
async fn hook(socket: &Path, more: &[&str], said: &str) -> (i32, String, Duration) {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
    command.env("CHAOS_SOCKET", socket).args(["hook", "pretooluse"]).args(more);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let said = said.to_owned();
    // It may say no before it has read all.
    tokio::spawn(async move { drop(stdin.write_all(said.as_bytes()).await) });
    let output =
        tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("the hook hangs").unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let decision = String::from_utf8(output.stdout).unwrap();
    let code = output.status.code().unwrap();
    match code {
        2 => {
            let decision: Value = serde_json::from_str(&decision).unwrap();
            assert_eq!(decision["hookSpecificOutput"]["permissionDecision"], "deny");
            assert!(told.starts_with("chaosctl hook: refused"), "{told}");
        }
        _ => assert!(code == 0 && decision.is_empty(), "{code}: {decision}{told}"),
    }
    (code, told, begun.elapsed())
}

/// Whether the daemon refuses the same: by its answer to the call itself.
async fn daemon_refuses(client: &mut Client, tool: &str, input: &Value) -> bool {
    let answer = client.request("tools/call", json!({"name": tool, "arguments": input})).await;
    let result = &answer["result"];
    let runs = tool == "chaos_run_experiment" && input["dry_run"] != true;
    // What may not be sampled is a sample that was not met, which says why.
    let detail = result["structuredContent"]["detail"].as_str().unwrap_or_default();
    let forbidden = tool == "chaos_probe" && detail.contains("is not among the programs that probes may run");
    answer.get("error").is_some()
        || result["isError"] == true
        || forbidden
        || (runs && result["structuredContent"]["success"] == false)
}

/// A server with the policy, and with what the corpus has registered.
async fn server() -> (Server, Client) {
    let server = Server::start().await;
    *server.policy.lock().unwrap() = toml::from_str(POLICY).unwrap();
    let mut client = Client::open(&server.socket).await;
    let latency = json!({"fault_type": "latency", "probability": 1, "duration_seconds": 30,
        "target": {"interface": "eth0"}, "params": {"delay_ms": 10}});
    let with = |field: &str, value: Value| {
        let mut fault = latency.clone();
        fault[field] = value;
        fault
    };
    let pause = json!({"fault_type": "process_pause", "probability": 1, "target": {"unit": "a.service"}});
    for (name, fault) in [
        ("slow", latency.clone()),
        ("too-long", with("duration_seconds", json!(900))),
        ("other-place", with("target", json!({"interface": "eth9"}))),
        ("other-type", pause),
    ] {
        client.fault(name, "register", fault).await;
    }
    (server, client)
}

/// The documents that command lines of the corpus name: those that it registers, and one about production.
fn write_documents(address: &str, folder: &Path) {
    let registered =
        cases(address, folder).into_iter().filter(|case| case.tool.ends_with("register_experiment"));
    for mut document in registered.filter(|case| !case.refused).map(|case| case.input) {
        let name = document["title"].as_str().unwrap().to_owned();
        std::fs::write(folder.join(format!("{name}.json")), document.to_string()).unwrap();
        document["configuration"] = json!({"host": "db.prod"});
        std::fs::write(folder.join("production.json"), document.to_string()).unwrap();
    }
}

#[tokio::test]
async fn the_hook_says_of_every_call_of_the_corpus_what_the_daemon_does_with_it() {
    let (server, mut client) = server().await;
    let (_listener, address) = port().await;
    let folder = tempfile::tempdir().unwrap();
    write_documents(&address, folder.path());
    let cases = cases(&address, folder.path());
    assert!(cases.len() >= FEWEST, "{}", cases.len());
    let (mut worst, mut wrong, mut compared) = (Duration::ZERO, Vec::new(), 0);
    for case in &cases {
        let (code, told, took) = hook(&server.socket, &[], &case.said()).await;
        worst = worst.max(took);
        let says = code == 2;
        if says != case.refused {
            wrong.push(format!("the hook: {code} {told} of {case:?}"));
        }
        // The same, done.
        let does = match (&case.means, case.tool.rsplit("__").next().unwrap_or_default()) {
            (Some(commands), _) => {
                let mut refused = false;
                for words in commands {
                    let words: Vec<_> = words.iter().map(String::as_str).collect();
                    refused |= chaosctl(&server.socket, &words).await.code != 0;
                }
                Some(refused)
            }
            (None, tool) if tool.starts_with("chaos_") => {
                Some(daemon_refuses(&mut client, tool, &case.input).await)
            }
            _ => None,
        };
        compared += usize::from(does.is_some());
        if does.is_some_and(|does| does != says) {
            wrong.push(format!("the daemon does otherwise than {code} {told} of {case:?}"));
        }
        if !server.active.lock().unwrap().is_empty() {
            client.call("chaos_stop", json!({})).await;
        }
    }
    eprintln!("{} calls, {compared} done as well; the slowest answer took {worst:?}", cases.len());
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= FEWEST, "{compared}");
}

#[tokio::test]
async fn without_a_daemon_the_policy_file_decides_the_same_but_for_what_only_a_daemon_knows() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.toml");
    std::fs::write(&policy, POLICY).unwrap();
    let (_listener, address) = port().await;
    write_documents(&address, folder.path());
    let (absent, policy) = (folder.path().join("no.sock"), policy.to_str().unwrap());
    let (mut worst, mut wrong) = (Duration::ZERO, Vec::new());
    for case in cases(&address, folder.path()) {
        let (code, told, took) = hook(&absent, &["--policy", policy], &case.said()).await;
        worst = worst.max(took);
        // Nobody else knows, so it is refused.
        if (code == 2) != (case.refused || case.state) {
            wrong.push(format!("{code} {told} of {case:?}"));
        }
    }
    eprintln!("without a daemon the slowest answer took {worst:?}");
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn call(tool: &str, input: Value) -> String {
    json!({"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input}).to_string()
}

#[tokio::test]
async fn where_nobody_decides_in_time_a_call_is_refused_unless_it_only_looks_or_ends_something() {
    let folder = tempfile::tempdir().unwrap();
    let (silent, absent) = (folder.path().join("silent.sock"), folder.path().join("no.sock"));
    let _silent = UnixListener::bind(&silent).unwrap();
    let fault = json!({"fault_name": "x", "action": "inject"});
    let no_policy = folder.path().join("no.toml");
    let more = ["--policy", no_policy.to_str().unwrap(), "--deadline", "300ms"];
    for socket in [&silent, &absent] {
        let (code, told, took) =
            hook(socket, &more, &call("mcp__c__chaos_inject_fault", fault.clone())).await;
        assert!(code == 2 && told.contains("nobody decides"), "{code} {told}");
        assert!(took < PATIENCE, "{took:?}");
        assert_eq!(
            hook(
                socket,
                &more,
                &call("Bash", json!({"command": "chaosctl inject latency --interface eth0 --delay 1ms"}))
            )
            .await
            .0,
            2
        );
        for (tool, input) in [
            ("mcp__c__chaos_stop", json!({})),
            ("mcp__c__chaos_status", json!({})),
            ("Bash", json!({"command": "chaosctl stop"})),
            ("Bash", json!({"command": "ls"})),
        ] {
            assert_eq!(hook(socket, &more, &call(tool, input)).await.0, 0, "{tool}");
        }
    }

    assert!(hook(&absent, &more, "{").await.1.contains("cannot be understood"));
    // A file that never ends.
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let line = format!(
        "chaosctl inject link_profile --interface eth0 --trace-period 2m --up-trace @{0} --down-trace @{0}",
        pipe.display()
    );
    let (code, told, took) = hook(&absent, &more, &call("Bash", json!({"command": line}))).await;
    assert!(code == 2 && told.contains("not decided within") && took < PATIENCE, "{code} {told}");
}

#[tokio::test]
async fn with_the_policy_of_nobody_everything_that_changes_something_is_refused() {
    let (server, mut client) = server().await;
    *server.policy.lock().unwrap() = toml::from_str("").unwrap();
    let inject = json!({"fault_name": "slow", "action": "inject"});
    let (code, told, _) =
        hook(&server.socket, &[], &call("mcp__c__chaos_inject_fault", inject.clone())).await;
    assert!(code == 2 && told.contains("it is not said what this host is"), "{told}");
    assert!(daemon_refuses(&mut client, "chaos_inject_fault", &inject).await);
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_hook_is_installed_tried_and_taken_away_and_what_was_there_stays() {
    let (server, _client) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.json");
    let settings = path.to_str().unwrap();
    std::fs::write(&path, r#"{"model": "m"}"#).unwrap();
    let told = chaosctl(&server.socket, &["hook", "test", "--settings", settings]).await;
    assert!(told.code == 1 && told.stdout.contains("no hook of ours"), "{}", told.stdout);
    let told = chaosctl(&server.socket, &["hook", "install", "--settings", settings]).await;
    assert_eq!(told.code, 0, "{}", told.stderr);
    let told = chaosctl(&server.socket, &["hook", "test", "--settings", settings]).await;
    assert_eq!(told.code, 0, "{}{}", told.stdout, told.stderr);
    assert!(
        told.stdout.contains("ok      mcp__plugin_chaos-daemon_chaos__chaos_inject_fault is refused"),
        "{}",
        told.stdout
    );
    chaosctl(&server.socket, &["hook", "uninstall", "--settings", settings]).await;
    let left: Map<String, Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(Value::Object(left), json!({"model": "m"}));
}

#[tokio::test]
async fn the_rules_are_those_of_the_policy_that_the_daemon_has_read() {
    let (server, mut client) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("CLAUDE.md");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "# Mine\n").unwrap();
    let export = ["policy", "export", "--claude-md"];
    let with = |more: &[&'static str]| [export.to_vec(), more.to_vec()].concat();
    let printed = chaosctl(&server.socket, &export).await;
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert!(
        printed.stdout.lines().count() <= 20 && printed.stdout.contains("`staging`"),
        "{}",
        printed.stdout
    );
    let read = client.request("resources/read", json!({"uri": "chaos://policy"})).await;
    let rules = read["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(printed.stdout.contains(rules), "{rules}");
    let mut check = with(&["--check"]);
    check.push(file);
    assert_eq!(chaosctl(&server.socket, &check).await.code, 1);
    let mut into = with(&["--into"]);
    into.push(file);
    assert_eq!(chaosctl(&server.socket, &into).await.code, 0);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("# Mine\n"));
    assert_eq!(chaosctl(&server.socket, &check).await.code, 0);
    server.policy.lock().unwrap().max_active = 1;
    let behind = chaosctl(&server.socket, &check).await;
    assert!(behind.code == 1 && behind.stdout.contains("+ - Inject only"), "{}", behind.stdout);
}
