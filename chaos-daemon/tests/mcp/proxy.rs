//! `chaosctl mcp-proxy` between a client and a real stdio server, which is `chaosctl mcp` before the daemon's server.

use std::process::Stdio;
use std::time::{Duration, Instant};

use chaos_daemon::host::boot_time_ns;
use chaos_daemon::kernel::process::ProcessId;
use chaos_daemon::kernel::proxy::Proxy;
use chaos_daemon::spec::mcp::Spoiling;
use chaos_daemon::spec::mcp::page::Order;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client::PATIENCE;
use crate::double::Server;

const CHAOSCTL: &str = env!("CARGO_BIN_EXE_chaosctl");
/// How long an answer is waited for that must not come.
const SILENCE: Duration = Duration::from_millis(300);

/// A client behind the proxy, which has shaken hands.
struct Session {
    proxy: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Session {
    async fn start(server: &Server, options: &[&str]) -> Self {
        let mut command = Command::new(CHAOSCTL);
        command.args(["--json", "mcp-proxy"]).args(options).args(["--", CHAOSCTL, "mcp"]);
        command.env("CHAOS_SOCKET", &server.socket).kill_on_drop(true);
        let mut proxy =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(proxy.stdout.take().unwrap()).lines();
        let mut session = Self { stdin: proxy.stdin.take().unwrap(), proxy, lines };
        let parameters = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}});
        let answer = session.request(json!("hello"), "initialize", parameters).await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "chaos-daemon");
        session.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        session
    }

    async fn say(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn call(&mut self, id: Value, tool: &str) {
        let params = json!({"name": tool, "arguments": {}});
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("no answer");
        line.unwrap().expect("the proxy has ended")
    }

    async fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let answer: Value = serde_json::from_str(&self.line().await).unwrap();
        assert_eq!(answer["id"], id);
        answer
    }

    /// Goes away. What the proxy says of itself.
    async fn end(self) -> Value {
        drop(self.stdin);
        let output =
            tokio::time::timeout(PATIENCE, self.proxy.wait_with_output()).await.expect("no end").unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let summary: Value = serde_json::from_str(said.lines().last().unwrap_or_default()).expect(&said);
        assert_eq!(output.status.code(), Some(0), "{said}");
        summary
    }
}

#[tokio::test]
async fn without_a_fault_everything_passes_as_it_is() {
    let server = Server::start().await;
    let mut session = Session::start(&server, &[]).await;
    let tools = session.request(json!(2), "tools/list", json!({})).await;
    assert!(tools["result"]["tools"].as_array().unwrap().len() >= 7);
    session.call(json!(3), "chaos_status").await;
    assert!(session.line().await.contains("active_faults"));
    let summary = session.end().await;
    assert_eq!((&summary["counts"]["calls"], &summary["counts"]["delayed"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn a_call_that_fails_does_not_come_to_the_server_and_other_methods_and_tools_pass() {
    let server = Server::start().await;
    let mut session = Session::start(&server, &["--fail", "1", "--tool", "chaos_stop"]).await;
    server.take_asked();
    session.call(json!(2), "chaos_stop").await;
    let answer: Value = serde_json::from_str(&session.line().await).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-32603)), "{answer}");
    assert!(server.take_asked().is_empty());
    session.call(json!(3), "chaos_status").await;
    assert!(session.line().await.contains("active_faults"));
    session.request(json!(4), "tools/list", json!({})).await;
    assert_eq!(session.end().await["counts"]["failed"], 1);
}

#[tokio::test]
async fn a_delayed_answer_comes_late_and_others_overtake_it() {
    let server = Server::start().await;
    let mut session = Session::start(&server, &["--delay", "2s"]).await;
    let start = Instant::now();
    session.call(json!("slow"), "chaos_status").await;
    session.request(json!("quick"), "ping", json!({})).await;
    assert!(session.line().await.contains("\"slow\""));
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(session.end().await["counts"]["delayed"], 1);
}

#[tokio::test]
async fn a_dropped_answer_never_comes_and_a_spoilt_one_is_a_line_that_is_no_json() {
    let server = Server::start().await;
    let mut session = Session::start(&server, &["--drop", "1"]).await;
    session.call(json!(2), "chaos_status").await;
    assert!(tokio::time::timeout(SILENCE, session.lines.next_line()).await.is_err(), "it came");
    session.request(json!(3), "ping", json!({})).await;
    assert_eq!(session.end().await["counts"]["dropped"], 1);
    for option in ["--truncate", "--corrupt"] {
        let mut session = Session::start(&server, &[option, "1"]).await;
        session.call(json!(2), "chaos_status").await;
        let line = session.line().await;
        assert!(serde_json::from_str::<Value>(&line).is_err(), "{option}: {line}");
        session.request(json!(3), "ping", json!({})).await;
        session.end().await;
    }
}

#[tokio::test]
async fn a_seed_replays_and_faults_end_at_their_time() {
    let server = Server::start().await;
    let mut patterns = Vec::new();
    for _ in 0..2 {
        let mut session = Session::start(&server, &["--seed", "11", "--fail", "0.5"]).await;
        let mut pattern = Vec::new();
        for id in 0..20 {
            session.call(json!(id), "chaos_status").await;
            pattern.push(session.line().await.contains("\"error\":{\"code\":-32603"));
        }
        patterns.push(pattern);
        session.end().await;
    }
    assert_eq!(patterns[0], patterns[1]);
    assert!(patterns[0].contains(&true) && patterns[0].contains(&false), "{patterns:?}");
    let mut session = Session::start(&server, &["--fail", "1", "--for", "200ms"]).await;
    tokio::time::sleep(SILENCE).await;
    session.call(json!(1), "chaos_status").await;
    assert!(session.line().await.contains("active_faults"));
    assert_eq!(session.end().await["counts"]["calls"], 0);
}

#[tokio::test]
async fn the_exit_code_is_the_servers_and_bad_options_are_named() {
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(CHAOSCTL);
        command.arg("mcp-proxy").args(arguments).stdin(Stdio::piped()).kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("no end").unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).await.0, 7);
    assert_eq!(run(&["--", "sh", "-c", "kill -9 $$"]).await.0, 137);
    for (arguments, code, text) in [
        (&["--fail", "1.5", "--", "true"][..], 2, "--fail: 1.5"),
        (&["--fail", "0.6", "--drop", "0.6", "--", "true"], 2, "--fail: with drop"),
        (&["--", "/nonexistent/server"], 1, "run \"/nonexistent/server\""),
        (&["--fail", "1"], 2, "COMMAND"),
    ] {
        let (found, said) = run(arguments).await;
        assert!(found == code && said.contains(text), "{arguments:?}: {found} {said}");
    }
}

