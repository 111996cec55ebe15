//! Carries a run out: asks the injector and the probes for what the state machine wants to know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::activity::Deed;
use super::ahead::refused;
pub(crate) use super::ahead::unexpected;
use super::alert::{self, Change};
use super::document::Experiment;
use super::ending::{Ending, Fate, Progress};
use super::gate::{Watch, bad_as_well};
use super::happened::{
    Happened, LOOK, ask, ask_for_alert, due, inject, look, observe, probe, remove, track, why_gone,
};
use super::machine::{Effect, Event, Machine, Pause};
use super::recovery::Tracker;
use super::role::{Role, Stage, Stages};
use super::sampling::Mode;
use super::timeline::{Kind, Recorder};
use super::verdict::Verdict;
use super::verification::{look_once, ready, recovered};
use crate::probe::prober::Prober;
use crate::probe::{NoData, Sample};
use crate::request::evidence::words::why_idle;
use crate::request::wire::Door;
use crate::request::{Caller, Evidence, FaultState, FaultStatus, Removal};
use crate::spec::{FaultName, Owner, QualifiedName};

/// How long after a sample the steady state is sampled again, to see when a system is gone and when it is back.
const OUTAGE_LOOK: Duration = Duration::from_millis(200);

/// How long a run that somebody has stopped still looks at the system once its faults are removed.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What a run needs of the daemon.
#[derive(Debug)]
pub struct Means<'a> {
    /// Who asked for it.
    pub caller: Caller,
    /// Whose its faults are.
    pub owner: Owner,
    /// The way to the injector.
    pub door: &'a Door,
    /// Who takes samples.
    pub prober: &'a Prober,
    /// The names of the faults, by activity.
    pub names: &'a BTreeMap<usize, FaultName>,
    /// Who writes down what happens.
    pub recorder: &'a Recorder,
}

impl Means<'_> {
    /// The name of the fault of an activity.
    pub(super) fn name(&self, index: usize) -> Option<QualifiedName> {
        self.names.get(&index).map(|name| QualifiedName::new(self.owner, name.clone()))
    }
}

/// Runs an experiment to its end. The future must be driven to completion: whoever may go away spawns it.
pub async fn drive(
    experiment: &Experiment,
    means: &Means<'_>,
    mut stop: watch::Receiver<()>,
    progress: &watch::Sender<Progress>,
) -> Ending {
    let mut run = Run {
        experiment,
        means,
        given_up: FuturesUnordered::new(),
        answers: FuturesUnordered::new(),
        active: BTreeMap::new(),
        affected: BTreeMap::new(),
        fates: BTreeMap::new(),
        likely: BTreeMap::new(),
        waits: BTreeSet::new(),
        looking: false,
        watches: experiment.guardrails.gates.iter().map(Watch::new).collect(),
        began: Instant::now(),
        breached: None,
        reaction: None,
        tracker: Tracker::new(experiment.guardrails.rto),
        tracking: false,
        alerts: experiment.guardrails.alerts.iter().map(alert::Watch::new).collect(),
        asking: BTreeSet::new(),
        is_after: false,
        stopped: false,
        sampled: None,
        asked: experiment.asked(),
        observing: FuturesUnordered::new(),
        unobserved: BTreeSet::new(),
        faultless: BTreeSet::new(),
        over: watch::channel(true).0,
    };
    let (mut machine, mut effects) = Machine::start(experiment.steps(), run.asked);
    let mut abandoned = false;
    loop {
        for effect in effects {
            means.recorder.effect(&effect, machine.is_before());
            if let Effect::Finish(outcome) = effect {
                let recovery = run.tracker.report(&run.alerts);
                return Ending { outcome, recovery, fates: run.fates };
            }
            run.begin(effect, &machine);
        }
        run.look();
        let happened = tokio::select! {
            // An error means that nobody is left who could stop it; that is no reason to go on.
            stopped = stop.changed(), if !abandoned => {
                abandoned = stopped.is_err();
                Happened::Stopped
            }
            Some(happened) = run.answers.next() => happened,
            Some(happened) = run.given_up.next() => happened,
            Some(happened) = run.observing.next() => happened,
        };
        let event = run.take_in(happened);
        effects = Vec::new();
        for event in event {
            tracing::info!(caller = %means.caller, experiment = experiment.name, ?event, "experiment goes on");
            means.recorder.event(&event);
            effects.extend(machine.step(event));
        }
        let affected = run.affected.values().sum();
        let (steady_before, verified) = (machine.steady_before(), machine.verified());
        let (reaction, going_on) = (run.reaction, machine.going_on());
        progress.send_modify(|now| *now = Progress { steady_before, verified, affected, reaction, going_on });
    }
}

