//! Tests of the probes in documents: where they may stand, and what is refused of them.

use serde_json::json;

use super::tests::{document, parse};
use super::*;
use crate::experiment::gate::{Op, Rule};

/// A document whose second probe and only gate run this.
fn probing(arguments: &Value) -> Value {
    let provider = json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let mut document = document();
    document["steady-state-hypothesis"]["probes"][1]["provider"] = provider.clone();
    document["extensions"] = json!([{"name": "chaos-daemon",
        "rollback_on": [{"provider": provider, "op": "gt", "value": 1}]}]);
    document
}

#[test]
fn every_probe_stands_in_steady_state_and_gate_and_in_the_schema_as_an_example() {
    let schema = crate::experiment::schema::document();
    let probes = &schema["properties"]["steady-state-hypothesis"]["properties"]["probes"];
    let examples =
        &probes["items"]["properties"]["provider"]["anyOf"][1]["properties"]["arguments"]["examples"];
    let examples = examples.as_array().unwrap();
    for kind in crate::probe::KINDS.iter().filter(|kind| **kind != "http") {
        assert!(examples.iter().any(|example| example[1] == *kind), "no example of {kind}");
    }
    for example in examples {
        let experiment = parse(probing(example)).unwrap_or_else(|error| panic!("{example}: {error}"));
        let gate = &experiment.guardrails.gates[0].probe;
        assert_eq!(experiment.conditions[1].probe.check, gate.check, "{example}");
    }
}

#[test]
fn a_probe_that_makes_no_sense_is_named_with_its_place() {
    for (arguments, names) in [
        (json!(["probe", "host", "memory"]), "memory_used_percent"),
        (json!(["probe", "host", "disk_used_percent"]), "--path"),
        (json!(["probe", "host", "disk_used_percent", "--path", "var"]), "absolute"),
        (json!(["probe", "host", "load1", "--path", "/"]), "--path"),
        (json!(["probe", "host", "load1", "--window", "1s"]), "--window"),
        (json!(["probe", "host", "cpu_busy_percent", "--window", "1m"]), "100ms to 15s"),
        (json!(["probe", "host", "cpu_busy_percent", "--window", "2s"]), "--timeout"),
        (json!(["probe", "pressure", "disk"]), "possible values: cpu, memory, io, irq"),
        (json!(["probe", "pressure"]), "<RESOURCE>"),
        (json!(["probe", "pressure", "irq", "--share", "some"]), "--share"),
        (json!(["probe", "sockets", "tcp", "--state", "open"]), "open"),
        (json!(["probe", "sockets", "tcp", "--sum", "used"]), "--sum"),
        (json!(["probe", "dns", "a..b"]), "NAME"),
        (json!(["probe", "dns", "a", "--server", "nowhere"]), "--server"),
        (json!(["probe", "mcp", "my-server --stdio"]), "stdio"),
        (json!(["probe", "mcp", "http://127.0.0.1/", "--arguments", "{}"]), "--call"),
        (json!(["probe", "latency", "--samples", 5]), "--http"),
        (json!(["probe", "latency", "--tcp", "127.0.0.1:1", "--samples", 0]), "--samples"),
        (json!(["probe", "prometheus", "http://127.0.0.1:9090", "sum(up)", "--stale", "30s"]), "--stale"),
        (json!(["probe", "alert", "http://127.0.0.1:9093", "--label", "PoolUsedUp"]), "--label"),
        (json!(["probe", "alert"]), "or --webhook"),
        (json!(["probe", "alert", "http://127.0.0.1:9093", "--webhook"]), "--webhook"),
        (json!(["probe", "alert", "--webhook", "--receiver", "("]), "--receiver"),
        (json!(["probe", "log", "--unit", "a.service", "--match", "("]), "--match"),
        (json!(["probe", "log", "--file", "a.log", "--match", "x"]), "--file"),
        (json!(["probe", "log", "--match", "x"]), "--unit"),
        (json!(["probe", "log", "--unit", "a.service", "--match", "x", "--last", "1MiB"]), "--last"),
        (json!(["probe", "log", "--file", "/a.log", "--match", "x", "--last", "1 acre"]), "1 acre"),
        (json!(["probe", "tcp", "127.0.0.1:1", "--min", 2, "--max", 1]), "--max"),
    ] {
        let error = parse(probing(&arguments)).unwrap_err();
        assert!(error.field.ends_with(".provider.arguments"), "{arguments}: {error}");
        assert!(error.problem.contains(names), "{arguments}: {error}");
    }
}

