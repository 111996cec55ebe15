//! netem's options: what can be asked of it, and the one file that knows the bytes.
//!
//! Reference: tc-netem(8), linux/pkt_sched.h, net/sched/sch_netem.c.

use std::fmt;
use std::time::Duration;

use netlink_packet_core::{DecodeError, NLA_F_NESTED, parse_u64};
use serde::{Deserialize, Serialize};

use super::super::wire::{Attributes, put};
use super::distribution;
use crate::spec::Distribution;

const TCA_NETEM_CORR: u16 = 1;
const TCA_NETEM_DELAY_DIST: u16 = 2;
const TCA_NETEM_REORDER: u16 = 3;
const TCA_NETEM_CORRUPT: u16 = 4;
const TCA_NETEM_LOSS: u16 = 5;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
/// "General intuitive": the four states.
const NETEM_LOSS_GI: u16 = 1;
const NETEM_LOSS_GE: u16 = 2;

/// Length of `struct tc_netem_qopt`: latency, limit, loss, gap, duplicate, jitter, 32 bits each.
pub(super) const QOPT: usize = 24;

/// Nanoseconds in a tick of the packet scheduler are 2 to this (`PSCHED_SHIFT`, net/pkt_sched.h).
const TICK_SHIFT: u32 = 6;

/// What a netem does to the packets that pass it. Nothing at all, by default, and that without room for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Netem {
    /// How late a packet is, to the nanosecond.
    pub delay: Duration,
    /// Variation of the delay; see [`crate::spec::Delay`]. Packets overtake each other.
    pub jitter: Duration,
    /// How much the variation depends on the one before, in the measure of [`Chance`].
    pub delay_correlation: u32,
    /// How the variation is spread. The kernel takes it, and never gives it back.
    pub distribution: Distribution,
    /// The most packets held at a time; more are dropped. Size it from rate times delay.
    pub limit: u32,
    /// Packets dropped.
    pub loss: Loss,
    /// Packets sent twice.
    pub duplicate: Chance,
    /// Packets of which a bit is turned over.
    pub corrupt: Chance,
    /// Packets that do not wait, of those whose turn it is by `gap`.
    pub reorder: Chance,
    /// Every how many packets one may be sent at once; 0 is never.
    pub gap: u32,
    /// Bytes per second that get through; 0 is as many as come.
    pub rate: u64,
}

/// How often something happens to a packet. Both are shares of `u32::MAX` (see `Probability::threshold`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chance {
    /// Share of the packets.
    pub share: u32,
    /// How much a roll depends on the one before.
    pub correlation: u32,
}

/// Which packets are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// Any, by rolling for each.
    Random(Chance),
    /// By the model of Gilbert and Elliott: a good and a bad state. All are shares of `u32::MAX`.
    GilbertElliott {
        /// From good to bad.
        p: u32,
        /// From bad to good.
        r: u32,
        /// Packets that get through in the bad state.
        h: u32,
        /// Packets that are lost in the good state, 1-k.
        k1: u32,
    },
    /// By a chain of four states: 1 good, 2 getting through within a burst, 3 lost within a burst, 4 lost alone. Each is
    /// a transition, as a share of `u32::MAX`.
    FourState {
        /// From 1 to 3.
        p13: u32,
        /// From 3 to 1.
        p31: u32,
        /// From 3 to 2.
        p32: u32,
        /// From 1 to 4.
        p14: u32,
        /// From 2 to 3.
        p23: u32,
    },
}

impl Default for Loss {
    fn default() -> Self {
        Self::Random(Chance::default())
    }
}

impl Netem {
    /// The largest jitter: the kernel computes with 31 bits of nanoseconds, and cuts what is more in silence
    /// (`tabledist` in net/sched/sch_netem.c).
    pub const LONGEST_JITTER: Duration = Duration::from_nanos(i32::MAX as u64);

    /// A plain delay.
    pub fn delay(delay: Duration, jitter: Duration, limit: u32) -> Self {
        Self { delay, jitter, limit, ..Self::default() }
    }

    /// What the kernel gives back of it: everything but the distribution.
    pub fn as_read_back(self) -> Self {
        Self { distribution: Distribution::Uniform, ..self }
    }

