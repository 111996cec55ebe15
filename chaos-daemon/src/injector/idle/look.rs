//! Looking at what a fault could meet: counters, packets, programs, translations, ways. Nothing is judged here.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use chaos_common::PacketRule;
use chaos_common::rule::{ENABLED, EVERY_PEER};
use ipnet::IpNet;

use super::Idle;
use super::packet::read;
use super::reason::{Seen, Sought, likely};
use crate::fault::{Attach, CallWork, Callers, Match, SeverWork, SocketWork, Work};
use crate::holder::packets::transport;
use crate::host::deaf::deaf;
use crate::host::translation::{Translation, translations};
use crate::host::{CgroupRef, NetNs, ProcessId};
use crate::kernel::bpf::inventory::{attached, name_of_another};
use crate::kernel::bpf::sample::{Frame, MOST, Sampler};
use crate::kernel::step::{NetNsRef, devices, filter_hooks, ways};
use crate::spec::process::signal_name;
use crate::spec::{Direction, PortMatch, Protocol};

/// How long packets are looked at, if fewer than so many come.
const LOOK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
/// Of how many peers the way is asked.
const MOST_WAYS: usize = 8;

/// What a fault that could meet something is about, and where that is looked at.
#[derive(Debug)]
pub(in crate::injector) struct Subject {
    sought: Sought,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Device {
        netns: NetNs,
        name: String,
        index: u32,
        attach: Attach,
    },
    /// Of which packets are looked at, or of one whose calls are about something else, nothing but whether anybody is in it.
    Group(CgroupRef, Calls),
    /// Those who were sent a signal, of that number.
    Prey(Vec<ProcessId>, i32),
}

/// What the calls of a group are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calls {
    Packets,
    Files,
}

/// Counters at one moment: of a device what has arrived and what has left, of a group the processor time that it has used. `None` is
/// not known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts(Option<[u64; 2]>);

impl Subject {
    /// Of work that meets packets or calls, in the network namespace of its target; `None` of others.
    pub(in crate::injector) fn of(work: &Work, netns: Option<&NetNs>) -> Option<Self> {
        match work {
            Work::Packets(work) => Self::of_packets(&work.packets, netns?),
            Work::Loop(work) => Self::of_packets(&work.packets, netns?),
            Work::Calls(CallWork { callers, protocol, ports, .. }) => {
                let ports = PortMatch { remote: *ports, ..PortMatch::default() };
                Some(Self::of_group(callers, (*protocol, &ports), vec![Direction::Egress], true))
            }
            Work::Sever(SeverWork { callers, protocol, ports, directions, .. }) => {
                Some(Self::of_group(callers, (*protocol, ports), directions.clone(), false))
            }
            Work::Sockets(SocketWork { callers, protocol, ports, .. }) => {
                Some(Self::of_group(callers, (*protocol, ports), Direction::BOTH.to_vec(), false))
            }
            Work::Signals(work) => {
                let sought = everything("the processes".to_owned(), Vec::new());
                Some(Self { sought, place: Place::Prey(work.targets.clone(), work.volleys.signal) })
            }
            Work::Files(work) => {
                let group = format!("cgroup {}", work.cgroup.path.display());
                let sought = everything(group, Direction::BOTH.to_vec());
                Some(Self { sought, place: Place::Group(work.cgroup.clone(), Calls::Files) })
            }
            _ => None,
        }
    }

    fn of_packets(packets: &Match, netns: &NetNs) -> Option<Self> {
        let Match { interface, ifindex, protocol, ports, peers, directions, .. } = packets;
        let mut sought = Sought {
            rule: rule(*protocol, ports),
            words: words(*protocol, ports),
            peers: peers.clone(),
            ..everything(interface.clone(), directions.clone())
        };
        if let Some(service) = &packets.service {
            sought.place = format!("cgroup {}", service.cgroup.path.display());
            sought.interface = Some((*ifindex, interface.clone()));
            return Some(Self { sought, place: Place::Group(service.cgroup.clone(), Calls::Packets) });
        }
        let netns = netns.try_clone().ok()?;
        let place = Place::Device { netns, name: interface.clone(), index: *ifindex, attach: packets.attach };
        Some(Self { sought, place })
    }

