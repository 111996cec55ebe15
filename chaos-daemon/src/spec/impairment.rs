//! What a queue of ours does to the packets that take it: what a caller writes in `params`, and what it means.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dns::{self, Names};
use super::units::{LONGEST_DELAY, LONGEST_JITTER, Probability, SpecError, millis, percent};

/// The most that a roll may depend on the one before, in percent: at 100 the first roll would decide for good.
const MOST_CORRELATION: f64 = 99.0;

/// The least share of packets that can be asked for, in percent: one in a million.
const LEAST_SHARE: f64 = 0.0001;
/// The lowest and the highest rate, in thousands of bits per second: less than the lowest holds a packet for seconds.
const RATE_KBIT: (u64, u64) = (8, 100_000_000);

/// One thing that is wrong with a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Impairment {
    /// Packets are late.
    Delay(Delay),
    /// Packets are lost.
    Loss(Loss),
    /// Packets arrive twice.
    Duplicate(Chance),
    /// A bit of packets is turned over.
    Corrupt(Chance),
    /// Packets are late, and some are not, so that they overtake.
    Reorder(Reorder),
    /// Only so many bytes per second get through.
    Rate {
        /// In thousands of bits per second.
        kbit: u64,
    },
}

/// How often something happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Chance {
    /// Share of the packets.
    pub share: Probability,
    /// How much each roll depends on the one before.
    pub correlation: Probability,
}

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Loss {
    /// Any.
    Random(Chance),
    /// Those of the bad times.
    GilbertElliott(GilbertElliott),
    /// Those of bursts, and some alone.
    FourState(FourState),
}

/// The model of Gilbert and Elliott: a good state and a bad one, and how likely a packet is lost in each. All in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// From good to bad, at each packet.
    pub p: f64,
    /// From bad to good, at each packet.
    pub r: f64,
    /// Loss in the bad state (1-h).
    #[serde(default = "all")]
    pub one_minus_h: f64,
    /// Loss in the good state (1-k).
    #[serde(default)]
    pub one_minus_k: f64,
}

/// Four states: 1 good, 2 getting through within a burst, 3 lost within a burst, 4 lost alone, after which it is good again.
/// Each is the chance of going from one to another at a packet, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FourState {
    /// A burst begins.
    pub p13: f64,
    /// A burst ends.
    pub p31: f64,
    /// Within a burst, a packet gets through.
    #[serde(default)]
    pub p32: f64,
    /// Within a burst, packets are lost again.
    #[serde(default = "all")]
    pub p23: f64,
    /// One packet is lost alone.
    #[serde(default)]
    pub p14: f64,
}

fn all() -> f64 {
    100.0
}

/// How packets overtake each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reorder {
    /// How late those are that are overtaken.
    pub delay: Duration,
    /// Which ones are not late, of those whose turn it is.
    pub chance: Chance,
    /// Every how many packets it is one's turn.
    pub gap: u32,
    /// Packets per second to size the queue for; `None` is a generous default.
    pub packet_rate: Option<u32>,
}

/// How late packets are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// How late a packet leaves.
    pub delay: Duration,
    /// Variation of the delay: for [`Distribution::Uniform`] the most, either way; for the others the standard deviation.
    pub jitter: Duration,
    /// How much the variation of a packet depends on that of the one before.
    pub correlation: Probability,
    /// How the variation is spread.
    pub distribution: Distribution,
    /// Packets per second to size the queue for; `None` is a generous default.
    pub packet_rate: Option<u32>,
}

/// How a delay varies (tc-netem(8)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every delay within the bounds is as likely as every other.
    #[default]
    Uniform,
    /// Gauss's bell.
    Normal,
    /// Mostly early, with a long tail of late ones.
    Pareto,
    /// A quarter normal, three quarters Pareto.
    ParetoNormal,
}

impl Distribution {
    /// The name on the wire, which is tc's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
            Self::ParetoNormal => "paretonormal",
        }
    }
}

