//! Credentials of probes: shown to whom they are meant for, and in nothing that the daemon tells.

use std::sync::{Arc, Mutex};

use chaos_daemon::policy::Policy;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register};

const TOKEN: &str = "hunter2-hunter2";

/// A Prometheus that refuses every query, and says back what it was asked; how often it was shown the token is told.
async fn prometheus() -> (String, Arc<Mutex<u32>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let shown = Arc::new(Mutex::new(0));
    let tells = Arc::clone(&shown);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut seen = Vec::new();
            while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
            }
            let seen = String::from_utf8(seen).unwrap();
            *tells.lock().unwrap() += u32::from(seen.contains(&format!("Bearer {TOKEN}\r\n")));
            let body = json!({"status": "error", "errorType": "bad_data", "error": seen}).to_string();
            let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close";
            let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, shown)
}

async fn ask(client: &mut Client, words: Value) -> Value {
    client.call("chaos_probe", json!({"arguments": words})).await.0
}

#[tokio::test]
async fn a_credential_of_a_file_is_shown_only_to_whom_the_policy_says_and_is_in_no_answer() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (url, shown) = prometheus().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let path = file.path().to_str().unwrap();
    let words = json!(["prometheus", url, "up", "--bearer-file", path]);
    let refused = ask(&mut client, words.clone()).await;
    let said = refused["detail"].as_str().unwrap();
    assert!(said.contains("probe_credentials.") && said.contains(&url), "{refused}");
    // A document is refused when it is registered; of an alert, too.
    let (_listener, address) = port().await;
    for extension in [
        json!({"name": "chaos-daemon", "alerts": [{"name": "pool", "must_not_fire": true, "provider": {"type": "process",
            "path": "chaosctl", "arguments": ["probe", "alert", url, "--bearer-file", path]}}]}),
        json!({"name": "chaos-daemon", "rollback_on": [{"name": "pool", "op": "gt", "value": 1, "provider": {"type":
            "process", "path": "chaosctl", "arguments": ["probe", "prometheus", url, "up", "--bearer-file", path]}}]}),
    ] {
        let mut cut = document("cut", &address, "100ms");
        cut["extensions"] = json!([extension]);
        let (answer, failed) = client.call("chaos_register_experiment", cut).await;
        let error = answer["error"].to_string();
        assert!(
            failed && error.contains("POLICY_DENIED") && error.contains("probe \\\"pool\\\""),
            "{answer}"
        );
    }
    assert_eq!(*shown.lock().unwrap(), 0);

    let rules = format!("probe_credentials = {{ {path:?} = [{url:?}] }}");
    let rules: Policy = toml::from_str(&rules).unwrap();
    server.policy.lock().unwrap().probe_credentials = rules.probe_credentials;
    let told = ask(&mut client, words).await;
    assert_eq!(*shown.lock().unwrap(), 1);
    assert!(told["detail"].as_str().unwrap().contains("Bearer ***"), "{told}");
    assert!(!told.to_string().contains("hunter2"), "{told}");
    let (other, elsewhere) = prometheus().await;
    let refused = ask(&mut client, json!(["prometheus", other, "up", "--bearer-file", path])).await;
    assert!(refused["detail"].as_str().unwrap().contains("may not be shown to"), "{refused}");
    assert_eq!(*elsewhere.lock().unwrap(), 0);
}

#[tokio::test]
async fn a_credential_of_the_secrets_of_a_document_is_shown_and_in_nothing_that_is_told_of_its_run() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (url, shown) = prometheus().await;
    let (_listener, address) = port().await;
    let mut cut = document("cut", &address, "600ms");
    cut["secrets"] = json!({"prometheus": {"token": TOKEN}});
    let provider = json!({"type": "process", "path": "chaosctl",
        "arguments": ["probe", "prometheus", url, "up", "--bearer", "${token}"]});
    cut["method"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "probe", "name": "pool", "provider": provider}));
    cut["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [
        {"name": "pool", "op": "gt", "value": 1, "noData": "ignore", "interval": "100ms", "provider": provider}]}]);
    register(&mut client, cut).await;
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "cut"})).await;
    assert_eq!(result["verdict"], "held", "{result}");
    assert!(*shown.lock().unwrap() >= 3, "beforehand, by the gate, and by the probe of the method");
    let run = json!({"run_id": result["run_id"], "all_samples": true});
    let (run, _) = client.call("chaos_get_run", run).await;
    let (described, _) = client.call("chaos_describe_experiment", json!({"experiment_name": "cut"})).await;
    let (history, _) = client.call("chaos_list_runs", json!({})).await;
    let told = [result, run, described, history];
    for told in &told {
        assert!(!told.to_string().contains("hunter2"), "{told}");
    }
    assert!(told[1].to_string().contains("Bearer ***"), "the sample is told of: {}", told[1]);
}
