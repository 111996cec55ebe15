//! Supervised faults outlive every process of the daemon; their guard ends them, and recovery when there is none.

mod flaps;
mod groups;
mod plans;
mod refusals;
pub(crate) mod service;
pub(crate) mod stage;

use std::fs::File;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use self::stage::{
    CLOCK, CLOCK_AHEAD, DISK, FLAPS, LIMITS, LINK, MEMORY, Make, ONE_WAY, PAUSE_AND_LINK, SOURCED_LINK,
    Stage, Stages,
};
use super::{Context, KernelTest, Outcome, STANDSTILL, TestResult, assert_lasted};
use crate::daemon::binary;
use crate::fault::LONG;
use crate::guard::Guard;
use crate::late::HANG;
use crate::netns::output;
use crate::process::{Process, wait_until};
use crate::skip::Environment;
use crate::victim::has_controllers;
use crate::{Daemon, Error, Mcp, Reason, Result};

/// After the last heartbeat of the injector; what is promised.
const PROMISE: Duration = Duration::from_secs(3);

/// Everything of one trial. Dropped in this order.
struct Trial {
    stage: Box<dyn Stage>,
    guard: Guard,
    daemon: Daemon,
    mcp: Mcp,
    before: String,
    /// When the fault was asked for.
    asked: Instant,
    _policy: tempfile::NamedTempFile,
}

impl Trial {
    /// A daemon with a guard, and the fault active.
    fn with_active_fault(stage: Make, lasting: Duration) -> Result<Self> {
        let policy = tempfile::NamedTempFile::new().map_err(Error::io("create", "a policy"))?;
        std::fs::write(policy.path(), "clock_skew = true\n").map_err(Error::io("write", "a policy"))?;
        let mut stage = stage()?;
        let daemon = Daemon::start_with(|command| {
            command.arg("--policy").arg(policy.path());
        })?;
        let guard = Guard::start(&daemon)?;
        let mcp = daemon.mcp()?;
        let before = settled(stage.as_ref())?;
        if !wait_until(HANG, || !stage.acts().unwrap_or(true)) {
            return Err(Error::Different("it acts before it is injected".into()));
        }
        let (fault, asked) = (stage.fault().lasting(lasting), Instant::now());
        let answer = fault.inject(&mcp)?;
        if answer["lifetime"] != "supervised" || answer["evidence"]["settings_held"] != 1 {
            return Err(Error::Different(format!("{answer}")));
        }
        // Of what the kernel counts nothing is claimed before somebody has met it.
        let met_by_nobody = answer["evidence"]["times_held_back"] == 0;
        if met_by_nobody != (answer["state"] == "no_traffic") {
            return Err(Error::Different(format!("{answer}")));
        }
        let mut trial = Self { stage, guard, daemon, mcp, before, asked, _policy: policy };
        match trial.stage.acts()? {
            true => Ok(trial),
            false if asked.elapsed() >= lasting => {
                Err(Error::in_vain("a fault seen before its end", lasting))
            }
            false => Err(Error::Different(format!("injected, and does not act; {}", trial.daemon.log()))),
        }
    }

    /// How long from now until the kernel shows what it showed before. Then it does not act, and nothing is journalled.
    fn time_to_normal(&mut self, promise: Duration) -> Result<Duration> {
        let after = self.wait_until_normal(promise)?;
        self.assert_normal()?;
        Ok(after)
    }

    /// How long from now until the kernel shows, of what the fault changes, what it showed before.
    fn wait_until_normal(&self, promise: Duration) -> Result<Duration> {
        let start = Instant::now();
        let changed = self.before.lines().next().unwrap_or_default().to_owned();
        let normal = || {
            let now = self.stage.picture();
            now.is_ok_and(|now| now.lines().next() == Some(&changed)) && self.stage.stays_away()
        };
        match wait_until(promise, normal) {
            true => Ok(start.elapsed()),
            false => Err(Error::in_vain(
                format!("normal; now {:?}; guard:\n{}", self.stage.picture(), self.guard.log()),
                promise,
            )),
        }
    }

    fn assert_normal(&mut self) -> Result<()> {
        let mut now = String::new();
        wait_until(HANG, || {
            now = self.stage.picture().unwrap_or_default();
            now == self.before
        });
        if now != self.before {
            return Err(Error::Different(format!("before:\n{}\nafter:\n{now}", self.before)));
        }
        if !wait_until(HANG, || !self.stage.acts().unwrap_or(true)) {
            return Err(Error::Different("it still acts".into()));
        }
        let journal = self.daemon.runtime_dir().join("journal");
        let entries = || std::fs::read_dir(&journal).map_or(0, Iterator::count);
        match wait_until(HANG, || entries() == 0) {
            true => Ok(()),
            false => Err(Error::Different(format!("{} journals are left; {}", entries(), self.daemon.log()))),
        }
    }

