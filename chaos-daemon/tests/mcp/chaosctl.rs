//! The real `chaosctl` against the server: output, exit codes, and the bridge.

use std::process::Stdio;

use chaos_daemon::server::places::MOST_CONNECTIONS;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::client::{Client, PATIENCE, closed_port};
use crate::double::Server;
use crate::experiments::until_active;

pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) async fn chaosctl(socket: &std::path::Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
    command.arg("--socket").arg(socket).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output =
        tokio::time::timeout(PATIENCE, command.output()).await.expect("chaosctl does not end").unwrap();
    Output {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn an_operator_injects_looks_and_stops() {
    let server = Server::start().await;
    let socket = &server.socket;
    let words = "inject latency --name slow --interface eth0 --cidr 10.0.0.0/8 --cidr fd00::/8 --delay 300ms --for 3m";
    let injected = chaosctl(socket, &words.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(injected.code, 0, "{}", injected.stderr);
    assert!(injected.stdout.contains("ends by itself in 3m"), "{}", injected.stdout);
    assert!(injected.stdout.contains("chaosctl stop slow"), "{}", injected.stdout);
    {
        let active = server.active.lock().unwrap();
        let fault = &active.values().next().unwrap().0;
        assert_eq!(fault.params["delay_ms"], json!(300.0));
        assert_eq!(fault.target.cidrs, ["10.0.0.0/8", "fd00::/8"]);
    }
    let status = chaosctl(socket, &["status"]).await;
    assert!(
        status.stdout.starts_with("1 active, 1 registered\n  slow  no_traffic  ends in 3m"),
        "{}",
        status.stdout
    );
    let status = chaosctl(socket, &["--json", "status"]).await;
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["active_faults"][0]["active"], true);
    assert_eq!(chaosctl(socket, &["stop", "slow"]).await.stdout, "ended: slow; registrations stay\n");
    assert_eq!(chaosctl(socket, &["stop", "--all"]).await.stdout, "nothing was active\n");
    assert_eq!(chaosctl(socket, &["remove", "slow"]).await.code, 0);
    assert!(chaosctl(socket, &["status"]).await.stdout.starts_with("0 active, 0 registered\n"));
}

#[tokio::test]
async fn exit_codes_tell_refusal_usage_and_absence_apart() {
    let server = Server::start().await;
    let socket = &server.socket;
    let refused = chaosctl(socket, &["inject", "latency", "--interface", "nonetem0"]).await;
    assert_eq!(refused.code, 1);
    assert_eq!(
        refused.stderr,
        "chaosctl: latency needs sch_netem (UNSUPPORTED_KERNEL)\n  modprobe sch_netem\n"
    );
    let status: Value = serde_json::from_str(&chaosctl(socket, &["status", "--json"]).await.stdout).unwrap();
    assert_eq!(status["active_faults"], json!([]), "a made-up name stays registered");
    for (arguments, text) in [
        (&["inject", "latency"][..], "--interface: missing"),
        (&["inject", "latency", "--interface", "eth0", "--cidr", "10.0.0.0/33"], "--cidr: \"10.0.0.0/33\""),
        (&["inject", "latency", "--interface", "eth0", "--for", "-3s"], "--for"),
        (&["inject", "latency", "--interface", "eth0", "--for", "2h"], "--for: 7200 s is out of bounds"),
        (&["inject", "latency", "--interface", "eth0", "--probability", "1.5"], "--probability: 1.5"),
        (
            &["inject", "latency", "--interface", "eth0", "--cpu-percent", "5"],
            "unexpected argument '--cpu-percent'",
        ),
        (
            &["inject", "packet_loss", "--interface", "eth0", "--gilbert-elliott", "1,2,3,4,5"],
            "--gilbert-elliott: 5 numbers: give 4 at most (p,r,one_minus_h,one_minus_k)",
        ),
        (
            &["inject", "packet_loss", "--interface", "eth0", "--four-state", "60,1,0,100,60"],
            "--four-state: p13: with p14 it is 120 %",
        ),
        (
            &["inject", "packet-corrupt", "--interface", "eth0", "--corrupt-percent", "101"],
            "--corrupt-percent: 101 % is out of bounds: give 0.0001 to 100 percent",
        ),
        (&["inject", "bandwidth", "--interface", "eth0", "--rate-kbit", "1"], "--rate-kbit: 1 kbit/s is out"),
        (&["inject", "meteor"], "network_partition"),
        (&["explode"], "unrecognized subcommand"),
    ] {
        let usage = chaosctl(socket, arguments).await;
        assert_eq!(usage.code, 2, "{arguments:?}: {}", usage.stderr);
        assert!(usage.stderr.contains(text), "{arguments:?}: {}", usage.stderr);
    }
    assert_eq!(server.take_asked().iter().filter(|asked| asked.starts_with("inject")).count(), 1);
    for arguments in [&["status"][..], &["mcp"]] {
        let absent = chaosctl(&server.state().join("no.sock"), arguments).await;
        assert_eq!(absent.code, 3);
        assert!(absent.stderr.contains("start the daemon"), "{}", absent.stderr);
    }
}

#[tokio::test]
async fn what_needs_no_daemon_works_without() {
    let nowhere = std::path::Path::new("/nonexistent/socket");
    let table = chaosctl(nowhere, &["faults", "--markdown"]).await;
    assert_eq!(table.stdout.lines().count(), 2 + chaos_daemon::spec::FAULT_TYPES.len());
    let faults: Value = serde_json::from_str(&chaosctl(nowhere, &["faults", "--json"]).await.stdout).unwrap();
    assert_eq!(faults[0]["fault_type"], "latency");
    assert!(chaosctl(nowhere, &["completions", "bash"]).await.stdout.contains("_chaosctl"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(chaosctl(nowhere, &["probe", "tcp", &address]).await.code, 0);
    let (_socket, closed) = closed_port();
    assert_eq!(chaosctl(nowhere, &["probe", "tcp", &closed]).await.code, 1);
    assert!(chaosctl(nowhere, &["--help"]).await.stdout.contains("Exit codes"));
}

#[tokio::test]
async fn a_dry_run_and_a_doctor_only_look() {
    let server = Server::start().await;
    let plan = chaosctl(&server.socket, &["inject", "timeout", "--interface", "eth0", "--dry-run"]).await;
    assert!(plan.stdout.starts_with("would do: "), "{}{}", plan.stdout, plan.stderr);
    let doctor = chaosctl(&server.socket, &["doctor"]).await;
    assert!(doctor.stdout.contains("missing: sch_netem"), "{}", doctor.stdout);
    let limit = "    pids_limit         missing: the cgroup controller pids (disabled)";
    assert!(doctor.stdout.contains(limit), "{}", doctor.stdout);
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_effect_that_is_left_has_an_exit_code_of_its_own() {
    let server = Server::start().await;
    let text = chaosctl(&server.socket, &["doctor", "--residue"]).await;
    assert_eq!(text.code, 7, "{}", text.stderr);
    assert!(text.stdout.starts_with("EFFECT  holder process 7 is stopped\n"), "{}", text.stdout);
    let json = chaosctl(&server.socket, &["doctor", "--residue", "--json"]).await;
    let answer: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &answer["level"]), (7, &json!("effect")));
}

#[tokio::test]
async fn to_wait_is_to_stay_until_the_fault_has_ended() {
    let server = Server::start().await;
    let start = std::time::Instant::now();
    let waited =
        chaosctl(&server.socket, &["inject", "timeout", "--interface", "eth0", "--for", "600ms", "--wait"])
            .await;
    assert_eq!(waited.code, 0, "{}", waited.stderr);
    assert!(
        start.elapsed().as_millis() >= 500 && waited.stdout.trim_end().ends_with("ended"),
        "{}",
        waited.stdout
    );
}

#[tokio::test]
async fn an_experiment_is_registered_from_a_file_and_run() {
    let server = Server::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = server.state().join("experiment.json");
    let (_socket, closed) = closed_port();
    let mut document = json!({
        "title": "port survives",
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "port", "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl",
                "arguments": ["probe", "tcp", listener.local_addr().unwrap().to_string()]}}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "timeout", "--interface": "eth0", "--for": "200ms"}}}],
    });
    std::fs::write(&file, document.to_string()).unwrap();
    let registered = chaosctl(&server.socket, &["experiment", "register", file.to_str().unwrap()]).await;
    assert_eq!(registered.code, 0, "{}", registered.stderr);
    let run = chaosctl(&server.socket, &["experiment", "run", "port survives"]).await;
    assert!(
        run.code == 0 && run.stdout.starts_with("port survives: held after"),
        "{}{}",
        run.stdout,
        run.stderr
    );
    document["steady-state-hypothesis"]["probes"][0]["provider"]["arguments"][2] = json!(closed);
    std::fs::write(&file, document.to_string()).unwrap();
    assert_eq!(chaosctl(&server.socket, &["experiment", "register", file.to_str().unwrap()]).await.code, 0);
    assert_eq!(chaosctl(&server.socket, &["experiment", "run", "port survives"]).await.code, 1);
    let unknown = chaosctl(&server.socket, &["experiment", "run", "ghost"]).await;
    assert!(unknown.code == 1 && unknown.stderr.contains("EXPERIMENT_NOT_FOUND"), "{}", unknown.stderr);
}

