//! Whether a fault of packets cuts whom it meets off: little or nothing gets through, or too late for anybody who waits. Decided by how
//! much it does, whatever kind it is.

use std::time::Duration;

use super::effect::Effect;
use super::impairment::{FourState, GilbertElliott, Impairment, Loss};
use super::link::{Link, OneWay};
use super::target::Direction;
use super::trace::Trace;

/// From this share on what is lost, late, refused or answered wrongly cuts.
const SHARE: f64 = 0.5;
/// So late it is no answer any more: what asks for a name gives up by then (resolv.conf(5), `timeout`).
const LATE: Duration = Duration::from_secs(5);
/// Thousands of bits per second below which a host's own traffic piles up until it is too late.
const LEAST_KBIT: u64 = 128;
/// So many packets lost in a row, on an average, are an outage of their own.
const LONGEST_BURST: f64 = 1000.0;
/// For so long at a stretch nobody is to be cut off, although it passes.
const STRETCH: Duration = Duration::from_secs(1);

impl Effect {
    /// Whether it cuts off whom it meets on a device.
    pub fn cuts(&self) -> bool {
        let many = |share: f64| share >= SHARE;
        match self {
            Self::Drop { packet_probability, .. }
            | Self::Sever { packet_probability, .. }
            | Self::Refuse { packet_probability, .. }
            | Self::Names { packet_probability, .. } => many(packet_probability.get()),
            Self::Impair { traffic, impairment, packet_probability, .. } => {
                let met = packet_probability.get();
                match impairment {
                    Impairment::Loss(loss) => many(met * lost(loss)) || many(met) && is_bursty(loss),
                    Impairment::Corrupt(chance) => many(met * chance.share.get()),
                    Impairment::Delay(delay) => many(met) && delay.delay >= LATE,
                    Impairment::Reorder(reorder) => {
                        let early = reorder.chance.share.get() / f64::from(reorder.gap.max(1));
                        many(met * (1.0 - early)) && reorder.delay >= LATE
                    }
                    Impairment::Rate { kbit } => many(met) && *kbit < LEAST_KBIT,
                    Impairment::Link(link) => many(met) && link.cuts(&traffic.directions),
                    Impairment::Duplicate(_) => false,
                }
            }
            Self::LinkDown { .. } => true,
            Self::Cpu(_)
            | Self::Hoard { .. }
            | Self::Limit { .. }
            | Self::Pause { .. }
            | Self::ClockSkew { .. }
            | Self::ProcessKill { .. }
            | Self::ProcessPause { .. }
            | Self::ServiceStop { .. }
            | Self::ServiceRestart { .. }
            | Self::Connect { .. }
            | Self::Load(_)
            | Self::Files { .. }
            | Self::Sockets { .. }
            | Self::Spoil { .. }
            | Self::Down(_) => false,
        }
    }
}

impl Link {
    /// Whether a way that packets of these directions take cuts.
    fn cuts(&self, directions: &[Direction]) -> bool {
        directions.iter().any(|direction| match self.trace(*direction) {
            None => self.way(*direction).cuts(),
            Some(trace) => trace.cuts(),
        })
    }
}

impl OneWay {
    fn cuts(&self) -> bool {
        let Self { delay, loss, kbit, jitter: _ } = self;
        loss.get() >= SHARE || *delay >= LATE || kbit.is_some_and(|kbit| kbit < LEAST_KBIT)
    }
}

impl Trace {
    /// Whether it cuts for half of its time, or for a while at a stretch.
    fn cuts(&self) -> bool {
        let all: Duration = self.steps.iter().filter(|step| step.way.cuts()).map(|step| step.lasts).sum();
        let mut held = Duration::ZERO;
        // Twice, since the first comes after the last.
        let mut stretches = self.steps.iter().chain(&self.steps).map(|step| {
            held = if step.way.cuts() { held + step.lasts } else { Duration::ZERO };
            held
        });
        all >= self.period().mul_f64(SHARE) || stretches.any(|held| held >= STRETCH)
    }
}

