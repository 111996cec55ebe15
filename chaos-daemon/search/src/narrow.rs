//! Bisection along a ray that bears noise: up from below first, then between what held and what failed, then the same again.

use crate::candidate::Candidate;
use crate::known::{Known, Verdict};
use crate::ray::{Boundary, Ray};
use crate::space::Space;
use crate::step::{Finish, Next};

/// How far up a ray the first run is, and how much further up each next one may be.
const FIRST: f64 = 0.125;
const FURTHER: f64 = 0.25;
/// With what probability the candidate fails that is confirmed.
const SURE: f64 = 0.75;
/// Below which probability of any failure a ray is taken to have none.
const NONE: f64 = 0.1;

/// The next step on the way to the lowest candidate of a ray that fails.
pub(crate) fn narrow(known: &Known<'_>, ray: &Ray) -> Next {
    let boundary = Boundary::of(ray, known);
    let held = ray.highest_held(known);
    if boundary.chance(ray.last) < NONE && held == Some(ray.last) {
        return Next::Done(Finish::NothingFails);
    }
    let (target, middle) = between(known, ray, &boundary);
    let next = within_reach(known, ray, held, target.min(reach(known, ray, held)));
    let often = |number| known.runs(&ray.at(number)) >= known.spec.repeats as usize;
    if boundary.is_precise(ray, known) || next.is_some_and(often) {
        return confirm(known, ray, &boundary, Finish::Found);
    }
    let Some(number) = next else {
        // Nothing nearer to the boundary may be run: what has failed already is the answer, if anything has.
        return match known.points.iter().any(|point| point.failed(1)) {
            true => confirm(known, ray, &boundary, Finish::TooHarsh),
            false if held.is_none() && known.points.iter().any(|point| point.given_up) => {
                Next::Done(Finish::NoData)
            }
            false => Next::Done(Finish::TooHarsh),
        };
    };
    let candidate = ray.at(number);
    let reason = match (known.runs(&candidate), held) {
        (0, None) => "Begins small, before anything is known.".to_owned(),
        (0, Some(held)) if number < target => {
            format!(
                "Goes up from what held, {}, and no further than may be.",
                known.space().setting(&ray.at(held))
            )
        }
        (0, _) if middle => "Halves where the failures may begin.".to_owned(),
        (0, _) => {
            "Aims at where the margin crosses the objective, between what held and what failed.".to_owned()
        }
        (runs, _) => format!("Repeats it, since {runs} of its runs do not tell on which side it is."),
    };
    Next::Try(candidate, reason)
}

/// The highest number that may come after what held.
fn highest(ray: &Ray, held: Option<u32>) -> u32 {
    let places = f64::from(ray.last + 1);
    let position = held.map(|held| f64::from(held + 1) / places);
    let reach = position.map_or(FIRST, |position| (2.0 * position).min(position + FURTHER).max(FIRST));
    ((places * reach).ceil() as u32).clamp(1, ray.last + 1) - 1
}

/// The highest number that may come after what held, if the margin goes on as it did.
///
/// It may be twice as far to where a line through the last two that held crosses the objective. So a system that becomes worse bit by
/// bit is not driven far beyond it; one that breaks off shows nothing before.
fn reach(known: &Known<'_>, ray: &Ray, held: Option<u32>) -> u32 {
    let highest = highest(ray, held);
    let on_it = ray.run(known);
    let [.., (before, low), (last, high)] = on_it[..] else { return highest };
    if high > 0.0 || high - low <= known.noise {
        return highest;
    }
    let further = 2.0 * f64::from(last - before) * -high / (high - low);
    let least = (ray.last / 32).max(1);
    highest.min((last + least).max(last + further as u32)).max(1)
}

/// The highest number up to a target that is allowed and above what held; any below that is allowed, if there is none.
fn within_reach(known: &Known<'_>, ray: &Ray, held: Option<u32>, target: u32) -> Option<u32> {
    let allowed = |number: &u32| known.allowed(&ray.at(*number)).is_some();
    let floor = held.map_or(0, |held| held + 1).min(target);
    (floor..=target).rev().find(allowed)
}

