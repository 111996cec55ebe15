//! The way round of a packet that is to be delayed, lost or changed: a veth pair with netem, and programs on both ends.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use caps::Capability;
use ipnet::IpNet;

use super::arm::{Arm, ArmError, Armed, Means};
use super::packets::{attach, check_attached, counted, filter, netlink, prepare, rule, spare};
use super::replayer::{Replayer, Scene};
use crate::fault::detour::loop_id;
use crate::fault::{Attach, LoopWork};
use crate::host::privilege::NETWORK_HOLDER;
use crate::host::{Interface, NetNs};
use crate::kernel::bpf::{Hook, LoopEnd, Programs};
use crate::kernel::netlink::marks::{self, NETEM_HANDLE};
use crate::kernel::netlink::{Device, Netem, NetemState, Netlink, Pace, VethPair};
use crate::request::Evidence;
use crate::request::evidence::Met;
use crate::sabotage::{self, Guard};
use crate::spec::Direction;
use crate::spec::dns::keys;
use chaos_common::rule::RETURN_INGRESS;
use chaos_common::{Counters, DnsRule};

/// How long our own device may take to come up.
const UP_LIMIT: Duration = Duration::from_secs(5);

/// How much longer than the longest delay the last packets may take.
const DRAIN_SLACK: Duration = Duration::from_millis(200);

impl Arm for LoopWork {
    fn needed(&self) -> &'static [Capability] {
        NETWORK_HOLDER
    }

    fn arm(&self, mut means: Means) -> Result<Box<dyn Armed>, ArmError> {
        let mut warm = means.warm.take();
        let mut loops = Vec::new();
        for (direction, netem) in &self.queues {
            loops.push(arm(self, (*direction, netem), warm.take(), means.netns()?, means.deadline_ns)?);
        }
        Ok(Box::new(loops))
    }
}

/// One loop for each direction.
impl Armed for Vec<Loop> {
    fn check(&self) -> Result<(), ArmError> {
        self.iter().try_for_each(Loop::check)
    }

    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        Ok(self.iter_mut().try_for_each(|each| each.programs.renew(deadline_ns))?)
    }

    fn aim(&mut self, peers: &[IpNet]) -> Result<(), ArmError> {
        Ok(self.iter_mut().try_for_each(|each| each.programs.change_hosts(peers))?)
    }

    fn spare(&mut self, peers: &[IpNet], tcp_ports: &[u16]) -> Result<(), ArmError> {
        Ok(self.iter_mut().try_for_each(|each| spare(&mut each.programs, peers, tcp_ports))?)
    }

    fn evidence(&self) -> Result<Evidence, ArmError> {
        let mut sum = Met::default();
        for each in self {
            let counted = counted(each.counters()?);
            sum.matched += counted.matched;
            sum.affected += counted.affected;
            sum.protected += counted.protected;
        }
        Ok(Evidence::Met(sum))
    }

    fn disarm(&mut self) -> Result<(), ArmError> {
        if !sabotage::without(Guard::DisarmFirst) {
            self.renew(0)?;
            self.iter_mut().filter_map(|each| each.replayer.as_mut()).for_each(Replayer::end);
            return Ok(());
        }
        // The devices are taken away from under the programs.
        self.iter().try_for_each(|each| {
            netlink(async |netlink| {
                Ok(netlink.delete_link(each.near.ifindex, &each.near.name).await.map(drop)?)
            })
        })
    }

    fn drain(&self) -> Result<(), ArmError> {
        for each in self {
            let limit = Instant::now() + each.longest + DRAIN_SLACK;
            while each.backlog()? > 0 && Instant::now() < limit {
                thread::sleep(Duration::from_millis(5).min(each.longest.max(Duration::from_millis(1))));
            }
        }
        Ok(())
    }
}

/// A veth loop for one direction.
struct Loop {
    programs: Programs,
    near: Device,
    /// The target device.
    target: (u32, String),
    /// The longest delay that is planned.
    longest: Duration,
    /// What was last read of the packets that it has lost, where that is what it is for.
    lost: Option<Cell<u32>>,
    /// Changes the queues, where they do.
    replayer: Option<Replayer>,
    /// The number of the far end, where packets wait there, too.
    far: Option<u32>,
    /// Keeps the private namespace, and with it both ends and the queue. Last, so that it goes last.
    private: NetNs,
}

