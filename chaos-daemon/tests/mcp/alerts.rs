//! Alerts of which the daemon is told: by a tool, by `chaosctl`, and in experiments.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;

use crate::client::{Client, PATIENCE};
use crate::double::Server;
use crate::experiments::{until, until_active};

const TOKEN: &str = "0123456789abcdef";

/// Tells at `address` that an alert is so; returns the status of the answer.
async fn tell(address: SocketAddr, token: &str, receiver: &str, name: &str, status: &str) -> String {
    let alert = json!({"status": status, "labels": {"alertname": name, "team": "pay"},
        "annotations": {"summary": "no connection left"}, "startsAt": "2026-05-04T10:00:00Z",
        "endsAt": "0001-01-01T00:00:00Z", "fingerprint": name});
    let body =
        json!({"version": "4", "groupKey": "{}", "status": status, "receiver": receiver, "alerts": [alert]})
            .to_string();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /alerts HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n"
    );
    let length = body.len();
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

async fn ask(client: &mut Client, words: &[&str]) -> Value {
    let words = [&["alert", "--webhook"], words].concat();
    let (sample, failed) = client.call("chaos_probe", json!({"arguments": words})).await;
    assert!(!failed, "{words:?}: {sample}");
    sample
}

fn told(words: &[&str]) -> Value {
    let arguments = [&["probe", "alert", "--webhook"], words].concat();
    json!({"type": "process", "path": "chaosctl", "arguments": arguments})
}

/// Registers an experiment with one fault of so many milliseconds, which expects these alerts.
async fn register(client: &mut Client, lasting: &str, alerts: Value) {
    let probe = json!({"type": "probe", "name": "there", "tolerance": 0, "provider":
        {"type": "process", "path": "chaosctl", "arguments": ["probe", "sockets", "all", "--sum", "used"]}});
    let document = json!({
        "title": "told",
        "steady-state-hypothesis": {"title": "there", "probes": [probe]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "timeout", "--interface": "eth0", "--for": lasting}}}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "alerts": alerts}],
    });
    let (answer, failed) = client.call("chaos_register_experiment", document).await;
    assert!(!failed, "{answer}");
}

#[tokio::test]
async fn an_alert_of_which_the_daemon_was_told_fires_until_it_is_told_resolved() {
    let (server, address) = Server::start_listening(TOKEN).await;
    let mut client = Client::open(&server.socket).await;
    let silent = ask(&mut client, &["--max", "0"]).await;
    assert!(silent["ok"] == true && silent["value"] == 0.0, "{silent}");
    assert!(silent["detail"].as_str().unwrap().contains("no word came in the "), "{silent}");
    assert_eq!(tell(address, "another", "oncall", "Pool", "firing").await, "401");
    assert_eq!(ask(&mut client, &[]).await["value"], 0.0);
    assert_eq!(tell(address, TOKEN, "oncall", "Pool", "firing").await, "200");
    for (words, ok, said) in [
        (
            &["--label", "alertname=Pool", "--reason", "connection", "--receiver", "oncall"][..],
            true,
            "firing: \"Pool\" (",
        ),
        (&["--label", "team=~p.*"], true, "firing: "),
        (&["--label", "team!=pay"], false, "none fires; the latest word came "),
        (&["--reason", "disk"], false, "gives another reason (summary: "),
        (&["--receiver", "dev"], false, "goes to [\"oncall\"]"),
        (&["--within", "1m"], false, "has been firing for "),
        (&["--max", "0"], false, "1.000, where at most 0 is right"),
    ] {
        let sample = ask(&mut client, words).await;
        assert!(
            sample["ok"] == ok && sample["detail"].as_str().unwrap().contains(said),
            "{words:?}: {sample}"
        );
    }
    assert_eq!(tell(address, TOKEN, "oncall", "Pool", "resolved").await, "200");
    let gone = ask(&mut client, &["--max", "0"]).await;
    assert!(
        gone["ok"] == true && gone["detail"].as_str().unwrap().contains("\"Pool\" is resolved"),
        "{gone}"
    );
    // Nothing of it is for the injector.
    assert_eq!(server.take_asked(), [""; 0]);
}

