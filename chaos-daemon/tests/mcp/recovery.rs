//! How soon an outage is seen, and how soon it is over: a real port that closes and opens again while a run goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{Client, closed_port};
use crate::double::Server;
use crate::experiments::{until_active, until_running, until_seen};

fn document(address: &str, rto: &str) -> Value {
    json!({
        "title": "outage",
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "port", "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}}]},
        "method": [{"type": "action", "name": "cut it off", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "network-partition", "--interface": "eth0", "--for": "8s"}}}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "rto": rto}],
    })
}

/// Runs it while the port is closed: from when the fault acts until a sample has seen that and something has happened.
async fn run(rto: &str, is_over: impl AsyncFn(&Server)) -> Value {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut client = Client::open(&server.socket).await;
    let (answer, failed) = client.call("chaos_register_experiment", document(&address, rto)).await;
    assert!(!failed, "{answer}");
    let mut other = Client::open(&server.socket).await;
    let outage = async {
        until_active(&server).await;
        drop(listener);
        until_seen(&mut other).await;
        is_over(&server).await;
        TcpListener::bind(&address).await.unwrap()
    };
    let run = client.call("chaos_run_experiment", json!({"experiment_name": "outage"}));
    let ((result, failed), _listener) = tokio::join!(run, outage);
    assert!(!failed, "{result}");
    let (status, _) = client.call("chaos_status", json!({"include_results": true})).await;
    assert_eq!(status["results"][0]["recovery"], result["recovery"], "the same in the history");
    result
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no time"))
}

#[tokio::test]
async fn a_run_tells_when_an_outage_was_seen_and_when_it_was_over() {
    let result = run("1m", async |_| tokio::time::sleep(Duration::from_millis(500)).await).await;
    let (recovery, incident) = (&result["recovery"], &result["recovery"]["incidents"][0]);
    assert_eq!((&result["verdict"], &incident["action"]), (&json!("held"), &json!("cut it off")), "{result}");
    let (gone, back) = (&incident["unreachable_after_seconds"], &incident["recovered_after_seconds"]);
    assert!(seconds(gone) > 0.0 && seconds(back) > seconds(gone) + 0.4, "{recovery}");
    assert_eq!((&recovery["mttd_seconds"], &recovery["mttr_seconds"]), (gone, back));
    assert_eq!((&recovery["rto_seconds"], &recovery["within_rto"]), (&json!(60.0), &json!(true)));
}

#[tokio::test]
async fn a_recovery_later_than_its_objective_is_a_deviation_though_the_steady_state_is_met_after() {
    let result = run("300ms", async |_| tokio::time::sleep(Duration::from_millis(400)).await).await;
    assert_eq!(
        (&result["verdict"], &result["steady_state_after"]),
        (&json!("deviated"), &json!(true)),
        "{result}"
    );
    assert_eq!(
        (&result["recovery"]["within_rto"], &result["failure_mode"]),
        (&json!(false), &json!("rto_missed"))
    );
    assert!(result["error"].as_str().unwrap().contains("the rto is 300ms"), "{result}");
}

#[tokio::test]
async fn an_outage_that_no_sample_sees_is_a_finding_and_meets_no_objective() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut document = document(&listener.local_addr().unwrap().to_string(), "10s");
    document["method"][0]["provider"]["arguments"]["--for"] = json!("500ms");
    assert!(!client.call("chaos_register_experiment", document).await.1);
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "outage"})).await;
    let (recovery, incident) = (&result["recovery"], &result["recovery"]["incidents"][0]);
    assert_eq!(result["verdict"], "held", "{result}");
    assert_eq!(incident["finding"], "no outage was seen, so recovery was not measured", "{result}");
    assert_eq!((recovery.get("within_rto"), &recovery["rto_seconds"]), (None, &json!(10.0)), "{result}");
}

