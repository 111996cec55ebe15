//! Runs as resources, and who has subscribed to one: hears of what is new, and of the end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, PATIENCE};
use crate::double::Server;
use crate::experiments::{document, port, register, until_active, until_finished};

/// The most runs that one connection follows.
const MOST: usize = 16;

/// Begins a run whose fault lasts so long; its handle.
async fn begin(client: &mut Client, name: &str, address: &str, lasts: &str) -> String {
    let mut document = document(name, address, lasts);
    // No outage, and a sample each second.
    document["method"][0]["provider"]["arguments"]["inject"] = json!("timeout");
    document["runtime"] = json!({"hypothesis": {"strategy": "continuously"}});
    register(client, document).await;
    let run = json!({"experiment_name": name, "wait_seconds": 0});
    let (begun, failed) = client.call("chaos_run_experiment", run).await;
    assert!(!failed, "{begun}");
    begun["run_id"].as_str().unwrap().to_owned()
}

async fn read(client: &mut Client, uri: &str) -> Value {
    let read = client.request("resources/read", json!({"uri": uri})).await;
    let contents = &read["result"]["contents"][0];
    assert_eq!(
        (&contents["uri"], &contents["mimeType"]),
        (&json!(uri), &json!("application/json")),
        "{read}"
    );
    serde_json::from_str(contents["text"].as_str().unwrap()).unwrap()
}

/// Listens to these addresses: the number of the request, and what of it was accepted.
async fn listen(client: &mut Client, uris: &Value) -> (u64, Value) {
    let params = json!({"notifications": {"resourceSubscriptions": uris}});
    let id = client.send("subscriptions/listen", params).await;
    let line = client.answer().await.unwrap();
    assert_eq!(line["method"], "notifications/subscriptions/acknowledged", "{line}");
    (id, line["params"]["notifications"].clone())
}

/// What is heard next, which is about `uri`.
async fn hear(client: &mut Client, uri: &str) -> Value {
    let line = client.answer().await.unwrap();
    assert_eq!(line["method"], "notifications/resources/updated", "{line}");
    assert_eq!(line["params"]["uri"], uri, "{line}");
    line["params"].clone()
}

async fn cancel(client: &mut Client, id: u64) {
    let params = json!({"requestId": id});
    client
        .line(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string())
        .await;
}

#[tokio::test]
async fn a_run_is_a_resource_with_what_chaos_get_run_tells() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    for (name, mut client) in
        [("legacy", Client::open(&server.socket).await), ("modern", Client::modern(&server.socket).await)]
    {
        let listed = client.request("resources/templates/list", json!({})).await;
        let templates = listed["result"]["resourceTemplates"].as_array().unwrap();
        let uris: Vec<_> = templates.iter().map(|template| &template["uriTemplate"]).collect();
        let known = [
            "chaos://run/{run_id}",
            "chaos://schema/output/{tool}",
            "chaos://report/{run_id}.html",
            "chaos://probe/{kind}",
            "chaos://fault/{fault_type}",
        ];
        assert_eq!(uris, known, "{listed}");
        let run_id = begin(&mut client, name, &address, "10m").await;
        let uri = format!("chaos://run/{run_id}");
        until_active(&server).await;
        let page = read(&mut client, &uri).await;
        assert_eq!((&page["ended"], &page["running"]["run_id"]), (&json!(false), &json!(run_id)), "{page}");
        assert_eq!(page["faults"][0]["fault_type"], "timeout", "{page}");
        assert!(!client.call("chaos_stop", json!({})).await.1);
        until_finished(&mut client).await;
        let page = read(&mut client, &uri).await;
        assert_eq!((&page["ended"], &page["run"]["verdict"]), (&json!(true), &json!("aborted")), "{page}");
        assert_eq!(client.call("chaos_get_run", json!({"run_id": run_id})).await.0, page);
        // Neither the beginning of a handle nor what is none.
        for absent in [&uri[..uri.len() - 1], "chaos://run/", "chaos://run/nosuch", "chaos://run/../x"] {
            let absent = client.request("resources/read", json!({"uri": absent})).await;
            let message = absent["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("chaos://run/RUN_ID"), "{absent}");
        }
    }
}

#[tokio::test]
async fn a_subscriber_hears_once_a_second_at_most_that_there_is_something_new_and_surely_of_the_end() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut other = Client::open(&server.socket).await;
    for mut client in [
        Client::legacy(&server.socket, "2024-11-05").await,
        Client::open(&server.socket).await,
        Client::modern(&server.socket).await,
    ] {
        let run_id = begin(&mut other, "heard", &address, "10m").await;
        let uri = format!("chaos://run/{run_id}");
        let is_modern =
            client.request("resources/subscribe", json!({"uri": uri})).await["error"]["code"] == -32601;
        let id = match is_modern {
            true => {
                let (id, accepted) = listen(&mut client, &json!([uri])).await;
                assert_eq!(accepted["resourceSubscriptions"], json!([uri]), "{accepted}");
                Some(id)
            }
            false => {
                // To subscribe twice is to hear it once.
                let again = client.request("resources/subscribe", json!({"uri": uri})).await;
                assert_eq!(again["result"], json!({}), "{again}");
                None
            }
        };
        let (mut heard, mut seen) = (Vec::new(), Vec::new());
        loop {
            let params = hear(&mut client, &uri).await;
            assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"].as_u64(), id, "{params}");
            heard.push(Instant::now());
            let page = read(&mut other, &uri).await;
            let news = page["events"].as_array().unwrap().len() + page["samples"].as_array().unwrap().len();
            seen.push(news as u64 + page["samples_left_out"].as_u64().unwrap());
            if page["ended"] == json!(true) {
                break;
            }
            if heard.len() == 4 {
                assert!(!other.call("chaos_stop", json!({"run_id": run_id})).await.1);
            }
        }
        assert!(seen.is_sorted(), "news are gone: {seen:?}");
        // An update is about what came after the one before it was sent. That may have been read with the one before; what was read
        // before that was sent has none of it. An update that is heard a second late says nothing.
        let in_time = |index: &usize| heard[index + 2] - heard[*index] > Duration::from_millis(1200);
        let without = (0..seen.len() - 2).filter(in_time).any(|index| seen[index] == seen[index + 2]);
        assert!(!without, "an update without news: {seen:?}, heard at {heard:?}");
        // But for the last one. A machine that is busy may hear one late, and the next in time.
        let total = heard[heard.len() - 2].duration_since(heard[0]).as_secs_f64();
        assert!(total > (heard.len() - 2) as f64 - 0.5, "{} updates in {total} s", heard.len() - 1);
        // Each line is an answer: after the end nothing is heard.
        assert!(!client.call("chaos_status", json!({})).await.1);
    }
}

