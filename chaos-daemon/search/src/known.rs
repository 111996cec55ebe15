//! What the steps so far have shown: verdicts, noise, and what is to be expected of a candidate.

use crate::candidate::Candidate;
use crate::objective::NoData;
use crate::space::Space;
use crate::spec::{Method, Spec};
use crate::step::Step;

/// How much margins scatter, for all that is known before anything was repeated, and how many repetitions that counts as.
const NOISE: (f64, f64) = (0.05, 4.0);

/// What is known of a candidate that was run.
pub(crate) struct Point {
    pub(crate) candidate: Candidate,
    /// Of every run that has shown something.
    pub(crate) margins: Vec<f64>,
    /// Whether no more is to be asked of it.
    pub(crate) given_up: bool,
    /// How many have shown nothing.
    lost: u32,
}

impl Point {
    pub(crate) fn mean(&self) -> f64 {
        self.margins.iter().sum::<f64>() / self.margins.len().max(1) as f64
    }

    /// By how much it fails when it fails: a run that lies makes no failure better.
    pub(crate) fn when_it_fails(&self) -> f64 {
        let failures = self.margins.iter().filter(|margin| **margin > 0.0);
        failures.sum::<f64>() / self.failures().max(1) as f64
    }

    /// How many runs have failed.
    pub(crate) fn failures(&self) -> usize {
        self.margins.iter().filter(|margin| **margin > 0.0).count()
    }

    /// Whether it was run so often, and held most times.
    pub(crate) fn held(&self, least: usize) -> bool {
        self.margins.len() >= least.max(1) && self.failures() * 2 < self.margins.len()
    }

    /// Whether it was run so often, and failed at least half of the times.
    pub(crate) fn failed(&self, least: usize) -> bool {
        self.margins.len() >= least.max(1) && self.failures() * 2 >= self.margins.len()
    }
}

/// Whether a candidate fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fails,
    Holds,
    /// A run has to tell.
    Open,
    /// No run can tell: it was given up, or none is allowed.
    Barred,
}

/// What the steps so far have shown.
pub(crate) struct Known<'a> {
    pub(crate) spec: &'a Spec,
    /// One for each candidate, in the order of their first runs.
    pub(crate) points: Vec<Point>,
    /// The standard deviation of margins near the objective.
    pub(crate) noise: f64,
    steepness: f64,
}

impl<'a> Known<'a> {
    pub(crate) fn of(spec: &'a Spec, steps: &[Step]) -> Known<'a> {
        let mut points: Vec<Point> = Vec::new();
        if let Method::Minimise { from, margin } = &spec.method {
            let candidate = from.clone();
            points.push(Point { candidate, margins: vec![*margin], given_up: false, lost: 0 });
        }
        for step in steps {
            let Some(outcome) = &step.outcome else { continue };
            let at = points.iter().position(|point| point.candidate == step.candidate).unwrap_or_else(|| {
                let candidate = step.candidate.clone();
                points.push(Point { candidate, margins: Vec::new(), given_up: false, lost: 0 });
                points.len() - 1
            });
            let point = &mut points[at];
            match outcome.margin() {
                Ok(margin) => point.margins.push(margin),
                Err(why) => {
                    point.lost += 1;
                    point.given_up |= why == NoData::Refused || point.lost > spec.retries;
                }
            }
        }
        let noise = noise(&points);
        let mut known = Known { spec, points, noise, steepness: spec.steepness };
        known.steepness = known.steepest();
        known
    }

    pub(crate) fn space(&self) -> &'a Space {
        &self.spec.space
    }

    pub(crate) fn point(&self, candidate: &Candidate) -> Option<&Point> {
        self.points.iter().find(|point| point.candidate == *candidate)
    }

    /// How many runs of a candidate have shown something.
    pub(crate) fn runs(&self, candidate: &Candidate) -> usize {
        self.point(candidate).map_or(0, |point| point.margins.len())
    }

    /// The probability that a margin is above 0 without its noise, by the logistic curve that is nearest to the normal one.
    pub(crate) fn chance_of_failure(&self, margin: f64) -> f64 {
        1.0 / (1.0 + (-1.702 * margin.clamp(-1.0, 1.0) / self.noise).exp())
    }

