//! Calls that wait for the end of a run, for so long at most, and who hears meanwhile how it goes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::chaosctl::chaosctl;
use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register, until_active, until_finished};
use crate::interrupts::Running;

/// Begins a run of an experiment whose fault lasts so long, and does not wait for it; its handle.
async fn begin(client: &mut Client, name: &str, address: &str, lasts: &str) -> String {
    register(client, document(name, address, lasts)).await;
    let begun = json!({"experiment_name": name, "wait_seconds": 0});
    let (result, failed) = client.call("chaos_run_experiment", begun).await;
    assert!(!failed && result.get("verdict").is_none(), "{result}");
    assert!(result["error"].as_str().unwrap().starts_with("still running"), "{result}");
    result["run_id"].as_str().unwrap().to_owned()
}

/// Calls a tool with a token for progress: what is told until the answer comes, and the answer.
async fn told(client: &mut Client, tool: &str, arguments: Value) -> (Vec<Value>, Value) {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "t1"}});
    let id = client.send("tools/call", params).await;
    let mut told = Vec::new();
    loop {
        let line = client.answer().await.unwrap();
        if line["id"] == id {
            return (told, line["result"]["structuredContent"].clone());
        }
        assert_eq!(line["method"], "notifications/progress", "{line}");
        assert_eq!(line["params"]["progressToken"], "t1", "{line}");
        told.push(line["params"].clone());
    }
}

fn assert_rising(told: &[Value]) {
    let values: Vec<_> = told.iter().map(|news| news["progress"].as_f64().unwrap()).collect();
    assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
}

#[tokio::test]
async fn who_gives_a_token_hears_once_a_second_how_a_run_goes_and_nobody_else_does() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    for mut client in [Client::open(&server.socket).await, Client::modern(&server.socket).await] {
        register(&mut client, document("told", &address, "3s")).await;
        let run = json!({"experiment_name": "told"});
        let (news, result) = told(&mut client, "chaos_run_experiment", run.clone()).await;
        assert_eq!(result["verdict"], "held", "{result}");
        // As many as it has seconds, if the machine finds the time.
        let most = result["duration_seconds"].as_f64().unwrap() as usize + 1;
        assert!((2..=most).contains(&news.len()), "{news:?}");
        assert_rising(&news);
        for news in &news {
            let (progress, total) = (news["progress"].as_f64().unwrap(), &news["total"]);
            assert!(total.as_f64().is_none_or(|total| total >= progress), "{news}");
        }
        let lasting = |news: &&Value| news["message"].as_str().unwrap().starts_with("lasting (cut), ");
        let lasting = news.iter().find(lasting).unwrap_or_else(|| panic!("{news:?}"));
        assert!(lasting["message"].as_str().unwrap().contains(" s left"), "{lasting}");
        assert!((2.5..60.0).contains(&lasting["total"].as_f64().unwrap()), "{lasting}");
        // Each line is an answer: nothing is told after the end, nor to who has not asked for it.
        assert!(!client.call("chaos_status", json!({})).await.1);
        assert_eq!(client.call("chaos_run_experiment", run).await.0["verdict"], "held");
    }
}

#[tokio::test]
async fn any_call_that_takes_long_is_told_of() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let hung = json!({"fault_type": "timeout", "probability": 1, "target": {"interface": "hung0"}});
    client.fault("f", "register", hung).await;
    client.patience = Duration::from_secs(3600);
    // From here on the clock runs ahead whenever nothing happens.
    tokio::time::pause();
    let inject = json!({"fault_name": "f", "action": "inject"});
    let (news, result) = told(&mut client, "chaos_inject_fault", inject).await;
    assert_eq!(result["error"]["code"], "UNAVAILABLE", "{result}");
    assert!((40..=45).contains(&news.len()), "{} in 45 s", news.len());
    assert_rising(&news);
    assert!(news.iter().all(|news| news.get("total").is_none()), "{news:?}");
}

