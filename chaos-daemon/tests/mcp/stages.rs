//! Stages of the blast radius through the tools and `chaosctl`: none is skipped, whoever asks, also after a restart.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::chaosctl::chaosctl;
use crate::client::{Client, closed_port};
use crate::double::Server;
use crate::experiments::{document, port, register};

/// A document that kills, in stages.
fn staged(address: &str, stages: &Value) -> Value {
    let mut document = document("workers die", address, "200ms");
    document["method"][0]["provider"]["arguments"] =
        json!({"inject": "process-kill", "--unit": "a.service", "--seed": 7, "--for": "200ms"});
    document["extensions"] = json!([{"name": "chaos-daemon", "blast_radius": stages}]);
    document
}

async fn run(client: &mut Client, stage: Option<u8>) -> (Value, bool) {
    let mut arguments = json!({"experiment_name": "workers die"});
    if let Some(stage) = stage {
        arguments["stage"] = json!(stage);
    }
    client.call("chaos_run_experiment", arguments).await
}

/// The share that the injector was asked for by a run.
async fn share_of_a_run(server: &Server, client: &mut Client) -> f64 {
    let (result, _) = run(client, None).await;
    assert_eq!(result["verdict"], "held", "{result}");
    server.latest.lock().unwrap().take().unwrap().target.share.unwrap().fraction()
}

#[tokio::test]
async fn each_stage_has_to_be_held_before_the_next_and_the_injector_is_asked_for_its_share() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, staged(&address, &json!({}))).await;
    let (refused, failed) = run(&mut client, Some(25)).await;
    assert!(failed && refused["error_code"] == "STAGE_NOT_DUE", "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("stage 10 % comes first"), "{refused}");
    assert_eq!(refused["hint"], "run it first: chaos_run_experiment of \"workers die\" with stage 10");
    assert!(server.take_asked().is_empty(), "nothing was done");

    assert!((share_of_a_run(&server, &mut client).await - 0.1).abs() < 1e-9);
    assert!((share_of_a_run(&server, &mut client).await - 0.25).abs() < 1e-9);
    let (result, failed) = run(&mut client, Some(10)).await;
    assert!(!failed, "a smaller one may be run again: {result}");
    assert_eq!((&result["stage"], &result["verdict"]), (&json!(10), &json!("held")));
    assert_eq!(result["next"], "stage 50 % is due: chaos_run_experiment of \"workers die\" with stage 50");
    assert_eq!(run(&mut client, Some(100)).await.0["error_code"], "STAGE_NOT_DUE");

    // What was held is in the history, which the next server reads.
    let server = server.restart().await;
    let mut client = Client::open(&server.socket).await;
    assert_eq!(run(&mut client, None).await.0["stage"], 50);
    let (result, _) = run(&mut client, None).await;
    assert_eq!(result["stage"], 100);
    let next = result["next"].as_str().unwrap();
    assert!(next.starts_with("held at every stage; widen: process_kill for longer than 200ms"), "{next}");
    let (told, _) = client.call("chaos_get_run", json!({"run_id": result["run_id"]})).await;
    assert_eq!((&told["run"]["stage"], &told["run"]["next"]), (&json!(100), &result["next"]), "{told}");
    assert!(told["faults"][0]["target"].as_str().unwrap().contains("\"share\":1.0"), "{told}");

    // Another document of the same name has held nothing yet; the same with another list has.
    let mut other = staged(&address, &json!({}));
    other["method"][0]["provider"]["arguments"]["--seed"] = json!(8);
    register(&mut client, other).await;
    assert_eq!(run(&mut client, Some(25)).await.0["error_code"], "STAGE_NOT_DUE");
    register(&mut client, staged(&address, &json!({"stages": [10, 25, 30]}))).await;
    assert_eq!(run(&mut client, None).await.0["stage"], 30);
}

#[tokio::test]
async fn a_list_that_leaves_stages_out_is_not_registered_and_the_first_stays_due() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, staged(&address, &json!({}))).await;
    for shortened in [json!([100]), json!([10, 100])] {
        let document = staged(&address, &json!({"stages": shortened}));
        let (refused, failed) = client.call("chaos_register_experiment", document).await;
        assert!(failed && refused.to_string().contains("none skipped"), "{refused}");
        assert_eq!(run(&mut client, Some(100)).await.0["error_code"], "STAGE_NOT_DUE");
    }
    assert!(server.take_asked().is_empty(), "something was injected");
    let file = server.state().join("shortened.yaml");
    let document = staged(&address, &json!({"stages": [100]})).to_string();
    std::fs::write(&file, document.replace("\"stages\"", "\n\"stages\"")).unwrap();
    let said = chaosctl(&server.socket, &["validate", file.to_str().unwrap()]).await;
    assert!(said.code == 2 && said.stderr.contains("extensions[0].blast_radius.stages"), "{}", said.stderr);
    assert!(said.stderr.contains(":2:") && said.stderr.contains("add 10, 25 and 50"), "{}", said.stderr);
}

