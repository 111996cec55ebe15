//! Experiments through the tools: before, fault, after; and runs that outlive their caller.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{Client, PATIENCE, closed_port};
use crate::double::Server;

/// How often the strategy "continuously" samples.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn document(name: &str, address: &str, lasts: &str) -> Value {
    json!({
        "title": name,
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "port", "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "network-partition", "--interface": "eth0", "--for": lasts}}}],
        "rollbacks": [],
    })
}

/// A port that accepts connections for as long as the listener is kept.
pub(crate) async fn port() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

pub(crate) async fn register(client: &mut Client, document: Value) {
    let (result, failed) = client.call("chaos_register_experiment", document).await;
    assert!(!failed, "{result}");
}

#[tokio::test]
async fn a_run_verifies_injects_holds_removes_and_verifies() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("kill-cache", &address, "300ms")).await;
    let (result, failed) =
        client.call("chaos_run_experiment", json!({"experiment_name": "kill-cache"})).await;
    assert!(!failed);
    assert_eq!(result["experiment_name"], "kill-cache");
    for field in ["success", "steady_state_before", "steady_state_after"] {
        assert_eq!(result[field], true, "{result}");
    }
    assert_eq!(result["error"], Value::Null);
    assert!((0.3..5.0).contains(&result["duration_seconds"].as_f64().unwrap()), "{result}");
    let started: jiff::Timestamp = result["started_at"].as_str().unwrap().parse().unwrap();
    assert!(jiff::Timestamp::now().duration_since(started).as_secs() < 10);
    let asked = server.take_asked();
    assert!(
        asked[0].starts_with("inject kill-cache.") && asked[1].starts_with("remove kill-cache."),
        "{asked:?}"
    );
    let (status, _) = client.call("chaos_status", json!({"include_results": true})).await;
    assert_eq!((&status["registered_experiments"], &status["total_runs"]), (&json!(1), &json!(1)));
    assert_eq!(status["success_rate"], 1.0);
    assert_eq!(status["results"][0]["run_id"], result["run_id"]);
    let (status, _) = client.call("chaos_status", json!({})).await;
    assert_eq!(status["results"], json!([]), "results only if asked for");
}

#[tokio::test]
async fn a_method_of_several_activities_is_carried_out_in_order_with_those_in_the_background_beside() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut document = document("several", &address, "10m");
    let process = |name: &str, arguments: Value| json!({"type": "action", "name": name, "provider": {"type": "process", "path": "chaosctl", "arguments": arguments}});
    let inject = |name: &str, lasts: &str| {
        process(name, json!({"inject": "timeout", "--interface": "eth0", "--name": name, "--for": lasts}))
    };
    document["method"] = json!([
        inject("late", "1s"),
        inject("first", "10m"),
        process("end", json!({"remove": "first"})),
        inject("last", "1s")
    ]);
    document["method"][0]["background"] = json!(true);
    document["method"][0]["pauses"] = json!({"before": 0.3});
    document["method"][1]["pauses"] = json!({"after": 0.6});
    register(&mut client, document).await;
    let (plan, _) =
        client.call("chaos_run_experiment", json!({"experiment_name": "several", "dry_run": true})).await;
    assert_eq!(plan["plan"].as_array().unwrap().len(), 3, "{plan}");
    assert_eq!(server.take_asked(), ["plan late", "plan first", "plan last"]);
    let (result, _) = client.call("chaos_run_experiment", json!({"experiment_name": "several"})).await;
    assert_eq!((&result["success"], &result["error"]), (&json!(true), &Value::Null), "{result}");
    let asked = server.take_asked();
    assert_eq!(
        asked,
        ["inject first", "inject late", "remove first", "inject last", "remove last", "remove late"]
    );
    // The pause, and then the second of the last fault.
    assert!((1.6..5.0).contains(&result["duration_seconds"].as_f64().unwrap()), "{result}");
}

