//! `cargo xtask soak`: random faults and deaths for as long as asked, then a bystander beside a thousand injections.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::error::Error;
use crate::summary::Tally;
use crate::{test, tools};

/// Options of `cargo xtask soak`.
#[derive(Args)]
pub(crate) struct Options {
    /// No longer than this
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Replay the steps of this seed; default: a new one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// No more steps than this
    #[arg(long)]
    steps: Option<u64>,
    /// Only this lane of those that go side by side
    #[arg(long)]
    lane: Option<u64>,
    /// Injections beside the bystander
    #[arg(long, default_value_t = 1000)]
    cycles: u32,
}

/// What is soaked, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) steps: Option<u64>,
    pub(crate) minutes: u64,
    /// Only this one.
    pub(crate) lane: Option<u64>,
    pub(crate) cycles: u32,
}

impl Plan {
    /// Runs it on this machine. `until` is an argument more, which says when it begins nothing further.
    pub(crate) fn run(&self, until: Option<String>) -> Result<Tally, Error> {
        let arguments: Vec<_> = self.arguments().into_iter().chain(until).collect();
        test::program("soak", &arguments, &|cell| self.replay(cell))
    }

    /// For the program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { seed, steps, minutes, lane, cycles } = self;
        let always = [format!("--seed={seed}"), format!("--minutes={minutes}"), format!("--cycles={cycles}")];
        let lane = lane.map(|lane| format!("--lane={lane}"));
        always.into_iter().chain(steps.map(|steps| format!("--steps={steps}"))).chain(lane).collect()
    }

    /// The command that does again what has failed: a lane, what is beside a bystander, or all of it.
    pub(crate) fn replay(&self, cell: &str) -> String {
        let lane = cell.strip_prefix("lane ").and_then(|lane| lane.parse().ok());
        let again = match lane {
            Some(lane) => Self { lane: Some(lane), cycles: 0, ..*self },
            None if cell.starts_with("bystander") => Self { steps: Some(0), ..*self },
            None => *self,
        };
        format!("cargo xtask soak {}", again.arguments().join(" "))
    }
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    if !tools::is_root() {
        return Err(Error::Lacking("soak: needs root to make network namespaces".into()));
    }
    let Options { minutes, seed, steps, lane, cycles } = *options;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let tally = Plan { seed: seed.unwrap_or(now), steps, minutes, lane, cycles }.run(None)?;
    tally.print_exceptions();
    Ok(tally.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_done_again_by_seed_and_lane_and_a_bystander_without_steps() {
        let plan = Plan { seed: 7, steps: Some(300), minutes: 10, lane: None, cycles: 100 };
        assert_eq!(
            plan.replay("lane 1"),
            "cargo xtask soak --seed=7 --minutes=10 --cycles=0 --steps=300 --lane=1"
        );
        assert_eq!(
            plan.replay("bystander by Auto"),
            "cargo xtask soak --seed=7 --minutes=10 --cycles=100 --steps=0"
        );
        assert_eq!(
            plan.replay("every lane"),
            "cargo xtask soak --seed=7 --minutes=10 --cycles=100 --steps=300"
        );
    }
}
