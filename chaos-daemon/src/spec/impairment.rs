//! What a queue of ours does to the packets that take it: what a caller writes in `params`, and what it means.

use std::time::Duration;

use chaos_common::dns::MOST_NAMES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dns::{self, Names};
use super::link::Link;
use super::parameter::declared;
use super::parts::Correlated;
use super::target::Direction;
use super::units::{Probability, SpecError, time};

/// The largest delay that a packet may be given.
pub(super) const MOST_DELAY_MS: f64 = 60_000.0;
/// The largest variation of it: netem computes with 31 bits of nanoseconds.
pub(super) const MOST_JITTER_MS: f64 = 2147.0;
/// The least share of packets that can be asked for, in percent: one in a million.
const LEAST_SHARE: f64 = 0.0001;
/// The lowest and the highest rate, in thousands of bits per second: less than the lowest holds a packet for seconds.
pub(crate) const RATE_KBIT: (u64, u64) = (8, 100_000_000);

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
    /// A link as a whole, each way for itself.
    Link(Link),
}

impl Impairment {
    /// Share of the packets of its queue that it is about; `None` is all that take the queue.
    pub(super) fn share(&self) -> Option<Probability> {
        match self {
            Self::Loss(Loss::Random(chance)) | Self::Duplicate(chance) | Self::Corrupt(chance) => {
                Some(chance.share)
            }
            Self::Loss(Loss::GilbertElliott(_) | Loss::FourState(_))
            | Self::Delay(_)
            | Self::Reorder(_)
            | Self::Rate { .. }
            | Self::Link(_) => None,
        }
    }

    /// Whether nothing whole gets through in one of these directions, which is the end of both.
    pub(super) fn loses_all(&self, directions: &[Direction]) -> bool {
        match self {
            Self::Loss(Loss::Random(chance)) | Self::Corrupt(chance) => chance.share == Probability::CERTAIN,
            Self::Link(link) => link.cuts_off(directions),
            Self::Loss(Loss::GilbertElliott(_) | Loss::FourState(_))
            | Self::Duplicate(_)
            | Self::Delay(_)
            | Self::Reorder(_)
            | Self::Rate { .. } => false,
        }
    }
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
#[schemars(extend("x-order" = declared::<GilbertElliott>()))]
pub struct GilbertElliott {
    /// From good to bad, percent at each packet.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub p: f64,
    /// From bad to good, percent at each packet.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub r: f64,
    /// Loss in the bad state (1-h).
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub one_minus_h: f64,
    /// Loss in the good state (1-k).
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub one_minus_k: f64,
}

/// Four states: 1 good, 2 getting through within a burst, 3 lost within a burst, 4 lost alone, after which it is good again.
/// Each is the chance of going from one to another at a packet, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-order" = declared::<FourState>()))]
pub struct FourState {
    /// A burst begins.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub p13: f64,
    /// A burst ends.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub p31: f64,
    /// Within a burst, a packet gets through.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub p32: f64,
    /// Within a burst, packets are lost again.
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub p23: f64,
    /// One packet is lost alone.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 100.0))]
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
    /// Packets per second to size the queue for.
    pub packet_rate: u32,
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
    /// Packets per second to size the queue for.
    pub packet_rate: u32,
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

/// What `latency` takes in `params`, beside how its variation is correlated and which share of the packets it is about.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LatencyParams {
    /// Delay of each packet.
    #[serde(default = "delay_ms")]
    #[schemars(range(min = 0.001, max = MOST_DELAY_MS))]
    delay_ms: f64,
    /// Variation of the delay, either way, by which packets overtake each other. With another distribution than uniform: its standard deviation.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = MOST_JITTER_MS))]
    jitter_ms: f64,
    /// How the delay varies.
    #[serde(default)]
    distribution: Distribution,
    /// Packets per second to make room for.
    #[serde(default = "packet_rate")]
    #[schemars(range(min = 1, max = u32::MAX))]
    packet_rate: u32,
    /// About which names, of questions to name servers alone, e.g. db.example.org, or *.example.org for all below it.
    #[schemars(length(min = 1, max = MOST_NAMES))]
    names: Option<Vec<String>>,
}

fn delay_ms() -> f64 {
    100.0
}

/// Room for as many as that is dear only where packets are late for long.
fn packet_rate() -> u32 {
    200_000
}

impl LatencyParams {
    /// The names of which questions are delayed; none is every packet.
    pub(super) fn names(&self) -> Result<Vec<Names>, SpecError> {
        dns::parse_names(self.names.as_deref())
    }

