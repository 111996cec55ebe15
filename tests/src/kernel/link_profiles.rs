//! A link as a whole: each way has the delay, the loss and the rate that it was given. A sender and a receiver of the test count and
//! time packets.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::effects::inject_netem;
use super::impairments::{assert_clear, back, out, throughput};
use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests};
use crate::fault::Fault;
use crate::late::HANG;
use crate::process::wait_until;
use crate::runner::FIGURE;
use crate::trace::{Load, quantile, tolerance};
use crate::{Error, Pair};

tests![
    a_link_has_delay_loss_and_rate_of_its_own_each_way,
    a_preset_is_the_link_of_its_name,
    a_link_with_a_rate_keeps_its_packets_in_order_however_its_delay_varies,
    a_trace_has_its_rate_in_each_second_over_and_over,
    a_trace_of_deliveries_has_as_many_in_each_second_and_none_where_there_are_none,
    a_trace_of_delays_and_losses_is_replayed,
    a_rate_of_0_lets_one_small_packet_through_as_one_full_packet,
    a_connection_goes_on_soon_after_a_rate_of_0_though_its_segments_are_large,
    a_trace_ends_with_its_holder_and_leaves_nothing,
    a_trace_in_a_file_is_read_by_chaosctl_and_by_nobody_else,
];

/// How often a figure is taken that what else the machine does can spoil.
const TRIES: usize = 3;
/// Full frames that are sent per second where a trace lets fewer through: so few that an emulated machine bears it.
const RATE: u32 = 220;
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

/// Frames of the usual length that arrive in each of these seconds, which begin so long after the fault did. The sender sends more than
/// gets through.
#[derive(Debug)]
struct Seconds {
    arrivals: Vec<Duration>,
    /// From when the fault may have begun until when it has.
    begun: (f64, f64),
}

impl Seconds {
    /// How many frames arrive in a time from `begin` on, if the fault began at `phase`.
    fn count(&self, phase: f64, (begin, end): (f64, f64)) -> usize {
        let within = (phase + begin)..(phase + end);
        self.arrivals.iter().filter(|at| within.contains(&at.as_secs_f64())).count()
    }

    /// By how much the worst of these seconds is off, and how many frames there were in each. The fault began when that suits best. That
    /// is within the call, which takes its time, or a little later, where packets are late.
    fn off(&self, wanted: &[f64]) -> (f64, f64, Vec<usize>) {
        let (from, until) = self.begun;
        let mut best = (f64::INFINITY, from, Vec::new());
        for step in 0..=((until - from + 0.05) * 1000.0) as u32 {
            let phase = from + f64::from(step) / 1000.0;
            let seconds = (0..wanted.len()).map(|second| second as f64);
            let seen: Vec<_> = seconds.map(|second| self.count(phase, (second, second + 1.0))).collect();
            // What was not sent yet cannot have come.
            let all = seen.iter().zip(wanted).enumerate().skip(usize::from(phase < 0.0));
            let worst =
                all.map(|(_, (seen, wanted))| (*seen as f64 / wanted - 1.0).abs()).fold(0.0, f64::max);
            if worst < best.0 {
                best = (worst, phase, seen);
            }
        }
        best
    }
}

/// Injects the fault, sends full frames for so many seconds, and says what arrives.
fn seconds(scene: &Scene, fault: &Fault, length: u64) -> Result<Seconds, Error> {
    let before = Instant::now();
    fault.inject(&scene.mcp)?;
    let after = Instant::now();
    let start = Instant::now();
    let trace = back(scene, Load { bytes: 1472, ..Load::of(length * u64::from(RATE), RATE) })?;
    let ago = |then: Instant| -(start - then).as_secs_f64();
    let mut arrivals: Vec<_> = trace.arrivals.iter().map(|arrival| arrival.at).collect();
    arrivals.sort();
    Ok(Seconds { arrivals, begun: (ago(before), ago(after)) })
}

/// Replays a trace of what arrives until each second but the first has as many frames as it should, give or take 5 percent.
fn replayed(params: &Value, frames: &[f64], more: impl Fn(&Seconds, f64)) -> TestResult {
    let scene = Scene::new()?;
    assert_clear(&scene)?;
    let fault =
        Fault::new("link_profile").on(&scene.pair.near, json!({"cidr": "10.77.0.2"})).with(params.clone());
    if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
        return Ok(skip);
    }
    fault.remove(&scene.mcp)?;
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let found = seconds(&scene, &fault, frames.len() as u64 + 1)?;
        fault.remove(&scene.mcp)?;
        let (off, phase, counts) = found.off(frames);
        println!("{FIGURE}trace: wanted {frames:.1?}, got {counts:?} frames, {:.1} % off", off * 100.0);
        if off < 0.05 {
            more(&found, phase);
            assert_clear(&scene)?;
            scene.assert_untouched()?;
            return Ok(Outcome::Pass);
        }
        seen.push((off, counts));
    }
    Err(format!("frames in each second: {seen:?}, not {frames:.1?}").into())
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

/// Twice, so that it has begun anew.
fn a_trace_has_its_rate_in_each_second_over_and_over(_: &Context) -> TestResult {
    let frames = [1000.0, 2000.0, 500.0, 1000.0, 2000.0, 500.0].map(|kbit| kbit * 1000.0 / 8.0 / 1514.0);
    let params = json!({"down_trace": "time_s,rate_kbit\n0,1000\n1,2000\n2,500\n"});
    replayed(&params, &frames, |_, _| {})
}

