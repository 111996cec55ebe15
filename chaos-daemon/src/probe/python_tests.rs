//! Tests of calls of Python, by a double of the interpreter. The real one, with chaostoolkit-lib, is tried by `tests/chaostoolkit/`.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::probe::{Bounds, Check, Probe};
use crate::waits::HANG;

fn call(tolerance: Option<Value>) -> Call {
    let provider =
        json!({"type": "python", "module": "os.path", "func": "exists", "arguments": {"path": "/"}});
    let call =
        Call::parse("provider", provider, json!({"a": 1}), json!({"group": {"token": "hunter2"}})).unwrap();
    match tolerance {
        None => call,
        Some(tolerance) => call.judged("tolerance", tolerance).unwrap(),
    }
}

/// A sample by an interpreter that does this, in the words of a shell.
async fn sampled(call: Call, script: &str, timeout: Duration) -> crate::probe::Sample {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("python3");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let call = call.by(Call::interpreter(path.to_str().unwrap()).unwrap());
    Probe { check: Check::Python(call), timeout, bounds: Bounds::default() }.sample().await
}

#[tokio::test]
async fn the_question_is_at_the_standard_input_and_nothing_of_it_in_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let [words, question] = ["words", "question"].map(|name| folder.path().join(name).display().to_string());
    let script = format!(
        "printf '%s\\n' \"$1\" \"$2\" > {words}; cat > {question}; echo '{{\"value\": true, \"met\": true}}'"
    );
    let sample = sampled(call(Some(json!(true))), &script, HANG).await;
    assert!(sample.ok && sample.value == Some(1.0), "{sample:?}");
    assert_eq!(sample.answer.unwrap(), json!({"value": true, "met": true}));
    assert_eq!(std::fs::read_to_string(&words).unwrap(), "-I\n-c\n");
    let asked: Value = serde_json::from_str(&std::fs::read_to_string(&question).unwrap()).unwrap();
    assert_eq!(asked["activity"]["provider"]["arguments"], json!({"path": "/"}));
    assert_eq!((&asked["configuration"]["a"], &asked["tolerance"]), (&json!(1), &json!(true)));
    assert_eq!(asked["secrets"]["group"]["token"], "hunter2");
}

#[tokio::test]
async fn what_is_not_met_what_fails_and_what_gives_no_answer_is_not_as_it_should_be() {
    for (script, told) in [
        ("echo '{\"value\": 3, \"met\": false}'", "3"),
        ("echo '{\"error\": \"ImportError: install chaostoolkit-lib\"}'", "install chaostoolkit-lib"),
        ("echo oh no >&2; exit 4", "status 4"),
        ("echo '{\"value\": '", "gave no answer"),
        ("yes", "no answer"),
    ] {
        let timeout = if script == "yes" { Duration::from_millis(300) } else { HANG };
        let sample = sampled(call(Some(json!(2))), script, timeout).await;
        assert!(!sample.ok && (sample.detail.contains(told) || script == "yes"), "{script}: {sample:?}");
    }
}

#[tokio::test]
async fn nobody_but_the_runner_has_an_interpreter() {
    let sample =
        Probe { check: Check::Python(call(None)), timeout: HANG, bounds: Bounds::default() }.sample().await;
    assert!(!sample.ok && sample.detail.contains("only the daemon"), "{sample:?}");
}

#[test]
fn what_is_called_is_a_function_of_a_module_and_nothing_else() {
    let parse = |provider: Value| {
        Call::parse("provider", provider, json!({}), json!({})).map_err(|error| error.field)
    };
    for (provider, field) in [
        (json!({"func": "f"}), "provider.module"),
        (json!({"module": "m"}), "provider.func"),
        (json!({"module": "m; import os", "func": "f"}), "provider.module"),
        (json!({"module": "m", "func": "f.g"}), "provider.func"),
        (json!({"module": "m", "func": "f", "arguments": [1]}), "provider.arguments"),
    ] {
        assert_eq!(parse(provider).unwrap_err(), field);
    }
    let judged = |tolerance: Value| call(None).judged("tolerance", tolerance);
    let python = json!({"type": "probe", "name": "a", "provider": {"type": "python", "module": "my.judge", "func": "f"}});
    assert_eq!(judged(python).unwrap().modules().unwrap(), ["os.path", "my.judge"]);
    assert_eq!(judged(json!([1, 2])).unwrap().modules().unwrap(), ["os.path"]);
    for odd in [
        json!({"type": "probe", "provider": {"type": "process", "path": "/bin/true"}}),
        json!({"type": "probe", "provider": {"type": "python", "module": "m", "func": "-"}}),
        json!({"type": "other"}),
        json!({"range": [1, 2]}),
    ] {
        assert!(judged(odd.clone()).is_err(), "{odd}");
    }
    // What a server that was taken over says is looked at again.
    let mut bent = call(Some(json!(1)));
    bent.asked.tolerance = Some(json!({"type": "probe", "provider": {"type": "process", "path": "/bin/sh"}}));
    assert!(bent.modules().is_err());
}