/// A document whose steady state is that `address` accepts connections, and whose fault lasts so long.
fn document(name: &str, address: &str, lasts: &str) -> Value {
    json!({
        "title": name,
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "port", "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "timeout", "--interface": "eth0", "--for": lasts}}}],
    })
}

async fn register(server: &Server, document: &Value) {
    let file = server.state().join("registered.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let registered = chaosctl(&server.socket, &["experiment", "register", file.to_str().unwrap()]).await;
    assert_eq!(registered.code, 0, "{}", registered.stderr);
}

#[tokio::test]
async fn the_exit_code_of_a_run_is_its_verdict_and_the_run_is_found_again() {
    let server = Server::start().await;
    let socket = &server.socket;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (_socket, closed) = closed_port();
    register(&server, &document("holds", &address, "200ms")).await;
    register(&server, &document("down", &closed, "200ms")).await;
    // The gate's port is closed as soon as it is watched.
    let guard = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut gated = document("gated", &address, "10m");
    gated["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [{"name": "guard", "interval": "100ms",
        "tolerance": 0, "provider": {"type": "process", "path": "chaosctl",
            "arguments": ["probe", "tcp", guard.local_addr().unwrap().to_string()]}}]}]);
    register(&server, &gated).await;
    register(&server, &document("long", &address, "10m")).await;
    let mut denied = document("denied", &address, "200ms");
    // Which is not seen when it is planned.
    denied["method"][0]["provider"]["arguments"]["--interface"] = json!("nonetem0");
    register(&server, &denied).await;

    let active = || until_active(&server);
    let trip = async {
        active().await;
        drop(guard);
    };
    let (tripped, ()) = tokio::join!(chaosctl(socket, &["run", "gated"]), trip);
    let stop = async {
        active().await;
        assert_eq!(chaosctl(socket, &["stop", "--run", "nobody"]).await.code, 1);
        let stopped = chaosctl(socket, &["stop", "--experiment", "long"]).await;
        assert!(
            stopped.code == 0 && stopped.stdout.contains(" of \"long\" ended: aborted; "),
            "{}",
            stopped.stdout
        );
        stopped
    };
    let (aborted, _) = tokio::join!(chaosctl(socket, &["run", "long"]), stop);
    let runs = [
        ("held", 0, chaosctl(socket, &["run", "holds"]).await),
        ("refused", 2, chaosctl(socket, &["run", "down"]).await),
        ("failed", 3, chaosctl(socket, &["run", "denied"]).await),
        ("tripped", 4, tripped),
        ("aborted", 5, aborted),
    ];
    for (verdict, code, run) in &runs {
        assert_eq!(run.code, *code, "{verdict}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains(&format!(": {verdict} after ")), "{verdict}: {}", run.stdout);
    }
    // The port is gone after the fault, and was there before.
    let away = async {
        active().await;
        drop(listener);
    };
    register(&server, &document("dips", &address, "1s")).await;
    let (deviated, ()) = tokio::join!(chaosctl(socket, &["run", "dips"]), away);
    assert!(deviated.code == 1 && deviated.stdout.contains(": deviated after "), "{}", deviated.stdout);
    // Neither registered nor run.
    let unknown = chaosctl(socket, &["run", "ghost"]).await;
    assert!(unknown.code == 3 && unknown.stderr.contains("EXPERIMENT_NOT_FOUND"), "{}", unknown.stderr);
    let dry = chaosctl(socket, &["run", "down", "--dry-run"]).await;
    assert_eq!(dry.code, 2, "{}{}", dry.stdout, dry.stderr);

    assert_found_again(socket).await;
}