/// In the third second none for 600 ms, in which one full frame may come that is then missing.
fn a_trace_of_deliveries_has_as_many_in_each_second_and_none_where_there_are_none(_: &Context) -> TestResult {
    let slow = (1..=1000).step_by(20);
    let fast = (1001..=2000).filter(|ms| ms % 20 < 3);
    let after = (2601..=3000).step_by(10).chain([3000]);
    let lines: Vec<_> = slow.chain(fast).chain(after).map(|ms| ms.to_string()).collect();
    let params = json!({"down_trace": lines.join("\n")});
    replayed(&params, &[50.0, 150.0, 41.0, 50.0, 150.0, 41.0], |found, phase| {
        let pauses = [2.0, 5.0].map(|second| found.count(phase, (second + 0.03, second + 0.57)));
        println!("{FIGURE}trace: {pauses:?} frames in pauses of 600 ms");
        assert!(pauses.iter().all(|frames| *frames <= 1), "{pauses:?} where there are none");
    })
}

fn a_trace_of_delays_and_losses_is_replayed(_: &Context) -> TestResult {
    let trace = "time_s,delay_ms,loss_percent\n0,20,0\n1,150,40\n";
    linked(&json!({"up_trace": trace}), |scene| {
        let trace = out(scene, Load::of(800, 200))?;
        let times = trace.times();
        let late = times.iter().filter(|ms| **ms > 100.0).count() as f64 / times.len() as f64;
        // 60 of 160 that arrive, of 200.
        assert!((late - 0.375).abs() < 0.1 && quantile(&times, 0.0) > 19.0, "{late:.3} of them were late");
        let lost = trace.lost();
        assert!((lost - 0.2).abs() < tolerance(0.2, 800) + 0.02, "{lost:.3} were lost");
        Ok(())
    })
}

fn a_rate_of_0_lets_one_small_packet_through_as_one_full_packet(_: &Context) -> TestResult {
    linked(&json!({"up_trace": "time_s,rate_kbit\n0,0\n60,1000\n"}), |scene| {
        // Less in all than one full packet has, and one of 1.5 s gets through.
        let trace = out(scene, Load { bytes: 20, ..Load::of(20, 5) })?;
        assert!(trace.received() <= 4, "{} of 20 got through in 4 s", trace.received());
        Ok(())
    })
}

/// Segments of 64 KiB would be owed for through all the steps that follow.
fn a_connection_goes_on_soon_after_a_rate_of_0_though_its_segments_are_large(_: &Context) -> TestResult {
    const LONG: Duration = Duration::from_secs(6);
    let trace = "time_s,rate_kbit\n0,4000\n1,0\n1.5,4000\n2.5,0\n3,4000\n";
    linked(&json!({"down_trace": trace, "trace_period_seconds": 4}), |scene| {
        let bind = || TcpListener::bind((Pair::NEAR_V4, 0));
        let listener = scene.pair.near.run(bind).map_err(Error::io("bind", "a listener"))?;
        let to = listener.local_addr().map_err(Error::io("ask", "the listener"))?;
        let sender = scene.pair.far.run(|| TcpStream::connect(to));
        let mut sender = sender.map_err(Error::io("connect to", "the listener"))?;
        let (mut receiver, _) = listener.accept().map_err(Error::io("accept", "a connection"))?;
        let begun = Instant::now();
        let sending = thread::spawn(move || while sender.write_all(&[0; 1 << 16]).is_ok() {});
        let (mut longest, mut last, mut bytes) = (Duration::ZERO, begun, vec![0; 1 << 16]);
        receiver.set_read_timeout(Some(LONG)).map_err(Error::io("set", "a time-out"))?;
        while begun.elapsed() < LONG {
            let read = receiver.read(&mut bytes);
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if !read.is_ok_and(|read| read > 0) {
                break;
            }
        }
        drop(receiver);
        assert!(sending.join().is_ok());
        println!("{FIGURE}trace: nothing for {longest:.1?} at most, beside steps of 0.5 s at a rate of 0");
        assert!(longest < Duration::from_secs(3), "nothing came for {longest:?}");
        Ok(())
    })
}

fn a_trace_ends_with_its_holder_and_leaves_nothing(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    assert_clear(&scene)?;
    let both = "time_s,rate_kbit,delay_ms\n0,100,200\n0.2,0,300\n0.5,2000,250\n";
    let fault = Fault::new("link_profile")
        .on(&scene.pair.near, json!({"cidr": "10.77.0.2"}))
        .with(json!({"up_trace": both, "down_trace": both}));
    if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
        return Ok(skip);
    }
    let late = out(&scene, Load::of(50, 50))?.times();
    assert!(quantile(&late, 0.0) > 190.0, "it has no effect: {late:.0?}");
    // The one that waits for the next fault as well: another is started in its place.
    scene.daemon.holders().iter().for_each(|holder| holder.signal(Signal::SIGKILL));
    let over = || fault.status(&scene.mcp).is_ok_and(|status| status["active"] == false);
    assert!(wait_until(HANG, over), "{}", fault.status(&scene.mcp)?);
    fault.remove(&scene.mcp)?;
    assert_clear(&scene)?;
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn a_trace_in_a_file_is_read_by_chaosctl_and_by_nobody_else(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let trace = json!({"fault_type": "link_profile", "params": {"up_trace": "@/etc/passwd"}});
    let [code, message, _] = scene.refused(scene.registration(trace))?;
    assert!(message.contains("params.up_trace: line 1: \"@/etc/passwd\" is no column"), "{code}: {message}");
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}
