//! What happened in a run, and when: for its history, while it goes on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::document::Experiment;
use super::ending::Fate;
use super::entry::{Entries, Entry};
use super::gate::Watch;
use super::machine::{Effect, Event};
use super::role::{Role, Stage};
use super::variables::Variables;
use super::verdict::Verdict;
use crate::probe::Sample;
use crate::spec::FaultName;

/// How many samples of a run are kept whatever they say; beyond, as many that are not met, and as many of after the faults.
const KEPT_SAMPLES: usize = 5000;
/// The longest text of one entry, in characters.
const LONGEST_TEXT: usize = 500;

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A caller or a schedule began the run.
    Started,
    /// A phase began: before, method, lasting, unwinding, after, finished.
    Phase,
    /// The steady state was met, before or after.
    Met,
    /// It was not, before, during or after.
    NotMet,
    /// The injector was asked for a fault.
    Injecting,
    /// The fault is active.
    Injected,
    /// It could not be injected.
    InjectionFailed,
    /// The injector was asked to remove a fault.
    Removing,
    /// The fault is removed.
    Removed,
    /// It is removed and left something, or nobody knows.
    RemovalFailed,
    /// The fault ended before its time.
    EndedEarly,
    /// A gate was breached.
    Breach,
    /// An alert was seen to fire.
    AlertFired,
    /// It was seen to be gone again.
    AlertGone,
    /// An alert was not as the document expects.
    Finding,
    /// The run was ended before its time.
    Abort,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Occurrence {
    /// Seconds since the run began, on a clock that never goes back.
    pub at_seconds: f64,
    /// Wall clock, ISO 8601 in UTC.
    pub time: String,
    /// What kind of thing: started, phase, met, not_met, injecting, injected, injection_failed, removing, removed, removal_failed,
    /// ended_early, breach, alert_fired, alert_gone, finding, abort.
    #[schemars(with = "String")]
    pub kind: Kind,
    /// The phase, the fault, the gate or the alert that it is about; empty when it is the run.
    pub subject: String,
    /// More, for people.
    pub detail: String,
}

impl Occurrence {
    /// What comes before all else: `by` began the run, at `time`.
    pub fn started(time: &str, by: &str) -> Self {
        let (time, detail) = (time.to_owned(), format!("by {by}"));
        Self { at_seconds: 0.0, time, kind: Kind::Started, subject: String::new(), detail }
    }
}

/// A sample that was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// When it was judged: seconds since the run began, on a clock that never goes back.
    pub at_seconds: f64,
    /// The same on the wall clock, ISO 8601 in UTC.
    pub time: String,
    /// Name of the probe, gate or alert in the document.
    pub probe: String,
    /// What it was for: steady_state, gate, method, recovery, alert.
    #[schemars(with = "String")]
    pub role: Role,
    /// When: before, during, after.
    #[schemars(with = "String")]
    pub stage: Stage,
    /// Whether it is as it should be.
    pub met: bool,
    /// What was measured, if anything was.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// From the question to the answer, in seconds.
    pub took_seconds: f64,
    /// How much later it was asked for than its interval has it, in seconds; of what has no interval nothing.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_seconds: Option<f64>,
    /// Whether there was no data in it, of a gate: then it says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_data: bool,
    /// What was seen, for people.
    pub detail: String,
}

/// Everything that happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// What happened, in order.
    pub events: Vec<Occurrence>,
    /// What was sampled, in order.
    pub samples: Vec<Reading>,
    /// How many samples were taken and are not here, because there were too many.
    pub left_out: u64,
    /// The latest sample of each probe, gate and alert, those of gates first; also one that is not among the others.
    #[serde(skip)]
    latest: BTreeMap<(bool, Role, String), Reading>,
}

impl Timeline {
    /// The phase that the run is in, and when it began, in seconds since the run did.
    pub fn phase(&self) -> Option<(&str, f64)> {
        let phase = self.events.iter().rev().find(|event| event.kind == Kind::Phase)?;
        Some((&phase.subject, phase.at_seconds))
    }

    /// When the method began, in seconds since the run did.
    pub fn method_began(&self) -> Option<f64> {
        let is_method = |event: &&Occurrence| event.kind == Kind::Phase && event.subject == "method";
        self.events.iter().find(is_method).map(|event| event.at_seconds)
    }