/// What goes on for one run.
struct Run<'a> {
    experiment: &'a Experiment,
    means: &'a Means<'a>,
    /// Waiting and sampling, which can be given up at any time.
    given_up: FuturesUnordered<BoxFuture<'a, Happened>>,
    /// What the injector was asked, to which there has to be an answer.
    answers: FuturesUnordered<BoxFuture<'a, Happened>>,
    /// Faults that are active, and their ends.
    active: BTreeMap<usize, Instant>,
    /// What each fault has acted on.
    affected: BTreeMap<usize, u64>,
    /// What became of each fault that was asked for.
    fates: BTreeMap<usize, Fate>,
    /// Why their faults meet nothing, of those that do not.
    likely: BTreeMap<usize, String>,
    /// Those whose faults wait for their targets.
    waits: BTreeSet<usize>,
    looking: bool,
    watches: Vec<Watch<'a>>,
    began: Instant,
    /// When the sample was asked for that breached a gate.
    breached: Option<Instant>,
    reaction: Option<Duration>,
    tracker: Tracker,
    /// Whether the steady state is sampled for it.
    tracking: bool,
    alerts: Vec<alert::Watch<'a>>,
    /// Alerts that are being asked for.
    asking: BTreeSet<usize>,
    /// Whether every fault is removed.
    is_after: bool,
    /// Whether somebody has stopped it.
    stopped: bool,
    /// The steady state before or after, until there is nothing more to see of alerts, nor of the method.
    sampled: Option<Event>,
    /// When the steady state is to be verified.
    asked: Stages,
    /// Conditions that are being sampled while the method goes on. When it is over each is waited for: it was asked for under the
    /// faults.
    observing: FuturesUnordered<BoxFuture<'a, Happened>>,
    /// Conditions that are to be sampled while the method goes on, and were not yet.
    unobserved: BTreeSet<usize>,
    /// Those that are due as soon as there is a fault.
    faultless: BTreeSet<usize>,
    /// Whether the method is over, or has not begun.
    over: watch::Sender<bool>,
}

impl<'a> Run<'a> {
    fn begin(&mut self, effect: Effect, machine: &Machine) {
        let (experiment, means) = (self.experiment, self.means);
        match effect {
            Effect::Sample => self.sample(machine),
            Effect::Observe => {
                self.over.send_replace(false);
                for (index, condition) in experiment.conditions.iter().enumerate() {
                    if condition.sampling.is_due(Role::SteadyState, Stage::During) {
                        let first = Instant::now() + condition.sampling.initial_delay;
                        self.unobserved.insert(index);
                        self.given_up.push(due(index, first).boxed());
                    }
                }
                for index in 0..experiment.guardrails.gates.len() {
                    self.given_up.push(ask(experiment, index, Instant::now(), means.prober).boxed());
                }
            }
            Effect::Wait(index, pause) => {
                let time = experiment.method.get(index).map(|activity| match pause {
                    Pause::Before => activity.before,
                    Pause::After => activity.after.unwrap_or_default(),
                });
                let waited = move |()| Happened::Event(Event::Waited(index, pause));
                self.given_up.push(sleep(time.unwrap_or_default()).map(waited).boxed());
            }
            Effect::Probe(index) => self.given_up.push(probe(experiment, index, means).boxed()),
            Effect::Inject(index) => self.answers.push(inject(experiment, index, means).boxed()),
            Effect::Last(faults) => {
                let end = faults.iter().filter_map(|index| self.active.get(index)).max().copied();
                let lasted = |()| Happened::Event(Event::Lasted);
                self.given_up.push(sleep_until(end.unwrap_or_else(Instant::now)).map(lasted).boxed());
            }
            Effect::Cancel => {
                self.over.send_replace(true);
                if !machine.goes_as_described() {
                    self.observing.clear();
                }
                self.given_up.clear();
                self.looking = false;
                self.tracking = false;
                self.asking.clear();
            }
            Effect::Remove(index) => {
                // What ends a run may have ended its faults, too.
                let end = self.active.remove(&index).filter(|_| machine.goes_as_described());
                self.answers.push(remove(index, end, means).boxed());
            }
            Effect::Finish(_) => {}
        }
    }

