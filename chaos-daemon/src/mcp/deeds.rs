//! What a call of a tool is to the audit.
//!
//! Faults are injected, planned and ended by the injector, which records that itself. Everything else is done by the server. It says
//! before what it is about to change, and afterwards how that went. What only looks is said once a minute, with how often: it
//! changes nothing, and a client may ask many times a second.

use chaos_audit::{Kind, Outcome, Record};
use serde_json::{Map, Value};

use super::tool::Call;
use crate::request::{ApiError, Caller};
use crate::server::ledger::{Ledger, refused};

/// Who records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The server, before and after.
    Server,
    /// The injector; the server says why it was not even asked.
    Injector,
    /// The server, once a minute.
    Look,
}

/// A call, as it is recorded.
pub(super) struct Deed {
    record: Record,
    by: By,
    ledger: Ledger,
    caller: Caller,
}

impl Deed {
    /// What this call of a tool is.
    pub(super) fn of(tool: &str, call: &Call<'_>) -> Self {
        let (act, field, by) = act(tool, &call.arguments);
        let on = field.and_then(|field| subject(field, &call.arguments));
        let what = (by == By::Look).then(|| tool.to_owned());
        let stage =
            call.arguments.get("stage").and_then(Value::as_u64).and_then(|stage| stage.try_into().ok());
        let digest = call.arguments.get("plan_digest").and_then(Value::as_str);
        let (plan_digest, trace) = (digest.map(str::to_owned), call.trace.clone());
        let record = Record { act, on, what, stage, plan_digest, trace, ..Record::default() };
        Self { record, by, ledger: call.service.ledger().clone(), caller: call.caller }
    }

    /// Says that it is about to happen, if the server changes something by it.
    pub(super) async fn begins(&mut self) {
        if self.by == By::Server {
            self.record.id = Some(format!("{:016x}", rand::random::<u64>()));
            let record = Record { outcome: Outcome::Intent, ..self.record.clone() };
            self.ledger.put(Kind::Act, record, self.caller).await;
        }
    }

    /// Says how it went: `failed` of one that has not failed for `error`.
    pub(super) async fn ended(self, error: Option<&ApiError>, failed: bool) {
        let Self { record, by, ledger, caller } = self;
        let is_known = error.is_some_and(|error| error.recorded) && by != By::Server;
        let (kind, record) = match (error, failed, by) {
            // A trace is told to nobody but the server.
            (Some(_), _, _) if is_known && record.trace.is_none() => return,
            (Some(error), ..) => (Kind::Act, refused(record, error)),
            (None, true, _) => (Kind::Act, Record { outcome: Outcome::Failed, ..record }),
            (None, false, By::Injector) if record.trace.is_none() => return,
            (None, false, By::Look) => (Kind::Look, record),
            (None, false, _) => (Kind::Act, record),
        };
        ledger.put(kind, record, caller).await;
    }
}

