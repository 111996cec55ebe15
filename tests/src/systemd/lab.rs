//! Two active faults, as a member of the group has injected them, and the question whether anything of them is left.

use std::time::{Duration, Instant};

use super::unit::{MEMBER, chaosctl, log, processes};
use crate::error::{Error, Result};
use crate::measure::{Echo, udp_rtt};
use crate::process::wait_until;
use crate::{Pair, Residue};

const DELAY: Duration = Duration::from_millis(300);
/// A round trip without a delay, under emulation.
const NORMAL: Duration = Duration::from_millis(150);
/// How long one packet is waited for.
const PATIENCE: Duration = Duration::from_millis(1000);
/// How long kernel and daemon may take to tidy up after traffic is normal.
const SETTLE: Duration = Duration::from_secs(20);
/// The daemon's journal of steps to undo.
const JOURNAL: &str = "/run/chaos-daemon/journal";

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
        chaosctl(MEMBER, &args).map(drop)
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
        Err(Error::Late { what: format!("traffic normal; {}", log()), after: limit })
    }

    /// Links, qdiscs, filters, tcx programs and eBPF links are as before, no undo is pending, and so many processes of
    /// the daemon are left (idle: injector, server, one warm holder).
    pub(super) fn assert_clean(&self, expected: usize) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.pair.near], SETTLE)?;
        if !self.normal()? {
            return Err(Error::Different("traffic is not normal".into()));
        }
        assert_idle(expected)
    }
}

/// As [`Lab::assert_clean`], without looking at the network.
pub(super) fn assert_idle(expected: usize) -> Result<()> {
    let pending = || std::fs::read_dir(JOURNAL).map_or(0, Iterator::count);
    if wait_until(SETTLE, || pending() == 0 && processes().len() == expected) {
        return Ok(());
    }
    let running: Vec<_> = processes().into_iter().map(|process| process.arguments).collect();
    Err(Error::Different(format!(
        "{} journals, and {expected} processes expected, not {running:?}; {}",
        pending(),
        log()
    )))
}
