//! Faults that outlive the daemon, injected as root, and the question whether anything of them is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::unit::{PATIENCE, is_active, log, run, systemctl};
use crate::Pair;
use crate::error::{Error, Result};
use crate::pair::INTERFACE;
use crate::process::wait_until;

/// From the last heartbeat, or from a death.
pub(super) const PROMISE: Duration = Duration::from_secs(3);
/// Where systemd keeps the control groups of services.
const SERVICES: &str = "/sys/fs/cgroup/system.slice";
/// A service of the host that every boot starts, and its unit: what a fault of a test's own service leaves goes with that.
const HELD: &str = "chaos-held.service";
const HELD_UNIT: &str = "[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
/// Processes that a limited service may have.
const LIMIT: &str = "3";

/// A service and a link, with a fault of each kind that needs no clock.
pub(super) struct Supervised {
    pair: Pair,
    victim: String,
    cgroup: PathBuf,
    pids: String,
}

impl Supervised {
    pub(super) fn new() -> Result<Self> {
        let victim = format!("chaos-victim-{}.service", std::process::id());
        run("systemd-run", &["--quiet", "--unit", &victim, "sleep", "infinity"])?;
        let cgroup = Path::new(SERVICES).join(&victim);
        let lab = Self { pair: Pair::new()?, pids: read(&cgroup, "pids.max"), cgroup, victim };
        if !lab.normal() || lab.pids.is_empty() {
            return Err(Error::Different(format!("not normal before any fault: {}", lab.picture())));
        }
        Ok(lab)
    }

    pub(super) fn inject(&self, kind: &str) -> Result<()> {
        let (netns, victim) = (self.pair.near.name(), &self.victim);
        let fault = match kind {
            "pause" => vec!["pause", "--unit", victim],
            "limit" => {
                vec!["resource_exhaustion", "--unit", victim, "--resource", "pids_limit", "--pids", LIMIT]
            }
            _ => vec!["link_down", "--interface", INTERFACE, "--netns", netns],
        };
        // As root, without a session: this is done often, and is slow under emulation.
        run("chaosctl", &[&["inject"], &fault[..], &["--for", "10m"]].concat())?;
        match self.ended(kind) {
            false => Ok(()),
            true => Err(Error::Different(format!("{kind} does not act: {}; {}", self.picture(), log()))),
        }
    }

    pub(super) fn inject_all(&self) -> Result<()> {
        ["limit", "link", "pause"].iter().try_for_each(|kind| self.inject(kind))
    }

    fn up(&self) -> bool {
        self.pair.near.ip(&["-o", "link", "show", "dev", INTERFACE]).is_ok_and(|text| text.contains(",UP"))
    }

    pub(super) fn ended(&self, kind: &str) -> bool {
        match kind {
            "pause" => read(&self.cgroup, "cgroup.events").contains("frozen 0"),
            "limit" => read(&self.cgroup, "pids.max") == self.pids,
            _ => self.up(),
        }
    }

    pub(super) fn normal(&self) -> bool {
        ["pause", "limit", "link"].iter().all(|kind| self.ended(kind))
    }

    pub(super) fn picture(&self) -> String {
        let (events, pids) = (read(&self.cgroup, "cgroup.events"), read(&self.cgroup, "pids.max"));
        format!("{events:?}, pids.max {pids:?}, link up {}", self.up())
    }

    /// How long from now until everything is as before; an error after `limit`.
    pub(super) fn time_to_normal(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        match wait_until(limit, || self.normal()) {
            true => Ok(start.elapsed()),
            false => Err(Error::Late { what: format!("{}; {}", self.picture(), log()), after: limit }),
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = systemctl(&["stop", &self.victim]);
    }
}

fn read(cgroup: &Path, file: &str) -> String {
    fs::read_to_string(cgroup.join(file)).unwrap_or_default().trim().to_owned()
}

/// Pauses and limits a service of the host, and sees that both act.
pub(super) fn hold_on_the_host() -> Result<()> {
    let unit = Path::new("/etc/systemd/system").join(HELD);
    fs::write(&unit, HELD_UNIT).map_err(Error::io("write", HELD))?;
    systemctl(&["enable", "--now", HELD])?;
    run(
        "chaosctl",
        &[
            "inject",
            "resource_exhaustion",
            "--unit",
            HELD,
            "--resource",
            "pids_limit",
            "--pids",
            LIMIT,
            "--for",
            "10m",
        ],
    )?;
    run("chaosctl", &["inject", "pause", "--unit", HELD, "--for", "10m"])?;
    match held() {
        (frozen, limit) if frozen.contains("frozen 1") && limit == LIMIT => Ok(()),
        other => Err(Error::Different(format!("the faults do not act: {other:?}; {}", log()))),
    }
}

/// After a boot: the service of [`hold_on_the_host`] runs as if there had been no fault.
pub(super) fn assert_nothing_is_held() -> Result<()> {
    if !wait_until(PATIENCE, || is_active(HELD)) {
        return Err(Error::Late { what: format!("{HELD} active; {}", log()), after: PATIENCE });
    }
    match held() {
        (frozen, limit) if frozen.contains("frozen 0") && limit != LIMIT => Ok(()),
        other => Err(Error::Different(format!("{HELD} is held after a boot: {other:?}"))),
    }
}

/// What the kernel says of its control group: events, and how many processes it may have.
fn held() -> (String, String) {
    let cgroup = Path::new(SERVICES).join(HELD);
    (read(&cgroup, "cgroup.events"), read(&cgroup, "pids.max"))
}