#[tokio::test]
async fn a_stage_that_was_not_met_or_not_completed_is_due_again() {
    let server = Server::start().await;
    let (listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, staged(&address, &json!({"stages": [10, 20]}))).await;
    drop(listener);
    let (refused, failed) = run(&mut client, None).await;
    assert!(!failed && refused["verdict"] == "refused" && refused["stage"] == 10, "{refused}");
    assert_eq!(
        refused["next"],
        "stage 10 % is due again: chaos_run_experiment of \"workers die\" with stage 10"
    );
    let (skipped, _) = run(&mut client, Some(20)).await;
    assert!(skipped["error"].as_str().unwrap().contains("its latest run refused"), "{skipped}");

    let listener = TcpListener::bind(&address).await.unwrap();
    assert_eq!(run(&mut client, None).await.0["verdict"], "held");
    // Of that run; the next to come is the sample before the other one.
    while timeout(Duration::from_millis(50), listener.accept()).await.is_ok() {}
    let outage = tokio::spawn(async move {
        listener.accept().await.unwrap();
        drop(listener);
    });
    let (result, _) = run(&mut client, None).await;
    outage.await.unwrap();
    assert_eq!((&result["verdict"], &result["stage"]), (&json!("deviated"), &json!(20)), "{result}");
    assert_eq!(
        result["next"],
        "stage 20 % is due again: chaos_run_experiment of \"workers die\" with stage 20"
    );
}

#[tokio::test]
async fn a_plan_says_who_would_be_affected_and_how_badly_and_whether_the_stage_is_due() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, staged(&address, &json!({}))).await;
    let dry = |stage: u8| json!({"experiment_name": "workers die", "dry_run": true, "stage": stage});
    let (plan, failed) = client.call("chaos_run_experiment", dry(10)).await;
    assert!(!failed && plan["success"] == true, "{plan}");
    let expected = json!([{"fault_type": "process_kill", "targets": ["unit a.service"], "of": "processes", "count": 2,
        "matching": 20, "share": 0.1, "severity": "outage"}]);
    assert_eq!((&plan["impact"], &plan["stage"]), (&expected, &json!(10)));
    // One that is not due is looked at, and said to be refused.
    let (plan, failed) = client.call("chaos_run_experiment", dry(50)).await;
    assert!(!failed && plan["success"] == false, "{plan}");
    assert_eq!(plan["impact"][0]["count"], 10);
    assert!(plan["error"].as_str().unwrap().contains("stage 50 % is not due"), "{plan}");

    let said = chaosctl(&server.socket, &["run", "workers die", "--dry-run"]).await;
    let line = "  would affect: process_kill of unit a.service: 2 of 20 matching processes (10 %): outage\n";
    assert!(said.code == 0 && said.stdout.contains(line), "{}", said.stdout);
    let arguments = ["inject", "latency", "--interface", "eth0", "--packet-probability", "0.5", "--dry-run"];
    let said = chaosctl(&server.socket, &arguments).await;
    let line = "  would affect: latency of interface eth0: 50 % of the matching packets: degraded\n";
    assert!(said.code == 0 && said.stdout.contains(line), "{}", said.stdout);
}

#[tokio::test]
async fn chaosctl_runs_a_stage_and_says_what_comes_next() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, staged(&address, &json!({}))).await;
    let skipped = chaosctl(&server.socket, &["run", "workers die", "--stage", "100"]).await;
    assert_eq!(skipped.code, 3, "{}", skipped.stderr);
    for text in ["STAGE_NOT_DUE", "stage 10 % comes first", "chaosctl run \"workers die\" --stage 10"] {
        assert!(skipped.stderr.contains(text), "{}", skipped.stderr);
    }
    let held = chaosctl(&server.socket, &["run", "workers die", "--stage", "10"]).await;
    assert_eq!(held.code, 0, "{}", held.stderr);
    assert!(held.stdout.starts_with("workers die at stage 10 %: held"), "{}", held.stdout);
    assert!(held.stdout.contains("  next: stage 25 % is due: "), "{}", held.stdout);
    let found = client.call("chaos_list_runs", json!({})).await.0;
    let shown = chaosctl(&server.socket, &["show", found["runs"][0]["run_id"].as_str().unwrap()]).await;
    assert!(
        shown.stdout.contains("at stage 10 %") && shown.stdout.contains("next: stage 25 %"),
        "{}",
        shown.stdout
    );
}

#[tokio::test]
async fn a_run_without_stages_takes_none_and_says_what_would_be_wider() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("plain", &address, "200ms")).await;
    let stage = json!({"experiment_name": "plain", "stage": 10});
    let (refused, failed) = client.call("chaos_run_experiment", stage).await;
    assert!(failed && refused["error"].as_str().unwrap().contains("no blast_radius"), "{refused}");
    for _ in 0..3 {
        let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "plain"})).await;
        assert_eq!((&result["verdict"], result.get("stage")), (&json!("held"), None), "{result}");
        let next = result["next"].as_str().unwrap();
        assert!(
            next.starts_with("held, which shows this much and no more; widen: network_partition for longer"),
            "{next}"
        );
    }
    let (_socket, closed) = closed_port();
    register(&mut client, document("down", &closed, "200ms")).await;
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "down"})).await;
    assert_eq!((&result["verdict"], result.get("next")), (&json!("refused"), None), "{result}");
}
