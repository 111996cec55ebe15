//! A skipped test says so, by a name from a list, and only where the list allows it.

use serde::{Deserialize, Serialize};

/// What the runner looks for in a test's output.
pub const MARK: &str = "CHAOS-SKIP ";

/// Why a test cannot be run here. There is no other excuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// `sch_netem` is neither built in nor a module that can be loaded.
    NoNetem,
    /// tcx links came with 6.6.
    NoTcx,
    /// The kernel has no vsock loopback.
    NoVsockLoopback,
    /// Loading BPF LSM programs is refused (lockdown).
    NoBpfLsm,
    /// No file can be mounted as a disk.
    NoLoop,
    /// The controllers of cgroup v2 are not there, because version 1 has them, or are not enabled on this host.
    NoCgroupControllers,
    /// It would change what belongs to everybody on the machine: its clock, its memory, its power.
    NotOurMachine,
}

/// Every reason.
pub const REASONS: &[Reason] = &[
    Reason::NoNetem,
    Reason::NoTcx,
    Reason::NoVsockLoopback,
    Reason::NoBpfLsm,
    Reason::NoLoop,
    Reason::NoCgroupControllers,
    Reason::NotOurMachine,
];

impl Reason {
    /// Its name in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoNetem => "kernel-without-sch_netem",
            Self::NoTcx => "kernel-without-tcx",
            Self::NoVsockLoopback => "kernel-without-vsock_loopback",
            Self::NoBpfLsm => "kernel-without-bpf-lsm",
            Self::NoLoop => "kernel-without-loop-devices",
            Self::NoCgroupControllers => "no-cgroup-v2-controllers",
            Self::NotOurMachine => "needs-a-machine-of-its-own",
        }
    }

    /// Whether a test may be skipped for this. A host may have any kernel; the VM's kernels have everything but
    /// tcx before 6.6.
    pub fn allowed(self, environment: Environment, kernel: (u32, u32)) -> bool {
        match environment {
            Environment::Host => true,
            Environment::Vm => self == Self::NoTcx && kernel < (6, 6),
        }
    }
}

/// Where tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// Somebody's machine, of which we own only what we make.
    Host,
    /// A kernel all to ourselves.
    Vm,
}

impl Environment {
    /// `vm-init` says so in `CHAOS_ENVIRONMENT`.
    pub fn detect() -> Self {
        match std::env::var("CHAOS_ENVIRONMENT").as_deref() {
            Ok("vm") => Self::Vm,
            _ => Self::Host,
        }
    }
}

/// Tells the runner that this test is skipped; return from it right after.
pub fn skip(reason: Reason, detail: &str) {
    eprintln!("{MARK}{}: {detail}", reason.name());
}

/// Major and minor number of the running kernel; (0, 0) when it does not say.
pub fn kernel_version() -> (u32, u32) {
    let release = kernel_release();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// As `uname -r`.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vm_excuses_nothing_but_tcx_on_old_kernels() {
        for &reason in REASONS {
            assert!(!reason.allowed(Environment::Vm, (6, 12)), "{}", reason.name());
        }
        assert!(Reason::NoTcx.allowed(Environment::Vm, (6, 1)));
        assert!(!Reason::NoNetem.allowed(Environment::Vm, (6, 1)));
        assert!(Reason::NoNetem.allowed(Environment::Host, (6, 18)));
    }
}