/// The act of a call, the field that says on what it is, and who records it.
fn act(tool: &str, arguments: &Map<String, Value>) -> (String, Option<&'static str>, By) {
    let action = arguments.get("action").and_then(Value::as_str).unwrap_or_default();
    let given = |field: &str| arguments.contains_key(field);
    let dry_run = arguments.get("dry_run") == Some(&Value::Bool(true));
    let (act, field, by) = match (tool, action) {
        ("chaos_inject_fault", "register") => ("register_fault", "fault_name", By::Server),
        ("chaos_inject_fault", "remove") => ("remove_fault", "fault_name", By::Server),
        ("chaos_inject_fault", _) => ("inject", "fault_name", By::Injector),
        ("chaos_stop", _) if given("run_id") => ("stop_run", "run_id", By::Server),
        ("chaos_stop", _) if given("experiment_name") => ("stop_run", "experiment_name", By::Server),
        ("chaos_stop", _) if given("fault_name") => ("stop", "fault_name", By::Injector),
        ("chaos_stop", _) => ("stop_all", "fault_name", By::Injector),
        ("chaos_plan", _) => ("plan", "fault_name", By::Injector),
        ("chaos_plan_experiment", _) => ("plan_experiment", "experiment_name", By::Server),
        ("chaos_probe", _) => ("probe", "arguments", By::Server),
        ("chaos_register_experiment", _) => ("register_experiment", "title", By::Server),
        ("chaos_run_experiment", _) if dry_run => ("plan_experiment", "experiment_name", By::Server),
        ("chaos_run_experiment", _) => ("run", "experiment_name", By::Injector),
        ("chaos_schedule", "set") => ("set_schedule", "name", By::Server),
        ("chaos_schedule", "pause") => ("pause_schedule", "name", By::Server),
        ("chaos_schedule", "resume") => ("resume_schedule", "name", By::Server),
        ("chaos_schedule", "delete") => ("delete_schedule", "name", By::Server),
        ("chaos_search", "start") => ("start_search", "name", By::Server),
        ("chaos_search", "minimise") => ("minimise_search", "name", By::Server),
        ("chaos_search", "stop") => ("stop_search", "name", By::Server),
        ("chaos_describe_experiment", _) => ("describe_experiment", "experiment_name", By::Look),
        _ => return ("look".to_owned(), None, By::Look),
    };
    (act.to_owned(), Some(field), by)
}

/// On what a call is. Of a probe it is its kind and address, without what may be secret in it.
fn subject(field: &str, arguments: &Map<String, Value>) -> Option<String> {
    if let Some(text) = arguments.get(field).and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    let nested = ["experiment", "document"].iter().find_map(|document| {
        let document = arguments.get(*document)?.as_object()?;
        ["title", "name"].iter().find_map(|field| document.get(*field)?.as_str())
    });
    let nested = nested.or_else(|| arguments.get("experiment_name")?.as_str());
    let words = arguments.get(field).and_then(Value::as_array);
    let words = words.into_iter().flatten().filter_map(Value::as_str).take(2);
    let plain: Vec<_> = words.filter(|word| !word.starts_with('-')).map(without_secrets).collect();
    match (nested, plain.is_empty()) {
        (Some(title), _) => Some(title.to_owned()),
        (None, false) => Some(plain.join(" ")),
        (None, true) => None,
    }
}

/// An address without user, password, query and fragment.
fn without_secrets(word: &str) -> String {
    let plain = word.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        None => plain.to_owned(),
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tools;
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn every_tool_that_may_change_something_is_recorded_each_time_and_not_once_a_minute() {
        for tool in tools::list() {
            let hints = tool.annotations.unwrap();
            let actions: &[&str] = match tool.name.as_ref() {
                "chaos_schedule" => &["set", "pause", "resume", "delete"],
                "chaos_search" => &["start", "minimise", "stop"],
                "chaos_inject_fault" => &["register", "inject", "remove"],
                _ => &[""],
            };
            for action in actions {
                let (act, _, by) = act(&tool.name, &map(json!({"action": action})));
                let changes = hints.read_only_hint == Some(false);
                assert!(!changes || by != By::Look, "{} {action}: {act}", tool.name);
            }
        }
    }

    #[test]
    fn of_a_probe_its_kind_and_its_address_are_told_and_nothing_that_may_be_secret() {
        for (words, told) in [
            (
                json!(["http", "https://u:p@host/path?token=x", "--header", "A: b"]),
                Some("http https://host/path"),
            ),
            (json!(["tcp", "[::1]:22"]), Some("tcp [::1]:22")),
            (json!(["http", "--header", "Authorization: Bearer x", "http://host"]), Some("http")),
            (json!([]), None),
            (json!("text"), Some("text")),
        ] {
            assert_eq!(subject("arguments", &map(json!({"arguments": words}))).as_deref(), told, "{words}");
        }
    }
}
