//! A node that is not there, for tests: devices, qdiscs, filters and processes as values. It answers the messages of
//! routing netlink as the kernel does, so that everything above the socket is the production code, and each of its
//! operations can fail, or be the last before everything of ours dies.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use netlink_packet_core::Emitable;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    InfoData, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_packet_route::tc::{TcAttribute, TcFilterBpfOption, TcMessage, TcOption};
use nix::errno::Errno;

use super::error::{NetlinkError, Refusal};
use super::qdisc::Qdisc;
use super::{Line, Netlink};
use crate::host::netns::NetNs;
use crate::kernel::process::ProcessId;
use crate::kernel::step::{Node, StepError, Undone};

/// What goes wrong, and at which operation, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Everything of ours dies before it.
    DieBefore(usize),
    /// It is done, and everything of ours dies.
    DieAfter(usize),
    /// It and the next ones, so many together, are refused.
    Refuse(usize, usize),
    /// It and the next ones, so many together, are done, and their answers are lost.
    LoseAnswer(usize, usize),
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FakeLink {
    pub(crate) name: String,
    pub(crate) peer: Option<u32>,
    pub(crate) up: bool,
}

/// Where a filter is: device, hook, preference, handle.
pub(crate) type Place = (u32, u32, u16, u32);

/// What a filter is: kind and bpf name.
pub(crate) type FakeFilter = (String, Option<String>);

/// What is on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) links: BTreeMap<u32, FakeLink>,
    /// Device and parent; kind.
    pub(crate) qdiscs: BTreeMap<(u32, u32), String>,
    pub(crate) filters: BTreeMap<Place, FakeFilter>,
    /// Number and start time.
    pub(crate) processes: BTreeMap<i32, u64>,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    operations: usize,
    trouble: Option<Trouble>,
    dead: bool,
}

/// The node.
#[derive(Debug, Default)]
pub(crate) struct FakeKernel {
    state: Mutex<State>,
}

/// What a connection needs: the node, shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeNode(pub(crate) Arc<FakeKernel>);

impl Node for FakeNode {
    fn connect(&self, netns: NetNs) -> Result<Netlink, NetlinkError> {
        // Nothing is ever asked of it but a device's speed, which it does not know.
        let socket = OwnedFd::from(std::fs::File::open("/dev/null").map_err(NetlinkError::Open)?);
        Ok(Netlink { line: Line::Fake(Arc::clone(&self.0)), socket, netns })
    }

    fn end(&self, id: ProcessId) -> Result<Undone, StepError> {
        self.0
            .operate(|objects| match objects.processes.get(&id.pid) {
                Some(start) if *start == id.start_time => {
                    objects.processes.remove(&id.pid);
                    Ok(Undone::Removed)
                }
                _ => Ok(Undone::Absent),
            })
            .map_err(|errno| StepError::End { pid: id.pid, source: errno.into() })
    }

    fn runs(&self, id: ProcessId) -> Result<bool, StepError> {
        self.0
            .operate(|objects| Ok(objects.processes.get(&id.pid) == Some(&id.start_time)))
            .map_err(|errno| StepError::End { pid: id.pid, source: errno.into() })
    }
}

