//! The tolerances of Chaos Toolkit's specification, case by case.

use serde_json::json;

use super::*;

fn parse(tolerance: Value, form: Form) -> Result<Tolerance, SpecError> {
    Tolerance::parse("tolerance", tolerance, form)
}

fn http(status: u16, body: Value) -> Value {
    json!({"status": status, "headers": {"Server": "x"}, "body": body})
}

fn process(status: u8, stdout: &str) -> Value {
    json!({"status": status, "stdout": stdout, "stderr": "warning"})
}

#[test]
fn what_is_within_the_tolerance_of_an_answer_over_http() {
    let busy = json!({"state": "busy", "jobs": [{"id": 1, "ms": 20}, {"id": 2, "ms": 700}]});
    let range =
        |low: f64, high: f64, target: &str| json!({"type": "range", "range": [low, high], "target": target});
    let path = |path: &str| json!({"type": "jsonpath", "path": path, "target": "body"});
    let with = |mut tolerance: Value, key: &str, value: Value| {
        tolerance[key] = value;
        tolerance
    };
    for (tolerance, output, good) in [
        (json!(200), http(200, json!("")), true),
        (json!(200.0), http(200, json!("")), true),
        (json!(200), http(503, json!("")), false),
        (json!([200, 204]), http(204, json!("")), true),
        // Two numbers are a list of statuses here, and no range.
        (json!([200, 204]), http(202, json!("")), false),
        (json!([200, 204, 301]), http(301, json!("")), true),
        (range(200.0, 299.0, "status"), http(202, json!("")), true),
        (range(4.6, 8.9, "body"), http(200, json!(" 4.6\n")), true),
        (range(4.6, 8.9, "body"), http(200, json!(8.91)), false),
        (range(4.6, 8.9, "body"), http(200, json!("much")), false),
        (range(4.6, 8.9, "body"), http(200, json!("NaN")), false),
        (json!({"type": "regex", "pattern": "^O.", "target": "body"}), http(200, json!("OK")), true),
        (json!({"type": "regex", "pattern": "^O.", "target": "body"}), http(200, json!("not OK")), false),
        (json!({"type": "regex", "pattern": ".", "target": "body"}), http(200, busy.clone()), false),
        // As it came, also where it was read as JSON.
        (
            json!({"type": "regex", "pattern": "\"state\": *\"up\"", "target": "body"}),
            json!({"status": 200, "headers": {}, "body": {"state": "up"}, "text": "{\"state\": \"up\"}"}),
            true,
        ),
        (path("$.jobs[*].id"), http(200, busy.clone()), true),
        (path("$.jobs[?@.ms > 500].id"), http(200, busy.clone()), true),
        (path("$.jobs[?@.ms > 900].id"), http(200, busy.clone()), false),
        // Text that is JSON is read.
        (path("$.state"), http(200, json!("{\"state\": 1}")), true),
        (path("$.state"), http(200, json!("no JSON")), false),
        (with(path("$.jobs[*].id"), "count", json!(2)), http(200, busy.clone()), true),
        (with(path("$.jobs[*].id"), "count", json!(3)), http(200, busy.clone()), false),
        (with(path("$.state"), "expect", json!("busy")), http(200, busy.clone()), true),
        (with(path("$.jobs[*].id"), "expect", json!([1, 2.0])), http(200, busy.clone()), true),
        (with(path("$.jobs[*].id"), "expect", json!(1)), http(200, busy.clone()), false),
        (json!({"type": "jsonpath", "path": "$.headers.Server"}), http(200, busy), true),
    ] {
        let verdict = parse(tolerance.clone(), Form::Http).unwrap().judge(&output);
        assert_eq!(verdict.is_ok(), good, "{tolerance} of {output}: {verdict:?}");
    }
}

#[test]
fn what_is_within_the_tolerance_of_a_process() {
    for (tolerance, output, good) in [
        (json!(0), process(0, ""), true),
        (json!(0), process(1, ""), false),
        (json!([0, 1]), process(1, ""), true),
        (json!({"type": "range", "range": [0, 500], "target": "stdout"}), process(0, "12.5\n"), true),
        (json!({"type": "range", "range": [0, 500], "target": "stdout"}), process(0, "500.01\n"), false),
        (json!({"type": "regex", "pattern": "warn", "target": "stderr"}), process(0, ""), true),
        (json!({"type": "regex", "pattern": "[0-9]{2}", "target": "stdout"}), process(0, "7"), false),
        (json!({"type": "regex", "pattern": "up$", "target": "stdout"}), process(0, "all up\n"), true),
        (json!({"type": "regex", "pattern": "up$", "target": "stdout"}), process(0, "up\nnot\n"), false),
    ] {
        let verdict = parse(tolerance.clone(), Form::Command).unwrap().judge(&output);
        assert_eq!(verdict.is_ok(), good, "{tolerance} of {output}: {verdict:?}");
    }
}