#[tokio::test]
async fn a_wait_ends_when_the_run_does_and_says_so() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let run_id = begin(&mut client, "ends", &address, "3s").await;
    let (now, failed) = client.call("chaos_get_run", json!({"run_id": &run_id[..12]})).await;
    assert!(!failed, "{now}");
    assert_eq!((&now["ended"], &now["run"]["run_id"]), (&json!(false), &json!(run_id)), "{now}");
    assert_eq!((&now["run"]["error"], now["run"].get("verdict")), (&json!("still running"), None), "{now}");
    assert_eq!(now["running"]["run_id"], run_id, "{now}");
    assert_eq!(now["faults"][0]["fault_type"], "network_partition", "{now}");
    assert!(now["digest"].as_str().is_some_and(|digest| digest.len() == 64), "{now}");
    let wait = json!({"run_id": run_id, "wait_seconds": 44, "all_samples": true});
    let begin = Instant::now();
    client.patience = Duration::from_secs(40);
    let (ended, failed) = client.call("chaos_get_run", wait.clone()).await;
    assert!(!failed && begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    assert_eq!((&ended["ended"], &ended["run"]["verdict"]), (&json!(true), &json!("held")), "{ended}");
    assert_eq!((ended.get("running"), &ended["resiliency"]["score"]), (None, &json!(100)), "{ended}");
    let events = |told: &Value| told["events"].as_array().unwrap().clone();
    assert!(events(&ended).starts_with(&events(&now)), "{now}, and then {ended}");
    // Of one that has ended there is nothing to wait for.
    let (again, _) = client.call("chaos_get_run", wait).await;
    assert_eq!(again, ended);
}

#[tokio::test]
async fn a_wait_is_over_before_clients_give_up_and_says_that_the_run_goes_on() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut long = document("long", &address, "10m");
    // No outage: a port that nobody serves does not take the samples of ten minutes.
    long["method"][0]["provider"]["arguments"]["inject"] = json!("timeout");
    register(&mut client, long).await;
    client.patience = Duration::from_secs(3600);
    tokio::time::pause();
    let begin = Instant::now();
    let run = json!({"experiment_name": "long", "wait_seconds": 3});
    let (run, _) = client.call("chaos_run_experiment", run).await;
    assert_eq!((begin.elapsed().as_secs(), run.get("verdict")), (3, None), "{run}");
    for (wait, elapsed) in [(44.0, 47), (1.5, 48)] {
        let wait = json!({"run_id": run["run_id"], "wait_seconds": wait});
        let (told, failed) = client.call("chaos_get_run", wait).await;
        assert!(!failed, "{told}");
        assert_eq!(begin.elapsed().as_secs(), elapsed);
        assert_eq!((&told["ended"], &told["running"]["phase"]), (&json!(false), &json!("lasting")), "{told}");
    }
    assert!(!client.call("chaos_stop", json!({})).await.1);
}

#[tokio::test]
async fn who_cancels_a_wait_waits_no_more_and_the_run_goes_on() {
    let server = Server::start_with(2).await;
    let (_listener, address) = port().await;
    for (name, mut client) in
        [("legacy", Client::open(&server.socket).await), ("modern", Client::modern(&server.socket).await)]
    {
        register(&mut client, document(name, &address, "10m")).await;
        let run = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": name}});
        let mut waiting = vec![client.send("tools/call", run).await];
        let mut other = Client::open(&server.socket).await;
        until_active(&server).await;
        let (status, _) = other.call("chaos_status", json!({})).await;
        let run_id = &status["running"][0]["run_id"];
        let wait = json!({"name": "chaos_get_run", "arguments": {"run_id": run_id, "wait_seconds": 44}});
        for _ in 0..7 {
            waiting.push(client.send("tools/call", wait.clone()).await);
        }
        // As many as may be under way at once.
        let (refused, failed) = client.call("chaos_status", json!({})).await;
        assert!(failed && refused["error"]["code"] == "LIMIT_REACHED", "{refused}");
        for id in waiting {
            let cancelled = json!({"requestId": id, "reason": "no longer of interest"});
            let line = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled});
            client.line(&line.to_string()).await;
        }
        // The waits give their places back, and are not answered: the next answer is to the next call.
        let begin = Instant::now();
        while client.call("chaos_status", json!({})).await.1 {
            assert!(begin.elapsed() < Duration::from_secs(40), "the waits go on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (goes_on, _) = client.call("chaos_get_run", json!({"run_id": run_id})).await;
        assert_eq!(goes_on["ended"], false, "{goes_on}");
        assert_eq!(server.active.lock().unwrap().len(), 1);
        assert!(!other.call("chaos_stop", json!({})).await.1);
        until_finished(&mut other).await;
    }
}

