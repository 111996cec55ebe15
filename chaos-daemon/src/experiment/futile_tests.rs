//! Tests of checks that say nothing.

use std::time::Duration;

use super::*;

fn said(given: Value, form: Form) -> Option<String> {
    // What was refused before is refused as before.
    let parsed = Tolerance::parse("tolerance", given, form).map(drop);
    parsed.err().map(|error| error.problem)
}

#[test]
fn an_expression_that_is_found_in_nothing_wherever_a_text_begins_or_ends_is_found_in_every_text() {
    for always in
        ["", ".*", "x*", "(a|b?)", "^", "$", "^.*", ".*$", "(?i)^(ok)?", "(?m)^", "a{0}", r"\A", "up|"]
    {
        assert!(is_in_every_text(always), "{always}");
        for text in ["", "\n", "a b\nc", "é"] {
            assert!(regex::Regex::new(always).unwrap().is_match(text), "{always} in {text:?}");
        }
    }
    for sometimes in ["^$", r"^\s*$", "up", ".", "x+", r"\b", "^ok", "ok$", "[^q]|^$", r"\B"] {
        assert!(!is_in_every_text(sometimes), "{sometimes}");
    }
}

#[test]
fn a_tolerance_that_nothing_meets_or_everything_does_is_refused_with_what_would_say_something() {
    let range =
        |target: &str, low: f64, high: f64| json!({"type": "range", "target": target, "range": [low, high]});
    let regex = |target: &str, pattern: &str| json!({"type": "regex", "target": target, "pattern": pattern});
    let path = |path: &str| json!({"type": "jsonpath", "path": path});
    for (given, form, why) in [
        (json!(200), Form::Process, "never met: chaosctl probe ends with 0 or 1"),
        (json!([2, 3]), Form::Process, "never met"),
        (json!([0, 1]), Form::Process, "always met"),
        (range("status", 0.0, 5.0), Form::Process, "always met"),
        (range("status", 0.2, 0.8), Form::Process, "never met"),
        (range("stdout", 0.0, 500.0), Form::Process, "--min and --max"),
        (regex("stderr", "refused"), Form::Process, "never met"),
        (path("$.status"), Form::Process, "always met"),
        (json!(0), Form::Http, "never met: a status of HTTP"),
        (json!(200.5), Form::Http, "never met"),
        (range("status", 0.0, 99.0), Form::Http, "never met"),
        (json!(256), Form::Command, "never met"),
        (regex("stdout", ".*"), Form::Command, "found in every text"),
        (regex("body", "^"), Form::Http, "found in every text"),
        (range("body", f64::MIN, f64::MAX), Form::Http, "every number"),
    ] {
        let problem = said(given.clone(), form).unwrap_or_default();
        assert!(problem.contains(why), "{given} {form:?}: {problem:?}");
    }
}

#[test]
fn a_tolerance_that_can_be_met_and_missed_is_not_refused() {
    for (given, form) in [
        (json!(0), Form::Process),
        (json!(1), Form::Process),
        (json!([0]), Form::Process),
        (json!({"type": "regex", "target": "stdout", "pattern": "status 200"}), Form::Process),
        (json!({"type": "jsonpath", "path": "$.status", "expect": 0}), Form::Process),
        (json!(200), Form::Http),
        (json!([200, 503]), Form::Http),
        // It answers at all.
        (json!({"type": "range", "target": "status", "range": [100, 599]}), Form::Http),
        (json!({"type": "regex", "target": "body", "pattern": "^$"}), Form::Http),
        (json!(-9), Form::Command),
        (json!({"type": "range", "target": "stdout", "range": [0, 100]}), Form::Command),
        (json!({"type": "regex", "target": "stderr", "pattern": "^$"}), Form::Command),
    ] {
        assert_eq!(said(given.clone(), form), None, "{given} {form:?}");
    }
}

#[test]
fn a_comparison_that_comes_out_one_way_whatever_is_measured_is_known_for_it() {
    let time = Span::until(Duration::from_millis(200));
    for (op, value, span, expected) in [
        (Op::Gt, 500.0, time, (false, true)),
        (Op::Gt, 200.0, time, (false, true)),
        (Op::Gte, 200.0, time, (false, true)),
        (Op::Gt, 199.0, time, (true, true)),
        (Op::Gt, -1.0, time, (true, false)),
        (Op::Gte, 0.0, time, (true, false)),
        (Op::Lt, 0.0, time, (false, true)),
        (Op::Lt, 200.0, time, (true, false)),
        (Op::Lte, 300.0, time, (true, false)),
        (Op::Gt, 100.0, Span::PERCENT, (false, true)),
        (Op::Gte, 100.0, Span::PERCENT, (true, true)),
        (Op::Gt, 0.0, Span::PERCENT, (true, true)),
        (Op::Lt, 0.0, Span::AMOUNT, (false, true)),
        (Op::Gt, 1e12, Span::AMOUNT, (true, true)),
        (Op::Lt, -1e12, Span::ANY, (true, true)),
    ] {
        assert_eq!(outcomes(op, value, span), expected, "{op} {value} {span:?}");
    }
}
