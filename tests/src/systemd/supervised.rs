//! Faults that outlive the daemon, injected as root, and the question whether anything of them is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::unit::{is_active, log, run, systemctl};
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Pair, Residue};

/// From the last heartbeat, or from a death.
pub(super) const PROMISE: Duration = Duration::from_secs(3);
/// Where systemd keeps the control groups of services.
const SERVICES: &str = "/sys/fs/cgroup/system.slice";
/// A service of the host that every boot starts, and its unit: what a fault of a test's own service leaves goes with that.
const HELD: &str = "chaos-held.service";
const HELD_UNIT: &str = "[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
/// Processes that a limited service may have.
const LIMIT: &str = "3";

/// A limit of a control group: its file, and how a fault sets it.
struct Limit {
    kind: &'static str,
    file: &'static str,
    fault: &'static [&'static str],
}

const LIMITS: &[Limit] = &[
    Limit { kind: "limit", file: "pids.max", fault: &["--resource", "pids_limit", "--pids", LIMIT] },
    Limit { kind: "cpu", file: "cpu.max", fault: &["--resource", "cpu_limit", "--cpu-percent", "20"] },
    Limit {
        kind: "memory",
        file: "memory.high",
        fault: &["--resource", "memory_limit", "--memory-mb", "64"],
    },
    Limit {
        kind: "io",
        file: "io.max",
        fault: &["--resource", "io_limit", "--device", "vda", "--bytes-per-second", "1000000"],
    },
];

/// Every kind but the clock, which needs a drop-in.
pub(super) const KINDS: [&str; 6] = ["limit", "cpu", "memory", "io", "link", "pause"];

/// A service and a link, with a fault of each kind that needs no clock.
pub(super) struct Supervised {
    pair: Pair,
    victim: String,
    cgroup: PathBuf,
    /// What is in each file of [`LIMITS`].
    limits: Vec<String>,
    before: Residue,
}

impl Supervised {
    pub(super) fn new() -> Result<Self> {
        let victim = format!("chaos-victim-{}.service", std::process::id());
        // systemd gives a group the controllers that its settings need.
        let settings = ["CPUWeight=100", "MemoryAccounting=yes", "IOAccounting=yes", "TasksAccounting=yes"];
        let settings: Vec<_> = settings.iter().map(|setting| format!("--property={setting}")).collect();
        let mut args = vec!["--quiet", "--unit", &victim];
        args.extend(settings.iter().map(String::as_str));
        run("systemd-run", &[&args[..], &["sleep", "infinity"]].concat())?;
        let (cgroup, pair) = (Path::new(SERVICES).join(&victim), Pair::new()?);
        for limit in LIMITS {
            if !cgroup.join(limit.file).exists() {
                return Err(Error::Different(format!("{victim} has no {}", limit.file)));
            }
        }
        let limits = LIMITS.iter().map(|limit| read(&cgroup, limit.file)).collect();
        let before = Residue::take_with(&[&pair.near], &[&cgroup])?;
        let lab = Self { pair, limits, cgroup, victim, before };
        match lab.normal() {
            true => Ok(lab),
            false => Err(Error::Different(format!("not normal before any fault: {}", lab.picture()))),
        }
    }

    pub(super) fn inject(&self, kind: &str) -> Result<()> {
        let (netns, victim) = (self.pair.near.name(), &self.victim);
        let fault = match (kind, LIMITS.iter().find(|limit| limit.kind == kind)) {
            (_, Some(limit)) => [&["resource_exhaustion", "--unit", victim], limit.fault].concat(),
            ("pause", _) => vec!["pause", "--unit", victim],
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
        KINDS.iter().try_for_each(|kind| self.inject(kind))
    }

    fn up(&self) -> bool {
        self.pair.near.ip(&["-o", "link", "show", "dev", INTERFACE]).is_ok_and(|text| text.contains(",UP"))
    }

    pub(super) fn ended(&self, kind: &str) -> bool {
        match (kind, LIMITS.iter().position(|limit| limit.kind == kind)) {
            (_, Some(at)) => read(&self.cgroup, LIMITS[at].file) == self.limits[at],
            ("pause", _) => read(&self.cgroup, "cgroup.events").contains("frozen 0"),
            _ => self.up(),
        }
    }

    pub(super) fn normal(&self) -> bool {
        KINDS.iter().all(|kind| self.ended(kind))
    }

    pub(super) fn picture(&self) -> String {
        let limits: Vec<_> =
            LIMITS.iter().map(|limit| (limit.file, read(&self.cgroup, limit.file))).collect();
        format!("{:?}, {limits:?}, link up {}", read(&self.cgroup, "cgroup.events"), self.up())
    }

    /// How long from now until everything is as before; an error after `limit`.
    pub(super) fn time_to_normal(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        match wait_until(limit, || self.normal()) {
            true => Ok(start.elapsed()),
            false => Err(Error::in_vain(format!("normal: {}; {}", self.picture(), log()), limit)),
        }
    }

    /// The oracle finds nothing of any fault.
    pub(super) fn assert_as_before(&self) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.pair.near], HANG)
    }

    /// Nor does the doctor.
    pub(super) fn assert_clean(&self) -> Result<()> {
        self.assert_as_before()?;
        run("chaosctl", &["doctor", "--residue"]).map(drop)
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
    // The power goes next: what systemd starts then has to be on the disk.
    nix::unistd::sync();
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
    if !wait_until(HANG, || is_active(HELD)) {
        let shown = systemctl(&["show", "--property=LoadState,ActiveState,Result,InvocationID", HELD])?;
        return Err(Error::Hung { what: format!("{HELD} active, which is {shown}; {}", log()) });
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