#[tokio::test]
async fn chaosctl_asks_the_daemon_what_it_was_told() {
    let (server, address) = Server::start_listening(TOKEN).await;
    let chaosctl = async |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
        command.arg("--socket").arg(&server.socket).args(["probe", "alert"]).args(words);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(PATIENCE, output).await.expect("no end").unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), said)
    };
    let (code, said) = chaosctl(&["--webhook"]).await;
    assert!(
        code == 1 && said.starts_with("failed: alerts {} that the daemon was told of: none fires; "),
        "{said}"
    );
    tell(address, TOKEN, "oncall", "Pool", "firing").await;
    let (code, said) = chaosctl(&["--webhook", "--label", "alertname=Pool"]).await;
    assert!(
        code == 0
            && said.starts_with("ok: alerts {alertname=\"Pool\"} that the daemon was told of: firing: "),
        "{said}"
    );
    for wrong in [&[][..], &["--webhook", "http://127.0.0.1:9093"], &["--webhook", "--label", "x"]] {
        let (code, said) = chaosctl(wrong).await;
        assert_eq!(code, 2, "{wrong:?}: {said}");
    }
}

#[tokio::test]
async fn a_daemon_that_listens_for_none_says_so_and_no_run_begins_that_needs_it() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let sample = ask(&mut client, &["--max", "0"]).await;
    let said = "this daemon listens for no alerts: start it with --alert-webhook ADDRESS:PORT";
    assert!(sample["ok"] == false && sample["value"].is_null(), "{sample}");
    assert!(sample["detail"].as_str().unwrap().contains(said), "{sample}");
    register(&mut client, "100ms", json!([{"name": "pool", "provider": told(&[]), "must_not_fire": true}]))
        .await;
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "told"})).await;
    assert!(result["verdict"] == "refused" && result["error"].as_str().unwrap().contains(said), "{result}");
    assert!(!server.take_asked().iter().any(|asked| asked.starts_with("inject ")));
}

#[tokio::test]
async fn where_an_alertmanager_cannot_be_reached_nobody_is_seen_watching_and_no_run_begins() {
    let server = Server::start().await;
    server.policy.lock().unwrap().experiments.require_alert = true;
    let mut client = Client::open(&server.socket).await;
    // Bound, never listening: refused.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    let arguments = ["probe", "alert", &url, "--label", "alertname=Pool"];
    let provider = json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    register(&mut client, "100ms", json!([{"name": "pool", "provider": provider, "fires_within": "5s"}]))
        .await;
    for dry_run in [true, false] {
        let run = json!({"experiment_name": "told", "dry_run": dry_run});
        let (result, _) = client.call("chaos_run_experiment", run).await;
        let error = result["error"].as_str().unwrap();
        let said = "alert \"pool\" cannot be seen, so nobody can be seen watching: ";
        assert!(error.contains(said) && error.contains(&url) && error.contains("refused"), "{result}");
        assert!(dry_run || result["verdict"] == "refused", "{result}");
    }
    assert!(!server.take_asked().iter().any(|asked| asked.starts_with("inject ")));
}

#[tokio::test]
async fn an_experiment_is_judged_by_what_the_daemon_is_told_of_its_fault() {
    let (server, address) = Server::start_listening(TOKEN).await;
    let mut client = Client::open(&server.socket).await;
    let pool = told(&["--label", "alertname=Pool", "--receiver", "oncall"]);
    let alerts = json!([
        {"name": "pool", "provider": pool, "fires_within": "1m", "gone_within": "1m", "interval": "100ms"},
        {"name": "others", "provider": told(&["--label", "alertname!=Pool"]), "must_not_fire": true, "interval": "100ms"},
    ]);
    register(&mut client, "2s", alerts).await;
    for (other, verdict) in [(None, "held"), (Some("Disk"), "deviated")] {
        // Told while the fault is active, and when it is over.
        let telling = async {
            until_active(&server).await;
            tell(address, TOKEN, "oncall", "Pool", "firing").await;
            if let Some(other) = other {
                tell(address, TOKEN, "oncall", other, "firing").await;
            }
            until(|| server.active.lock().unwrap().is_empty()).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            tell(address, TOKEN, "oncall", "Pool", "resolved").await;
        };
        let run = client.call("chaos_run_experiment", json!({"experiment_name": "told"}));
        let ((result, _), ()) =
            tokio::time::timeout(PATIENCE, async { tokio::join!(run, telling) }).await.unwrap();
        assert_eq!(result["verdict"], verdict, "{result}");
        let [pool, others] = [0, 1].map(|number| &result["recovery"]["alerts"][number]);
        let [fired, gone] =
            ["fired_after_seconds", "gone_after_seconds"].map(|key| pool[key].as_f64().unwrap());
        // As soon as it is told, and 300 ms after the end.
        assert!((0.0..60.0).contains(&fired) && (0.2..60.0).contains(&gone), "{result}");
        assert!(pool["finding"].is_null(), "{result}");
        let finding = others["finding"].as_str().unwrap_or_default();
        assert_eq!(
            finding.contains("must not: ") && finding.contains("\"Disk\""),
            other.is_some(),
            "{result}"
        );
    }
}
