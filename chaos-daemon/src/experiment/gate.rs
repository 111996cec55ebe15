//! Gates: what is sampled while the faults of a run are active, and ends it when it is breached. Pure: samples and their
//! times go in, a breach comes out.
//!
//! The words are OpenSLO's (alert conditions, <https://github.com/OpenSLO/OpenSLO>): `op`, `value`, `alertAfter`,
//! `lookbackWindow`. No data is a breach unless the document says otherwise: who cannot see does not go on.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::tolerance::{Form, Tolerance};
use crate::probe::{NoData, Probe, Sample};

/// What the names of gates begin with that are limits of the host, and those of no document.
pub(super) const PREFIX: &str = "policy:";

/// How a value is compared; the comparison is true in a breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Greater than.
    Gt,
    /// Greater than or equal to.
    Gte,
    /// Less than.
    Lt,
    /// Less than or equal to.
    Lte,
}

impl Op {
    /// The comparison of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Gt, Self::Gte, Self::Lt, Self::Lte].into_iter().find(|op| op.name() == name)
    }

    /// Its name in OpenSLO.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
        }
    }

    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Gt => left > right,
            Self::Gte => left >= right,
            Self::Lt => left < right,
            Self::Lte => left <= right,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gt => ">",
            Self::Gte => ">=",
            Self::Lt => "<",
            Self::Lte => "<=",
        })
    }
}

/// When a sample is bad.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// When this comparison of what the probe measures is true.
    Compare {
        /// The comparison.
        op: Op,
        /// What is compared with, in the probe's unit.
        value: f64,
        /// Over how long what was measured is averaged; zero for the latest alone.
        lookback: Duration,
    },
    /// When what the probe returns is not within this.
    Tolerance(Tolerance),
}

/// A gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// Name in the document.
    pub name: String,
    /// What is sampled. Its time limit is the interval: what has not come by then is no data.
    pub probe: Probe,
    /// What the probe's provider returns.
    pub form: Form,
    /// When a sample is bad.
    pub rule: Rule,
    /// How long samples have to be bad, without a good one in between; zero for the first.
    pub alert_after: Duration,
    /// How often it is sampled.
    pub interval: Duration,
    /// Whether no data is bad.
    pub no_data_is_breach: bool,
}

/// What a sample means.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Good,
    Bad(String),
    NoData(String),
}

impl Gate {
    /// What a single sample says, without regard to what was before.
    ///
    /// # Errors
    /// Why it is bad, for people.
    pub fn judge(&self, sample: &Sample) -> Result<(), String> {
        let seen = Watch::new(self).seen(Duration::ZERO, sample).unwrap_or(Ok(()));
        seen.map_err(|why| format!("gate {}: {why}", self.name))
    }

    /// Whether it is bad that nothing is seen: neither its `noData`, nor its tolerance, nor its probe takes that for right.
    pub fn needs_data(&self) -> bool {
        let nothing = |no_data| Sample { no_data, ..Sample::failed("nothing".to_owned()) };
        [None, self.probe.check.no_data()].into_iter().all(|no_data| self.judge(&nothing(no_data)).is_err())
    }
}

/// A gate that is being watched.
#[derive(Debug, Clone)]
pub struct Watch<'a> {
    gate: &'a Gate,
    measured: VecDeque<(Duration, f64)>,
    bad_since: Option<Duration>,
    /// Whether the latest sample had no data.
    is_blind: bool,
    /// Whether any had.
    has_seen: bool,
    /// How many there were.
    samples: u64,
}

impl<'a> Watch<'a> {
    /// A gate of which nothing is known yet.
    pub fn new(gate: &'a Gate) -> Self {
        Self {
            gate,
            measured: VecDeque::new(),
            bad_since: None,
            is_blind: false,
            has_seen: false,
            samples: 0,
        }
    }