#[tokio::test]
async fn a_steady_state_that_is_sampled_continuously_tells_what_was_over_before_the_end() {
    let server = Server::start().await;
    let (listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut document = document("dip", &address, "8s");
    document["runtime"] = json!({"hypothesis": {"strategy": "continuously"}});
    register(&mut client, document).await;
    let mut other = Client::open(&server.socket).await;
    let dip = async {
        until_active(&server).await;
        drop(listener);
        until_seen(&mut other).await;
        // Whoever measures how long an outage lasts has seen it. The hypothesis is sampled less often.
        tokio::time::sleep(3 * INTERVAL).await;
        TcpListener::bind(&address).await.unwrap()
    };
    let run = client.call("chaos_run_experiment", json!({"experiment_name": "dip"}));
    let ((result, _), _listener) = tokio::join!(run, dip);
    assert_eq!(
        (&result["success"], &result["steady_state_after"]),
        (&json!(false), &json!(true)),
        "{result}"
    );
    let error = result["error"].as_str().unwrap();
    assert!(
        error.starts_with("steady state not met during the action: port: ") && !error.contains(';'),
        "{error}"
    );
    assert!(server.active.lock().unwrap().is_empty());
}

fn guarded(name: &str, address: &str, gate: Value) -> Value {
    let mut document = document(name, address, "10m");
    document["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [gate]}]);
    document
}

#[tokio::test]
async fn a_gate_that_is_breached_ends_the_run_at_once_also_without_a_client() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let (guard, guard_address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let gate = json!({"name": "accepts", "interval": "100ms", "alertAfter": "300ms", "tolerance": 0,
        "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", guard_address]}});
    register(&mut client, guarded("gated", &address, gate)).await;
    client
        .send(
            "tools/call",
            json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "gated"}}),
        )
        .await;
    until_active(&server).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(server.active.lock().unwrap().len(), 1, "ended without a breach");
    let begin = std::time::Instant::now();
    drop(guard);
    while !server.active.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(300), "removed after {took:?}");
    let status = until_finished(&mut Client::open(&server.socket).await).await;
    let result = &status["results"][0];
    let error = result["error"].as_str().unwrap();
    assert!(error.starts_with("gate accepts was breached for ") && error.contains("refused"), "{error}");
    // From the end of the time that a breach may last: what was before that is not in it.
    let reaction = result["gate_reaction_seconds"].as_f64().unwrap();
    assert!((0.0..=took.as_secs_f64() - 0.3).contains(&reaction), "{reaction} of {took:?}");
    assert_eq!((&result["success"], &result["steady_state_after"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn a_gate_that_is_breached_already_lets_nothing_be_injected() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let provider = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]});
    let gate = json!({"name": "slow", "op": "gt", "value": 0, "alertAfter": "1m", "provider": provider});
    register(&mut client, guarded("hopeless", &address, gate)).await;
    let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "hopeless"})).await;
    assert!(!failed && result["error"].as_str().unwrap().contains("gate slow: "), "{result}");
    assert_eq!(result["steady_state_before"], false);
    assert!(server.take_asked().is_empty());
}

#[tokio::test]
async fn recovery_may_take_as_long_as_the_document_says() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    for (limit, success) in [("1m", true), ("300ms", false)] {
        let (listener, address) = port().await;
        let mut document = document(limit, &address, "1s");
        document["extensions"] =
            json!([{"name": "chaos-daemon", "abort_when": [{"not_recovered_within": limit}]}]);
        register(&mut client, document).await;
        let outage = async {
            until_active(&server).await;
            drop(listener);
            until(|| server.active.lock().unwrap().is_empty()).await;
            match success {
                true => Some(TcpListener::bind(&address).await.unwrap()),
                false => None,
            }
        };
        let run = client.call("chaos_run_experiment", json!({"experiment_name": limit}));
        let ((result, _), _listener) = tokio::join!(run, outage);
        assert_eq!(result["success"], success, "{result}");
        assert_eq!(result["error"].to_string().contains("not recovered within 300ms"), !success, "{result}");
    }
}