    fn of_group(
        callers: &Callers,
        (protocol, ports): (Protocol, &PortMatch),
        directions: Vec<Direction>,
        connects: bool,
    ) -> Self {
        let sought = Sought {
            rule: rule(protocol, ports),
            words: words(protocol, ports),
            peers: callers.peers.clone(),
            connects,
            ..everything(format!("cgroup {}", callers.cgroup.path.display()), directions)
        };
        Self { sought, place: Place::Group(callers.cgroup.clone(), Calls::Packets) }
    }

    /// What has been counted by now.
    pub(super) fn count(&self) -> Counts {
        Counts(match &self.place {
            Place::Device { netns, name, .. } => device_counts(netns, name),
            Place::Group(group, _) => group_usage(group).map(|used| [used, used]),
            // Nothing of theirs has to move.
            Place::Prey(..) => Some([0, 0]),
        })
    }

    /// Why the fault most likely meets nothing; `None` where nothing shows. What cannot be looked at shows nothing.
    pub(super) fn why(&self, Counts(before): Counts, Counts(now): Counts, idle: &Idle) -> Option<String> {
        let (before, now) = (before?, now?);
        let moved = [0, 1].map(|way| now[way] != before[way]);
        let mut sought = self.sought.clone();
        if !sought.peers.is_empty() {
            sought.peers.extend(&idle.named);
        }
        let mut seen = Seen { met: idle.met, moved, ..Seen::default() };
        match &self.place {
            Place::Device { netns, name, index, attach } => {
                if moved.contains(&true) {
                    let device = (*index, *attach);
                    self.look_at_device(netns, name, device, &mut seen);
                }
                let way = (sought.peers.as_slice(), name.as_str());
                seen.elsewhere = elsewhere(netns, way).unwrap_or_default();
            }
            Place::Prey(targets, signal) => return deaf_words(targets, *signal),
            Place::Group(group, calls) => {
                let open = group.open().ok()??;
                let events = open.read("cgroup.events").ok()?;
                seen.nobody = events.lines().any(|line| line == "populated 0");
                if moved.contains(&true) && !seen.nobody && *calls == Calls::Packets {
                    let sampled = Sampler::on_group(open.as_fd()).and_then(|sampler| collect(&sampler));
                    seen.sights = sampled.unwrap_or_default().iter().map(read).collect();
                    seen.translations = in_network_of(group).unwrap_or_default();
                }
                // Processor time alone is no traffic.
                seen.moved = [!seen.sights.is_empty(); 2];
            }
        }
        likely(&sought, &seen)
    }

    fn look_at_device(&self, netns: &NetNs, name: &str, (index, attach): (u32, Attach), seen: &mut Seen) {
        if attach == Attach::Tcx {
            let sampled = netns.inside(|| Sampler::on_device(index).and_then(|sampler| collect(&sampler)));
            let frames = sampled.inspect_err(|error| {
                tracing::debug!(%error, interface = name, "cannot look at packets");
            });
            seen.sights = frames.unwrap_or_default().iter().map(read).collect();
        }
        seen.ahead = match attach {
            Attach::Tcx => netns.inside(|| before_ours(index)).unwrap_or_default(),
            Attach::Stub => filters_ahead(netns, index, &self.sought.directions),
        };
        let device = netns.try_clone().ok().and_then(|netns| devices(netns, &[name.to_owned()]).ok());
        seen.xdp = device.is_some_and(|found| found.iter().any(|device| device.xdp.is_some()));
        seen.translations = netns.inside(translations).unwrap_or_default();
    }
}

/// That whoever was sent a signal takes no notice, if that is so of all who are there still.
fn deaf_words(targets: &[ProcessId], signal: i32) -> Option<String> {
    let there: Vec<_> = targets.iter().filter(|id| id.runs()).collect();
    let deaf = there.iter().filter(|id| deaf(***id, signal).is_some()).count();
    (deaf > 0 && deaf == there.len()).then(|| {
        let (all, signal) = (there.len(), signal_name(signal));
        format!(
            "all {all} who are there still take no notice of {signal}: give another signal, such as SIGKILL"
        )
    })
}

