//! Tests of candidates: their documents, and which searches make no sense.

use chaos_search::{Candidate, Chosen};
use serde_json::{Map, Value, json};

use crate::experiment::search::Plan;
use crate::experiment::variables::Nowhere;
use crate::experiment::{EXTENSION, Experiment};

fn action(name: &str, arguments: Value) -> Value {
    json!({"type": "action", "name": name, "provider": {"type": "process", "path": "chaosctl", "arguments": arguments}})
}

/// Two faults, of which one is said as a mapping and the other as a list, and a gate.
fn document(search: Value) -> Map<String, Value> {
    let probe = json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:1"]});
    let document = json!({
        "title": "shop",
        "steady-state-hypothesis": {"probes": [{"type": "probe", "name": "up", "tolerance": 0, "provider": probe}]},
        "method": [
            action("slow", json!({"inject": "latency", "--interface": "eth0", "--delay": "1ms", "--for": "20s"})),
            action("lossy", json!(["inject", "packet-loss", "--interface", "eth0", "--loss-percent", 1, "--for=30s"])),
        ],
        "extensions": [{"name": EXTENSION, "weights": {"lossy": 3},
            "rollback_on": [{"name": "p95", "provider": probe, "op": "gt", "value": 500}], "search": search}],
    });
    document.as_object().unwrap().clone()
}

fn search() -> Value {
    json!({
        "parameters": [
            {"action": "slow", "parameter": "delay", "from": 10, "to": 1000, "unit": "ms", "scale": "log"},
            {"action": "lossy", "parameter": "loss-percent", "from": 1, "to": 41, "step": 10},
        ],
        "optional": ["slow", "lossy"],
        "objective": ["p95"],
        "budget": {"runs": 30, "time": "1h", "recovery": "5s"},
        "seed": 7,
    })
}

fn plan(document: &Map<String, Value>) -> Plan {
    Plan::of(&Experiment::parse(document, &Nowhere).unwrap()).unwrap().unwrap()
}

/// What is wrong with a search.
fn problem(search: Value) -> String {
    Experiment::parse(&document(search), &Nowhere).unwrap_err().to_string()
}

fn with(field: &str, value: Value) -> Value {
    let mut search = search();
    search[field] = value;
    search
}

fn chosen(kind: usize, rung: u32) -> Chosen {
    Chosen { kind, rungs: vec![rung], after: None }
}

#[test]
fn a_candidate_is_a_valid_document_with_its_values_and_without_what_it_leaves_out() {
    let document = document(search());
    let plan = plan(&document);
    let both = Candidate { faults: vec![chosen(0, 0), chosen(1, 2)], duration: 0 };
    let made = plan.document(&document, &both, "search");
    assert_eq!(made["name"], "shop (search)");
    assert_eq!(made["method"][0]["provider"]["arguments"]["--delay"], "10ms");
    assert_eq!(
        made["method"][1]["provider"]["arguments"],
        json!(["inject", "packet-loss", "--interface", "eth0", "--for=30s", "--loss-percent=21"])
    );
    assert_eq!(made["extensions"][0].get("search"), None);
    let parsed = Experiment::parse(&made, &Nowhere).unwrap();
    let loss = parsed.faults().nth(1).unwrap().2;
    assert_eq!(loss.params["loss_percent"], json!(21.0));
    let one = Candidate { faults: vec![chosen(0, 1)], duration: 0 };
    let made = plan.document(&document, &one, "search");
    assert_eq!(made["method"].as_array().unwrap().len(), 1);
    assert_eq!(made["extensions"][0]["weights"], json!({}));
    Experiment::parse(&made, &Nowhere).unwrap();
    // What was given is as it was.
    assert_eq!(document["method"].as_array().unwrap().len(), 2);
}

#[test]
fn one_fault_after_another_stands_behind_it_with_the_gap_as_its_pause_and_lasts_as_long_as_the_candidate_says()
 {
    let mut search = with("gap", json!({"from": "0s", "to": "20s", "step": 5}));
    search["duration"] = json!({"from": "5s", "to": "1m", "step": 5});
    let document = document(search);
    let plan = plan(&document);
    let first = Chosen { after: Some(2), ..chosen(0, 0) };
    let made =
        plan.document(&document, &Candidate { faults: vec![first, chosen(1, 0)], duration: 1 }, "search");
    assert_eq!((&made["method"][0]["name"], &made["method"][1]["name"]), (&json!("lossy"), &json!("slow")));
    assert_eq!(
        (&made["method"][0]["pauses"], &made["method"][1]["pauses"]),
        (&Value::Null, &json!({"before": 10.0}))
    );
    assert_eq!(made["method"][1]["provider"]["arguments"]["--for"], "10s");
    let parsed = Experiment::parse(&made, &Nowhere).unwrap();
    assert_eq!(parsed.lasts().as_secs(), 20);
}