impl FakeKernel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What is on the node.
    pub(crate) fn objects(&self) -> Objects {
        self.lock().objects.clone()
    }

    /// Changes the node from outside.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Objects)) {
        change(&mut self.lock().objects);
    }

    /// From here on: this trouble, operations counted anew, and whoever died is there again.
    pub(crate) fn expect(&self, trouble: Option<Trouble>) {
        let mut state = self.lock();
        (state.trouble, state.operations, state.dead) = (trouble, 0, false);
    }

    /// Operations since [`FakeKernel::expect`].
    pub(crate) fn operations(&self) -> usize {
        self.lock().operations
    }

    /// Whether everything of ours has died since [`FakeKernel::expect`].
    pub(crate) fn died(&self) -> bool {
        self.lock().dead
    }

    fn operate<T>(&self, act: impl FnOnce(&mut Objects) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut state = self.lock();
        if state.dead {
            return Err(Errno::EIO);
        }
        state.operations += 1;
        let at = state.operations;
        let within = |from: usize, times: usize| (from..from.saturating_add(times)).contains(&at);
        match state.trouble {
            Some(Trouble::DieBefore(point)) if at == point => {
                state.dead = true;
                Err(Errno::EIO)
            }
            Some(Trouble::Refuse(from, times)) if within(from, times) => Err(Errno::EIO),
            Some(Trouble::DieAfter(point)) if at == point => {
                // Whatever came of it, nobody is there to hear.
                let _ = act(&mut state.objects);
                state.dead = true;
                Err(Errno::EIO)
            }
            Some(Trouble::LoseAnswer(from, times)) if within(from, times) => {
                let _ = act(&mut state.objects);
                Err(Errno::EIO)
            }
            _ => act(&mut state.objects),
        }
    }

    /// Answers a message as the kernel does: what comes before the acknowledgement.
    pub(super) fn answer(
        &self,
        operation: &str,
        message: &Message,
    ) -> Result<(Vec<Vec<u8>>, bool), NetlinkError> {
        self.operate(|objects| answer(objects, message))
            .map(|answers| (answers, false))
            .map_err(|errno| NetlinkError::refused(operation.to_owned(), Refusal { errno, words: None }))
    }
}

fn answer(objects: &mut Objects, message: &Message) -> Result<Vec<Vec<u8>>, Errno> {
    match message {
        Message::GetLink(message) => get_link(objects, message),
        Message::NewLink(message) => new_link(objects, message),
        Message::SetLink(message) => {
            let link = objects.links.get_mut(&message.header.index).ok_or(Errno::ENODEV)?;
            link.up |= message.header.flags.contains(LinkFlags::Up);
            Ok(Vec::new())
        }
        Message::DelLink(message) => {
            remove_link(objects, message.header.index).ok_or(Errno::ENODEV).map(|()| Vec::new())
        }
        Message::GetQueueDiscipline(_) => Ok(objects.qdiscs.iter().map(qdisc).collect()),
        Message::NewQueueDiscipline(message) => {
            let place = (message.header.index.cast_unsigned(), message.header.parent.into());
            if objects.qdiscs.contains_key(&place) {
                return Err(Errno::EEXIST);
            }
            objects.links.get(&place.0).ok_or(Errno::ENODEV)?;
            objects.qdiscs.insert(place, kind(message));
            Ok(Vec::new())
        }
        Message::DelQueueDiscipline(message) => {
            let (device, parent) = (message.header.index.cast_unsigned(), message.header.parent.into());
            objects.qdiscs.remove(&(device, parent)).ok_or(Errno::ENOENT)?;
            objects.filters.retain(|(index, ..), _| *index != device);
            Ok(Vec::new())
        }
        Message::GetTrafficFilter(message) if message.header.info != 0 => get_filter(objects, message),
        Message::GetTrafficFilter(message) => {
            let hook = (message.header.index.cast_unsigned(), u32::from(message.header.parent));
            let on_it = |(place, _): &(&Place, &FakeFilter)| (place.0, place.1) == hook;
            Ok(objects.filters.iter().filter(on_it).flat_map(filter).collect())
        }
        Message::NewTrafficFilter(message) => {
            let place = place(message);
            objects.qdiscs.get(&(place.0, Qdisc::CLSACT)).ok_or(Errno::EINVAL)?;
            if objects.filters.contains_key(&place) {
                return Err(Errno::EEXIST);
            }
            objects.filters.insert(place, (kind(message), bpf_name(message)));
            Ok(Vec::new())
        }
        Message::DelTrafficFilter(message) => {
            objects.filters.remove(&place(message)).ok_or(Errno::ENOENT).map(|_| Vec::new())
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn get_link(objects: &Objects, message: &LinkMessage) -> Result<Vec<Vec<u8>>, Errno> {
    let named = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    let mut matching = objects.links.iter().filter(|(index, link)| match named {
        Some(name) => link.name == *name,
        None => **index == message.header.index,
    });
    let (index, link) = matching.next().ok_or(Errno::ENODEV)?;
    let mut answer = LinkMessage::default();
    answer.header.index = *index;
    answer.attributes = vec![
        LinkAttribute::IfName(link.name.clone()),
        LinkAttribute::Mtu(1500),
        LinkAttribute::Stats64(Stats64::default()),
    ];
    Ok(vec![bytes(&answer)])
}

/// A veth pair.
fn new_link(objects: &mut Objects, message: &LinkMessage) -> Result<Vec<Vec<u8>>, Errno> {
    let peer = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))) => Some(peer),
            _ => None,
        }),
        _ => None,
    });
    let name = |message: &LinkMessage| {
        message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })
    };
    let names = [name(message), peer.and_then(name)].map(Option::unwrap_or_default);
    if objects.links.values().any(|link| names.contains(&link.name)) {
        return Err(Errno::EEXIST);
    }
    let first = objects.links.keys().last().copied().unwrap_or_default() + 1;
    for (index, (name, peer)) in (first..).zip(names.into_iter().zip([first + 1, first])) {
        objects.links.insert(index, FakeLink { name, peer: Some(peer), up: false });
    }
    Ok(Vec::new())
}

