//! What a kind of fault needs of the machine, and what a machine has of it.

use std::path::Path;

use serde_json::Value;

use crate::kernel::Context;
use crate::skip::Environment;

/// What a kind needs, whatever it is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Needs {
    /// Nothing that not every kernel has.
    Nothing,
    /// sch_netem. Without it these are refused.
    Netem(&'static [Lacking]),
    /// Programs at the security hooks.
    Lsm,
    /// A clock that is nobody else's.
    OwnClock,
    /// A service manager that is nobody else's.
    OwnManager,
    /// A host that may go down.
    OwnHost,
}

/// What is refused for want of something: its name in the table, and its parameters.
pub(crate) type Lacking = (&'static str, fn() -> Value);

/// Why no kind of a service manager is tried where there is none.
pub(super) const NO_MANAGER: &str =
    "no service manager is PID 1 here that is a test's own; the tests on systemd do it";

/// Why what takes a host down is not tried.
pub(super) const TAKES_DOWN: &str =
    "it would take down the host that judges; the tests on systemd do it, in a VM";

impl Needs {
    /// Whether few machines have it: a kernel that has everything, or a machine of its own. What needs systemd is for tests that
    /// have one.
    pub(crate) fn is_rare(self) -> bool {
        match self {
            Self::Nothing | Self::OwnManager | Self::OwnHost => false,
            Self::Netem(_) | Self::Lsm | Self::OwnClock => true,
        }
    }
}

/// What this machine has of what kinds need.
#[derive(Debug)]
pub struct Machine {
    netem: bool,
    lsm: bool,
    own_clock: bool,
    own_manager: bool,
    kernel: (u32, u32),
}

impl Machine {
    /// Finds it out.
    pub fn of(context: &Context) -> Self {
        let is_own = context.environment == Environment::Vm;
        // There only where systemd has booted the machine (sd_booted(3)).
        let own_manager = is_own && Path::new("/run/systemd/system").is_dir();
        Self {
            netem: context.has_netem(),
            lsm: context.has_bpf_lsm(),
            own_clock: is_own,
            own_manager,
            kernel: context.kernel,
        }
    }

    /// What it lacks of these, as a reason to leave a kind out.
    pub(crate) fn lacks(&self, needs: Needs) -> Option<&'static str> {
        match needs {
            Needs::Netem(_) if !self.netem => Some("this kernel has no sch_netem"),
            Needs::Lsm if !self.lsm => {
                Some("bpf is not among the kernel's security modules, or lockdown is on")
            }
            Needs::OwnClock if !self.own_clock => Some("the clock of a host is not a test's to change"),
            Needs::OwnManager if !self.own_manager => Some(NO_MANAGER),
            Needs::OwnHost => Some(TAKES_DOWN),
            _ => None,
        }
    }

    /// Whether programs can be attached by tcx.
    pub(crate) fn has_tcx(&self) -> bool {
        self.kernel >= (6, 6)
    }
}
