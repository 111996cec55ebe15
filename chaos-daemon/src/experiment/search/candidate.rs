//! The document of a candidate: an ordinary one, with the values of the candidate, without the actions that it leaves out, and without
//! the search.

use std::collections::BTreeSet;

use chaos_search::{Candidate, Setting, Value as Rung};
use serde_json::{Map, Value, json};

use super::plan::Plan;
use crate::experiment::EXTENSION;

impl Plan {
    /// The document of a candidate. `what` stands behind the name of the experiment: the runs of a search are no runs of that.
    pub fn document(
        &self,
        document: &Map<String, Value>,
        candidate: &Candidate,
        what: &str,
    ) -> Map<String, Value> {
        let setting = self.spec.space.setting(candidate);
        let mut document = document.clone();
        document.insert("name".to_owned(), json!(format!("{} ({what})", self.name)));
        let left_out: BTreeSet<&str> = (self.kinds.iter().enumerate())
            .filter(|(kind, _)| !candidate.faults.iter().any(|chosen| chosen.kind == *kind))
            .flat_map(|(_, kind)| kind.actions.iter().map(String::as_str))
            .collect();
        if let Some(method) = document.get_mut("method").and_then(Value::as_array_mut) {
            method.retain(|activity| !left_out.contains(name(activity)));
            self.set(method, candidate, &setting);
        }
        let extensions = document.get_mut("extensions").and_then(Value::as_array_mut);
        for extension in extensions.into_iter().flatten().filter_map(Value::as_object_mut) {
            if extension.get("name").and_then(Value::as_str) == Some(EXTENSION) {
                extension.remove("search");
                if let Some(weights) = extension.get_mut("weights").and_then(Value::as_object_mut) {
                    weights.retain(|action, _| !left_out.contains(action.as_str()));
                }
            }
        }
        document
    }

    /// The same to be kept: its description says what it shows.
    pub fn minimal(
        &self,
        document: &Map<String, Value>,
        candidate: &Candidate,
        shows: &str,
    ) -> Map<String, Value> {
        let mut minimal = self.document(document, candidate, "minimal");
        let said = minimal.get("description").and_then(Value::as_str).unwrap_or_default();
        let said = if said.is_empty() { shows.to_owned() } else { format!("{said}\n{shows}") };
        minimal.insert("description".to_owned(), json!(said));
        minimal
    }

    /// Sets the values, how long each fault lasts, and when it begins.
    fn set(&self, method: &mut Vec<Value>, candidate: &Candidate, setting: &Setting) {
        for (chosen, fault) in candidate.faults.iter().zip(&setting.faults) {
            let Some(kind) = self.kinds.get(chosen.kind) else { continue };
            for ((action, option), (_, value, unit)) in kind.options.iter().zip(&fault.parameters) {
                let text = match value {
                    Rung::Number(number) => format!("{number}{unit}"),
                    Rung::Word(word) => word.clone(),
                };
                of_action(method, action, |arguments| set_option(arguments, option, &text));
            }
            if self.lasting {
                let text = format!("{}s", setting.duration_seconds);
                for action in &kind.actions {
                    of_action(method, action, |arguments| set_option(arguments, "for", &text));
                }
            }
        }
        if self.spaced {
            self.order(method, candidate, setting);
        }
    }

    /// Puts the actions of a candidate where the first of them stands, in the order in which they begin.
    fn order(&self, method: &mut Vec<Value>, candidate: &Candidate, setting: &Setting) {
        let begins = |activity: &Value| {
            let of_it = |kind: usize| {
                let kind = self.kinds.get(kind);
                kind.is_some_and(|kind| kind.actions.iter().any(|action| action == name(activity)))
            };
            let mut faults = candidate.faults.iter().zip(&setting.faults);
            faults.find(|(chosen, _)| of_it(chosen.kind)).map(|(_, fault)| fault.after_seconds)
        };
        let Some(first) = method.iter().position(|activity| begins(activity).is_some()) else { return };
        let (timed, others): (Vec<_>, Vec<_>) =
            std::mem::take(method).into_iter().partition(|activity| begins(activity).is_some());
        let mut timed: Vec<_> =
            timed.into_iter().map(|activity| (begins(&activity).unwrap_or(0.0), activity)).collect();
        timed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut now = 0.0;
        for (begins, activity) in &mut timed {
            if *begins > now {
                activity["pauses"] = json!({"before": *begins - now});
                now = *begins;
            }
        }
        *method = others;
        method.splice(first..first, timed.into_iter().map(|(_, activity)| activity));
    }
}

fn name(activity: &Value) -> &str {
    activity.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Changes the arguments of an action.
fn of_action(method: &mut [Value], action: &str, change: impl Fn(&mut Value)) {
    for activity in method.iter_mut().filter(|activity| name(activity) == action) {
        if let Some(arguments) = activity.pointer_mut("/provider/arguments") {
            change(arguments);
        }
    }
}

/// Gives an option of `chaosctl` a value, in place of those that it has.
fn set_option(arguments: &mut Value, option: &str, text: &str) {
    let (plain, bound) = (format!("--{option}"), format!("--{option}="));
    match arguments {
        Value::Object(mapping) => {
            mapping.retain(|key, _| !key.starts_with(&bound));
            mapping.insert(plain, json!(text));
        }
        Value::Array(words) => {
            let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
            let rest = words.split_off(end);
            let mut kept = Vec::with_capacity(words.len() + 1);
            let mut old = std::mem::take(words).into_iter();
            while let Some(word) = old.next() {
                let typed = word.as_str().unwrap_or_default();
                if typed == plain {
                    old.next();
                } else if !typed.starts_with(&bound) {
                    kept.push(word);
                }
            }
            kept.push(json!(format!("{bound}{text}")));
            kept.extend(rest);
            *words = kept;
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "candidate_tests.rs"]
mod tests;