    /// Has the steady state sampled, before or after, if it is asked for then. What else has to hold before is looked at in any case.
    fn sample(&mut self, machine: &Machine) {
        let (experiment, means, asked) = (self.experiment, self.means, self.asked);
        self.reaction = self.breached.map(|breached| breached.elapsed());
        let sampled = |sampled| Happened::Event(Event::Sampled(sampled));
        if machine.is_before() {
            let judged = move |ready| match ready {
                Ok(()) if !asked.before => Event::Unsampled,
                ready => Event::Sampled(ready),
            };
            let ready = ready(experiment, means.prober, means.recorder).map(judged);
            let names = experiment.faults().filter_map(|(index, ..)| means.name(index)).collect();
            let both = futures_util::future::join(refused(experiment, names, means.door), ready);
            self.given_up.push(both.map(|(refused, ready)| Happened::Ready(refused, ready)).boxed());
            return;
        }
        self.all_removed(machine.goes_as_described());
        if self.stopped {
            self.given_up.push(sleep(LAST_LOOK).map(|()| Happened::Enough).boxed());
        }
        let has_time = experiment.guardrails.recovery.is_some();
        let in_time = move |looked| match looked {
            Err(unmet) if has_time => Happened::Event(Event::Overdue(unmet)),
            looked => sampled(looked),
        };
        self.given_up.push(match (asked.after, self.stopped) {
            (false, _) => std::future::ready(Happened::Event(Event::Unsampled)).boxed(),
            (true, false) => recovered(experiment, means).map(in_time).boxed(),
            (true, true) => look_once(experiment, means).map(sampled).boxed(),
        });
    }

    /// Has the faults looked at from time to time, as long as there are some.
    fn look(&mut self) {
        if !self.looking && !self.active.is_empty() {
            self.looking = true;
            self.given_up.push(look(self.means.door).boxed());
        }
    }

    /// What it means to the machine.
    fn take_in(&mut self, happened: Happened) -> Vec<Event> {
        match happened {
            Happened::Event(event @ (Event::Sampled(_) | Event::Overdue(_) | Event::Unsampled)) => {
                self.sampled(event)
            }
            Happened::Event(event) => vec![event],
            Happened::Ready(refused, ready) => {
                let refused = refused.into_iter().map(|(code, what)| Event::Refused(code, what));
                refused.chain(self.sampled(ready)).collect()
            }
            Happened::Stopped => self.stop(),
            Happened::Enough => self.give_up(),
            Happened::Injected(index, asked, end, result) => {
                let injected = result.is_ok();
                self.fates.insert(index, Fate { injected, ..Fate::default() });
                self.means.recorder.fate(index, &self.fates[&index]);
                if let Ok(evidence) = &result {
                    self.met(index, evidence);
                    self.active.insert(index, end);
                    self.acted(index, asked);
                    self.observe_faults();
                }
                vec![Event::Injected(index, result.map(drop))]
            }
            Happened::Tracked(asked, met) => {
                self.tracker.observe(asked - self.began, self.began.elapsed(), met);
                self.tracking = false;
                self.track(OUTAGE_LOOK);
                Vec::new()
            }
            Happened::Due(index, at) => {
                self.observe(index, at);
                Vec::new()
            }
            Happened::Observed(index, at, observed) => self.observed(index, at, observed),
            Happened::Gated(index, due, asked, sample) => self.gated(index, due, asked, &sample),
            Happened::Alerted(index, due, asked, sample) => self.alerted(index, due, asked, sample),
            Happened::Looked(faults) => {
                self.looking = false;
                // No answer is not "gone": what cannot be read is unknown, and a fault has its own deadline.
                faults.map_or_else(Vec::new, |faults| self.compare(&faults))
            }
            Happened::Removed(index, answer, met, gone) => {
                if let Some(evidence) = met {
                    self.met(index, &evidence);
                }
                let result = answer.map_err(|error| error.to_string()).and_then(|removals| {
                    residue(&removals).map_or(Ok(()), |residue| Err(format!("left behind: {residue}")))
                });
                let fate = self.fates.entry(index).or_default();
                fate.removed_clean = fate.injected && result.is_ok();
                self.means.recorder.fate(index, fate);
                let gone = gone.map(|why| Event::Gone(index, why));
                // What was not removed may act still.
                let idle = result.is_ok().then(|| self.idle(index)).flatten();
                let idle = idle.map(|what| Event::Idle(index, what));
                gone.into_iter().chain(idle).chain([Event::Removed(index, result)]).collect()
            }
        }
    }

