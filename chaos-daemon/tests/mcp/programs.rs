//! Programs that probes run: which may be, what they say, and that nothing of them is left; the real runner takes the samples.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::{Client, PATIENCE};
use crate::double::Server;
use crate::experiments::{document, register, until};

const SHELL: &str = "/bin/sh";

/// A document whose steady state is this provider with this tolerance.
fn steady(name: &str, provider: Value, tolerance: Value) -> Value {
    let mut told = document(name, "127.0.0.1:1", "100ms");
    told["steady-state-hypothesis"]["probes"] =
        json!([{"type": "probe", "name": "check", "tolerance": tolerance, "provider": provider}]);
    told
}

fn script(text: &str) -> Value {
    json!({"type": "process", "path": SHELL, "arguments": ["-c", text]})
}

fn command(words: &[&str]) -> Value {
    let arguments = [&["probe", "command"], words].concat();
    json!({"type": "process", "path": "chaosctl", "arguments": arguments})
}

async fn verdict(client: &mut Client, name: &str) -> (Value, String) {
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": name})).await;
    (result["verdict"].clone(), result["error"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_document_with_a_program_that_the_policy_does_not_name_is_refused() {
    for server in [Server::start().await, Server::start_with_programs(&["/usr/bin/env"]).await] {
        let mut client = Client::open(&server.socket).await;
        let latency = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "latency", "--", SHELL, "-c", "true"]});
        for provider in [script("true"), command(&["--", SHELL, "-c", "true"]), latency] {
            let (answer, failed) =
                client.call("chaos_register_experiment", steady("no", provider, json!(0))).await;
            let error = &answer["error"];
            assert!(failed && error["code"] == "POLICY_DENIED", "{answer}");
            let (text, hint) = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
            assert!(text.contains("probe \"check\"") && text.contains(SHELL), "{text}");
            assert!(hint.contains("probe_commands = [") && hint.contains("\"/bin/sh\"]"), "{hint}");
        }
        let (status, _) = client.call("chaos_status", json!({})).await;
        assert_eq!(status["registered_experiments"], 0);
    }
}

#[tokio::test]
async fn programs_that_the_policy_names_are_steady_states_and_gates() {
    let server = Server::start_with_programs(&["/bin/*"]).await;
    let mut client = Client::open(&server.socket).await;
    let regex = json!({"type": "regex", "target": "stdout", "pattern": "^all up$"});
    let range = json!({"type": "range", "target": "stderr", "range": [1, 2]});
    for (name, provider, tolerance, expected) in [
        ("regex", script("printf 'all up'; exit 7"), regex.clone(), "held"),
        ("not found", script("printf 'all down'"), regex, "refused"),
        ("status", script("exit 7"), json!([0, 7]), "held"),
        ("wrong status", script("exit 1"), json!(0), "refused"),
        ("range", script("echo 1.5 >&2"), range, "held"),
        (
            "native",
            command(&["--status", "3", "--stdout", "up", "--", SHELL, "-c", "echo up; exit 3"]),
            json!(0),
            "held",
        ),
        (
            "number",
            command(&["--measure", "stdout", "--max", "4", "--", SHELL, "-c", "echo 5"]),
            json!(0),
            "refused",
        ),
    ] {
        register(&mut client, steady(name, provider, tolerance)).await;
        let (verdict, error) = verdict(&mut client, name).await;
        assert_eq!(verdict, expected, "{name}: {error}");
    }
    let mut gated = steady("gated", script("true"), json!(0));
    gated["method"][0]["provider"]["arguments"]["--for"] = json!("10m");
    gated["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [{"name": "errors", "op": "gt", "value": 5, "interval": "200ms",
        "provider": command(&["--measure", "stdout", "--", SHELL, "-c", "cat /tmp/no-such-file 2>/dev/null || echo 2"])}]}]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("errors");
    let text = gated.to_string().replace("/tmp/no-such-file", file.to_str().unwrap());
    register(&mut client, serde_json::from_str(&text).unwrap()).await;
    let active = server.active.clone();
    tokio::spawn(async move {
        until(|| !active.lock().unwrap().is_empty()).await;
        std::fs::write(file, "17").unwrap();
    });
    let (verdict, error) = verdict(&mut client, "gated").await;
    assert_eq!(verdict, "tripped", "{error}");
    assert!(error.contains("errors") && error.contains("17"), "{error}");
}