    /// The value of `TCA_OPTIONS`. The times stand in it twice: in ticks, which every kernel reads and every
    /// tool shows, and in nanoseconds, which win (Linux 4.15). The rest only as far as it is asked for.
    pub(super) fn encode(&self) -> Result<Vec<u8>, String> {
        let delay = nanoseconds(self.delay).ok_or_else(|| format!("a delay of {:?}", self.delay))?;
        let jitter = nanoseconds(self.jitter)
            .filter(|_| self.jitter <= Self::LONGEST_JITTER)
            .ok_or_else(|| format!("a jitter of {:?}, above {:?}", self.jitter, Self::LONGEST_JITTER))?;
        if self.limit == 0 {
            return Err("a limit of 0 packets drops everything".to_owned());
        }
        let (loss, duplicate) = (self.random_loss(), self.duplicate);
        let fields = [ticks(delay), self.limit, loss.share, self.gap, duplicate.share, ticks(jitter)];
        let mut bytes = words(&fields);
        put(&mut bytes, TCA_NETEM_LATENCY64, delay.to_ne_bytes().to_vec());
        put(&mut bytes, TCA_NETEM_JITTER64, jitter.to_ne_bytes().to_vec());
        let correlations = [self.delay_correlation, loss.correlation, duplicate.correlation];
        // As tc does: also, all zero, where only what has a structure of its own is correlated.
        if correlations
            .iter()
            .chain([&self.reorder.correlation, &self.corrupt.correlation])
            .any(|it| *it != 0)
        {
            put(&mut bytes, TCA_NETEM_CORR, words(&correlations));
        }
        for (kind, chance) in [(TCA_NETEM_REORDER, self.reorder), (TCA_NETEM_CORRUPT, self.corrupt)] {
            if chance != Chance::default() {
                put(&mut bytes, kind, words(&[chance.share, chance.correlation]));
            }
        }
        if let Some((kind, model)) = self.model() {
            let mut nested = Vec::new();
            put(&mut nested, kind, words(&model));
            put(&mut bytes, TCA_NETEM_LOSS | NLA_F_NESTED, nested);
        }
        self.put_rate(&mut bytes);
        if let Some(table) = distribution::table(self.distribution) {
            put(&mut bytes, TCA_NETEM_DELAY_DIST, table.into_iter().flat_map(i16::to_ne_bytes).collect());
        }
        Ok(bytes)
    }

    fn put_rate(&self, bytes: &mut Vec<u8>) {
        if self.rate == 0 {
            return;
        }
        let rate = u32::try_from(self.rate).unwrap_or_else(|_| {
            put(bytes, TCA_NETEM_RATE64, self.rate.to_ne_bytes().to_vec());
            u32::MAX
        });
        // Without overhead of a packet, and without cells.
        put(bytes, TCA_NETEM_RATE, words(&[rate, 0, 0, 0]));
    }

    fn random_loss(&self) -> Chance {
        match self.loss {
            Loss::Random(chance) => chance,
            Loss::GilbertElliott { .. } | Loss::FourState { .. } => Chance::default(),
        }
    }

    /// Kind and numbers of the model of loss, if it has states.
    fn model(&self) -> Option<(u16, Vec<u32>)> {
        match self.loss {
            Loss::Random(_) => None,
            Loss::GilbertElliott { p, r, h, k1 } => Some((NETEM_LOSS_GE, vec![p, r, h, k1])),
            Loss::FourState { p13, p31, p32, p14, p23 } => {
                Some((NETEM_LOSS_GI, vec![p13, p31, p32, p14, p23]))
            }
        }
    }

    /// Reads the value of `TCA_OPTIONS` as the kernel dumps it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let attributes = Attributes::behind(bytes, QOPT)?;
        let [latency, limit, loss, gap, duplicate, jitter] = numbers(&bytes[..QOPT])?;
        let time = |kind: u16, ticks: u32| match attributes.get(kind) {
            Some(value) => parse_u64(value).map(Duration::from_nanos),
            None => Ok(Duration::from_nanos(u64::from(ticks) << TICK_SHIFT)),
        };
        let [delay_correlation, loss_correlation, duplicate_correlation] =
            attributes.get(TCA_NETEM_CORR).map_or(Ok([0; 3]), numbers)?;
        let chance = |kind: u16| {
            let [share, correlation] = attributes.get(kind).map_or(Ok([0; 2]), numbers)?;
            Ok::<_, DecodeError>(Chance { share, correlation })
        };
        Ok(Self {
            delay: time(TCA_NETEM_LATENCY64, latency)?,
            jitter: time(TCA_NETEM_JITTER64, jitter)?,
            delay_correlation,
            distribution: Distribution::Uniform,
            limit,
            loss: match read_model(&attributes)? {
                Some(model) => model,
                None => Loss::Random(Chance { share: loss, correlation: loss_correlation }),
            },
            duplicate: Chance { share: duplicate, correlation: duplicate_correlation },
            corrupt: chance(TCA_NETEM_CORRUPT)?,
            reorder: chance(TCA_NETEM_REORDER)?,
            gap,
            rate: read_rate(&attributes)?,
        })
    }
}