impl Loop {
    /// Whether both ends of the way are where they were: a device that has moved to another namespace takes its programs along,
    /// which then send packets to whatever has the other's number there, or nowhere. Not to be told is no reason to end.
    ///
    /// # Errors
    /// When one is not there any more, or its queues cannot be changed as they should.
    fn check(&self) -> Result<(), ArmError> {
        for (index, name) in [(self.target.0, &self.target.1), (self.near.ifindex, &self.near.name)] {
            if matches!(Interface::is_here(index), Ok(false)) {
                return Err(ArmError::ReadBack {
                    subject: format!("device {name} ({index})"),
                    asked: "in the namespace where it was".to_owned(),
                    found: "not there".to_owned(),
                });
            }
        }
        self.replayer.as_ref().map_or(Ok(()), Replayer::check)
    }

    /// Packets that wait in its queues.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn backlog(&self) -> Result<u32, ArmError> {
        let near = self.state()?.map_or(0, |state| state.backlog_packets);
        let Some(far) = self.far else { return Ok(near) };
        let private = self.private.try_clone().map_err(ArmError::Namespace)?;
        let waiting = netlink(async |_| Ok(Netlink::open_in(private)?.waiting_in_htb(far).await?))?;
        Ok(near + waiting)
    }

    /// What it has met so far. Affected are the packets that went through it; of a loss, which is the only thing that netem counts
    /// (`qdisc_qstats_drop` in net/sched/sch_netem.c), those that were lost.
    ///
    /// # Errors
    /// When the counters of the programs cannot be read.
    fn counters(&self) -> Result<Counters, ArmError> {
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
fn arm(
    work: &LoopWork,
    (direction, netem): (Direction, &Netem),
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
        let beside = Netlink::open_in(beside)?;
        let pair = here.create_veth_pair(&marks::near_name(id), &beside, &marks::far_name(id)).await?;
        if let Some(pace) = first_pace(work, direction) {
            // One segment of 64 KiB would be owed for through many steps.
            beside.cut_up_segments(&pair.near).await?;
            here.add_root_htb(&pair.far, pace).await?;
        }
        here.set_up(pair.far.ifindex).await?;
        Ok(pair)
    })?;
    attach_end(&mut programs, LoopEnd::Far, &pair.far.name, pair.far.ifindex, packets.attach)?;

    target.enter().map_err(ArmError::Namespace)?;
    let near = pair.near.ifindex;
    let plumb = |programs: &mut Programs| {
        queue(netem, &pair.near)?;
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
    let lost = work.counts_losses.then(Cell::default);
    let replayer = replay(work, (direction, netem), &pair, target, &private)?;
    let far = first_pace(work, direction).map(|_| pair.far.ifindex);
    let target = (packets.ifindex, packets.interface.clone());
    Ok(Loop { programs, near: pair.near, target, longest: work.longest, lost, replayer, far, private })
}

/// With what the far end of a direction begins, if it has a rate.
fn first_pace(work: &LoopWork, direction: Direction) -> Option<Pace> {
    work.replays.get(&direction)?.moments.first()?.pace
}

/// Has the queues of a direction change, if they do.
fn replay(
    work: &LoopWork,
    (direction, base): (Direction, &Netem),
    pair: &VethPair,
    target: &NetNs,
    private: &NetNs,
) -> Result<Option<Replayer>, ArmError> {
    let Some(replay) = work.replays.get(&direction) else { return Ok(None) };
    let within = |netns: &NetNs| netns.try_clone().map_err(ArmError::Namespace);
    let scene = Scene {
        replay: replay.clone(),
        base: *base,
        near: (pair.near.clone(), within(target)?),
        far: (pair.far.clone(), within(private)?),
    };
    Replayer::start(scene).map(Some)
}

/// Puts the queue on the near end, brings it up, and reads it back.
fn queue(asked: &Netem, device: &Device) -> Result<(), ArmError> {
    let (near, name) = (device.ifindex, &device.name);
    let found = netlink(async |here| {
        here.add_root_netem(device, NETEM_HANDLE, asked).await?;
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
