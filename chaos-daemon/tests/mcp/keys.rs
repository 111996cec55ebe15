//! Calls that are made again with the same idempotency key: what has begun is not begun twice.

use std::time::Duration;

use serde_json::{Value, json};

use crate::chaosctl::chaosctl;
use crate::client::Client;
use crate::double::Server;
use crate::experiments::{document, port, register, until_finished};

fn injections(server: &Server) -> usize {
    server.take_asked().iter().filter(|asked| asked.starts_with("inject ")).count()
}

async fn run(client: &mut Client, name: &str, key: &str, wait: u64) -> Value {
    let run = json!({"experiment_name": name, "idempotency_key": key, "wait_seconds": wait});
    let (result, failed) = client.call("chaos_run_experiment", run).await;
    assert!(!failed, "{result}");
    result
}

#[tokio::test]
async fn a_key_is_answered_with_the_run_that_it_has_begun_while_that_goes_on_and_after_its_end() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("once", &address, "3s")).await;
    let begun = run(&mut client, "once", "a-1", 0).await;
    assert_eq!((&begun["repeated"], begun.get("verdict")), (&json!(false), None), "{begun}");
    // On another connection, too: the key is the user's.
    let mut other = Client::modern(&server.socket).await;
    let again = run(&mut other, "once", "a-1", 0).await;
    assert_eq!((&again["repeated"], again.get("verdict")), (&json!(true), None), "{again}");
    assert_eq!(again["run_id"], begun["run_id"]);
    let (refused, failed) = other.call("chaos_run_experiment", json!({"experiment_name": "once"})).await;
    assert!(
        failed && refused["error_code"] == "LIMIT_REACHED",
        "without the key it is a second run: {refused}"
    );
    let ended = run(&mut other, "once", "a-1", 44).await;
    assert_eq!((&ended["verdict"], &ended["run_id"]), (&json!("held"), &begun["run_id"]), "{ended}");
    let late = run(&mut client, "once", "a-1", 0).await;
    assert_eq!((&late["verdict"], &late["run_id"]), (&json!("held"), &begun["run_id"]), "{late}");
    assert_eq!(late["repeated"], true, "{late}");
    assert_eq!(injections(&server), 1);
    let next = run(&mut client, "once", "a-2", 44).await;
    assert_eq!((&next["repeated"], &next["verdict"]), (&json!(false), &json!("held")), "{next}");
    assert_ne!(next["run_id"], begun["run_id"]);
    assert_eq!(injections(&server), 1);
}

#[tokio::test]
async fn of_calls_at_the_same_time_with_one_key_one_begins_something() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let slow = json!({"fault_type": "timeout", "probability": 1, "target": {"interface": "slow0"}});
    client.fault("f", "register", slow).await;
    let inject = json!({"name": "chaos_inject_fault",
        "arguments": {"fault_name": "f", "action": "inject", "idempotency_key": "k"}});
    let mut callers = Vec::new();
    for _ in 0..4 {
        let mut caller = Client::open(&server.socket).await;
        caller.send("tools/call", inject.clone()).await;
        callers.push(caller);
    }
    let mut repeated = Vec::new();
    for caller in &mut callers {
        let answer = caller.answer().await.unwrap()["result"]["structuredContent"].clone();
        assert_eq!(
            (&answer["status"], &answer["was_triggered"]),
            (&json!("injected"), &json!(true)),
            "{answer}"
        );
        assert_eq!(answer["lifetime"], "kernel", "{answer}");
        repeated.push(answer["repeated"].as_bool().unwrap());
    }
    repeated.sort_unstable();
    assert_eq!(repeated, [false, true, true, true]);
    assert_eq!(injections(&server), 1);
    // A fault that has ended is not injected again by its key.
    assert!(!client.call("chaos_stop", json!({"fault_name": "f"})).await.1);
    let again = client.fault("f", "inject", json!({"idempotency_key": "k"})).await;
    assert_eq!((&again["repeated"], again.get("state")), (&json!(true), None), "{again}");
    assert!(again["message"].as_str().unwrap().starts_with("nothing was done now"), "{again}");
    assert_eq!(injections(&server), 0);
    assert!(server.active.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_roll_that_said_no_is_not_made_again_by_its_key() {
    let server = Server::start().await;
    let mut client = Client::open(&server.socket).await;
    let never = json!({"fault_type": "timeout", "probability": 0, "target": {"interface": "eth0"}});
    client.fault("f", "register", never.clone()).await;
    let first = client.fault("f", "inject", json!({"idempotency_key": "k"})).await;
    assert_eq!((&first["was_triggered"], &first["repeated"]), (&json!(false), &json!(false)), "{first}");
    let mut always = never;
    always["probability"] = json!(1);
    client.fault("f", "register", always).await;
    let again = client.fault("f", "inject", json!({"idempotency_key": "k"})).await;
    assert_eq!((&again["was_triggered"], &again["repeated"]), (&json!(false), &json!(true)), "{again}");
    assert_eq!(injections(&server), 0);
}

#[tokio::test]
async fn a_key_that_has_begun_something_else_is_refused_by_name_and_nothing_is_begun() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    for name in ["a", "b"] {
        register(&mut client, document(name, &address, "300ms")).await;
    }
    // What is refused has not used its key.
    let unknown = json!({"experiment_name": "nosuch", "idempotency_key": "k"});
    assert_eq!(client.call("chaos_run_experiment", unknown).await.0["error_code"], "EXPERIMENT_NOT_FOUND");
    run(&mut client, "a", "k", 44).await;
    server.take_asked();
    let other = json!({"experiment_name": "b", "idempotency_key": "k"});
    let (refused, failed) = client.call("chaos_run_experiment", other).await;
    assert!(failed && refused["error_code"] == "IDEMPOTENCY_KEY_REUSED", "{refused}");
    let message = refused["error"].as_str().unwrap();
    assert!(message.contains("for experiment \"a\", and now for experiment \"b\""), "{message}");
    let staged = json!({"experiment_name": "a", "stage": 25, "idempotency_key": "k"});
    let (refused, failed) = client.call("chaos_run_experiment", staged).await;
    assert!(failed && refused["error_code"] == "IDEMPOTENCY_KEY_REUSED", "{refused}");
    assert_eq!(server.take_asked(), Vec::<String>::new());
    let (runs, _) = client.call("chaos_list_runs", json!({})).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
}

