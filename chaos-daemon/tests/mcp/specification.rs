//! Every rule of the tool specification.

use serde_json::{Value, json};

use crate::client::Client;
use crate::double::Server;

const PARTITION: &str =
    r#"{"fault_type": "network_partition", "probability": 1, "target": {"interface": "eth0"}}"#;

fn partition() -> Value {
    serde_json::from_str(PARTITION).unwrap()
}

#[tokio::test]
async fn the_specifications_own_examples_register_and_run_as_written() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let example = json!({"fault_name": "slow-database", "action": "register", "fault_type": "latency",
        "probability": 0.3, "duration_seconds": 2.0});
    let (result, failed) = client.call("chaos_inject_fault", example).await;
    assert!(!failed, "{result}");
    assert_eq!(
        (&result["status"], &result["fault_name"], &result["fault_type"], &result["was_triggered"]),
        (&json!("registered"), &json!("slow-database"), &json!("latency"), &json!(false))
    );
    let (status, _) = client.call("chaos_status", json!({"include_results": true})).await;
    assert_eq!(status["active_faults"][0]["name"], "slow-database");
    assert_eq!(status["active_faults"][0]["fault_type"], "latency");
    assert_eq!(status["active_faults"][0]["probability"], 0.3);
    // Registered without a target, it has nowhere to go.
    let inject = json!({"fault_name": "slow-database", "action": "inject"});
    let (result, failed) = client.call("chaos_inject_fault", inject).await;
    assert!(failed);
    assert_eq!(result["error"]["code"], "MISSING_PARAMETER");
    assert!(result["error"]["message"].as_str().unwrap().starts_with("target.interface"));
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_fault_is_registered_injected_seen_and_removed() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    client.fault("cut", "register", partition()).await;
    let injected = client.fault("cut", "inject", json!({})).await;
    assert_eq!((&injected["status"], &injected["was_triggered"]), (&json!("injected"), &json!(true)));
    assert!(injected["ends_in_seconds"].as_f64().unwrap() > 59.0, "the default duration is a minute");
    let (status, failed) = client.call("chaos_status", json!({})).await;
    assert!(!failed);
    let fault = &status["active_faults"][0];
    assert_eq!((&fault["active"], &fault["state"]), (&json!(true), &json!("no_traffic")));
    assert_eq!(fault["evidence"]["packets_affected"], 7);
    let removed = client.fault("cut", "remove", json!({})).await;
    assert_eq!(
        (&removed["status"], &removed["fault_type"]),
        (&json!("removed"), &json!("network_partition"))
    );
    assert_eq!(removed["residue"], json!([]));
    let (status, _) = client.call("chaos_status", json!({})).await;
    assert_eq!(status["active_faults"], json!([]));
    assert_eq!(server.take_asked(), ["inject cut", "remove cut"]);
}

#[tokio::test]
async fn to_register_again_replaces_and_leaves_the_active_fault_alone() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    client.fault("f", "register", partition()).await;
    client.fault("f", "inject", json!({})).await;
    let changed = json!({"fault_type": "resource_exhaustion"});
    let again = client.fault("f", "register", changed.clone()).await;
    assert_eq!(again["fault_type"], "resource_exhaustion");
    assert!(again["message"].as_str().unwrap().contains("goes on as it was"), "{again}");
    assert_eq!(client.fault("f", "register", changed).await["status"], "registered");
    let (status, _) = client.call("chaos_status", json!({})).await;
    let fault = &status["active_faults"][0];
    assert_eq!((&fault["fault_type"], &fault["active"]), (&json!("network_partition"), &json!(true)));
    assert_eq!(server.take_asked(), ["inject f"]);
    assert_eq!(server.active.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_default_probability_is_a_tenth_and_it_is_rolled_once_per_inject() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let fault = json!({"fault_type": "resource_exhaustion"});
    client.fault("default", "register", fault).await;
    let (status, _) = client.call("chaos_status", json!({})).await;
    assert_eq!(status["active_faults"][0]["probability"], 0.1);
    client.fault("never", "register", json!({"fault_type": "resource_exhaustion", "probability": 0})).await;
    for _ in 0..20 {
        let result = client.fault("never", "inject", json!({})).await;
        assert_eq!((&result["status"], &result["was_triggered"]), (&json!("injected"), &json!(false)));
    }
    assert!(server.take_asked().is_empty());
    client.fault("half", "register", json!({"fault_type": "resource_exhaustion", "probability": 0.5})).await;
    let mut triggered = 0;
    for _ in 0..100 {
        let result = client.fault("half", "inject", json!({})).await;
        if result["was_triggered"] == true {
            triggered += 1;
            client.call("chaos_stop", json!({"fault_name": "half"})).await;
        }
    }
    // Outside of this once in 10^8 runs.
    assert!((20..=80).contains(&triggered), "{triggered} of 100");
}

#[tokio::test]
async fn inject_of_an_unknown_fault_is_an_error_and_remove_of_one_is_not() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (result, failed) =
        client.call("chaos_inject_fault", json!({"fault_name": "ghost", "action": "inject"})).await;
    assert!(failed);
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("error"), &json!("FAULT_NOT_FOUND")));
    assert_eq!((&result["fault_name"], &result["fault_type"]), (&json!("ghost"), &json!("")));
    assert_eq!(result["was_triggered"], false);
    for _ in 0..2 {
        assert_eq!(client.fault("ghost", "remove", json!({})).await["status"], "removed");
    }
}

#[tokio::test]
async fn an_empty_daemon_has_an_empty_status() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (status, failed) = client.call("chaos_status", json!({})).await;
    assert!(!failed);
    let expected = json!({"active_faults": [], "registered_experiments": 0, "results": [], "total_runs": 0,
        "success_rate": 0.0, "experiments": [], "running": []});
    assert_eq!(status, expected);
}

