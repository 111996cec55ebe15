//! `cargo xtask test --long`: goes on where the ledger ends, share by share.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::chosen::Share;
use super::coverage::Coverage;
use super::ledger::{Ledger, Set};
use super::steps::{sets, steps};
use super::{Done, Run};

/// Runs shares until each has run at this landing, or this time is over: then it begins no other.
pub(super) fn go_on(run: &Run<'_>, limit: Option<Duration>) -> Vec<Done> {
    let until = limit.map(|limit| Instant::now() + limit);
    let sets = sets(|step| run.options.wants(step));
    let mut done = Vec::new();
    // What has failed, or cannot be entered for the tree's changes, has had its turn as well.
    let mut tried = BTreeSet::new();
    while until.is_none_or(|until| Instant::now() < until) {
        let has_run = run.landing.void.is_none().then_some(run.landing.number);
        let Some((set, share)) = next(&sets, &run.book.ledger(), has_run, &tried) else { break };
        tried.insert((set.name, share.number()));
        let step = steps().find(|step| step.name == set.name);
        done.extend(step.map(|step| run.carry_out(&[step], Some(share), None)).into_iter().flatten());
    }
    let coverage = Coverage::new(&sets, &run.book.ledger(), &run.landing);
    print!("== {}", coverage.text());
    done
}

/// What is to be run next: what never ran, then what ran longest ago; of two the one of the set that comes first. Nothing that was
/// tried, or that ran at this landing.
fn next(
    sets: &[Set],
    ledger: &Ledger,
    landing: Option<u64>,
    tried: &BTreeSet<(&'static str, u32)>,
) -> Option<(Set, Share)> {
    let shares = sets.iter().flat_map(|set| Share::all(set.shares).map(move |share| (*set, share)));
    let open = shares.filter(|(set, share)| !tried.contains(&(set.name, share.number())));
    let aged = open.map(|(set, share)| (ledger.last(set, share).map(|entry| entry.landing), set, share));
    let left = aged.filter(|(last, ..)| last.is_none() || landing.is_none() || *last < landing);
    // Of several that are equal it is the first.
    left.min_by_key(|(last, ..)| *last).map(|(_, set, share)| (set, share))
}

#[cfg(test)]
mod tests {
    use super::super::ledger::tests::{SETS, ledger};
    use super::*;

    /// All that is run, one after the other, when each passes or none does.
    fn order(entries: &[(&str, &str, u64)], landing: Option<u64>) -> Vec<String> {
        let (ledger, mut tried) = (ledger(entries), BTreeSet::new());
        std::iter::from_fn(|| {
            let (set, share) = next(SETS, &ledger, landing, &tried)?;
            tried.insert((set.name, share.number()));
            Some(format!("{} {share}", set.name))
        })
        .collect()
    }

    #[test]
    fn what_never_ran_comes_first_then_what_ran_longest_ago_and_of_two_the_cheaper() {
        let entries = [("matrix", "1/3", 9), ("matrix", "2/3", 5), ("soak", "1/1", 5)];
        let expected = ["matrix 3/3", "matrix 2/3", "soak 1/1", "matrix 1/3"];
        assert_eq!(order(&entries, Some(20)), expected);
        assert_eq!(order(&[], Some(20)), ["matrix 1/3", "matrix 2/3", "matrix 3/3", "soak 1/1"]);
    }

    #[test]
    fn what_ran_at_this_landing_is_not_run_again_unless_the_tree_has_changes() {
        let entries =
            [("matrix", "1/3", 20), ("matrix", "2/3", 19), ("matrix", "3/3", 20), ("soak", "1/1", 21)];
        assert_eq!(order(&entries, Some(20)), ["matrix 2/3"]);
        assert_eq!(order(&entries, None).len(), 4);
    }
}
