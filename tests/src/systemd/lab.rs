//! Two active faults, as a member of the group has injected them, and the question whether anything of them is left.

use std::time::{Duration, Instant};

use super::supervised::{assert_nothing_is_held, hold_on_the_host};
use super::unit::{MEMBER, ROOT, SERVICE, SOCKET, chaosctl, is_active, log, processes, run};
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt};
use crate::process::wait_until;
use crate::skip::kernel_version;
use crate::{Pair, Residue, bpf};

const DELAY: Duration = Duration::from_millis(300);
/// A round trip without a delay, under emulation.
const NORMAL: Duration = Duration::from_millis(150);
/// How long one packet is waited for.
const PATIENCE: Duration = Duration::from_millis(1000);
/// Index of `lo`, in every network namespace.
const LOOPBACK: u32 = 1;
/// The daemon's journal of steps to undo.
const JOURNAL: &str = "/run/chaos-daemon/journal";
/// The faults of a reboot, on the host's own loopback: what might come back has to be of the host, not of a test's
/// namespace. Name, peer, type.
const ON_THE_HOST: [(&str, &str, &str); 2] =
    [("slow", "127.0.0.3", "latency"), ("cut", "127.0.0.2", "network_partition")];
const PING_CUT: &[&str] = &["-n", "-q", "-c", "1", "-W", "1", "127.0.0.2"];

/// Processes of a daemon without a fault: injector, server, prober, a warm holder, and where there are hooks to keep, the
/// keeper.
pub(super) fn idle() -> usize {
    if kernel_version() >= (6, 6) { 5 } else { 4 }
}

/// A delay towards the IPv4 address of the far side, and a partition from its IPv6 address.
pub(super) struct Lab {
    pair: Pair,
    slow: Echo,
    cut: Echo,
    before: Residue,
}

impl Lab {
    /// Injects both, and sees that they act.
    pub(super) fn with_active_faults() -> Result<Self> {
        let pair = Pair::new()?;
        let slow = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let cut = Echo::start(&pair.far, Pair::FAR_V6, 7)?;
        let before = Residue::take(&[&pair.near])?;
        let lab = Self { pair, slow, cut, before };
        if !lab.normal()? {
            return Err(Error::Different("traffic is not normal before any fault".into()));
        }
        lab.inject("slow", &["latency", "--cidr", "10.77.0.2", "--delay", "300ms"])?;
        lab.inject("cut", &["network_partition", "--cidr", "fd77::2"])?;
        let (slow, cut) = lab.round_trips(PATIENCE)?;
        match (slow, cut) {
            (Some(slow), None) if slow >= DELAY => Ok(lab),
            other => {
                Err(Error::Different(format!("the faults do not act: round trips {other:?}; {}", log())))
            }
        }
    }

    fn inject(&self, name: &str, fault: &[&str]) -> Result<()> {
        let target =
            ["--name", name, "--netns", self.pair.near.name(), "--interface", "eth0", "--for", "10m"];
        let mut args = vec!["inject"];
        args.extend(fault);
        args.extend(target);
        // The namespace is root's.
        chaosctl(ROOT, &args).map(drop)
    }

    fn round_trips(&self, limit: Duration) -> Result<(Option<Duration>, Option<Duration>)> {
        let near = &self.pair.near;
        Ok((udp_rtt(near, self.slow.address(), limit)?, udp_rtt(near, self.cut.address(), limit)?))
    }

    fn normal(&self) -> Result<bool> {
        let (slow, cut) = self.round_trips(NORMAL)?;
        Ok(slow.is_some() && cut.is_some())
    }

    /// How long from now until traffic is normal on both ways.
    pub(super) fn time_to_normal(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        while start.elapsed() < limit {
            let sent = start.elapsed();
            if self.normal()? {
                return Ok(sent);
            }
        }
        Err(Error::in_vain(format!("traffic normal; {}", log()), limit))
    }

    /// What a daemon that died has left of the faults, which has to be something, and nothing that acts.
    pub(super) fn inert_leftovers(&self) -> Result<String> {
        let now = Residue::take(&[&self.pair.near])?;
        let left = self.before.difference(&now);
        match (left.is_empty(), self.normal()?) {
            (false, true) => Ok(left),
            (true, _) => Err(Error::Different("nothing was left behind".into())),
            (_, false) => Err(Error::Different(format!("what is left still acts:\n{left}"))),
        }
    }

    /// Links, qdiscs, filters, tcx programs and eBPF links are as before, no undo is pending, and so many processes of
    /// the daemon are left (without a fault: [`idle`]).
    pub(super) fn assert_clean(&self, expected: usize) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.pair.near], HANG)?;
        if !self.normal()? {
            return Err(Error::Different("traffic is not normal".into()));
        }
        assert_idle(expected)
    }
}

/// Injects on the host's own loopback and into a service of its own, and sees that it acts.
pub(super) fn inject_on_the_host() -> Result<()> {
    let answers = || chaosctl(MEMBER, &["status"]).is_ok();
    if !wait_until(HANG, answers) {
        return Err(Error::Hung { what: format!("an answer; {}", log()) });
    }
    run("ping", PING_CUT)?;
    for (name, address, fault) in ON_THE_HOST {
        let target = ["--name", name, "--interface", "lo", "--cidr", address, "--for", "10m"];
        chaosctl(MEMBER, &[&["inject", fault], &target[..]].concat())?;
    }
    if run("ping", PING_CUT).is_ok() {
        return Err(Error::Different("the partition has no effect".into()));
    }
    match run("ip", &["link"])? {
        links if links.contains("chaos") => hold_on_the_host(),
        links => Err(Error::Different(format!("no device of the delay: {links}"))),
    }
}

/// After a boot: nothing of [`inject_on_the_host`] is there, or acts, and the daemon runs.
pub(super) fn assert_fresh_boot() -> Result<()> {
    let different = |what: &str, seen: String| Err(Error::Different(format!("{what}: {seen}")));
    if !wait_until(HANG, || is_active(SERVICE) && is_active(SOCKET)) {
        return Err(Error::Hung { what: format!("{SERVICE} active; {}", log()) });
    }
    run("ping", PING_CUT)?;
    let (links, qdiscs) = (run("ip", &["link"])?, run("tc", &["qdisc"])?);
    if links.contains("chaos") {
        return different("a device is left", links);
    }
    if qdiscs.contains("clsact") || qdiscs.contains("netem") {
        return different("a queue is left", qdiscs);
    }
    // A kernel without tcx has no such hooks to ask for: its filters are gone with clsact.
    let hooks = [bpf::TCX_INGRESS, bpf::TCX_EGRESS].into_iter().filter(|_| kernel_version() >= (6, 6));
    for hook in hooks {
        let programs = bpf::tcx_programs(LOOPBACK, hook).map_err(Error::io("query the programs of", "lo"))?;
        if !programs.is_empty() {
            return different("a program is left on lo", format!("{programs:?}"));
        }
    }
    assert_nothing_is_held()?;
    run("chaosctl", &["doctor", "--residue"])?;
    assert_idle(idle())
}

/// As [`Lab::assert_clean`], without looking at the network.
pub(super) fn assert_idle(expected: usize) -> Result<()> {
    let pending = || std::fs::read_dir(JOURNAL).map_or(0, Iterator::count);
    if wait_until(HANG, || pending() == 0 && processes().len() == expected) {
        return Ok(());
    }
    let running: Vec<_> = processes().into_iter().map(|process| process.arguments).collect();
    Err(Error::Different(format!(
        "{} journals, and {expected} processes expected, not {running:?}; {}",
        pending(),
        log()
    )))
}