#[test]
fn numbers_of_the_host_end_a_run_or_roll_it_back() {
    let host = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let memory = json!({"name": "memory", "op": "gt", "value": 80,
        "provider": host(json!(["probe", "host", "memory_used_percent"]))});
    let cpu = json!({"name": "cpu", "op": "gt", "value": 90, "alertAfter": "10s", "interval": "4s",
        "provider": host(json!({"probe": "host", "cpu_busy_percent": "", "--window": "1500ms"}))});
    let disk = json!({"name": "disk", "op": "lt", "value": 1e9,
        "provider": host(json!(["probe", "host", "disk_available_bytes", "--path", "/var"]))});
    let mut guarded = document();
    guarded["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [disk],
        "abort_when": [memory, cpu, {"not_recovered_within": "5m"}]}]);
    let gates = parse(guarded.clone()).unwrap().guardrails.gates;
    let checks: Vec<_> = gates.iter().map(|gate| gate.probe.check.to_string()).collect();
    assert_eq!(
        checks,
        ["host disk_available_bytes of /var", "host memory_used_percent", "host cpu_busy_percent over 1.5s"]
    );
    assert_eq!(gates[1].rule, Rule::Compare { op: Op::Gt, value: 80.0, lookback: Duration::ZERO });
    // What a sample may take is the interval: half of it has to do for the window.
    for interval in [json!("2s"), json!(null)] {
        guarded["extensions"][0]["abort_when"][1]["interval"] = interval;
        let error = parse(guarded.clone()).unwrap_err();
        assert_eq!(error.field, "extensions[0].abort_when[1].interval");
        assert!(error.problem.contains("give 3s at least"), "{error}");
    }
    guarded["extensions"][0]["abort_when"][1]["provider"]["timeout"] = json!(1);
    let error = parse(guarded).unwrap_err();
    assert_eq!(error.field, "extensions[0].abort_when[1].provider.timeout");
}

#[test]
fn a_name_that_would_write_to_the_terminal_of_who_reads_it_is_refused() {
    for field in
        ["steady-state-hypothesis.probes[0].name", "method[0].name", "extensions[0].rollback_on[0].name"]
    {
        let mut named = probing(&json!(["probe", "pressure", "cpu"]));
        let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
        match named.pointer_mut(&pointer) {
            Some(name) => *name = json!("cut\u{1b}]0;"),
            None => named["extensions"][0]["rollback_on"][0]["name"] = json!("cut\u{1b}]0;"),
        }
        let error = parse(named).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}

#[test]
fn a_gate_that_nothing_or_everything_breaches_is_refused_with_the_reason() {
    let http = || json!({"type": "http", "url": "http://127.0.0.1/"});
    let probe = |words: &[&str]| json!({"type": "process", "path": "chaosctl", "arguments": words});
    let gated = |gate: Value| {
        let mut document = document();
        document["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [gate]}]);
        parse(document).map(drop)
    };
    for (gate, field, why) in [
        // What is late is no data, which is ignored: the gate would be blind for ever.
        (
            json!({"provider": http(), "op": "gt", "value": 500, "interval": "200ms", "noData": "ignore"}),
            "value",
            "a sample may take 200ms",
        ),
        (json!({"provider": http(), "op": "gte", "value": 0}), "value", "everything breaches"),
        (
            json!({"provider": probe(&["probe", "host", "load1"]), "op": "lt", "value": 0}),
            "value",
            "at least 0",
        ),
        (
            json!({"provider": probe(&["probe", "host", "cpu_busy_percent"]), "op": "gt", "value": 100}),
            "value",
            "0 to 100",
        ),
        (
            json!({"provider": probe(&["probe", "tcp", "127.0.0.1:1"]), "tolerance": 0, "noData": "ignore"}),
            "noData",
            "nothing could breach",
        ),
        (
            json!({"provider": probe(&["probe", "tcp", "127.0.0.1:1"]), "tolerance": 200}),
            "tolerance",
            "never met",
        ),
    ] {
        let error = gated(gate.clone()).expect_err(&gate.to_string());
        assert_eq!(error.field, format!("extensions[0].rollback_on[0].{field}"), "{error}");
        assert!(error.problem.contains(why), "{gate}: {error}");
    }
    for gate in [
        json!({"provider": http(), "op": "gt", "value": 500}),
        // What is late is no data, and that breaches.
        json!({"provider": http(), "op": "gte", "value": 1000}),
        json!({"provider": http(), "op": "gt", "value": 500, "noData": "ignore"}),
        json!({"provider": probe(&["probe", "tcp", "127.0.0.1:1"]), "tolerance": 0}),
        json!({"provider": probe(&["probe", "tcp", "127.0.0.1:1"]), "op": "gt", "value": 50, "noData": "ignore"}),
        json!({"provider": probe(&["probe", "series", "--tcp", "127.0.0.1:1", "--rate", "20"]),
            "op": "gt", "value": 5, "alertAfter": "10s"}),
    ] {
        assert_eq!(gated(gate.clone()), Ok(()), "{gate}");
    }
}
