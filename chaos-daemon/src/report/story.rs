//! What there is to say of a run, before it is mark-up: the table at the top, the findings, and what to do next.

use std::collections::BTreeSet;

use super::document::{called, deed, request, text, understood};
use super::facts::{Facts, active, not_active};
use super::words::{count, day, later, seconds};
use super::worst;
use crate::experiment::alert::Alarm;
use crate::experiment::blind::blind;
use crate::experiment::recovery::{Incident, is_outage};
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::Kind;
use crate::experiment::{Experiment, FailureMode, Verdict};
use crate::server::history::score::score;
use crate::server::history::{Recorded, RunFault};
use crate::spec::FaultType;

/// A run, understood as far as it can be.
pub(super) struct Story<'a> {
    pub(super) recorded: &'a Recorded,
    pub(super) experiment: Option<Experiment>,
    pub(super) facts: Facts<'a>,
}

/// A row of the table at the top: what it is about, and what there is to say. Rows of one kind follow each other.
pub(super) type Row = (&'static str, String);

impl<'a> Story<'a> {
    pub(super) fn of(recorded: &'a Recorded) -> Self {
        Self { recorded, experiment: understood(recorded), facts: Facts::of(recorded) }
    }

    /// The verdict as a word, and what it means.
    pub(super) fn verdict(&self) -> (&'static str, &'static str) {
        let run = &self.recorded.run;
        match run.verdict {
            Some(Verdict::Held) => (
                "Held",
                "The steady state was met whenever it was verified, and every fault was seen to act or may be idle.",
            ),
            Some(Verdict::Deviated) => ("Deviated", "The system did not do what the document expects of it."),
            Some(Verdict::Refused) => ("Refused", "Nothing was injected."),
            Some(Verdict::Tripped) => {
                ("Tripped", "A gate was breached, and every fault was removed at once.")
            }
            Some(Verdict::Failed) => {
                ("Failed", "The experiment itself went wrong, so it says nothing of the system.")
            }
            Some(Verdict::Aborted) => ("Aborted", "Somebody stopped it before its end."),
            Some(Verdict::Interrupted) => {
                ("Interrupted", "The record ends where it broke off, and claims nothing of the rest.")
            }
            Some(Verdict::Unverified) => ("Unverified", "It went as described, and shows nothing."),
            None if run.success => ("Success", "It was recorded before there were verdicts."),
            None => ("No success", "It was recorded before there were verdicts."),
        }
    }

    /// The table at the top.
    pub(super) fn rows(&self) -> Vec<Row> {
        let (recorded, run) = (self.recorded, &self.recorded.run);
        let mut rows: Vec<Row> = Vec::new();
        rows.extend(
            text(recorded, "steady-state-hypothesis/title").map(|title| ("Hypothesis", title.to_owned())),
        );
        rows.extend(self.steady().map(|told| ("Steady state", told)));
        rows.extend(recorded.host.clone().map(|host| ("Host", host)));
        rows.extend(self.who().map(|who| ("Who", who)));
        rows.push(("When", day(&run.started_at)));
        rows.push(("How long", seconds(run.duration_seconds)));
        rows.extend(run.stage.map(|stage| ("Blast radius", stage.to_string())));
        for fault in &recorded.faults {
            rows.push(("What was done", format!("{}: {}", called(recorded, &fault.name), self.done(fault))));
        }
        for fault in &recorded.faults {
            rows.extend(self.evidence(fault).map(|met| ("Evidence", met)));
        }
        for gate in worst::gates(recorded, self.experiment.as_ref()) {
            let told = worst::told(recorded, self.experiment.as_ref(), gate);
            rows.push(("Gate", format!("{gate}: {told}")));
        }
        let recovery = run.recovery.as_ref();
        for incident in recovery.iter().flat_map(|recovery| &recovery.incidents) {
            rows.push(("Recovery", format!("{}: {}", incident.action, self.recovered(incident))));
        }
        for alarm in recovery.iter().flat_map(|recovery| &recovery.alerts) {
            rows.push(("Alert", format!("{}: {}", alarm.alert, fired(alarm))));
        }
        rows.extend(score(recorded).map(|score| {
            let passed = score.probes.iter().filter(|probe| probe.passed).count();
            let of = count(score.probes.len() as u64, "probe");
            ("Score", format!("{} of 100: {passed} of {of} passed", score.score))
        }));
        rows
    }

    /// How the steady state was at each stage at which it was verified.
    fn steady(&self) -> Option<String> {
        let run = &self.recorded.run;
        let verified = run.verified?;
        let events = &self.recorded.events;
        let during = || {
            let unmet = |sample: &&crate::experiment::timeline::Reading| {
                sample.role == Role::SteadyState && sample.stage == Stage::During && !sample.met
            };
            !self.recorded.samples.iter().any(|sample| unmet(&sample))
        };
        let mut said = Vec::new();
        for (stage, is, met) in [
            ("before", verified.before, run.steady_state_before),
            ("during", verified.during, during()),
            ("after", verified.after, run.steady_state_after),
        ] {
            if is {
                said.push(format!("{} {stage}", if met { "met" } else { "not met" }));
            }
        }
        let known = !events.is_empty() && !said.is_empty();
        known.then(|| said.join(", "))
    }

    /// Whose run it is, and who or what began it.
    fn who(&self) -> Option<String> {
        let recorded = self.recorded;
        let begun = recorded.events.iter().find(|event| event.kind == Kind::Started);
        let begun = begun.map(|event| event.detail.trim_start_matches("by "));
        match (&recorded.owner, begun) {
            // It begins with whose it is.
            (Some(owner), Some(begun)) if begun.starts_with(owner.as_str()) => Some(begun.to_owned()),
            (Some(owner), Some(begun)) => Some(format!("{owner}, begun by {begun}")),
            (Some(owner), None) => Some(owner.clone()),
            (None, begun) => begun.map(str::to_owned),
        }
    }

    /// What a fault is, and when it was active.
    pub(super) fn done(&self, fault: &RunFault) -> String {
        let what = self.what(fault);
        match active(self.recorded).find(|(name, ..)| *name == fault.name) {
            Some((_, from, _)) if self.is_point(fault) => {
                format!("{what}; at {}", seconds(self.asked(&fault.name).unwrap_or(from)))
            }
            Some((_, from, to)) => format!("{what}; active from {} to {}", seconds(from), seconds(to)),
            None => format!("{what}; {}", not_active(self.recorded, fault)),
        }
    }

    /// What a fault is, and for how long it was to be.
    pub(super) fn what(&self, fault: &RunFault) -> String {
        let what = deed(self.recorded, self.experiment.as_ref(), fault);
        // What acts once only has time to watch what comes of it.
        match self.is_point(fault) {
            true => what,
            false => format!("{what}, for {}", seconds(fault.seconds)),
        }
    }

    /// What a fault has met, in its own units.
    fn evidence(&self, fault: &RunFault) -> Option<String> {
        let name = called(self.recorded, &fault.name);
        let mut met = fault.met();
        if fault.removed_clean == Some(false) {
            met.push("not seen to be removed without residue".to_owned());
        }
        match (fault.injected, met.is_empty()) {
            (_, false) => Some(format!("{name}: {}", met.join("; "))),
            (Some(true), true) => Some(format!("{name}: nothing is recorded of what it met")),
            (_, true) => None,
        }
    }

    /// How soon something was seen to fail, and to be well again, against the objective.
    pub(super) fn recovered(&self, incident: &Incident) -> String {
        if let Some(finding) = &incident.finding {
            return finding.clone();
        }
        let mut said = Vec::new();
        for (what, after) in [
            ("old process gone", incident.gone_after_seconds),
            ("seen to fail", incident.unreachable_after_seconds),
            ("new process", incident.new_process_after_seconds),
            ("recovered", incident.recovered_after_seconds),
        ] {
            said.extend(after.map(|after| format!("{what} after {}", seconds(after))));
        }
        if incident.recovered_after_seconds.is_none() {
            said.push("not seen to recover".to_owned());
        }
        let objective = self.recorded.run.recovery.as_ref().and_then(|recovery| recovery.rto_seconds);
        if let Some(objective) = objective.filter(|_| is_outage(incident.fault_type)) {
            let met = incident.recovered_after_seconds.map(|after| after <= objective);
            let met = match met {
                Some(true) => ": met",
                Some(false) => ": missed",
                None => "",
            };
            said.push(format!("objective {}{met}", seconds(objective)));
        }
        said.join(", ")
    }

    /// What else was found, each thing once.
    pub(super) fn findings(&self) -> Vec<String> {
        let (recorded, run) = (self.recorded, &self.recorded.run);
        let mut found: Vec<String> = Vec::new();
        let of_alerts = run.recovery.iter().flat_map(|recovery| &recovery.alerts);
        found.extend(of_alerts.filter_map(|alarm| alarm.finding.clone()));
        for event in &recorded.events {
            match event.kind {
                // What a gate has not seen is said by the count of its samples, which is nearer.
                Kind::Finding if event.detail.starts_with("never had data") => {}
                Kind::Finding => found.push(event.detail.clone()),
                Kind::RemovalFailed => {
                    found.push(format!(
                        "{} could not be removed: {}",
                        called(recorded, &event.subject),
                        event.detail
                    ));
                }
                _ => {}
            }
        }
        found.extend(blind(&recorded.samples).iter().map(|blind| format!("The {blind}.")));
        let unmet = recorded.samples.iter().filter(|sample| sample.role == Role::Method && !sample.met);
        let unmet: BTreeSet<_> = unmet.map(|sample| sample.probe.as_str()).collect();
        found.extend(unmet.iter().map(|probe| {
            format!("The probe {probe:?} of the method was not as it should be, which decides nothing.")
        }));
        if recorded.samples_left_out > 0 {
            let left_out = count(recorded.samples_left_out, "sample");
            found.push(format!("{left_out} are not recorded, because there were too many."));
        }
        let error = run.error.as_deref().unwrap_or_default();
        let mut said = BTreeSet::new();
        found.retain(|finding| !error.contains(finding.as_str()) && said.insert(finding.clone()));
        found
    }

    /// What to do next.
    pub(super) fn next(&self) -> Vec<String> {
        let (recorded, run) = (self.recorded, &self.recorded.run);
        let mut next: Vec<String> = self.step().into_iter().map(str::to_owned).collect();
        let left = recorded.events.iter().any(|event| event.kind == Kind::RemovalFailed);
        if left {
            next.push("See what is left on the host: chaosctl doctor --residue.".to_owned());
        }
        next.extend(run.next.as_ref().map(|next| sentence(next)));
        next
    }

    fn step(&self) -> Option<&'static str> {
        let mode = self.recorded.run.failure_mode?;
        Some(match mode {
            FailureMode::NotSteadyBefore => {
                "Get the system steady first: what was not as it should be before the method is in the table of what happened."
            }
            FailureMode::NotSteadyDuring
            | FailureMode::NotSteadyAfter
            | FailureMode::NotRecovered
            | FailureMode::RtoMissed => {
                "Find out what kept the system from its steady state. Mend it, run the experiment again, and lay both runs side by side: \
                 chaosctl report --compare."
            }
            FailureMode::GateBreached => {
                "Find out why the gate was breached. Mend that, run the experiment again, and lay both runs side by side: chaosctl \
                 report --compare."
            }
            FailureMode::AlertMissing | FailureMode::AlertUnexpected => {
                "Mend the alert, and run the experiment again."
            }
            FailureMode::TargetVanished => {
                "See that the target is there for as long as the method goes on, and run it again."
            }
            FailureMode::InjectionRefused => {
                "Change the document, or have whoever writes the policy allow it: chaosctl policy explain."
            }
            FailureMode::InjectionFailed | FailureMode::FaultEndedEarly => {
                "See what this host can do: chaosctl doctor. Then run it again."
            }
            FailureMode::ProbeBroken | FailureMode::MethodBroken => "Mend the document, and run it again.",
            FailureMode::RollbackFailed => "Look at the host before anything else is injected there.",
            FailureMode::Aborted => "Run it again when it may go on to its end.",
            FailureMode::Interrupted => "See in the log of the daemon why it ended, and run it again.",
            FailureMode::FaultIdle => {
                "Aim the fault at what is used: chaosctl targets shows what it would hit. Or send traffic while it is active."
            }
            FailureMode::NotVerified => {
                "Have the document verify its steady state during the method or after it."
            }
        })
    }

    /// When an incident began: when its action was asked for, in seconds since the run began.
    pub(super) fn began(&self, incident: &Incident) -> Option<f64> {
        let recorded = self.recorded;
        let mut faults = recorded.faults.iter().map(|fault| fault.name.as_str());
        self.asked(faults.find(|fault| called(recorded, fault) == incident.action)?)
    }

    /// When a fault was asked for, in seconds since the run began.
    pub(super) fn asked(&self, fault: &str) -> Option<f64> {
        let mut events = self.recorded.events.iter();
        let asked = events.find(|event| event.kind == Kind::Injecting && event.subject == fault)?;
        Some(asked.at_seconds)
    }

    /// Whether a fault acts once, at a moment, and not for a time.
    pub(super) fn is_point(&self, fault: &RunFault) -> bool {
        let of = FaultType::parse(&fault.fault_type).ok();
        let once = || {
            let times = request(self.recorded, self.experiment.as_ref(), fault)
                .and_then(|request| request.params.get("times")?.as_f64());
            times.is_none_or(|times| times <= 1.0)
        };
        of == Some(FaultType::ServiceRestart) || of == Some(FaultType::ProcessKill) && once()
    }

    /// A moment of the run on the wall clock.
    pub(super) fn time(&self, at_seconds: f64) -> String {
        later(&self.recorded.run.started_at, at_seconds)
    }
}

/// What became of an alert.
fn fired(alarm: &Alarm) -> String {
    let fired = match alarm.fired_after_seconds {
        Some(after) => format!("fired {} after \"{}\"", seconds(after), alarm.action),
        None => "not seen to fire".to_owned(),
    };
    match alarm.gone_after_seconds {
        Some(after) if after > 0.0 => {
            format!("{fired}, gone {} after the last fault was removed", seconds(after))
        }
        Some(_) => format!("{fired}, gone before the last fault was removed"),
        None => fired,
    }
}

/// With a capital at its beginning and a point at its end.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.trim().chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    ended(&format!("{first}{}", letters.as_str()))
}

/// With a point at its end.
pub(super) fn ended(text: &str) -> String {
    let end = if text.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{text}{end}")
}
