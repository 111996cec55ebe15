//! A search: what was asked, what came of it, and what to ask next.

use serde::{Deserialize, Serialize};

use crate::budget::Cost;
use crate::candidate::Candidate;
use crate::error::{Invalid, Unexpected};
use crate::explore::{explore, way_down};
use crate::known::{Known, Point};
use crate::minimise::{minimise, way};
use crate::narrow::narrow;
use crate::objective::{Outcome, rank};
use crate::ray::{Boundary, Ray, affordable};
use crate::searcher::Searcher;
use crate::spec::{Method, Spec};
use crate::step::{Finish, Next, Step};

/// A run that is to be made now.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial<'a> {
    /// Its place among the steps, from 0.
    pub number: usize,
    /// What to run, and why.
    pub step: &'a Step,
    /// How many seconds the system has to itself first.
    pub wait_seconds: f64,
    /// At which stage of the blast radius.
    pub stage_percent: u8,
}

/// Where a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has to be asked.
    Ready,
    /// The outcome of its last step is to be told.
    Pending,
    /// It has ended.
    Finished(Finish),
}

/// The best answer so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The failure.
    pub candidate: Candidate,
    /// The mean margin of its runs that failed.
    pub margin: f64,
    /// How many runs of it have shown something, and how many of those failed.
    pub runs: (usize, usize),
    /// Between what shares of its runs fail, with 95 %: Wilson's score interval of those numbers.
    pub fails: (f64, f64),
    /// Whether it was run as often as the document asks for.
    pub confirmed: bool,
    /// The mildest and the harshest candidate at which the failures of its ray may begin, with 90 %: the 5 % and the 95 % of
    /// the posterior over the ray. Nothing where no ray was followed.
    pub begins: Option<(Candidate, Candidate)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    spec: Spec,
    steps: Vec<Step>,
    finished: Option<Finish>,
}

/// A search. What is written of it is all that it knows; it goes on from there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Search {
    spec: Spec,
    steps: Vec<Step>,
    finished: Option<Finish>,
}

impl TryFrom<Written> for Search {
    type Error = Invalid;

    fn try_from(written: Written) -> Result<Search, Invalid> {
        let Written { spec, steps, finished } = written;
        spec.check()?;
        let strange =
            steps.iter().any(|step| !spec.space.holds(&step.candidate) || !step.predicted.is_finite());
        let open = steps.iter().rev().skip(1).any(|step| step.outcome.is_none());
        if strange || open || steps.len() > spec.budget.runs as usize {
            return Err(Invalid::new(
                "the list of steps",
                "is not of this search".into(),
                "as it was written",
            ));
        }
        Ok(Search { spec, steps, finished })
    }
}

impl From<Search> for Written {
    fn from(search: Search) -> Written {
        Written { spec: search.spec, steps: search.steps, finished: search.finished }
    }
}

impl Search {
    /// A search that has asked for nothing yet.
    pub fn new(mut spec: Spec) -> Result<Search, Invalid> {
        let numbers = [
            &mut spec.max_violation,
            &mut spec.steepness,
            &mut spec.precision,
            &mut spec.budget.seconds,
            &mut spec.budget.magnitude,
            &mut spec.budget.violation,
            &mut spec.budget.overhead_seconds,
            &mut spec.budget.recovery_seconds,
        ];
        numbers.into_iter().for_each(|number| *number = crate::exact(*number));
        if let Method::Minimise { margin, .. } = &mut spec.method {
            *margin = crate::exact(*margin);
        }
        spec.check()?;
        Ok(Search { spec, steps: Vec::new(), finished: None })
    }

    /// What was asked of it.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Every step, with the pending one.
    pub fn history(&self) -> &[Step] {
        &self.steps
    }

    /// Where it is.
    pub fn state(&self) -> State {
        match (self.finished, self.steps.last()) {
            (Some(finish), _) => State::Finished(finish),
            (None, Some(Step { outcome: None, .. })) => State::Pending,
            (None, _) => State::Ready,
        }
    }

