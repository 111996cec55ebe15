//! Faults that outlive the daemon, under systemd: the guard's unit ends them when the service is killed or hangs.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::unit::{
    GUARD, MEMBER, SERVICE, chaosctl, installed, is_active, log, main_pid, property, run, say, systemctl,
    wait_restarted,
};
use super::{TestResult, tests};
use crate::Pair;
use crate::error::{Error, Result};
use crate::pair::INTERFACE;
use crate::process::{Process, wait_until};

tests![
    the_guard_runs_beside_the_daemon_and_is_exposed_no_more_than_it,
    a_service_that_is_killed_has_its_pause_undone_within_three_seconds,
    a_service_that_is_killed_has_its_limit_undone_within_three_seconds,
    a_service_that_is_killed_has_its_link_up_again_within_three_seconds,
    a_service_that_hangs_has_its_faults_undone_within_three_seconds,
    a_guard_that_is_killed_is_started_again_and_its_faults_have_ended,
    stopping_the_service_ends_supervised_faults_and_the_guard,
];

/// From the last heartbeat, or from a death.
const PROMISE: Duration = Duration::from_secs(3);
/// Kills every process of the service at once (cgroup-v2.rst, `cgroup.kill`).
const SERVICE_KILL: &str = "/sys/fs/cgroup/system.slice/chaos-daemon.service/cgroup.kill";
/// Of each kind.
const KILLS: usize = 4;

/// A service and a link, with a fault of each kind that needs no clock.
struct Lab {
    pair: Pair,
    victim: String,
    cgroup: PathBuf,
    pids: String,
}

impl Lab {
    fn new() -> Result<Self> {
        let victim = format!("chaos-victim-{}.service", std::process::id());
        run("systemd-run", &["--quiet", "--unit", &victim, "sleep", "infinity"])?;
        let cgroup = PathBuf::from("/sys/fs/cgroup/system.slice").join(&victim);
        let lab = Self { pair: Pair::new()?, pids: read(&cgroup, "pids.max"), cgroup, victim };
        if !lab.normal() || lab.pids.is_empty() {
            return Err(Error::Different(format!("not normal before any fault: {}", lab.picture())));
        }
        Ok(lab)
    }

