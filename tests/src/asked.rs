//! What the programs `matrix` and `sweep` are asked, and how they report: a line for each cell, with what was wrong in it; then one
//! for each kind, the total, what was found of residue, and last `N passed, N failed, N skipped`, in points that were struck.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::cells::Choice;
use crate::residue::Judged;
use crate::sweep::{Found, Kind};

/// The command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Of what repeats, every how many; 1 is every one.
    pub stride: u32,
    /// Of all events, every how many, other ones for each kind and kernel; 1 is every one.
    pub share: u32,
    /// Which share of the events it is, and which calls a stride leaves out: any number, so that one run after the other sees all
    /// of them, over as many as share and stride are together.
    pub offset: usize,
    /// No longer than this; what is not done then is a failure.
    pub limit: Duration,
    /// Only cells whose name has one of these in it.
    pub only: Vec<String>,
    /// Only kinds that few machines can do, and what `only` has beside. With neither: all.
    pub rare: bool,
    /// Which of these cells.
    pub choice: Choice,
}

impl Asked {
    /// Reads `[--stride=N] [--share=N] [--offset=N] [--limit=SECONDS] [--only=TEXT[,TEXT…]] [--rare]`, and what [`Choice`] reads.
    ///
    /// # Errors
    /// With the argument that is none of these.
    pub fn read(arguments: impl Iterator<Item = String>, limit: Duration) -> Result<Self, String> {
        let (only, choice) = (Vec::new(), Choice::default());
        let mut asked = Self { stride: 1, share: 1, offset: 0, limit, only, rare: false, choice };
        for argument in arguments {
            asked.take(&argument).ok_or(argument)?;
        }
        Ok(asked)
    }

    fn take(&mut self, argument: &str) -> Option<()> {
        if argument == "--rare" {
            self.rare = true;
            return Some(());
        }
        if self.choice.take(argument).is_some() {
            return Some(());
        }
        let (name, text) = argument.split_once('=')?;
        let number = || text.parse::<u32>().ok().filter(|number| *number > 0);
        match name {
            "--stride" => self.stride = number()?,
            "--share" => self.share = number()?,
            "--offset" => self.offset = text.parse().ok()?,
            "--limit" => self.limit = Duration::from_secs(number()?.into()),
            "--only" => self.only.extend(text.split(',').map(str::to_owned)),
            _ => return None,
        }
        Some(())
    }

    /// Of these, the share that is asked for, from one or another of the first on; at least one.
    pub fn share_of<T: Copy>(&self, all: &[T], offset: usize) -> Vec<T> {
        let share = (self.share as usize).clamp(1, all.len().max(1));
        all.iter().copied().skip(offset % share).step_by(share).collect()
    }

    /// The offset of what a stride leaves out. It goes on when every share has had its turn, so that each event meets each call.
    pub fn choice_of_calls(&self) -> usize {
        self.offset / self.share as usize
    }

    /// Says what is left out, so that the same can be asked for again.
    pub fn print_choice(&self) {
        for (every, what) in [(self.share, "event"), (self.stride, "call")] {
            if every > 1 {
                println!("every {every}th {what}, by offset {}", self.offset);
            }
        }
    }

    /// Whether a part of this name is asked for, which few machines can do or many.
    pub fn wants(&self, name: &str, is_rare: bool) -> bool {
        let all = self.only.is_empty() && !self.rare;
        all || (self.rare && is_rare) || self.only.iter().any(|text| name.contains(text))
    }
}

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    cells: usize,
    /// Points that were struck and as they should be.
    passed: BTreeMap<&'static str, usize>,
    /// What was found of residue, by whose it was.
    judged: BTreeMap<&'static str, Judged>,
    failed: usize,
    skipped: BTreeSet<String>,
    /// Cells that were not begun, since the time was over.
    left: usize,
}

impl Tally {
    /// Notes that a kind cannot be done here, and why.
    pub fn skip(&mut self, kind: &str, why: &str) {
        self.skipped.insert(format!("{kind}: {why}"));
    }

    /// Notes how many cells were not begun.
    pub fn leave(&mut self, cells: usize) {
        self.left += cells;
    }

