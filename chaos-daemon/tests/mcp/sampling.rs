//! Probes of the steady state in their modes, through the tools.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{Client, closed_port};
use crate::double::Server;
use crate::experiments::{document, port, register, until};

/// A document whose steady state has these probes, of a port each, sampled as the extension says.
fn sampled(name: &str, probes: &[(&str, &str)], rules: Value) -> Value {
    let mut told = document(name, "127.0.0.1:1", "10m");
    let probe = |(name, address): &(&str, &str)| {
        json!({"type": "probe", "name": name, "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}})
    };
    told["steady-state-hypothesis"]["probes"] = probes.iter().map(probe).collect();
    told["method"][0]["pauses"] = json!({"before": 0.5, "after": 0.7});
    told["extensions"] = json!([{"name": "chaos-daemon", "probes": rules}]);
    told
}

/// The result of a run, its score, and the samples that were taken in it.
pub(crate) async fn run(client: &mut Client, name: &str) -> (Value, Value, Vec<Value>) {
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": name})).await;
    let asked = json!({"run_id": result["run_id"], "all_samples": true});
    let (told, failed) = client.call("chaos_get_run", asked).await;
    assert!(!failed, "{told}");
    (result, told["resiliency"]["score"].clone(), told["samples"].as_array().unwrap().clone())
}

#[tokio::test]
async fn every_mode_is_sampled_in_its_own_time() {
    let server = Server::start().await;
    let (_listener, open) = port().await;
    let mut client = Client::open(&server.socket).await;
    let modes = ["SOT", "EOT", "Edge", "Continuous", "OnChaos"];
    let probes = modes.map(|mode| (mode, open.as_str()));
    let rule = |mode| json!({"name": mode, "mode": mode, "interval": "100ms"});
    register(&mut client, sampled("modes", &probes, modes.map(rule).into_iter().collect())).await;
    let (result, score, samples) = run(&mut client, "modes").await;
    assert_eq!((&result["verdict"], &score), (&json!("held"), &json!(100)), "{result}");
    // A partition is an outage, whose end is looked for beside that.
    let samples: Vec<_> = samples.iter().filter(|sample| sample["role"] == "steady_state").collect();
    let of = |mode: &str, stage: &str| {
        samples.iter().filter(|sample| sample["probe"] == mode && sample["stage"] == stage).count()
    };
    for (mode, before, after) in
        [("SOT", 1, 0), ("EOT", 0, 1), ("Edge", 1, 1), ("Continuous", 1, 1), ("OnChaos", 0, 0)]
    {
        assert_eq!((of(mode, "before"), of(mode, "after")), (before, after), "{mode}: {samples:?}");
    }
    assert_eq!(["SOT", "EOT", "Edge"].map(|mode| of(mode, "during")), [0, 0, 0]);
    // Half a second without a fault is sampled by one of them only.
    let (throughout, under_fault) = (of("Continuous", "during"), of("OnChaos", "during"));
    assert!(under_fault >= 2 && throughout >= under_fault + 2, "{throughout} and {under_fault}");
    // By time: each knows how late it was asked for.
    let timed = |sample: &&&Value| sample["late_seconds"].as_f64().is_some_and(|late| late >= 0.0);
    assert_eq!(samples.iter().filter(timed).count(), throughout + under_fault);
}

#[tokio::test]
async fn a_log_is_looked_at_again_and_again_in_the_modes_that_go_by_time() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let modes = ["Continuous", "OnChaos"];
    let rule = |mode| json!({"name": mode, "mode": mode, "interval": "100ms"});
    let mut told = sampled("logs", &[], modes.map(rule).into_iter().collect());
    let log = json!(["probe", "log", "--unit", "a.service", "--match", "ERR", "--max", 2]);
    let probe = |mode| {
        json!({"type": "probe", "name": mode, "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl", "arguments": log}})
    };
    told["steady-state-hypothesis"]["probes"] = modes.map(probe).into_iter().collect();
    register(&mut client, told).await;
    let (result, _, samples) = run(&mut client, "logs").await;
    assert_eq!(result["verdict"], "held", "{result}");
    for mode in modes {
        let during = |sample: &&Value| sample["probe"] == mode && sample["stage"] == "during";
        let taken: Vec<_> = samples.iter().filter(during).collect();
        assert!(taken.len() >= 2 && taken.iter().all(|sample| sample["value"] == 2.0), "{mode}: {samples:?}");
    }
}