#[tokio::test]
async fn a_file_is_checked_registered_and_run_and_one_that_is_refused_is_told_as_validate_tells_it() {
    let server = Server::start().await;
    let socket = &server.socket;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let file = server.state().join("of a file.json");
    let file = file.to_str().unwrap();
    std::fs::write(file, document("of a file", &address, "100ms").to_string()).unwrap();
    // What is only looked at is not registered, and a file is not looked for by a name.
    let dry = chaosctl(socket, &["run", file, "--dry-run"]).await;
    assert!(dry.code == 0 && dry.stdout.contains("would be run"), "{}{}", dry.stdout, dry.stderr);
    let unknown = chaosctl(socket, &["run", "of a file"]).await;
    assert!(unknown.code == 3 && unknown.stderr.contains("EXPERIMENT_NOT_FOUND"), "{}", unknown.stderr);
    let run = chaosctl(socket, &["run", file]).await;
    assert!(
        run.code == 0 && run.stdout.starts_with("of a file: held after "),
        "{}{}",
        run.stdout,
        run.stderr
    );
    assert_eq!(chaosctl(socket, &["run", "of a file"]).await.code, 0, "it is registered now");

    let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
    command.arg("--socket").arg(socket).args(["run", "-"]).kill_on_drop(true);
    let mut piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = document("piped", &address, "100ms").to_string();
    piped.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
    let piped = tokio::time::timeout(PATIENCE, piped.wait_with_output()).await.expect("no end").unwrap();
    let said = String::from_utf8_lossy(&piped.stdout);
    assert!(piped.status.code() == Some(0) && said.starts_with("piped: held after "), "{said}");

    let mut wrong = document("of a file", &address, "100ms");
    wrong["method"][0]["provider"]["path"] = json!("/bin/sh");
    std::fs::write(file, wrong.to_string()).unwrap();
    server.take_asked();
    for path in [file, "./nowhere", "nowhere.yaml"] {
        let (run, validated) =
            (chaosctl(socket, &["run", path]).await, chaosctl(socket, &["validate", path]).await);
        assert_eq!((run.code, &run.stderr), (2, &validated.stderr), "{path}: {}", run.stdout);
    }
    assert!(chaosctl(socket, &["run", file]).await.stderr.contains("method[0].provider.path"));
    assert_eq!(server.take_asked(), [""; 0]);
}

