//! What a client cannot do to the server.

use std::time::Duration;

use chaos_daemon::server::places::MOST_CONNECTIONS;
use serde_json::json;
use tokio::time::Instant;

use crate::client::{Client, PATIENCE};
use crate::double::Server;

#[tokio::test]
async fn a_line_of_ten_megabytes_is_answered_with_the_limit_and_ends_the_connection() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let mut other = Client::open(&server.socket).await;
    let line = vec![b'x'; 10 * 1024 * 1024];
    client.bytes(&line).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32600)));
    assert!(answer["error"]["message"].as_str().unwrap().contains("4194304"), "{answer}");
    assert!(client.answer().await.is_none());
    assert!(!other.call("chaos_status", json!({})).await.1);
}

#[tokio::test]
async fn a_long_line_below_the_limit_is_served() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let cidrs: Vec<_> =
        (0..100_000u32).map(|n| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string()).collect();
    let fault = json!({"fault_type": "network_partition", "probability": 1,
        "target": {"interface": "eth0", "cidrs": cidrs}});
    client.fault("many", "register", fault).await;
    assert_eq!(client.fault("many", "inject", json!({})).await["was_triggered"], true);
    assert_eq!(server.active.lock().unwrap().values().next().unwrap().0.target.cidrs.len(), 100_000);
}

#[tokio::test]
async fn half_a_request_and_then_nothing_changes_nothing() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    client.fault("f", "register", json!({"fault_type": "resource_exhaustion", "probability": 1})).await;
    let whole = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "chaos_inject_fault", "arguments": {"fault_name": "f", "action": "inject"}}});
    client.bytes(whole.to_string().as_bytes()).await.unwrap();
    client.end();
    let mut client = patient(client).await;
    let start = Instant::now();
    assert!(client.answer().await.is_none());
    assert!(start.elapsed() < Duration::from_secs(1), "the end took {:?}", start.elapsed());
    assert!(server.take_asked().is_empty());
}

#[tokio::test]
async fn beyond_the_last_connection_stopping_and_looking_are_served_and_all_else_is_told_why_not() {
    let server = Server::start().await;
    let mut clients = Vec::new();
    for _ in 0..MOST_CONNECTIONS {
        clients.push(Client::open(&server.socket).await);
    }
    let mut narrow = Client::open(&server.socket).await;
    assert!(!narrow.call("chaos_status", json!({})).await.1);
    assert!(!narrow.call("chaos_stop", json!({})).await.1);
    let answer = narrow.request("tools/call", json!({"name": "chaos_doctor", "arguments": {}})).await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("256 connections"), "{answer}");
    assert!(narrow.answer().await.is_none());
    // Also where there is not even room for these.
    let mut stopping = Vec::new();
    for _ in 0..4 {
        stopping.push(Client::open(&server.socket).await);
    }
    let mut refused = Client::raw(&server.socket).await;
    let answer = refused.request("initialize", json!({})).await;
    assert_eq!(answer["error"]["code"], -32000);
    assert!(answer["error"]["message"].as_str().unwrap().contains("256 connections"));
    assert!(refused.answer().await.is_none());
    let mut leaving = clients.pop().unwrap();
    leaving.end();
    assert!(leaving.answer().await.is_none());
    let request = Client::open(&server.socket).await.request("tools/list", json!({})).await;
    assert!(request["error"].is_null(), "{request}");
}

#[tokio::test]
async fn a_connection_has_its_place_until_its_calls_have_ended_also_when_its_client_has_left() {
    let server = Server::start().await;
    let mut leaving = Client::open(&server.socket).await;
    let glued = json!({"fault_type": "timeout", "probability": 1, "target": {"interface": "glued0"}});
    leaving.fault("f", "register", glued).await;
    leaving.fault("f", "inject", json!({})).await;
    let arguments = json!({"fault_name": "f"});
    leaving.send("tools/call", json!({"name": "chaos_stop", "arguments": arguments})).await;
    let mut leaving = patient(leaving).await;
    leaving.end();
    assert!(leaving.answer().await.is_none());
    tokio::time::resume();
    let mut others = Vec::new();
    for _ in 1..MOST_CONNECTIONS {
        others.push(Client::open(&server.socket).await);
    }
    let mut refused = Client::open(&server.socket).await;
    let answer = refused.request("tools/list", json!({})).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("256 connections"), "{answer}");
}