    /// The latest sample of each probe, gate and alert: those of gates first.
    pub fn latest(&self) -> Vec<Reading> {
        self.latest.values().cloned().collect()
    }

    /// Keeps what decides on the run in any case, which is what is not met, and what comes after the faults; and of each probe the
    /// latest, kept or not. Whether it is kept.
    fn keep(&mut self, reading: Reading) -> bool {
        // Who looks for recovery looks at the steady state.
        let role = if reading.role == Role::Recovery { Role::SteadyState } else { reading.role };
        self.latest.insert((role != Role::Gate, role, reading.probe.clone()), reading.clone());
        let room = match (reading.met, reading.stage) {
            (_, Stage::After) => 3 * KEPT_SAMPLES,
            (false, _) => 2 * KEPT_SAMPLES,
            (true, _) => KEPT_SAMPLES,
        };
        let is_kept = self.samples.len() < room;
        match is_kept {
            true => self.samples.push(reading),
            false => self.left_out += 1,
        }
        is_kept
    }
}

/// Writes a run's timeline. No secret of the experiment gets into it.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    variables: Variables,
    names: BTreeMap<usize, FaultName>,
    timeline: Arc<Mutex<Timeline>>,
    /// Where all of it goes as it happens, too.
    entries: Option<Entries>,
}

impl Recorder {
    /// A timeline that begins now, of a run whose faults have these names, by activity.
    pub fn new(experiment: &Experiment, names: BTreeMap<usize, FaultName>) -> Self {
        Self::writing(experiment, names, Arc::default())
    }

    /// The same, which others can read while it is written.
    pub fn writing(
        experiment: &Experiment,
        names: BTreeMap<usize, FaultName>,
        timeline: Arc<Mutex<Timeline>>,
    ) -> Self {
        Self {
            began: Instant::now(),
            variables: experiment.variables.clone(),
            names,
            timeline,
            entries: None,
        }
    }

    /// The same, which goes to `entries` as it happens, too.
    #[must_use]
    pub fn with_entries(self, entries: Option<Entries>) -> Self {
        Self { entries, ..self }
    }

    /// Whoever takes entries may have gone, which is no reason to end.
    fn enter(&self, entry: impl FnOnce() -> Entry) {
        if let Some(entries) = &self.entries {
            let _ = entries.send(entry());
        }
    }

    /// Writes down what is known of the fault of an activity by now.
    pub(super) fn fate(&self, index: usize, fate: &Fate) {
        let Some(name) = self.names.get(&index) else { return };
        let at_seconds = self.began.elapsed().as_secs_f64();
        self.enter(|| Entry::Fault { name: name.to_string(), fate: *fate, at_seconds });
    }