#[tokio::test]
async fn the_policy_is_asked_again_for_every_sample() {
    let server = Server::start_with_programs(&[SHELL]).await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, steady("again", script("true"), json!(0))).await;
    assert_eq!(verdict(&mut client, "again").await.0, "held");
    server.policy.lock().unwrap().probe_commands.clear();
    let (verdict, error) = verdict(&mut client, "again").await;
    assert_eq!(verdict, "refused");
    assert!(error.contains("not among the programs that probes may run"), "{error}");
}

#[tokio::test]
async fn the_runner_believes_nobody_and_has_a_list_of_its_own() {
    let server = Server::start_with_programs(&["/usr/bin/env", "/tmp/*"]).await;
    server.policy.lock().unwrap().probe_commands = vec![SHELL.to_owned(), "/tmp/*".to_owned()];
    let mut client = Client::open(&server.socket).await;
    let file = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let mine = file.path().to_str().unwrap();
    for (words, why) in [
        (json!(["command", "--", SHELL, "-c", "true"]), "not among the programs that probes may run"),
        (json!(["mcp", "--", SHELL, "-c", "true"]), "not among the programs that probes may run"),
        (json!(["latency", "--", SHELL, "-c", "true"]), "not among the programs that probes may run"),
        (json!(["command", "--", mine]), "can be written by others"),
    ] {
        let (sample, failed) = client.call("chaos_probe", json!({"arguments": words})).await;
        let detail = sample["detail"].as_str().unwrap();
        assert!(!failed && sample["ok"] == false && detail.contains(why), "{sample}");
    }
}

#[tokio::test]
async fn a_tool_has_the_daemon_run_a_program_for_its_caller() {
    let server = Server::start_with_programs(&[SHELL]).await;
    let mut client = Client::open(&server.socket).await;
    let words = json!(["--min", 2, "command", "--measure", "stdout", "--", SHELL, "-c", "echo 3"]);
    let (sample, failed) = client.call("chaos_probe", json!({"arguments": words})).await;
    assert!(!failed && sample["ok"] == true && sample["value"] == 3.0, "{sample}");
    let asked = server.take_asked();
    assert!(asked[0].contains("Command(\"/bin/sh\")") && asked[0].contains("Unix { uid"), "{asked:?}");
    // Several at once do not wait for each other: none would end before all have begun.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().display();
    let script =
        format!("echo here >> {path}/all; until [ $(wc -l < {path}/all) -ge 8 ]; do sleep 0.05; done");
    let meets = json!({"arguments": ["--timeout", "30s", "command", "--", SHELL, "-c", script]});
    let all = futures(&server, &meets).await;
    assert!(all.iter().all(|sample| sample["ok"] == true), "{all:?}");
}

/// Eight samples at once.
async fn futures(server: &Server, arguments: &Value) -> Vec<Value> {
    let one = |socket: PathBuf, arguments: Value| async move {
        Client::open(&socket).await.call("chaos_probe", arguments).await.0
    };
    let all: Vec<_> = (0..8).map(|_| tokio::spawn(one(server.socket.clone(), arguments.clone()))).collect();
    let mut samples = Vec::new();
    for one in all {
        samples.push(one.await.unwrap());
    }
    samples
}

/// Whether the process that has written its number into this file runs; `None` before it has.
fn runs(file: &Path) -> Option<bool> {
    let pid = std::fs::read_to_string(file).ok()?.trim().parse::<u32>().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody has collected yet has ended.
    Some(!stat.is_empty() && !stat.contains(") Z "))
}

async fn wait_for(file: &Path, running: bool) {
    for _ in 0..6000 {
        if runs(file) == Some(running) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} is {:?}", file.display(), runs(file));
}

/// A script that starts somebody who leaves its group and its session, and minds no signal that can be minded.
fn escaping(file: &Path, then: &str) -> String {
    format!(
        "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > {0}.new; mv {0}.new {0}; sleep 600; sleep 600' & \
        while [ ! -e {0} ]; do sleep 0.01; done; {then}",
        file.display()
    )
}

#[tokio::test]
async fn what_has_left_the_group_of_its_program_ends_with_it_all_the_same() {
    let server = Server::start_with_programs(&[SHELL]).await;
    let mut client = Client::open(&server.socket).await;
    let folder = tempfile::tempdir().unwrap();
    for (name, then, ok) in [("ended", "echo done", true), ("late", "sleep 600", false)] {
        let file = folder.path().join(name);
        let words = json!(["--timeout", "5s", "command", "--", SHELL, "-c", escaping(&file, then)]);
        let (sample, _) = client.call("chaos_probe", json!({"arguments": words})).await;
        assert_eq!(sample["ok"], ok, "{sample}");
        // Before it is answered.
        assert_eq!(runs(&file), Some(false), "{name}");
    }
}

