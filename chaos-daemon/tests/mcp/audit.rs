//! What the server says of each call to the audit.

use chaos_audit::{Outcome, Record};
use serde_json::{Value, json};

use crate::client::Client;
use crate::double::Server;

fn said(server: &Server, act: &str) -> Vec<Record> {
    let recorded = std::mem::take(&mut *server.recorded.lock().unwrap());
    recorded.into_iter().map(|(record, _)| record).filter(|record| record.act == act).collect()
}

#[tokio::test]
async fn what_a_call_changes_in_the_server_is_said_before_and_after_with_the_reason_where_it_is_refused() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let fault = json!({"fault_name": "slow", "action": "register", "fault_type": "timeout", "target": {"interface": "eth0"}});
    let wrong = json!({"fault_name": "slow", "action": "register", "fault_type": "nonsense"});
    for (tool, arguments, act, on, code) in [
        ("chaos_inject_fault", fault, "register_fault", "slow", None),
        ("chaos_inject_fault", wrong, "register_fault", "slow", Some("INVALID_PARAMETER")),
        ("chaos_stop", json!({"run_id": "77"}), "stop_run", "77", Some("RUN_NOT_FOUND")),
        ("chaos_schedule", json!({"action": "delete", "name": "x"}), "delete_schedule", "x", None),
        (
            "chaos_search",
            json!({"action": "stop", "name": "x"}),
            "stop_search",
            "x",
            Some("SEARCH_NOT_FOUND"),
        ),
    ] {
        client.call(tool, arguments.clone()).await;
        let said = said(&server, act);
        let outcomes: Vec<_> = said.iter().map(|record| record.outcome).collect();
        let last = if code.is_some() { Outcome::Refused } else { Outcome::Done };
        assert_eq!(outcomes, [Outcome::Intent, last], "{arguments}");
        assert!(
            said.iter().all(|record| record.on.as_deref() == Some(on) && record.id == said[0].id),
            "{said:?}"
        );
        assert_eq!(said[1].code.as_deref(), code, "{arguments}");
    }
}

#[tokio::test]
async fn what_the_injector_records_is_said_by_the_server_only_where_it_was_not_asked() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let register = json!({"fault_name": "f", "action": "register", "fault_type": "timeout", "probability": 1.0, "target": {"interface": "eth0"}});
    client.call("chaos_inject_fault", register.clone()).await;
    client.call("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"})).await;
    assert_eq!(said(&server, "inject"), []);
    client.call("chaos_inject_fault", json!({"fault_name": "none", "action": "inject"})).await;
    let refused = said(&server, "inject");
    assert_eq!((refused.len(), refused[0].code.as_deref()), (1, Some("FAULT_NOT_FOUND")));
    let mut never = register;
    never["probability"] = json!(0.0);
    client.call("chaos_inject_fault", never).await;
    client.call("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"})).await;
    let rolled = said(&server, "inject");
    assert!(rolled[0].what.as_deref().unwrap().contains("said no"), "{rolled:?}");
}

#[tokio::test]
async fn what_only_looks_is_said_once_a_minute_and_a_connection_as_well() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for _ in 0..20 {
        client.call("chaos_status", json!({})).await;
    }
    let _other = Client::open(&server.socket).await;
    let recorded = server.recorded.lock().unwrap().clone();
    let count = |act: &str| recorded.iter().filter(|(record, _)| record.act == act).count();
    assert_eq!((count("look"), count("connect")), (1, 1));
}

#[tokio::test]
async fn a_caller_reads_their_own_part_of_the_audit_as_a_resource() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let read = client.request("resources/read", json!({"uri": "chaos://audit"})).await;
    let text = read["result"]["contents"][0]["text"].as_str().unwrap();
    let line: Value = serde_json::from_str(text).unwrap();
    let own = format!("uid {}", nix::unistd::getuid());
    assert!(line["of"].as_str().unwrap().starts_with(&own), "{line}");
}