    /// What is written so far.
    pub fn timeline(&self) -> Timeline {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the first sample of the steady state was judged at this stage that was not met.
    pub(super) fn first_unmet(&self, stage: Stage) -> Option<Instant> {
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unmet =
            |sample: &&Reading| sample.role == Role::SteadyState && sample.stage == stage && !sample.met;
        let at = timeline.samples.iter().find(is_unmet)?.at_seconds;
        Some(self.began + Duration::try_from_secs_f64(at).unwrap_or_default())
    }

    /// Writes down that something happened now.
    pub fn note(&self, kind: Kind, subject: &str, detail: &str) {
        let (at_seconds, time) = self.now();
        let (subject, detail) = (subject.to_owned(), self.shown(detail));
        let event = Occurrence { at_seconds, time, kind, subject, detail };
        let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        self.enter(|| Entry::Event(event.clone()));
        timeline.events.push(event);
    }

    /// Writes down what a sample said; `late`: how much later than its interval has it, if it has one, it was asked for.
    pub fn sampled(
        &self,
        probe: &str,
        (role, stage): (Role, Stage),
        sample: &Sample,
        met: bool,
        late: Option<Duration>,
    ) {
        self.read(probe, (role, stage), sample, (met, false), late);
    }

    /// Writes down what a sample of a gate said, which was judged by `watch`; otherwise as [`Self::sampled`].
    pub fn gated(&self, watch: &Watch<'_>, stage: Stage, sample: &Sample, late: Option<Duration>) {
        let judged = (!watch.is_bad(), watch.is_blind());
        self.read(&watch.gate().name, (Role::Gate, stage), sample, judged, late);
    }

    /// Writes down that a gate has never had data, if it has not.
    pub(super) fn note_blind(&self, watch: &Watch<'_>) {
        if let Some(finding) = watch.finding() {
            self.note(Kind::Finding, &watch.gate().name, &finding);
        }
    }

    fn read(
        &self,
        probe: &str,
        (role, stage): (Role, Stage),
        sample: &Sample,
        (met, no_data): (bool, bool),
        late: Option<Duration>,
    ) {
        let (at_seconds, time) = self.now();
        let reading = Reading {
            at_seconds,
            time,
            probe: probe.to_owned(),
            role,
            stage,
            met,
            value: sample.value.filter(|value| value.is_finite()),
            took_seconds: sample.took.as_secs_f64(),
            late_seconds: late.map(|late| late.as_secs_f64()),
            no_data,
            detail: self.shown(&sample.detail),
        };
        let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        if timeline.keep(reading.clone()) {
            self.enter(|| Entry::Sample(reading));
        }
    }

    /// Writes down what the state machine has heard of.
    pub(super) fn event(&self, event: &Event) {
        let name = |index: &usize| self.names.get(index).map(FaultName::as_str).unwrap_or_default();
        match event {
            Event::Sampled(Ok(())) => self.note(Kind::Met, "", ""),
            Event::Sampled(Err(unmet))
            | Event::Overdue(unmet)
            | Event::Deviated(unmet)
            | Event::Late(unmet) => {
                self.note(Kind::NotMet, "", unmet);
            }
            Event::Finding(_, what) => self.note(Kind::Finding, "", what),
            Event::Refused(_, what) => self.note(Kind::Abort, "", &format!("{}: {what}", Verdict::Refused)),
            Event::Injected(index, Ok(())) => self.note(Kind::Injected, name(index), ""),
            Event::Injected(index, Err(error)) => {
                self.note(Kind::InjectionFailed, name(index), &error.to_string());
            }
            Event::Gone(index, why) => self.note(Kind::EndedEarly, name(index), why),
            Event::Idle(index, what) => self.note(Kind::Finding, name(index), what),
            Event::Abort(verdict, why) => {
                let detail =
                    if *verdict == Verdict::Aborted { why.clone() } else { format!("{verdict}: {why}") };
                self.note(Kind::Abort, "", &detail);
            }
            Event::Removed(index, Ok(())) => self.note(Kind::Removed, name(index), ""),
            Event::Removed(index, Err(left)) => self.note(Kind::RemovalFailed, name(index), left),
            Event::Waited(..) | Event::Probed(_) | Event::Lasted | Event::Observed | Event::Unsampled => {}
        }
    }

    /// Writes down what the state machine has asked for; `before`: it does not know the steady state yet.
    pub(super) fn effect(&self, effect: &Effect, before: bool) {
        let name = |index: &usize| self.names.get(index).map(FaultName::as_str).unwrap_or_default();
        match effect {
            Effect::Sample => self.note(Kind::Phase, if before { "before" } else { "after" }, ""),
            Effect::Observe => self.note(Kind::Phase, "method", ""),
            Effect::Last(_) => self.note(Kind::Phase, "lasting", ""),
            Effect::Cancel => self.note(Kind::Phase, "unwinding", ""),
            Effect::Inject(index) => self.note(Kind::Injecting, name(index), ""),
            Effect::Remove(index) => self.note(Kind::Removing, name(index), ""),
            Effect::Finish(outcome) => self.note(Kind::Phase, "finished", outcome.verdict.name()),
            Effect::Wait(..) | Effect::Probe(_) => {}
        }
    }

    fn now(&self) -> (f64, String) {
        (self.began.elapsed().as_secs_f64(), format!("{:.3}", jiff::Timestamp::now()))
    }

    fn shown(&self, text: &str) -> String {
        let hidden = self.variables.hide(text);
        match hidden.char_indices().nth(LONGEST_TEXT) {
            Some((end, _)) => format!("{}…", &hidden[..end]),
            None => hidden,
        }
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