#[tokio::test]
async fn a_run_is_stopped_by_the_name_of_any_of_its_faults_and_removes_all() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut document = document("two", &address, "10m");
    document["method"][0]["background"] = json!(true);
    document["method"] = json!([document["method"][0], document["method"][0]]);
    register(&mut client, document).await;
    client
        .send("tools/call", json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "two"}}))
        .await;
    until(|| server.active.lock().unwrap().len() >= 2).await;
    let mut other = Client::open(&server.socket).await;
    let (status, _) = other.call("chaos_status", json!({})).await;
    let second = status["running"][0]["fault_names"][1].clone();
    let running = &status["running"][0];
    assert_eq!(running["activities"], json!(["cut", "cut"]), "{running}");
    assert!(["method", "lasting"].contains(&running["phase"].as_str().unwrap()), "{running}");
    assert!((1.0..=600.0).contains(&running["remaining_seconds"].as_f64().unwrap()), "{running}");
    assert_eq!(
        (&running["latest"][0]["probe"], &running["latest"][0]["met"]),
        (&json!("port"), &json!(true))
    );
    assert!(!other.call("chaos_stop", json!({"fault_name": second})).await.1);
    let result = client.answer().await.unwrap()["result"]["structuredContent"].clone();
    assert_eq!(result["error"], "stopped before its time");
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn nothing_is_injected_when_the_steady_state_is_not_met_before() {
    let server = Server::start().await;
    let (_socket, address) = closed_port();
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("down", &address, "300ms")).await;
    let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "down"})).await;
    assert!(!failed, "a system that is down is a result, not an error");
    assert_eq!((&result["success"], &result["steady_state_before"]), (&json!(false), &json!(false)));
    assert!(result["error"].as_str().unwrap().contains("refused"), "{result}");
    assert!(server.take_asked().is_empty());
    let (status, _) = client.call("chaos_status", json!({"experiment_name": "down"})).await;
    assert_eq!((&status["total_runs"], &status["success_rate"]), (&json!(1), &json!(0.0)));
    let (status, _) = client.call("chaos_status", json!({"experiment_name": "another"})).await;
    assert_eq!(status["total_runs"], 0);
}

#[tokio::test]
async fn a_failed_rollback_comes_after_a_semicolon() {
    let server = Server::start().await;
    server.residue.lock().unwrap().push("veth left".into());
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut document = document("stuck", &address, "30s");
    document["method"][0]["pauses"] = json!({"after": 0.1});
    register(&mut client, document).await;
    let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "stuck"})).await;
    assert!(!failed);
    assert_eq!(result["success"], false);
    assert!(
        result["error"].as_str().unwrap().contains("; rollback failed: left behind: veth left"),
        "{result}"
    );
}

#[tokio::test]
async fn an_unknown_experiment_is_an_error_with_every_field() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "ghost"})).await;
    assert!(failed);
    assert_eq!(
        (&result["error_code"], &result["experiment_name"]),
        (&json!("EXPERIMENT_NOT_FOUND"), &json!("ghost"))
    );
    assert_eq!((&result["success"], &result["duration_seconds"]), (&json!(false), &json!(0.0)));
    assert!(result["error"].as_str().unwrap().contains("ghost"));
}

#[tokio::test]
async fn a_dry_run_validates_without_the_action_and_is_not_counted() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("dry", &address, "30s")).await;
    let (result, failed) =
        client.call("chaos_run_experiment", json!({"experiment_name": "dry", "dry_run": true})).await;
    assert!(!failed);
    assert_eq!((&result["success"], &result["dry_run"]), (&json!(true), &json!(true)));
    assert_eq!(result["plan"].as_array().unwrap().len(), 1);
    assert_eq!(server.take_asked(), ["plan dry-run"]);
    assert_eq!(client.call("chaos_status", json!({})).await.0["total_runs"], 0);
}

#[tokio::test]
async fn a_run_is_refused_where_its_dry_run_is_and_nothing_is_injected() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut second = document("second", &address, "10m");
    let mut wrong = second["method"][0].clone();
    wrong["name"] = json!("nowhere");
    wrong["provider"]["arguments"]["--interface"] = json!("nosuch0");
    second["method"].as_array_mut().unwrap().push(wrong);
    register(&mut client, second).await;
    let run = json!({"experiment_name": "second"});
    let (dry, _) =
        client.call("chaos_run_experiment", json!({"experiment_name": "second", "dry_run": true})).await;
    server.take_asked();
    let (result, failed) = client.call("chaos_run_experiment", run).await;
    assert!(!failed, "{result}");
    assert_eq!((&result["verdict"], &result["failure_mode"]), (&json!("refused"), &json!("target_vanished")));
    assert_eq!((&result["steady_state_before"], &result["success"]), (&json!(true), &json!(false)));
    assert_eq!(dry["error"], "\"nowhere\": no interface nosuch0");
    let error = result["error"].as_str().unwrap();
    assert_eq!(error, format!("refused before anything was done: {}", dry["error"].as_str().unwrap()));
    assert_eq!(server.take_asked(), [""; 0]);
    let (told, _) = client.call("chaos_get_run", json!({"run_id": result["run_id"]})).await;
    assert!(told["faults"].as_array().unwrap().iter().all(|fault| fault.get("injected").is_none()), "{told}");
}

