//! Runs that somebody stops, in whatever phase they are.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register, until, until_finished, until_running};

/// Stops the run that goes on, and waits for what it says to whoever has started it.
async fn stop_and_hear(server: &Server, client: &mut Client) -> Value {
    let mut other = Client::open(&server.socket).await;
    assert!(!other.call("chaos_stop", json!({})).await.1);
    // What was to go on for 10 min has not: the client does not wait for so long.
    let result = client.answer().await.unwrap()["result"]["structuredContent"].clone();
    until_finished(&mut other).await;
    assert!(server.active.lock().unwrap().is_empty(), "a fault is left: {result}");
    result
}

/// Waits until the run is in this phase.
async fn until_phase(server: &Server, phase: &str) {
    let mut client = Client::open(&server.socket).await;
    until_running(&mut client, |running| running["phase"] == phase).await;
}

#[tokio::test]
async fn one_run_of_two_is_stopped_by_its_handle_or_its_experiment_and_the_other_goes_on() {
    let server = Server::start_with(2).await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    for by in ["run_id", "experiment_name"] {
        let mut callers = Vec::new();
        for (name, interface) in [("stays", "eth0"), ("ends", "eth1")] {
            let mut document = document(name, &address, "10m");
            document["method"][0]["provider"]["arguments"]["--interface"] = json!(interface);
            register(&mut client, document).await;
            let mut caller = Client::open(&server.socket).await;
            caller
                .send(
                    "tools/call",
                    json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": name}}),
                )
                .await;
            callers.push(caller);
        }
        until(|| server.active.lock().unwrap().len() == 2).await;
        let (status, _) = client.call("chaos_status", json!({"experiment_name": "ends"})).await;
        let which = match by {
            "run_id" => status["running"][0]["run_id"].as_str().unwrap()[..12].to_owned(),
            _ => "ends".to_owned(),
        };
        let (stopped, failed) = client.call("chaos_stop", json!({by: which})).await;
        assert!(!failed, "{stopped}");
        let run = &stopped["runs"][0];
        assert_eq!(
            (&run["experiment_name"], &run["verdict"]),
            (&json!("ends"), &json!("aborted")),
            "{stopped}"
        );
        let names: Vec<_> = server.active.lock().unwrap().keys().map(ToString::to_string).collect();
        assert!(names.len() == 1 && names[0].starts_with("stays."), "{names:?}");
        for nobody in [json!({"run_id": "nobody"}), json!({"experiment_name": "ends"})] {
            let (refused, failed) = client.call("chaos_stop", nobody).await;
            assert!(failed && refused["error"]["code"] == "RUN_NOT_FOUND", "{refused}");
        }
        let both = json!({"run_id": "a", "experiment_name": "stays"});
        assert!(client.call("chaos_stop", both).await.1);
        assert_eq!(server.active.lock().unwrap().len(), 1, "a stop that is refused changes nothing");
        assert!(!client.call("chaos_stop", json!({})).await.1);
        until_finished(&mut client).await;
    }
}

#[tokio::test]
async fn a_stop_of_a_run_that_leaves_something_says_so_and_fails() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let document = document("leaves", &address, "10m");
    register(&mut client, document).await;
    let mut caller = Client::open(&server.socket).await;
    let params = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "leaves"}});
    caller.send("tools/call", params).await;
    until(|| !server.active.lock().unwrap().is_empty()).await;
    server.residue.lock().unwrap().push("veth left".to_owned());
    // An empty handle is neither the beginning of every other one nor the wish that everything ends.
    for field in ["run_id", "experiment_name"] {
        let (refused, failed) = client.call("chaos_stop", json!({field: ""})).await;
        assert!(failed && refused["error"]["code"] == "INVALID_PARAMETER", "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().starts_with(&format!("{field}:")), "{refused}");
        assert_eq!(server.active.lock().unwrap().len(), 1, "{refused}");
    }
    let (stopped, failed) = client.call("chaos_stop", json!({"experiment_name": "leaves"})).await;
    assert!(failed && stopped["error"]["code"] == "REVERT_FAILED", "{stopped}");
    assert!(stopped["error"]["message"].as_str().unwrap().contains("veth left"), "{stopped}");
    assert_eq!(stopped["runs"][0]["verdict"], "aborted", "{stopped}");
}

