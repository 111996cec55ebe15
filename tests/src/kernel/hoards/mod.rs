//! What a fault takes is missing while it lasts and there again after it, however it ends; measured by the kernel's own books.

mod connections;
mod cpu;
mod disk;
mod memory;
mod port;
mod protocols;
mod things;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

pub(super) use self::cpu::busy_and_all;
use super::{Context, KernelTest, Outcome, STANDSTILL, TestResult, assert_lasted, tests};
use crate::fault::{Fault, LONG};
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::{Daemon, Error, Residue, Result};

/// How long one heartbeat keeps a fault.
const LEASE: Duration = Duration::from_secs(3);
/// A holder that stands still is killed so long after its lease.
const GRACE: Duration = Duration::from_secs(1);
/// How much later than promised may be seen from outside.
const SEEN: Duration = STANDSTILL;
/// How long one lasts that ends by itself: longer than a busy host takes to say that it is there.
const SHORT: Duration = Duration::from_secs(2);

/// How a fault ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Removal,
    Time,
    HolderKilled,
    EverybodyKilled,
    InjectorStopped,
    EverybodyStopped,
}

/// The ends that every kind is tried with.
const ENDS: &[End] = &[End::Removal, End::Time, End::HolderKilled, End::EverybodyKilled];
/// Those that the lease brings about.
const LEASE_ENDS: &[End] = &[End::InjectorStopped, End::EverybodyStopped];

/// A fault that takes something, and how to see how much of it is in use.
struct Taking<'a> {
    fault: Fault,
    /// By whatever counts it; of the holder, if it has to be asked of a process.
    used: &'a dyn Fn(Option<&Process>) -> Result<u64>,
    /// How much it has to be more while the fault lasts, and how much it may be beside that, for what others do.
    asked: u64,
    give: u64,
}

impl Taking<'_> {
    /// Takes it, sees it missing, ends it in each of these ways, and sees it there again.
    fn ends(&self, ends: &[End]) -> Result<Outcome> {
        for end in ends {
            self.end(*end).map_err(|error| Error::Different(format!("{end:?}: {error}")))?;
        }
        Ok(Outcome::Pass)
    }

    fn end(&self, end: End) -> Result<()> {
        let mut daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let residue = Residue::take(&[])?;
        let before = (self.used)(None)?;
        let lasting = if end == End::Time { SHORT } else { LONG };
        let fault = self.fault.clone().lasting(lasting);
        let asked = Instant::now();
        let answer = fault.inject(&mcp)?;
        assert_eq!(
            (&answer["lifetime"], &answer["state"]),
            (&"kernel".into(), &"effective".into()),
            "{answer}"
        );
        let holder = holder(&daemon)?;
        let taken = (self.used)(Some(&holder))?.saturating_sub(before);
        let bounds = self.asked.saturating_sub(self.give)..=self.asked + self.give;
        let seen = bounds.contains(&taken);
        if !seen && asked.elapsed() >= lasting {
            return Err(Error::in_vain("a fault seen before its end", lasting));
        }
        assert!(seen, "asked for {}, and {taken} are missing; {answer}", self.asked);
        let limit = match end {
            End::Removal => {
                fault.remove(&mcp)?;
                HANG
            }
            End::Time => SHORT + SEEN,
            End::HolderKilled => {
                holder.signal(Signal::SIGKILL);
                HANG
            }
            End::EverybodyKilled => {
                daemon.kill_everything();
                HANG
            }
            End::InjectorStopped => {
                stop(daemon.injector());
                LEASE + SEEN
            }
            End::EverybodyStopped => {
                stop(daemon.processes());
                LEASE + GRACE + SEEN
            }
        };
        let mut left = 0;
        let back = wait_until(limit, || {
            left = (self.used)(Some(&holder)).unwrap_or(u64::MAX).saturating_sub(before);
            left <= self.give
        });
        if end == End::Time {
            assert_lasted(asked, lasting);
        }
        let processes = daemon.processes();
        if LEASE_ENDS.contains(&end) {
            // Who stands still cannot be ended in order.
            processes.iter().for_each(|process| process.signal(Signal::SIGCONT));
        }
        if !back {
            return Err(Error::in_vain(format!("all but {left} back"), limit));
        }
        if end == End::HolderKilled {
            let gone = wait_until(HANG, || fault.status(&mcp).is_ok_and(|status| status["active"] == false));
            assert!(gone, "it still shows as active");
        }
        if end != End::EverybodyKilled && end != End::EverybodyStopped {
            daemon.stop()?;
        }
        drop(daemon);
        residue.assert_unchanged_within(&[], HANG)
    }
}

/// How often others are given the chance to be quiet.
const TRIALS: u32 = 20;
/// How much of what is asked for others may take or give back meanwhile.
const OTHERS: f64 = 0.2;

/// Sees it in the books of the whole host, in which everybody's is: as much as was asked for goes when the fault comes, and comes
/// back when it goes, in one trial at least.
fn shows_on_the_host(fault: &Fault, asked: u64, used: impl Fn() -> Result<u64>) -> Result<Outcome> {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let near = |found: i128| (found as f64 / asked as f64 - 1.0).abs() <= OTHERS;
    let mut seen = Vec::new();
    for _ in 0..TRIALS {
        let before = i128::from(used()?);
        fault.inject(&mcp)?;
        let during = i128::from(used()?);
        fault.remove(&mcp)?;
        let mut back = 0;
        let given = wait_until(HANG, || {
            back = used().map_or(0, |after| during - i128::from(after));
            near(back)
        });
        if near(during - before) && given {
            return Ok(Outcome::Pass);
        }
        seen.push(format!("{} gone and {back} back", during - before));
    }
    Err(Error::Different(format!("asked for {asked}: {}", seen.join(", "))))
}

fn stop(processes: impl IntoIterator<Item = Process>) {
    processes.into_iter().for_each(|process| process.signal(Signal::SIGSTOP));
}

/// The process that holds the one fault which needs no packet program.
pub(super) fn holder(daemon: &Daemon) -> Result<Process> {
    let mut holders = daemon.holders();
    holders.retain(|holder| holder.arguments.len() == 2);
    holders.pop().ok_or_else(|| Error::Different("no process holds the fault".into()))
}

/// The evidence in the status of a fault.
fn evidence(fault: &Fault, mcp: &crate::Mcp) -> Result<Value> {
    Ok(fault.status(mcp)?["evidence"].clone())
}

/// Every test of this folder.
pub(super) fn all() -> Vec<KernelTest> {
    [cpu::TESTS, connections::TESTS, protocols::TESTS, memory::TESTS, disk::TESTS, port::TESTS, things::TESTS]
        .concat()
}
