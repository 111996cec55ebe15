//! The soak: random steps and deaths from a seed, on real namespaces with traffic, each compared with what should be.
//!
//! Several lanes go side by side, each with namespaces, traffic and a daemon of its own, since most of a step is
//! waiting; in the VM one after the other. What happens in a lane is a function of the seed and the number of its script (`script.rs`).

mod blows;
mod guarded;
mod ledger;
mod machine;
mod script;
mod steps;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::prctl;

use crate::cells::Partition;
use crate::kernel::{Attach, Context};
use crate::mounts::with_tiny_tmpfs;
use crate::residue::{Behaviour, Judged};
use crate::skip::Environment;
use crate::stall::{Cause, Stalls};
use crate::{Error, Result};
use script::{Abilities, Action, Script, Step};
use world::World;

/// Room for a daemon's runtime directory, in KiB.
const ROOM: u32 = 256;

/// What went on so long before a step can be the reason why it went wrong: faults end early two lease windows after a holder, or the
/// injector, fell silent.
const BEFORE: Duration = Duration::from_secs(7);
/// A machine on which it lasts longer is none to soak on.
const LONGEST: Duration = Duration::from_secs(90);
/// In one lane; a machine that has more to be excused is none to soak on.
const MOST_EXCUSED: usize = 8;

/// How long, and which.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Replays the same steps.
    pub seed: u64,
    /// No more steps than this, over all lanes.
    pub steps: usize,
    /// No longer than this.
    pub limit: Duration,
    /// Only this lane.
    pub lane: Option<usize>,
    /// Only this part of the steps, in one of the lanes. What has to come first is shared out among the parts.
    pub part: Option<Partition>,
}

impl Plan {
    /// The lanes of so many that are run, with the number of the script of each, of how many scripts.
    fn scripts(&self, lanes: usize) -> (Vec<(usize, usize)>, usize) {
        match self.part {
            Some(part) => (vec![(part.index() % lanes, part.index())], part.of()),
            None => {
                let chosen = (0..lanes).filter(|lane| self.lane.is_none_or(|only| only == *lane));
                (chosen.map(|lane| (lane, lane)).collect(), lanes)
            }
        }
    }
}

/// One of the worlds that go side by side.
#[derive(Debug, Clone, Copy)]
struct Lane {
    number: u64,
    /// How programs are attached.
    attach: Attach,
    /// Whether there is a clsact qdisc on the device beforehand.
    clsact: bool,
    kernel: (u32, u32),
}

impl Lane {
    /// Whether faults bring and take a clsact qdisc, which costs packets of whoever uses the device.
    fn restarts_queue(self) -> bool {
        !self.clsact && (self.attach == Attach::Clsact || self.kernel < (6, 6))
    }
}

/// What a soak did.
#[derive(Debug, Default)]
pub struct Figures {
    /// Steps taken, by name, but for those that are excused.
    pub steps: BTreeMap<String, usize>,
    /// From a blow to the first packet that came through, when a fault had blocked it; by the blow's name.
    pub normal: BTreeMap<String, Vec<Duration>>,
    /// From the end of a fault's time to the first packet that came through.
    pub late: Vec<Duration>,
    /// From a death or standstill of the injector until the guard had ended all that outlives it.
    pub guarded: Vec<Duration>,
    /// Packets of targets and of bystanders.
    pub packets: [u64; 2],
    /// Of these, lost without a fault that explains it, come through one, or arrived twice.
    pub unexplained: u64,
    /// Steps that went wrong and are excused, by the cause that was seen. Their lane began anew, with nothing left behind.
    pub excused: Vec<Cause>,
    /// How often packets came through a fault while something kept the daemon, so that a lease may have run out.
    pub doubtful: usize,
    /// What was found of residue when every fault had ended.
    pub judged: Judged,
    /// What was wrong: `lane N: `, number of the step, step; or `every lane: `.
    pub failures: Vec<String>,
}

impl Figures {
    /// How many steps were taken, without those that are excused.
    pub fn taken(&self) -> usize {
        self.steps.values().sum()
    }

    fn count(&mut self, step: Step) {
        *self.steps.entry(format!("{step:?}")).or_default() += 1;
    }