/// What `latency` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LatencyParams {
    #[serde(default = "default_delay_ms")]
    delay_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    correlation_percent: Option<f64>,
    distribution: Option<Distribution>,
    packet_rate: Option<u32>,
    pub(super) packet_probability: Option<f64>,
    names: Option<Vec<String>>,
}

fn default_delay_ms() -> f64 {
    100.0
}

impl LatencyParams {
    /// The names of which questions are delayed; none is every packet.
    pub(super) fn names(&self) -> Result<Vec<Names>, SpecError> {
        dns::parse_names(self.names.as_deref())
    }

    /// The delay, within its bounds.
    pub(super) fn impairment(&self) -> Result<Impairment, SpecError> {
        let delay = delay(self.delay_ms)?;
        let jitter = millis("params.jitter_ms", self.jitter_ms, Duration::ZERO, delay.min(LONGEST_JITTER))?;
        for (name, given) in [
            ("correlation_percent", self.correlation_percent.is_some()),
            ("distribution", self.distribution.is_some()),
        ] {
            if given && jitter.is_zero() {
                let problem = "means nothing without variation: give params.jitter_ms, too";
                return Err(SpecError::new(format!("params.{name}"), problem));
            }
        }
        let distribution = self.distribution.unwrap_or_default();
        // The kernel takes the entry of a table by the last bits of a roll, to which a correlation does not reach.
        if distribution != Distribution::Uniform && self.correlation_percent.is_some() {
            let problem =
                format!("has no effect on distribution {:?}: leave one of them out", distribution.name());
            return Err(SpecError::new("params.correlation_percent", problem));
        }
        Ok(Impairment::Delay(Delay {
            delay,
            jitter,
            correlation: correlation(self.correlation_percent)?,
            distribution,
            packet_rate: packet_rate(self.packet_rate)?,
        }))
    }
}

/// What `packet_loss` takes in `params`: one of three models.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LossParams {
    loss_percent: Option<f64>,
    correlation_percent: Option<f64>,
    gilbert_elliott: Option<GilbertElliott>,
    four_state: Option<FourState>,
}

impl LossParams {
    /// The loss, within its bounds.
    pub(super) fn impairment(&self) -> Result<Impairment, SpecError> {
        let one = "give one of params.loss_percent, params.gilbert_elliott and params.four_state";
        let loss = match (self.loss_percent, self.gilbert_elliott, self.four_state) {
            (Some(percent), None, None) => {
                Loss::Random(chance("params.loss_percent", percent, self.correlation_percent)?)
            }
            (None, Some(model), None) => Loss::GilbertElliott(model.checked()?),
            (None, None, Some(model)) => Loss::FourState(model.checked()?),
            (None, None, None) => {
                return Err(SpecError::new("params.loss_percent", format!("missing: {one}")));
            }
            _ => return Err(SpecError::new("params.loss_percent", format!("two models at once: {one}"))),
        };
        if self.correlation_percent.is_some() && self.loss_percent.is_none() {
            let problem = "belongs to params.loss_percent: a model with states has its own";
            return Err(SpecError::new("params.correlation_percent", problem));
        }
        Ok(Impairment::Loss(loss))
    }
}

impl GilbertElliott {
    fn checked(self) -> Result<Self, SpecError> {
        let field = |name| format!("params.gilbert_elliott.{name}");
        for (name, value) in [
            ("p", self.p),
            ("r", self.r),
            ("one_minus_h", self.one_minus_h),
            ("one_minus_k", self.one_minus_k),
        ] {
            percent(&field(name), value, 0.0, 100.0)?;
        }
        let bad = self.p > 0.0 && self.one_minus_h > 0.0;
        if !bad && self.one_minus_k == 0.0 {
            return Err(SpecError::new(
                field("p"),
                "nothing would be lost: give p and one_minus_h, or one_minus_k",
            ));
        }
        Ok(self)
    }
}

