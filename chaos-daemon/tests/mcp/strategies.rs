//! Strategies of the hypothesis through the tools: when the steady state is verified, and what the verdict says of it.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::chaosctl::chaosctl;
use crate::client::{Client, closed_port};
use crate::double::Server;
use crate::experiments::{document, port, register};
use crate::sampling::run;

/// A document whose steady state is verified as `strategy` says.
fn under(strategy: &str, address: &str) -> Value {
    let mut told = document(strategy, address, "300ms");
    told["runtime"] = json!({"hypothesis": {"strategy": strategy}});
    told
}

#[tokio::test]
async fn the_steady_state_is_sampled_when_the_strategy_says_and_the_verdict_claims_no_more() {
    let server = Server::start().await;
    let (_listener, open) = port().await;
    let mut client = Client::open(&server.socket).await;
    for (strategy, verdict, verified) in [
        ("default", "held", json!(["before", "after"])),
        ("before-method-only", "unverified", json!(["before"])),
        ("after-method-only", "held", json!(["after"])),
        ("during-method-only", "held", json!(["during"])),
        ("continuously", "held", json!(["before", "during", "after"])),
    ] {
        register(&mut client, under(strategy, &open)).await;
        let (result, score, samples) = run(&mut client, strategy).await;
        assert_eq!((&result["verdict"], &result["verified"]), (&json!(verdict), &verified), "{result}");
        for stage in ["before", "during", "after"] {
            let asked = verified.as_array().unwrap().contains(&json!(stage));
            let of = |sample: &&Value| sample["role"] == "steady_state" && sample["stage"] == stage;
            assert_eq!(samples.iter().any(|sample| of(&sample)), asked, "{strategy} {stage}: {samples:?}");
            if stage != "during" {
                assert_eq!(result[format!("steady_state_{stage}")], asked, "{strategy}: {result}");
            }
        }
        let held = verdict == "held";
        assert_eq!(result["success"], held, "{result}");
        let unasked = "unverified: the steady state is to be verified neither during the method nor after";
        assert_eq!(result["error"], if held { Value::Null } else { json!(unasked) }, "{result}");
        assert_eq!(result["failure_mode"], if held { Value::Null } else { json!("not_verified") });
        assert_eq!(score, if held { json!(100) } else { Value::Null }, "{strategy}");
        assert!(server.active.lock().unwrap().is_empty());
    }
    let ended = chaosctl(&server.socket, &["run", "before-method-only"]).await;
    assert_eq!(ended.code, 7, "{}", ended.stdout);
    assert!(ended.stdout.contains("before: met, after: not verified"), "{}", ended.stdout);
}

#[tokio::test]
async fn a_steady_state_that_is_not_met_deviates_or_refuses_only_where_it_is_asked_for() {
    let server = Server::start().await;
    let (_closed, closed) = closed_port();
    let mut client = Client::open(&server.socket).await;
    for (strategy, verdict, failure) in [
        ("before-method-only", "refused", "not_steady_before"),
        ("after-method-only", "deviated", "not_steady_after"),
        ("during-method-only", "deviated", "not_steady_during"),
        ("continuously", "refused", "not_steady_before"),
    ] {
        register(&mut client, under(strategy, &closed)).await;
        server.take_asked();
        let (result, ..) = run(&mut client, strategy).await;
        assert_eq!(
            (&result["verdict"], &result["failure_mode"]),
            (&json!(verdict), &json!(failure)),
            "{result}"
        );
        let asked = server.take_asked();
        let injected = asked.iter().any(|asked| asked.starts_with("inject"));
        let removed = asked.iter().any(|asked| asked.starts_with("remove"));
        assert_eq!((injected, removed), (verdict != "refused", verdict != "refused"), "{asked:?}");
    }
    let (dry, _) = client
        .call("chaos_run_experiment", json!({"experiment_name": "after-method-only", "dry_run": true}))
        .await;
    assert_eq!((&dry["success"], &dry["steady_state_before"]), (&json!(true), &json!(false)), "{dry}");
}

#[tokio::test]
async fn a_question_of_the_method_that_is_answered_after_it_counts_and_keeps_no_fault() {
    let server = Server::start().await;
    // Takes connections, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut told = under("during-method-only", "127.0.0.1:1");
    told["method"][0]["provider"]["arguments"]["inject"] = json!("timeout");
    told["steady-state-hypothesis"]["probes"][0] = json!({"type": "probe", "name": "web", "tolerance": 200,
        "provider": {"type": "http", "url": format!("http://{}/", listener.local_addr().unwrap()), "timeout": 2}});
    let mut client = Client::open(&server.socket).await;
    register(&mut client, told).await;
    let (result, _, samples) = run(&mut client, "during-method-only").await;
    assert_eq!(
        (&result["verdict"], &result["failure_mode"]),
        (&json!("deviated"), &json!("not_steady_during"))
    );
    assert_eq!(samples.len(), 1, "{samples:?}");
    let (told, _) = client.call("chaos_get_run", json!({"run_id": result["run_id"]})).await;
    let events = told["events"].as_array().unwrap();
    let removed = events.iter().find(|event| event["kind"] == "removed").unwrap();
    assert!(removed["at_seconds"].as_f64() < samples[0]["at_seconds"].as_f64(), "{told}");
}

#[tokio::test]
async fn a_method_shorter_than_an_interval_is_sampled_and_one_that_is_over_waits_for_no_further_try() {
    let server = Server::start().await;
    let (_listener, open) = port().await;
    let (_closed, closed) = closed_port();
    let mut client = Client::open(&server.socket).await;
    let sampled = |strategy: &str, address: &str, rule: Value| {
        let mut told = under(strategy, address);
        told["extensions"] = json!([{"name": "chaos-daemon", "probes": [rule]}]);
        told
    };
    for (strategy, address, rule, verdict) in [
        ("continuously", &open, json!({"name": "port", "interval": "60s"}), "held"),
        ("during-method-only", &open, json!({"name": "port", "mode": "OnChaos", "interval": "60s"}), "held"),
        ("during-method-only", &closed, json!({"name": "port", "retry": 10, "interval": "60s"}), "deviated"),
        ("during-method-only", &open, json!({"name": "port", "initialDelay": "60s"}), "unverified"),
    ] {
        register(&mut client, sampled(strategy, address, rule)).await;
        let (result, _, samples) = run(&mut client, strategy).await;
        assert_eq!(result["verdict"], verdict, "{result}");
        assert!(result["duration_seconds"].as_f64() < Some(30.0), "{result}");
        let during =
            samples.iter().filter(|sample| sample["stage"] == "during" && sample["role"] == "steady_state");
        assert_eq!(during.count(), usize::from(verdict != "unverified"), "{samples:?}");
        let said = result["error"].as_str().unwrap_or_default();
        assert_eq!(said.contains("was not sampled"), verdict == "unverified", "{result}");
    }
}
