//! The life of one run as a pure function: what happened goes in, what to do next comes out.
//!
//! ```text
//! Before ─ met ─> Method ─ done ─> Lasting ─ over ─┐
//!    │               └── stopped, failed, gone ────┴─> Unwinding ─ all removed ─> After ─> finished
//!    └ not met, stopped ────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! In the method one activity follows the other, and those in the background go on beside them. Each waits, does what it
//! does, and waits again. Whatever else happens, the run goes through Unwinding as soon as anything has been injected.
//! What the document does not ask of the steady state is not sampled; Before and After are gone through all the same.

use super::failure::FailureMode;
use super::role::Stages;
use super::verdict::Verdict;
use crate::request::{ApiError, ErrorCode};

/// One activity of the method, as far as the order of things depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub deed: Deed,
    /// Whether the next one starts without waiting for it.
    pub background: bool,
    /// Whether there is a pause before it.
    pub before: bool,
    /// Whether there is a pause after it. An injection without one lasts as long as its fault.
    pub after: bool,
}

/// What an activity does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Injects its fault.
    Inject,
    /// Removes the fault of that activity.
    Remove(usize),
    /// Takes a sample.
    Probe,
}

/// Which pause of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Before it.
    Before,
    /// After it.
    After,
}

/// What happened. Numbers are those of activities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The steady state was sampled, before or after; the text says what was not met.
    Sampled(Result<(), String>),
    /// Before anything is done, a fault of the run is refused, or none can be planned; the text says which, and why. It comes before
    /// what the steady state is.
    Refused(ErrorCode, String),
    /// The steady state after was not met in the time that it has; the text says what was not met.
    Overdue(String),
    /// The steady state before is not asked for, and all else is ready; or the steady state after will not be known.
    Unsampled,
    /// While the method went on the steady state was sampled often enough to be judged: everything once, or what was not met.
    Observed,
    /// A pause is over.
    Waited(usize, Pause),
    /// The injector answered.
    Injected(usize, Result<(), ApiError>),
    /// A sample was taken.
    Probed(usize),
    /// Every fault that lasts has had its time.
    Lasted,
    /// The steady state was not met while the method went on; the text says what. The answer may come later.
    Deviated(String),
    /// The steady state was met again, and later than it had to be; the text says when.
    Late(String),
    /// An alert was not as the document expects; the text says what.
    Finding(FailureMode, String),
    /// A fault ended before its time, as was seen while it was to be active or when it was to be removed; the text says why.
    Gone(usize, String),
    /// A fault is at its end and was not seen to act, and the document does not allow that; the text says what it met. It comes
    /// before the fault is removed.
    Idle(usize, String),
    /// The run is to end now, with this verdict; the text says why.
    Abort(Verdict, String),
    /// The injector answered that the fault of this activity is removed; the text names residue.
    Removed(usize, Result<(), String>),
}

/// What to do next. Numbers are those of activities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Sample the steady state once.
    Sample,
    /// Go on sampling what is to be sampled while the method goes on: gates, and the steady state if that is asked for.
    Observe,
    /// Wait.
    Wait(usize, Pause),
    /// Inject a fault.
    Inject(usize),
    /// Take a sample.
    Probe(usize),
    /// Wait until these faults have had their time.
    Last(Vec<usize>),
    /// Give up all waiting and sampling.
    Cancel,
    /// Remove a fault.
    Remove(usize),
    /// Nothing: the run is over.
    Finish(Outcome),
}

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The last word on it.
    pub verdict: Verdict,
    /// Whether the steady state was met before the method; never, if it was not verified then.
    pub steady_before: bool,
    /// Whether it was met after; likewise.
    pub steady_after: bool,
    /// When it was verified, whatever came of it.
    pub verified: Stages,
    /// What went wrong, in order, after semicolons; failed removals last.
    pub error: Option<String>,
    /// What failed first, unless it was a success.
    pub failure: Option<FailureMode>,
    /// What could not be removed, a text for each fault of which something is left; empty when all is clean.
    pub left: Vec<String>,
}

