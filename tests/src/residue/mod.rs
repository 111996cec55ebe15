//! What a fault may touch, as independent tools see it; compared exactly before and after.
//!
//! Of each namespace: links, addresses, routes, rules, qdiscs, filters, tcx programs, nft tables, sysctls below `net`. Of
//! the node: our processes that are stopped or that nobody keeps, our mounts, pins and files without a name, control groups
//! and their limits and programs, eBPF objects of ours that no process holds, and the clock. On a host others test beside,
//! so that of the node only what is below this process, or named, is looked at; in the VM it is everything.
//!
//! What is left is at one of three levels ([`Level`]). Nothing here uses the daemon's code but what its processes are called,
//! and the last question, whether a difference still acts, which [`Behaviour`] answers by itself and the daemon's oracle is
//! asked as well.

mod behaviour;
mod judged;
mod network;
mod node;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::netns::NetNs;
use crate::process::wait_until;

pub use crate::bpf::tcx_programs;
pub use behaviour::{Behaviour, Surroundings, Witness};
pub use judged::{Judged, Levels};

/// How long a tool may fail because what it lists vanishes.
const VANISHING: Duration = Duration::from_secs(2);
/// The clock may be slewed by so much between two pictures (500 ppm over some minutes), and is read by two calls.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);

/// How it is, compared with how it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// Nothing differs.
    Identical,
    /// Something is left, by name, and does nothing that was measured.
    Inert(String),
    /// Something still acts.
    Effect(String),
}

/// A picture: one line each, by what it describes.
#[derive(Debug, Clone)]
pub struct Residue {
    lines: BTreeMap<String, String>,
    /// Wall clock less boot time, in nanoseconds.
    clock_offset: i128,
    cgroups: Vec<PathBuf>,
    /// Whether the node beside the networks is in the picture.
    node: bool,
}

impl Residue {
    /// Takes the picture.
    ///
    /// # Errors
    /// When a tool cannot be run.
    pub fn take(namespaces: &[&NetNs]) -> Result<Self> {
        Self::take_with(namespaces, &[])
    }

    /// As [`Residue::take`], with these control groups and all below them, and their limits.
    ///
    /// # Errors
    /// As [`Residue::take`].
    pub fn take_with(namespaces: &[&NetNs], cgroups: &[&Path]) -> Result<Self> {
        Self::look(namespaces, cgroups, true)
    }

    /// As [`Residue::take`], without the processes, mounts and groups of this node: for one of several tests side by side,
    /// whose processes come and go.
    ///
    /// # Errors
    /// As [`Residue::take`].
    pub fn of_networks(namespaces: &[&NetNs]) -> Result<Self> {
        Self::look(namespaces, &[], false)
    }

    fn look(namespaces: &[&NetNs], cgroups: &[&Path], node: bool) -> Result<Self> {
        let mut lines = BTreeMap::new();
        for namespace in namespaces {
            network::picture(namespace, &mut lines)?;
        }
        let cgroups: Vec<PathBuf> = cgroups.iter().map(|path| (*path).to_owned()).collect();
        if node {
            node::picture(&cgroups, &mut lines)?;
        }
        Ok(Self { lines, clock_offset: node::clock_offset()?, cgroups, node })
    }

    /// Takes the same picture again.
    ///
    /// # Errors
    /// As [`Residue::take`].
    pub fn again(&self, namespaces: &[&NetNs]) -> Result<Self> {
        let cgroups: Vec<&Path> = self.cgroups.iter().map(PathBuf::as_path).collect();
        Self::look(namespaces, &cgroups, self.node)
    }

    /// Waits, at most so long, until everything looks as it did when this was taken.
    ///
    /// # Errors
    /// With all that differs.
    pub fn assert_unchanged_within(&self, namespaces: &[&NetNs], settle: Duration) -> Result<()> {
        match self.difference_after(namespaces, settle)? {
            difference if difference.is_empty() => Ok(()),
            difference => Err(Error::Different(format!("residue after {settle:?}:\n{difference}"))),
        }
    }

