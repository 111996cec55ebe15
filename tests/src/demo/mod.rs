//! The demonstration behind `cargo xtask demo`: two namespaces and a cable, a daemon of its own, one fault through
//! MCP, and what independent measurements say before, while and after. Every claim is checked; none is assumed.

mod chart;
mod verdict;

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fault::Fault;
use crate::measure::Echo;
use crate::pair::INTERFACE;
use crate::skip::kernel_release;
use crate::{Daemon, Mcp, NetNs, Pair, Residue, Result, UdpFlow};

use chart::{Phase, Rhythm};
use verdict::Claims;

const ECHO_PORT: u16 = 7;
const BYSTANDER_PORT: u16 = 9;
/// Packets per second of the bystander.
const BYSTANDER_RATE: u32 = 200;
const SETTLE: Duration = Duration::from_secs(2);
/// How far the median round trip may be from what was asked for.
const TOLERANCE: Duration = Duration::from_millis(5);

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// A peer is cut off, both ways. Works on any kernel that has eBPF.
    Partition,
    /// Packets to a peer are late by 100 ms. Needs netem.
    Delay,
}

impl Scene {
    /// By its name on the command line.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "partition" => Some(Self::Partition),
            "delay" => Some(Self::Delay),
            _ => None,
        }
    }

    fn fault(self, pair: &Pair) -> Fault {
        let peer = json!({"cidr": format!("{}/32", Pair::FAR_V4)});
        match self {
            Self::Partition => Fault::new("network_partition").on(&pair.near, peer).named("cut-off"),
            Self::Delay => Fault::new("latency")
                .on(&pair.near, peer)
                .with(json!({"delay_ms": Self::DELAY.as_millis() as u64}))
                .named("slow-peer"),
        }
    }

    const DELAY: Duration = Duration::from_millis(100);

    fn rhythm(self) -> Rhythm {
        match self {
            Self::Partition => {
                Rhythm { samples: 20, every: Duration::from_millis(100), limit: Duration::from_millis(90) }
            }
            Self::Delay => {
                Rhythm { samples: 15, every: Duration::from_millis(150), limit: Duration::from_millis(900) }
            }
        }
    }
}

/// Shows it. True when every claim held.
///
/// # Errors
/// When the stage cannot be set, or the daemon refuses.
pub fn run(scene: Scene) -> Result<bool> {
    let out = &mut std::io::stdout().lock();
    say(out, &format!("kernel {}; two network namespaces, a cable, a daemon of our own", kernel_release()));
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, ECHO_PORT)?;
    let mut daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = scene.fault(&pair);
    let before_picture = Residue::take(&[&pair.near, &pair.far])?;
    let bystander =
        UdpFlow::start(&pair.near, &pair.far, (Pair::FAR_V6, BYSTANDER_PORT).into(), BYSTANDER_RATE)?;
    let started = Instant::now();
    let mut stage = Stage { out, pair: &pair, echo: &echo, started, rhythm: scene.rhythm() };

    let before = stage.act("before", "nothing is injected")?;
    say(stage.out, &format!("MCP chaos_inject_fault: {}", fault_words(scene)));
    let called = Instant::now();
    let injected = fault.inject(&mcp)?;
    say(
        stage.out,
        &format!("  {} (answered after {:.1} ms)", word(&injected["message"]), millis(called.elapsed())),
    );
    let during = stage.act("during", "the fault is active")?;
    show_status(stage.out, &fault, &mcp)?;
    let removed = fault.remove(&mcp)?;
    say(stage.out, &format!("MCP chaos_inject_fault remove: {}", word(&removed["message"])));
    let after = stage.act("after", "the fault is removed")?;

    let bystander = bystander.finish()?;
    let clean = before_picture.assert_unchanged_within(&[&pair.near, &pair.far], SETTLE);
    drop(mcp);
    let stopped = daemon.stop();
    let mut claims = Claims::default();
    claims.baseline(&before);
    match scene {
        Scene::Partition => claims.cut_off(&during),
        Scene::Delay => claims.delayed(&before, &during, Scene::DELAY, TOLERANCE),
    }
    claims.recovered(&after);
    claims.evidence(&removed, &during);
    claims.bystander(&bystander);
    claims.queues([&before, &during, &after]);
    claims.clean(&clean);
    claims.stopped(&stopped);
    let out = stage.out;
    chart::table(out, &[&before, &during, &after]);
    Ok(claims.print(out))
}

/// Says what is missing on this machine, if something is: nothing has been changed then.
pub fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some(
            "needs root, to make network namespaces and to load eBPF programs; nothing was changed".into(),
        );
    }
    None
}

struct Stage<'a, W> {
    out: W,
    pair: &'a Pair,
    echo: &'a Echo,
    started: Instant,
    rhythm: Rhythm,
}

impl<W: Write> Stage<'_, W> {
    fn act(&mut self, name: &'static str, what: &str) -> Result<Phase> {
        say(&mut self.out, &format!("{name}: {what}"));
        let root_qdisc = root_qdisc(&self.pair.near)?;
        let samples =
            chart::draw(&mut self.out, &self.pair.near, self.echo.address(), self.rhythm, self.started)?;
        Ok(Phase { name, samples, root_qdisc })
    }
}

/// The root qdisc of the target device, in tc's words.
fn root_qdisc(namespace: &NetNs) -> Result<String> {
    let all = namespace.tc(&["qdisc", "show", "dev", INTERFACE, "root"])?;
    Ok(all.lines().next().unwrap_or("none").trim().to_owned())
}

fn fault_words(scene: Scene) -> String {
    let what = match scene {
        Scene::Partition => "network_partition".to_owned(),
        Scene::Delay => format!("latency of {} ms", Scene::DELAY.as_millis()),
    };
    format!("{what} between us and {} on {INTERFACE}, for 30 s at most", Pair::FAR_V4)
}

fn show_status(out: &mut impl Write, fault: &Fault, mcp: &Mcp) -> Result<()> {
    // The holder reports with its heartbeat, once a second.
    let until = Instant::now() + SETTLE;
    let status = loop {
        let status = fault.status(mcp)?;
        if status["state"] == "effective" || Instant::now() >= until {
            break status;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let evidence = &status["evidence"];
    say(
        out,
        &format!(
            "MCP chaos_status: {}; {} packets matched, {} affected; ends by itself in {:.1} s",
            word(&status["state"]),
            evidence["packets_matched"],
            evidence["packets_affected"],
            status["remaining_seconds"].as_f64().unwrap_or(0.0)
        ),
    );
    Ok(())
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("(no words)")
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn say(out: &mut impl Write, line: &str) {
    // Nobody reading any more is no reason to leave a fault in place: the claims are checked all the same.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