#[tokio::test]
async fn the_injectors_refusals_reach_the_caller_by_name() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for (interface, code, text) in
        [("nosuch0", "TARGET_NOT_FOUND", "nosuch0"), ("nonetem0", "UNSUPPORTED_KERNEL", "sch_netem")]
    {
        let fault = json!({"fault_type": "latency", "probability": 1, "target": {"interface": interface}});
        client.fault("f", "register", fault).await;
        let (result, failed) =
            client.call("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"})).await;
        assert!(failed);
        assert_eq!(result["error"]["code"], code);
        assert!(result["error"]["message"].as_str().unwrap().contains(text));
    }
    client.fault("f", "register", partition()).await;
    client.fault("f", "inject", json!({})).await;
    let (result, failed) =
        client.call("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"})).await;
    assert!(failed);
    assert_eq!(result["error"]["code"], "FAULT_ACTIVE");
}

#[tokio::test]
async fn residue_is_never_called_done() {
    let server = Server::start().await;
    server.residue.lock().unwrap().push("filter 0x7 on eth0".into());
    let mut client = Client::open(&server.socket).await;
    for tool in ["chaos_inject_fault", "chaos_stop"] {
        client.fault("f", "register", partition()).await;
        client.fault("f", "inject", json!({})).await;
        let arguments = match tool {
            "chaos_stop" => json!({"fault_name": "f"}),
            _ => json!({"fault_name": "f", "action": "remove"}),
        };
        let (result, failed) = client.call(tool, arguments).await;
        assert!(failed, "{result}");
        assert_eq!(result["error"]["code"], "REVERT_FAILED");
        assert!(result["error"]["message"].as_str().unwrap().contains("filter 0x7"));
    }
}

#[tokio::test]
async fn stop_ends_faults_keeps_registrations_and_is_idempotent() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for name in ["a", "b", "c"] {
        client.fault(name, "register", partition()).await;
        client.fault(name, "inject", json!({})).await;
    }
    let (stopped, failed) = client.call("chaos_stop", json!({"fault_name": "b"})).await;
    assert!(!failed);
    assert_eq!(
        (stopped["stopped"].as_array().unwrap().len(), &stopped["stopped"][0]["name"]),
        (1, &json!("b"))
    );
    let (stopped, _) = client.call("chaos_stop", json!({})).await;
    assert_eq!(stopped["stopped"].as_array().unwrap().len(), 2);
    let (stopped, failed) = client.call("chaos_stop", json!({})).await;
    assert_eq!((failed, &stopped["message"]), (false, &json!("nothing was active")));
    let (status, _) = client.call("chaos_status", json!({})).await;
    assert_eq!(status["active_faults"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_plan_changes_nothing_and_takes_a_registered_or_a_described_fault() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let mut described = partition();
    described["fault_name"] = json!("f");
    let (plan, failed) = client.call("chaos_plan", described).await;
    assert!(!failed, "{plan}");
    assert_eq!(plan["duration_seconds"], 60.0);
    assert_eq!(plan["steps"].as_array().unwrap().len(), 1);
    let (unknown, failed) = client.call("chaos_plan", json!({"fault_name": "f"})).await;
    assert!(failed);
    assert_eq!(unknown["error"]["code"], "FAULT_NOT_FOUND");
    client.fault("f", "register", partition()).await;
    assert!(!client.call("chaos_plan", json!({"fault_name": "f"})).await.1);
    assert_eq!(server.take_asked(), ["plan f", "plan f"]);
}

#[tokio::test]
async fn the_doctor_names_what_is_missing() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (report, failed) = client.call("chaos_doctor", json!({})).await;
    assert!(!failed);
    assert_eq!(report["faults"][0]["missing"], json!(["sch_netem"]));
    assert_eq!(report["faults"].as_array().unwrap().len(), chaos_daemon::spec::FAULT_TYPES.len());
    let faults = report["faults"].as_array().unwrap();
    let exhaustion = faults.iter().find(|fault| fault["fault_type"] == "resource_exhaustion").unwrap();
    let limit = json!({"resource": "pids_limit", "possible": false, "remedy": "boot without it",
        "missing": ["the cgroup controller pids (disabled)"]});
    assert_eq!(exhaustion["resources"], json!([limit]));
    assert_eq!(faults[0].get("resources"), None);
    assert_eq!(report.get("everywhere"), None, "looking everywhere takes time, and is done when asked for");
}

#[tokio::test]
async fn the_doctor_looks_everywhere_when_asked() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (report, failed) = client.call("chaos_doctor", json!({"residue": true})).await;
    assert!(!failed);
    assert_eq!(report["everywhere"]["level"], "effect");
    assert_eq!(report["everywhere"]["leftovers"][0]["what"], "process 7 is stopped");
}

#[tokio::test]
async fn what_is_registered_survives_a_restart() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    client.fault("f", "register", partition()).await;
    let server = server.restart().await;
    assert!(server.state().join("registry.json").exists());
    let mut client = Client::open(&server.socket).await;
    assert_eq!(client.fault("f", "inject", json!({})).await["was_triggered"], true);
}

#[tokio::test]
async fn when_the_injector_is_gone_the_server_ends() {
    let mut server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    server.end_injector().await;
    // The connection lives on in this test's runtime, but every call says what is the matter.
    let (status, failed) = client.call("chaos_status", json!({})).await;
    assert!(failed);
    assert_eq!(status["error"]["code"], "UNAVAILABLE");
    assert_eq!(status["active_faults"], json!([]));
    let refused = async {
        while tokio::net::UnixStream::connect(&server.socket).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::client::PATIENCE, refused).await.expect("still accepting connections");
}