impl Outcome {
    /// Whether the system kept its steady state, the run went as described, and its faults acted.
    pub fn success(&self) -> bool {
        self.verdict == Verdict::Held
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    Method,
    Lasting,
    Unwinding,
    After,
    Finished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Idle,
    Before,
    Doing,
    After,
    Done,
}

/// The fault of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Asked,
    Active,
    Removing,
    Over,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Machine {
    steps: Vec<Step>,
    /// When the steady state is to be verified.
    asked: Stages,
    /// When it was.
    verified: Stages,
    phase: Phase,
    /// The next activity to start.
    next: usize,
    tasks: Vec<Task>,
    faults: Vec<Fault>,
    steady_before: bool,
    /// In what way the system was not as it had to be; the first counts.
    deviation: Option<FailureMode>,
    /// What ended it before its time, or kept it from going as described; the first counts.
    cause: Option<(Verdict, FailureMode)>,
    /// The faults that acted on nothing.
    idle: Vec<String>,
    errors: Vec<String>,
    left: Vec<String>,
}

impl Machine {
    /// A run of `steps` that has not begun, in which the steady state is to be verified when it is `asked` for, and the first
    /// thing to do.
    pub fn start(steps: Vec<Step>, asked: Stages) -> (Self, Vec<Effect>) {
        let (tasks, faults) = (vec![Task::Idle; steps.len()], vec![Fault::None; steps.len()]);
        let machine = Self {
            steps,
            asked,
            verified: Stages::default(),
            phase: Phase::Before,
            next: 0,
            tasks,
            faults,
            steady_before: false,
            deviation: None,
            cause: None,
            idle: Vec::new(),
            errors: Vec::new(),
            left: Vec::new(),
        };
        (machine, vec![Effect::Sample])
    }

    /// Whether the steady state was met before the method.
    pub fn steady_before(&self) -> bool {
        self.steady_before
    }

    /// When the steady state was verified so far.
    pub fn verified(&self) -> Stages {
        self.verified
    }

    /// Whether the steady state before the method is not known yet.
    pub fn is_before(&self) -> bool {
        self.phase == Phase::Before
    }

    /// The numbers of the activities that go on, or whose faults do.
    pub fn going_on(&self) -> Vec<usize> {
        let is_done = |index: usize| {
            let task = self.phase != Phase::Method || matches!(self.tasks[index], Task::Idle | Task::Done);
            task && matches!(self.faults[index], Fault::None | Fault::Over)
        };
        (0..self.steps.len()).filter(|index| !is_done(*index)).collect()
    }

    /// Whether nothing has ended the run before its time, or kept it from going as described.
    pub fn goes_as_described(&self) -> bool {
        self.cause.is_none()
    }

