//! What a queue of ours does to packets, counted and timed by a sender and a receiver of our own: before, during, after.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::effects::inject_netem;
use super::lifetime::recover;
use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::fault::{Fault, LONG};
use crate::late::HANG;
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt, udp_rtt_least};
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::trace::{Load, Trace, autocorrelation, mean, quantile, tolerance};
use crate::{Error, NetNs, Pair, Residue, Result};

tests![
    a_delay_is_spread_as_its_distribution_says,
    a_correlated_delay_resembles_the_one_before,
    a_loss_of_10_percent_loses_10_percent_and_no_sender_is_told,
    a_loss_that_has_lost_nothing_yet_is_not_called_effective,
    a_correlated_loss_comes_in_rows,
    losses_by_a_model_with_states_come_in_bursts,
    a_duplicate_arrives_once_more_and_no_more_both_ways,
    a_corrupted_packet_fails_its_checksum_or_is_lost,
    reordered_packets_overtake_and_none_is_lost,
    what_arrives_is_lost_corrupted_and_reordered_on_both_families_and_what_leaves_is_not,
    a_bandwidth_is_what_gets_through_both_ways,
    loss_and_delay_add_up_in_either_order_and_ending_one_leaves_the_other,
    what_is_sent_on_the_loopback_is_late_and_none_of_it_is_lost,
    every_impairment_ends_at_its_time_and_with_the_daemon,
    a_delay_whose_device_moves_elsewhere_ends_and_so_does_one_that_loses_its_way_round,
];

/// How often a figure is taken that what else the machine does can spoil.
const TRIES: usize = 3;
/// Everything that netem does beside delaying.
const KINDS: [&str; 5] = ["packet_loss", "packet_duplicate", "packet_corrupt", "packet_reorder", "bandwidth"];

type Outcomes = std::result::Result<(), Box<dyn std::error::Error>>;

/// A little of a kind.
fn params(kind: &str) -> Value {
    match kind {
        "packet_loss" => json!({"loss_percent": 30}),
        "packet_duplicate" => json!({"duplicate_percent": 30}),
        "packet_corrupt" => json!({"corrupt_percent": 30}),
        "packet_reorder" => json!({"reorder_percent": 30, "delay_ms": 50}),
        _ => json!({"rate_kbit": 2000}),
    }
}

/// From the near namespace, where the faults are, to the far one.
pub(super) fn out(scene: &Scene, load: Load) -> Result<Trace> {
    load.send(&scene.pair.near, &scene.pair.far, (Pair::FAR_V4, 9).into())
}

/// The other way.
pub(super) fn back(scene: &Scene, load: Load) -> Result<Trace> {
    load.send(&scene.pair.far, &scene.pair.near, (Pair::NEAR_V4, 9).into())
}

fn fault(scene: &Scene, kind: &'static str, params: Value) -> Fault {
    Fault::new(kind).on(&scene.pair.near, json!({"cidr": "10.77.0.2"})).with(params)
}

/// The path is as it should be: everything arrives, once, whole, in order, and soon.
pub(super) fn assert_clear(scene: &Scene) -> Result<()> {
    let trace = out(scene, Load::of(100, 1000))?;
    assert_eq!((trace.sent, trace.refused, trace.received()), (100, 0, 100), "{trace:?}");
    assert_eq!((trace.copies(), trace.overtakers()), (0, 0), "{trace:?}");
    assert!(trace.arrivals.iter().all(|arrival| arrival.whole), "{trace:?}");
    // What the path itself takes, whatever else the machine is doing.
    let least = quantile(&trace.times(), 0.0);
    assert!(least < 20.0, "{least:.1} ms");
    Ok(())
}

