//! The crash matrix on a real kernel: for every fault type, at every event of its life, the injector dies, its holder
//! dies, or the operation fails; and each time nothing is left after recovery, and traffic is normal at once. The events
//! are fail points, which only the build `chaos-daemon-failing` has.

mod cells;
pub(crate) mod place;
pub mod supervised;
pub(crate) mod trap;

use std::mem;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use chaos_daemon::fail_point::{Action, Point, Role, Trap};
use nix::libc::SIGKILL;

use crate::asked::Asked;
use crate::kernel::Attach;
use crate::late::SecondTry;
use crate::sweep::bench::Bench;
use crate::sweep::cell::{Cell, Work};
use crate::sweep::passes::{self, Missed, Passes};
use crate::sweep::{Found, Kind, list, nameless};
use crate::{Error, Result};
use cells::Repeats;
use trap::TrapFile;

pub use cells::{EVENTS, Event, UNDOING};

/// No fault makes so many calls.
const MOST: u32 = 1000;
/// A heartbeat comes every second.
const HEARTBEAT: Duration = Duration::from_secs(4);
/// The build with fail points.
pub(crate) const PROGRAM: &str = "chaos-daemon-failing";

/// The events of one fault's life.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    /// What is injected.
    pub kind: &'static Kind,
    /// How programs are attached.
    pub attach: Attach,
    /// Of requests to the kernel, every how many; 1 is every one.
    pub stride: usize,
    /// The first of them, from 1.
    pub first: usize,
}

/// What became of a strike.
enum Struck {
    /// The event has not so many passes.
    NotThere,
    /// All as it should be.
    Passed,
}

/// Every cell there is: of each kind every event, and whoever recovers from it, or guards it.
pub fn cells(asked: &Asked, kernel: (u32, u32)) -> Vec<Cell> {
    let (stride, choice) = (asked.stride as usize, asked.choice_of_calls());
    // A share of the events is another one on the other kernel, and for the next kind.
    let mut offset = asked.offset + usize::from(kernel >= (6, 6))..;
    let mut next = || offset.next().unwrap_or_default();
    let mut cells = Vec::new();
    for matrix in all(stride, choice) {
        let offset = next();
        let (events, points) = (asked.share_of(EVENTS, offset), asked.share_of(UNDOING, offset));
        let mut add = |part, what, work: Work| {
            cells.push(Cell::on_bench(matrix.kind, matrix.attach, part, format!("{matrix}, {what}"), work));
        };
        add(0, "every event", Box::new(move |deadline| matrix.run(&events, deadline)));
        add(1, "recovery", Box::new(move |_| matrix.recoveries(&points)));
    }
    // Only of those that kill the injector.
    let deadly: Vec<_> = EVENTS.iter().copied().filter(|event| event.kills_injector()).collect();
    for matrix in supervised::all(stride, choice) {
        let offset = next();
        let (events, points) = (asked.share_of(&deadly, offset), asked.share_of(UNDOING, offset));
        let mut add = |part, what, work: Work| {
            cells.push(Cell::guarded(matrix.kind, part, format!("{matrix}, {what}"), work));
        };
        add(0, "every event", Box::new(move |deadline| matrix.run(&events, deadline)));
        add(1, "its guard", Box::new(move |deadline| matrix.guards(&points, deadline)));
    }
    cells
}

/// Every kind, on every attachment that it can have; what is left out by a stride is up to the offset.
fn all(stride: usize, offset: usize) -> Vec<Matrix> {
    let each = |(position, kind): (usize, &'static Kind)| {
        let first = passes::first(position, offset, stride);
        kind.attachments().iter().map(move |attach| Matrix { kind, attach: *attach, stride, first })
    };
    list::all().enumerate().flat_map(each).collect()
}