    /// Says what became of one cell.
    pub fn add(&mut self, kind: &Kind, cell: &str, found: Found, started: Instant) {
        let failed = found.failures.len();
        // What could not be carried out at all is a point that failed.
        let passed = found.points.saturating_sub(failed);
        println!("{cell}: {} points, {:.1} s", passed + failed, started.elapsed().as_secs_f64());
        found.failures.iter().for_each(|failure| println!("FAILED: {cell}: {failure}"));
        self.cells += 1;
        self.failed += failed;
        *self.passed.entry(kind.name).or_default() += passed;
        self.judged.entry(kind.class()).or_default().merge(found.judged);
    }

    /// Says what was done of each kind, and of all; and what is left out.
    pub fn end(&self) -> ExitCode {
        let passed = self.passed.values().sum::<usize>();
        let (failed, skipped) = (self.failed, self.skipped.len());
        self.skipped.iter().for_each(|kind| println!("skipped: {kind}"));
        self.passed.iter().for_each(|(kind, passed)| println!("  {kind}: {passed} points passed"));
        println!("total: {} points of {} kinds", passed + failed, self.passed.len());
        self.judged.iter().for_each(|(whose, judged)| println!("residue of {whose}: {judged}"));
        println!("cells: {}", self.cells);
        println!("left: {}", self.left);
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 && passed + skipped + self.left > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &[&str]) -> Result<Asked, String> {
        Asked::read(arguments.iter().map(|text| (*text).to_owned()), Duration::from_secs(60))
    }

    #[test]
    fn a_part_is_asked_for_by_any_text_in_its_name() {
        let some = asked(&["--stride=6", "--only=pause,link", "--only=error"]).unwrap();
        assert_eq!((some.stride, some.share, some.limit), (6, 1, Duration::from_secs(60)));
        assert_eq!(
            ["process_pause by Auto", "link_down", "latency"].map(|name| some.wants(name, true)),
            [true, true, false]
        );
        assert!(asked(&[]).unwrap().wants("latency", false));
    }

    #[test]
    fn what_few_machines_can_do_is_asked_for_by_that_beside_what_is_named() {
        let wanted = |arguments: &[&str]| {
            let asked = asked(arguments).unwrap();
            [("latency", true), ("pause", false), ("error", false)]
                .map(|(name, rare)| asked.wants(name, rare))
        };
        assert_eq!(wanted(&["--rare"]), [true, false, false]);
        assert_eq!(wanted(&["--rare", "--only=pause"]), [true, true, false]);
    }

    #[test]
    fn the_shares_of_neighbours_are_all_there_is() {
        let third = asked(&["--share=3"]).unwrap();
        let shares: Vec<_> = (7..10).map(|offset| third.share_of(&[1, 2, 3, 4, 5], offset)).collect();
        assert_eq!(shares, [vec![2, 5], vec![3], vec![1, 4]]);
        assert_eq!(third.share_of(&[1, 2], 7), [2], "of few there is one at least");
    }

    #[test]
    fn over_as_many_offsets_as_share_and_stride_are_together_each_event_meets_each_choice_of_calls() {
        let events = ["a", "b", "c", "d", "e"];
        for (share, kinds_before) in [(1, 2), (3, 0), (3, 1), (7, 4)] {
            let mut met: Vec<_> = (0..share * 4)
                .map(|offset| {
                    asked(&[&format!("--share={share}"), "--stride=4", &format!("--offset={offset}")])
                })
                .flat_map(|asked| {
                    let asked = asked.unwrap();
                    let choice = asked.choice_of_calls() % 4;
                    asked
                        .share_of(&events, asked.offset + kinds_before)
                        .into_iter()
                        .map(move |event| (event, choice))
                })
                .collect();
            met.sort_unstable();
            met.dedup();
            assert_eq!(met.len(), events.len() * 4, "share {share}");
        }
    }

    #[test]
    fn what_is_no_option_or_no_number_is_refused_by_its_text() {
        for argument in ["--strides=1", "--stride=0", "--limit=soon", "latency"] {
            assert_eq!(asked(&[argument]), Err(argument.to_owned()));
        }
    }
}
