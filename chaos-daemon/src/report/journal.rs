//! The run as the journal that Chaos Toolkit writes of its own runs,
//! <https://chaostoolkit.org/reference/api/journal/>, so that what reads such journals reads ours.

use serde_json::{Value, json};

use super::document::{action, called};
use super::facts::active;
use crate::experiment::Verdict;
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::{Kind, Occurrence, Reading};
use crate::server::history::{Recorded, RunFault};

/// The journal of a run.
pub fn report(recorded: &Recorded) -> Value {
    let run = &recorded.run;
    let finished = recorded.events.last().map_or(&run.started_at, |event| &event.time);
    let unmet_during =
        |sample: &Reading| sample.role == Role::SteadyState && sample.stage == Stage::During && !sample.met;
    let deviated = run.verdict == Some(Verdict::Deviated) || recorded.samples.iter().any(unmet_during);
    json!({
        "chaoslib-version": "1.0.0",
        "platform": concat!("chaos-daemon ", env!("CARGO_PKG_VERSION")),
        "node": recorded.host.as_deref().unwrap_or_default(),
        "experiment": experiment(recorded),
        "start": local(&run.started_at),
        "end": local(finished),
        "duration": run.duration_seconds,
        "status": status(run.verdict),
        "deviated": deviated,
        "steady_states": {
            "before": steady_states(recorded, Stage::Before).pop(),
            "after": steady_states(recorded, Stage::After).pop(),
            "during": steady_states(recorded, Stage::During),
        },
        "run": method(recorded),
        "rollbacks": rollbacks(recorded),
        "chaos-daemon": {"run_id": run.run_id, "verdict": run.verdict, "error": run.error, "digest": recorded.digest},
    })
}

/// Chaos Toolkit's word: deviating is beside it, and what was not steady before has failed.
fn status(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Held | Verdict::Deviated | Verdict::Unverified) | None => "completed",
        Some(Verdict::Refused | Verdict::Failed) => "failed",
        Some(Verdict::Tripped | Verdict::Aborted) => "aborted",
        Some(Verdict::Interrupted) => "interrupted",
    }
}

/// The document, or as much of one as is known.
fn experiment(recorded: &Recorded) -> Value {
    let mut document = recorded.document.clone().unwrap_or_default();
    let name = &recorded.run.experiment_name;
    for (field, value) in [("title", json!(name)), ("description", json!("")), ("method", json!([]))] {
        document.entry(field).or_insert(value);
    }
    Value::Object(document)
}

/// What the document says of an activity of this name.
fn activity(list: Option<&Value>, kind: &str, name: &str) -> Value {
    let mut known = list.and_then(Value::as_array).into_iter().flatten();
    let known = known.find(|activity| activity["name"] == name && activity["type"] == kind);
    known.cloned().unwrap_or_else(|| json!({"type": kind, "name": name}))
}

/// Each look at the steady state at this stage, in order: a probe that comes again begins the next.
fn steady_states(recorded: &Recorded, stage: Stage) -> Vec<Value> {
    let document = recorded.document.as_ref();
    let list = document.and_then(|document| document.get("steady-state-hypothesis")?.get("probes"));
    let mut looks: Vec<Vec<(&str, Value)>> = Vec::new();
    let samples = recorded.samples.iter();
    for sample in samples.filter(|sample| sample.role == Role::SteadyState && sample.stage == stage) {
        let mut taken = sampled(sample, activity(list, "probe", &sample.probe));
        taken["tolerance_met"] = json!(sample.met);
        match looks.last_mut() {
            Some(look) if look.iter().all(|(probe, _)| *probe != sample.probe) => {
                look.push((&sample.probe, taken))
            }
            _ => looks.push(vec![(&sample.probe, taken)]),
        }
    }
    let state = |look: Vec<(&str, Value)>| {
        let met = look.iter().all(|(_, probe)| probe["tolerance_met"] == json!(true));
        let probes: Vec<_> = look.into_iter().map(|(_, taken)| taken).collect();
        json!({"steady_state_met": met, "probes": probes})
    };
    looks.into_iter().map(state).collect()
}

/// A sample as Chaos Toolkit has the run of a probe. One without an answer has failed, as a probe has there that raises.
fn sampled(sample: &Reading, activity: Value) -> Value {
    let end = sample.time.parse::<jiff::Timestamp>().ok();
    let took = jiff::SignedDuration::try_from_secs_f64(sample.took_seconds).unwrap_or_default();
    let start = end.and_then(|end| end.checked_sub(took).ok());
    let output = output(sample, &activity["provider"]);
    let failed = output.is_null();
    let mut run = json!({
        "activity": activity,
        "output": output,
        "status": if failed { "failed" } else { "succeeded" },
        "start": start.map(utc),
        "end": end.map(utc),
        "duration": sample.took_seconds,
        "chaos-daemon": {"value": sample.value, "detail": sample.detail},
    });
    if failed {
        run["exception"] = json!([format!("{}\n", sample.detail)]);
    }
    run
}