/// A fault of the proxy of a session, as a holder has it.
fn fault(session: &Session, params: &Value) -> Proxy {
    let id = ProcessId::of(session.proxy.id().unwrap().cast_signed()).unwrap();
    let order = Order { spoiling: Spoiling::parse(params.as_object().unwrap()).unwrap(), seed: 7 };
    let fault = Proxy::claim(id, rand::random()).unwrap().unwrap();
    fault.order(&order.write().unwrap(), boot_time_ns() + 60_000_000_000).unwrap();
    fault
}

#[tokio::test]
async fn a_fault_meets_its_calls_and_no_others_until_it_is_let_go_of() {
    let server = Server::start().await;
    let mut session = Session::start(&server, &[]).await;
    server.take_asked();
    let failing = fault(&session, &json!({"fail": 1, "tools": ["chaos_stop"]}));
    session.call(json!(2), "chaos_stop").await;
    let line = session.line().await;
    assert!(line.contains("-32603") && line.contains("mcp_error"), "{line}");
    assert!(server.take_asked().is_empty());
    session.call(json!(3), "chaos_status").await;
    assert!(session.line().await.contains("active_faults"));
    assert_eq!(failing.tally().unwrap(), (1, 1));
    drop(failing);
    session.call(json!(4), "chaos_stop").await;
    assert!(!session.line().await.contains("-32603"));
    // The next fault counts anew, and what it loses never comes.
    let dropping = fault(&session, &json!({"drop": 1}));
    assert_eq!(dropping.tally().unwrap(), (0, 0));
    session.call(json!(5), "chaos_status").await;
    assert!(tokio::time::timeout(SILENCE, session.lines.next_line()).await.is_err(), "it came");
    assert_eq!(dropping.tally().unwrap(), (1, 1));
    drop(dropping);
    // Of what faults did, the proxy's own counts know nothing.
    assert_eq!(session.end().await["counts"]["failed"], 0);
}

#[tokio::test]
async fn an_answer_that_a_fault_delays_comes_when_the_fault_is_over() {
    const DELAY: Duration = Duration::from_secs(60);
    let server = Server::start().await;
    let mut session = Session::start(&server, &["--delay", "100ms"]).await;
    for by_its_term in [true, false] {
        let slow = fault(&session, &json!({"delay_ms": DELAY.as_millis()}));
        session.call(json!(2), "chaos_status").await;
        assert!(tokio::time::timeout(SILENCE, session.lines.next_line()).await.is_err(), "it came");
        match by_its_term {
            true => slow.renew(0).unwrap(),
            false => drop(slow),
        }
        let line = tokio::time::timeout(DELAY / 2, session.lines.next_line()).await;
        line.expect("it does not come before its time").unwrap().expect("the proxy has ended");
    }
    // What the options say goes on beside a fault.
    let slow = fault(&session, &json!({"delay_ms": 200}));
    let start = Instant::now();
    session.call(json!(3), "chaos_status").await;
    session.line().await;
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    drop(slow);
    session.end().await;
}