#[tokio::test]
async fn chaosctl_itself_leaves_nothing_behind_also_when_it_is_told_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let chaosctl = |script: String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
        command.args(["probe", "command", "--timeout", "20s", "--", SHELL, "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    };
    let file = folder.path().join("ended");
    let output =
        tokio::time::timeout(PATIENCE, chaosctl(escaping(&file, "echo up")).wait_with_output()).await;
    let output = output.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.starts_with("ok: command /bin/sh: status 0, \"up\""), "{said}");
    assert_eq!(runs(&file), Some(false));
    let file = folder.path().join("told");
    let child = chaosctl(escaping(&file, "sleep 600"));
    wait_for(&file, true).await;
    let pid = nix::unistd::Pid::from_raw(child.id().unwrap().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("ended by SIGTERM"));
    assert_eq!(runs(&file), Some(false));
}

#[tokio::test]
async fn chaosctl_spares_the_children_of_the_shell_that_has_become_it() {
    let folder = tempfile::tempdir().unwrap();
    let (other, mine) = (folder.path().join("other"), folder.path().join("mine"));
    let mut command = Command::new(SHELL);
    command.args(["-c", "sleep 600 >/dev/null 2>&1 & echo $! > $0; exec \"$@\""]).arg(&other);
    command.args([env!("CARGO_BIN_EXE_chaosctl"), "probe", "command", "--timeout", "30s", "--", SHELL, "-c"]);
    command.arg(escaping(&mine, "echo up")).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((runs(&other), runs(&mine)), (Some(true), Some(false)));
    let other = std::fs::read_to_string(&other).unwrap().trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(other), nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn when_the_runner_is_killed_its_programs_die_and_samples_say_that_it_is_gone() {
    let mut server = Server::start_with_programs(&[SHELL]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    // Without a child: there is no namespace here that would end it.
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", file.display());
    let mut client = Client::open(&server.socket).await;
    let words = json!({"arguments": ["--timeout", "20s", "command", "--", SHELL, "-c", script]});
    let waiting = tokio::spawn(async move { client.call("chaos_probe", words).await.0 });
    wait_for(&file, true).await;
    server.runner.take();
    wait_for(&file, false).await;
    let sample = waiting.await.unwrap();
    assert!(sample["ok"] == false && sample["detail"].as_str().unwrap().contains("gone"), "{sample}");
}

/// Exit code and answer of `chaosctl probe mcp`.
async fn probed(words: &[&str]) -> (i32, Value) {
    probed_by("mcp", words).await
}

/// The same of any probe that speaks with an MCP server.
async fn probed_by(probe: &str, words: &[&str]) -> (i32, Value) {
    let limit: &[&str] = if words.contains(&"--timeout") { &[] } else { &["--timeout", "30s"] };
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
    command.args(["--json", "probe", probe]).args(limit).args(words);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("no end").unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), serde_json::from_str(&said).unwrap_or(Value::String(said)))
}

#[tokio::test]
async fn an_mcp_server_over_stdio_is_spoken_with_and_ended_and_a_delay_before_it_is_seen() {
    let server = Server::start().await;
    let (chaosctl, socket) = (env!("CARGO_BIN_EXE_chaosctl"), server.socket.to_str().unwrap());
    let bridge = [chaosctl, "--socket", socket, "mcp"];
    let call = ["--tool", "chaos_stop", "--call", "chaos_status", "--"];
    let (code, sample) = probed(&[&call[..], &bridge[..]].concat()).await;
    assert_eq!(code, 0, "{sample}");
    let answer = &sample["answer"];
    assert!(answer["tools"].as_array().unwrap().contains(&json!("chaos_probe")), "{sample}");
    let time = |sample: &Value, key: &str| sample["answer"][key].as_f64().unwrap();
    let parts: f64 = ["connect_ms", "list_ms", "call_ms"].iter().map(|key| time(&sample, key)).sum();
    // What is between the parts is theirs who wait for a processor.
    assert!(parts <= sample["value"].as_f64().unwrap() + 1.0, "{sample}");
    let proxy = [chaosctl, "mcp-proxy", "--delay", "700ms", "--"];
    let (code, slow) = probed(&[&call[..], &proxy[..], &bridge[..]].concat()).await;
    assert!(code == 0 && time(&slow, "call_ms") >= 700.0, "{slow}");
    assert!(slow["value"].as_f64().unwrap() >= 700.0, "{slow}");
    let (code, sample) = probed(&[&["--max", "500"], &call[..], &proxy[..], &bridge[..]].concat()).await;
    assert!(code == 1 && sample["ok"] == false, "{sample}");
    let (code, sample) = probed(&[&["--tool", "none", "--"], &bridge[..]].concat()).await;
    assert!(code == 1 && sample["detail"].as_str().unwrap().contains("no tool \"none\""), "{sample}");
}

