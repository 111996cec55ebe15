//! Part E: from the breach of a gate to the first packet that gets through again. The breach is a socket that is closed, at any
//! moment between two samples; who notices is the daemon alone.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::figures::{Report, median, percentile};
use super::probe::socket;
use super::processors::Processors;
use super::{Options, await_stock};
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Result};

const PORT: u16 = 4998;
/// How often the gate is sampled; the shortest there is.
const INTERVAL: Duration = Duration::from_millis(100);
/// Beyond the interval, in milliseconds.
const GOAL_P99: f64 = 100.0;
/// How often a packet is sent: seldom enough that the machine is the daemon's.
const EVERY: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "gated";

pub(super) fn measure(options: &Options, _: Processors, report: &mut Report) -> Result<()> {
    println!("== gates: from the breach to the first packet through (ms)");
    let pair = Pair::new()?;
    let daemon = Daemon::start_with(|command| pair.near.place(command))?;
    let rounds = options.pick(100, 20);
    let mut times = Vec::new();
    for round in 0..rounds {
        // Spread over the interval: a breach does not wait for a sample, nor does it come right after one.
        let phase = INTERVAL * round / rounds;
        times.push(trip(&daemon, &pair, phase)?.as_secs_f64() * 1e3);
    }
    let (middle, p99) = (median(&times), percentile(&times, 0.99));
    println!("  {rounds} trips, sampled every {INTERVAL:?}: median {middle:.1}, p99 {p99:.1}");
    let interval = INTERVAL.as_secs_f64() * 1e3;
    let figure = json!({"median_ms": middle, "p99_ms": p99, "interval_ms": interval, "trips": rounds});
    report.keep("gates", "from the breach to the first packet through", figure);
    report.at_most("from the breach of a gate to its faults reverted, p99", p99, interval + GOAL_P99, " ms");
    Ok(())
}

fn document(guard: u16) -> Value {
    let chaosctl = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let probe = chaosctl(json!(["probe", "sockets", "udp", "--port", guard, "--min", 1]));
    json!({
        "title": NAME,
        "description": "A gate is breached.",
        "steady-state-hypothesis": {"title": "the guard is there", "probes": [
            {"type": "probe", "name": "guard", "tolerance": 0, "provider": probe}]},
        "method": [{"type": "action", "name": "cut", "provider": chaosctl(json!({
            "inject": "network-partition", "--interface": INTERFACE, "--protocol": "udp", "--remote-port": PORT,
            "--for": "1m"}))}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon", "rollback_on": [
            {"name": "guard", "provider": probe, "tolerance": 0, "interval": INTERVAL.as_secs_f64()}]}],
    })
}

/// One run that its gate ends: from the breach to the first packet through.
fn trip(daemon: &Daemon, pair: &Pair, phase: Duration) -> Result<Duration> {
    let guard = pair.near.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let guard = guard.map_err(Error::io("bind", "a guard"))?;
    let port = guard.local_addr().map_err(Error::io("ask for the address of", "a guard"))?.port();
    let mcp = daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", document(port))?.ok()?;
    await_stock(daemon)?;
    let (near, far) = (socket(&pair.near, 0)?, socket(&pair.far, PORT)?);
    let flow = Flow::default();
    thread::scope(|scope| {
        scope.spawn(|| flow.run(&near, &far));
        let run = scope.spawn(|| {
            daemon.mcp()?.call_tool("chaos_run_experiment", json!({"experiment_name": NAME}))?.ok()
        });
        let active = wait_until(PATIENCE, || effective(&mcp));
        thread::sleep(phase);
        let breach = Instant::now();
        drop(guard);
        let result = run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let answered = breach.elapsed();
        let through = wait_until(PATIENCE, || flow.first_after(breach).is_some());
        flow.stop.store(true, Ordering::Relaxed);
        let result = result?;
        if !active || !through || result["verdict"] != "tripped" {
            return Err(Error::Different(format!("cut: {active}, through again: {through}, {result}")));
        }
        let through = flow.first_after(breach).unwrap_or(PATIENCE);
        if through > 2 * INTERVAL {
            let own = &result["gate_reaction_seconds"];
            println!(
                "  one took {through:.1?}; the run's answer came after {answered:.1?}, by its own clock {own} s"
            );
        }
        Ok(through)
    })
}

/// Packets from near to far, and when those were sent that got through.
#[derive(Debug, Default)]
struct Flow {
    stop: AtomicBool,
    passed: Mutex<Vec<Instant>>,
}

impl Flow {
    fn run(&self, near: &UdpSocket, far: &UdpSocket) {
        let (to, begun) = (SocketAddr::from((Pair::FAR_V4, PORT)), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            // A packet that is refused is one that does not get through.
            let _refused = near.send_to(&micros_since(begun).to_be_bytes(), to);
            thread::sleep(EVERY);
            let mut packet = [0; 8];
            while let Ok(8) = far.recv(&mut packet) {
                let sent = begun + Duration::from_micros(u64::from_be_bytes(packet));
                self.passed.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
            }
        }
    }

    /// From `breach` to when the first packet after it was sent that got through.
    fn first_after(&self, breach: Instant) -> Option<Duration> {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed.iter().find(|sent| **sent >= breach).map(|sent| *sent - breach)
    }
}

fn micros_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Whether a fault acts on packets.
fn effective(mcp: &Mcp) -> bool {
    let status = mcp.call_tool("chaos_status", json!({})).and_then(crate::mcp::Answer::ok);
    let effective = |fault: &Value| fault["state"] == "effective";
    status.is_ok_and(|status| status["active_faults"].as_array().is_some_and(|all| all.iter().any(effective)))
}
