//! Bad input gets a named error that the model can read, and changes nothing.

use serde_json::{Value, json};

use crate::client::Client;
use crate::double::Server;

/// A registration that is right but for `field`, which is set to `value`, or left out when that is null.
fn registration(field: &str, value: Value) -> Value {
    let mut arguments = json!({"fault_name": "f", "action": "register", "fault_type": "network_partition",
        "probability": 0.5, "target": {"interface": "eth0", "cidr": "10.0.0.0/8"}});
    match field.split_once('.') {
        Some((outer, inner)) => arguments[outer][inner] = value,
        None => arguments[field] = value,
    }
    arguments
}

#[tokio::test]
async fn every_bad_registration_is_refused_by_name_and_changes_nothing() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    client.fault("f", "register", json!({"fault_type": "resource_exhaustion", "probability": 0.7})).await;
    let before = client.call("chaos_status", json!({})).await.0;
    for (field, value, code, path) in [
        ("probability", json!(1.5), "INVALID_PROBABILITY", "probability"),
        ("probability", json!(-0.1), "INVALID_PROBABILITY", "probability"),
        ("probability", json!("0.5"), "INVALID_PROBABILITY", "probability"),
        ("probability", json!("NaN"), "INVALID_PROBABILITY", "probability"),
        ("probability", json!([0.5]), "INVALID_PROBABILITY", "probability"),
        ("fault_type", json!(null), "MISSING_PARAMETER", "fault_type"),
        ("fault_type", json!("meteor"), "INVALID_PARAMETER", "fault_type"),
        ("fault_type", json!(3), "INVALID_PARAMETER", "fault_type"),
        ("fault_name", json!(null), "MISSING_PARAMETER", "fault_name"),
        ("fault_name", json!("../etc"), "INVALID_PARAMETER", "fault_name"),
        ("action", json!(null), "MISSING_PARAMETER", "action"),
        ("action", json!("explode"), "INVALID_PARAMETER", "action"),
        ("duration_seconds", json!(-1), "INVALID_PARAMETER", "duration_seconds"),
        ("duration_seconds", json!(0), "INVALID_PARAMETER", "duration_seconds"),
        ("duration_seconds", json!(1e300), "INVALID_PARAMETER", "duration_seconds"),
        ("duration_seconds", json!("1h"), "INVALID_PARAMETER", "duration_seconds"),
        ("error_message", json!("x".repeat(513)), "INVALID_PARAMETER", "error_message"),
        ("target", json!("eth0"), "INVALID_PARAMETER", "target"),
        ("target.cidr", json!("10.0.0.0/33"), "INVALID_PARAMETER", "target.cidr"),
        ("target.interface", json!("a/b"), "INVALID_PARAMETER", "target.interface"),
        ("target.port", json!(70000), "INVALID_PARAMETER", "target.port"),
        ("target.local_port", json!("90-80"), "INVALID_PARAMETER", "target.local_port"),
        ("target.port", json!([80]), "INVALID_PARAMETER", "target"),
        ("target.colour", json!("red"), "INVALID_PARAMETER", "target"),
        ("params", json!({"delay_ms": 5}), "INVALID_PARAMETER", "params.delay_ms"),
        ("params", json!({"packet_probability": 2}), "INVALID_PROBABILITY", "params.packet_probability"),
        ("confirm", json!(true), "INVALID_PARAMETER", "confirm"),
    ] {
        let (result, failed) = client.call("chaos_inject_fault", registration(field, value.clone())).await;
        assert!(failed, "{field} = {value} was accepted: {result}");
        assert_eq!(result["status"], "error");
        assert_eq!(result["error"]["code"], code, "{field} = {value}: {result}");
        let message = result["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{path}:")), "{field} = {value}: {message}");
    }
    assert_eq!(client.call("chaos_status", json!({})).await.0, before);
    assert!(server.take_asked().is_empty());
}

#[tokio::test]
async fn a_share_of_calls_out_of_bounds_is_refused_as_a_probability() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let mut fault = registration("fault_type", json!("connect_error"));
    (fault["target"], fault["params"]) = (json!({"unit": "a.service"}), json!({"call_probability": 2}));
    let (result, failed) = client.call("chaos_inject_fault", fault).await;
    assert!(failed && result["error"]["code"] == "INVALID_PROBABILITY", "{result}");
    assert!(result["error"]["message"].as_str().unwrap().starts_with("params.call_probability:"), "{result}");
}

#[tokio::test]
async fn what_describes_a_fault_has_no_place_in_inject_and_remove() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for action in ["inject", "remove"] {
        for (field, value) in [
            ("fault_type", json!("latency")),
            ("probability", json!(1)),
            ("duration_seconds", json!(1)),
            ("error_message", json!("x")),
            ("target", json!({})),
            ("params", json!({})),
            ("force", json!(true)),
        ] {
            let (result, failed) = client
                .call("chaos_inject_fault", json!({"fault_name": "f", "action": action, field: value}))
                .await;
            assert!(failed, "{action} with {field}");
            let message = result["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{field}:")), "{message}");
        }
    }
    assert!(server.take_asked().is_empty());
}

#[tokio::test]
async fn every_tool_refuses_what_it_does_not_know_in_its_own_shape() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].clone();
    for tool in tools.as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let (result, failed) = client.call(name, json!({"surprise": 1})).await;
        assert!(failed, "{name}: {result}");
        for field in tool["outputSchema"]["required"].as_array().unwrap() {
            assert!(result.get(field.as_str().unwrap()).is_some(), "{name} without {field}: {result}");
        }
        // The list has an outline; the whole schema is a resource.
        let read = json!({"uri": format!("chaos://schema/output/{name}")});
        let page = client.request("resources/read", read).await["result"]["contents"][0]["text"].clone();
        let schema: Value = serde_json::from_str(page.as_str().unwrap()).unwrap();
        for field in result.as_object().unwrap().keys() {
            assert!(schema["properties"].get(field).is_some(), "{name} with unknown {field}");
        }
    }
}

#[tokio::test]
async fn what_is_not_json_or_not_a_message_is_answered() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    // NaN cannot even be said in JSON.
    client
        .line(r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"chaos_inject_fault","arguments":{"fault_name":"f","action":"register","fault_type":"latency","probability":NaN}}}"#)
        .await;
    let answer = client.answer().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32700)));
    client.line(r#"{"jsonrpc":"2.0","id":9}"#).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(9), &json!(-32600)), "{answer}");
    client.line("[]").await;
    assert_eq!(client.answer().await.unwrap()["error"]["code"], -32600);
    client.line("").await;
    client.line(r#"{"jsonrpc":"2.0","method":"notifications/unheard-of","params":{}}"#).await;
    // None of that has harmed the connection.
    assert!(!client.call("chaos_status", json!({})).await.1);
}

#[tokio::test]
async fn an_unknown_tool_is_an_error_of_the_protocol() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let answer = client.request("tools/call", json!({"name": "chaos_meteor", "arguments": {}})).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("chaos_inject_fault"));
}