#[tokio::test]
async fn a_key_that_makes_no_sense_is_refused_by_name() {
    let server = Server::start().await;
    let (_listener, address) = port().await;
    let mut client = Client::open(&server.socket).await;
    register(&mut client, document("idle", &address, "10m")).await;
    for key in [json!(""), json!("a b"), json!("k".repeat(129)), json!(7)] {
        let run = json!({"experiment_name": "idle", "idempotency_key": key});
        let (refused, failed) = client.call("chaos_run_experiment", run).await;
        assert!(failed && refused["error_code"] == "INVALID_PARAMETER", "{refused}");
        assert!(refused["error"].as_str().unwrap().starts_with("idempotency_key: "), "{refused}");
    }
    let dry = json!({"experiment_name": "idle", "dry_run": true, "idempotency_key": "k"});
    let (refused, failed) = client.call("chaos_run_experiment", dry).await;
    assert!(
        failed && refused["error"].as_str().unwrap().starts_with("idempotency_key: a dry run "),
        "{refused}"
    );
    let hung =
        json!({"fault_name": "f", "action": "register", "fault_type": "timeout", "idempotency_key": "k"});
    for arguments in [hung, json!({"fault_name": "f", "action": "remove", "idempotency_key": "k"})] {
        let (refused, failed) = client.call("chaos_inject_fault", arguments).await;
        assert!(failed, "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("idempotency_key: belongs to action \"inject\""), "{message}");
    }
    assert!(server.take_asked().is_empty());
}

#[tokio::test]
async fn an_operator_repeats_a_command_and_follows_the_run_that_goes_on() {
    let server = Server::start().await;
    let socket = &server.socket;
    let (_listener, address) = port().await;
    let mut client = Client::open(socket).await;
    register(&mut client, document("nightly", &address, "10m")).await;
    let words = ["--json", "run", "nightly", "--idempotency-key", "job-7", "--detach"];
    let [first, again] = [chaosctl(socket, &words).await, chaosctl(socket, &words).await];
    assert_eq!((first.code, again.code), (0, 0), "{}{}", first.stderr, again.stderr);
    let handle = |text: &str| serde_json::from_str::<Value>(text).unwrap()["run_id"].clone();
    assert_eq!(handle(&first.stdout), handle(&again.stdout));
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!client.call("chaos_stop", json!({})).await.1);
    };
    let (followed, ()) =
        tokio::join!(chaosctl(socket, &["--json", "run", "nightly", "--idempotency-key", "job-7"]), stop);
    assert_eq!((followed.code, handle(&followed.stdout)), (5, handle(&first.stdout)), "{}", followed.stderr);
    until_finished(&mut client).await;
    assert_eq!(injections(&server), 1);
    let dry = chaosctl(socket, &["run", "nightly", "--dry-run", "--idempotency-key", "job-7"]).await;
    assert_eq!(dry.code, 2, "{}", dry.stderr);
}