    /// The run to make now; the same one until its outcome was told. It is to be written down before the run begins: so it counts
    /// whatever happens. Nothing if the search has ended.
    pub fn next_trial(&mut self) -> Option<Trial<'_>> {
        match self.state() {
            State::Finished(_) => return None,
            State::Pending => {}
            State::Ready => match self.decide() {
                Ok(step) => self.steps.push(step),
                Err(finish) => {
                    self.finished = Some(finish);
                    return None;
                }
            },
        }
        let number = self.steps.len() - 1;
        let budget = &self.spec.budget;
        Some(Trial {
            number,
            step: &self.steps[number],
            wait_seconds: if number == 0 { 0.0 } else { budget.recovery_seconds },
            stage_percent: budget.stage_percent,
        })
    }

    /// Takes the outcome of the pending step.
    pub fn tell_outcome(&mut self, outcome: Outcome) -> Result<(), Unexpected> {
        match self.steps.last_mut() {
            Some(step @ Step { outcome: None, .. }) => {
                step.outcome = Some(outcome.exact());
                Ok(())
            }
            _ => Err(Unexpected("no run of this search is pending")),
        }
    }

    /// Ends it for good, whatever it has found; what has ended stays as it is. The outcome of a pending run can still be told.
    pub fn stop(&mut self) {
        self.finished.get_or_insert(Finish::Stopped);
    }

    fn decide(&self) -> Result<Step, Finish> {
        let known = Known::of(&self.spec, &self.steps);
        let next = match (&self.spec.method, self.spec.only_choice()) {
            (Method::Minimise { from, .. }, _) => minimise(&known, from, 2),
            (Method::Auto | Method::Bisection, Some(top)) => {
                narrow(&known, &Ray::up_to(&self.spec.space, &affordable(&self.spec, top)))
            }
            _ => explore(&known, self.steps.len()),
        };
        let (candidate, reason) = match next {
            Next::Try(candidate, reason) => (candidate, reason),
            Next::Done(finish) => return Err(finish),
        };
        let predicted = known.allowed(&candidate).ok_or(Finish::TooHarsh)?;
        let seconds = self.spec.space.seconds(&candidate);
        match self.spec.budget.lacks(&self.cost(), seconds, predicted) {
            Some(spent) => Err(Finish::Budget(spent)),
            None => Ok(Step { candidate, reason, predicted: crate::exact(predicted), outcome: None }),
        }
    }

    /// What the steps have cost; a pending one as it is planned.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost::default();
        for step in &self.steps {
            let planned = self.spec.space.seconds(&step.candidate);
            let took = step.outcome.as_ref().map_or(planned, |outcome| outcome.seconds);
            let seen = step.outcome.as_ref().and_then(|outcome| outcome.margin().ok()).unwrap_or(0.0);
            let recovery = if cost.runs == 0 { 0.0 } else { self.spec.budget.recovery_seconds };
            cost.runs += 1;
            cost.seconds += took + recovery;
            cost.violation += step.predicted.max(seen).max(0.0);
            cost.overrun = cost.overrun.max(took - planned);
        }
        cost
    }

    /// The best failure so far: one that was confirmed before others, then the one that [ranks](rank) first.
    pub fn best(&self) -> Option<Best> {
        let known = Known::of(&self.spec, &self.steps);
        let ray = self.ray(&known);
        let repeats = self.spec.repeats as usize;
        let ranked = |point: &&Point| {
            let magnitude = self.spec.space.magnitude(&point.candidate);
            let faults = point.candidate.faults.len();
            let seconds = self.spec.space.seconds(&point.candidate);
            (point.margins.len() < repeats, rank(point.when_it_fails(), magnitude, seconds), faults)
        };
        let point = known.points.iter().filter(|point| point.failed(1)).min_by_key(ranked)?;
        let runs = (point.margins.len(), point.failures());
        let begins = ray.map(|ray| {
            let (low, high) = Boundary::of(&ray, &known).interval();
            (ray.at(low), ray.at(high))
        });
        Some(Best {
            candidate: point.candidate.clone(),
            margin: point.when_it_fails(),
            runs,
            fails: wilson(runs.1, runs.0),
            confirmed: runs.0 >= repeats,
            begins,
        })
    }

    /// The ray on which the boundary is looked for, once there is one.
    pub(crate) fn ray(&self, known: &Known<'_>) -> Option<Ray> {
        match (&self.spec.method, self.spec.only_choice()) {
            (Method::Minimise { from, .. }, _) => Some(way(known, from)),
            (Method::Auto | Method::Bisection, Some(top)) => {
                Some(Ray::up_to(&self.spec.space, &affordable(&self.spec, top)))
            }
            _ => way_down(known),
        }
    }

    /// What is known, for a picture of it.
    pub(crate) fn known(&self) -> Known<'_> {
        Known::of(&self.spec, &self.steps)
    }
}

impl Searcher for Search {
    fn ask(&mut self) -> Option<Candidate> {
        self.next_trial().map(|trial| trial.step.candidate.clone())
    }

    fn tell(&mut self, candidate: &Candidate, outcome: Outcome) -> Result<(), Unexpected> {
        match self.steps.last() {
            Some(step) if step.candidate == *candidate => self.tell_outcome(outcome),
            _ => Err(Unexpected("it is of another candidate")),
        }
    }
}

/// Between what shares something happens, with 95 %, that has happened so often (Wilson 1927).
fn wilson(happened: usize, runs: usize) -> (f64, f64) {
    let (n, z) = (runs as f64, 1.96);
    if runs == 0 {
        return (0.0, 1.0);
    }
    let share = happened as f64 / n;
    let middle = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
