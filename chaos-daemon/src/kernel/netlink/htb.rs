//! htb: the queueing discipline that lets so much through per second, and can be told another rate while packets wait.
//!
//! netem times a packet when it comes, so that what waits keeps its old rate. htb times it when it goes. A packet is paid for at the
//! rate at which it left, and what was paid stays paid across a change (`htb_charge_class`).
//!
//! Mechanism: `sch_htb` as the root of a device of ours, with one class and a `pfifo` below that. Kernel requirement:
//! CONFIG_NET_SCH_HTB. It ends with its device. Reference: tc-htb(8), linux/pkt_sched.h, net/sched/sch_htb.c.

use std::time::Duration;

use netlink_packet_core::{DecodeError, DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcMessage, TcStatsQueue};
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::Netlink;
use super::error::NetlinkError;
use super::link::Device;
use super::marks::{FIFO_HANDLE, HTB_HANDLE, recognise_device};
use super::qdisc::{Entry, Qdisc, tc_message};
use super::wire::put;

const KIND: &str = "htb";
/// The kernel module that provides it.
const MODULE: &str = "sch_htb";
const FIFO: &str = "pfifo";

const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
/// `HTB_VER` of the kernel, without its minor part.
const VERSION: u32 = 3;
/// `TC_LINKLAYER_ETHERNET`.
const ETHERNET: u8 = 1;

/// The one class, which is the default.
const CLASS: u32 = 1;
/// Bytes that a class may send in its turn. With one class it decides nothing, but the kernel wants some.
const QUANTUM: u32 = 1514;
/// Nanoseconds in a tick of the packet scheduler are 2 to this (`PSCHED_SHIFT`, net/pkt_sched.h).
const TICK_SHIFT: u32 = 6;
/// What may be made up for when a timer was late; also what goes at once after a time without packets.
const BURST: Duration = Duration::from_millis(20);

/// How much gets through, and how much waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Bytes per second.
    pub rate: u64,
    /// Packets that may wait.
    pub limit: u32,
    /// Bytes that a packet counts for at least; 0 is what it has.
    pub least: u16,
}

impl Pace {
    /// The value of a class's `TCA_OPTIONS`: `struct tc_htb_opt`, and rates above 32 bits.
    fn class(self) -> Vec<u8> {
        let rate = u32::try_from(self.rate).unwrap_or(u32::MAX);
        let ticks = u32::try_from(BURST.as_nanos() >> TICK_SHIFT).unwrap_or(u32::MAX);
        let mut options = Vec::new();
        // `struct tc_ratespec`, for the rate and for the most, which is the same.
        for _ in 0..2 {
            options.extend([0, ETHERNET, 0, 0, 0, 0]);
            options.extend(self.least.to_ne_bytes());
            options.extend(rate.to_ne_bytes());
        }
        // Burst of each, quantum, level and priority.
        options.extend([ticks, ticks, QUANTUM, 0, 0].into_iter().flat_map(u32::to_ne_bytes));
        let mut bytes = Vec::new();
        put(&mut bytes, TCA_HTB_PARMS, options);
        if rate == u32::MAX {
            put(&mut bytes, TCA_HTB_RATE64, self.rate.to_ne_bytes().to_vec());
            put(&mut bytes, TCA_HTB_CEIL64, self.rate.to_ne_bytes().to_vec());
        }
        bytes
    }
}

/// The value of its `TCA_OPTIONS`: `struct tc_htb_glob`, with [`CLASS`] for everything.
fn discipline() -> Vec<u8> {
    let numbers = [VERSION, 10, CLASS, 0, 0];
    let mut bytes = Vec::new();
    put(&mut bytes, TCA_HTB_INIT, numbers.into_iter().flat_map(u32::to_ne_bytes).collect());
    bytes
}

fn message(ifindex: u32, (handle, parent): (u32, u32), kind: &str, options: Vec<u8>) -> TcMessage {
    let mut message = tc_message(ifindex, handle, parent);
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)));
    message
}

