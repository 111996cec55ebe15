//! What the operator's policy asks of experiments: whoever begins one that does not meet it is told the rule, and nothing is done.

use chaos_daemon::spec::HostLimits;
use serde_json::{Value, json};

use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register, until_active};

async fn run(client: &mut Client, dry: bool) -> (Value, bool) {
    client.call("chaos_run_experiment", json!({"experiment_name": "cut", "dry_run": dry})).await
}

#[tokio::test]
async fn an_experiment_without_what_the_policy_requires_does_not_begin_and_a_dry_run_says_so() {
    let server = Server::start().await;
    server.policy.lock().unwrap().experiments =
        toml::from_str("require_gate = true\nrequire_environments = true").unwrap();
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut cut = document("cut", &address, "200ms");
    register(&mut client, cut.clone()).await;
    let (refused, failed) = run(&mut client, false).await;
    assert!(failed && refused["error_code"] == "POLICY_DENIED", "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("`experiments.require_environments`"), "{refused}");
    let (told, _) = run(&mut client, true).await;
    assert_eq!(told["success"], false);
    assert!(told["error"].as_str().unwrap().contains("needs `environments`"), "{told}");
    assert_eq!(told["plans"][0]["action"], "cut", "the rest of the plan is there all the same: {told}");

    let mut gate = json!({"name": "up", "op": "gt", "value": 900, "interval": "1s", "noData": "ignore",
        "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}});
    cut["extensions"] = json!([{"name": "chaos-daemon", "environments": ["test"], "rollback_on": [gate]}]);
    register(&mut client, cut.clone()).await;
    let (refused, _) = run(&mut client, false).await;
    assert!(refused["hint"].as_str().unwrap().contains("`experiments.require_gate`"), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("for which no data is a breach"), "{refused}");

    gate["noData"] = json!("breach");
    cut["extensions"] = json!([{"name": "chaos-daemon", "environments": ["staging"], "rollback_on": [gate]}]);
    register(&mut client, cut.clone()).await;
    let (refused, _) = run(&mut client, false).await;
    assert!(
        refused["error"].as_str().unwrap().contains("environment staging only, and this is test"),
        "{refused}"
    );
    assert!(server.take_asked().iter().all(|asked| asked.starts_with("plan")), "something was injected");

    cut["extensions"][0]["environments"] = json!(["staging", "test"]);
    register(&mut client, cut).await;
    let (result, failed) = run(&mut client, false).await;
    assert!(!failed && result["verdict"] == "held", "{result}");
}

#[tokio::test]
async fn a_host_beyond_a_limit_of_the_policy_has_every_run_refused_before_its_method() {
    let server = Server::start().await;
    // Every host uses more.
    server.policy.lock().unwrap().host_limits = toml::from_str("memory_percent = 1").unwrap();
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("cut", &address, "200ms")).await;
    let limit = "policy:host_limits.memory_percent";
    let (told, _) = run(&mut client, true).await;
    assert_eq!(told["host_limits"], json!([format!("{limit}: host memory_used_percent > 1")]), "{told}");
    assert!(told["success"] == false && told["error"].as_str().unwrap().contains(limit), "{told}");
    let (refused, _) = run(&mut client, false).await;
    assert_eq!(refused["verdict"], "refused", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains(&format!("gate {limit}: ")), "{refused}");
    assert!(server.take_asked().iter().all(|asked| asked.starts_with("plan")), "something was injected");

    server.policy.lock().unwrap().host_limits = HostLimits::default();
    let (told, _) = run(&mut client, true).await;
    assert!(told["success"] == true && told["host_limits"].is_null(), "{told}");
}

#[tokio::test]
async fn a_run_on_a_host_that_comes_to_be_beyond_a_limit_ends_by_it_whatever_its_document_says() {
    let server = Server::start().await;
    let place = tempfile::tempdir().unwrap();
    let limits = format!("disk_percent = {{ {:?} = 99 }}", place.path());
    server.policy.lock().unwrap().host_limits = toml::from_str(&limits).unwrap();
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut cut = document("cut", &address, "10m");
    cut["runtime"] = json!({"hypothesis": {"strategy": "after-method-only"}});
    cut["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [{"name": "up", "op": "gt", "value": 900,
        "noData": "ignore", "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}}]}]);
    register(&mut client, cut).await;
    let ends = async {
        until_active(&server).await;
        // What cannot be seen any more is beyond its limit.
        place.close().unwrap();
    };
    let ((tripped, _), ()) = tokio::join!(run(&mut client, false), ends);
    assert_eq!(tripped["verdict"], "tripped", "{tripped}");
    let limit = "gate policy:host_limits.disk_percent.";
    assert!(tripped["error"].as_str().unwrap().contains(limit), "{tripped}");
    assert!(server.active.lock().unwrap().is_empty(), "its fault is removed");
}