    /// Whether a candidate fails.
    ///
    /// Its own runs tell: `least` of them if they agree clearly, and if not as many as confirm a failure. Without any, what is within
    /// it has failed, or it is within what has held.
    pub(crate) fn verdict(&self, candidate: &Candidate, least: usize) -> Verdict {
        let repeats = self.spec.repeats as usize;
        if let Some(point) = self.point(candidate).filter(|point| !point.margins.is_empty()) {
            let runs = point.margins.len();
            let agree = point.failures() == 0 || point.failures() == runs;
            let clear = agree && point.mean().abs() >= 2.0 * self.noise / (runs as f64).sqrt();
            let enough = runs >= repeats || (clear && runs >= least);
            if enough || point.given_up || self.allowed(candidate).is_none() {
                return if point.failed(1) { Verdict::Fails } else { Verdict::Holds };
            }
            return Verdict::Open;
        }
        let space = self.space();
        if self.points.iter().any(|point| point.held(1) && space.is_within(candidate, &point.candidate)) {
            return Verdict::Holds;
        }
        if self.points.iter().any(|point| point.failed(1) && space.is_within(&point.candidate, candidate)) {
            return Verdict::Fails;
        }
        if self.allowed(candidate).is_some() { Verdict::Open } else { Verdict::Barred }
    }

    /// What margin is to be expected of a candidate.
    ///
    /// Of one that was run, it is the mean of its runs; of one within what held, no more than that. Between what held and what failed
    /// it is so much of the rise as the candidate is of the way. If there is a jump, that is its height times the probability that it
    /// is passed. Where nothing harsher was run, it is where the steepest rise leads from what is milder. No fault at all is taken
    /// to just meet the objective.
    pub(crate) fn predicted(&self, candidate: &Candidate) -> f64 {
        let space = self.space();
        let ran = |point: &&Point| !point.margins.is_empty();
        if let Some(point) = self.point(candidate).filter(ran) {
            return point.mean();
        }
        let harsher = || self.points.iter().filter(ran).filter(|p| space.is_within(candidate, &p.candidate));
        let held = harsher().filter(|point| point.held(1)).map(Point::mean).reduce(f64::min);
        if let Some(held) = held {
            return held;
        }
        let milder = self.points.iter().filter(ran).filter(|p| space.is_within(&p.candidate, candidate));
        let below: Vec<(f64, f64)> = milder
            .map(|point| (point.mean(), space.distance(Some(&point.candidate), candidate)))
            .chain([(0.0, space.distance(None, candidate))])
            .collect();
        let between = harsher().filter_map(|point| {
            let rest = space.distance(Some(candidate), &point.candidate);
            let on_the_way = |(low, way): &(f64, f64)| {
                let whole = way + rest;
                if whole <= 0.0 { point.mean() } else { low + (point.mean() - low) * way / whole }
            };
            below.iter().map(on_the_way).reduce(f64::min)
        });
        let rising = || below.iter().map(|(low, way)| low + self.steepness * way).reduce(f64::min);
        between.reduce(f64::min).or_else(rising).unwrap_or(0.0)
    }

    /// What is predicted of a candidate, if it may be run.
    pub(crate) fn allowed(&self, candidate: &Candidate) -> Option<f64> {
        if self.point(candidate).is_some_and(|point| point.given_up)
            || self.space().magnitude(candidate) > self.spec.budget.magnitude + 1e-9
        {
            return None;
        }
        let predicted = self.predicted(candidate);
        (predicted <= self.spec.max_violation).then_some(predicted)
    }

    /// The steepest rise between two candidates that were run, and half as much again; what the document says at least. A jump
    /// is none: it says nothing of how steep the way to the next one is.
    fn steepest(&self) -> f64 {
        let smooth: Vec<&Point> =
            self.points.iter().filter(|point| !point.margins.is_empty() && point.mean() <= 1.0).collect();
        let mut steepest = self.spec.steepness;
        for high in &smooth {
            for low in smooth.iter().filter(|low| self.space().is_within(&low.candidate, &high.candidate)) {
                let way = self.space().distance(Some(&low.candidate), &high.candidate);
                if way >= 0.05 {
                    steepest = steepest.max(1.5 * (high.mean() - low.mean() - 2.0 * self.noise) / way);
                }
            }
        }
        steepest
    }
}

/// By how much runs of the same candidate differ that came out the same way: where failures come and go, that is no noise.
fn noise(points: &[Point]) -> f64 {
    let (mut squares, mut count) = (NOISE.0 * NOISE.0 * NOISE.1, NOISE.1);
    for point in points {
        for failed in [false, true] {
            let of_one_kind = point.margins.iter().filter(|margin| (**margin > 0.0) == failed);
            let margins: Vec<f64> = of_one_kind.map(|margin| margin.clamp(-1.0, 1.0)).collect();
            let mean = margins.iter().sum::<f64>() / margins.len().max(1) as f64;
            squares += margins.iter().map(|margin| (margin - mean).powi(2)).sum::<f64>();
            count += margins.len().saturating_sub(1) as f64;
        }
    }
    (squares / count).sqrt().max(1e-3)
}