impl Netlink {
    /// Makes an htb the root of a device of ours, whose root so far is the kernel's default.
    ///
    /// # Errors
    /// [`NetlinkError::NotOurs`] for a device without our mark; [`NetlinkError::MissingModule`] on a kernel without htb; when it is
    /// not there afterwards.
    pub async fn add_root_htb(&self, device: &Device, pace: Pace) -> Result<(), NetlinkError> {
        let operation = format!("put htb on {}", device.name);
        if recognise_device(&device.name).is_none() {
            return Err(NetlinkError::NotOurs { operation });
        }
        self.put_htb(&operation, device.ifindex).await?;
        self.send_pace(&operation, device.ifindex, pace, NLM_F_CREATE | NLM_F_EXCL).await?;
        let all = self.qdiscs(device.ifindex).await?;
        let is_there = |handle, kind| all.iter().any(|it: &Qdisc| it.handle == handle && it.kind == kind);
        match is_there(HTB_HANDLE, KIND) && is_there(FIFO_HANDLE, FIFO) {
            true => Ok(()),
            false => Err(NetlinkError::Vanished { operation }),
        }
    }

    /// Without its class, on any device: for the probe, in its private namespace.
    pub(super) async fn put_htb(&self, operation: &str, ifindex: u32) -> Result<(), NetlinkError> {
        let root = message(ifindex, (HTB_HANDLE, Qdisc::ROOT), KIND, discipline());
        self.request(operation, Message::NewQueueDiscipline(root), NLM_F_CREATE | NLM_F_EXCL)
            .await
            .map(drop)
            // "Specified qdisc kind is unknown" (qdisc_create in net/sched/sch_api.c).
            .map_err(|error| error.meaning_missing(Errno::ENOENT, MODULE))
    }

    /// Gives the htb that is a device's root another pace. What waits stays, and goes on at the new one.
    ///
    /// # Errors
    /// When there is none, or the kernel refuses.
    pub async fn change_pace(&self, device: &Device, pace: Pace) -> Result<(), NetlinkError> {
        self.send_pace(&format!("change htb on {}", device.name), device.ifindex, pace, 0).await
    }

    async fn send_pace(
        &self,
        operation: &str,
        ifindex: u32,
        pace: Pace,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        let class = HTB_HANDLE | CLASS;
        let rate = message(ifindex, (class, HTB_HANDLE), KIND, pace.class());
        self.request(operation, Message::NewTrafficClass(rate), flags).await?;
        let waiting = message(ifindex, (FIFO_HANDLE, class), FIFO, pace.limit.to_ne_bytes().to_vec());
        self.request(operation, Message::NewQueueDiscipline(waiting), flags).await.map(drop)
    }

    /// Packets that wait in the htb that is a device's root; none without one.
    ///
    /// # Errors
    /// When the kernel's answer cannot be read.
    pub async fn waiting_in_htb(&self, ifindex: u32) -> Result<u32, NetlinkError> {
        let all = self
            .each_qdisc(|entry| {
                let here = entry.header.index.cast_unsigned() == ifindex
                    && u32::from(entry.header.parent) == Qdisc::ROOT
                    && entry.kind == KIND;
                if here { waiting(entry) } else { Ok(0) }
            })
            .await?;
        Ok(all.into_iter().sum())
    }
}

fn waiting(entry: &Entry<'_>) -> Result<u32, DecodeError> {
    let missing = |what: &str| DecodeError::from(format!("no {what}"));
    let stats = entry.attributes.nested(TCA_STATS2)?.ok_or_else(|| missing("TCA_STATS2"))?;
    let queue = stats.get(TCA_STATS_QUEUE).ok_or_else(|| missing("TCA_STATS_QUEUE"))?;
    Ok(TcStatsQueue::parse(queue)?.qlen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As tc of iproute2 writes `rate 1mbit quantum 1514`, but for its tables and its burst.
    #[test]
    fn a_class_is_written_as_the_kernel_reads_it() {
        let bytes = Pace { rate: 125_000, limit: 10, least: 1514 }.class();
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes.len(), 4 + 44);
        assert_eq!((u16::from_ne_bytes([bytes[0], bytes[1]]), bytes[5]), (48, ETHERNET));
        assert_eq!([number(12), number(24)], [125_000; 2]);
        let least = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!([least(10), least(22)], [1514; 2]);
        // 20 ms in ticks of 64 ns.
        assert_eq!([number(28), number(32), number(36)], [312_500, 312_500, QUANTUM]);
        let fast = Pace { rate: 12_500_000_000, limit: 10, least: 0 }.class();
        assert_eq!(fast.len(), bytes.len() + 2 * 12);
        assert!(fast.ends_with(&12_500_000_000_u64.to_ne_bytes()));
    }

    #[test]
    fn everything_goes_to_the_one_class() {
        let numbers: Vec<_> =
            discipline()[4..].as_chunks().0.iter().map(|it| u32::from_ne_bytes(*it)).collect();
        assert_eq!(numbers, [VERSION, 10, CLASS, 0, 0]);
    }
}