    fn recover(&self) -> Result<String> {
        let mut command = std::process::Command::new(binary("chaos-daemon")?);
        output(command.arg("recover").arg("--runtime-dir").arg(self.daemon.runtime_dir()))
    }
}

/// A picture that does not change any more: fresh IPv6 addresses are checked for duplicates first.
pub(crate) fn settled(stage: &dyn Stage) -> Result<String> {
    let mut last = stage.picture()?;
    let end = Instant::now() + HANG;
    while last.contains("tentative") && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        last = stage.picture()?;
    }
    Ok(last)
}

/// Plays a scenario on each stage that there is here.
fn play(context: &Context, stages: Stages, scenario: fn(Make) -> Result<String>) -> TestResult {
    if !has_controllers(stages.controllers) {
        return Ok(Outcome::Skip(
            Reason::NoCgroupControllers,
            format!("{:?} are not all there", stages.controllers),
        ));
    }
    if stages.own_clock && context.environment == Environment::Host {
        return Ok(Outcome::Skip(
            Reason::NotOurMachine,
            "the clock of a host is not a test's to change".into(),
        ));
    }
    for stage in stages.make {
        let name = stage()?.fault().name().to_owned();
        let said = scenario(*stage).map_err(|error| format!("{name}: {error}"))?;
        eprintln!("{name}: {said}");
    }
    Ok(Outcome::Pass)
}

fn removal(stage: Make) -> Result<String> {
    let mut trial = Trial::with_active_fault(stage, LONG)?;
    let fault = trial.stage.fault();
    let status = fault.status(&trial.mcp)?;
    if status["lifetime"] != "supervised"
        || !status["guard"].as_str().unwrap_or_default().contains("guard (process")
    {
        return Err(Error::Different(format!("the status does not tell class and guard: {status}")));
    }
    fault.remove(&trial.mcp)?;
    trial.assert_normal().map(|()| "removed".into())
}

fn time(stage: Make) -> Result<String> {
    const LASTING: Duration = Duration::from_secs(4);
    let mut trial = Trial::with_active_fault(stage, LASTING)?;
    let after = trial.wait_until_normal(LASTING + STANDSTILL)?;
    assert_lasted(trial.asked, LASTING);
    trial.assert_normal()?;
    Ok(format!("ended by itself {after:?} after it was seen to act"))
}

/// Strikes every process of the daemon, but not the guard, and measures.
fn blow(stage: Make, signal: Signal, whom: fn(&Daemon) -> Vec<Process>) -> Result<String> {
    let mut trial = Trial::with_active_fault(stage, LONG)?;
    let processes = trial.daemon.processes();
    whom(&trial.daemon).iter().for_each(|process| process.signal(signal));
    let after = trial.time_to_normal(PROMISE + STANDSTILL)?;
    if !wait_until(HANG, || !processes.iter().any(Process::runs)) {
        return Err(Error::Different("somebody of the daemon still runs".into()));
    }
    trial.daemon.kill_everything();
    Ok(format!("normal {after:?} after {signal}"))
}

fn kill(stage: Make) -> Result<String> {
    blow(stage, Signal::SIGKILL, Daemon::processes)
}

/// While somebody has locked what everybody can open, and with it can lock.
fn kill_beside_a_lock(stage: Make) -> Result<String> {
    let mut trial = Trial::with_active_fault(stage, LONG)?;
    let locked = File::open(trial.daemon.runtime_dir()).and_then(|folder| folder.lock().map(|()| folder));
    let _locked = locked.map_err(Error::io("lock", "the runtime directory"))?;
    trial.daemon.processes().iter().for_each(|process| process.signal(Signal::SIGKILL));
    let after = trial.time_to_normal(PROMISE + STANDSTILL)?;
    trial.daemon.kill_everything();
    Ok(format!("normal {after:?} after SIGKILL"))
}

/// As a service manager does that stops both, of which the daemon has not ended by itself.
fn dismiss(stage: Make) -> Result<String> {
    let mut trial = Trial::with_active_fault(stage, LONG)?;
    trial.daemon.processes().iter().for_each(|process| process.signal(Signal::SIGKILL));
    trial.guard.signal(Signal::SIGTERM);
    let after = trial.time_to_normal(PROMISE + STANDSTILL)?;
    if !wait_until(HANG, || trial.guard.has_ended()) {
        return Err(Error::Different("the guard does not go".into()));
    }
    trial.daemon.kill_everything();
    Ok(format!("normal {after:?} after both were told"))
}

fn stop(stage: Make) -> Result<String> {
    blow(stage, Signal::SIGSTOP, Daemon::processes)
}

