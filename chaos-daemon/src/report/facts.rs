//! What a report tells of a run: when faults were active, what failed first, and how it ended.

use crate::experiment::Verdict;
use crate::experiment::role::Role;
use crate::experiment::timeline::{Kind, Occurrence, Reading};
use crate::server::history::{Recorded, RunFault};

/// What a report tells of a run; times are seconds since it began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Facts<'a> {
    /// When the first fault was active.
    pub(super) injected: Option<f64>,
    /// When the last fault was removed.
    pub(super) removed: Option<f64>,
    /// The first sample after the first injection that was not met, of whatever was not for the record only.
    pub(super) first_unmet: Option<&'a Reading>,
    /// The first breach of a gate.
    pub(super) breach: Option<&'a Occurrence>,
    /// When the steady state was met after the last fault was removed.
    pub(super) met_again: Option<f64>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(recorded: &'a Recorded) -> Self {
        let at = |kind: Kind| recorded.events.iter().filter(move |event| event.kind == kind);
        let injected = at(Kind::Injected).next().map(|event| event.at_seconds);
        let removed = at(Kind::Removed).next_back().map(|event| event.at_seconds);
        let began = injected.unwrap_or_default();
        let first_unmet = recorded
            .samples
            .iter()
            .find(|sample| !sample.met && sample.role != Role::Method && sample.at_seconds >= began);
        let met_again = removed
            .and_then(|removed| at(Kind::Met).map(|event| event.at_seconds).find(|met| *met >= removed));
        Self { injected, removed, first_unmet, breach: at(Kind::Breach).next(), met_again }
    }
}

/// When a fault of a run was active: its name, from and to, in seconds since the run began.
pub(super) fn active(recorded: &Recorded) -> impl Iterator<Item = (&str, f64, f64)> {
    let ends = [Kind::Removed, Kind::RemovalFailed, Kind::EndedEarly];
    recorded.faults.iter().filter_map(move |fault| {
        let of = |event: &&Occurrence| event.subject == fault.name;
        let from = recorded.events.iter().filter(of).find(|event| event.kind == Kind::Injected)?.at_seconds;
        let to = recorded.events.iter().filter(of).find(|event| ends.contains(&event.kind));
        let to = to.map_or(recorded.run.duration_seconds, |event| event.at_seconds);
        Some((fault.name.as_str(), from, to.max(from)))
    })
}

/// How the run ended, in a word.
pub(super) fn verdict(recorded: &Recorded) -> &'static str {
    match (recorded.run.verdict, recorded.run.success) {
        (Some(verdict), _) => verdict.name(),
        (None, true) => "success",
        (None, false) => "no success",
    }
}

/// What there is to say of a fault that was not seen to be active: of a run that broke off, no more than is recorded.
pub(super) fn not_active(recorded: &Recorded, fault: &RunFault) -> &'static str {
    let has =
        |kind: Kind| recorded.events.iter().any(|event| event.kind == kind && event.subject == fault.name);
    let is_open = recorded.run.verdict == Some(Verdict::Interrupted);
    match (is_open, has(Kind::Injecting)) {
        (true, true) if !has(Kind::InjectionFailed) => {
            "was asked for; whether it was injected is unknown, for the record ends there"
        }
        // Its record, or that there is none, says so.
        (true, false) if recorded.events.iter().any(|event| event.kind == Kind::Phase) => {
            "was not asked for as far as the record goes"
        }
        (true, false) => "is not known to have been injected: nothing of it is recorded",
        _ => "was not injected",
    }
}
