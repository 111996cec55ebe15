//! The table of steps: what there is, in which order, and in how many shares.

use super::chosen::{Chosen, Takes};
use super::host::{self, SERVERS};
use super::ledger::Set;
use super::unit::unit;
use super::vm::{self, InVm};
use super::{fuzz, scripts, tree};
use crate::error::Error;
use crate::kinds;
use crate::summary::Tally;

/// One part of `cargo xtask test`.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// Of a set of cells, in how many shares it is run, one each landing; 0 of what is run whole.
    pub(super) shares: u32,
    pub(super) run: Run,
}

/// How a step is run.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// By itself.
    Alone(Alone),
    /// In VMs, of which one for each kernel does this for all steps that come one after the other.
    InVm(InVm),
}

type Alone = fn(&Chosen) -> Result<Tally, Error>;

impl Step {
    /// Run whole.
    const fn whole(name: &'static str, run: Alone) -> Self {
        Self { name, takes: Takes::NOTHING, shares: 0, run: Run::Alone(run) }
    }

    /// Run whole, unless some of it is asked for.
    const fn suite(name: &'static str, takes: Takes, run: Alone) -> Self {
        Self { takes, ..Self::whole(name, run) }
    }

    /// A set: a share each landing.
    const fn set(name: &'static str, shares: u32, takes: Takes, run: Alone) -> Self {
        Self { name, takes, shares, run: Run::Alone(run) }
    }

    /// A set that is run in VMs, with others.
    const fn with_vm(name: &'static str, shares: u32, takes: Takes, run: InVm) -> Self {
        Self { name, takes, shares, run: Run::InVm(run) }
    }

    /// What goes into one VM with that of its neighbours, if it does.
    pub(super) fn in_vm(&self) -> Option<InVm> {
        match self.run {
            Run::InVm(what) => Some(what),
            Run::Alone(_) => None,
        }
    }

    /// Whether it needs QEMU.
    pub(super) fn needs_qemu(&self) -> bool {
        self.in_vm().is_some() || self.name == SYSTEMD
    }

    /// Why a landing does not run it, if so.
    pub(super) fn waits_at(&self, landing: u64) -> Option<String> {
        if self.name == FUZZ {
            return Some("only with --long, or --only".to_owned());
        }
        let (_, turns) = RARE.iter().find(|(name, _)| *name == self.name)?;
        let wait = turns - landing % turns;
        (wait < *turns).then(|| format!("its turn is every {turns} landings, next in {wait}; or with --long"))
    }

    /// As one of the ledger.
    pub(super) fn as_set(&self) -> Option<Set> {
        (self.shares > 0).then_some(Set { name: self.name, shares: self.shares })
    }
}

/// Steps that go one after the other.
pub(super) type Lane = &'static [Step];

/// Lanes that go side by side.
pub(super) struct Phase {
    /// Of the time that is left when it begins, after how many of a hundred parts no cell of its sets is begun.
    pub(super) until: u32,
    pub(super) lanes: &'static [Lane],
}

