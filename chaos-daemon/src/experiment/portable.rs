//! What is odd in a document and no reason to refuse it: what Chaos Toolkit's own program would refuse, and what shows less than it may
//! seem to.

use serde_json::{Map, Value};

use crate::spec::SpecError;

/// What is odd in `document`.
pub fn warnings(document: &Map<String, Value>) -> Vec<SpecError> {
    let mut found = Vec::new();
    let mut warn = |path: String, problem: &str| found.push(SpecError::new(path, problem));
    if document.get("description").is_none_or(|text| text.as_str().is_none_or(str::is_empty)) {
        warn(
            "description".to_owned(),
            "chaos validate refuses a document without it: say what is expected to hold",
        );
    }
    let hypothesis = document.get("steady-state-hypothesis").and_then(Value::as_object);
    let probes = list(hypothesis.and_then(|hypothesis| hypothesis.get("probes")));
    match hypothesis {
        Some(hypothesis) if hypothesis.get("title").is_none() => warn(
            "steady-state-hypothesis.title".to_owned(),
            "chaos validate refuses a hypothesis without it: say what is the case while all is well",
        ),
        _ => {}
    }
    if probes.is_empty() {
        warn(
            "steady-state-hypothesis".to_owned(),
            "without a steady state every run is unverified: give probes, and what is right of them",
        );
    }
    for (index, probe) in probes.iter().enumerate() {
        if probe.get("tolerance").is_some_and(Value::is_f64) {
            warn(
                format!("steady-state-hypothesis.probes[{index}].tolerance"),
                "chaos validate refuses a number with a point: write it without",
            );
        }
    }
    let method = list(document.get("method"));
    for (index, activity) in method.iter().enumerate() {
        if activity.get("tolerance").is_some() {
            warn(
                format!("method[{index}].tolerance"),
                "changes no verdict, and is told of only: put the probe into steady-state-hypothesis if it has to hold",
            );
        }
    }
    if !method.iter().any(|activity| activity.get("ref").is_some() || is(activity, "action")) {
        warn(
            "method".to_owned(),
            "nothing is injected, so that every run is unverified: give an action that runs chaosctl inject",
        );
    }
    found
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is(activity: &Value, kind: &str) -> bool {
    activity.get("type").is_some_and(|value| value == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(document: &Value) -> Vec<String> {
        warnings(document.as_object().unwrap()).into_iter().map(|warning| warning.field).collect()
    }

    #[test]
    fn a_whole_document_has_nothing_odd() {
        let example = crate::experiment::schema::example();
        assert_eq!(fields(&example), Vec::<String>::new());
    }

    #[test]
    fn what_the_other_program_refuses_and_what_shows_less_than_it_seems_is_told() {
        let mut document = crate::experiment::schema::example();
        document["description"].take();
        document["steady-state-hypothesis"]["probes"][0]["tolerance"] = json!(200.0);
        document["steady-state-hypothesis"].as_object_mut().unwrap().remove("title");
        document["method"] = json!([{"type": "probe", "name": "look", "tolerance": 200}]);
        let expected = [
            "description",
            "steady-state-hypothesis.title",
            "steady-state-hypothesis.probes[0].tolerance",
            "method[0].tolerance",
            "method",
        ];
        assert_eq!(fields(&document), expected);
        document["steady-state-hypothesis"] = json!({"title": "none", "probes": []});
        assert!(fields(&document).contains(&"steady-state-hypothesis".to_owned()));
    }
}
