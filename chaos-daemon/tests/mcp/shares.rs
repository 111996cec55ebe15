//! Shares and rates without a monitoring system: the document that the documentation has of them, run against a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chaos_daemon::experiment::source::Source;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::double::Server;
use crate::experiments::register;

const DOCUMENTATION: &str = include_str!("../../../docs/experiments.md");

/// A service of which, once `after` requests were answered, every fourth fails; and how many there were.
async fn service(after: u32) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let status = if number >= after && number % 4 == 0 { "500 No" } else { "200 OK" };
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    (address, count)
}

/// The document as the documentation has it, about the service at this address, and shorter.
fn documented(address: &str) -> Value {
    let begin = DOCUMENTATION.find("title: the shop fails seldom while").unwrap();
    let text = &DOCUMENTATION[begin..];
    let text = text[..text.find("```").unwrap()].replace("127.0.0.1:8080", address);
    let text = text.replace("--for: 1m", "--for: 1s").replace("--window: 2s", "--window: 500ms");
    Value::Object(Source::read(&text).unwrap().document().clone())
}

async fn run(client: &mut Client) -> (Value, Value) {
    let run = json!({"experiment_name": "the shop fails seldom while its database is slow"});
    let (result, failed) = client.call("chaos_run_experiment", run).await;
    assert!(!failed, "{result}");
    let asked = json!({"run_id": result["run_id"], "all_samples": true});
    (result, client.call("chaos_get_run", asked).await.0)
}

#[tokio::test]
async fn a_service_that_fails_seldom_holds_and_one_that_fails_under_the_fault_deviates() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (address, asked) = service(u32::MAX).await;
    register(&mut client, documented(&address)).await;
    let (result, told) = run(&mut client).await;
    assert_eq!(result["verdict"], "held", "{result}");
    let samples = told["samples"].as_array().unwrap();
    let of = |role: &str| samples.iter().filter(|sample| sample["role"] == role).count();
    assert!(of("steady_state") >= 3 && of("gate") >= 2, "{samples:?}");
    // What was asked as a load is told apart from the samples, each of which says how many it asked.
    assert!(asked.load(Ordering::SeqCst) as usize > 5 * samples.len(), "{asked:?} {samples:?}");
    assert!(samples.iter().all(|sample| sample["value"] == 0.0), "{samples:?}");
    let told = samples[0]["detail"].as_str().unwrap();
    assert!(told.contains("0 of 10 failed (0.0 %)"), "{told}");

    // Sampled before the method: 10 by the probe and 10 by the gate.
    let (address, _) = service(30).await;
    register(&mut client, documented(&address)).await;
    let (result, told) = run(&mut client).await;
    assert_eq!(result["verdict"], "deviated", "{result}");
    let error = result["error"].as_str().unwrap();
    assert!(error.contains("error rate: failed_percent of 20 times a second GET"), "{error}");
    let worst = told["samples"].as_array().unwrap().iter().filter_map(|sample| sample["value"].as_f64());
    assert!(worst.fold(0.0, f64::max) >= 20.0, "{told}");
}

#[tokio::test]
async fn an_error_rate_that_lasts_trips_a_gate_of_one_line() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (address, _) = service(0).await;
    let (_listener, open) = crate::experiments::port().await;
    let mut gated = crate::experiments::document("gated", &open, "30s");
    let gate = format!(
        "{{name: errors, provider: {{type: process, path: chaosctl, arguments: [probe, series, --http, \"http://{address}/\", \
         --rate, 40]}}, op: gt, value: 5, alertAfter: 1s, interval: 500ms}}"
    );
    let gate = Source::read(&format!("gate: {gate}\n")).unwrap().document()["gate"].clone();
    gated["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [gate]}]);
    // Beforehand one breach keeps a run from beginning.
    register(&mut client, gated.clone()).await;
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "gated"})).await;
    assert_eq!(result["verdict"], "refused", "{result}");
    let (address, _) = service(12).await;
    let text = gated.to_string();
    let old = text.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    register(&mut client, serde_json::from_str(&text.replace(&old, &address)).unwrap()).await;
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "gated"})).await;
    assert_eq!(result["verdict"], "tripped", "{result}");
    assert!(result["error"].as_str().unwrap().contains("gate errors was breached for "), "{result}");
}