#[tokio::test]
async fn a_stop_ends_a_run_at_once_in_whatever_phase_it_is() {
    // What the injector was asked last when it is stopped, and whether the port has gone by then.
    for (when, phase, interface, lasts, pauses, asked, gone) in [
        ("pause before", "method", "eth0", "10m", json!({"before": 600}), "", false),
        ("lasting", "lasting", "eth0", "10m", json!({}), "inject", true),
        ("pause after", "method", "eth0", "10m", json!({"after": 600}), "inject", true),
        ("rollback", "unwinding", "sticky0", "200ms", json!({}), "removing", true),
        ("after", "after", "eth0", "200ms", json!({}), "remove ", true),
    ] {
        let server = Server::start().await;
        let (listener, address) = port().await;
        let mut client = Client::open(&server.socket).await;
        let mut document = document(when, &address, lasts);
        document["method"][0]["provider"]["arguments"]["--interface"] = json!(interface);
        document["method"][0]["pauses"] = pauses;
        document["extensions"] =
            json!([{"name": "chaos-daemon", "abort_when": [{"not_recovered_within": "5m"}]}]);
        register(&mut client, document).await;
        let params = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": when}});
        client.send("tools/call", params).await;
        let is_there = || match server.asked.lock().unwrap().last() {
            Some(last) => !asked.is_empty() && last.starts_with(asked),
            None => asked.is_empty(),
        };
        until(|| !gone || !server.asked.lock().unwrap().is_empty()).await;
        let listener = (!gone).then_some(listener);
        until(is_there).await;
        until_phase(&server, phase).await;
        let result = stop_and_hear(&server, &mut client).await;
        assert_eq!(result["verdict"], "aborted", "{when}: {result}");
        assert!(result["error"].as_str().unwrap().starts_with("stopped before its time"), "{result}");
        assert_eq!(result["steady_state_before"], true, "{when}: {result}");
        drop(listener);
    }
}

#[tokio::test]
async fn a_stop_waits_for_no_sample_that_does_not_come() {
    for (phase, first, strategy, lasts) in [
        ("before", 0, "default", "10m"),
        ("lasting", 1, "default", "10m"),
        ("lasting", 1, "continuously", "10m"),
        ("after", 0, "during-method-only", "300ms"),
    ] {
        let server = Server::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        // Answers so often, and then no more.
        let mute = tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                if open.len() < first {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
                }
                open.push(stream);
            }
        });
        let mut client = Client::open(&server.socket).await;
        let mut document = document(phase, "127.0.0.1:1", lasts);
        document["runtime"] = json!({"hypothesis": {"strategy": strategy}});
        // No outage, of which samples would be taken.
        document["method"][0]["provider"]["arguments"]["inject"] = json!("timeout");
        document["steady-state-hypothesis"]["probes"][0] = json!({"type": "probe", "name": "web", "tolerance": 200,
            "provider": {"type": "http", "url": url, "timeout": 30}});
        register(&mut client, document).await;
        let params = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": phase}});
        client.send("tools/call", params).await;
        until(|| phase != "lasting" || !server.active.lock().unwrap().is_empty()).await;
        until_phase(&server, phase).await;
        let result = stop_and_hear(&server, &mut client).await;
        mute.abort();
        assert_eq!(
            (&result["verdict"], &result["error"]),
            (&json!("aborted"), &json!("stopped before its time"))
        );
        assert_eq!(
            (&result["steady_state_before"], &result["steady_state_after"]),
            (&json!(first > 0), &json!(false))
        );
    }
}
