//! Whatever a document says, it is the same document as JSON; and what is understood can be run at each stage, within any limit.

use serde_json::{Map, Value};

use super::document::Experiment;
use super::host_limits;
use super::source::Source;
use super::staged;
use super::variables::{Nowhere, inline};
use crate::fuzzing::{agree, are_alike};
use crate::spec::{HostLimits, SpecError};

pub(crate) fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(source) = Source::read(text) else { return };
    let document = source.document();
    is_the_same_as_json(document);
    let understood = Experiment::parse(document, &Nowhere);
    assert!(Experiment::parse(document, &Nowhere) == understood, "understood in two ways");
    let _inlined = inline(&mut document.clone(), &Nowhere);
    match understood {
        Ok(experiment) => {
            can_be_run(&experiment);
            secrets_do_not_show(document, &experiment);
        }
        Err(error) => {
            let SpecError { field, .. } = &error;
            assert!(source.position(field).is_some(), "{field} stands nowhere");
            let _shown = source.place("document", error);
        }
    }
}

#[expect(clippy::expect_used, reason = "a document that cannot be read again is what is looked for")]
fn is_the_same_as_json(document: &Map<String, Value>) {
    let text = Value::Object(document.clone()).to_string();
    // As JSON it may be too long.
    if text.len() <= super::source::LARGEST_DOCUMENT {
        let again = Source::read(&text).expect("a document that is none as JSON");
        let [one, other] = [document, again.document()].map(|document| Value::Object(document.clone()));
        assert!(are_alike(&one, &other), "read as {one}, and as {other}");
    }
}

fn can_be_run(experiment: &Experiment) {
    let steps = experiment.steps();
    agree(&steps.len(), &experiment.method.len());
    let _asked = (experiment.lasts(), experiment.asked(), experiment.guardrails.precautions(Vec::new()));
    for (index, _, fault) in experiment.faults() {
        assert!(experiment.weight(index) <= 10);
        assert!(fault.parse().is_ok(), "a fault that is none");
    }
    for (_, probe) in experiment.probes() {
        let _shown = experiment.variables.hide(&probe.check.to_string());
    }
    for stage in experiment.guardrails.blast_radius.iter().flat_map(|radius| radius.stages()) {
        assert!(staged::at(experiment, *stage).is_ok(), "a stage at which it cannot be run");
    }
    assert!(host_limits::within(experiment, &HostLimits::default()).is_ok());
}

/// Of the document as it is shown. What is shown in place of a secret may look like one.
fn secrets_do_not_show(document: &Map<String, Value>, experiment: &Experiment) {
    let shown = experiment.variables.hide_in(&Value::Object(document.clone()));
    let groups = document.get("secrets").and_then(Value::as_object).into_iter().flatten();
    let secrets = groups.filter_map(|(_, members)| members.as_object()).flat_map(Map::values);
    for secret in secrets.filter_map(Value::as_str).filter(|secret| !secret.contains('*')) {
        assert!(secret.is_empty() || !has_text(&shown, secret), "{secret} is shown");
    }
}

fn has_text(value: &Value, part: &str) -> bool {
    match value {
        Value::String(text) => text.contains(part),
        Value::Array(items) => items.iter().any(|item| has_text(item, part)),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| key.contains(part) || has_text(value, part))
        }
        _ => false,
    }
}