#[tokio::test]
async fn a_stop_before_the_objective_is_over_does_not_say_that_it_was_missed() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut document = document(&listener.local_addr().unwrap().to_string(), "5m");
    document["method"][0]["provider"]["arguments"]["--for"] = json!("10m");
    assert!(!client.call("chaos_register_experiment", document).await.1);
    let params = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "outage"}});
    client.send("tools/call", params).await;
    let mut other = Client::open(&server.socket).await;
    until_running(&mut other, |running| running["phase"] == "lasting").await;
    drop(listener);
    until_seen(&mut other).await;
    assert!(!other.call("chaos_stop", json!({})).await.1);
    let result = client.answer().await.unwrap()["result"]["structuredContent"].clone();
    let (recovery, error) = (&result["recovery"], result["error"].as_str().unwrap());
    assert_eq!(result["verdict"], "aborted", "{result}");
    assert!(recovery["mttd_seconds"].is_number() && !error.contains("not seen to recover"), "{result}");
    assert_eq!((recovery.get("within_rto"), &recovery["rto_seconds"]), (None, &json!(300.0)), "{result}");
}

#[tokio::test]
async fn a_probe_that_is_about_faults_alone_tells_of_no_outage_that_others_would_have_to_see_the_end_of() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_closed, closed) = closed_port();
    let mut document = document(&listener.local_addr().unwrap().to_string(), "10s");
    let mut probe = document["steady-state-hypothesis"]["probes"][0].clone();
    probe["name"] = json!("under fault");
    probe["provider"]["arguments"][2] = json!(closed);
    document["steady-state-hypothesis"]["probes"].as_array_mut().unwrap().push(probe);
    // No outage, of which samples would be taken anyway.
    document["method"][0]["provider"]["arguments"]["inject"] = json!("timeout");
    document["extensions"] = json!([{"name": "chaos-daemon", "probes":
        [{"name": "under fault", "mode": "OnChaos", "interval": "200ms"}]}]);
    assert!(!client.call("chaos_register_experiment", document).await.1);
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "outage"})).await;
    assert_eq!(
        (&result["verdict"], &result["failure_mode"], result.get("recovery")),
        (&json!("deviated"), &json!("not_steady_during"), None),
        "{result}"
    );
}

#[tokio::test]
async fn what_another_fault_does_to_the_steady_state_is_measured_once_a_sample_sees_it() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut document = document(&address, "10s");
    document["method"][0]["provider"]["arguments"]["inject"] = json!("timeout");
    document["extensions"] = json!([{"name": "chaos-daemon", "probes":
        [{"name": "port", "mode": "Continuous", "interval": "200ms"}]}]);
    assert!(!client.call("chaos_register_experiment", document).await.1);
    let mut other = Client::open(&server.socket).await;
    let outage = async {
        until_active(&server).await;
        drop(listener);
        until_seen(&mut other).await;
        // From then on it is measured, by samples of its own.
        tokio::time::sleep(Duration::from_secs(2)).await;
        TcpListener::bind(&address).await.unwrap()
    };
    let run = client.call("chaos_run_experiment", json!({"experiment_name": "outage"}));
    let ((result, _), _listener) = tokio::join!(run, outage);
    let (recovery, incident) = (&result["recovery"], &result["recovery"]["incidents"][0]);
    assert_eq!(
        (&result["verdict"], &incident["fault_type"]),
        (&json!("deviated"), &json!("timeout")),
        "{result}"
    );
    let (gone, back) = (&incident["unreachable_after_seconds"], &incident["recovered_after_seconds"]);
    assert!(seconds(gone) > 0.0 && seconds(back) > seconds(gone), "{recovery}");
    assert_eq!((&recovery["mttd_seconds"], &recovery["mttr_seconds"]), (gone, back));
}

#[tokio::test]
async fn a_run_that_makes_no_outage_has_no_such_figures_and_an_objective_for_it_is_refused() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut document = document(&listener.local_addr().unwrap().to_string(), "10s");
    document["method"][0]["provider"]["arguments"] =
        json!({"inject": "latency", "--interface": "eth0", "--for": "100ms"});
    let (answer, failed) = client.call("chaos_register_experiment", document.clone()).await;
    assert!(failed && answer.to_string().contains("rto"), "{answer}");
    document["extensions"] = json!([]);
    assert!(!client.call("chaos_register_experiment", document).await.1);
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "outage"})).await;
    assert_eq!((&result["verdict"], result.get("recovery")), (&json!("held"), None), "{result}");
}