fn read_model(attributes: &Attributes<'_>) -> Result<Option<Loss>, DecodeError> {
    let Some(nested) = attributes.nested(TCA_NETEM_LOSS)? else { return Ok(None) };
    if let Some(value) = nested.get(NETEM_LOSS_GE) {
        let [p, r, h, k1] = numbers(value)?;
        return Ok(Some(Loss::GilbertElliott { p, r, h, k1 }));
    }
    let value =
        nested.get(NETEM_LOSS_GI).ok_or_else(|| DecodeError::from("a model of loss that is not known"))?;
    let [p13, p31, p32, p14, p23] = numbers(value)?;
    Ok(Some(Loss::FourState { p13, p31, p32, p14, p23 }))
}

fn read_rate(attributes: &Attributes<'_>) -> Result<u64, DecodeError> {
    if let Some(rate) = attributes.get(TCA_NETEM_RATE64) {
        return parse_u64(rate);
    }
    let [rate, ..] = attributes.get(TCA_NETEM_RATE).map_or(Ok([0; 4]), numbers)?;
    Ok(rate.into())
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// The first `N` numbers of 32 bits in `bytes`.
fn numbers<const N: usize>(bytes: &[u8]) -> Result<[u32; N], DecodeError> {
    let (words, _) = bytes.as_chunks::<4>();
    let first = words.get(..N).ok_or_else(|| DecodeError::buffer_too_small(bytes.len(), 4 * N))?;
    Ok(std::array::from_fn(|index| u32::from_ne_bytes(first[index])))
}

fn nanoseconds(time: Duration) -> Option<i64> {
    i64::try_from(time.as_nanos()).ok()
}

/// Scheduler ticks, cut off like the kernel's own at the largest number.
fn ticks(nanoseconds: i64) -> u32 {
    u32::try_from(nanoseconds >> TICK_SHIFT).unwrap_or(u32::MAX)
}

/// As tc would be told.
impl fmt::Display for Netem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.delay.is_zero() {
            write!(f, "delay {:?} ", self.delay)?;
        }
        if !self.jitter.is_zero() {
            write!(f, "{:?} {} ", self.jitter, Percent(self.delay_correlation))?;
        }
        if self.distribution != Distribution::Uniform {
            write!(f, "distribution {} ", self.distribution.name())?;
        }
        match self.loss {
            Loss::Random(chance) => chance.write("loss", f)?,
            Loss::GilbertElliott { p, r, h, k1 } => {
                let [p, r, h, k1] = [p, r, u32::MAX - h, k1].map(Percent);
                write!(f, "loss gemodel {p} {r} {h} {k1} ")?;
            }
            Loss::FourState { p13, p31, p32, p14, p23 } => {
                let [p13, p31, p32, p23, p14] = [p13, p31, p32, p23, p14].map(Percent);
                write!(f, "loss state {p13} {p31} {p32} {p23} {p14} ")?;
            }
        }
        self.duplicate.write("duplicate", f)?;
        self.corrupt.write("corrupt", f)?;
        self.reorder.write("reorder", f)?;
        if self.gap != 0 {
            write!(f, "gap {} ", self.gap)?;
        }
        if self.rate != 0 {
            write!(f, "rate {}bps ", self.rate)?;
        }
        write!(f, "limit {}", self.limit)
    }
}

impl Chance {
    fn write(self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { share: 0, .. } => Ok(()),
            Self { share, correlation: 0 } => write!(f, "{what} {} ", Percent(share)),
            Self { share, correlation } => write!(f, "{what} {} {} ", Percent(share), Percent(correlation)),
        }
    }
}

/// A share of `u32::MAX`, in percent, to a thousandth.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = f64::from(self.0) / f64::from(u32::MAX) * 100.0;
        write!(f, "{}%", (percent * 1000.0).round() / 1000.0)
    }
}