fn hang(stage: Make) -> Result<String> {
    blow(stage, Signal::SIGSTOP, |daemon| daemon.injector().into_iter().collect())
}

fn kill_with_guard(stage: Make) -> Result<String> {
    let mut trial = Trial::with_active_fault(stage, LONG)?;
    trial.guard.signal(Signal::SIGKILL);
    trial.daemon.kill_everything();
    trial.guard.kill();
    std::thread::sleep(Duration::from_millis(300));
    if !trial.stage.acts()? {
        return Err(Error::Different("it ended without anybody: it is not of the supervised class".into()));
    }
    let start = Instant::now();
    let said = trial.recover()?;
    let after = start.elapsed();
    if said.contains("STUCK") {
        return Err(Error::Different(said));
    }
    trial.assert_normal()?;
    Ok(format!("recovered in {after:?}"))
}

fn second_writer(stage: Make) -> Result<String> {
    let trial = Trial::with_active_fault(stage, LONG)?;
    let expected = trial.stage.disturb()?;
    let answer = trial.stage.fault().remove(&trial.mcp)?;
    let now = trial.stage.picture()?;
    match expected.iter().find(|words| !now.contains(words.as_str())) {
        None => Ok(answer["message"].as_str().unwrap_or_default().to_owned()),
        Some(words) => Err(Error::Different(format!("there is no {words:?}: {now}; {answer}"))),
    }
}

fn guard_dies(stage: Make) -> Result<String> {
    let mut said = Vec::new();
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let mut trial = Trial::with_active_fault(stage, LONG)?;
        trial.guard.signal(signal);
        let after = trial.time_to_normal(PROMISE + STANDSTILL)?;
        let status = trial.stage.fault().status(&trial.mcp)?;
        if !status["note"].as_str().unwrap_or_default().contains("its guard was lost") {
            return Err(Error::Different(format!("the status does not say why: {status}")));
        }
        said.push(format!("ended {after:?} after {signal} of the guard"));
    }
    Ok(said.join(", "))
}

fn restart(stage: Make) -> Result<String> {
    let mut trial = Trial::with_active_fault(stage, LONG)?;
    let (runtime, state) = (trial.daemon.runtime_dir(), trial.daemon.state_dir());
    let injector = trial.daemon.injector();
    trial.daemon.processes().iter().for_each(|process| process.signal(Signal::SIGKILL));
    // As a service manager does, which waits for no more than the process.
    wait_until(HANG, || !injector.as_ref().is_some_and(Process::runs));
    // At once, in competition with the guard: neither is refused, and both leave nothing.
    let mut next = std::process::Command::new(binary("chaos-daemon")?);
    next.arg("run").arg("--runtime-dir").arg(&runtime).arg("--state-dir").arg(&state);
    next.args(["--environment", "test"]);
    next.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut next = next.spawn().map_err(Error::io("start", "a daemon"))?;
    let serves = wait_until(HANG, || {
        Mcp::connect(&runtime.join("mcp.sock"))
            .is_ok_and(|mcp| mcp.call_tool("chaos_status", json!({})).is_ok())
    });
    let ended = next.try_wait().ok().flatten();
    let normal = trial.assert_normal();
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(next.id().cast_signed()), Signal::SIGTERM);
    let _ = next.wait();
    trial.daemon.kill_everything();
    normal?;
    match (serves, ended) {
        (true, None) => Ok("a daemon started at once serves".into()),
        other => Err(Error::Different(format!("a daemon started at once: {other:?}"))),
    }
}

/// Every further time that somebody meets the limit, status has counted more.
fn count(stage: Make) -> Result<String> {
    let mut trial = Trial::with_active_fault(stage, LONG)?;
    let mut before = 0;
    for _ in 0..2 {
        let mut status = trial.stage.fault().status(&trial.mcp)?;
        let count = |status: &serde_json::Value| status["evidence"]["times_held_back"].as_u64();
        let told = wait_until(HANG, || {
            status = trial.stage.fault().status(&trial.mcp).unwrap_or_default();
            status["state"] == "effective" && count(&status).is_some_and(|now| now > before)
        });
        if !told {
            return Err(Error::Different(format!("more than {before} times: {status}")));
        }
        before = count(&status).unwrap_or_default();
        if !trial.stage.acts()? {
            return Err(Error::Different("it acts no longer".into()));
        }
    }
    Ok(format!("held back {before} times before the last"))
}

/// What the kernel does not count is effective as soon as it is read back.
fn no_count(stage: Make) -> Result<String> {
    let trial = Trial::with_active_fault(stage, LONG)?;
    let status = trial.stage.fault().status(&trial.mcp)?;
    match status["state"] == "effective" && status["evidence"]["times_held_back"].is_null() {
        true => Ok("effective, and not counted".into()),
        false => Err(Error::Different(status.to_string())),
    }
}

