//! The table of steps: what there is, and in which order.

use super::host::{self, SERVERS};
use super::unit::unit;
use super::{other_ones, scripts, tree, vm};
use crate::error::Error;
use crate::kinds;
use crate::summary::Tally;

/// One part of `cargo xtask test`.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) run: fn() -> Result<Tally, Error>,
}

/// Steps that go one after the other.
pub(super) type Lane = &'static [Step];

/// Every step, in phases that go one after the other, cheap ones first, and of which the lanes go side by side: what mostly waits
/// there, and measures nothing. A test that is not reached from here is not run.
pub(super) const PHASES: &[&[Lane]] = &[
    &[&[
        Step { name: "fmt", run: tree::form },
        Step { name: "tidy", run: tree::rules },
        Step { name: "clippy", run: tree::lints },
        Step { name: "ebpf", run: tree::object },
        Step { name: "unit", run: unit },
    ]],
    &[
        &[Step { name: "host", run: host::host }],
        &[
            Step { name: "matrix", run: || host::program("matrix", &["--stride=64", &other_ones()]) },
            Step { name: "mcp-client", run: scripts::mcp_client },
            Step { name: "chaostoolkit", run: scripts::chaos_toolkit },
            Step { name: "report", run: scripts::report },
            Step { name: KUBERNETES, run: scripts::kubernetes_probes },
            Step { name: "vagrant", run: scripts::vagrant },
        ],
        &[
            Step { name: "sweep", run: || host::program("sweep", &["--stride=64", &other_ones()]) },
            Step { name: SERVERS, run: host::servers },
            Step { name: "sabotage", run: host::sabotage },
        ],
    ],
    &[&[
        Step {
            name: "soak",
            run: || host::program("soak", &["--steps=2000", "--minutes=10", "--cycles=1000"]),
        },
        Step { name: "kills", run: host::kill },
        Step { name: VM, run: vm::kernels },
        Step { name: VM_SOAK, run: vm::vm_soak },
        Step { name: VM_MATRIX, run: vm::vm_matrix },
        Step { name: VM_SWEEP, run: vm::vm_sweep },
        Step { name: KILLS_VM, run: vm::kill_in_vm },
        Step { name: SABOTAGE_VM, run: vm::sabotage_in_vm },
        Step { name: SYSTEMD, run: vm::systemd },
        // Last, when all have said what they have to say.
        Step { name: "kinds", run: kinds::step },
    ]],
];

/// Every step.
pub(super) fn steps() -> impl Iterator<Item = &'static Step> {
    PHASES.iter().copied().flatten().copied().flatten()
}

pub(super) const KUBERNETES: &str = "kubernetes";
const VM: &str = "vm";
const VM_SOAK: &str = "vm-soak";
const VM_MATRIX: &str = "vm-matrix";
const VM_SWEEP: &str = "vm-sweep";
const SYSTEMD: &str = "systemd";
const KILLS_VM: &str = "kills-vm";
const SABOTAGE_VM: &str = "sabotage-vm";
/// What only `--long` does, or `--only`.
pub(super) const LONG: &[&str] = &[VM_SOAK, VM_MATRIX, VM_SWEEP, KILLS_VM, SYSTEMD, KUBERNETES];
/// What needs QEMU.
pub(super) const IN_VM: &[&str] = &[VM, VM_SOAK, VM_MATRIX, VM_SWEEP, KILLS_VM, SYSTEMD, SABOTAGE_VM];
