//! Which processor does what: actions on one, the measured packets on another, so that neither waits for the other.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::{Error, Result};

/// Two processors.
#[derive(Debug, Clone, Copy)]
pub struct Processors {
    actions: usize,
    packets: usize,
}

impl Processors {
    /// The first two that we may use; the same one twice where there is no other.
    pub(super) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(Error::sys("read", "the affinity"))?;
        let mut free = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
        match (free.next(), free.next()) {
            (Some(actions), packets) => Ok(Self { actions, packets: packets.unwrap_or(actions) }),
            _ => Err(Error::Different("no processor may be used".into())),
        }
    }

    /// The one for packets.
    pub(super) fn packets(self) -> usize {
        self.packets
    }

    /// Keeps this thread, and what it starts from now on, to the processor for actions.
    pub(super) fn keep_to_actions(self) -> Result<()> {
        pin(self.actions)
    }

    /// Lets this thread, and what it starts from now on, use either.
    pub(super) fn keep_to_both(self) -> Result<()> {
        keep_to(&[self.actions, self.packets])
    }

    /// Keeps this thread to the processor for packets.
    pub(super) fn keep_to_packets(self) -> Result<()> {
        pin(self.packets)
    }
}

fn pin(cpu: usize) -> Result<()> {
    keep_to(&[cpu])
}

fn keep_to(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter()
        .try_for_each(|cpu| set.set(*cpu))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(Error::sys("keep to", format!("processors {cpus:?}")))
}