/// The share of the packets that is lost in the long run, as a fraction.
pub(super) fn lost(loss: &Loss) -> f64 {
    match loss {
        Loss::Random(chance) => chance.share.get(),
        Loss::GilbertElliott(model) => model.lost(),
        Loss::FourState(model) => model.lost(),
    }
}

/// Whether it loses long runs of packets, however rarely.
fn is_bursty(loss: &Loss) -> bool {
    match loss {
        Loss::Random(_) => false,
        Loss::GilbertElliott(GilbertElliott { p, r, one_minus_h, .. }) => {
            *p > 0.0 && *one_minus_h >= 100.0 * SHARE && is_longer(*r)
        }
        // What gets through within a burst may be little.
        Loss::FourState(FourState { p13, p31, p32, p23, .. }) => *p13 > 0.0 && p23 >= p32 && is_longer(*p31),
    }
}

/// Whether a state that ends with so many percent at each packet lasts for too many, on an average.
fn is_longer(percent: f64) -> bool {
    percent * LONGEST_BURST < 100.0
}

impl GilbertElliott {
    fn lost(&self) -> f64 {
        let Self { p, r, one_minus_h, one_minus_k } = *self;
        // How often it is in the bad state, in the long run.
        let bad = if p > 0.0 { p / (p + r) } else { 0.0 };
        (bad * one_minus_h + (1.0 - bad) * one_minus_k) / 100.0
    }
}

