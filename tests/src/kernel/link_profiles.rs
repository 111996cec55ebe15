//! A link as a whole: each way has the delay, the loss and the rate that it was given. A sender and a receiver of the test count and
//! time packets.

use serde_json::{Value, json};

use super::effects::inject_netem;
use super::impairments::{assert_clear, back, out, throughput};
use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::fault::Fault;
use crate::trace::{Load, quantile, tolerance};

tests![
    a_link_has_delay_loss_and_rate_of_its_own_each_way,
    a_preset_is_the_link_of_its_name,
    a_link_with_a_rate_keeps_its_packets_in_order_however_its_delay_varies,
];

/// How often a figure is taken that what else the machine does can spoil.
const TRIES: usize = 3;
/// How much later than it is told an emulated machine may be with the quickest packets, in milliseconds.
const SLACK_MS: f64 = 20.0;

/// Looks at the path before the fault, and after it.
fn linked(params: &Value, during: impl Fn(&Scene) -> Result<(), Box<dyn std::error::Error>>) -> TestResult {
    let scene = Scene::new()?;
    assert_clear(&scene)?;
    let fault =
        Fault::new("link_profile").on(&scene.pair.near, json!({"cidr": "10.77.0.2"})).with(params.clone());
    if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
        return Ok(skip);
    }
    during(&scene)?;
    assert_eq!(fault.status(&scene.mcp)?["state"], "effective", "{params}");
    fault.remove(&scene.mcp)?;
    assert_clear(&scene)?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn assert_late(times: &[f64], by: f64, what: &str) {
    let (least, median) = (quantile(times, 0.0), quantile(times, 0.1));
    assert!(least >= by - 1.0 && median < by + SLACK_MS, "{what}: {least:.1} and {median:.1} ms, not {by}");
}

fn a_link_has_delay_loss_and_rate_of_its_own_each_way(_: &Context) -> TestResult {
    const PACKETS: u64 = 1000;
    const KBIT: f64 = 2000.0;
    let params = json!({"up_delay_ms": 120, "up_loss_percent": 20, "down_delay_ms": 60, "down_rate_kbit": KBIT as u32});
    linked(&params, |scene| {
        let trace = out(scene, Load::of(PACKETS, 1000))?;
        assert_late(&trace.times(), 120.0, "out");
        let lost = trace.lost();
        assert!((lost - 0.2).abs() < tolerance(0.2, PACKETS), "{lost:.3} were lost on the way out");
        let trace = back(scene, Load::of(100, 200))?;
        assert_late(&trace.times(), 60.0, "in");
        assert_eq!(trace.received(), 100, "lost on the way in");
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|kbit: &f64| (kbit / KBIT - 1.0).abs() < 0.05) {
            assert!(seen.len() < TRIES, "{seen:.0?} kbit/s of {KBIT} got through");
            seen.push(throughput(scene, back)?);
        }
        Ok(())
    })
}

fn a_preset_is_the_link_of_its_name(_: &Context) -> TestResult {
    linked(&json!({"preset": "satellite-geo"}), |scene| {
        for (way, trace) in [("out", out(scene, Load::of(50, 50))?), ("in", back(scene, Load::of(50, 50))?)] {
            assert_late(&trace.times(), 314.5, way);
            assert_eq!(trace.received(), 50, "lost on the way {way}");
        }
        Ok(())
    })
}

fn a_link_with_a_rate_keeps_its_packets_in_order_however_its_delay_varies(_: &Context) -> TestResult {
    linked(&json!({"up_delay_ms": 50, "up_jitter_ms": 50, "up_rate_kbit": 20_000}), |scene| {
        let trace = out(scene, Load::of(300, 500))?;
        assert_eq!((trace.received(), trace.overtakers()), (300, 0));
        Ok(())
    })
}