impl FourState {
    fn checked(self) -> Result<Self, SpecError> {
        let field = |name| format!("params.four_state.{name}");
        for (name, value) in
            [("p13", self.p13), ("p31", self.p31), ("p32", self.p32), ("p23", self.p23), ("p14", self.p14)]
        {
            percent(&field(name), value, 0.0, 100.0)?;
        }
        // The kernel adds each pair up, in as many bits as one has.
        for (name, sum) in [("p13", self.p13 + self.p14), ("p31", self.p31 + self.p32)] {
            if sum > 100.0 {
                let other = if name == "p13" { "p14" } else { "p32" };
                let problem =
                    format!("with {other} it is {sum} %: both leave one state, so give at most 100 together");
                return Err(SpecError::new(field(name), problem));
            }
        }
        if self.p13 + self.p14 == 0.0 {
            return Err(SpecError::new(field("p13"), "nothing would be lost: give p13 or p14"));
        }
        Ok(self)
    }
}

/// What `packet_duplicate` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DuplicateParams {
    duplicate_percent: f64,
    correlation_percent: Option<f64>,
}

impl DuplicateParams {
    /// The share, within its bounds.
    pub(super) fn impairment(&self) -> Result<Impairment, SpecError> {
        let chance = chance("params.duplicate_percent", self.duplicate_percent, self.correlation_percent)?;
        Ok(Impairment::Duplicate(chance))
    }
}

/// What `packet_corrupt` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CorruptParams {
    corrupt_percent: f64,
    correlation_percent: Option<f64>,
}

impl CorruptParams {
    /// The share, within its bounds.
    pub(super) fn impairment(&self) -> Result<Impairment, SpecError> {
        let chance = chance("params.corrupt_percent", self.corrupt_percent, self.correlation_percent)?;
        Ok(Impairment::Corrupt(chance))
    }
}

/// What `packet_reorder` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReorderParams {
    reorder_percent: f64,
    correlation_percent: Option<f64>,
    #[serde(default = "default_delay_ms")]
    delay_ms: f64,
    #[serde(default = "every")]
    gap: u32,
    packet_rate: Option<u32>,
}

fn every() -> u32 {
    1
}

impl ReorderParams {
    /// The disorder, within its bounds.
    pub(super) fn impairment(&self) -> Result<Impairment, SpecError> {
        if self.gap == 0 {
            return Err(SpecError::new(
                "params.gap",
                "at every 0th packet: give 1 for any, 2 for every second, ...",
            ));
        }
        Ok(Impairment::Reorder(Reorder {
            delay: delay(self.delay_ms)?,
            chance: chance("params.reorder_percent", self.reorder_percent, self.correlation_percent)?,
            gap: self.gap,
            packet_rate: packet_rate(self.packet_rate)?,
        }))
    }
}

/// What `bandwidth` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BandwidthParams {
    rate_kbit: u64,
}

impl BandwidthParams {
    /// The rate, within its bounds.
    pub(super) fn impairment(&self) -> Result<Impairment, SpecError> {
        let (least, most) = RATE_KBIT;
        if !(least..=most).contains(&self.rate_kbit) {
            let problem = format!("{} kbit/s is out of bounds: give {least} to {most}", self.rate_kbit);
            return Err(SpecError::new("params.rate_kbit", problem));
        }
        Ok(Impairment::Rate { kbit: self.rate_kbit })
    }
}

fn packet_rate(rate: Option<u32>) -> Result<Option<u32>, SpecError> {
    match rate {
        Some(0) => Err(SpecError::new("params.packet_rate", "0 packets per second leave nothing to delay")),
        rate => Ok(rate),
    }
}

/// A share of which there is some.
fn chance(field: &str, share: f64, correlated: Option<f64>) -> Result<Chance, SpecError> {
    Ok(Chance { share: percent(field, share, LEAST_SHARE, 100.0)?, correlation: correlation(correlated)? })
}

fn delay(delay_ms: f64) -> Result<Duration, SpecError> {
    millis("params.delay_ms", delay_ms, Duration::from_micros(1), LONGEST_DELAY)
}

fn correlation(value: Option<f64>) -> Result<Probability, SpecError> {
    percent("params.correlation_percent", value.unwrap_or(0.0), 0.0, MOST_CORRELATION)
}