#[tokio::test]
async fn what_is_deep_large_or_ambiguous_is_refused_by_its_id_with_the_reason() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"chaos_inject_fault","arguments":{arguments}}}}}"#
        )
    };
    for (arguments, reason) in [
        (format!(r#"{{"target":{}}}"#, deep(200)), "nested more than 100 levels deep"),
        (format!(r#"{{"target":{}}}"#, deep(100_000)), "nested more than 100 levels deep"),
        (r#"{"fault_name":"f","action":"inject","action":"remove"}"#.to_owned(), "\"action\" is there twice"),
        (format!(r#"{{"params":[{}0]}}"#, "0,".repeat(300_000)), "more than 250000 values"),
    ] {
        client.line(&call(&arguments)).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32600)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(reason), "{answer}");
    }
    assert!(!client.call("chaos_status", json!({})).await.1);
}

#[tokio::test]
async fn the_ninth_call_at_once_is_refused_and_a_slow_one_keeps_nobody_waiting() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let slow = json!({"fault_type": "timeout", "probability": 1, "target": {"interface": "slow0"}});
    for index in 0..9 {
        client.fault(&format!("s{index}"), "register", slow.clone()).await;
    }
    let mut client = patient(client).await;
    let start = Instant::now();
    for index in 0..9 {
        let arguments = json!({"fault_name": format!("s{index}"), "action": "inject"});
        client.send("tools/call", json!({"name": "chaos_inject_fault", "arguments": arguments})).await;
    }
    let first = client.answer().await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(800), "the refusal had to wait");
    assert_eq!(first["result"]["structuredContent"]["error"]["code"], "LIMIT_REACHED");
    for _ in 0..8 {
        let answer = client.answer().await.unwrap();
        assert_eq!(answer["result"]["structuredContent"]["was_triggered"], true, "{answer}");
    }
    assert!(start.elapsed() < Duration::from_millis(1500), "the calls waited for each other");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from_and_harms_nobody() {
    let server = Server::start().await;
    let mut deaf = Client::open(&server.socket).await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string() + "\n";
    let flood = request.repeat(200);
    let mut sent = 0;
    // Some 8 KiB go out for every request: the answers fill the socket, then the requests do.
    while tokio::time::timeout(Duration::from_millis(500), deaf.bytes(flood.as_bytes())).await.is_ok() {
        sent += flood.len();
        assert!(sent < 64 * 1024 * 1024, "the server reads without end");
    }
    assert!(!Client::open(&server.socket).await.call("chaos_status", json!({})).await.1);
}

/// Lets the runtime's clock run ahead whenever nothing happens, and waits for as long as it takes.
async fn patient(mut client: Client) -> Client {
    client.patience = Duration::from_secs(3600);
    tokio::time::pause();
    client
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed_after_half_a_minute() {
    let server = Server::start().await;
    let mut silent = patient(Client::raw(&server.socket).await).await;
    let start = Instant::now();
    assert!(silent.answer().await.is_none());
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn a_call_that_hangs_is_answered_before_the_client_gives_up() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let hung = json!({"fault_type": "timeout", "probability": 1, "target": {"interface": "hung0"}});
    client.fault("f", "register", hung).await;
    let mut client = patient(client).await;
    let start = Instant::now();
    let (result, failed) =
        client.call("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"})).await;
    assert!(failed);
    assert_eq!((&result["error"]["code"], &result["fault_name"]), (&json!("UNAVAILABLE"), &json!("f")));
    assert_eq!(start.elapsed().as_secs(), 45);
}

#[tokio::test]
async fn an_injection_is_taken_back_for_who_cancels_it_leaves_or_has_waited_too_long() {
    let server = Server::start().await;
    let hung = json!({"fault_type": "timeout", "probability": 1, "target": {"interface": "hung0"}});
    for (way, more) in [
        ("cancels", json!({})),
        ("cancels one with a key", json!({"idempotency_key": "k"})),
        ("leaves", json!({})),
        ("has waited", json!({})),
    ] {
        for is_modern in [false, true] {
            let mut client = match is_modern {
                true => Client::modern(&server.socket).await,
                false => Client::open(&server.socket).await,
            };
            client.fault("f", "register", hung.clone()).await;
            server.take_asked();
            let said = async |words: &str| {
                let begin = std::time::Instant::now();
                while !server.asked.lock().unwrap().iter().any(|asked| asked == words) {
                    assert!(begin.elapsed() < PATIENCE, "{way}: {:?}", server.asked.lock().unwrap());
                    tokio::task::yield_now().await;
                }
            };
            let mut arguments = json!({"fault_name": "f", "action": "inject"});
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let call = json!({"name": "chaos_inject_fault", "arguments": arguments});
            let id = client.send("tools/call", call).await;
            said("hung f").await;
            match way {
                "leaves" => drop(client),
                "has waited" => {
                    let mut client = patient(client).await;
                    let answer = client.answer().await.unwrap();
                    tokio::time::resume();
                    let error = &answer["result"]["structuredContent"]["error"];
                    assert_eq!(
                        (&answer["id"], &error["code"]),
                        (&json!(id), &json!("UNAVAILABLE")),
                        "{answer}"
                    );
                    said("taken back f").await;
                }
                _ => {
                    let cancelled = json!({"requestId": id});
                    let line =
                        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled});
                    client.line(&line.to_string()).await;
                    said("taken back f").await;
                    // It gets no answer, and its place is free.
                    assert!(!client.call("chaos_status", json!({})).await.1);
                }
            }
            said("taken back f").await;
            assert!(server.active.lock().unwrap().is_empty(), "{way}");
        }
    }
}