#[test]
fn actions_that_are_not_optional_are_always_there_together() {
    let mut search = search();
    search.as_object_mut().unwrap().remove("optional");
    let document = document(search);
    let plan = plan(&document);
    let names: Vec<_> = plan.spec.space.kinds.iter().map(|kind| kind.name.as_str()).collect();
    assert_eq!(names, ["slow + lossy"]);
    let harsh =
        Candidate { faults: vec![Chosen { kind: 0, rungs: vec![9999, 9999], after: None }], duration: 0 };
    let made = plan.document(&document, &harsh, "search");
    assert_eq!(made["method"][0]["provider"]["arguments"]["--delay"], "1000ms");
    assert_eq!(made["method"][1]["provider"]["arguments"][5], "--loss-percent=41");
}

#[test]
fn the_document_to_keep_says_what_it_shows() {
    let document = document(search());
    let candidate = Candidate { faults: vec![chosen(0, 0)], duration: 0 };
    let minimal = plan(&document).minimal(&document, &candidate, "Found with seed 7.");
    assert_eq!(
        (&minimal["name"], &minimal["description"]),
        (&json!("shop (minimal)"), &json!("Found with seed 7."))
    );
    Experiment::parse(&minimal, &Nowhere).unwrap();
}

#[test]
fn what_of_a_search_makes_no_sense_is_refused_by_its_field() {
    let parameter = |field: &str, value: Value| {
        let mut search = search();
        search["parameters"][0][field] = value;
        search
    };
    for (search, text) in [
        (with("objective", json!([])), "extensions[0].search.objective: missing"),
        (with("objective", json!(["p99"])), "extensions[0].search.objective: \"p99\" is no gate"),
        (with("budget", json!({"runs": 30})), "extensions[0].search.budget.time: missing"),
        (
            with("budget", json!({"runs": 1001, "time": "1h"})),
            "extensions[0].search.budget.runs: 1001 is out",
        ),
        (
            with("optional", json!(["slow"])),
            "extensions[0].search.optional: \"lossy\" is varied and not optional",
        ),
        (with("optional", json!(["slow", "lossy", "x"])), "extensions[0].search: \"x\" is no action"),
        (with("most", json!(3)), "extensions[0].search: a search cannot be made: most is 3"),
        (with("surprise", json!(1)), "extensions[0].search.surprise: "),
        (
            parameter("action", json!("fast")),
            "extensions[0].search.optional: \"fast\" is varied and not optional",
        ),
        (
            parameter("scale", json!("cubic")),
            "extensions[0].search.parameters[0].scale: \"cubic\" is not one of",
        ),
        (parameter("from", json!(0)), "extensions[0].search.parameters[0].from: a search cannot be made"),
        (parameter("parameter", json!("speed")), "extensions: the search may try slow speed 1000ms"),
        (parameter("to", json!(1e9)), "extensions: the search may try slow delay 1000000000ms"),
    ] {
        let problem = problem(search);
        assert!(problem.starts_with(text), "{text}\n{problem}");
    }
}

#[test]
fn pauses_and_a_search_for_the_time_exclude_each_other() {
    let mut document = document(with("duration", json!({"from": "5s", "to": "1m"})));
    document["method"][0]["pauses"] = json!({"after": 5});
    let problem = Experiment::parse(&document, &Nowhere).unwrap_err().to_string();
    assert!(problem.contains("leave its background and pauses out"), "{problem}");
}

#[test]
fn the_example_of_the_documentation_is_a_valid_search() {
    let page = include_str!("../../../../docs/search.md");
    let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let document: Map<String, Value> = serde_json::from_str(example).unwrap();
    let plan = plan(&document);
    assert_eq!((plan.spec.space.kinds.len(), plan.objective.len(), plan.has_seed), (2, 1, false));
}
