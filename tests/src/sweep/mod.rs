//! The sweep: at every state-changing system call of injector and holder in turn, for every fault type, the process
//! dies, or everything dies, or the call fails; and each time nothing is left, and traffic is normal at once.

pub(crate) mod bench;
mod calls;
pub mod cell;
pub(crate) mod list;
pub(crate) mod passes;
pub mod supervised;
pub(crate) mod tracer;

use std::mem;
use std::time::{Duration, Instant};

use nix::libc;
use serde_json::Value;

use crate::asked::Asked;
use crate::kernel::Attach;
use crate::late::{HANG, SecondTry};
use crate::process::{Process, wait_until};
use crate::residue::Judged;
use crate::{Error, Result};
use bench::{Bench, Look};
use cell::Cell;
use passes::{Missed, Passes};
use tracer::{Aim, Seen, Trace};

pub use calls::Strike;
pub use list::Kind;

/// No fault makes so many calls.
const MOST: usize = 10_000;

/// Where processes are looked for, files of every process of the host are opened: so many times wider is the stride there.
const LOOKING: usize = 8;

/// Whose calls are struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The privileged daemon's.
    Injector,
    /// The fault's own process.
    Holder,
}

/// One pass over all calls that one process makes for one fault.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// What is injected.
    pub kind: &'static Kind,
    /// How programs are attached.
    pub attach: Attach,
    /// Whose calls.
    pub whose: Whose,
    /// What happens to them.
    pub strike: Strike,
    /// Every how many calls; 1 is every one.
    pub stride: usize,
    /// The first of them, from 1.
    pub first: usize,
}

/// What the strikes of a cell found.
#[derive(Debug, Default)]
pub struct Found {
    /// Points that were struck.
    pub points: usize,
    /// What was found of residue.
    pub judged: Judged,
    /// From the strike to the first packet that came through, of each.
    pub normal: Vec<Duration>,
    /// What was wrong, and where.
    pub failures: Vec<String>,
}

impl Sweep {
    /// Carries it out, until `deadline` at most: being late is a failure.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn run(&self, deadline: Instant) -> Result<Found> {
        let mut bench = Bench::new(self.attach)?;
        let look = self.look();
        let (mut found, behaved) = (Found::default(), bench.behaviour(look)?);
        let (mut passes, mut second_try) = (Passes::new(self.first, self.stride), SecondTry::default());
        while passes.at() < MOST {
            let at = passes.at();
            if Instant::now() > deadline {
                found.failures.push(format!("not done in time, at call {at}"));
                break;
            }
            let point = self.point(&mut bench, at);
            found.judged.merge(mem::take(&mut bench.judged));
            match point {
                Ok((seen, None)) => match passes.missed(seen.calls) {
                    Missed::Another => continue,
                    Missed::Done => break,
                    Missed::Nothing => {
                        found.failures.push("made no call that counts".into());
                        break;
                    }
                },
                Ok((_, Some(normal))) => found.normal.push(normal),
                Err(error) => {
                    let (what, log) = (format!("{self}, call {at}"), bench.log());
                    drop(bench);
                    bench = Bench::new(self.attach)?;
                    if second_try.is_due(what.clone(), &error) {
                        continue;
                    }
                    found.failures.push(format!("{what}: {error}{log}"));
                }
            }
            passes.struck();
            found.points += 1;
        }
        if let Err(error) = bench.assert_behaves_like(&behaved, look) {
            found.failures.push(format!("after every call: {error}"));
        }
        Ok(found)
    }

    /// At processors, which takes longest, in the last sweep of a kind.
    fn look(&self) -> Look {
        match (self.whose, self.strike) == LAST {
            true => Bench::everything,
            false => Bench::traffic_and_calls,
        }
    }

    /// Injects and removes, with a strike at a call. No time when it was not reached.
    fn point(&self, bench: &mut Bench, at: usize) -> Result<(Seen, Option<Duration>)> {
        let fault = bench.fault(self.kind.name)?;
        bench.prepare(self.kind);
        bench.ready()?;
        let (daemon, mcp) = bench.daemon()?;
        let everybody = daemon.processes().iter().map(|process| process.pid).collect();
        let server = daemon.server();
        let injector = daemon.injector_pid();
        let (pid, children) = match self.whose {
            Whose::Injector => (injector, false),
            Whose::Holder if self.kind.is_for_warm_holder() => {
                (daemon.holders().first().map_or(injector, |holder| holder.pid), false)
            }
            Whose::Holder => (injector, true),
        };
        let trace = Trace::start(Aim { pid, children, at, strike: self.strike, everybody })?;
        let injected = fault.inject(mcp);
        if injected.is_ok() {
            trace.unless_struck(|| bench.assert_acts(self.kind, || trace.has_struck()))?;
        }
        let removed = injected.is_ok().then(|| fault.remove(mcp));
        let seen = trace.finish()?;
        let Some((call, struck)) = seen.struck else {
            injected?;
            removed.transpose()?;
            return Ok((seen, None));
        };
        let nameless = || nameless(server, [Some(injected), removed]);
        let normal = self.judge(bench, &fault, nameless, struck);
        normal
            .map(|normal| (seen, Some(normal)))
            .map_err(|error| Error::Different(format!("{call}: {error}")))
    }

    fn judge(
        &self,
        bench: &mut Bench,
        fault: &crate::fault::Fault,
        nameless: impl FnOnce() -> Option<String>,
        struck: Instant,
    ) -> Result<Duration> {
        if self.strike == Strike::KillEverything
            || (self.strike, self.whose) == (Strike::Kill, Whose::Injector)
        {
            return bench.judge_death(struck);
        }
        if let Some(answer) = nameless() {
            return Err(Error::Different(format!("an error without a name: {answer}")));
        }
        // A call that failed may have kept the fault from being removed. It has been by now, or is once more.
        let since = if self.strike == Strike::Kill { struck } else { bench.remove(fault)? };
        let normal = bench.judge_survival(fault, since)?;
        match self.strike {
            // The call that failed may have been the removal of the journal, which is recovery's then; or the start
            // of the next warm holder, which only the next injection tries again.
            Strike::Fail(_) if self.whose == Whose::Injector => bench.restart()?,
            _ => bench.journal_is_empty()?,
        }
        Ok(normal)
    }
}