    fn merge(&mut self, other: Self) {
        for (name, count) in other.steps {
            *self.steps.entry(name).or_default() += count;
        }
        for (name, times) in other.normal {
            self.normal.entry(name).or_default().extend(times);
        }
        self.late.extend(other.late);
        self.guarded.extend(other.guarded);
        self.packets = [self.packets[0] + other.packets[0], self.packets[1] + other.packets[1]];
        self.unexplained += other.unexplained;
        self.excused.extend(other.excused);
        self.doubtful += other.doubtful;
        self.judged.merge(other.judged);
        self.failures.extend(other.failures);
    }
}

/// A lane that is under way.
struct Soak {
    world: World,
    figures: Figures,
}

/// Every way to attach, with and without a clsact qdisc that is there already.
fn lanes(context: &Context) -> Vec<Lane> {
    let ways: &[(Attach, bool)] = match (context.environment, context.kernel >= (6, 6)) {
        (Environment::Host, true) => {
            &[(Attach::Auto, false), (Attach::Clsact, false), (Attach::Auto, false), (Attach::Clsact, true)]
        }
        (Environment::Vm, true) => &[(Attach::Auto, false), (Attach::Clsact, true)],
        (_, false) => &[(Attach::Auto, false), (Attach::Auto, true)],
    };
    let lane = |(number, (attach, clsact)): (usize, &(Attach, bool))| Lane {
        number: number as u64,
        attach: *attach,
        clsact: *clsact,
        kernel: context.kernel,
    };
    ways.iter().enumerate().map(lane).collect()
}

/// Runs it.
///
/// # Errors
/// When it cannot be begun.
pub fn run(plan: Plan) -> Result<Figures> {
    // What the injector leaves when it dies becomes a child of ours, and can be waited for.
    prctl::set_child_subreaper(true).map_err(Error::sys("become", "subreaper"))?;
    let context = Context::new();
    let abilities = Abilities { vm: context.environment == Environment::Vm, netem: context.has_netem() };
    if abilities.vm {
        crate::cgroup::enable("memory")?;
    }
    let stalls = Stalls::watch();
    let lanes = lanes(&context);
    let (chosen, scripts) = plan.scripts(lanes.len());
    // In the VM a picture shows what the whole kernel has; so there is one lane at a time.
    let abreast = if abilities.vm { 1 } else { chosen.len().max(1) };
    let turns = chosen.chunks(abreast);
    let (share, limit) = (plan.steps.div_ceil(scripts), plan.limit / u32::try_from(turns.len()).unwrap_or(1));
    let mut total = Figures::default();
    for turn in turns {
        let deadline = Instant::now() + limit;
        std::thread::scope(|scope| {
            let start = |(lane, script): &(usize, usize)| {
                let script = Script::new(plan.seed, *script, scripts, abilities);
                let (lane, stalls) = (lanes[*lane], &stalls);
                scope.spawn(move || with_tiny_tmpfs(ROOM, || live(lane, script, share, deadline, stalls)))
            };
            let running: Vec<_> = turn.iter().map(start).collect();
            for thread in running {
                match thread.join() {
                    Ok(Ok(figures)) => total.merge(figures),
                    Ok(Err(error)) => total.failures.push(format!("every lane: {error}")),
                    Err(_) => total.failures.push("every lane: one panicked".into()),
                }
            }
        });
    }
    Ok(total)
}