/// What Python code returns is no object; ours returns none of it yet, and the meaning is the specification's all the same.
#[test]
fn a_value_that_is_no_object_is_compared_itself() {
    for (tolerance, value, good) in [
        (Tolerance::Equal(json!(true)), json!(true), true),
        (Tolerance::Equal(json!(8)), json!(8), true),
        (Tolerance::Equal(json!("OK")), json!("ok"), false),
        (Tolerance::List(vec![json!(4), json!(9)]), json!(9), true),
        (Tolerance::List(vec![json!(4), json!(9)]), json!(6.5), true),
        (Tolerance::List(vec![json!(4), json!(9)]), json!(9.1), false),
        (Tolerance::List(vec![json!("a"), json!("c")]), json!("b"), true),
        (Tolerance::List(vec![json!(4), json!(9)]), json!("6"), false),
        (Tolerance::List(vec![json!(4), json!(9), json!(78)]), json!(78), true),
        (Tolerance::List(vec![json!(4), json!(9), json!(78)]), json!(6), false),
    ] {
        assert_eq!(tolerance.judge(&value).is_ok(), good, "{tolerance:?} of {value}");
    }
}

#[test]
fn what_would_take_its_reader_for_ever_or_all_of_its_stack_is_refused() {
    let nested =
        |open: &str, close: &str, deep: usize| format!("${}{}", open.repeat(deep), close.repeat(deep));
    let path = |path: String| parse(json!({"type": "jsonpath", "target": "body", "path": path}), Form::Http);
    for (open, close) in [("[?@", "]"), ("[?(@.a && @", ")]")] {
        assert!(path(nested(open, close, 3)).is_ok(), "{open}");
        for deep in [9, 24, 100_000] {
            assert!(
                path(nested(open, close, deep)).unwrap_err().problem.contains("too large"),
                "{open} {deep}"
            );
        }
    }
    assert!(path(format!("$.{}", "a".repeat(1023))).unwrap_err().problem.contains("too large"));
    let regex =
        |pattern: &str| parse(json!({"type": "regex", "target": "body", "pattern": pattern}), Form::Http);
    assert!(regex(r"(\w{99}){99}").unwrap_err().problem.contains("repeats too much"));
}

#[test]
fn what_could_never_be_met_is_refused_with_its_path() {
    for (tolerance, form, field) in [
        (json!(true), Form::Http, "tolerance"),
        (json!("OK"), Form::Process, "tolerance"),
        (json!([]), Form::Http, "tolerance"),
        (json!(["200"]), Form::Http, "tolerance"),
        (json!(null), Form::Http, "tolerance"),
        (json!({}), Form::Http, "tolerance.type"),
        (json!({"type": "python"}), Form::Http, "tolerance.type"),
        (json!({"type": "probe", "name": "x", "provider": {}}), Form::Http, "tolerance.type"),
        (json!({"type": "range", "range": [0, 5]}), Form::Http, "tolerance.target"),
        (json!({"type": "range", "range": [5, 0], "target": "status"}), Form::Http, "tolerance.range"),
        (json!({"type": "range", "range": [0, "5"], "target": "status"}), Form::Http, "tolerance.range"),
        (json!({"type": "range", "range": [0, 5], "target": "stdout"}), Form::Http, "tolerance.target"),
        (json!({"type": "regex", "target": "body"}), Form::Http, "tolerance.pattern"),
        (json!({"type": "regex", "target": "body", "pattern": "("}), Form::Http, "tolerance.pattern"),
        (json!({"type": "regex", "target": "status", "pattern": "2"}), Form::Http, "tolerance.target"),
        (json!({"type": "jsonpath", "path": "foo[*].baz"}), Form::Http, "tolerance.path"),
        (json!({"type": "jsonpath", "path": "$.a", "count": -1}), Form::Http, "tolerance.count"),
        (json!({"type": "jsonpath", "path": "$.a", "surprise": 1}), Form::Http, "tolerance.surprise"),
    ] {
        let error = parse(tolerance.clone(), form).expect_err(&tolerance.to_string());
        assert_eq!(error.field, field, "{tolerance}: {error}");
    }
}