/// The first of these answers that is no success and does not say why. One that could not be sent at all is none: the
/// server ends for it, and so does the connection, at once or a little earlier than the process.
pub(crate) fn nameless(server: Option<Process>, answers: [Option<Result<Value>>; 2]) -> Option<String> {
    let mut failures = answers.into_iter().flatten().filter_map(Result::err);
    let nameless = failures.find(|error| !has_name(error))?;
    let ends = |server: Process| wait_until(HANG, || !server.runs());
    (!server.is_some_and(ends)).then(|| nameless.to_string())
}

/// Whether an answer that is no success says why, by a name of the interface.
fn has_name(error: &Error) -> bool {
    const NAMES: [&str; 6] = [
        "INJECTION_FAILED",
        "TARGET_NOT_FOUND",
        "TARGET_PROTECTED",
        "REVERT_FAILED",
        "GUARD_MISSING",
        "UNAVAILABLE",
    ];
    matches!(error, Error::Mcp { problem, .. } if NAMES.iter().any(|name| problem.contains(name)))
}

impl std::fmt::Display for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, attach, whose, strike, .. } = self;
        write!(f, "{} by {attach:?}, {whose:?} {strike}", kind.name)
    }
}

/// Every cell there is: each sweep of each kind.
pub fn cells(asked: &Asked) -> Vec<Cell> {
    let (stride, choice) = (asked.stride as usize, asked.choice_of_calls());
    let sweep = |(part, sweep): (usize, Sweep)| {
        let name = sweep.to_string();
        Cell::on_bench(sweep.kind, sweep.attach, part, name, move |deadline| sweep.run(deadline))
    };
    let sweeps = all(stride, choice).into_iter().flat_map(|of_a_kind| of_a_kind.into_iter().enumerate());
    let guarded = supervised::all(stride, choice).into_iter().flat_map(|of_a_kind| {
        of_a_kind.into_iter().enumerate().map(|(part, sweep)| {
            Cell::guarded(sweep.kind, part, sweep.to_string(), move |deadline| sweep.run(deadline))
        })
    });
    sweeps.map(sweep).chain(guarded).collect()
}

/// The sweeps of every kind, on every attachment that it can have. Kinds make much the same calls: with another first for each, a
/// stride leaves out little; with another offset each time, nothing for long.
fn all(stride: usize, offset: usize) -> Vec<Vec<Sweep>> {
    let each = |(position, kind): (usize, &'static Kind)| {
        let stride = if kind.looks() { stride * LOOKING } else { stride };
        let first = passes::first(position, offset, stride);
        kind.attachments().iter().map(move |way| sweeps(kind, *way, stride, first))
    };
    list::all().enumerate().flat_map(each).collect()
}

const LAST: (Whose, Strike) = (Whose::Injector, Strike::Fail(libc::EIO));

fn sweeps(kind: &'static Kind, attach: Attach, stride: usize, first: usize) -> Vec<Sweep> {
    use Strike::{Fail, Kill, KillEverything};
    use Whose::{Holder, Injector};
    [
        (Holder, Kill),
        (Holder, KillEverything),
        (Injector, Kill),
        (Holder, Fail(libc::ENOMEM)),
        (Holder, Fail(libc::EPERM)),
        (Injector, Fail(libc::ENOMEM)),
        LAST,
    ]
    .into_iter()
    .map(|(whose, strike)| Sweep { kind, attach, whose, strike, stride, first })
    .collect()
}