/// A test for each scenario on each list of stages.
macro_rules! scenarios {
    ($($name:ident: $scenario:ident on $stages:ident;)*) => {
        $(fn $name(context: &Context) -> TestResult {
            play(context, $stages, $scenario)
        })*
        const PLAYED: &[KernelTest] = &[
            $(KernelTest { name: concat!(module_path!(), "::", stringify!($name)), run: $name }),*
        ];
    };
}

scenarios! {
    removing_ends_a_pause_and_brings_a_link_back_with_all_it_had: removal on PAUSE_AND_LINK;
    removing_lifts_a_limit: removal on LIMITS;
    removing_lifts_a_limit_of_memory: removal on MEMORY;
    removing_lifts_a_limit_of_a_disk: removal on DISK;
    removing_lifts_a_limit_of_one_way_of_a_disk: removal on ONE_WAY;
    a_limit_counts_who_meets_it: count on LIMITS;
    a_limit_of_memory_counts_who_meets_it: count on MEMORY;
    a_limit_of_a_disk_is_not_counted: no_count on DISK;
    removing_sets_the_clock_right: removal on CLOCK;
    removing_sets_a_clock_right_that_is_ahead: removal on CLOCK_AHEAD;
    a_pause_and_a_link_down_end_at_their_time: time on PAUSE_AND_LINK;
    a_limit_ends_at_its_time: time on LIMITS;
    a_clock_skew_ends_at_its_time: time on CLOCK;
    killing_the_daemon_ends_a_pause_and_a_link_down: kill on PAUSE_AND_LINK;
    a_lock_that_anybody_can_take_keeps_neither_a_pause_nor_a_link_down_on: kill_beside_a_lock on PAUSE_AND_LINK;
    killing_the_daemon_lifts_a_limit: kill on LIMITS;
    killing_the_daemon_lifts_a_limit_of_memory: kill on MEMORY;
    killing_the_daemon_lifts_a_limit_of_a_disk: kill on DISK;
    killing_the_daemon_sets_the_clock_right: kill on CLOCK;
    killing_the_daemon_sets_a_clock_right_that_is_ahead: kill on CLOCK_AHEAD;
    stopping_the_daemon_ends_a_pause_and_a_link_down: stop on PAUSE_AND_LINK;
    stopping_the_daemon_lifts_a_limit: stop on LIMITS;
    stopping_the_daemon_sets_the_clock_right: stop on CLOCK;
    an_injector_that_hangs_ends_a_pause_and_a_link_down: hang on PAUSE_AND_LINK;
    killing_everything_and_the_guard_leaves_a_pause_and_a_link_down_to_recover: kill_with_guard on PAUSE_AND_LINK;
    killing_everything_and_the_guard_leaves_a_limit_to_recover: kill_with_guard on LIMITS;
    killing_everything_and_the_guard_leaves_a_clock_to_recover: kill_with_guard on CLOCK;
    removing_brings_a_route_back_whose_source_is_checked_for_duplicates: removal on SOURCED_LINK;
    killing_the_daemon_brings_a_route_back_whose_source_is_checked_for_duplicates: kill on SOURCED_LINK;
    recover_brings_a_route_back_whose_source_is_checked_for_duplicates: kill_with_guard on SOURCED_LINK;
    what_somebody_else_did_to_a_link_that_was_down_stays: second_writer on LINK;
    what_somebody_else_has_limited_since_stays: second_writer on LIMITS;
    what_somebody_else_has_limited_a_disk_to_since_stays: second_writer on DISK;
    a_clock_that_somebody_has_corrected_is_left_alone: second_writer on CLOCK;
    a_guard_that_is_told_to_go_ends_what_a_dead_daemon_has_left_first: dismiss on PAUSE_AND_LINK;
    a_guard_that_dies_or_hangs_ends_a_pause_and_a_link_down: guard_dies on PAUSE_AND_LINK;
    removing_ends_a_rhythm_with_the_link_up_and_all_it_had: removal on FLAPS;
    a_rhythm_ends_at_its_time_with_the_link_up: time on FLAPS;
    killing_the_daemon_ends_a_rhythm_with_the_link_up: kill on FLAPS;
    stopping_the_daemon_ends_a_rhythm_with_the_link_up: stop on FLAPS;
    an_injector_that_hangs_ends_a_rhythm_with_the_link_up: hang on FLAPS;
    a_guard_that_dies_or_hangs_ends_a_rhythm: guard_dies on FLAPS;
    a_daemon_that_starts_while_the_guard_recovers_waits_for_it: restart on PAUSE_AND_LINK;
}

/// Every test of this module.
pub(super) fn all() -> Vec<KernelTest> {
    [PLAYED, flaps::TESTS, groups::TESTS, plans::TESTS, refusals::TESTS].concat()
}