    /// Has a condition sampled while the method goes on, unless it is about what faults do and there is none: then it is due when there
    /// is.
    fn observe(&mut self, index: usize, at: Instant) {
        let Some(condition) = self.experiment.conditions.get(index) else { return };
        if *self.over.borrow() {
            return;
        }
        match condition.sampling.mode == Mode::OnChaos && self.active.is_empty() {
            true => _ = self.faultless.insert(index),
            false => {
                let over = self.over.subscribe();
                self.observing.push(observe(condition, index, at, self.means, over).boxed());
            }
        }
    }

    /// Has those conditions sampled that are about what faults do: there is one.
    fn observe_faults(&mut self) {
        for index in std::mem::take(&mut self.faultless) {
            self.given_up.push(due(index, Instant::now()).boxed());
        }
    }

    /// What a condition means while the method goes on; it is sampled again an interval after the last time was due. An answer that
    /// comes when the method is over still counts for it, but not as one that tells when the system was gone.
    fn observed(&mut self, index: usize, at: Instant, observed: Result<(), String>) -> Vec<Event> {
        let Some(condition) = self.experiment.conditions.get(index) else { return Vec::new() };
        let goes_on = !*self.over.borrow();
        if goes_on {
            let next = (at + condition.sampling.interval).max(Instant::now());
            self.given_up.push(due(index, next).boxed());
        }
        let last = self.unobserved.remove(&index) && self.unobserved.is_empty();
        let mut events = Vec::new();
        if last || observed.is_err() {
            events.push(Event::Observed);
        }
        if let Err(unmet) = observed {
            // Of one condition alone: that all are met again is another question, which is not asked of one that is about faults alone.
            if goes_on && condition.sampling.is_due(Role::Recovery, Stage::During) {
                self.tracker.observe(at - self.began, self.began.elapsed(), false);
                self.track(OUTAGE_LOOK);
            }
            let unmet = self.experiment.variables.hide(&unmet);
            events.push(match goes_on && condition.sampling.stop_on_failure {
                true => Event::Abort(
                    Verdict::Deviated,
                    format!("steady state not met during the action: {unmet}: ended by its stopOnFailure"),
                ),
                false => Event::Deviated(unmet),
            });
        }
        events.extend(self.all_seen());
        events
    }

    /// The steady state before or after: after, it is the last word on an outage.
    fn sampled(&mut self, sampled: Event) -> Vec<Event> {
        let now = self.began.elapsed();
        if let Some(unmet) = self.means.recorder.first_unmet(Stage::After) {
            let unmet = unmet.saturating_duration_since(self.began);
            self.tracker.observe(unmet, unmet, false);
        }
        if sampled != Event::Unsampled {
            self.tracker.observe(now, now, sampled == Event::Sampled(Ok(())));
        }
        self.sampled = Some(sampled);
        self.tracker.too_late().map(Event::Late).into_iter().chain(self.all_seen()).collect()
    }

    /// What is known at last, unless an alert, or a sample of the method, is still being waited for.
    fn all_seen(&mut self) -> Vec<Event> {
        if !self.asking.is_empty() || !self.observing.is_empty() {
            return Vec::new();
        }
        let Some(sampled) = self.sampled.take() else { return Vec::new() };
        self.findings().chain([sampled]).collect()
    }