    /// The delay.
    pub(super) fn impairment(&self, correlated: Correlated) -> Result<Impairment, SpecError> {
        let (delay, jitter) = (time(self.delay_ms), time(self.jitter_ms));
        if jitter > delay {
            let problem =
                format!("{} ms is more than the delay: give up to {}", self.jitter_ms, self.delay_ms);
            return Err(SpecError::new("params.jitter_ms", problem));
        }
        let given = correlated.correlation_percent.is_some();
        let varied = self.distribution != Distribution::Uniform;
        for (name, given) in [("correlation_percent", given), ("distribution", varied)] {
            if given && jitter.is_zero() {
                let problem = "means nothing without variation: give params.jitter_ms, too";
                return Err(SpecError::new(format!("params.{name}"), problem));
            }
        }
        // The kernel takes the entry of a table by the last bits of a roll, to which a correlation does not reach.
        if varied && given {
            let name = self.distribution.name();
            let problem = format!("has no effect on distribution {name:?}: leave one of them out");
            return Err(SpecError::new("params.correlation_percent", problem));
        }
        Ok(Impairment::Delay(Delay {
            delay,
            jitter,
            correlation: correlated.correlation()?,
            distribution: self.distribution,
            packet_rate: self.packet_rate,
        }))
    }
}

/// What `packet_loss` takes in `params`: one of three models.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LossParams {
    /// Share of the packets that is lost.
    #[schemars(range(min = LEAST_SHARE, max = 100.0))]
    loss_percent: Option<f64>,
    /// In place of a share: a good and a bad state, as `loss gemodel` of tc-netem(8).
    gilbert_elliott: Option<GilbertElliott>,
    /// In place of a share: bursts, as `loss state` of tc-netem(8).
    four_state: Option<FourState>,
}

impl LossParams {
    /// The loss.
    pub(super) fn impairment(&self, correlated: Correlated) -> Result<Impairment, SpecError> {
        let one = "give one of params.loss_percent, params.gilbert_elliott and params.four_state";
        let loss = match (self.loss_percent, self.gilbert_elliott, self.four_state) {
            (Some(percent), None, None) => Loss::Random(chance("params.loss_percent", percent, correlated)?),
            (None, Some(model), None) => Loss::GilbertElliott(model.checked()?),
            (None, None, Some(model)) => Loss::FourState(model.checked()?),
            (None, None, None) => {
                return Err(SpecError::new("params.loss_percent", format!("missing: {one}")));
            }
            _ => return Err(SpecError::new("params.loss_percent", format!("two models at once: {one}"))),
        };
        if correlated.correlation_percent.is_some() && self.loss_percent.is_none() {
            let problem = "belongs to params.loss_percent: a model with states has its own";
            return Err(SpecError::new("params.correlation_percent", problem));
        }
        Ok(Impairment::Loss(loss))
    }
}

impl GilbertElliott {
    fn checked(self) -> Result<Self, SpecError> {
        let field = |name| format!("params.gilbert_elliott.{name}");
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

/// What `packet_duplicate` takes in `params`, beside a correlation.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DuplicateParams {
    /// Share of the packets that is sent twice.
    #[schemars(range(min = LEAST_SHARE, max = 100.0))]
    duplicate_percent: f64,
}

impl DuplicateParams {
    pub(super) fn impairment(&self, correlated: Correlated) -> Result<Impairment, SpecError> {
        chance("params.duplicate_percent", self.duplicate_percent, correlated).map(Impairment::Duplicate)
    }
}

/// What `packet_corrupt` takes in `params`, beside a correlation.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CorruptParams {
    /// Share of the packets of which a bit is turned over.
    #[schemars(range(min = LEAST_SHARE, max = 100.0))]
    corrupt_percent: f64,
}

impl CorruptParams {
    pub(super) fn impairment(&self, correlated: Correlated) -> Result<Impairment, SpecError> {
        chance("params.corrupt_percent", self.corrupt_percent, correlated).map(Impairment::Corrupt)
    }
}

/// What `packet_reorder` takes in `params`, beside a correlation.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReorderParams {
    /// Share of the packets that overtakes the others, which are late.
    #[schemars(range(min = LEAST_SHARE, max = 100.0))]
    reorder_percent: f64,
    /// How late those are that are overtaken.
    #[serde(default = "delay_ms")]
    #[schemars(range(min = 0.001, max = MOST_DELAY_MS))]
    delay_ms: f64,
    /// Every how many packets one may overtake: 1 is any of them, 5 at most every fifth.
    #[serde(default = "every")]
    #[schemars(range(min = 1, max = u32::MAX))]
    gap: u32,
    /// Packets per second to make room for.
    #[serde(default = "packet_rate")]
    #[schemars(range(min = 1, max = u32::MAX))]
    packet_rate: u32,
}

fn every() -> u32 {
    1
}

impl ReorderParams {
    pub(super) fn impairment(&self, correlated: Correlated) -> Result<Impairment, SpecError> {
        Ok(Impairment::Reorder(Reorder {
            delay: time(self.delay_ms),
            chance: chance("params.reorder_percent", self.reorder_percent, correlated)?,
            gap: self.gap,
            packet_rate: self.packet_rate,
        }))
    }
}

/// What `bandwidth` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct BandwidthParams {
    /// Thousands of bits per second, with Ethernet headers, each direction for itself.
    #[schemars(range(min = RATE_KBIT.0, max = RATE_KBIT.1))]
    rate_kbit: u64,
}

impl BandwidthParams {
    pub(super) fn impairment(&self) -> Impairment {
        Impairment::Rate { kbit: self.rate_kbit }
    }
}

/// A share of which there is some.
fn chance(field: &str, percent: f64, correlated: Correlated) -> Result<Chance, SpecError> {
    Ok(Chance { share: Probability::new(field, percent / 100.0)?, correlation: correlated.correlation()? })
}