/// What a provider returns in Chaos Toolkit, as far as it is recorded: of HTTP neither headers nor body are.
fn output(sample: &Reading, provider: &Value) -> Value {
    if provider["type"] == "process" {
        return json!({"status": u8::from(!sample.met), "stdout": format!("{}\n", sample.detail), "stderr": ""});
    }
    // It follows the address, in which there is no blank.
    let status = sample.detail.split_once(": status ").and_then(|(_, said)| {
        let digits = said.find(|c: char| !c.is_ascii_digit()).unwrap_or(said.len());
        said[..digits].parse::<u16>().ok()
    });
    status.map_or(Value::Null, |status| json!({"status": status, "headers": null, "body": null}))
}

/// Injections, removals within the method, and its samples, in order.
fn method(recorded: &Recorded) -> Value {
    let list = recorded.document.as_ref().and_then(|document| document.get("method"));
    let mut activities: Vec<(f64, Value)> = Vec::new();
    for (fault, from, to) in active(recorded) {
        let met = recorded.faults.iter().filter(|known| known.name == fault).flat_map(RunFault::met);
        let said = [format!("{fault}: active for {:.1} s", to - from)].into_iter().chain(met);
        let output = said.collect::<Vec<_>>().join("\n");
        let told = happened(recorded, fault, Kind::Injecting, Kind::Injected, &output, "succeeded");
        activities.extend(told.map(|told| (from, told)));
    }
    for event in recorded.events.iter().filter(|event| event.kind == Kind::InjectionFailed) {
        let told = happened(
            recorded,
            &event.subject,
            Kind::Injecting,
            Kind::InjectionFailed,
            &event.detail,
            "failed",
        );
        activities.extend(told.map(|told| (event.at_seconds, told)));
    }
    for sample in recorded.samples.iter().filter(|sample| sample.role == Role::Method) {
        activities.push((sample.at_seconds, sampled(sample, activity(list, "probe", &sample.probe))));
    }
    activities.sort_by(|left, right| left.0.total_cmp(&right.0));
    activities.into_iter().map(|(_, activity)| activity).collect()
}

/// Removals.
fn rollbacks(recorded: &Recorded) -> Value {
    let removed = recorded.events.iter().filter_map(|event| {
        let (status, output) = match event.kind {
            Kind::Removed => ("succeeded", "removed"),
            Kind::RemovalFailed => ("failed", event.detail.as_str()),
            _ => return None,
        };
        happened(recorded, &event.subject, Kind::Removing, event.kind, output, status)
    });
    removed.collect()
}

/// What was asked for a fault and came to an end, as an activity.
fn happened(
    recorded: &Recorded,
    fault: &str,
    asked: Kind,
    done: Kind,
    said: &str,
    status: &str,
) -> Option<Value> {
    let find = |kind: Kind| {
        let of = |event: &&Occurrence| event.kind == kind && event.subject == fault;
        recorded.events.iter().find(of)
    };
    let (asked, done) = (find(asked)?, find(done)?);
    let verb = if asked.kind == Kind::Injecting { "inject" } else { "remove" };
    let provider = json!({"type": "process", "path": "chaosctl", "arguments": [verb, fault]});
    let made_up = json!({"type": "action", "name": format!("{verb} {}", called(recorded, fault)), "provider": provider});
    let own = action(recorded, fault).filter(|_| asked.kind == Kind::Injecting);
    // As Chaos Toolkit has it of a process, which a command line of chaosctl is there.
    let failed = status == "failed";
    let (stdout, stderr) = if failed { ("", said) } else { (said, "") };
    let lines = |text: &str| if text.is_empty() { String::new() } else { format!("{text}\n") };
    Some(json!({
        "activity": own.cloned().unwrap_or(made_up),
        "output": {"status": u8::from(failed), "stdout": lines(stdout), "stderr": lines(stderr)},
        "status": status,
        "start": local(&asked.time),
        "end": local(&done.time),
        "duration": done.at_seconds - asked.at_seconds,
    }))
}

/// A time with its offset, RFC 3339. Chaos Toolkit writes UTC without saying so.
fn local(time: &str) -> String {
    time.strip_suffix('Z').map_or_else(|| time.to_owned(), |time| format!("{time}+00:00"))
}

fn utc(time: jiff::Timestamp) -> String {
    local(&format!("{time:.3}"))
}
