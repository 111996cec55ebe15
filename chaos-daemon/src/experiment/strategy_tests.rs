//! Tests of what a document says of strategies.

use serde_json::json;

use super::tests::{document, parse};
use super::*;

fn under(strategy: &str) -> Value {
    let mut told = document();
    told["runtime"] = json!({"hypothesis": {"strategy": strategy}});
    told
}

#[test]
fn a_strategy_says_when_the_steady_state_is_to_be_verified() {
    for (strategy, before, during, after) in [
        ("default", true, false, true),
        ("before-method-only", true, false, false),
        ("after-method-only", false, false, true),
        ("during-method-only", false, true, false),
        ("continuously", true, true, true),
    ] {
        let asked = parse(under(strategy)).unwrap().asked();
        assert_eq!(asked, Stages { before, during, after }, "{strategy}");
    }
    assert_eq!(parse(document()).unwrap().asked(), parse(under("default")).unwrap().asked());
}

#[test]
fn what_could_not_be_known_under_a_strategy_is_refused_by_name() {
    let with = |strategy: &str, extension: Value| {
        let mut told = under(strategy);
        told["method"][0]["provider"]["arguments"] = json!([
            "inject",
            "network-partition",
            "--interface",
            "eth0",
            "--cidr",
            "10.0.0.0/8",
            "--for",
            "30s"
        ]);
        told["extensions"] = json!([extension]);
        parse(told)
    };
    let rto = json!({"name": EXTENSION, "rto": "10s"});
    let recovery = json!({"name": EXTENSION, "abort_when": [{"not_recovered_within": "1m"}]});
    let stages = json!({"name": EXTENSION, "blast_radius": {}});
    for (strategy, extension, named) in [
        ("before-method-only", &rto, Some("rto")),
        ("during-method-only", &rto, Some("rto")),
        ("after-method-only", &rto, None),
        ("before-method-only", &recovery, Some("not_recovered_within")),
        ("during-method-only", &recovery, Some("not_recovered_within")),
        ("continuously", &recovery, None),
        ("before-method-only", &stages, Some("blast_radius")),
        ("during-method-only", &stages, None),
        ("after-method-only", &stages, None),
    ] {
        let refused = with(strategy, extension.clone()).err().map(|error| error.problem);
        match named {
            Some(part) => {
                let problem = refused.unwrap_or_default();
                assert!(problem.starts_with(&format!("there is {part}, and")), "{strategy}: {problem}");
            }
            None => assert_eq!(refused, None, "{strategy}"),
        }
    }
}

#[test]
fn a_time_to_recover_that_is_over_before_the_first_sample_is_refused() {
    let with = |limit: &str| {
        let mut told = document();
        let probe = &told["steady-state-hypothesis"]["probes"][0]["name"];
        let probes = json!([{"name": probe, "initialDelay": "15s"}]);
        told["extensions"] =
            json!([{"name": EXTENSION, "probes": probes, "abort_when": [{"not_recovered_within": limit}]}]);
        parse(told)
    };
    assert!(with("16s").is_ok());
    for limit in ["10s", "15s"] {
        let problem = with(limit).unwrap_err().problem;
        assert!(problem.contains("initialDelay of 15s: give it more time"), "{limit}: {problem}");
    }
}

#[test]
fn a_strategy_that_is_not_supported_is_refused_with_those_that_are_and_why() {
    let problem = parse(under("skip")).unwrap_err().problem;
    assert!(problem.contains("during-method-only, continuously: without any nothing"), "{problem}");
    let mut kept = document();
    kept["runtime"] = json!({"rollbacks": {"strategy": "never"}});
    let problem = parse(kept).unwrap_err().problem;
    assert_eq!(
        problem,
        "\"never\" is not one of default, always: every fault is removed, whatever becomes of the run"
    );
}