/// Packets as they come, for [`LOOK`] or until there are enough.
fn collect(sampler: &Sampler) -> io::Result<Vec<Frame>> {
    let began = Instant::now();
    loop {
        sleep(PAUSE);
        let frames = sampler.seen()?;
        if frames.len() >= MOST as usize || began.elapsed() >= LOOK {
            return Ok(frames);
        }
    }
}

/// A fault about every packet.
fn everything(place: String, directions: Vec<Direction>) -> Sought {
    let (rule, words, peers) = (rule(Protocol::Any, &PortMatch::default()), String::new(), Vec::new());
    Sought { place, rule, words, peers, directions, interface: None, connects: false }
}

fn rule(protocol: Protocol, ports: &PortMatch) -> PacketRule {
    PacketRule { flags: ENABLED | EVERY_PEER, ..transport(protocol, ports) }
}

fn words(protocol: Protocol, ports: &PortMatch) -> String {
    let protocol = match protocol {
        Protocol::Any => "",
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
    };
    format!("{protocol}{}", ports.words()).trim().to_owned()
}

fn device_counts(netns: &NetNs, name: &str) -> Option<[u64; 2]> {
    let found = devices(netns.try_clone().ok()?, &[name.to_owned()]).ok()?;
    found.first().map(|device| [device.rx_packets, device.tx_packets])
}

/// Microseconds of processor time that a group has used; a group counts them also without a controller (cgroups of version 2).
fn group_usage(group: &CgroupRef) -> Option<u64> {
    let text = group.open().ok()??.read("cpu.stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
}

/// The programs of others on a tcx hook that run before the first of ours.
fn before_ours(index: u32) -> io::Result<Vec<String>> {
    let mut ahead = Vec::new();
    for direction in Direction::BOTH {
        let mut names = Vec::new();
        for each in attached(index)?.iter().filter(|each| each.direction == *direction) {
            match name_of_another(each.program)? {
                Some(name) => names.push(format!("program {name:?} ({})", direction.name())),
                None => {
                    ahead.append(&mut names);
                    break;
                }
            }
        }
    }
    Ok(ahead)
}

fn filters_ahead(netns: &NetNs, index: u32, directions: &[Direction]) -> Vec<String> {
    let reference = NetNsRef::new(None, netns);
    reference.ok().and_then(|netns| filter_hooks(&netns, index, directions).ok()).unwrap_or_default().ahead
}

/// Of the peers that are single addresses, those to which another device leads, where something has passed that one lately.
fn elsewhere(netns: &NetNs, (peers, name): (&[IpNet], &str)) -> Option<Vec<(IpAddr, String)>> {
    let single = peers.iter().filter(|peer| peer.prefix_len() == peer.max_prefix_len());
    let addresses: Vec<_> = single.map(IpNet::addr).take(MOST_WAYS).collect();
    if addresses.is_empty() {
        return None;
    }
    let found = ways(netns.try_clone().ok()?, &addresses).ok()?;
    let others = addresses.into_iter().zip(found);
    let others: Vec<_> = others.filter_map(|(to, way)| Some((to, way.filter(|way| way != name)?))).collect();
    let counts = || others.iter().map(|(_, way)| device_counts(netns, way)).collect::<Vec<_>>();
    let before = counts();
    sleep(if others.is_empty() { Duration::ZERO } else { LOOK });
    let moved = before.into_iter().zip(counts()).map(|(before, now)| before != now);
    Some(others.iter().cloned().zip(moved).filter_map(|(other, moved)| moved.then_some(other)).collect())
}

/// What is translated in the network namespace of a process of the group.
fn in_network_of(group: &CgroupRef) -> Option<Vec<Translation>> {
    let members = group.open().ok()??.read("cgroup.procs").ok()?;
    let first = members.lines().next()?;
    let netns = NetNs::at(std::path::Path::new(&format!("/proc/{first}/ns/net"))).ok()?;
    netns.inside(translations).ok()
}