/// Every step, in phases that go one after the other, cheap ones first, and of which the lanes go side by side: what mostly waits
/// there, and measures nothing. A test that is not reached from here is not run. The shares of a set are as many as make each of
/// them take a minute or two on two processors, and at most twelve: within so many landings each cell is met.
pub(super) const PHASES: &[Phase] = &[
    Phase {
        until: 0,
        lanes: &[&[
            Step::whole("fmt", |_| tree::form()),
            Step::whole("tidy", |_| tree::rules()),
            Step::whole("clippy", |_| tree::lints()),
            Step::whole("ebpf", |_| tree::object()),
            Step::suite("unit", Takes::FILTERS, unit),
        ]],
    },
    Phase {
        until: 55,
        lanes: &[
            &[Step::suite("host", Takes::NAMES, host::host)],
            &[
                Step::set("matrix", 6, Takes::POINTS, host::points),
                Step::whole("mcp-client", scripts::mcp_client),
                Step::whole("chaostoolkit", scripts::chaos_toolkit),
                Step::whole("report", scripts::report),
                Step::set(KUBERNETES, 1, Takes::NOTHING, scripts::kubernetes_probes),
                Step::whole("vagrant", scripts::vagrant),
            ],
            &[
                Step::set("sweep", 6, Takes::POINTS, host::points),
                Step::suite(SERVERS, Takes::NAMES, host::servers),
                Step::set("sabotage", 4, Takes::NAMES, host::sabotage),
            ],
        ],
    },
    Phase {
        until: 35,
        lanes: &[&[
            Step::set(FUZZ, 1, Takes::NAMES, fuzz::fuzz),
            Step::set("soak", 6, Takes::NOTHING, host::soak),
            Step::set("kills", 4, Takes::NAMES, host::kill),
            Step::set("hostile", 12, Takes::POINTS, host::hostile),
        ]],
    },
    Phase {
        until: 100,
        lanes: &[
            // One after the other: they share a VM.
            &[
                Step::with_vm("sabotage-vm", 2, Takes::NAMES, InVm::Sabotage),
                Step::with_vm("vm", 12, Takes::NAMES, InVm::Tests),
                Step::with_vm("kills-vm", 12, Takes::NAMES, InVm::Kills),
                Step::with_vm("vm-matrix", 12, Takes::POINTS, InVm::Matrix),
                Step::with_vm("vm-sweep", 12, Takes::POINTS, InVm::Sweep),
                Step::with_vm("vm-soak", 12, Takes::NOTHING, InVm::Soak),
                // Not beside them: three emulated machines on two processors are too slow for what their tests wait for.
                Step::set(SYSTEMD, vm::SYSTEMD_SHARES, Takes::NOTHING, vm::systemd),
            ],
        ],
    },
    // Last, when all have said what they have to say.
    Phase { until: 100, lanes: &[&[Step::whole("kinds", |_| kinds::step())]] },
];

/// Every step.
pub(super) fn steps() -> impl Iterator<Item = &'static Step> {
    lanes().flatten()
}

fn lanes() -> impl Iterator<Item = Lane> {
    PHASES.iter().flat_map(|phase| phase.lanes).copied()
}

/// Every set of cells of these steps, cheap ones first.
pub(super) fn sets(wanted: impl Fn(&Step) -> bool) -> Vec<Set> {
    let mut wanted: Vec<_> = steps().filter(|step| wanted(step)).filter_map(Step::as_set).collect();
    wanted.sort_by_key(|set| set.name == FUZZ || RARE.iter().any(|(name, _)| *name == set.name));
    wanted
}

/// It is built for much longer than it runs, and is run when it is asked for.
const FUZZ: &str = "fuzz";
const KUBERNETES: &str = "kubernetes";
const SYSTEMD: &str = "systemd";
/// Sets of one share that take a turn in so many landings, since what they need is built longer than they take.
const RARE: &[(&str, u64)] = &[(KUBERNETES, 12)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_steps_have_one_name_and_no_set_takes_more_than_twelve_landings() {
        let mut names: Vec<_> = steps().map(|step| step.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(sets(|_| true).iter().all(|set| (1..=12).contains(&set.shares)));
    }

    #[test]
    fn what_is_rare_has_its_turn_once_in_twelve_landings() {
        for step in steps() {
            let turns = (600..612).filter(|landing| step.waits_at(*landing).is_none()).count();
            let expected = match step.name {
                KUBERNETES => 1,
                FUZZ => 0,
                _ => 12,
            };
            assert_eq!(turns, expected, "{}", step.name);
        }
    }

    #[test]
    fn what_is_run_in_vms_stands_together_so_that_each_kernel_is_booted_once() {
        let together = lanes()
            .flat_map(|lane| lane.chunk_by(|one, next| one.in_vm().is_some() == next.in_vm().is_some()));
        assert_eq!(together.filter(|steps| steps[0].in_vm().is_some()).count(), 1);
    }
}