    /// What was not as it should be of alerts.
    fn findings(&self) -> impl Iterator<Item = Event> {
        let found = |watch: &alert::Watch<'_>| Some(Event::Finding(watch.failure(), watch.finding()?));
        self.alerts.iter().filter_map(found)
    }

    /// Begins to track what the fault of this activity does, an outage at once, and to ask for the alerts of which time counts from here.
    fn acted(&mut self, index: usize, asked: Instant) {
        let experiment = self.experiment;
        let Some(activity) = experiment.method.get(index) else { return };
        if let Deed::Inject { fault, .. } = &activity.deed {
            self.tracker.acted(index, &activity.name, fault.fault_type, asked - self.began);
            self.track(Duration::ZERO);
        }
        for (number, alert) in experiment.guardrails.alerts.iter().enumerate() {
            if alert.action(&experiment.method) == Some(index) {
                self.alerts[number].acted(&activity.name, asked - self.began);
                self.ask_for(number, Instant::now());
            }
        }
    }

    /// Has every alert asked for once more that there is something to see of. `described`: the run went as it had to.
    fn all_removed(&mut self, described: bool) {
        self.is_after = true;
        let found = |watch: &Watch<'_>| self.means.recorder.note_blind(watch);
        self.watches.iter().for_each(found);
        for number in 0..self.alerts.len() {
            self.alerts[number].removed(self.began.elapsed(), described);
            self.ask_for(number, Instant::now());
        }
    }

    /// Has an alert asked for at this time, if there is something to see of it.
    fn ask_for(&mut self, number: usize, at: Instant) {
        if self.alerts[number].is_pending() && self.asking.insert(number) {
            self.given_up.push(ask_for_alert(self.experiment, number, at, self.means.prober).boxed());
        }
    }

    fn alerted(&mut self, number: usize, due: Instant, asked: Instant, sample: Sample) -> Vec<Event> {
        self.asking.remove(&number);
        let sample = Sample { detail: self.experiment.variables.hide(&sample.detail), ..sample };
        let (alert, watch) = (&self.experiment.guardrails.alerts[number], &mut self.alerts[number]);
        let recorder = self.means.recorder;
        let change = watch.observe(asked - self.began, self.began.elapsed(), &sample);
        let stage = if self.is_after { Stage::After } else { Stage::During };
        let late = Some(asked.saturating_duration_since(due));
        recorder.sampled(&alert.name, (Role::Alert, stage), &sample, watch.is_met(), late);
        match change {
            Some(Change::Fired) => recorder.note(Kind::AlertFired, &alert.name, &sample.detail),
            Some(Change::Gone) => recorder.note(Kind::AlertGone, &alert.name, &sample.detail),
            None => {}
        }
        self.ask_for(number, asked + alert.interval);
        self.all_seen()
    }

    /// Somebody stops the run: what is injected is removed as ever, and beyond that nothing is waited for.
    fn stop(&mut self) -> Vec<Event> {
        self.stopped = true;
        self.observing.clear();
        self.tracker.stop(self.began.elapsed());
        let stop = Event::Abort(Verdict::Aborted, "stopped before its time".to_owned());
        let then = if self.is_after { self.give_up() } else { Vec::new() };
        [vec![stop], then].concat()
    }

    /// What is not known by now of a run all faults of which are removed is not found out any more.
    fn give_up(&mut self) -> Vec<Event> {
        self.alerts.iter_mut().for_each(alert::Watch::give_up);
        self.asking.clear();
        self.given_up.clear();
        self.observing.clear();
        let sampled = self.sampled.take().unwrap_or(Event::Unsampled);
        self.findings().chain([sampled]).collect()
    }

    /// Samples the steady state as long as it is not known whether an outage is over, if it has to be met at the end.
    fn track(&mut self, pause: Duration) {
        if self.asked.after && !self.tracking && self.tracker.is_open() {
            self.tracking = true;
            self.given_up.push(track(self.experiment, pause, self.means).boxed());
        }
    }

