//! netem: the queueing discipline that delays, drops, doubles, spoils and overtakes packets.
//!
//! Mechanism: `sch_netem` as the root of a device of ours. Kernel requirement: CONFIG_NET_SCH_NETEM. It ends with
//! its device. Reference: tc-netem(8), linux/pkt_sched.h, net/sched/sch_netem.c.

mod distribution;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzed;
mod options;
#[cfg(test)]
mod options_tests;

use netlink_packet_core::{DecodeError, DefaultNla, NLM_F_CREATE, NLM_F_EXCL, parse_u64};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcStatsBasic, TcStatsQueue};
use nix::errno::Errno;

use super::Netlink;
use super::error::NetlinkError;
use super::link::Device;
use super::marks::recognise_device;
use super::qdisc::{Entry, Qdisc, tc_message};

pub use self::options::{Chance, Loss, Netem};

const KIND: &str = "netem";
/// The kernel module that provides it.
const MODULE: &str = "sch_netem";

const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;

/// A netem, read back from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetemState {
    /// What it does.
    pub netem: Netem,
    /// Its handle.
    pub handle: u32,
    /// Packets held now.
    pub backlog_packets: u32,
    /// Bytes held now.
    pub backlog_bytes: u32,
    /// Packets dropped: over the limit, or by `loss`.
    pub drops: u32,
    /// Packets let out.
    pub sent_packets: u64,
}

pub(super) fn parse_state(entry: &Entry<'_>) -> Result<NetemState, DecodeError> {
    let missing = |what: &str| DecodeError::from(format!("no {what}"));
    let options = entry.attributes.get(TCA_OPTIONS).ok_or_else(|| missing("TCA_OPTIONS"))?;
    let stats = entry.attributes.nested(TCA_STATS2)?.ok_or_else(|| missing("TCA_STATS2"))?;
    let basic = stats.get(TCA_STATS_BASIC).ok_or_else(|| missing("TCA_STATS_BASIC"))?;
    let queue = stats.get(TCA_STATS_QUEUE).ok_or_else(|| missing("TCA_STATS_QUEUE"))?;
    let queue = TcStatsQueue::parse(queue)?;
    Ok(NetemState {
        netem: Netem::decode(options)?,
        handle: entry.header.handle.into(),
        backlog_packets: queue.qlen,
        backlog_bytes: queue.backlog,
        drops: queue.drops,
        sent_packets: match stats.get(TCA_STATS_PKT64) {
            Some(packets) => parse_u64(packets)?,
            None => TcStatsBasic::parse(basic)?.packets.into(),
        },
    })
}

impl Netlink {
    /// Makes a netem the root of a device of ours, whose root so far is the kernel's default.
    ///
    /// # Errors
    /// [`NetlinkError::NotOurs`] for a device without our mark: nobody else's root is ever replaced;
    /// [`NetlinkError::MissingModule`] on a kernel without netem; [`NetlinkError::OutOfRange`] for a value the
    /// kernel would not honour; when there is a netem already.
    pub async fn add_root_netem(
        &self,
        device: &Device,
        handle: u32,
        netem: &Netem,
    ) -> Result<(), NetlinkError> {
        let operation = format!("put netem on {}", device.name);
        if recognise_device(&device.name).is_none() {
            return Err(NetlinkError::NotOurs { operation });
        }
        self.put_netem(operation, device.ifindex, handle, netem).await
    }

    /// Has the netem of this handle, which is the root of a device of ours, do something else from now on. What waits in it stays, and
    /// goes when it was to go. A rate and the probabilities beside a loss stay as they were unless they are given anew
    /// (`netem_change`).
    ///
    /// # Errors
    /// When there is none; [`NetlinkError::OutOfRange`] for a value the kernel would not honour.
    pub async fn change_root_netem(
        &self,
        device: &Device,
        handle: u32,
        netem: &Netem,
    ) -> Result<(), NetlinkError> {
        self.send_netem(format!("change netem on {}", device.name), (device.ifindex, handle), netem, 0).await
    }

    /// As [`Netlink::add_root_netem`], on any device: only for the probe, in its private namespace.
    pub(super) async fn put_netem(
        &self,
        operation: String,
        ifindex: u32,
        handle: u32,
        netem: &Netem,
    ) -> Result<(), NetlinkError> {
        self.send_netem(operation, (ifindex, handle), netem, NLM_F_CREATE | NLM_F_EXCL).await
    }

    async fn send_netem(
        &self,
        operation: String,
        (ifindex, handle): (u32, u32),
        netem: &Netem,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        let options = match netem.encode() {
            Ok(options) => options,
            Err(problem) => return Err(NetlinkError::OutOfRange { operation, problem }),
        };
        let mut message = tc_message(ifindex, handle, Qdisc::ROOT);
        message.attributes.push(TcAttribute::Kind(KIND.to_owned()));
        message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)));
        self.request(&operation, Message::NewQueueDiscipline(message), flags)
            .await
            .map(drop)
            // "Specified qdisc kind is unknown" (qdisc_create in net/sched/sch_api.c).
            .map_err(|error| error.meaning_missing(Errno::ENOENT, MODULE))
    }

    /// Reads back the netem that is a device's root; `None` when its root is something else.
    ///
    /// # Errors
    /// When the kernel's answer cannot be read.
    pub async fn read_netem(&self, ifindex: u32) -> Result<Option<NetemState>, NetlinkError> {
        let states = self
            .each_qdisc(|entry| {
                let here = entry.header.index.cast_unsigned() == ifindex
                    && u32::from(entry.header.parent) == Qdisc::ROOT
                    && entry.kind == KIND;
                here.then(|| parse_state(entry)).transpose()
            })
            .await?;
        Ok(states.into_iter().flatten().next())
    }
}
