//! Tests of which experiments there are.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

fn document(title: &str) -> Value {
    json!({
        "title": title,
        "tags": ["network", "of hunter2"],
        "secrets": {"own": {"token": "hunter2"}},
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "health", "tolerance": 200,
            "provider": {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"X-Token": "${token}"}}}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "timeout", "--interface": "eth0", "--name": "cut.db", "--for": "1s"}}}],
    })
}

fn known(documents: &[Value]) -> Vec<Known> {
    let named = |document: &Value| {
        (document["title"].as_str().unwrap().to_owned(), document.as_object().unwrap().clone())
    };
    let by_name: BTreeMap<_, _> = documents.iter().map(named).collect();
    let own = |(name, document): (String, _)| Known::registered(Owner::ROOT, &name, document, Owner::ROOT);
    all(by_name.into_iter().map(own)).unwrap().collect()
}

fn latest(verdict: Verdict) -> Latest {
    let (run_id, started_at) = ("a".to_owned(), "2026-02-05T10:00:00.000Z".to_owned());
    Latest { run_id, started_at, verdict: Some(verdict), success: false }
}

#[test]
fn those_registered_come_first_and_each_by_its_name() {
    let known = known(&[document("b"), document("a")]);
    let names: Vec<_> = known.iter().map(|known| known.place.name.as_str()).collect();
    let built_in = [
        "dependency-partition",
        "pool-exhaustion",
        "process-death",
        "process-death-alert",
        "retry-storm",
        "slow-dependency",
    ];
    assert_eq!(names, [["a", "b"].as_slice(), &built_in].concat());
    assert_eq!(known.iter().filter(|known| known.registered.is_some()).count(), 2);
    assert!(known.iter().all(|known| known.experiment.is_ok()));
}

#[test]
fn a_cursor_is_understood_as_it_was_given_and_nothing_else_is() {
    for known in known(&[document("with / and \"quotes\"")]) {
        assert_eq!(Place::from_cursor(&known.place.to_cursor()).unwrap(), known.place);
    }
    for wrong in ["", "a", "elsewhere/a", "/a", "Registered/a"] {
        let error = Place::from_cursor(wrong).unwrap_err();
        assert_eq!(error.field, "cursor");
        assert!(error.problem.contains("next_cursor"), "{error}");
    }
}

#[test]
fn secrets_are_not_shown_and_do_not_change_the_digest() {
    let known = &known(&[document("uses hunter2")])[0];
    assert_eq!(known.title(), "uses ***");
    assert_eq!(known.tags(), ["network", "of ***"]);
    assert!(!known.document.contains_key("secrets"));
    let (digest, _) = of_document(document("uses hunter2").as_object().unwrap());
    assert_eq!(known.digest, digest);
}

#[test]
fn what_is_looked_for_is_found_by_each_of_its_sides() {
    let mut other = document("other");
    other["method"][0]["provider"]["arguments"] =
        json!({"inject": "latency", "--interface": "wlan7", "--delay": "1s", "--for": "1s"});
    other["tags"] = json!([]);
    let known = known(&[document("the first"), other]);
    let some = |text: &str| Some(text.to_owned());
    for (wanted, expected) in [
        (Wanted { text: some("FIRST"), ..Wanted::default() }, vec!["the first"]),
        (Wanted { text: some("killed SERVICE"), ..Wanted::default() }, vec!["process-death"]),
        (
            Wanted { tag: some("recovery"), ..Wanted::default() },
            vec!["dependency-partition", "process-death", "process-death-alert"],
        ),
        (Wanted { fault: some("timeout"), ..Wanted::default() }, vec!["the first"]),
        (Wanted { fault: some("cut.db"), ..Wanted::default() }, vec!["the first"]),
        (Wanted { fault: some("cut"), ..Wanted::default() }, vec![]),
        (Wanted { target: some("WLAN7"), ..Wanted::default() }, vec!["other"]),
        (
            Wanted { fault: some("latency"), origin: Some(Origin::BuiltIn), ..Wanted::default() },
            vec!["slow-dependency"],
        ),
    ] {
        let found: Vec<_> = known.iter().filter(|known| wanted.is(known, None)).collect();
        let found: Vec<_> = found.iter().map(|known| known.place.name.as_str()).collect();
        assert_eq!(found, expected, "{wanted:?}");
    }
    let held = Wanted { verdict: Some(Verdict::Held), ..Wanted::default() };
    assert!(held.is(&known[0], Some(&latest(Verdict::Held))));
    assert!(!held.is(&known[0], Some(&latest(Verdict::Failed))) && !held.is(&known[0], None));
    let after = Wanted { after: Some(known[0].place.clone()), ..Wanted::default() };
    let names: Vec<_> =
        known.iter().filter(|known| after.is(known, None)).map(|known| &known.place).collect();
    assert_eq!(names, known[1..].iter().map(|known| &known.place).collect::<Vec<_>>());
}

#[test]
fn what_is_not_understood_any_more_is_listed_with_the_reason_and_nothing_of_its_text() {
    let mut broken = document("broken");
    broken["tags"] = json!(["hunter2"]);
    broken["method"] = json!([{"ref": "nobody"}]);
    let known = &known(&[broken])[0];
    assert_eq!(known.experiment.as_ref().unwrap_err().field, "method[0].ref");
    assert_eq!((known.title(), known.tags(), known.faults().len()), (String::new(), Vec::new(), 0));
}