impl Matrix {
    /// Strikes at each of `events`, until `deadline` at most: being late is a failure.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn run(&self, events: &[Event], deadline: Instant) -> Result<Found> {
        let trap = TrapFile::new()?;
        let mut bench = trap.bench(self.attach)?;
        let (mut found, behaved) = (Found::default(), bench.behaviour(Bench::everything)?);
        let mut second_try = SecondTry::default();
        for event in events.iter().filter(|event| event.happens_to(self.kind)) {
            let mut passes = self.passes(event.repeats());
            while let Ok(at @ ..MOST) = u32::try_from(passes.at()) {
                if Instant::now() > deadline {
                    found.failures.push(format!("not done in time, at {event} {at}"));
                    return Ok(found);
                }
                let struck = self.strike(&trap, &mut bench, event, at);
                found.judged.merge(mem::take(&mut bench.judged));
                match struck {
                    // How many there are nobody has counted.
                    Ok(Struck::NotThere) => match passes.missed(1) {
                        Missed::Another => continue,
                        Missed::Nothing if event.must_be() => {
                            found.failures.push(format!("never came to {event}"));
                            break;
                        }
                        Missed::Nothing | Missed::Done => break,
                    },
                    Ok(Struck::Passed) => {}
                    Err(error) => {
                        let (what, log) = (format!("{self}, {event} {at}"), bench.log());
                        trap.clear()?;
                        drop(bench);
                        bench = trap.bench(self.attach)?;
                        if second_try.is_due(what.clone(), &error) {
                            continue;
                        }
                        found.failures.push(format!("{what}: {error}{log}"));
                    }
                }
                passes.struck();
                found.points += 1;
            }
        }
        if let Err(error) = bench.assert_behaves_like(&behaved, Bench::everything) {
            found.failures.push(format!("after every event: {error}"));
        }
        Ok(found)
    }

    /// Which passes of an event are struck.
    fn passes(&self, repeats: Repeats) -> Passes {
        match repeats {
            Repeats::PerCall => Passes::new(self.first, self.stride),
            Repeats::PerStep => {
                // There are few of them.
                let stride = (self.stride / 15).clamp(1, 4);
                Passes::new(passes::first(self.first - 1, 0, stride), stride)
            }
            Repeats::Not => Passes::once(),
        }
    }

    /// Injects and removes, with a trap on the way.
    fn strike(&self, file: &TrapFile, bench: &mut Bench, event: &Event, at: u32) -> Result<Struck> {
        let fault = bench.fault_in_matrix(self.kind.name)?;
        bench.prepare(self.kind);
        bench.ready()?;
        let (daemon, mcp) = bench.daemon()?;
        let server = daemon.server();
        let trap =
            Trap { point: event.point, role: event.role, first: at, times: Some(1), action: event.action };
        if !event.is_of_active() {
            file.set(&trap)?;
        }
        let injected = fault.inject(mcp);
        if injected.is_ok() {
            file.unless_sprung(|| bench.assert_acts(self.kind, || file.has_sprung()))?;
        }
        if event.is_of_active() {
            file.set(&trap)?;
        }
        if injected.is_ok() && event.is_renewal() {
            file.wait_sprung(HEARTBEAT);
        }
        let removed = injected.is_ok().then(|| fault.remove(mcp));
        let Some(struck) = file.clear()? else {
            injected?;
            removed.transpose()?;
            return Ok(Struck::NotThere);
        };
        if event.kills_injector() {
            return bench.judge_death(struck).map(|_| Struck::Passed);
        }
        if let Some(answer) = nameless(server, [Some(injected), removed]) {
            return Err(Error::Different(format!("an error without a name: {answer}")));
        }
        // What failed may have kept the fault from being removed. It has been by now, or is once more.
        let since = if event.action == Action::Kill { Instant::now() } else { bench.remove(&fault)? };
        bench.judge_survival(&fault, since)?;
        match event.point {
            // What failed may have been the removal of the journal, which is recovery's then.
            Point::BeforeForget | Point::AfterForget => bench.restart()?,
            _ => bench.journal_is_empty()?,
        }
        Ok(Struck::Passed)
    }

    /// Everything dies with the fault active; then recovery itself dies, again and again, at each of its events of `points`
    /// in turn; and the one that is left to finish leaves nothing.
    ///
    /// # Errors
    /// When it cannot be carried out at all.
    pub fn recoveries(&self, points: &[Point]) -> Result<Found> {
        let file = TrapFile::new()?;
        let (mut found, mut second_try) = (Found::default(), SecondTry::default());
        for &point in points {
            let before = found.points;
            let mut judged = self.recovery(&file, point, &mut found)?;
            if judged
                .as_ref()
                .is_err_and(|error| second_try.is_due(format!("{self}, recovery at {point:?}"), error))
            {
                found.points = before;
                judged = self.recovery(&file, point, &mut found)?;
            }
            if let Err(error) = judged {
                found.failures.push(format!("recovery at {point:?}: {error}"));
            }
        }
        Ok(found)
    }

    /// The same at one point. What the end of it comes to is for the caller; all else that is wrong is among the failures.
    fn recovery(&self, file: &TrapFile, point: Point, found: &mut Found) -> Result<Result<()>> {
        let mut bench = file.bench(self.attach)?;
        let fault = bench.fault_in_matrix(self.kind.name)?;
        bench.prepare(self.kind);
        fault.inject(bench.ready()?.1)?;
        bench.assert_acts(self.kind, || false)?;
        bench.kill_everything()?;
        for at in 1..MOST {
            let role = Role::Recovery;
            file.set(&Trap { point, role, first: at, times: Some(1), action: Action::Kill })?;
            let recovery = bench.recover()?;
            let died = recovery.status.signal() == Some(SIGKILL);
            if !died && !recovery.status.success() {
                found.failures.push(format!("recovery at {point:?} {at}: {recovery:?}"));
            }
            if file.clear()?.is_some() != died {
                found.failures.push(format!("recovery at {point:?} {at}: died: {died}"));
            }
            if !died && at == 1 && self.recovers_by(point) {
                found.failures.push(format!("recovery never came to {point:?}"));
            }
            if !died {
                break;
            }
            found.points += 1;
        }
        let judged = bench.judge_death(Instant::now());
        found.judged.merge(bench.judged);
        Ok(judged.map(drop))
    }

    /// Whether recovery has to come to a point: what dies with its holder it makes no request for, and a stub does not.
    fn recovers_by(&self, point: Point) -> bool {
        point != Point::AfterCall || self.attach == Attach::Clsact
    }
}

impl std::fmt::Display for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by {:?}", self.kind.name, self.attach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::passes::tests::struck_by_all;

    #[test]
    fn over_all_offsets_of_a_stride_every_pass_of_every_event_is_struck() {
        for stride in [1, 36, 90] {
            let all: Vec<_> = (0..stride).map(|offset| all(stride, offset)).collect();
            for position in 0..all[0].len() {
                for (repeats, there) in [(Repeats::PerCall, 60), (Repeats::PerCall, 4), (Repeats::PerStep, 7)]
                {
                    let passes = all.iter().map(|matrices| matrices[position].passes(repeats));
                    assert_eq!(struck_by_all(passes, there, 1), (1..=there).collect::<Vec<_>>());
                }
            }
        }
    }
}