#[tokio::test]
async fn how_a_run_goes_is_told_while_it_does_and_not_to_programs() {
    let server = Server::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut told = document("told", &address, "4s");
    told["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [{"name": "guard", "interval": "2s", "op": "gt",
        "value": 1500, "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}}]}]);
    register(&server, &told).await;
    let run = chaosctl(&server.socket, &["run", "told"]).await;
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let line = run.stderr.lines().find(|line| line.starts_with("told: lasting (cut), "));
    let line = line.unwrap_or_else(|| panic!("{}", run.stderr));
    assert!(line.contains(" left; guard ") && line.contains(", port "), "{line}");
    assert!(!run.stderr.contains('\x1b') && run.stdout.starts_with("told: held after "), "{}", run.stdout);
    // The same line is not written twice.
    let lines = run.stderr.lines().filter(|line| line.starts_with("told: lasting (cut), ")).count();
    assert!(lines == 1, "{}", run.stderr);
    let run = chaosctl(&server.socket, &["run", "told", "--json"]).await;
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

#[tokio::test]
async fn a_plan_of_a_file_says_all_of_it_and_registers_and_does_nothing() {
    let server = Server::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let file = server.state().join("planned.json");
    let file_name = file.to_str().unwrap();
    let plan = async |document: &Value, more: &[&str]| {
        std::fs::write(&file, document.to_string()).unwrap();
        chaosctl(&server.socket, &[&["plan", file_name], more].concat()).await
    };
    let good = plan(&document("planned", &address, "30s"), &[]).await;
    assert_eq!(good.code, 0, "{}{}", good.stdout, good.stderr);
    for line in [
        "planned: would be run, looked at after ",
        "  cut (timeout)\n    would do: would drop packets\n      for 30s; lifetime class kernel\n      guard: the kernel\n",
        "      - attach a program; undo: detach it\n",
        "  document ",
    ] {
        assert!(good.stdout.contains(line), "{line}: {}", good.stdout);
    }
    let json = plan(&document("planned", &address, "30s"), &["--json"]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["dry_run"], &json["plans"][0]["lifetime"]), (&json!(true), &json!("kernel")), "{json}");
    let mut refused = document("planned", &address, "30s");
    refused["method"][0]["provider"]["arguments"]["--interface"] = json!("nosuch0");
    let refused = plan(&refused, &[]).await;
    assert_eq!(refused.code, 2, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("    refused: no interface nosuch0\n"), "{}", refused.stdout);
    let wrong = plan(&json!({"title": "planned"}), &[]).await;
    assert!(wrong.code == 2 && wrong.stderr.contains("method: missing"), "{}", wrong.stderr);
    let status: Value =
        serde_json::from_str(&chaosctl(&server.socket, &["status", "--json"]).await.stdout).unwrap();
    assert_eq!((&status["registered_experiments"], &status["total_runs"]), (&json!(0), &json!(0)));
    assert_eq!(server.take_asked(), ["plan dry-run", "plan dry-run", "plan dry-run"]);
    let mut denied = document("planned", &address, "30s");
    denied["steady-state-hypothesis"]["probes"][0] = json!({"type": "probe", "name": "own", "tolerance": 0,
        "provider": {"type": "process", "path": "/usr/lib/own/check"}});
    let denied = plan(&denied, &[]).await;
    assert!(denied.code == 2 && denied.stderr.contains("POLICY_DENIED"), "{}{}", denied.code, denied.stderr);
    let stage = plan(&document("planned", &address, "30s"), &["--stage", "10"]).await;
    assert!(stage.code == 2 && stage.stderr.contains("blast_radius"), "{}{}", stage.code, stage.stderr);
    let absent = chaosctl(&server.state().join("no.sock"), &["plan", file_name]).await;
    assert_eq!(absent.code, 3, "{}", absent.stderr);
}

/// What has run is listed and shown, with its verdict.
async fn assert_found_again(socket: &std::path::Path) {
    let listed = chaosctl(socket, &["runs"]).await.stdout;
    for verdict in ["held", "refused", "failed", "tripped", "aborted", "deviated"] {
        assert!(listed.contains(&format!("  {verdict}  ")), "{verdict}: {listed}");
    }
    let only = chaosctl(socket, &["--json", "runs", "--experiment", "gated"]).await.stdout;
    let only: Value = serde_json::from_str(&only).unwrap();
    let result = &only["results"][0];
    assert_eq!(
        (only["results"].as_array().unwrap().len(), &result["verdict"]),
        (1, &json!("tripped")),
        "{only}"
    );
    let shown = chaosctl(socket, &["show", &result["run_id"].as_str().unwrap()[..8]]).await;
    assert!(
        shown.code == 0 && shown.stdout.contains("gated: tripped after"),
        "{}{}",
        shown.stdout,
        shown.stderr
    );
    assert!(shown.stdout.contains("from the breach to all faults removed"), "{}", shown.stdout);
    assert_eq!(chaosctl(socket, &["show", "nothing"]).await.code, 1);
}

#[tokio::test]
async fn a_file_is_checked_without_the_daemon_and_a_mistake_has_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("no-such-socket");
    let file = directory.path().join("slow.yaml");
    let text = "\
title: slow
configuration:
  port: {type: env, key: CHAOS_TEST_PORT, default: 5432}
secrets:
  api:
    token: {type: file, path: TOKEN}
steady-state-hypothesis:
  title: up
  probes:
  - type: probe
    name: health
    tolerance: 200
    provider: {type: http, url: \"http://127.0.0.1:${port}/\", headers: {X-Token: \"${token}\"}}
method:
- type: action
  name: delay
  provider:
    type: process
    path: chaosctl
    arguments: {inject: latency, --interface: eth0, --delay: 300ms, --for: 3m}
";
    let token = directory.path().join("token");
    std::fs::write(&token, "hunter2\n").unwrap();
    let text = text.replace("TOKEN}", &format!("{}}}", token.display()));
    let validate = async |text: &str| {
        std::fs::write(&file, text).unwrap();
        chaosctl(&nowhere, &["validate", file.to_str().unwrap()]).await
    };
    let good = validate(&text).await;
    assert!(
        good.code == 0 && good.stdout.contains("a valid experiment: \"slow\""),
        "{}{}",
        good.stdout,
        good.stderr
    );
    for (change, instead, expected) in [
        ("chaosctl\n", "/bin/sh\n", ":19:11: method[0].provider.path: \"/bin/sh\" is not supported"),
        (
            "tolerance: 200",
            "tolerance: true",
            ":12:16: steady-state-hypothesis.probes[0].tolerance: true is never",
        ),
        ("${port}", "${prot}", ":13:33: steady-state-hypothesis.probes[0].provider.url: ${prot} is neither"),
        ("/token}", "/no-token}", ":6:31: secrets.api.token.path: reading"),
        ("title: slow", "title: [slow", ": not YAML"),
        ("title: slow", "controls: [{name: c}]\ntitle: slow", ":1:11: controls: not supported"),
    ] {
        let bad = validate(&text.replacen(change, instead, 1)).await;
        assert!(bad.code == 2 && bad.stderr.contains(expected), "{instead}: {}", bad.stderr);
        assert!(!bad.stderr.contains("hunter2"), "{}", bad.stderr);
    }
    let schema = chaosctl(&nowhere, &["schema"]).await;
    let schema: Value = serde_json::from_str(&schema.stdout).unwrap();
    assert_eq!(schema["properties"]["method"]["type"], "array");
}

#[tokio::test]
async fn what_chaosctl_reads_for_an_experiment_is_used_and_no_secret_is_shown() {
    let server = Server::start().await;
    let file = server.state().join("experiment.yaml");
    let password = server.state().join("password");
    std::fs::write(&password, "hunter2\n").unwrap();
    let (_socket, closed) = closed_port();
    let text = format!(
        "title: leaky\nsecrets: {{api: {{password: {{type: file, path: {}}}}}}}\n\
         steady-state-hypothesis:\n  title: up\n  probes:\n  - {{type: probe, name: health, tolerance: 200, provider: \
         {{type: http, url: \"http://{closed}/?p=${{password}}\"}}}}\nmethod:\n- {{type: action, name: cut, provider: {{type: \
         process, path: chaosctl, arguments: {{inject: timeout, --interface: eth0, --for: 200ms}}}}}}\n",
        password.display()
    );
    std::fs::write(&file, text).unwrap();
    let registered = chaosctl(&server.socket, &["experiment", "register", file.to_str().unwrap()]).await;
    assert!(
        registered.code == 0 && registered.stdout.contains("?p=***"),
        "{}{}",
        registered.stdout,
        registered.stderr
    );
    let run = chaosctl(&server.socket, &["--json", "experiment", "run", "leaky"]).await;
    assert!(run.code == 1 && run.stdout.contains("?p=***"), "{}{}", run.stdout, run.stderr);
    let status = chaosctl(&server.socket, &["--json", "status", "--results"]).await;
    assert!(!format!("{}{}{}", registered.stdout, run.stdout, status.stdout).contains("hunter2"));
}

#[tokio::test]
async fn the_bridge_carries_a_session_ends_with_the_client_and_says_when_the_daemon_goes() {
    let mut server = Server::start().await;
    for daemon_goes in [false, true] {
        let mut bridge = Command::new(env!("CARGO_BIN_EXE_chaosctl"))
            .arg("mcp")
            .env("CHAOS_SOCKET", &server.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = bridge.stdin.take().unwrap();
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
        stdin.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let mut lines = BufReader::new(bridge.stdout.take().unwrap()).lines();
        let answer: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!(answer["result"]["serverInfo"]["name"], "chaos-daemon");
        if daemon_goes {
            // In the test's runtime connections outlive the server; an over-long line ends this one.
            server.end_injector().await;
            stdin.write_all(&vec![b'x'; 5 << 20]).await.unwrap();
        } else {
            drop(stdin);
        }
        let output =
            tokio::time::timeout(PATIENCE, bridge.wait_with_output()).await.expect("no end").unwrap();
        assert_eq!(output.status.code(), Some(if daemon_goes { 3 } else { 0 }));
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains("daemon closed"), daemon_goes);
    }
}

#[tokio::test]
async fn where_all_connections_are_taken_chaosctl_stops_and_looks_and_is_told_why_it_can_do_nothing_else() {
    let server = Server::start().await;
    let mut taken = Vec::new();
    for _ in 0..MOST_CONNECTIONS {
        taken.push(Client::open(&server.socket).await);
    }
    for words in [["stop", "--all"].as_slice(), &["status"]] {
        let done = chaosctl(&server.socket, words).await;
        assert_eq!(done.code, 0, "{words:?}: {}", done.stderr);
    }
    let told = |output: &Output| {
        assert_eq!(output.code, 3, "{}", output.stderr);
        assert!(output.stderr.contains("256 connections are open"), "{}", output.stderr);
        assert!(!output.stderr.contains("rmcp::"), "{}", output.stderr);
    };
    told(&chaosctl(&server.socket, &["doctor"]).await);
    // Also where not even these are served.
    for _ in 0..4 {
        taken.push(Client::open(&server.socket).await);
    }
    for _ in 0..10 {
        told(&chaosctl(&server.socket, &["doctor"]).await);
    }
    // What a client says that starts the bridge is answered by its id, and whoever looks at the bridge sees why it has ended.
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
    command.arg("--socket").arg(&server.socket).arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bridge = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let request = json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": {}});
    let mut said = bridge.stdin.take().unwrap();
    said.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, bridge.wait_with_output()).await.unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("first"), &json!(-32000)), "{answer}");
    let stderr = String::from_utf8(ended.stderr).unwrap();
    told(&Output { code: ended.status.code().unwrap(), stdout: String::new(), stderr });
    drop(said);
}
