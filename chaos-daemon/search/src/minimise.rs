//! From a failure down to the least that still fails: without the faults that do not matter, then with smaller values.

use crate::candidate::Candidate;
use crate::known::{Known, Verdict};
use crate::narrow::{narrow, without_idle_choices};
use crate::ray::Ray;
use crate::step::Next;

/// The next step down from something that failed, with so many runs that agree before a fault is taken for needed.
pub(crate) fn minimise(known: &Known<'_>, failure: &Candidate, least: usize) -> Next {
    let fewest = match without_idle_faults(known, failure, least) {
        Ok(fewest) => fewest,
        Err((candidate, reason)) => return Next::Try(candidate, reason),
    };
    // Of several faults that are needed, one at its mildest is nearly none.
    let milder =
        if least == 1 && fewest.faults.len() > 1 { Ok(fewest) } else { without_idle_choices(known, &fewest) };
    match milder {
        Ok(least) => narrow(known, &Ray::up_to(known.space(), &least)),
        Err((candidate, reason)) => Next::Try(candidate, reason),
    }
}

/// The way on which a failure is made smaller, as far as it is known by now.
pub(crate) fn way(known: &Known<'_>, failure: &Candidate) -> Ray {
    let fewest = without_idle_faults(known, failure, 1).unwrap_or_else(|_| failure.clone());
    let least = without_idle_choices(known, &fewest).unwrap_or(fewest);
    Ray::up_to(known.space(), &least)
}

/// The same with the faults only without which it does not fail; or what has to be run to know.
///
/// That is delta debugging (ddmin): faults are left out by halves, and of a half that matters the halves again. Since less does no
/// more harm, what is known of one candidate tells of others. That a fault is needed is never asked again, so it takes `least` runs
/// that agree. That some are not is seen from all that fails without them.
fn without_idle_faults(
    known: &Known<'_>,
    failure: &Candidate,
    least: usize,
) -> Result<Candidate, (Candidate, String)> {
    let mut open = failure.kinds();
    let mut needed: Vec<usize> = Vec::new();
    let mut size = open.len().div_ceil(2);
    while !open.is_empty() && open.len() + needed.len() > 1 {
        size = size.clamp(1, open.len());
        let rest: Vec<usize> = open[size..].iter().chain(&needed).copied().collect();
        let less = failure.only(&rest);
        let verdict = match known.verdict(&less, 1) {
            _ if rest.is_empty() => Verdict::Holds,
            Verdict::Holds if size == 1 => known.verdict(&less, least),
            verdict => verdict,
        };
        match verdict {
            Verdict::Fails => drop(open.drain(..size)),
            Verdict::Holds | Verdict::Barred if size == 1 => needed.push(open.remove(0)),
            Verdict::Holds | Verdict::Barred => size = size.div_ceil(2),
            Verdict::Open => {
                let left_out: Vec<&str> =
                    open[..size].iter().map(|kind| known.space().kinds[*kind].name.as_str()).collect();
                return Err((
                    less,
                    format!("Leaves out {}, to see whether it matters.", left_out.join(", ")),
                ));
            }
        }
    }
    needed.extend(open);
    Ok(failure.only(&needed))
}
