//! Up many rays, until something fails.

use std::collections::HashSet;

use crate::candidate::Candidate;
use crate::known::{Known, Verdict};
use crate::minimise::{minimise, way};
use crate::narrow::{strides, up_to};
use crate::ray::{Ray, affordable};
use crate::spec::Spec;
use crate::step::{Finish, Next};

/// The most ways to choose what is not ordered in a combination of faults, and the most rays in all.
const SAMPLES: u32 = 24;
const RAYS: usize = 2000;

/// The next step: up some ray, or down from what has failed.
pub(crate) fn explore(known: &Known<'_>, steps: usize) -> Next {
    match failure(known) {
        // Where the failures begin is worth more than to be sure of each fault, which comes after it.
        Ok(Some(failure)) => match minimise(known, failure, 1) {
            Next::Done(Finish::Found) => minimise(known, failure, 2),
            next => next,
        },
        Ok(None) => upwards(known, steps),
        Err(unclear) => {
            let reason = "Repeats it, since its runs do not tell on which side it is.";
            Next::Try(unclear.clone(), reason.to_owned())
        }
    }
}

/// The first candidate that has failed; or one that has to be run again to know.
fn failure<'a>(known: &'a Known<'_>) -> Result<Option<&'a Candidate>, &'a Candidate> {
    for point in known.points.iter().filter(|point| point.failures() > 0) {
        match known.verdict(&point.candidate, 1) {
            Verdict::Fails => return Ok(Some(&point.candidate)),
            Verdict::Open => return Err(&point.candidate),
            Verdict::Holds | Verdict::Barred => {}
        }
    }
    Ok(None)
}

/// The ray on which the first failure is made smaller.
pub(crate) fn way_down(known: &Known<'_>) -> Option<Ray> {
    failure(known).ok().flatten().map(|failure| way(known, failure))
}

/// One step further up the most promising ray, and the first step on a new one, in turn.
///
/// The ray whose last margin was largest is the most promising one. What is within a ray that is under way is left to that one.
fn upwards(known: &Known<'_>, steps: usize) -> Next {
    let tops = tops(known.spec);
    let (mut started, mut fresh, mut barred) = (None::<(f64, Candidate)>, None, false);
    let mut under_way: Vec<&Candidate> = Vec::new();
    for top in &tops {
        let ray = Ray::up_to(known.space(), top);
        let open = strides(&ray)
            .into_iter()
            .find(|stride| !matches!(known.verdict(&ray.at(*stride), 1), Verdict::Holds));
        let Some(stride) = open else { continue };
        let Some(number) = up_to(known, &ray, stride) else {
            barred = true;
            continue;
        };
        let candidate = ray.at(number);
        let last =
            ray.highest_held(known).and_then(|held| known.point(&ray.at(held))).map(|point| point.mean());
        match last {
            Some(margin) => {
                under_way.push(top);
                if started.as_ref().is_none_or(|(best, _)| margin > *best) {
                    started = Some((margin, candidate));
                }
            }
            None if fresh.is_none() && !under_way.iter().any(|other| known.space().is_within(top, other)) => {
                fresh = Some(candidate);
            }
            None => {}
        }
    }
    match (started, fresh) {
        (Some((_, candidate)), None) => {
            Next::Try(candidate, "Goes further up, where the margin was largest so far.".to_owned())
        }
        (Some((_, candidate)), Some(_)) if steps % 2 == 1 => {
            Next::Try(candidate, "Goes further up, where the margin was largest so far.".to_owned())
        }
        (_, Some(candidate)) => Next::Try(candidate, "Begins small in a direction that is new.".to_owned()),
        (None, None)
            if known.points.iter().all(|point| point.margins.is_empty()) && !known.points.is_empty() =>
        {
            Next::Done(Finish::NoData)
        }
        (None, None) if barred => Next::Done(Finish::TooHarsh),
        (None, None) => Next::Done(Finish::NothingFails),
    }
}

/// The harshest candidate of each ray, in the order in which rays are begun.
///
/// The most faults come first, since what is within a candidate that held needs no run of its own. Of what is not ordered each
/// combination has one choice before any has the next one.
fn tops(spec: &Spec) -> Vec<Candidate> {
    let space = &spec.space;
    let combinations = space.combinations();
    let (mut tops, mut known) = (Vec::new(), HashSet::new());
    for sample in 0..SAMPLES {
        for (at, shape) in combinations.iter().enumerate() {
            let choices = space.choices(shape);
            let free = choices.iter().filter(|(_, ladder)| !ladder.is_ordered());
            let ways = free.map(|(_, ladder)| ladder.len()).fold(1usize, usize::saturating_mul);
            if sample as usize >= ways {
                continue;
            }
            let (mut top, mut dimension, mut rest) = (shape.clone(), 0, sample);
            for (place, ladder) in choices {
                let rungs = ladder.len() as u32;
                let rung = if ladder.is_ordered() {
                    ladder.top()
                } else if ways <= SAMPLES as usize {
                    let rung = rest % rungs;
                    rest /= rungs;
                    rung
                } else {
                    dimension += 1;
                    let shift = chance(spec.seed, (at * 64 + dimension) as u64);
                    (spread(sample, dimension, shift) * f64::from(rungs)) as u32
                };
                top.set(place, rung);
            }
            let top = affordable(spec, top);
            if tops.len() < RAYS && known.insert(top.clone()) {
                tops.push(top);
            }
        }
    }
    tops
}

/// The nth of numbers from 0 to 1 that lie evenly whenever one stops (van der Corput), moved by a shift.
fn spread(number: u32, dimension: usize, shift: f64) -> f64 {
    const PRIMES: [u32; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    let base = PRIMES[(dimension - 1) % PRIMES.len()];
    let (mut rest, mut share, mut sum) = (number, 1.0, 0.0);
    while rest > 0 {
        share /= f64::from(base);
        sum += share * f64::from(rest % base);
        rest /= base;
    }
    (sum + shift).fract()
}

/// A number from 0 to 1 for each seed and place (SplitMix64).
fn chance(seed: u64, place: u64) -> f64 {
    let mut mixed = seed.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