    /// What is watched.
    pub fn gate(&self) -> &'a Gate {
        self.gate
    }

    /// Whether the latest sample had no data.
    pub fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// What there is to say of a gate that was sampled and has never had data.
    pub fn finding(&self) -> Option<String> {
        let never = self.samples > 0 && !self.has_seen;
        never.then(|| format!("never had data in {} samples: it has watched nothing", self.samples))
    }

    /// Whether the latest sample that says anything was bad, which is no breach yet if the gate waits for more.
    pub fn is_bad(&self) -> bool {
        self.bad_since.is_some()
    }

    /// Takes a sample in, that was asked for at `time`, on a clock that never goes back. A breach comes out, for people.
    pub fn observe(&mut self, time: Duration, sample: &Sample) -> Option<String> {
        match self.seen(time, sample) {
            // Nobody has seen that it got well.
            None => None,
            Some(Ok(())) => {
                self.bad_since = None;
                None
            }
            Some(Err(why)) => {
                let lasting = time.saturating_sub(*self.bad_since.get_or_insert(time));
                let breach = || {
                    let long = if lasting.is_zero() { String::new() } else { format!(" for {lasting:.1?}") };
                    format!("gate {} was breached{long}: {why}", self.gate.name)
                };
                (lasting >= self.gate.alert_after).then(breach)
            }
        }
    }

    /// Its name, and for how long it has been bad by now, for people; `None` when the latest sample that says anything was good.
    fn bad_for(&self, now: Duration) -> Option<String> {
        let lasting = now.saturating_sub(self.bad_since?);
        let long = if lasting.is_zero() { String::new() } else { format!(" for {lasting:.1?}") };
        Some(format!("{:?}{long}", self.gate.name))
    }

    /// Whether a sample is good, and why it is not; `None` when it says nothing.
    fn seen(&mut self, time: Duration, sample: &Sample) -> Option<Result<(), String>> {
        let looked = self.look(time, sample);
        self.is_blind = sample.no_data.is_some() || matches!(looked, Seen::NoData(_));
        self.has_seen |= !self.is_blind;
        self.samples += 1;
        match looked {
            Seen::Good => Some(Ok(())),
            Seen::NoData(_) if !self.gate.no_data_is_breach => None,
            Seen::NoData(why) => Some(Err(format!("no data: {why}"))),
            Seen::Bad(why) => Some(Err(why)),
        }
    }

    fn look(&mut self, time: Duration, sample: &Sample) -> Seen {
        match sample.no_data {
            Some(NoData::Ok) => return Seen::Good,
            Some(NoData::Breach) => return Seen::NoData(sample.detail.clone()),
            // It does not work, which is not to be ignored.
            Some(NoData::Error) => return Seen::Bad(format!("it cannot be judged: {}", sample.detail)),
            None => {}
        }
        match &self.gate.rule {
            Rule::Tolerance(tolerance) => {
                let output = self.gate.form.output(sample);
                match output.map(|output| tolerance.judge(&output)) {
                    Some(Ok(())) => Seen::Good,
                    Some(Err(problem)) if is_data(sample) => {
                        Seen::Bad(format!("{} ({problem})", sample.detail))
                    }
                    _ => Seen::NoData(sample.detail.clone()),
                }
            }
            Rule::Compare { op, value, lookback } => {
                // Infinity is a value: more, or less, than every other.
                let Some(measured) = sample.value.filter(|value| !value.is_nan()) else {
                    return Seen::NoData(sample.detail.clone());
                };
                self.measured.push_back((time, measured));
                self.measured.retain(|(then, _)| time.saturating_sub(*then) <= *lookback);
                let mean = mean(&self.measured);
                match op.holds(mean, *value) {
                    true => Seen::Bad(format!("{mean:.3} {op} {value} ({})", sample.detail)),
                    // Of both infinities there is no mean, with which every comparison is false.
                    false if mean.is_nan() => Seen::NoData(sample.detail.clone()),
                    false => Seen::Good,
                }
            }
        }
    }
}

/// Names the gates that were bad as well when the one of this number was breached, for people; `None` when there was no other.
pub fn bad_as_well(watches: &[Watch<'_>], breached: usize, now: Duration) -> Option<String> {
    let others = watches.iter().enumerate().filter(|(index, _)| *index != breached);
    let bad: Vec<_> = others.filter_map(|(_, watch)| watch.bad_for(now)).collect();
    (!bad.is_empty()).then(|| format!("bad as well: {}", bad.join(", ")))
}

/// Whether anything was seen at all. `chaosctl probe` ends with a status of its own when nothing was, which says nothing of the system.
fn is_data(sample: &Sample) -> bool {
    sample.ok || sample.value.is_some() || sample.answer.is_some()
}

#[expect(clippy::cast_precision_loss, reason = "there are not 2^52 samples in a window")]
fn mean(measured: &VecDeque<(Duration, f64)>) -> f64 {
    measured.iter().map(|(_, value)| value).sum::<f64>() / measured.len().max(1) as f64
}

/// Whether a gate of this name is a limit of the host.
pub fn is_of_the_host(gate: &str) -> bool {
    gate.starts_with(PREFIX)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