    fn inject(&self, kind: &str) -> Result<()> {
        let (netns, victim) = (self.pair.near.name(), &self.victim);
        let fault = match kind {
            "pause" => vec!["pause", "--unit", victim],
            "limit" => {
                vec!["resource_exhaustion", "--unit", victim, "--resource", "pids_limit", "--pids", "3"]
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

    fn inject_all(&self) -> Result<()> {
        ["limit", "link", "pause"].iter().try_for_each(|kind| self.inject(kind))
    }

    fn up(&self) -> bool {
        self.pair.near.ip(&["-o", "link", "show", "dev", INTERFACE]).is_ok_and(|text| text.contains(",UP"))
    }

    fn ended(&self, kind: &str) -> bool {
        match kind {
            "pause" => read(&self.cgroup, "cgroup.events").contains("frozen 0"),
            "limit" => read(&self.cgroup, "pids.max") == self.pids,
            _ => self.up(),
        }
    }

    fn normal(&self) -> bool {
        ["pause", "limit", "link"].iter().all(|kind| self.ended(kind))
    }

    fn picture(&self) -> String {
        let (events, pids) = (read(&self.cgroup, "cgroup.events"), read(&self.cgroup, "pids.max"));
        format!("{events:?}, pids.max {pids:?}, link up {}", self.up())
    }

    /// How long from now until everything is as before.
    fn time_to_normal(&self) -> Result<Duration> {
        let start = Instant::now();
        match wait_until(2 * PROMISE, || self.normal()) {
            true => Ok(start.elapsed()),
            false => Err(Error::Late { what: format!("{}; {}", self.picture(), log()), after: 2 * PROMISE }),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = systemctl(&["stop", &self.victim]);
    }
}

fn read(cgroup: &std::path::Path, file: &str) -> String {
    fs::read_to_string(cgroup.join(file)).unwrap_or_default().trim().to_owned()
}

/// Has the daemon ready once more, however often it has been killed within a minute.
fn again(before: i32) -> Result<()> {
    wait_restarted(before)?;
    systemctl(&["reset-failed", SERVICE]).map(drop)?;
    match wait_until(PROMISE, || is_active(GUARD)) {
        true => Ok(()),
        false => Err(Error::Late { what: format!("guard active; {}", log()), after: PROMISE }),
    }
}

fn the_guard_runs_beside_the_daemon_and_is_exposed_no_more_than_it() -> TestResult {
    installed()?;
    assert!(is_active(GUARD), "{}", log());
    let said = run("systemd-analyze", &["security", "--no-pager", "--threshold=30", GUARD])?;
    say(said.lines().last().unwrap_or_default());
    assert!(chaosctl(MEMBER, &["doctor"])?.contains("guard: process"), "the doctor does not see it");
    Ok(())
}

fn killed(kind: &str) -> TestResult {
    installed()?;
    let lab = Lab::new()?;
    for count in 1..=KILLS {
        lab.inject(kind)?;
        let before = main_pid()?;
        // What `systemctl kill --signal=KILL` comes to, without the time that systemctl takes.
        fs::write(SERVICE_KILL, "1")?;
        let start = Instant::now();
        wait_until(2 * PROMISE, || lab.ended(kind));
        let took = start.elapsed();
        say(&format!("{kind} {count}: normal {took:?} after every process of the service was killed"));
        assert!(took < PROMISE, "{took:?}");
        assert!(lab.normal(), "{}", lab.picture());
        again(before)?;
    }
    Ok(())
}

fn a_service_that_is_killed_has_its_pause_undone_within_three_seconds() -> TestResult {
    killed("pause")
}

fn a_service_that_is_killed_has_its_limit_undone_within_three_seconds() -> TestResult {
    killed("limit")
}

fn a_service_that_is_killed_has_its_link_up_again_within_three_seconds() -> TestResult {
    killed("link")
}

fn a_service_that_hangs_has_its_faults_undone_within_three_seconds() -> TestResult {
    installed()?;
    let lab = Lab::new()?;
    lab.inject_all()?;
    let before = main_pid()?;
    Process::read(before).ok_or("no injector")?.signal(Signal::SIGSTOP);
    let took = lab.time_to_normal()?;
    say(&format!("normal {took:?} after the injector was stopped"));
    assert!(took < PROMISE, "{took:?}");
    again(before)?;
    Ok(())
}

fn a_guard_that_is_killed_is_started_again_and_its_faults_have_ended() -> TestResult {
    installed()?;
    let lab = Lab::new()?;
    lab.inject_all()?;
    let before = property(GUARD, "MainPID")?;
    systemctl(&["kill", "--signal=KILL", GUARD])?;
    // Either the new guard is there before the daemon has missed the old one, or the daemon ends them.
    let guarded =
        || is_active(GUARD) && property(GUARD, "MainPID").is_ok_and(|now| now != before && now != "0");
    assert!(wait_until(2 * PROMISE, guarded), "{}", log());
    chaosctl(MEMBER, &["stop", "--all"])?;
    lab.time_to_normal()?;
    lab.inject_all()?;
    chaosctl(MEMBER, &["stop", "--all"])?;
    assert!(lab.normal(), "{}", lab.picture());
    Ok(())
}

fn stopping_the_service_ends_supervised_faults_and_the_guard() -> TestResult {
    installed()?;
    let lab = Lab::new()?;
    lab.inject_all()?;
    systemctl(&["stop", SERVICE])?;
    assert!(lab.normal(), "{}", lab.picture());
    assert!(wait_until(PROMISE, || !is_active(GUARD)), "the guard goes on without anybody to guard");
    systemctl(&["start", SERVICE])?;
    assert!(wait_until(PROMISE, || is_active(GUARD)), "{}", log());
    Ok(())
}