/// The number that tells most of where the failures begin, and whether it is just the middle.
///
/// That is where the margin crosses the objective on a line between the nearest runs that held and failed, with large margins pressed
/// together. Since the margin may jump, it is an eighth of the way from both at least. Where runs contradict each other it is the
/// middle of the probability.
fn between(known: &Known<'_>, ray: &Ray, boundary: &Boundary) -> (u32, bool) {
    let run = ray.run(known);
    let held = run.iter().filter(|(_, margin)| *margin <= 0.0).max_by_key(|(number, _)| *number);
    let failed = run.iter().filter(|(_, margin)| *margin > 0.0).min_by_key(|(number, _)| *number);
    if let (Some((low, under)), Some((high, over))) = (held, failed)
        && low + 1 < *high
    {
        let aside = ((high - low) / 8).max(1);
        let pressed = |margin: f64| margin / (1.0 + margin.abs());
        let crossing = f64::from(high - low) * -pressed(*under) / (pressed(*over) - pressed(*under));
        let number = low + crossing.round() as u32;
        return (number.clamp(low + aside, high - aside), false);
    }
    let upper = boundary.quantile(0.5).min(ray.last);
    let lower = upper.saturating_sub(1);
    let off = |number| (boundary.chance(number) - 0.5).abs();
    (if off(lower) < off(upper) { lower } else { upper }, true)
}

/// Repeats the lowest candidate that fails most probably, until it was run often enough.
fn confirm(known: &Known<'_>, ray: &Ray, boundary: &Boundary, end: Finish) -> Next {
    let refuted =
        |candidate: &Candidate| known.point(candidate).is_some_and(|p| p.held(known.spec.repeats as usize));
    let sure = boundary.quantile(SURE)..=ray.last;
    let Some(candidate) = sure.map(|number| ray.at(number)).find(|candidate| !refuted(candidate)) else {
        return Next::Done(Finish::NothingFails);
    };
    let runs = known.runs(&candidate);
    if runs >= known.spec.repeats as usize || (runs > 0 && known.allowed(&candidate).is_none()) {
        return Next::Done(end);
    }
    if known.allowed(&candidate).is_none() {
        return Next::Done(Finish::TooHarsh);
    }
    let reason = match runs {
        0 => "Tries where the failures begin most probably.".to_owned(),
        1 => "Repeats the mildest failure, to confirm it.".to_owned(),
        _ => format!("Repeats the mildest failure, to confirm it after {runs} runs."),
    };
    Next::Try(candidate, reason)
}

/// How far up a ray runs are made before anything has failed on it: an eighth, and then so that none is more than a quarter further.
pub(crate) fn strides(ray: &Ray) -> Vec<u32> {
    let mut strides = vec![highest(ray, None)];
    while let Some(last) = strides.last().copied().filter(|last| *last < ray.last) {
        strides.push(highest(ray, Some(last)).max(last + 1));
    }
    strides
}

/// The highest number above what held and up to a stride that may be run; the stride itself, if its runs do not tell.
pub(crate) fn up_to(known: &Known<'_>, ray: &Ray, stride: u32) -> Option<u32> {
    let held = ray.highest_held(known);
    if held.is_some_and(|held| held >= stride) {
        return Some(stride).filter(|stride| known.allowed(&ray.at(*stride)).is_some());
    }
    within_reach(known, ray, held, stride.min(reach(known, ray, held)))
}

/// A candidate that fails, with each ordered choice that does not matter at its mildest; or what has to be run to know.
pub(crate) fn without_idle_choices(
    known: &Known<'_>,
    failure: &Candidate,
) -> Result<Candidate, (Candidate, String)> {
    let space: &Space = known.space();
    let mut least = failure.clone();
    let choices: Vec<_> = space
        .choices(failure)
        .into_iter()
        .filter(|(_, ladder)| ladder.is_ordered())
        .map(|(place, _)| place)
        .collect();
    if choices.len() < 2 {
        return Ok(least);
    }
    for place in choices {
        let milder = least.with(place, 0);
        if milder == least {
            continue;
        }
        match known.verdict(&milder, 1) {
            Verdict::Fails => least = milder,
            Verdict::Holds | Verdict::Barred => {}
            Verdict::Open => {
                return Err((
                    milder,
                    "Leaves one parameter at its mildest, to see whether it matters.".to_owned(),
                ));
            }
        }
    }
    Ok(least)
}