    /// Takes in what happened. What comes late, after it was given up, changes nothing; an injection that nobody asked for ends
    /// the run by way of removal, so that no mistake of the driver can leave a fault behind.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Sampled(sampled) => self.sampled(sampled),
            Event::Refused(code, what) => {
                if self.phase == Phase::Before {
                    let what = format!("refused before anything was done: {what}");
                    self.fault(Verdict::Refused, FailureMode::of_refusal(code), what);
                }
                Vec::new()
            }
            Event::Overdue(unmet) if self.phase == Phase::After => {
                self.unmet(FailureMode::NotRecovered, &unmet)
            }
            Event::Overdue(_) => Vec::new(),
            Event::Unsampled if self.phase == Phase::Before && !self.asked.before => self.begin(),
            Event::Unsampled if self.phase == Phase::After => self.finish(false),
            Event::Unsampled => Vec::new(),
            Event::Observed => {
                self.verified.during |= self.asked.during && self.has_begun();
                Vec::new()
            }
            Event::Waited(index, pause) => self.waited(index, pause),
            Event::Injected(index, result) => self.injected(index, result),
            Event::Probed(index) => match self.tasks.get(index) {
                Some(Task::Doing) if self.steps[index].deed == Deed::Probe => self.done(index),
                _ => Vec::new(),
            },
            Event::Lasted if self.phase == Phase::Lasting => self.unwind(),
            Event::Lasted => Vec::new(),
            Event::Deviated(unmet) => {
                if self.has_begun() && self.deviation.is_none() {
                    self.deviation = Some(FailureMode::NotSteadyDuring);
                    self.errors.push(format!("steady state not met during the action: {unmet}"));
                }
                Vec::new()
            }
            Event::Late(what) => self.found(FailureMode::RtoMissed, what),
            Event::Finding(mode, what) => self.found(mode, what),
            Event::Gone(index, why) => self.gone(index, &why),
            Event::Idle(index, what) => {
                // What ends a run may have come before its faults could act.
                if self.faults.get(index) == Some(&Fault::Removing) && self.goes_as_described() {
                    self.idle.push(what);
                }
                Vec::new()
            }
            Event::Abort(verdict, why) if self.phase == Phase::Before => {
                self.fault(verdict, FailureMode::of_end(verdict), why);
                self.finish(false)
            }
            Event::Abort(verdict, why) if self.runs() => {
                self.fault(verdict, FailureMode::of_end(verdict), why);
                self.unwind()
            }
            // All is being removed, or is: whoever sends this does not wait for more than that.
            Event::Abort(verdict, why) if matches!(self.phase, Phase::Unwinding | Phase::After) => {
                self.fault(verdict, FailureMode::of_end(verdict), why);
                Vec::new()
            }
            Event::Abort(..) => Vec::new(),
            Event::Removed(index, result) => self.removed(index, result),
        }
    }

    /// Notes what went wrong; to be stopped twice says no more than once.
    fn fault(&mut self, verdict: Verdict, mode: FailureMode, what: String) {
        self.cause.get_or_insert((verdict, mode));
        if !self.errors.contains(&what) {
            self.errors.push(what);
        }
    }

    /// Notes what the system, or who watches it, was not like; the run goes on.
    fn found(&mut self, mode: FailureMode, what: String) -> Vec<Effect> {
        if self.phase == Phase::After {
            self.deviation.get_or_insert(mode);
            self.errors.push(what);
        }
        Vec::new()
    }

    /// The last word on the steady state after, if it was asked for.
    fn unmet(&mut self, mode: FailureMode, unmet: &str) -> Vec<Effect> {
        if !self.asked.after {
            return self.finish(false);
        }
        self.verified.after = true;
        self.deviation.get_or_insert(mode);
        self.errors.push(format!("steady state not met after the action: {unmet}"));
        self.finish(false)
    }

    /// Whether the method goes on, or its faults do.
    fn runs(&self) -> bool {
        matches!(self.phase, Phase::Method | Phase::Lasting)
    }

    /// Whether the method has begun, and the run is not finished.
    fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Before | Phase::Finished)
    }

    /// Begins the method, unless a fault of it is refused already.
    fn begin(&mut self) -> Vec<Effect> {
        if self.cause.is_some() {
            return self.finish(false);
        }
        self.phase = Phase::Method;
        let mut effects = vec![Effect::Observe];
        effects.extend(self.advance());
        effects
    }

    fn sampled(&mut self, sampled: Result<(), String>) -> Vec<Effect> {
        match (self.phase, sampled) {
            (Phase::Before, Ok(())) => {
                self.verified.before = self.asked.before;
                self.steady_before = self.asked.before;
                self.begin()
            }
            (Phase::Before, Err(unmet)) => {
                self.verified.before = self.asked.before;
                // Gates and alerts are looked at in any case.
                let not = if self.asked.before { "steady state not met" } else { "not ready" };
                let what = format!("{not} before the action: {unmet}");
                self.fault(Verdict::Refused, FailureMode::NotSteadyBefore, what);
                self.finish(false)
            }
            (Phase::After, Ok(())) => {
                self.verified.after = self.asked.after;
                self.finish(self.asked.after)
            }
            (Phase::After, Err(unmet)) => self.unmet(FailureMode::NotSteadyAfter, &unmet),
            _ => Vec::new(),
        }
    }

    /// Starts what can start now, and goes on to the next phase when all is done.
    fn advance(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while self.phase == Phase::Method && self.next < self.steps.len() && !self.is_busy() {
            let index = self.next;
            self.next += 1;
            if self.steps[index].before {
                self.tasks[index] = Task::Before;
                effects.push(Effect::Wait(index, Pause::Before));
            } else {
                effects.extend(self.carry_out(index));
            }
        }
        let all_done = self.next == self.steps.len() && self.tasks.iter().all(|task| *task == Task::Done);
        if self.phase == Phase::Method && all_done {
            let lasting = (0..self.steps.len())
                .filter(|index| self.faults[*index] == Fault::Active && !self.steps[*index].after);
            let lasting: Vec<_> = lasting.collect();
            match lasting.is_empty() {
                true => effects.extend(self.unwind()),
                false => {
                    self.phase = Phase::Lasting;
                    effects.push(Effect::Last(lasting));
                }
            }
        }
        effects
    }

    /// Whether an activity that is not in the background goes on.
    fn is_busy(&self) -> bool {
        let mut tasks = self.steps.iter().zip(&self.tasks);
        tasks.any(|(step, task)| !step.background && !matches!(task, Task::Idle | Task::Done))
    }

    fn carry_out(&mut self, index: usize) -> Vec<Effect> {
        self.tasks[index] = Task::Doing;
        match self.steps[index].deed {
            Deed::Inject => {
                self.faults[index] = Fault::Asked;
                vec![Effect::Inject(index)]
            }
            Deed::Probe => vec![Effect::Probe(index)],
            Deed::Remove(target) => match self.faults.get(target) {
                Some(Fault::Active) => {
                    self.faults[target] = Fault::Removing;
                    vec![Effect::Remove(target)]
                }
                Some(Fault::Over) => self.done(index),
                _ => {
                    let what = "an action was to remove a fault that was not active yet";
                    self.fault(Verdict::Failed, FailureMode::MethodBroken, what.to_owned());
                    self.unwind()
                }
            },
        }
    }

    /// The deed of an activity is done.
    fn done(&mut self, index: usize) -> Vec<Effect> {
        if self.steps[index].after {
            self.tasks[index] = Task::After;
            return vec![Effect::Wait(index, Pause::After)];
        }
        self.tasks[index] = Task::Done;
        self.advance()
    }

    fn waited(&mut self, index: usize, pause: Pause) -> Vec<Effect> {
        match (self.phase, self.tasks.get(index), pause) {
            (Phase::Method, Some(Task::Before), Pause::Before) => self.carry_out(index),
            (Phase::Method, Some(Task::After), Pause::After) => {
                self.tasks[index] = Task::Done;
                self.advance()
            }
            _ => Vec::new(),
        }
    }

    fn injected(&mut self, index: usize, result: Result<(), ApiError>) -> Vec<Effect> {
        let Some(fault) = self.faults.get(index).copied() else { return Vec::new() };
        match (fault, &result) {
            (Fault::Asked, Ok(())) if self.phase == Phase::Method => {
                self.faults[index] = Fault::Active;
                self.done(index)
            }
            (Fault::Asked, Ok(())) => self.remove(index),
            (Fault::Asked, Err(error)) => {
                let what = format!("injecting failed: {error}");
                self.fault(Verdict::Failed, FailureMode::of_refusal(error.code), what);
                // Refused means unchanged: to remove now could hit a fault of the same name that is another's. Only
                // without an answer the fault may be there.
                let uncertain = error.code == ErrorCode::Unavailable;
                self.faults[index] = if uncertain { Fault::Active } else { Fault::Over };
                self.unwind()
            }
            (_, Err(_)) => Vec::new(),
            (_, Ok(())) => {
                let what = format!("the run lost its way: {result:?} for activity {index}");
                self.fault(Verdict::Failed, FailureMode::MethodBroken, what);
                self.faults[index] = Fault::Active;
                self.unwind()
            }
        }
    }

    /// That a fault was gone when it was to be removed says something only of a run that has gone as described until then: what
    /// ends a run may have ended its faults, too.
    fn gone(&mut self, index: usize, why: &str) -> Vec<Effect> {
        let is_news = match self.faults.get(index) {
            Some(Fault::Active) => self.runs(),
            Some(Fault::Removing) => self.goes_as_described(),
            _ => false,
        };
        if !is_news {
            return Vec::new();
        }
        let what = format!("the fault ended before its time: {why}");
        self.fault(Verdict::Failed, FailureMode::FaultEndedEarly, what);
        self.unwind()
    }

    fn removed(&mut self, index: usize, result: Result<(), String>) -> Vec<Effect> {
        if self.faults.get(index) != Some(&Fault::Removing) {
            return Vec::new();
        }
        self.faults[index] = Fault::Over;
        self.left.extend(result.err());
        if self.phase == Phase::Unwinding {
            return self.look_again();
        }
        let remover = (0..self.steps.len()).find(|other| {
            self.tasks[*other] == Task::Doing && self.steps[*other].deed == Deed::Remove(index)
        });
        remover.map_or_else(Vec::new, |remover| self.done(remover))
    }

    fn remove(&mut self, index: usize) -> Vec<Effect> {
        self.faults[index] = Fault::Removing;
        vec![Effect::Remove(index)]
    }

    /// Removes what is active, the latest first. What was asked for and not answered yet is removed when it is.
    fn unwind(&mut self) -> Vec<Effect> {
        let mut effects = if self.phase == Phase::Unwinding { Vec::new() } else { vec![Effect::Cancel] };
        self.phase = Phase::Unwinding;
        for (index, fault) in self.faults.iter_mut().enumerate().rev() {
            if *fault == Fault::Active {
                *fault = Fault::Removing;
                effects.push(Effect::Remove(index));
            }
        }
        effects.extend(self.look_again());
        effects
    }

    /// Samples the steady state once nothing is active any more.
    fn look_again(&mut self) -> Vec<Effect> {
        let pending = |fault: &Fault| matches!(fault, Fault::Asked | Fault::Active | Fault::Removing);
        if self.faults.iter().any(pending) {
            return Vec::new();
        }
        self.phase = Phase::After;
        vec![Effect::Sample]
    }

    fn finish(&mut self, steady_after: bool) -> Vec<Effect> {
        self.phase = Phase::Finished;
        let unsteady = (self.asked.after && !steady_after).then_some(FailureMode::NotSteadyAfter);
        let unseen = self.asked.during && !self.verified.during;
        let unasked = !(self.asked.during || self.asked.after);
        let harmless = !self.steps.iter().any(|step| step.deed == Deed::Inject);
        let (verdict, failure) = match (self.cause, self.left.is_empty(), self.deviation.or(unsteady)) {
            (Some((verdict, mode)), ..) => (verdict, Some(mode)),
            (None, false, _) => (Verdict::Failed, Some(FailureMode::RollbackFailed)),
            (None, true, Some(mode)) => (Verdict::Deviated, Some(mode)),
            (None, true, None) if !self.idle.is_empty() => {
                (Verdict::Unverified, Some(FailureMode::FaultIdle))
            }
            (None, true, None) if unseen || unasked || harmless => {
                (Verdict::Unverified, Some(FailureMode::NotVerified))
            }
            (None, true, None) => (Verdict::Held, None),
        };
        let mut texts = std::mem::take(&mut self.errors);
        texts.append(&mut self.idle);
        if verdict == Verdict::Unverified {
            if unseen {
                texts.push("the steady state was not sampled while the method went on".to_owned());
            }
            if unasked {
                texts.push(
                    "the steady state is to be verified neither during the method nor after".to_owned(),
                );
            }
            if harmless {
                texts.push(
                    "nothing was injected, so that nothing is known of how faults are borne".to_owned(),
                );
            }
            texts = vec![format!("unverified: {}", texts.join("; "))];
        }
        let left = std::mem::take(&mut self.left);
        if !left.is_empty() {
            if texts.is_empty() {
                texts.push("the action was carried out".to_owned());
            }
            texts.extend(left.iter().map(|left| format!("rollback failed: {left}")));
        }
        let error = (!texts.is_empty()).then(|| texts.join("; "));
        let (steady_before, verified) = (self.steady_before, self.verified);
        vec![Effect::Finish(Outcome { verdict, steady_before, steady_after, verified, error, failure, left })]
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
