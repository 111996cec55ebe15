//! The way round of a packet that is to be delayed, lost or changed: a veth pair with netem, and programs on both ends.

use std::cell::Cell;
use std::time::Duration;

use super::arm::{ArmError, attach, check_attached, filter, netlink, prepare, rule};
use crate::fault::detour::loop_id;
use crate::fault::{Attach, LoopWork};
use crate::host::{Interface, NetNs};
use crate::kernel::bpf::{Hook, LoopEnd, Programs};
use crate::kernel::netlink::marks::{self, NETEM_HANDLE};
use crate::kernel::netlink::{Device, Loss, NetemState, Netlink};
use crate::sabotage::{self, Guard};
use crate::spec::Direction;
use crate::spec::dns::keys;
use chaos_common::rule::RETURN_INGRESS;
use chaos_common::{Counters, DnsRule};

/// How long our own device may take to come up.
const UP_LIMIT: Duration = Duration::from_secs(5);

/// A veth loop for one direction.
pub struct Loop {
    pub(super) programs: Programs,
    pub(super) near: Device,
    /// The target device.
    target: (u32, String),
    /// The longest delay that is planned.
    pub(super) longest: Duration,
    /// What was last read of the packets that it has lost, where that is what it is for.
    lost: Option<Cell<u32>>,
    /// Keeps the private namespace, and with it both ends and the queue. Last, so that it goes last.
    _private: NetNs,
}

impl Loop {
    /// Whether both ends of the way are where they were: a device that has moved to another namespace takes its programs along,
    /// which then send packets to whatever has the other's number there, or nowhere. Not to be told is no reason to end.
    ///
    /// # Errors
    /// When one is not there any more.
    pub(super) fn check(&self) -> Result<(), ArmError> {
        for (index, name) in [(self.target.0, &self.target.1), (self.near.ifindex, &self.near.name)] {
            if matches!(Interface::is_here(index), Ok(false)) {
                return Err(ArmError::ReadBack {
                    subject: format!("device {name} ({index})"),
                    asked: "in the namespace where it was".to_owned(),
                    found: "not there".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Packets that wait in its queue.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub(super) fn backlog(&self) -> Result<u32, ArmError> {
        Ok(self.state()?.map_or(0, |state| state.backlog_packets))
    }

    /// What it has met so far. Affected are the packets that went through it; of a loss, which is the only thing that netem counts
    /// (`qdisc_qstats_drop` in net/sched/sch_netem.c), those that were lost.
    ///
    /// # Errors
    /// When the counters of the programs cannot be read.
    pub(super) fn counters(&self) -> Result<Counters, ArmError> {
        let mut counters = self.programs.counters()?;
        if let Some(lost) = &self.lost {
            // Not to be told is no reason to end.
            if let Ok(Some(state)) = self.state() {
                lost.set(state.drops);
            }
            counters.affected = lost.get().into();
        }
        Ok(counters)
    }

    fn state(&self) -> Result<Option<NetemState>, ArmError> {
        let near = self.near.ifindex;
        netlink(async |netlink| Ok(netlink.read_netem(near).await?))
    }
}

/// Makes the pair, the queue and the programs, and last what sends packets there.
pub(super) fn arm(
    work: &LoopWork,
    direction: Direction,
    warm: Option<Programs>,
    target: &NetNs,
    deadline_ns: u64,
) -> Result<Loop, ArmError> {
    let packets = &work.packets;
    let id = loop_id(work.id, direction);
    let mut programs = prepare(warm, work.family(), packets)?;
    target.enter().map_err(ArmError::Namespace)?;
    let beside = NetNs::current().map_err(ArmError::Namespace)?;
    let private = NetNs::unshare().map_err(ArmError::Namespace)?;
    let pair = netlink(async |here| {
        let pair = here
            .create_veth_pair(&marks::near_name(id), &Netlink::open_in(beside)?, &marks::far_name(id))
            .await?;
        here.set_up(pair.far.ifindex).await?;
        Ok(pair)
    })?;
    attach_end(&mut programs, LoopEnd::Far, &pair.far.name, pair.far.ifindex, packets.attach)?;

    target.enter().map_err(ArmError::Namespace)?;
    let near = pair.near.ifindex;
    let plumb = |programs: &mut Programs| {
        queue(work, &pair.near)?;
        attach_end(programs, LoopEnd::Near, &pair.near.name, near, packets.attach)
    };
    let late = sabotage::without(Guard::ArmLast);
    if !late {
        plumb(&mut programs)?;
    }

    let mut rule = rule(packets);
    rule.divert_to = near;
    rule.return_to = packets.ifindex;
    if direction == Direction::Ingress {
        rule.flags |= RETURN_INGRESS;
    }
    let hook = match work.names.as_slice() {
        [] => Hook::Divert,
        names => {
            programs.set_names(&DnsRule::default(), &keys(names))?;
            Hook::Detain
        }
    };
    programs.set_rule(&rule, &packets.peers)?;
    programs.renew(deadline_ns)?;
    attach(&mut programs, hook, direction, packets)?;
    if late {
        plumb(&mut programs)?;
    }
    check_attached(&programs)?;
    let lost = (work.netem.loss != Loss::default()).then(Cell::default);
    let target = (packets.ifindex, packets.interface.clone());
    Ok(Loop { programs, near: pair.near, target, longest: work.longest, lost, _private: private })
}

/// Puts the queue on the near end, brings it up, and reads it back.
fn queue(work: &LoopWork, device: &Device) -> Result<(), ArmError> {
    let (near, name) = (device.ifindex, &device.name);
    let asked = work.netem;
    let found = netlink(async |here| {
        here.add_root_netem(device, NETEM_HANDLE, &asked).await?;
        here.set_up(near).await?;
        if !here.wait_until_running(near, UP_LIMIT).await? {
            return Err(ArmError::ReadBack {
                subject: format!("device {name}"),
                asked: "running".to_owned(),
                found: "down".to_owned(),
            });
        }
        Ok(here.read_netem(near).await?)
    })?;
    if found.is_some_and(|state| state.netem == asked.as_read_back()) {
        return Ok(());
    }
    let (asked, found) = (format!("{asked:?}"), format!("{found:?}"));
    Err(ArmError::ReadBack { subject: format!("netem on {name}"), asked, found })
}

/// Attaches the turning program to an end of our own pair: both die with the holder, however they are attached.
fn attach_end(
    programs: &mut Programs,
    end: LoopEnd,
    name: &str,
    ifindex: u32,
    how: Attach,
) -> Result<(), ArmError> {
    match how {
        Attach::Tcx => Ok(programs.attach_loop_tcx(end, ifindex, name)?),
        Attach::Stub => filter(ifindex, name, Direction::Ingress, 1, programs.program_fd(end)?),
    }
}
