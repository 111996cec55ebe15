//! What the document of a run says: what it is about, and which action a fault is of.

use serde_json::Value;

use crate::server::history::Recorded;

/// The description of the experiment, and the title of its hypothesis, in sentences.
pub(super) fn about(recorded: &Recorded) -> impl Iterator<Item = String> {
    let text = |path: &str| {
        let found = recorded.document.as_ref().and_then(|document| {
            let mut parts = path.split('/');
            let first = document.get(parts.next()?)?;
            parts.try_fold(first, |value, part| value.get(part))?.as_str()
        });
        found.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let described = text("description").map(|text| format!("It is described as \"{text}\"."));
    let hypothesis =
        text("steady-state-hypothesis/title").map(|title| format!("Its hypothesis is \"{title}\"."));
    described.into_iter().chain(hypothesis)
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

fn injects(activity: &Value) -> bool {
    let arguments = &activity["provider"]["arguments"];
    let in_list = arguments.as_array().is_some_and(|words| words.iter().any(|word| word == "inject"));
    activity["type"] == "action" && (in_list || arguments.get("inject").is_some())
}