    /// Judges a gate, and has it sampled again, an interval after the last time.
    fn gated(&mut self, index: usize, due: Instant, asked: Instant, sample: &Sample) -> Vec<Event> {
        let (Some(watch), Some(gate)) =
            (self.watches.get_mut(index), self.experiment.guardrails.gates.get(index))
        else {
            return Vec::new();
        };
        let recorder = self.means.recorder;
        let breach = watch.observe(asked - self.began, sample);
        let late = Some(asked.saturating_duration_since(due));
        recorder.gated(watch, Stage::During, sample, late);
        if let Some(breach) = breach {
            recorder.note(Kind::Breach, &gate.name, &breach);
            let as_well = bad_as_well(&self.watches, index, asked - self.began);
            let breach = [breach].into_iter().chain(as_well).collect::<Vec<_>>().join("; ");
            self.breached = Some(asked);
            // A probe that does not work says nothing about the system.
            let broken = sample.no_data == Some(NoData::Error);
            let verdict = if broken { Verdict::Failed } else { Verdict::Tripped };
            return vec![Event::Abort(verdict, self.experiment.variables.hide(&breach))];
        }
        let next = asked + gate.interval;
        self.given_up.push(ask(self.experiment, index, next, self.means.prober).boxed());
        Vec::new()
    }

    /// Which faults have ended too early. Those at the end of their time are no longer looked at.
    fn compare(&mut self, faults: &[FaultStatus]) -> Vec<Event> {
        let mut gone = Vec::new();
        let soon = Instant::now() + LOOK;
        for (index, end) in self.active.clone() {
            let name = self.means.name(index);
            let found = faults.iter().find(|fault| Some(&fault.name) == name.as_ref());
            if let Some(fault) = found {
                self.met(index, &fault.evidence);
                self.likely.extend(fault.likely.clone().map(|why| (index, why)));
                self.waits(index, fault);
            }
            if found.is_some_and(|fault| fault.state != FaultState::Ended) {
                continue;
            }
            match end > soon {
                true => gone.push(Event::Gone(index, why_gone(found))),
                false => drop(self.active.remove(&index)),
            }
        }
        gone
    }

    /// Notes when a fault begins to wait for its target, and when it goes on.
    fn waits(&mut self, index: usize, fault: &FaultStatus) {
        let changed = match fault.state {
            FaultState::Waiting => self.waits.insert(index),
            FaultState::NoTraffic | FaultState::Effective => self.waits.remove(&index),
            FaultState::Starting | FaultState::Ending | FaultState::Ended | FaultState::Stuck => false,
        };
        if changed {
            let note = fault.note.as_deref().unwrap_or_default();
            self.means.recorder.note(Kind::Finding, fault.name.name.as_str(), note);
        }
    }

    /// What the fault of an activity has met so far.
    fn met(&mut self, index: usize, evidence: &Evidence) {
        self.affected.insert(index, evidence.affected());
        self.tracker.saw(index, &evidence.recovery());
        let fate = self.fates.entry(index).or_default();
        fate.effective |= evidence.is_effect();
        fate.evidence = Some(*evidence);
        self.means.recorder.fate(index, fate);
    }

    /// What there is to say of a fault that was injected and was not seen to act until its end, unless it may be idle.
    fn idle(&self, index: usize) -> Option<String> {
        let (fate, activity) = (self.fates.get(&index)?, self.experiment.method.get(index)?);
        let Deed::Inject { fault, .. } = &activity.deed else { return None };
        if !fate.injected || fate.effective || activity.may_be_idle {
            return None;
        }
        let likely = self.likely.get(&index).map(|why| format!("; the likely reason: {why}"));
        let why =
            why_idle(&fate.evidence.unwrap_or_default(), fault.fault_type) + &likely.unwrap_or_default();
        let way_out = "see to its target, or say may_be_idle: true of the action";
        Some(format!("the fault of {:?} acted on nothing: {why} ({way_out})", activity.name))
    }
}

/// What removals left behind, for people.
pub(crate) fn residue(removals: &[Removal]) -> Option<String> {
    let residue: Vec<_> = removals.iter().flat_map(|removal| removal.residue.iter().cloned()).collect();
    (!residue.is_empty()).then(|| residue.join(", "))
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