    /// What is left after, at most, so long: nothing, something inert, or something that acts, which is what `behaves` says of
    /// it by an error, or the daemon's own oracle of one of these namespaces.
    ///
    /// # Errors
    /// When a tool cannot be run.
    pub fn level_within(
        &self,
        namespaces: &[&NetNs],
        settle: Duration,
        behaves: impl FnOnce() -> Result<()>,
    ) -> Result<Level> {
        let difference = self.difference_after(namespaces, settle)?;
        if let Err(error) = behaves() {
            return Ok(Level::Effect(format!("{error}\n{difference}")));
        }
        if difference.is_empty() {
            return Ok(Level::Identical);
        }
        let report = chaos_daemon::residue::look(None, chaos_daemon::residue::Scope::Everywhere);
        let groups = self.groups();
        let ours = |text: &str| {
            namespaces.iter().any(|namespace| namespace.is_named_in(text))
                || groups.iter().any(|group| text.contains(group))
        };
        let acts = report.leftovers.iter().find(|left| {
            left.level == chaos_daemon::request::Level::Effect && (ours(&left.what) || ours(&left.place))
        });
        Ok(match acts {
            Some(left) => Level::Effect(format!("{left}\n{difference}")),
            None => Level::Inert(difference),
        })
    }

    /// What the daemon's oracle calls these control groups: by their ids, which are the numbers of their inodes.
    fn groups(&self) -> Vec<String> {
        let ids = self.cgroups.iter().filter_map(|path| path.metadata().ok());
        ids.map(|folder| format!("of cgroup id {} ", folder.ino())).collect()
    }

    fn difference_after(&self, namespaces: &[&NetNs], settle: Duration) -> Result<String> {
        let mut last = Ok(String::new());
        let start = Instant::now();
        // Listing tools race with objects that vanish under them: only the last answer counts, and a tool that has failed
        // for one is asked again.
        wait_until(settle.max(VANISHING), || {
            last = self.again(namespaces).map(|now| self.difference(&now));
            matches!(&last, Ok(text) if text.is_empty() || start.elapsed() >= settle)
        });
        last
    }

    /// What another picture has and this has not (+), and the other way round (-).
    pub fn difference(&self, other: &Self) -> String {
        let mut text = String::new();
        for (sign, ours, theirs) in [('-', self, other), ('+', other, self)] {
            for (key, value) in &ours.lines {
                // What the kernel was still taking apart when this was taken, and has taken apart since.
                let dying = sign == '-' && node::is_object(key);
                if !dying && theirs.lines.get(key) != Some(value) {
                    text.push_str(&format!("{sign} {key}: {value}\n"));
                }
            }
        }
        let step = (self.clock_offset - other.clock_offset).unsigned_abs();
        if step > CLOCK_TOLERANCE.as_nanos() {
            text.push_str(&format!("+ clock: stepped by {step} ns\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_ours_that_comes_is_residue_and_one_that_goes_is_not() {
        let none = Residue {
            lines: BTreeMap::new(),
            clock_offset: node::clock_offset().unwrap(),
            cgroups: Vec::new(),
            node: true,
        };
        let lines = BTreeMap::from([("bpf Map 7 chaos_JUMP".to_owned(), "that nobody holds".to_owned())]);
        let one = Residue { lines, ..none.clone() };
        assert_eq!(none.difference(&one), "+ bpf Map 7 chaos_JUMP: that nobody holds\n");
        assert_eq!(one.difference(&none), "");
    }

    #[test]
    fn a_step_of_the_clock_shows_and_the_time_that_has_passed_does_not() {
        let before = Residue {
            lines: BTreeMap::new(),
            clock_offset: node::clock_offset().unwrap(),
            cgroups: Vec::new(),
            node: false,
        };
        std::thread::sleep(2 * CLOCK_TOLERANCE);
        let mut now = Residue { clock_offset: node::clock_offset().unwrap(), ..before.clone() };
        assert_eq!(before.difference(&now), "");
        now.clock_offset += 1_000_000_000;
        assert!(before.difference(&now).starts_with("+ clock: stepped by "));
    }
}