/// A device goes with its other end, and with everything on either.
fn remove_link(objects: &mut Objects, index: u32) -> Option<()> {
    let link = objects.links.remove(&index)?;
    let gone: Vec<_> = link.peer.into_iter().chain([index]).collect();
    objects.links.retain(|index, _| !gone.contains(index));
    objects.qdiscs.retain(|(device, _), _| !gone.contains(device));
    objects.filters.retain(|(device, ..), _| !gone.contains(device));
    Some(())
}

fn qdisc((&(device, parent), kind): (&(u32, u32), &String)) -> Vec<u8> {
    let mut message = super::qdisc::tc_message(device, 0, parent);
    message.attributes.push(TcAttribute::Kind(kind.clone()));
    bytes(&message)
}

/// One filter, by its place.
fn get_filter(objects: &Objects, message: &TcMessage) -> Result<Vec<Vec<u8>>, Errno> {
    let place = place(message);
    objects.links.get(&place.0).ok_or(Errno::ENODEV)?;
    objects.qdiscs.get(&(place.0, Qdisc::CLSACT)).ok_or(Errno::EINVAL)?;
    let found = objects.filters.get(&place).ok_or(Errno::ENOENT)?;
    match found.0 == kind(message) {
        true => Ok(filter((&place, found)).split_off(1)),
        false => Err(Errno::EINVAL),
    }
}

/// A filter as it is listed: its preference for itself, with handle 0, and the filter.
fn filter((&(device, hook, pref, handle), (kind, name)): (&Place, &FakeFilter)) -> Vec<Vec<u8>> {
    let entry = |handle: u32, named: bool| {
        let mut message = super::qdisc::tc_message(device, handle, hook);
        message.header.info = u32::from(pref) << 16;
        message.attributes.push(TcAttribute::Kind(kind.clone()));
        if let (true, Some(name)) = (named, name) {
            let name = TcOption::Bpf(TcFilterBpfOption::ProgName(name.clone()));
            message.attributes.push(TcAttribute::Options(vec![name]));
        }
        bytes(&message)
    };
    vec![entry(0, false), entry(handle, true)]
}

fn place(message: &TcMessage) -> Place {
    let header = &message.header;
    let device = header.index.cast_unsigned();
    (device, header.parent.into(), (header.info >> 16) as u16, header.handle.into())
}

fn kind(message: &TcMessage) -> String {
    let mut kinds = message.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    });
    kinds.next_back().unwrap_or_default()
}

fn bpf_name(message: &TcMessage) -> Option<String> {
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => options.iter().find_map(|option| match option {
            TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => Some(name.clone()),
            _ => None,
        }),
        _ => None,
    })
}

fn bytes(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}