#[tokio::test]
async fn the_latency_of_an_mcp_server_is_a_percentile_of_sessions_until_its_tools_are_listed() {
    let server = Server::start().await;
    let (chaosctl, socket) = (env!("CARGO_BIN_EXE_chaosctl"), server.socket.to_str().unwrap());
    let bridge = ["--", chaosctl, "--socket", socket, "mcp"];
    let few = ["--samples", "3", "--percentile", "max"];
    let (code, sample) = probed_by("latency", &[&few[..], &bridge[..]].concat()).await;
    let detail = sample["detail"].as_str().unwrap_or_default();
    assert!(code == 0 && detail.contains("3 times MCP session with "), "{sample}");
    let value = sample["value"].as_f64().unwrap();
    assert!(0.0 < value && value / 1e3 < sample["seconds"].as_f64().unwrap(), "{sample}");
    let slow = [&few[..], &["--max", "0.001"], &bridge[..]].concat();
    assert_eq!(probed_by("latency", &slow).await.0, 1);
    let none = [&few[..], &["--", SHELL, "-c", "echo I am none >&2"]].concat();
    let (code, sample) = probed_by("latency", &none).await;
    let detail = sample["detail"].as_str().unwrap_or_default();
    assert!(
        code == 1 && detail.contains("3 of 3 without an answer") && detail.contains("I am none"),
        "{sample}"
    );
    for words in [&["--mcp", "stdio"][..], &["--mcp", "http://127.0.0.1:1/mcp", "--tcp", "127.0.0.1:1"], &[]]
    {
        let (code, said) = probed_by("latency", words).await;
        assert_eq!(code, 2, "{words:?}: {said}");
    }
}

#[tokio::test]
async fn what_is_no_mcp_server_is_told_with_its_last_words_and_nothing_of_it_is_left() {
    let (code, sample) = probed(&["--", SHELL, "-c", "echo hello; echo I am none >&2"]).await;
    let detail = sample["detail"].as_str().unwrap();
    assert!(code == 1 && detail.contains("initialize: the server ended"), "{sample}");
    assert!(detail.ends_with("it said \"I am none\""), "{detail}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 1; done", file.display());
    let (code, sample) = probed(&["--timeout", "1s", "--", SHELL, "-c", &script]).await;
    assert!(code == 1 && sample["detail"].as_str().unwrap().contains("no answer within 1s"), "{sample}");
    assert_eq!(runs(&file), Some(false));
    for words in [&["--"][..], &[], &["--", "server"], &["http://127.0.0.1:1/mcp", "--", SHELL]] {
        let (code, said) = probed(words).await;
        assert_eq!(code, 2, "{words:?}: {said}");
    }
}

#[tokio::test]
async fn a_module_of_python_is_called_only_if_the_policy_and_the_runner_know_it() {
    let server = Server::start_with_programs(&[SHELL]).await;
    let mut client = Client::open(&server.socket).await;
    let exists = json!({"type": "python", "module": "os.path", "func": "exists", "arguments": {"path": "/"}});
    let judge = json!({"type": "probe", "name": "j", "provider": {"type": "python", "module": "my.judge", "func": "f"}});
    let refused = async |client: &mut Client, tolerance: Value, module: &str| {
        let (answer, failed) =
            client.call("chaos_register_experiment", steady("no", exists.clone(), tolerance)).await;
        let error = &answer["error"];
        assert!(failed && error["code"] == "POLICY_DENIED", "{answer}");
        assert!(error["message"].as_str().unwrap().contains(module), "{answer}");
        assert!(error["hint"].as_str().unwrap().contains("probe_python.modules = ["), "{answer}");
    };
    refused(&mut client, json!(true), "os.path").await;
    server.policy.lock().unwrap().probe_python.modules.push("os.path".to_owned());
    refused(&mut client, judge, "my.judge").await;
    // The runner has a list of its own, in which no module is.
    register(&mut client, steady("python", exists.clone(), json!(true))).await;
    let (verdict, error) = verdict(&mut client, "python").await;
    assert_eq!(verdict, "refused");
    assert!(error.contains("not among the modules that probes may call"), "{error}");
}