impl FourState {
    /// By how often it is in each state in the long run, of which 1 is the measure. What enters a state leaves it as often.
    fn lost(&self) -> f64 {
        let Self { p13, p31, p32, p23, p14 } = *self;
        if p13 <= 0.0 {
            return p14 / (100.0 + p14);
        }
        // Within a burst, a share of the packets gets through.
        let through = match (p32, p23) {
            (0.0, _) => 0.0,
            (_, 0.0) => return 0.0,
            (p32, p23) => p32 / p23,
        };
        if p31 <= 0.0 {
            return 1.0 / (1.0 + through);
        }
        let (burst, alone) = (p13 / p31, p14 / 100.0);
        (burst + alone) / (1.0 + burst * (1.0 + through) + alone)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::FaultRequest;

    fn cuts(kind: &str, params: Value) -> bool {
        let target = match kind {
            "link_profile" => json!({"interface": "eth0", "direction": "both"}),
            _ => json!({"interface": "lo"}),
        };
        let request = json!({"fault_type": kind, "probability": 1, "target": target, "params": params});
        serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap().effect.cuts()
    }

    #[test]
    fn how_much_gets_through_and_how_late_decides_whatever_kind_it_is() {
        for (kind, params) in [
            ("network_partition", json!({})),
            ("timeout", json!({"packet_probability": 0.5})),
            ("error", json!({})),
            ("dns_error", json!({})),
            ("link_down", json!({})),
            ("packet_loss", json!({"loss_percent": 60})),
            ("packet_loss", json!({"gilbert_elliott": {"p": 99.9, "r": 0.1}})),
            ("packet_loss", json!({"gilbert_elliott": {"p": 0.001, "r": 0.001}})),
            ("packet_loss", json!({"gilbert_elliott": {"p": 0, "r": 50, "one_minus_k": 80}})),
            ("packet_loss", json!({"four_state": {"p13": 1, "p31": 0}})),
            ("packet_loss", json!({"four_state": {"p13": 50, "p31": 20}})),
            ("packet_corrupt", json!({"corrupt_percent": 100})),
            ("latency", json!({"delay_ms": 5000})),
            ("latency", json!({"delay_ms": 60_000, "packet_probability": 0.5})),
            ("packet_reorder", json!({"reorder_percent": 5, "delay_ms": 6000})),
            ("packet_reorder", json!({"reorder_percent": 100, "gap": 5, "delay_ms": 6000})),
            ("bandwidth", json!({"rate_kbit": 8})),
            ("bandwidth", json!({"rate_kbit": 127})),
            ("link_profile", json!({"up_loss_percent": 50})),
            ("link_profile", json!({"preset": "dsl", "down_loss_percent": 100})),
            ("link_profile", json!({"up_delay_ms": 20_000})),
            ("link_profile", json!({"down_rate_kbit": 8})),
            ("link_profile", json!({"up_trace": "time_s,loss_percent\n0,0\n5,90\n7,0"})),
            ("link_profile", json!({"up_trace": "time_s,rate_kbit\n0,4000\n2,0\n3.2,4000"})),
            ("link_profile", json!({"down_trace": "time_s,delay_ms\n0,10\n5,9000\n7,10"})),
        ] {
            assert!(cuts(kind, params.clone()), "{kind} {params}");
        }
    }

    #[test]
    fn what_degrades_cuts_nobody_off() {
        for (kind, params) in [
            ("timeout", json!({"packet_probability": 0.1})),
            ("packet_loss", json!({"loss_percent": 5})),
            ("packet_loss", json!({"gilbert_elliott": {"p": 1, "r": 10}})),
            ("packet_loss", json!({"four_state": {"p13": 1, "p31": 20, "p32": 5}})),
            ("packet_loss", json!({"four_state": {"p13": 0, "p31": 100, "p14": 5}})),
            ("packet_duplicate", json!({"duplicate_percent": 100})),
            ("latency", json!({"delay_ms": 2100, "jitter_ms": 2100})),
            ("latency", json!({"delay_ms": 60_000, "packet_probability": 0.1})),
            ("packet_reorder", json!({"reorder_percent": 60, "delay_ms": 6000})),
            ("bandwidth", json!({"rate_kbit": 1000})),
            ("link_profile", json!({"preset": "dsl"})),
            ("link_profile", json!({"preset": "satellite-geo"})),
            (
                "link_profile",
                json!({"up_trace": "time_s,rate_kbit\n0,4000\n2,0\n2.5,4000\n4,0\n4.5,4000\n9,4000"}),
            ),
        ] {
            assert!(!cuts(kind, params.clone()), "{kind} {params}");
        }
    }

    #[test]
    fn a_way_that_is_not_met_cuts_nobody_off() {
        let request = json!({"fault_type": "link_profile", "probability": 1,
            "target": {"interface": "eth0", "direction": "egress"}, "params": {"up_delay_ms": 5, "down_loss_percent": 100}});
        let fault = serde_json::from_value::<FaultRequest>(request).unwrap().parse().unwrap();
        assert!(!fault.effect.cuts());
    }

    /// As the kernel rolls them (`loss_4state`, `loss_gilb_ell` in net/sched/sch_netem.c), by many packets.
    #[test]
    fn the_long_run_of_a_model_with_states_is_what_many_packets_show() {
        let mut seed = 7_u64;
        let mut roll = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(seed >> 32).unwrap()) / f64::from(u32::MAX) * 100.0
        };
        const MANY: u32 = 200_000;
        for (p13, p31, p32, p23, p14) in
            [(1.0, 20.0, 5.0, 40.0, 2.0), (30.0, 10.0, 0.0, 100.0, 0.0), (0.0, 50.0, 0.0, 100.0, 30.0)]
        {
            let mut state = 1;
            let mut found = 0;
            for _ in 0..MANY {
                let rolled = roll();
                state = match state {
                    1 if rolled < p14 => 4,
                    1 if rolled < p14 + p13 => 3,
                    2 if rolled < p23 => 3,
                    2 => 2,
                    3 if rolled < p32 => 2,
                    3 if rolled < p32 + p31 => 1,
                    3 => 3,
                    _ => 1,
                };
                found += u32::from(state == 3 || state == 4);
            }
            let (found, told) =
                (f64::from(found) / f64::from(MANY), FourState { p13, p31, p32, p23, p14 }.lost());
            assert!((found - told).abs() < 0.02, "{p13} {p31} {p32} {p23} {p14}: {found}, and not {told}");
        }
        let model = GilbertElliott { p: 2.0, r: 8.0, one_minus_h: 70.0, one_minus_k: 1.0 };
        let mut bad = false;
        let mut found = 0;
        for _ in 0..MANY {
            bad = if bad { roll() >= model.r } else { roll() < model.p };
            found += u32::from(roll() < if bad { model.one_minus_h } else { model.one_minus_k });
        }
        assert!((f64::from(found) / f64::from(MANY) - model.lost()).abs() < 0.02);
    }
}