fn live(lane: Lane, mut script: Script, steps: usize, deadline: Instant, stalls: &Stalls) -> Result<Figures> {
    let world = World::new(lane, stalls.watch_lane())?;
    let behaved = world.behaviour()?;
    let mut soak = Soak { world, figures: Figures::default() };
    let mut number = 0;
    // An excused one is not counted, and another is taken instead.
    while soak.figures.taken() < steps && Instant::now() <= deadline {
        number += 1;
        let action = script.next();
        let (begun, unexplained) = (Instant::now(), soak.figures.unexplained);
        let taken = soak.take(action);
        soak.figures.judged.merge(soak.world.judged.take());
        let since = begun.checked_sub(BEFORE).unwrap_or(begun);
        let Err(error) = taken else {
            soak.figures.count(action.step);
            if let Some(cause) = soak.world.seen.cause_of_doubt_since(since) {
                println!("{lane:?}, step {number}, {action:?}: a lease may have run out, because {cause}");
                soak.world.excuse_leaks(since);
            }
            continue;
        };
        let at = format!("step {number}, {action:?}");
        if let Err(error) = soak.excuse(&at, error, since) {
            soak.figures.count(action.step);
            return Ok(soak.failed(&at, &error));
        }
        let mut figures = std::mem::take(&mut soak.figures);
        drop(soak);
        figures.unexplained = unexplained;
        script.forget();
        soak = Soak { world: World::new(lane, stalls.watch_lane())?, figures };
    }
    let (begun, unexplained) = (Instant::now(), soak.figures.unexplained);
    let finished = soak.finish(&behaved);
    soak.figures.judged.merge(soak.world.judged.take());
    let Err(error) = finished else { return Ok(soak.figures) };
    match soak.excuse("at the end", error, begun.checked_sub(BEFORE).unwrap_or(begun)) {
        Ok(()) => Ok(Figures { unexplained, ..soak.figures }),
        Err(error) => Ok(soak.failed("at the end", &error)),
    }
}

impl Soak {
    fn failed(mut self, at: &str, error: &Error) -> Figures {
        let (lane, logs) = (self.world.lane, self.world.logs());
        self.figures.failures.push(format!("lane {}: {lane:?}, {at}: {error}\n{logs}", lane.number));
        self.figures
    }

    /// Excuses what went wrong if a cause was seen that is not the daemon's, and if afterwards everything can be killed and recovered.
    fn excuse(&mut self, at: &str, error: Error, since: Instant) -> Result<()> {
        let cause = self.world.seen.any_cause_since(since);
        let Some(cause) = cause.filter(|_| self.figures.excused.len() < MOST_EXCUSED) else {
            let rcu = self.world.seen.rcu_since(since);
            let unseen = "nothing was seen that excuses it";
            return Err(Error::Different(format!("{error}; {unseen} (RCU took at most {rcu:.1?})")));
        };
        self.world.seen.wait_over(LONGEST);
        // All of it, now that it is over.
        let cause = self.world.seen.any_cause_since(since).unwrap_or(cause);
        let what = format!("{error}; excused, because {cause}");
        self.leave_nothing().map_err(|residue| Error::Different(format!("{what}; then {residue}")))?;
        println!("{:?}, {at}: {what}; everything was recovered", self.world.lane);
        self.figures.excused.push(cause);
        Ok(())
    }

    /// Everything dies and is recovered: what should be active is not known any more, but that nothing is left is.
    fn leave_nothing(&mut self) -> Result<()> {
        // It may stand still, and have recovery wait for it.
        self.world.guard.kill();
        let dead = self.world.daemon.processes();
        self.world.daemon.kill_everything();
        self.world.recover(&dead)
    }

    fn renew_site(&mut self) -> Result<()> {
        let accounts = self.world.renew_site()?;
        for (total, account) in self.figures.packets.iter_mut().zip(accounts) {
            *total += account.sent;
            self.figures.doubtful += usize::try_from(account.stretches).unwrap_or(usize::MAX);
        }
        let unexplained: u64 =
            accounts.iter().map(|account| account.lost + account.leaked + account.twice).sum();
        self.figures.unexplained += unexplained;
        match unexplained {
            0 => Ok(()),
            _ => Err(Error::Different(format!("target and bystander: {accounts:?}"))),
        }
    }

    fn finish(&mut self, behaved: &Behaviour) -> Result<()> {
        self.stop_everything()?;
        self.world.assert_calm()?;
        self.world.ask_the_doctor()?;
        if self.world.is_hurt() {
            self.renew_site()?;
        }
        self.world.assert_behaves_like(behaved)?;
        self.renew_site()
    }

    /// Notes how long after a blow traffic was normal.
    fn note_normal(&mut self, action: Action, normal: Duration) {
        self.figures.normal.entry(format!("{:?}", action.step)).or_default().push(normal);
    }
}
