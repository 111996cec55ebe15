//! Tests of what is told of a document in which several things are wrong.

use serde_json::{Value, json};

use super::*;
use crate::experiment::Experiment;
use crate::experiment::schema::example;
use crate::experiment::variables::Nowhere;

fn of(document: &Value) -> Vec<Problem> {
    let source = Source::read_whole(&document.to_string()).unwrap();
    let problems = Experiment::check(source.document(), &Nowhere).err().unwrap_or_default();
    problems.iter().map(|problem| Problem::of(&source, problem)).collect()
}

fn paths(document: &Value) -> Vec<(String, Mistake)> {
    of(document).into_iter().map(|problem| (problem.path, problem.code)).collect()
}

#[test]
fn every_mistake_of_a_document_is_told_at_once_and_each_once() {
    let mut document = example();
    let python = json!({"type": "python", "module": "chaosk8s.pod.actions", "func": "terminate_pods"});
    document["controls"] = json!([{"name": "a"}]);
    document["surprise"] = json!(1);
    document["other"] = json!(1);
    document["configuration"] = json!({"host": {"type": "env", "key": "CHAOS_NO_SUCH_VARIABLE"}});
    document["steady-state-hypothesis"]["probes"] = json!([
        {"type": "probe", "name": "a", "dry": true, "timeout": 3, "tolerance": 200,
         "provider": {"type": "http", "url": "http://${host}/"}},
        {"type": "probe", "name": "b", "tolerance": "up", "provider": {"type": "http", "url": "http://${port}/"}},
        {"type": "probe", "name": "c", "provider": {"type": "http", "url": "http://127.0.0.1/"}, "odd": 1},
    ]);
    document["method"] = json!([
        {"type": "action", "name": "a", "provider": python, "controls": [{"name": "a"}]},
        {"ref": "nobody"},
        {"type": "action", "name": "b", "provider": {"type": "process", "path": "chaosctl", "arguments": "remove it"}},
    ]);
    document["rollbacks"] = json!([{"type": "action", "name": "undo", "provider": python}]);
    document["extensions"] = json!([{"name": "chaos-daemon", "rollback_on": [
        {"name": "one", "provider": {"type": "http", "url": "http://127.0.0.1/"}},
        {"name": "two", "provider": {"type": "http", "url": "http://127.0.0.1/"}, "op": "above", "value": 1},
    ]}]);
    let probe = |rest: &str| format!("steady-state-hypothesis.probes{rest}");
    let expected = [
        ("configuration.host.key".to_owned(), Mistake::Unset),
        ("controls".to_owned(), Mistake::NotSupported),
        ("extensions[0].rollback_on[0].op".to_owned(), Mistake::Missing),
        ("extensions[0].rollback_on[1].op".to_owned(), Mistake::Invalid),
        (probe("[0].dry"), Mistake::NotSupported),
        (probe("[0].timeout"), Mistake::NotSupported),
        (probe("[1].provider.url"), Mistake::Undeclared),
        (probe("[2].tolerance"), Mistake::Missing),
        (probe("[2].odd"), Mistake::UnknownField),
        ("method[0].controls".to_owned(), Mistake::NotSupported),
        ("method[0].provider.type".to_owned(), Mistake::NotSupported),
        ("method[1].ref".to_owned(), Mistake::Undeclared),
        ("rollbacks[0].provider.type".to_owned(), Mistake::NotSupported),
        ("other".to_owned(), Mistake::UnknownField),
        ("surprise".to_owned(), Mistake::UnknownField),
    ];
    assert_eq!(paths(&document), expected);
}

#[test]
fn a_problem_says_what_is_wrong_and_what_would_be_right() {
    let error = |problem: &str| SpecError::new("method[0].type", problem);
    for (problem, message, fix) in [
        ("missing: give a list", "missing", "give a list"),
        (
            "\"vault\" is not supported: give the value, or type env or file",
            "\"vault\" is not supported",
            "give the value, or type env or file",
        ),
        (
            "not supported: controls are Python modules; leave them out",
            "not supported: controls are Python modules",
            "leave them out",
        ),
        ("a:b is odd", "a:b is odd", "give what chaosctl schema has there"),
    ] {
        let told = Problem::at(None, &error(problem));
        assert_eq!((told.message.as_str(), told.fix.as_str()), (message, fix));
    }
}

#[test]
fn a_problem_stands_where_editors_find_it_and_programs_read_it() {
    let text =
        "title: a\nmethod:\n- type: action\n  name: b\n  provider: {type: python, module: os, func: nice}\n";
    let source = Source::read_whole(text).unwrap();
    let problems = Experiment::check(source.document(), &Nowhere).unwrap_err();
    let told = serde_json::to_value(Problem::of(&source, &problems[0])).unwrap();
    assert_eq!((&told["line"], &told["column"]), (&json!(5), &json!(20)));
    assert_eq!((&told["path"], &told["code"]), (&json!("method[0].provider.type"), &json!("not_supported")));
    assert!(told["message"].as_str().unwrap().contains("os.nice"), "{told}");
    assert!(told["fix"].as_str().unwrap().starts_with("give \"process\""), "{told}");
}

#[test]
fn what_is_all_right_has_no_problem_and_what_has_too_many_has_an_end() {
    assert_eq!(paths(&example()), []);
    let mut document = example();
    for number in 0..2 * MOST {
        document[format!("odd{number}")] = json!(1);
    }
    assert_eq!(of(&document).len(), MOST);
}

#[test]
fn a_secret_is_in_no_problem() {
    let mut document = example();
    document["secrets"] = json!({"a": {"token": "hunter2"}});
    let probe = json!({"type": "probe", "name": "a", "tolerance": 200, "provider": {"type": "http", "url": "${token}"}});
    document["steady-state-hypothesis"]["probes"] = json!([probe, probe]);
    let told = of(&document);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|problem| !format!("{problem:?}").contains("hunter2")), "{told:?}");
}