#[tokio::test]
async fn a_wait_that_makes_no_sense_is_refused_by_name_and_nothing_is_begun() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("idle", &address, "10m")).await;
    for (more, field) in [
        (json!({"wait_seconds": 45}), "wait_seconds: "),
        (json!({"wait_seconds": -1}), "wait_seconds: "),
        (json!({"wait_seconds": "5"}), "wait_seconds: "),
        (json!({"wait": 5}), "wait: "),
    ] {
        for (tool, key) in [("chaos_run_experiment", "experiment_name"), ("chaos_get_run", "run_id")] {
            let mut arguments = more.clone();
            arguments[key] = json!("idle");
            let (refused, failed) = client.call(tool, arguments).await;
            let (code, message) = match tool {
                "chaos_get_run" => (&refused["error"]["code"], &refused["error"]["message"]),
                _ => (&refused["error_code"], &refused["error"]),
            };
            assert!(failed && code == "INVALID_PARAMETER", "{refused}");
            assert!(message.as_str().unwrap().starts_with(field), "{refused}");
        }
    }
    let dry = json!({"experiment_name": "idle", "dry_run": true, "wait_seconds": 5});
    let (refused, failed) = client.call("chaos_run_experiment", dry).await;
    assert!(
        failed && refused["error"].as_str().unwrap().starts_with("wait_seconds: a dry run "),
        "{refused}"
    );
    let (refused, failed) = client.call("chaos_get_run", json!({"run_id": ""})).await;
    assert!(failed && refused["error"]["message"] == "run_id: empty: say which", "{refused}");
    assert!(server.take_asked().is_empty());
}

#[tokio::test]
async fn an_operator_waits_for_a_run_that_somebody_else_has_begun() {
    let server = Server::start().await;
    let socket = &server.socket;
    let (_listener, address) = port().await;
    let mut client = Client::open(socket).await;
    let run_id = begin(&mut client, "begun", &address, "10m").await;
    let handle = &run_id[..8];
    let shown = chaosctl(socket, &["show", handle]).await;
    assert!(shown.code == 0 && shown.stdout.starts_with("begun: "), "{}{}", shown.stdout, shown.stderr);
    assert!(shown.stdout.contains(&format!("run {run_id}, begun ")), "{}", shown.stdout);
    assert!(shown.stdout.contains(", goes on: --wait waits for its end\n"), "{}", shown.stdout);
    let report = chaosctl(socket, &["report", handle]).await;
    assert!(report.code == 1 && report.stderr.contains(" has not ended"), "{}", report.stderr);
    let unknown = chaosctl(socket, &["show", "--wait", "nobody"]).await;
    assert!(unknown.code == 3 && unknown.stderr.contains("RUN_NOT_FOUND"), "{}", unknown.stderr);
    let mut waiting = Running::start(socket, &["show", handle, "--wait"]);
    waiting.until_it_says("begun: ").await;
    assert!(!client.call("chaos_stop", json!({"run_id": run_id})).await.1);
    let waited = waiting.ended().await;
    assert_eq!(waited.code, 5, "{}{}", waited.stdout, waited.stderr);
    assert!(waited.stdout.starts_with("begun: aborted after "), "{}", waited.stdout);
    let waited = chaosctl(socket, &["--json", "show", "--wait", handle]).await;
    let told: Value = serde_json::from_str(&waited.stdout).unwrap();
    assert_eq!((waited.code, &told["ended"], waited.stderr.as_str()), (5, &json!(true), ""), "{told}");
}
