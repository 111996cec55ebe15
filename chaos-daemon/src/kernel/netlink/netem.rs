//! netem: the queueing discipline that delays packets. The one file that knows its bytes.
//!
//! Mechanism: `sch_netem` as the root of a device of ours. Kernel requirement: CONFIG_NET_SCH_NETEM. It ends with
//! its device. Reference: tc-netem(8), linux/pkt_sched.h, net/sched/sch_netem.c.

use std::time::Duration;

use netlink_packet_core::{DecodeError, DefaultNla, Emitable, NLM_F_CREATE, NLM_F_EXCL, parse_u64};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcStatsBasic, TcStatsQueue};
use nix::errno::Errno;

use super::Netlink;
use super::error::NetlinkError;
use super::link::Device;
use super::marks::recognise_device;
use super::qdisc::{Entry, Qdisc, tc_message};
use super::wire::Attributes;

const KIND: &str = "netem";
/// The kernel module that provides it.
const MODULE: &str = "sch_netem";

const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;

/// Length of `struct tc_netem_qopt`: latency, limit, loss, gap, duplicate, jitter, 32 bits each.
const QOPT: usize = 24;

/// Nanoseconds in a tick of the packet scheduler are 2 to this (`PSCHED_SHIFT`, net/pkt_sched.h).
const TICK_SHIFT: u32 = 6;

/// What a netem does to the packets that pass it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Netem {
    /// How late a packet is, to the nanosecond.
    pub delay: Duration,
    /// Uniform variation of the delay, either way. Packets overtake each other.
    pub jitter: Duration,
    /// The most packets held at a time; more are dropped. Size it from rate times delay.
    pub limit: u32,
    /// Share of packets dropped, `u32::MAX` being all (see `Probability::threshold`).
    pub loss: u32,
    /// Share of packets sent twice, in the same measure.
    pub duplicate: u32,
}

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

impl Netem {
    /// The largest jitter: the kernel computes with 31 bits of nanoseconds, and cuts what is more in silence
    /// (`tabledist` in net/sched/sch_netem.c).
    pub const LONGEST_JITTER: Duration = Duration::from_nanos(i32::MAX as u64);

    /// A plain delay.
    pub fn delay(delay: Duration, jitter: Duration, limit: u32) -> Self {
        Self { delay, jitter, limit, loss: 0, duplicate: 0 }
    }

    /// The value of `TCA_OPTIONS`. The times stand in it twice: in ticks, which every kernel reads and every
    /// tool shows, and in nanoseconds, which win (Linux 4.15).
    fn encode(&self) -> Result<Vec<u8>, String> {
        let delay = nanoseconds(self.delay).ok_or_else(|| format!("a delay of {:?}", self.delay))?;
        let jitter = nanoseconds(self.jitter)
            .filter(|_| self.jitter <= Self::LONGEST_JITTER)
            .ok_or_else(|| format!("a jitter of {:?}, above {:?}", self.jitter, Self::LONGEST_JITTER))?;
        if self.limit == 0 {
            return Err("a limit of 0 packets drops everything".to_owned());
        }
        let mut bytes = Vec::with_capacity(QOPT + 24);
        for field in [ticks(delay), self.limit, self.loss, 0, self.duplicate, ticks(jitter)] {
            bytes.extend(field.to_ne_bytes());
        }
        for (kind, time) in [(TCA_NETEM_LATENCY64, delay), (TCA_NETEM_JITTER64, jitter)] {
            let attribute = DefaultNla::new(kind, time.to_ne_bytes().to_vec());
            let start = bytes.len();
            bytes.resize(start + attribute.buffer_len(), 0);
            attribute.emit(&mut bytes[start..]);
        }
        Ok(bytes)
    }

    /// Reads the value of `TCA_OPTIONS` as the kernel dumps it.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let attributes = Attributes::behind(bytes, QOPT)?;
        let field = |index: usize| {
            let mut value = [0; 4];
            value.copy_from_slice(&bytes[index * 4..index * 4 + 4]);
            u32::from_ne_bytes(value)
        };
        let time = |kind: u16, index: usize| match attributes.get(kind) {
            Some(value) => parse_u64(value).map(Duration::from_nanos),
            None => Ok(Duration::from_nanos(u64::from(field(index)) << TICK_SHIFT)),
        };
        Ok(Self {
            delay: time(TCA_NETEM_LATENCY64, 0)?,
            jitter: time(TCA_NETEM_JITTER64, 5)?,
            limit: field(1),
            loss: field(2),
            duplicate: field(4),
        })
    }
}

fn nanoseconds(time: Duration) -> Option<i64> {
    i64::try_from(time.as_nanos()).ok()
}

