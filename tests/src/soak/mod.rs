//! The soak: random steps and deaths from a seed, on real namespaces with traffic, each compared with a model.

mod model;
mod steps;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::prctl;

use crate::kernel::{Attach, Context};
use crate::{Error, Result};
use model::{Kind, Random};
use steps::{STEPS, Step};
use world::World;

/// How long, and which.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Replays the same steps, as far as timing lets it.
    pub seed: u64,
    /// No more steps than this.
    pub steps: usize,
    /// No longer than this.
    pub limit: Duration,
    /// How programs are attached.
    pub attach: Attach,
}

/// What a soak did.
#[derive(Debug, Default)]
pub struct Figures {
    /// Steps taken, by name.
    pub steps: BTreeMap<String, usize>,
    /// From the death of everything to the first packet that came through, when a fault had blocked it.
    pub normal: Vec<Duration>,
    /// Packets of the bystander.
    pub packets: u64,
    /// What ended the soak, when it was not its time: step, number and what was wrong.
    pub failure: Option<String>,
}

/// A running soak.
struct Soak {
    random: Random,
    kinds: Vec<Kind>,
    world: World,
    figures: Figures,
    /// Nothing but faults has happened to the bystander's device.
    spared: bool,
}

/// Runs it.
///
/// # Errors
/// When it cannot be begun.
pub fn run(plan: Plan) -> Result<Figures> {
    // What the injector leaves when it dies becomes a child of ours, and can be waited for.
    prctl::set_child_subreaper(true).map_err(Error::sys("become", "subreaper"))?;
    let mut kinds = vec![Kind::Partition, Kind::Timeout, Kind::Error, Kind::Cpu];
    if Context::new().has_netem() {
        kinds.push(Kind::Latency);
    }
    let mut soak = Soak {
        random: Random(plan.seed),
        kinds,
        world: World::new(plan.attach)?,
        figures: Figures::default(),
        spared: true,
    };
    let deadline = Instant::now() + plan.limit;
    for number in 1..=plan.steps {
        if Instant::now() > deadline {
            break;
        }
        let step = soak.next();
        *soak.figures.steps.entry(format!("{step:?}")).or_default() += 1;
        if let Err(error) = soak.take(step) {
            soak.figures.failure = Some(format!("step {number}, {step:?}: {error}"));
            return Ok(soak.figures);
        }
    }
    if let Err(error) = soak.finish() {
        soak.figures.failure = Some(format!("at the end: {error}"));
    }
    Ok(soak.figures)
}

impl Soak {
    fn next(&mut self) -> Step {
        let total = STEPS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.below(total);
        for (step, weight) in STEPS {
            if at < *weight {
                return *step;
            }
            at -= weight;
        }
        Step::Wait
    }

    fn renew_site(&mut self) -> Result<()> {
        self.figures.packets += self.world.renew_site(self.spared)?;
        self.spared = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.take(Step::StopAll)?;
        self.renew_site()
    }
}
