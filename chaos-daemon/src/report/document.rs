//! What the document of a run says: what it is about, and which action a fault is of.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::words;
use crate::experiment::Experiment;
use crate::experiment::variables::Nowhere;
use crate::server::history::{Recorded, RunFault};
use crate::spec::FaultRequest;

/// The document of a run, understood; `None` where it is not known, or is of another time.
pub(super) fn understood(recorded: &Recorded) -> Option<Experiment> {
    let mut document = recorded.document.clone()?;
    // Its secrets are not recorded. What they are is of no matter here, and that they are there is.
    if !document.contains_key("secrets") {
        let (mut names, mut groups) = (BTreeSet::new(), BTreeSet::from(["group".to_owned()]));
        for value in document.values() {
            gather(value, &mut names, &mut groups);
        }
        if let Some(Value::Object(configuration)) = document.get("configuration") {
            names.retain(|name| !configuration.contains_key(name));
        }
        let member = |group: &String| {
            let members: Map<_, _> = names.iter().map(|name| (name.clone(), json!("not-recorded"))).collect();
            (group.clone(), Value::Object(members))
        };
        document.insert("secrets".to_owned(), Value::Object(groups.iter().map(member).collect()));
    }
    Experiment::parse(&document, &Nowhere).ok()
}

/// The names in `${name}`, and the groups of secrets, of whatever is in `value`.
fn gather(value: &Value, names: &mut BTreeSet<String>, groups: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let found = text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
            names.extend(found.map(str::to_owned));
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, names, groups)),
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (true, Some(named)) = (name == "secrets", value.as_array()) {
                    groups.extend(named.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                gather(value, names, groups);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text of the document, at a path such as `steady-state-hypothesis/title`.
pub(super) fn text<'a>(recorded: &'a Recorded, path: &str) -> Option<&'a str> {
    let mut parts = path.split('/');
    let first = recorded.document.as_ref()?.get(parts.next()?)?;
    let found = parts.try_fold(first, |value, part| value.get(part))?.as_str()?.trim();
    (!found.is_empty()).then_some(found)
}

/// The action of the document that a fault of this name is of; `None` where the document is not known, or has others.
pub(super) fn action<'a>(recorded: &'a Recorded, fault: &str) -> Option<&'a Value> {
    let index = recorded.faults.iter().position(|known| known.name == fault)?;
    let method = recorded.document.as_ref()?.get("method")?.as_array()?;
    let injecting: Vec<_> = method.iter().filter(|activity| injects(activity)).collect();
    injecting.get(index).filter(|_| injecting.len() == recorded.faults.len()).copied()
}

/// What people call what an event is about: a fault by the name of its action.
pub(super) fn called<'a>(recorded: &'a Recorded, subject: &'a str) -> &'a str {
    action(recorded, subject).and_then(|action| action["name"].as_str()).unwrap_or(subject)
}

/// What a fault is in words: its type, where it goes, and how much of it there is.
pub(super) fn deed(recorded: &Recorded, experiment: Option<&Experiment>, fault: &RunFault) -> String {
    let mut said = vec![fault.fault_type.replace('_', " ")];
    match serde_json::from_str(&fault.target) {
        Ok(Value::Object(target)) if target.is_empty() => {}
        Ok(Value::Object(target)) => said.push(words::fields(&target)),
        _ => said.push(fault.target.clone()),
    }
    let request = request(recorded, experiment, fault);
    if let Some(request) = request.filter(|request| !request.params.is_empty()) {
        said.push(words::fields(&request.params));
    }
    said.join(", ")
}

/// What the document asks for of a fault; `None` where the document is not known, or has others.
pub(super) fn request<'a>(
    recorded: &Recorded,
    experiment: Option<&'a Experiment>,
    fault: &RunFault,
) -> Option<&'a FaultRequest> {
    let index = recorded.faults.iter().position(|known| known.name == fault.name)?;
    let experiment = experiment.filter(|experiment| experiment.faults().count() == recorded.faults.len())?;
    experiment.faults().nth(index).map(|(_, _, request)| request)
}

fn injects(activity: &Value) -> bool {
    let arguments = &activity["provider"]["arguments"];
    let in_list = arguments.as_array().is_some_and(|words| words.iter().any(|word| word == "inject"));
    activity["type"] == "action" && (in_list || arguments.get("inject").is_some())
}