/// Scheduler ticks, cut off like the kernel's own at the largest number.
fn ticks(nanoseconds: i64) -> u32 {
    u32::try_from(nanoseconds >> TICK_SHIFT).unwrap_or(u32::MAX)
}

fn parse_state(entry: &Entry<'_>) -> Result<NetemState, DecodeError> {
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

    /// As [`Netlink::add_root_netem`], on any device: only for the probe, in its private namespace.
    pub(super) async fn put_netem(
        &self,
        operation: String,
        ifindex: u32,
        handle: u32,
        netem: &Netem,
    ) -> Result<(), NetlinkError> {
        let options = match netem.encode() {
            Ok(options) => options,
            Err(problem) => return Err(NetlinkError::OutOfRange { operation, problem }),
        };
        let mut message = tc_message(ifindex, handle, Qdisc::ROOT);
        message.attributes.push(TcAttribute::Kind(KIND.to_owned()));
        message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)));
        self.request(&operation, Message::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Probability;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// What iproute2-6.1.0 (libbpf 1.1.2) sends as the value of TCA_OPTIONS, taken with
    /// `strace -e sendmsg -xx -s 4096 tc qdisc add dev d0 root handle c4a0: netem ...`. It sends the structure
    /// only, so that ours begins with it; the times in nanoseconds follow. The bytes are a little-endian machine's.
    #[test]
    fn the_structure_has_the_bytes_that_tc_sends() {
        let share = |fraction| Probability::new("p", fraction).unwrap().threshold();
        let lossy =
            Netem { loss: share(0.015), duplicate: share(0.02), ..Netem::delay(MS(100), MS(10), 5000) };
        let golden: [(&str, Netem, &[u8; QOPT]); 5] = [
            (
                "delay 100ms 10ms limit 5000",
                Netem::delay(MS(100), MS(10), 5000),
                b"\x84\xd7\x17\x00\x88\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x5a\x62\x02\x00",
            ),
            (
                "delay 100ms",
                Netem::delay(MS(100), MS(0), 1000),
                b"\x84\xd7\x17\x00\xe8\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            ),
            (
                "delay 5s limit 1000000",
                Netem::delay(MS(5000), MS(0), 1_000_000),
                b"\xc8\x17\xa8\x04\x40\x42\x0f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            ),
            (
                "delay 1us",
                Netem::delay(Duration::from_micros(1), MS(0), 1000),
                b"\x0f\x00\x00\x00\xe8\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            ),
            (
                "delay 100ms 10ms loss 1.5% duplicate 2% limit 5000",
                lossy,
                b"\x84\xd7\x17\x00\x88\x13\x00\x00\x3d\x0a\xd7\x03\x00\x00\x00\x00\x52\xb8\x1e\x05\x5a\x62\x02\x00",
            ),
        ];
        for (command, netem, bytes) in golden {
            let ours = netem.encode().unwrap();
            assert_eq!(&ours[..QOPT], bytes, "tc qdisc add dev d0 root handle c4a0: netem {command}");
            assert_eq!(Netem::decode(&ours).unwrap(), netem, "{command}");
        }
    }

    #[test]
    fn the_nanoseconds_follow_the_structure() {
        let bytes = Netem::delay(MS(100), MS(10), 5000).encode().unwrap();
        // struct nlattr: length 12, type; then 100,000,000 and 10,000,000 in 64 bits.
        let expected = b"\x0c\x00\x0a\x00\x00\xe1\xf5\x05\x00\x00\x00\x00\x0c\x00\x0b\x00\x80\x96\x98\x00\x00\x00\x00\x00";
        assert_eq!(&bytes[QOPT..], expected);
    }

    #[test]
    fn without_nanoseconds_the_ticks_are_read() {
        let bytes = Netem::delay(MS(100), MS(10), 5000).encode().unwrap();
        assert_eq!(Netem::decode(&bytes[..QOPT]).unwrap(), Netem::delay(MS(100), MS(10), 5000));
        assert!(Netem::decode(&bytes[..QOPT - 1]).is_err());
        assert!(Netem::decode(&bytes[..QOPT + 5]).is_err());
    }

    #[test]
    fn a_value_that_the_kernel_would_change_in_silence_is_refused() {
        let over = Netem::LONGEST_JITTER + Duration::from_nanos(1);
        assert!(Netem::delay(MS(5000), over, 10).encode().unwrap_err().contains("a jitter of"));
        assert!(Netem::delay(MS(5000), Netem::LONGEST_JITTER, 10).encode().is_ok());
        assert!(Netem::delay(MS(1), MS(0), 0).encode().unwrap_err().contains("limit"));
        assert!(Netem::delay(Duration::MAX, MS(0), 1).encode().unwrap_err().contains("a delay of"));
    }
}