#[tokio::test]
async fn a_dry_run_says_what_the_run_would_and_has_every_plan_whole() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("first", &address, "10m")).await;
    let mut other = document("second", &address, "10m");
    let good = json!({"type": "action", "name": "shoot", "provider": {"type": "process", "path": "chaosctl",
        "arguments": {"inject": "process-kill", "--unit": "a.service", "--for": "30s"}}});
    other["method"][0]["provider"]["arguments"]["--interface"] = json!("nosuch0");
    other["method"] = json!([good, other["method"][0]]);
    register(&mut client, other).await;
    let dry = json!({"experiment_name": "second", "dry_run": true});
    let (result, failed) = client.call("chaos_run_experiment", dry.clone()).await;
    assert!(!failed, "{result}");
    let plans = result["plans"].as_array().unwrap();
    let [shoot, cut] = plans.as_slice() else { panic!("{result}") };
    assert_eq!((&shoot["action"], &shoot["fault_type"]), (&json!("shoot"), &json!("process_kill")));
    assert_eq!((&shoot["guard"], &shoot["lifetime"]), (&json!("the kernel"), &json!("kernel")));
    assert_eq!((&shoot["duration_seconds"], &shoot["targets"]["matching"]), (&json!(30.0), &json!(20)));
    assert_eq!((shoot["steps"].as_array().unwrap().len(), shoot.get("error")), (1, None), "{shoot}");
    assert_eq!((&cut["action"], &cut["error"]["code"]), (&json!("cut"), &json!("TARGET_NOT_FOUND")), "{cut}");
    assert_eq!(
        (&result["success"], &result["error"]),
        (&json!(false), &json!("\"cut\": no interface nosuch0"))
    );
    assert_eq!(result["digest"].as_str().unwrap().len(), 64);
    // While another one runs the node has no place for it.
    client
        .send(
            "tools/call",
            json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "first"}}),
        )
        .await;
    until_active(&server).await;
    let mut other = Client::open(&server.socket).await;
    let (planned, _) = other.call("chaos_run_experiment", dry).await;
    let (refused, failed) = other.call("chaos_run_experiment", json!({"experiment_name": "second"})).await;
    assert!(failed && refused["error_code"] == "LIMIT_REACHED", "{refused}");
    let (planned, refused) = (planned["error"].as_str().unwrap(), refused["error"].as_str().unwrap());
    assert!(planned.starts_with(refused) && refused.contains("is running \"first\""), "{planned}");
    assert!(!other.call("chaos_stop", json!({})).await.1);
    until_finished(&mut other).await;
}

pub(crate) async fn until_finished(client: &mut Client) -> Value {
    let begin = std::time::Instant::now();
    loop {
        let (status, _) = client.call("chaos_status", json!({"include_results": true})).await;
        if status["running"] == json!([]) {
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "the run does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until it is so.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "not so after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a fault is active.
pub(crate) async fn until_active(server: &Server) {
    until(|| !server.active.lock().unwrap().is_empty()).await;
}

/// Waits until the run that goes on is like this.
pub(crate) async fn until_running(client: &mut Client, is_so: impl Fn(&Value) -> bool) {
    let begin = std::time::Instant::now();
    loop {
        let (status, _) = client.call("chaos_status", json!({})).await;
        if is_so(&status["running"][0]) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "not so after {PATIENCE:?}: {status}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a sample of the run that goes on has seen that the steady state is not met.
pub(crate) async fn until_seen(client: &mut Client) {
    let is_seen = |running: &Value| {
        running["latest"].as_array().is_some_and(|latest| latest.iter().any(|sample| sample["met"] == false))
    };
    until_running(client, is_seen).await;
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_stop_or_leak_a_run() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("orphan", &address, "700ms")).await;
    let params = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "orphan"}});
    client.send("tools/call", params).await;
    let mut other = Client::open(&server.socket).await;
    until_active(&server).await;
    drop(client);
    let (status, _) = other.call("chaos_status", json!({})).await;
    assert_eq!(status["running"][0]["experiment_name"], "orphan");
    let status = until_finished(&mut other).await;
    assert_eq!(status["results"][0]["success"], true, "{status}");
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn stop_ends_a_run_which_removes_its_fault_and_says_so() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("long", &address, "10m")).await;
    let params = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "long"}});
    client.send("tools/call", params).await;
    until_active(&server).await;
    let mut other = Client::open(&server.socket).await;
    let (again, failed) = other.call("chaos_run_experiment", json!({"experiment_name": "long"})).await;
    assert!(failed);
    assert_eq!(again["error_code"], "LIMIT_REACHED");
    assert!(!other.call("chaos_stop", json!({})).await.1);
    let result = client.answer().await.unwrap()["result"]["structuredContent"].clone();
    assert_eq!((&result["success"], &result["error"]), (&json!(false), &json!("stopped before its time")));
    assert_eq!(result["steady_state_before"], true);
    until_finished(&mut other).await;
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_second_run_is_refused_and_told_which_one_goes_on() {
    let beside = |name: &str, address: &str, interface: &str| {
        let mut document = document(name, address, "10m");
        document["method"][0]["provider"]["arguments"]["--interface"] = json!(interface);
        document
    };
    // By default for the node; where several are allowed, for the target.
    for (most_runs, other, conflict) in [
        (1, "eth1", "this node has one run at a time, and is running \"first\", as run "),
        (2, "eth0", "interface eth0 is a target of \"first\", as run "),
    ] {
        let server = Server::start_with(most_runs).await;
        let (_listener, address) = port().await;
        let mut client = Client::open(&server.socket).await;
        for (name, interface) in [("first", "eth0"), ("second", other), ("third", "eth2")] {
            register(&mut client, beside(name, &address, interface)).await;
        }
        let run =
            |name: &str| json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": name}});
        client.send("tools/call", run("first")).await;
        until_active(&server).await;
        let mut other = Client::open(&server.socket).await;
        let (refused, failed) =
            other.call("chaos_run_experiment", json!({"experiment_name": "second"})).await;
        assert!(failed && refused["error_code"] == "LIMIT_REACHED", "{refused}");
        let (status, _) = other.call("chaos_status", json!({})).await;
        let text = format!("{conflict}{}", status["running"][0]["run_id"].as_str().unwrap());
        assert!(refused["error"].as_str().unwrap().starts_with(&text), "{refused}");
        if most_runs == 2 {
            other.send("tools/call", run("third")).await;
            until(|| server.active.lock().unwrap().len() >= 2).await;
        }
        let mut last = Client::open(&server.socket).await;
        assert!(!last.call("chaos_stop", json!({})).await.1);
        until_finished(&mut last).await;
    }
}