/// Looks at the path before the faults, has each `during` look at it meanwhile, and looks again when all are removed.
fn impaired(faults: &[(&'static str, Value)], during: impl Fn(&Scene, usize) -> Outcomes) -> TestResult {
    let scene = Scene::new()?;
    assert_clear(&scene)?;
    for (index, (kind, params)) in faults.iter().enumerate() {
        let fault = fault(&scene, kind, params.clone());
        if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
            return Ok(skip);
        }
        during(&scene, index)?;
        assert_eq!(fault.status(&scene.mcp)?["state"], "effective", "{params}");
        fault.remove(&scene.mcp)?;
        assert_clear(&scene)?;
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// There packets bring the route by which they arrive along, which a detour costs them. Nothing answers before it is looked
/// whether it is late, and established connections and new ones both have to get through.
fn what_is_sent_on_the_loopback_is_late_and_none_of_it_is_lost(_: &Context) -> TestResult {
    const PORT: u16 = 7;
    let scene = Scene::new()?;
    let near = &scene.pair.near;
    near.ip(&["link", "set", "lo", "up"])?;
    let addresses = [IpAddr::from([127, 0, 0, 1]), IpAddr::from(Ipv6Addr::LOCALHOST), Pair::NEAR_V4];
    let echoes = addresses.map(|address| Echo::start(near, address, PORT));
    let before = Residue::take(&[near])?;
    for echo in echoes {
        let echo = echo?;
        let to = echo.address();
        let mut connected =
            near.run(|| TcpStream::connect(to)).map_err(Error::io("connect to", to.to_string()))?;
        let baseline = udp_rtt_least(near, to, 15, HANG)?;
        let narrow = json!({"interface": "lo", "remote_port": PORT});
        let fault = Fault::new("latency").on(near, narrow).with(json!({"delay_ms": 200}));
        if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
            return Ok(skip);
        }
        // To an address of another interface no route leads back to the loopback from a detour: nobody is sent on one.
        let late = |time: Duration| {
            (time.saturating_sub(baseline) >= Duration::from_millis(190)) == (to.ip() != Pair::NEAR_V4)
        };
        for _ in 0..5 {
            let time = udp_rtt(near, to, HANG)?;
            assert!(time.is_some_and(late), "UDP to {to} took {time:?}, {baseline:?} before");
        }
        let started = Instant::now();
        let mut back = [0];
        connected
            .set_read_timeout(Some(HANG))
            .and_then(|()| connected.write_all(b"x"))
            .and_then(|()| connected.read_exact(&mut back))
            .map_err(Error::io("use", to.to_string()))?;
        assert!(late(started.elapsed()), "TCP to {to} took {:?}", started.elapsed());
        match tcp_rtt(near, to, HANG)? {
            Tcp::Answered { connect, echo } => {
                assert!(late(connect) && late(echo), "{to}: {connect:?}, {echo:?}")
            }
            other => panic!("connecting to {to}: {other:?}"),
        }
        fault.remove(&scene.mcp)?;
        assert!(udp_rtt_least(near, to, 5, HANG)? < Duration::from_millis(100), "{to} is late still");
    }
    before.assert_unchanged_within(&[near], HANG)?;
    Ok(Outcome::Pass)
}

/// A distribution, and where its quantiles at [`SHARES`] have to be, in jitters from the delay, give or take so much.
struct Shape {
    name: &'static str,
    quantiles: [f64; 3],
    off: [f64; 3],
}

/// Where the four differ most for what so many packets can tell.
const SHARES: [f64; 3] = [0.05, 0.5, 0.9];
/// Packets of each.
const SPREAD: u64 = 2000;
/// So large that the 10 ms by which a machine may be late are little of it.
const JITTER_MS: f64 = 400.0;
/// The quantiles are those of the formulas in the daemon's `distribution.rs`. They may be off by four standard errors of a
/// quantile of so many packets (`4 * sqrt(share * (1 - share) / SPREAD) / density`) and by 10 ms.
const SHAPES: [Shape; 4] = [
    Shape { name: "uniform", quantiles: [-0.90, 0.0, 0.80], off: [0.064, 0.115, 0.079] },
    Shape { name: "normal", quantiles: [-1.65, 0.0, 1.28], off: [0.216, 0.136, 0.178] },
    Shape { name: "pareto", quantiles: [-0.79, -0.36, 1.22], off: [0.037, 0.091, 0.368] },
    Shape { name: "paretonormal", quantiles: [-1.12, -0.24, 1.24], off: [0.104, 0.108, 0.298] },
];

impl Shape {
    fn admits(&self, seen: &[f64; 3]) -> bool {
        let mut all = seen.iter().zip(self.quantiles).zip(self.off);
        all.all(|((seen, wanted), off)| (seen - wanted).abs() < off)
    }
}

/// By quantiles, which the few packets that a busy machine makes late do not move. One that makes many late gets another two
/// tries; a wrong shape fails all of them.
fn a_delay_is_spread_as_its_distribution_says(_: &Context) -> TestResult {
    const DELAY_MS: f64 = 1200.0;
    let params =
        |shape: &Shape| json!({"delay_ms": DELAY_MS, "jitter_ms": JITTER_MS, "distribution": shape.name});
    impaired(&SHAPES.each_ref().map(|shape| ("latency", params(shape))), |scene, index| {
        let shape = &SHAPES[index];
        let mut seen = Vec::new();
        for _ in 0..TRIES {
            let load = Load { linger: Duration::from_millis(3000), ..Load::of(SPREAD, 800) };
            let times = out(scene, load)?.times();
            assert_eq!(times.len() as u64, SPREAD, "{}", shape.name);
            let quantiles = SHARES.map(|share| (quantile(&times, share) - DELAY_MS) / JITTER_MS);
            if shape.admits(&quantiles) {
                return Ok(());
            }
            seen.push(quantiles);
        }
        Err(format!("{}: quantiles at {seen:.2?} jitters, not at {:?}", shape.name, shape.quantiles).into())
    })
}

/// The kernel takes the roll modulo the width of the variation, so that it shows only where that is some seconds.
fn a_correlated_delay_resembles_the_one_before(_: &Context) -> TestResult {
    let params = json!({"delay_ms": 2100, "jitter_ms": 2100, "correlation_percent": 90});
    impaired(&[("latency", params)], |scene, _| {
        let load = Load { linger: Duration::from_millis(3000), ..Load::of(400, 800) };
        let times = out(scene, load)?.times();
        let seen = autocorrelation(&times);
        assert!(times.len() == 400 && seen > 0.6, "{} arrived, autocorrelation {seen:.2}", times.len());
        Ok(())
    })
}

fn a_loss_of_10_percent_loses_10_percent_and_no_sender_is_told(_: &Context) -> TestResult {
    const PACKETS: u64 = 2000;
    impaired(&[("packet_loss", json!({"loss_percent": 10}))], |scene, _| {
        // The sender asks to be told (IP_RECVERR): what its own device drops it would hear of.
        let trace = out(scene, Load::of(PACKETS, 2000))?;
        assert_eq!((trace.sent, trace.refused), (PACKETS, 0), "a sender was told");
        let lost = trace.lost();
        assert!((lost - 0.1).abs() < tolerance(0.1, PACKETS), "{lost:.3} were lost");
        assert_eq!((trace.copies(), trace.overtakers()), (0, 0));
        let evidence = &fault(scene, "packet_loss", Value::Null).status(&scene.mcp)?["evidence"];
        assert_eq!(evidence["packets_matched"], PACKETS, "{evidence}");
        // A receiver that has no time may lose a few more.
        let counted = evidence["packets_affected"].as_u64().unwrap_or_default();
        let missing = PACKETS - trace.received();
        assert!(
            (missing.saturating_sub(20)..=missing).contains(&counted),
            "{missing} are missing: {evidence}"
        );
        Ok(())
    })
}

fn a_loss_that_has_lost_nothing_yet_is_not_called_effective(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    // Of a million one.
    let fault = fault(&scene, "packet_loss", json!({"loss_percent": 0.0001}));
    if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
        return Ok(skip);
    }
    let trace = out(&scene, Load::of(20, 1000))?;
    assert_eq!(trace.received(), 20);
    let status = fault.status(&scene.mcp)?;
    assert_eq!(status["evidence"]["packets_matched"], 20, "{status}");
    assert_eq!(
        (&status["evidence"]["packets_affected"], &status["state"]),
        (&json!(0), &json!("no_traffic"))
    );
    fault.remove(&scene.mcp)?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// Of half of the packets a correlation leaves the share as it is: the kernel's average of the roll and the one before is as often
/// below the middle as above it.
fn a_correlated_loss_comes_in_rows(_: &Context) -> TestResult {
    const PACKETS: u64 = 2000;
    let params = json!({"loss_percent": 50, "correlation_percent": 75});
    impaired(&[("packet_loss", params)], |scene, _| {
        let trace = out(scene, Load::of(PACKETS, 2000))?;
        let (lost, length) = (trace.lost(), trace.burst());
        // Rows of four say less than as many on their own.
        assert!((lost - 0.5).abs() < 2.4 * tolerance(0.5, PACKETS), "{lost:.3} were lost");
        assert!((3.0..6.0).contains(&length), "{length:.2} in a row, where chance alone makes 2");
        Ok(())
    })
}

fn losses_by_a_model_with_states_come_in_bursts(_: &Context) -> TestResult {
    const PACKETS: u64 = 2000;
    // A burst begins at 5 % of the packets and ends at 25 %: a sixth is lost, four in a row.
    let models =
        [json!({"gilbert_elliott": {"p": 5, "r": 25}}), json!({"four_state": {"p13": 5, "p31": 25}})];
    impaired(&models.map(|model| ("packet_loss", model)), |scene, index| {
        let trace = out(scene, Load::of(PACKETS, 2000))?;
        let (lost, length) = (trace.lost(), trace.burst());
        assert_eq!(trace.refused, 0, "a sender was told");
        // Losses that come in rows of four say less than as many on their own: 2.4 times the standard error.
        assert!(
            (lost - 1.0 / 6.0).abs() < 2.4 * tolerance(1.0 / 6.0, PACKETS),
            "{index}: {lost:.3} were lost"
        );
        assert!((length - 4.0).abs() < 1.6, "{index}: {length:.2} in a row, where chance alone makes 1.2");
        Ok(())
    })
}

fn a_duplicate_arrives_once_more_and_no_more_both_ways(_: &Context) -> TestResult {
    const PACKETS: u64 = 1000;
    let scene = Scene::new()?;
    assert_clear(&scene)?;
    let fault = Fault::new("packet_duplicate")
        .on(&scene.pair.near, json!({"direction": "both"}))
        .with(json!({"duplicate_percent": 20}));
    if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
        return Ok(skip);
    }
    for (way, send) in [("out", out as fn(&Scene, Load) -> Result<Trace>), ("in", back)] {
        let trace = send(&scene, Load::of(PACKETS, 1000))?;
        let copies = trace.copies() as f64 / trace.sent as f64;
        assert_eq!(trace.received(), PACKETS, "{way}: some were lost");
        assert!((copies - 0.2).abs() < tolerance(0.2, PACKETS), "{way}: {copies:.3} arrived twice");
        let mut times = HashMap::new();
        trace.arrivals.iter().for_each(|arrival| *times.entry(arrival.number).or_insert(0) += 1);
        assert!(times.values().all(|count| *count <= 2), "{way}: a copy was copied");
    }
    fault.remove(&scene.mcp)?;
    assert_clear(&scene)?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// A count of the kernel's about the UDP datagrams of a namespace, such as `InCsumErrors` (proc_net(5), `snmp`).
pub(super) fn udp_counter(namespace: &NetNs, name: &str) -> Result<u64> {
    // `/proc/net` is that of the first thread.
    let text = namespace
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .map_err(Error::io("read", "/proc/thread-self/net/snmp"))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(str::split_whitespace);
    let value = lines
        .next()
        .zip(lines.next())
        .and_then(|(names, values)| names.zip(values).find(|(of, _)| *of == name)?.1.parse().ok());
    value.ok_or_else(|| Error::Different(format!("no {name} in {text}")))
}

/// UDP packets with a wrong checksum that a namespace has received.
pub(super) fn checksum_errors(namespace: &NetNs) -> Result<u64> {
    udp_counter(namespace, "InCsumErrors")
}

fn a_corrupted_packet_fails_its_checksum_or_is_lost(_: &Context) -> TestResult {
    const PACKETS: u64 = 1000;
    const SHARE: f64 = 0.3;
    // Bytes of the frame, and those that the checksum of UDP looks at, but for the addresses: a bit of the link's header
    // or of IP's has other consequences.
    const FRAME: f64 = 14.0 + 20.0 + 8.0 + 100.0;
    const SUMMED: f64 = 8.0 + 100.0;
    impaired(&[("packet_corrupt", json!({"corrupt_percent": 30}))], |scene, _| {
        let before = checksum_errors(&scene.pair.far)?;
        let trace = out(scene, Load::of(PACKETS, 1000))?;
        let wrong = (checksum_errors(&scene.pair.far)? - before) as f64 / PACKETS as f64;
        let expected = SHARE * SUMMED / FRAME;
        assert!((wrong - expected).abs() < tolerance(expected, PACKETS), "{wrong:.3} had a wrong checksum");
        assert!(
            trace.lost() >= wrong && trace.lost() < SHARE + tolerance(SHARE, PACKETS),
            "{}",
            trace.lost()
        );
        assert!(trace.arrivals.iter().all(|arrival| arrival.whole), "a wrong bit got past the checksum");
        assert_eq!((trace.refused, trace.copies()), (0, 0));
        Ok(())
    })
}

fn reordered_packets_overtake_and_none_is_lost(_: &Context) -> TestResult {
    const PACKETS: u64 = 800;
    let any = json!({"reorder_percent": 25, "delay_ms": 100});
    let fifth = json!({"reorder_percent": 100, "delay_ms": 100, "gap": 5});
    impaired(&[("packet_reorder", any), ("packet_reorder", fifth)], |scene, index| {
        let trace = out(scene, Load::of(PACKETS, 800))?;
        assert_eq!((trace.received(), trace.copies(), trace.refused), (PACKETS, 0, 0));
        let overtook = trace.overtakers() as f64 / PACKETS as f64;
        let (wanted, off) = [(0.25, tolerance(0.25, PACKETS)), (0.2, 0.01)][index];
        assert!((overtook - wanted).abs() < off, "{overtook:.3} overtook, not {wanted}");
        let times = trace.times();
        assert!(quantile(&times, 0.05) < 50.0 && quantile(&times, 0.5) > 95.0, "{times:?}");
        Ok(())
    })
}

fn what_arrives_is_lost_corrupted_and_reordered_on_both_families_and_what_leaves_is_not(
    _: &Context,
) -> TestResult {
    const PACKETS: u64 = 600;
    const SHARE: f64 = 0.3;
    let scene = Scene::new()?;
    for (near, far, cidr) in
        [(Pair::NEAR_V4, Pair::FAR_V4, "10.77.0.2"), (Pair::NEAR_V6, Pair::FAR_V6, "fd77::2")]
    {
        let inwards = || Load::of(PACKETS, 800).send(&scene.pair.far, &scene.pair.near, (near, 9).into());
        let outwards = || Load::of(100, 800).send(&scene.pair.near, &scene.pair.far, (far, 9).into());
        let assert_clear = |when: &str| -> Result<()> {
            let trace = inwards()?;
            assert_eq!((trace.received(), trace.overtakers()), (PACKETS, 0), "{cidr} {when}");
            assert!(trace.arrivals.iter().all(|arrival| arrival.whole), "{cidr} {when}");
            Ok(())
        };
        assert_clear("before")?;
        for (kind, params) in [
            ("packet_loss", json!({"loss_percent": 100.0 * SHARE})),
            ("packet_corrupt", json!({"corrupt_percent": 100.0 * SHARE})),
            ("packet_reorder", json!({"reorder_percent": 100.0 * SHARE, "delay_ms": 100})),
        ] {
            let narrow = json!({"cidr": cidr, "direction": "ingress"});
            let fault = Fault::new(kind).on(&scene.pair.near, narrow).with(params);
            if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
                return Ok(skip);
            }
            let (met, spared) = (inwards()?, outwards()?);
            let whole = spared.arrivals.iter().all(|arrival| arrival.whole);
            assert!(
                whole && spared.received() == 100 && spared.overtakers() == 0,
                "{kind} {cidr}: {spared:?}"
            );
            let wrong = met.arrivals.iter().filter(|arrival| !arrival.whole).count() as f64 / PACKETS as f64;
            let overtook = met.overtakers() as f64 / PACKETS as f64;
            // A wrong bit of the link's header, or of a field that nobody minds, changes nothing that can be seen.
            let (seen, least) = match kind {
                "packet_loss" => (met.lost(), SHARE),
                "packet_corrupt" => (met.lost() + wrong, 0.7 * SHARE),
                _ => (overtook, SHARE),
            };
            let off = tolerance(SHARE, PACKETS);
            assert!((least - off..=SHARE + off).contains(&seen), "{kind} {cidr}: {seen:.3} of what arrives");
            fault.remove(&scene.mcp)?;
            assert_clear(&format!("after {kind}"))?;
        }
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// A sender that a busy machine lets wait for longer than the queue lasts sends too little: it gets another two tries.
fn a_bandwidth_is_what_gets_through_both_ways(_: &Context) -> TestResult {
    const KBIT: f64 = 2000.0;
    let scene = Scene::new()?;
    assert_clear(&scene)?;
    let fault = Fault::new("bandwidth")
        .on(&scene.pair.near, json!({"direction": "both"}))
        .with(json!({"rate_kbit": KBIT as u32}));
    if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
        return Ok(skip);
    }
    for (way, send) in [("out", out as fn(&Scene, Load) -> Result<Trace>), ("in", back)] {
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|kbit: &f64| (kbit / KBIT - 1.0).abs() < 0.05) {
            assert!(seen.len() < TRIES, "{way}: {seen:.0?} kbit/s of {KBIT} got through");
            seen.push(throughput(&scene, send)?);
        }
    }
    fault.remove(&scene.mcp)?;
    assert_clear(&scene)?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// Kilobits per second that arrive of full frames, of which twice as much as 2000 kbit/s is sent.
pub(super) fn throughput(scene: &Scene, send: fn(&Scene, Load) -> Result<Trace>) -> Result<f64> {
    /// Data, and the headers of UDP, IP and Ethernet.
    const FRAME: usize = 1472 + 8 + 20 + 14;
    let trace = send(scene, Load { bytes: 1472, ..Load::of(500, 330) })?;
    let (Some(first), Some(last)) = (trace.arrivals.first(), trace.arrivals.last()) else {
        return Err(Error::Different("nothing arrived".into()));
    };
    assert!(trace.lost() > 0.2 && trace.refused == 0, "{} lost, {} refused", trace.lost(), trace.refused);
    let kilobits = (trace.arrivals.len() - 1) as f64 * FRAME as f64 * 8.0 / 1000.0;
    Ok(kilobits / (last.at - first.at).as_secs_f64())
}

fn loss_and_delay_add_up_in_either_order_and_ending_one_leaves_the_other(_: &Context) -> TestResult {
    const PACKETS: u64 = 500;
    let scene = Scene::new()?;
    let loss = fault(&scene, "packet_loss", json!({"loss_percent": 30}));
    let delay = fault(&scene, "latency", json!({"delay_ms": 100}));
    let check = |lossy: bool, late: bool| -> Outcomes {
        let trace = out(&scene, Load::of(PACKETS, 1000))?;
        let (lost, took) = (trace.lost(), mean(&trace.times()));
        let wanted = if lossy { 0.3 } else { 0.0 };
        assert!((lost - wanted).abs() <= tolerance(wanted, PACKETS), "{lost:.3} lost, not {wanted}");
        let least = quantile(&trace.times(), 0.05);
        assert_eq!(least > 95.0, late, "{least:.1} ms, {took:.1} on average");
        assert!(least < 150.0, "{least:.1} ms");
        Ok(())
    };
    if let Some(skip) = inject_netem(&loss, &scene.mcp)? {
        return Ok(skip);
    }
    delay.inject(&scene.mcp)?;
    check(true, true)?;
    loss.remove(&scene.mcp)?;
    check(false, true)?;
    loss.inject(&scene.mcp)?;
    check(true, true)?;
    delay.remove(&scene.mcp)?;
    check(true, false)?;
    loss.remove(&scene.mcp)?;
    assert_clear(&scene)?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// All at once, so that their loops are also in each other's way.
fn every_impairment_ends_at_its_time_and_with_the_daemon(_: &Context) -> TestResult {
    let mut scene = Scene::new()?;
    let inject = |lasting| -> Result<Option<Outcome>> {
        for kind in KINDS {
            let fault = fault(&scene, kind, params(kind)).lasting(lasting);
            if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
                return Ok(Some(skip));
            }
        }
        Ok(None)
    };
    if let Some(skip) = inject(Duration::from_secs(1))? {
        return Ok(skip);
    }
    for kind in KINDS {
        let fault = fault(&scene, kind, params(kind));
        let over = || fault.status(&scene.mcp).is_ok_and(|status| status["active"] == false);
        assert!(wait_until(HANG, over), "{kind} goes on after its time");
        fault.remove(&scene.mcp)?;
    }
    assert_clear(&scene)?;
    scene.assert_untouched()?;

    inject(LONG)?;
    assert!(out(&scene, Load::of(200, 1000))?.lost() > 0.1, "no effect");
    let processes = scene.daemon.processes();
    processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
    assert!(wait_until(HANG, || !processes.iter().any(|process| process.runs())), "somebody still runs");
    // The kernel takes a namespace apart some time after its last process.
    let clears = || {
        let trace = out(&scene, Load::of(100, 1000));
        trace.is_ok_and(|trace| (trace.received(), trace.copies(), trace.overtakers()) == (100, 0, 0))
    };
    assert!(wait_until(HANG, clears), "it goes on after the death of the daemon");
    assert_clear(&scene)?;
    let said = recover(&scene.daemon)?;
    assert!(!said.contains("STUCK"), "{said}");
    scene.assert_links_unchanged()?;
    scene.daemon.kill_everything();
    Ok(Outcome::Pass)
}

/// In the other namespace what is sent round would go to a number that means nothing there.
fn a_delay_whose_device_moves_elsewhere_ends_and_so_does_one_that_loses_its_way_round(
    _: &Context,
) -> TestResult {
    let scene = Scene::new()?;
    let near = &scene.pair.near;
    let late = fault(&scene, "latency", json!({"delay_ms": 50}));
    let ends = || {
        let over = || late.status(&scene.mcp).is_ok_and(|status| status["active"] == false);
        assert!(wait_until(HANG, over), "it goes on");
        late.remove(&scene.mcp)
    };
    if let Some(skip) = inject_netem(&late, &scene.mcp)? {
        return Ok(skip);
    }
    let links = near.ip(&["-o", "link"])?;
    let way = links.split([' ', '@']).find(|word| word.starts_with("chaos"));
    let way = way.ok_or_else(|| Error::Different(format!("no way round: {links}")))?;
    near.ip(&["link", "delete", way])?;
    ends()?;
    assert_clear(&scene)?;

    inject_netem(&late, &scene.mcp)?;
    let elsewhere = NetNs::new()?;
    near.ip(&["link", "set", INTERFACE, "netns", elsewhere.name()])?;
    elsewhere.ip_batch(&format!("address add 10.77.0.1/24 dev {INTERFACE}\nlink set {INTERFACE} up\n"))?;
    ends()?;
    let send = |load: Load| load.send(&elsewhere, &scene.pair.far, (Pair::FAR_V4, 9).into());
    // The kernel takes a while to see that the cable is plugged in again.
    assert!(wait_until(HANG, || send(Load::of(10, 1000)).is_ok_and(|trace| trace.received() == 10)));
    let trace = send(Load::of(100, 1000))?;
    assert_eq!((trace.sent, trace.received()), (100, 100), "{trace:?}");
    Ok(Outcome::Pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_distribution_would_pass_for_another_even_where_chance_helps_it() {
        for (this, other) in SHAPES.iter().flat_map(|this| SHAPES.iter().map(move |other| (this, other))) {
            let gap = |at: usize| (this.quantiles[at] - other.quantiles[at]).abs();
            let apart = (0..SHARES.len()).any(|at| gap(at) > this.off[at] + other.off[at]);
            assert_eq!(apart, this.name != other.name, "{} and {}", this.name, other.name);
            assert_eq!(this.admits(&other.quantiles), this.name == other.name);
        }
    }
}
