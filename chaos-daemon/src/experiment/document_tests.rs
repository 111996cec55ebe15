//! Tests of the experiment document, with the real grammar of `chaosctl`.

use serde_json::json;

use super::*;
use crate::cli::native as grammar;
use crate::spec::FaultType;

fn document() -> Value {
    json!({
        "title": "payment survives a slow database",
        "steady-state-hypothesis": {
            "title": "payment healthy",
            "probes": [
                {"type": "probe", "name": "health", "tolerance": 200,
                 "provider": {"type": "http", "url": "http://127.0.0.1:8080/health", "timeout": 2}},
                {"type": "probe", "name": "database", "tolerance": true,
                 "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:5432"]}},
            ],
        },
        "method": [
            {"type": "action", "name": "slow", "provider": {"type": "process", "path": "chaosctl", "arguments": {
                "inject": "latency", "--interface": "eth0", "--cidr": ["10.0.0.0/8", "fd00::/8"],
                "--port": 5432, "--delay": "300ms", "--for": "3m"}}},
        ],
        "rollbacks": [],
    })
}

fn parse(document: Value) -> Result<Experiment, SpecError> {
    let Value::Object(document) = document else { panic!("not an object") };
    Experiment::parse(&document, grammar)
}

#[test]
fn a_document_means_what_the_command_line_in_it_means() {
    let experiment = parse(document()).unwrap();
    assert_eq!(experiment.name, "payment survives a slow database");
    assert_eq!(experiment.hold, Duration::from_secs(180));
    assert_eq!(experiment.fault.fault_type, FaultType::Latency);
    assert_eq!(experiment.fault.params["delay_ms"], json!(300.0));
    assert_eq!(experiment.fault.target.cidrs, ["10.0.0.0/8", "fd00::/8"]);
    assert_eq!(experiment.conditions.len(), 2);
    assert_eq!(
        experiment.conditions[0].probe.check,
        Check::Http { url: "http://127.0.0.1:8080/health".into(), status: vec![200] }
    );
    assert!(experiment.conditions[1].expected);
}

#[test]
fn a_list_of_arguments_means_the_same_as_a_mapping() {
    let mut list = document();
    list["method"][0]["provider"]["arguments"] = json!([
        "inject",
        "latency",
        "--interface",
        "eth0",
        "--cidr",
        "10.0.0.0/8",
        "--cidr",
        "fd00::/8",
        "--port",
        5432,
        "--delay",
        "300ms",
        "--for",
        "3m"
    ]);
    assert_eq!(parse(list).unwrap(), parse(document()).unwrap());
    let mut mapping = document();
    mapping["steady-state-hypothesis"]["probes"][1]["provider"]["arguments"] =
        json!({"probe": "tcp", "127.0.0.1:5432": ""});
    assert_eq!(parse(mapping).unwrap(), parse(document()).unwrap());
}

#[test]
fn a_pause_keeps_the_fault_shorter_than_it_would_last_but_not_longer() {
    let mut shorter = document();
    shorter["method"][0]["pauses"] = json!({"after": 1.5});
    assert_eq!(parse(shorter).unwrap().hold, Duration::from_millis(1500));
    let mut longer = document();
    longer["method"][0]["pauses"] = json!({"after": 181});
    assert_eq!(parse(longer).unwrap_err().field, "method[0].pauses.after");
}

#[test]
fn a_rollback_may_only_say_what_happens_anyway() {
    let removal = |name| {
        json!([{"type": "action", "name": "undo",
                "provider": {"type": "process", "path": "chaosctl", "arguments": {"remove": name}}}])
    };
    let mut named = document();
    named["method"][0]["provider"]["arguments"]["--name"] = json!("slow-db");
    named["rollbacks"] = removal("slow-db");
    assert_eq!(parse(named.clone()).unwrap().fault_name, Some(FaultName::new("slow-db").unwrap()));
    named["rollbacks"] = removal("another");
    assert_eq!(parse(named).unwrap_err().field, "rollbacks[0].provider.arguments");
}

#[test]
fn whatever_is_not_supported_is_refused_by_name() {
    let provider = |provider: Value| json!([{"type": "action", "name": "a", "provider": provider}]);
    let chaosctl =
        |arguments: Value| provider(json!({"type": "process", "path": "chaosctl", "arguments": arguments}));
    let valid = document()["method"][0].clone();
    let cases = [
        ("method", json!([]), "method"),
        ("method", json!([valid, valid]), "method"),
        (
            "method",
            provider(json!({"type": "python", "module": "m", "func": "f"})),
            "method[0].provider.type",
        ),
        (
            "method",
            provider(json!({"type": "process", "path": "/bin/sh", "arguments": []})),
            "method[0].provider.path",
        ),
        ("method", chaosctl(json!(["stop", "--all"])), "method[0].provider.arguments"),
        ("method", chaosctl(json!({"inject": "meteor"})), "method[0].provider.arguments"),
        ("method", chaosctl(json!({"inject": "latency"})), "method[0].provider.arguments"),
        (
            "method",
            chaosctl(json!({"inject": "latency", "--interface": "e", "--probability": "0.5"})),
            "method[0].provider.arguments",
        ),
        (
            "method",
            chaosctl(json!({"inject": "latency", "--interface": "e", "--force": "x"})),
            "method[0].provider.arguments",
        ),
        (
            "method",
            json!([{"type": "action", "name": "a", "background": true, "provider": {}}]),
            "method[0].background",
        ),
        ("configuration", json!({"a": 1}), "configuration"),
        ("controls", json!([{"name": "c"}]), "controls"),
        ("surprise", json!(1), "surprise"),
        ("title", json!(""), "title"),
        ("title", json!(null), "title"),
        ("steady-state-hypothesis", json!(null), "steady-state-hypothesis"),
        ("steady-state-hypothesis", json!({"title": "t", "probes": []}), "steady-state-hypothesis.probes"),
    ];
    for (key, value, field) in cases {
        let mut changed = document();
        changed[key] = value.clone();
        let error = parse(changed).expect_err(&format!("{key} = {value} was accepted"));
        assert_eq!(error.field, field, "{error}");
    }
}

#[test]
fn a_probe_that_is_not_understood_is_refused_by_name() {
    for (key, value, field) in [
        ("tolerance", json!({"type": "range", "range": [0, 5]}), "tolerance"),
        ("tolerance", json!(null), "tolerance"),
        ("tolerance", json!(99), "tolerance"),
        ("type", json!("action"), "type"),
        ("provider", json!({"type": "http", "url": "https://x"}), "provider.url"),
        ("provider", json!({"type": "http", "url": "http://x", "headers": {}}), "provider.headers"),
        ("provider", json!({"type": "http", "url": "http://x", "timeout": 31}), "provider.timeout"),
        ("provider", json!({"type": "process", "path": "curl", "arguments": []}), "provider.path"),
        (
            "provider",
            json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "x"]}),
            "provider.arguments",
        ),
        ("provider", json!({"type": "python"}), "provider.type"),
    ] {
        let mut changed = document();
        changed["steady-state-hypothesis"]["probes"][0][key] = value.clone();
        let error = parse(changed).expect_err(&format!("{key} = {value} was accepted"));
        assert_eq!(error.field, format!("steady-state-hypothesis.probes[0].{field}"), "{error}");
    }
}