#[tokio::test]
async fn a_probe_that_stops_on_failure_ends_the_run_has_it_deviate_and_costs_as_much_as_it_is_severe() {
    let server = Server::start().await;
    let (listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let rules = json!([{"name": "up", "mode": "OnChaos", "interval": "100ms", "stopOnFailure": true, "severity": "critical"},
        {"name": "edge"}]);
    let (_other, steady) = port().await;
    let mut told = sampled("stops", &[("up", &address), ("edge", &steady)], rules);
    told["method"][0]["pauses"] = json!({});
    register(&mut client, told).await;
    let active = server.active.clone();
    tokio::spawn(async move {
        until(|| !active.lock().unwrap().is_empty()).await;
        drop(listener);
    });
    let (result, ..) = run(&mut client, "stops").await;
    assert_eq!(
        (&result["verdict"], &result["steady_state_after"]),
        (&json!("deviated"), &json!(true)),
        "{result}"
    );
    let (told, _) = client.call("chaos_get_run", json!({"run_id": result["run_id"]})).await;
    let by_severity = json!({"score": 25, "total": 4, "lost": 3, "passed": 1, "failed": 1});
    assert_eq!(told["resiliency"]["severity_score"], by_severity, "{told}");
    let error = result["error"].as_str().unwrap();
    assert!(
        error.starts_with("steady state not met during the action: up: ") && error.ends_with("stopOnFailure"),
        "{error}"
    );
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_probe_is_tried_again_before_it_counts_as_not_met() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (closed, address) = closed_port();
    let rules = json!([{"name": "up", "retry": 10, "interval": "500ms"}]);
    register(&mut client, sampled("slow start", &[("up", &address)], rules)).await;
    let opened = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(closed);
        TcpListener::bind(address).await.unwrap()
    });
    let (result, _, samples) = run(&mut client, "slow start").await;
    assert_eq!(result["verdict"], "held", "{result}");
    assert_eq!(samples.iter().filter(|sample| sample["met"] == false).count(), 0, "{samples:?}");
    drop(opened.await.unwrap());
    let (result, ..) = run(&mut client, "slow start").await;
    assert_eq!(result["verdict"], "refused", "{result}");
}

#[tokio::test]
async fn a_plan_takes_no_sample_that_may_change_something_and_says_which_it_left_out() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut client = Client::open(&server.socket).await;
    let http = |method: &str| json!({"type": "http", "url": url, "method": method, "timeout": 1});
    let process = |words: &[&str]| json!({"type": "process", "path": "chaosctl", "arguments": words});
    for (provider, is_left_out) in [
        (http("POST"), true),
        (process(&["probe", "http", &url, "--method", "POST"]), true),
        (process(&["probe", "mcp", &url, "--call", "x"]), true),
        (process(&["probe", "tcp", url.trim_start_matches("http://").trim_end_matches('/')]), false),
    ] {
        let mut planned = document("plan", "127.0.0.1:1", "1s");
        planned["steady-state-hypothesis"]["probes"][0]["provider"] = provider.clone();
        planned["steady-state-hypothesis"]["probes"][0]["name"] = json!("asked");
        if provider["type"] == "http" {
            planned["steady-state-hypothesis"]["probes"][0]["tolerance"] = json!(200);
        }
        let (plan, _) = client.call("chaos_plan_experiment", json!({"document": planned})).await;
        let expected = if is_left_out { json!(["asked"]) } else { Value::Null };
        assert_eq!(plan["not_sampled"], expected, "{provider}: {plan}");
        assert_eq!(plan["steady_state_before"], !is_left_out, "{plan}");
        let came = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await.is_ok();
        assert_eq!(came, !is_left_out, "{provider}");
    }
}
