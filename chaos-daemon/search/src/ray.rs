//! A way from a mild candidate to a harsh one, and what is known of where on it the failures begin.

use crate::candidate::{Candidate, Place};
use crate::known::{Known, Point};
use crate::space::Space;
use crate::spec::Spec;

/// Candidates in a row, each no harsher than the next.
pub(crate) struct Ray {
    top: Candidate,
    /// The places that move, each from the first rung to the second.
    moving: Vec<(Place, u32, u32)>,
    /// The number of the last candidate; the first has 0.
    pub(crate) last: u32,
}

impl Ray {
    /// From the mildest rungs of all ordered places up to `top`; what is not ordered stays as it is.
    pub(crate) fn up_to(space: &Space, top: &Candidate) -> Ray {
        let ordered = space.choices(top).into_iter().filter(|(_, ladder)| ladder.is_ordered());
        let moving: Vec<_> = ordered
            .filter_map(|(place, _)| Some((place, 0, top.rung(place)?)))
            .filter(|way| way.2 > 0)
            .collect();
        let last = moving.iter().map(|(_, from, to)| to - from).max().unwrap_or(0);
        Ray { top: top.clone(), moving, last }
    }

    /// The candidate with a number; the last one for all above.
    pub(crate) fn at(&self, number: u32) -> Candidate {
        let share =
            if self.last == 0 { 1.0 } else { f64::from(number.min(self.last)) / f64::from(self.last) };
        let mut candidate = self.top.clone();
        for (place, from, to) in &self.moving {
            candidate.set(*place, from + (f64::from(to - from) * share).round() as u32);
        }
        candidate
    }

    /// How much larger the values of the second candidate are than those of the first, as the largest share.
    fn apart(&self, space: &Space, low: u32, high: u32) -> f64 {
        let (low, high) = (self.at(low), self.at(high));
        let share = |place: &Place| {
            let ladder = space.ladder(*place)?;
            let (low, high) = (ladder.number(low.rung(*place)?), ladder.number(high.rung(*place)?));
            Some(if low == high { 0.0 } else { (high - low).abs() / high.abs().max(low.abs()) })
        };
        self.moving.iter().filter_map(|(place, ..)| share(place)).fold(0.0, f64::max)
    }

    /// The highest number of which something at least as harsh has held.
    pub(crate) fn highest_held(&self, known: &Known<'_>) -> Option<u32> {
        let bottom = self.at(0);
        let tells = |point: &&Point| point.held(1) && known.space().is_within(&bottom, &point.candidate);
        known
            .points
            .iter()
            .filter(tells)
            .filter_map(|point| self.below(known.space(), &point.candidate))
            .max()
    }

    /// The candidates of it that were run, by their numbers in order, each with the mean of its margins.
    pub(crate) fn run(&self, known: &Known<'_>) -> Vec<(u32, f64)> {
        let bottom = self.at(0);
        let on_it = |point: &Point| {
            let may = !point.margins.is_empty() && known.space().is_within(&bottom, &point.candidate);
            let number = if may { self.below(known.space(), &point.candidate)? } else { return None };
            (self.at(number) == point.candidate).then(|| (number, point.mean()))
        };
        let mut run: Vec<(u32, f64)> = known.points.iter().filter_map(on_it).collect();
        run.sort_by_key(|(number, _)| *number);
        run
    }

    /// The highest number that is within a candidate.
    fn below(&self, space: &Space, candidate: &Candidate) -> Option<u32> {
        first(self.last + 1, |number| !space.is_within(&self.at(number), candidate)).checked_sub(1)
    }

    /// The lowest number that a candidate is within; one more than the last if there is none.
    fn above(&self, space: &Space, candidate: &Candidate) -> u32 {
        first(self.last + 1, |number| space.is_within(candidate, &self.at(number)))
    }
}

/// The harshest candidate on the way up to this one whose magnitude may be.
pub(crate) fn affordable(spec: &Spec, top: Candidate) -> Candidate {
    let ray = Ray::up_to(&spec.space, &top);
    let fits = |number: &u32| spec.space.magnitude(&ray.at(*number)) <= spec.budget.magnitude + 1e-9;
    (0..=ray.last).rev().find(fits).map_or(top, |number| ray.at(number))
}

/// The first number for which something holds that holds for all after it, or `end`.
fn first(end: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// How often a run says the opposite of what is so, whatever its margin.
const FLAKE: f64 = 0.03;
/// How probable it is before any run that nothing on a ray fails.
const NEVER: f64 = 0.2;

/// With what probability the failures of a ray begin at each of its candidates: the posterior of all runs that tell of it.
///
/// Before any run each place is as probable as the others. A run with margin *m* says "fails" with the probability that *m* with
/// its noise is above 0; it is wrong in 3 % of cases at least. Runs beside the ray count by what is within what.
pub(crate) struct Boundary {
    /// Up to each number, and at last that there is no failure: 1.
    sums: Vec<f64>,
}

impl Boundary {
    pub(crate) fn of(ray: &Ray, known: &Known<'_>) -> Boundary {
        let places = ray.last as usize + 1;
        let mut weights = vec![(1.0 - NEVER) / places as f64; places];
        weights.push(NEVER);
        for point in known.points.iter().filter(|point| !point.margins.is_empty()) {
            let below = ray.below(known.space(), &point.candidate).map_or(0, |number| number as usize + 1);
            let above = ray.above(known.space(), &point.candidate) as usize;
            if below == 0 && above > ray.last as usize {
                continue;
            }
            for margin in &point.margins {
                let fails = known.chance_of_failure(*margin).clamp(FLAKE, 1.0 - FLAKE);
                for (first, weight) in weights.iter_mut().enumerate() {
                    // Where the failures begin below the point, it fails; where above, it holds.
                    *weight *= if first < below {
                        fails
                    } else if first > above {
                        1.0 - fails
                    } else {
                        0.5
                    };
                }
            }
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        let mut sum = 0.0;
        let sums = weights.iter().map(|weight| {
            sum += weight;
            sum
        });
        Boundary { sums: sums.collect() }
    }

    /// With what probability a candidate of the ray fails.
    pub(crate) fn chance(&self, number: u32) -> f64 {
        self.sums[number as usize]
    }

    /// The lowest number that fails with at least this probability; one more than the last if there is none.
    pub(crate) fn quantile(&self, chance: f64) -> u32 {
        self.sums.partition_point(|sum| *sum < chance).min(self.sums.len() - 1) as u32
    }

    /// Between which numbers the failures begin, with 90 %.
    pub(crate) fn interval(&self) -> (u32, u32) {
        (self.quantile(0.05), self.quantile(0.95))
    }

    /// Whether that is near enough for the document.
    pub(crate) fn is_precise(&self, ray: &Ray, known: &Known<'_>) -> bool {
        let (low, high) = self.interval();
        high <= ray.last && ray.apart(known.space(), low, high) <= known.spec.precision
    }
}