#[tokio::test]
async fn a_fault_that_ends_before_its_time_is_told() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("early", &address, "8s")).await;
    let params = json!({"name": "chaos_run_experiment", "arguments": {"experiment_name": "early"}});
    client.send("tools/call", params).await;
    until_active(&server).await;
    server.active.lock().unwrap().clear();
    let result = client.answer().await.unwrap()["result"]["structuredContent"].clone();
    assert_eq!(result["success"], false);
    assert!(result["error"].as_str().unwrap().contains("ended before its time"), "{result}");
}

#[tokio::test]
async fn what_is_not_supported_in_a_document_is_refused_and_nothing_is_registered() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let mut bad = document("x", "127.0.0.1:1", "1s");
    bad["method"][0]["provider"] = json!({"type": "process", "path": "/bin/rm", "arguments": ["-rf", "/"]});
    let (result, failed) = client.call("chaos_register_experiment", bad).await;
    assert!(failed);
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("error"), &json!("INVALID_PARAMETER")));
    assert!(result["error"]["message"].as_str().unwrap().starts_with("method[0].provider.path"));
    assert_eq!(client.call("chaos_status", json!({})).await.0["registered_experiments"], 0);
}

#[tokio::test]
async fn a_run_longer_than_any_call_goes_on_and_is_reported_later() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    let mut document = document("long", &address, "10m");
    // No outage: a port that nobody serves does not take the samples of ten minutes.
    document["method"][0]["provider"]["arguments"]["inject"] = json!("timeout");
    register(&mut client, document).await;
    client.patience = Duration::from_secs(3600);
    // From here on the clock runs ahead whenever nothing happens.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let (result, failed) = client.call("chaos_run_experiment", json!({"experiment_name": "long"})).await;
    assert!(!failed);
    assert_eq!(start.elapsed().as_secs(), 44);
    assert_eq!(result["error"], "still running: chaos_get_run with wait_seconds waits for its end");
    assert_eq!((&result["success"], &result["steady_state_before"]), (&json!(false), &json!(true)));
    let (status, _) = client.call("chaos_status", json!({})).await;
    assert_eq!(status["running"][0]["run_id"], result["run_id"]);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (status, _) = client.call("chaos_status", json!({"include_results": true})).await;
    assert_eq!(status["running"], json!([]));
    assert_eq!(
        (&status["results"][0]["run_id"], &status["results"][0]["success"]),
        (&result["run_id"], &json!(true))
    );
    assert!(server.active.lock().unwrap().is_empty());
}
