//! How much a fault of packets does, in the units in which an operator bounds it.

use std::time::Duration;

use super::blast::Blast;
use super::cut::lost;
use super::effect::Effect;
use super::impairment::{Delay, Distribution, Impairment};
use super::link::{Link, OneWay};
use super::target::Direction;

/// How far the tables of netem's other distributions go, in standard deviations (Linux `NETEM_DIST_SCALE`, of 16 bits with a sign).
const FARTHEST: u32 = 4;

/// How much of each a fault does, at the worst of its time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Magnitude {
    /// The share of whom it is aimed at that is affected, in percent.
    pub share_percent: f64,
    /// The share of the packets that is lost in the long run, in percent.
    pub loss_percent: f64,
    /// The most that a packet is late, beside what it waits for its turn.
    pub latency: Duration,
    /// Thousands of bits per second that get through; `None` is all.
    pub rate_kbit: Option<u64>,
}

impl Effect {
    /// How much it does.
    pub fn magnitude(&self) -> Magnitude {
        let Blast { share, .. } = self.blast();
        let of = Magnitude { share_percent: share * 100.0, ..Magnitude::default() };
        match self {
            Self::Drop { packet_probability, .. }
            | Self::Sever { packet_probability, .. }
            | Self::Refuse { packet_probability, .. }
            | Self::Names { packet_probability, .. } => {
                Magnitude { loss_percent: packet_probability.get() * 100.0, ..of }
            }
            Self::LinkDown { .. } => Magnitude { loss_percent: 100.0, rate_kbit: Some(0), ..of },
            Self::Impair { traffic, impairment, packet_probability, .. } => match impairment {
                Impairment::Loss(loss) => {
                    Magnitude { loss_percent: packet_probability.get() * lost(loss) * 100.0, ..of }
                }
                Impairment::Delay(delay) => Magnitude { latency: delay.latest(), ..of },
                Impairment::Reorder(reorder) => Magnitude { latency: reorder.delay, ..of },
                Impairment::Rate { kbit } => Magnitude { rate_kbit: Some(*kbit), ..of },
                Impairment::Link(link) => link.worst(&traffic.directions, of),
                // What arrives changed is thrown away.
                Impairment::Corrupt(chance) => {
                    let share = packet_probability.get() * chance.share.get();
                    Magnitude { loss_percent: share * 100.0, ..of }
                }
                Impairment::Duplicate(_) => of,
            },
            _ => of,
        }
    }
}

impl Delay {
    /// The latest that it lets a packet be.
    fn latest(&self) -> Duration {
        let spread = if self.distribution == Distribution::Uniform { 1 } else { FARTHEST };
        self.delay + self.jitter * spread
    }
}

impl Link {
    /// The worst of its ways that packets of these directions take, at any time.
    fn worst(&self, directions: &[Direction], of: Magnitude) -> Magnitude {
        let ways = directions.iter().flat_map(|direction| match self.trace(*direction) {
            None => vec![self.way(*direction)],
            Some(trace) => trace.steps.iter().map(|step| step.way).collect(),
        });
        ways.fold(of, |worst, OneWay { delay, jitter, loss, kbit }| Magnitude {
            loss_percent: worst.loss_percent.max(loss.get() * 100.0),
            latency: worst.latency.max(delay + jitter),
            rate_kbit: worst.rate_kbit.into_iter().chain(kbit).min(),
            ..worst
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::FaultRequest;

    fn magnitude(kind: &str, params: Value) -> Magnitude {
        let target = json!({"interface": "eth0", "direction": "both"});
        let request = json!({"fault_type": kind, "probability": 1, "target": target, "params": params});
        serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap().effect.magnitude()
    }

    #[test]
    fn how_much_a_fault_does_is_told_of_every_type_in_the_same_units() {
        let loss = |kind, params| magnitude(kind, params).loss_percent.round();
        assert!((loss("packet_loss", json!({"loss_percent": 20})) - 20.0).abs() < 0.1);
        assert!((loss("packet_loss", json!({"gilbert_elliott": {"p": 1, "r": 3}})) - 25.0).abs() < 0.1);
        assert!((loss("timeout", json!({"packet_probability": 0.3})) - 30.0).abs() < 0.1);
        assert!((loss("network_partition", json!({})) - 100.0).abs() < 0.1);
        assert!(
            (loss("link_profile", json!({"up_loss_percent": 7, "down_loss_percent": 9})) - 9.0).abs() < 0.1
        );
        assert!((loss("error", json!({})) - 100.0).abs() < 0.1);
        assert!((loss("packet_corrupt", json!({"corrupt_percent": 30})) - 30.0).abs() < 0.1);
        let down = json!({"fault_type": "link_down", "probability": 1, "target": {"interface": "eth0"}});
        let down = serde_json::from_value::<FaultRequest>(down).unwrap().parse().unwrap().effect.magnitude();
        assert_eq!((down.loss_percent.round(), down.rate_kbit), (100.0, Some(0)));
        let late = |kind, params| magnitude(kind, params).latency.as_millis();
        assert_eq!(late("latency", json!({"delay_ms": 100, "jitter_ms": 20})), 120);
        assert_eq!(late("latency", json!({"delay_ms": 100, "jitter_ms": 20, "distribution": "normal"})), 180);
        assert_eq!(late("packet_reorder", json!({"reorder_percent": 5, "delay_ms": 70})), 70);
        assert_eq!(late("link_profile", json!({"down_trace": "time_s,delay_ms\n0,10\n5,900\n7,10"})), 900);
        let rate = |kind, params| magnitude(kind, params).rate_kbit;
        assert_eq!(rate("bandwidth", json!({"rate_kbit": 64})), Some(64));
        assert_eq!(rate("link_profile", json!({"preset": "dsl"})), Some(384));
        assert_eq!(rate("link_profile", json!({"up_trace": "time_s,rate_kbit\n0,100\n5,0"})), Some(0));
        assert_eq!(rate("latency", json!({})), None);
        assert!((magnitude("latency", json!({"packet_probability": 0.25})).share_percent - 25.0).abs() < 0.1);
    }
}