#[tokio::test]
async fn who_unsubscribes_or_cancels_hears_nothing_more() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut other = Client::open(&server.socket).await;
    for is_modern in [false, true] {
        let run_id = begin(&mut other, "left", &address, "10m").await;
        let uri = format!("chaos://run/{run_id}");
        let mut client = match is_modern {
            true => Client::modern(&server.socket).await,
            false => Client::open(&server.socket).await,
        };
        if is_modern {
            let (id, _) = listen(&mut client, &json!([uri])).await;
            hear(&mut client, &uri).await;
            cancel(&mut client, id).await;
        } else {
            client.request("resources/subscribe", json!({"uri": uri})).await;
            hear(&mut client, &uri).await;
            for _ in 0..2 {
                let left = client.request("resources/unsubscribe", json!({"uri": uri})).await;
                assert_eq!(left["result"], json!({}), "{left}");
            }
        }
        // What was on its way.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!other.call("chaos_stop", json!({})).await.1);
        until_finished(&mut other).await;
        assert!(!client.call("chaos_status", json!({})).await.1);
    }
}

#[tokio::test]
async fn of_a_run_that_has_ended_before_one_hears_that_at_once_and_of_one_that_is_not_known_nothing() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let run_id = begin(&mut client, "over", &address, "200ms").await;
    until_finished(&mut client).await;
    let uri = format!("chaos://run/{run_id}");
    // The answer and the update may come either way round.
    client.send("resources/subscribe", json!({"uri": uri})).await;
    let lines = [client.answer().await.unwrap(), client.answer().await.unwrap()];
    assert!(lines.iter().any(|line| line["params"]["uri"] == uri), "{lines:?}");
    for unknown in ["chaos://run/nosuch", "chaos://fault/latency", &uri[..uri.len() - 1]] {
        let refused = client.request("resources/subscribe", json!({"uri": unknown})).await;
        assert!(refused["error"]["message"].as_str().unwrap().contains("chaos://run/RUN_ID"), "{refused}");
    }
    let listens = client.request("subscriptions/listen", json!({"notifications": {}})).await;
    assert_eq!(listens["error"]["code"], -32601, "{listens}");
    let mut modern = Client::modern(&server.socket).await;
    let asked = json!(["chaos://run/nosuch", "chaos://fault/latency", uri]);
    let (_, accepted) = listen(&mut modern, &asked).await;
    assert_eq!(accepted["resourceSubscriptions"], json!(["chaos://run/nosuch", uri]), "{accepted}");
    hear(&mut modern, &uri).await;
    assert!(!modern.call("chaos_status", json!({})).await.1);
}

#[tokio::test]
async fn one_connection_follows_so_many_runs_and_a_place_that_is_given_back_is_free() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut other = Client::open(&server.socket).await;
    let run_id = begin(&mut other, "many", &address, "10m").await;
    let uri = json!([format!("chaos://run/{run_id}")]);
    let mut client = Client::modern(&server.socket).await;
    // An update may come between any two lines.
    let acknowledged = async |client: &mut Client, count: usize| {
        let mut ids = Vec::new();
        for _ in 0..count {
            let params = json!({"notifications": {"resourceSubscriptions": uri}});
            ids.push(client.send("subscriptions/listen", params).await);
        }
        let mut refused = Vec::new();
        let mut missing = count;
        while missing > 0 {
            let line = client.answer().await.unwrap();
            let error = line["error"]["message"].as_str();
            refused.extend(error.map(str::to_owned));
            let is_accepted = line["method"] == "notifications/subscriptions/acknowledged";
            missing -= usize::from(is_accepted || error.is_some());
        }
        (ids, refused)
    };
    let (ids, _) = acknowledged(&mut client, MOST).await;
    let id = client.send("subscriptions/listen", json!({"notifications": {}})).await;
    loop {
        let line = client.answer().await.unwrap();
        if line["id"] == id {
            let message = line["error"]["message"].as_str().unwrap();
            assert!(message.contains("16 runs, which is the most at once"), "{line}");
            break;
        }
    }
    cancel(&mut client, ids[0]).await;
    // Nobody answers to a cancellation: the place is free some time later.
    let begin = Instant::now();
    loop {
        let (_, refused) = acknowledged(&mut client, 1).await;
        if refused.is_empty() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{refused:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It is each connection's own.
    let mut next = Client::open(&server.socket).await;
    let subscribed = next.request("resources/subscribe", json!({"uri": uri[0]})).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    assert!(!other.call("chaos_stop", json!({})).await.1);
}
