//! What an undo that does not succeed looks like, of filters that outlive their holder and of settings. That every other death leaves nothing is the crash matrix's
//! (`cargo xtask test --only matrix` and `--only vm-matrix`).

use std::fs;
use std::time::{Duration, Instant};

use chaos_daemon::fail_point::{Action, Point, Role, Trap};
use serde_json::json;

use super::oracle::Verdict;
use super::supervised::stage::{self, Make};
use super::{Attach, Context, Outcome, TestResult, tests};
use crate::fault::Fault;
use crate::late::HANG;
use crate::matrix::PROGRAM;
use crate::matrix::place::{Place, Programs, journals};
use crate::matrix::trap::TrapFile;
use crate::process::wait_until;
use crate::{Error, Mcp};

tests![
    an_undo_that_fails_once_is_stuck_in_sight_and_then_done,
    an_undo_that_fails_twice_is_stuck_in_sight_and_then_done,
    an_undo_that_fails_for_ever_is_stuck_in_sight_until_it_can_be_done,
    a_recovery_that_cannot_undo_says_so_and_the_next_one_can,
    a_setting_that_cannot_be_taken_back_once_is_stuck_in_sight_and_then_done,
    a_setting_that_cannot_be_taken_back_twice_is_stuck_in_sight_and_then_done,
    a_setting_that_can_never_be_taken_back_is_stuck_in_sight_until_it_can,
    a_recovery_that_cannot_take_a_setting_back_says_so_and_the_next_one_can,
    what_a_daemon_that_starts_cannot_take_back_is_stuck_in_sight_until_it_can,
];

/// How long the injector waits before it undoes again.
const RETRY: Duration = Duration::from_secs(2);
/// The first of a fault's stubs: its undo comes after the holder's, and before that of the other stub.
const HALFWAY: u32 = 2;

/// How a partition outlives its holder: by its stubs.
fn by_stubs(context: &Context) -> Attach {
    if context.kernel >= (6, 6) { Attach::Clsact } else { Attach::Auto }
}

fn status(mcp: &Mcp, fault: &Fault) -> Result<(String, String), Error> {
    let status = fault.status(mcp)?;
    Ok(["state", "note"].map(|field| status[field].as_str().unwrap_or_default().to_owned()).into())
}

/// Whether state and note say that it is stuck, and what.
fn is_stuck(shown: &Result<(String, String), Error>, named: &str) -> bool {
    matches!(shown, Ok((state, note)) if state == "stuck" && note.contains(named))
}

/// Removes a partition of which one step cannot be undone, from that of the first stub on, at so many passes.
fn stuck_for(context: &Context, times: Option<u32>) -> TestResult {
    let file = TrapFile::new()?;
    let mut bench = file.bench(by_stubs(context))?;
    let fault = bench.fault("network_partition")?;
    let (daemon, mcp) = bench.ready()?;
    fault.inject(mcp)?;
    let (point, role, action) = (Point::BeforeUndo, Role::Injector, Action::Fail);
    file.set(&Trap { point, role, first: HALFWAY, times, action })?;
    let started = Instant::now();
    let answer =
        mcp.call_tool("chaos_inject_fault", json!({"fault_name": fault.name(), "action": "remove"}))?;
    let residue = answer.json["residue"].as_array().cloned().unwrap_or_default();
    assert!(answer.is_error && answer.json["error"]["code"] == "REVERT_FAILED", "{}", answer.json);
    assert!(!residue.is_empty() && residue[0].to_string().contains("chaos_stub"), "{residue:?}");
    let shown = status(mcp, &fault);
    // The first time that it is tried again ends one that fails once.
    let may_be_over = times == Some(1) && started.elapsed() >= RETRY;
    assert!(may_be_over || is_stuck(&shown, "chaos_stub"), "{shown:?}");
    if times.is_none() {
        std::thread::sleep(2 * RETRY + RETRY / 2);
        assert_eq!(status(mcp, &fault)?.0, "stuck");
        assert!(fs::read_dir(daemon.runtime_dir().join("journal"))?.next().is_some(), "the journal has gone");
        file.clear()?;
    }
    // Registered or not, it is active no more.
    let gone = || fault.status(mcp).map_or(true, |status| status["active"] == false);
    assert!(wait_until(HANG, gone), "{:?}", fault.status(mcp));
    let least = if times == Some(1) { RETRY } else { 2 * RETRY };
    assert!(started.elapsed() >= least.mul_f64(0.9), "done after {:?}", started.elapsed());
    file.clear()?;
    // Traffic is as before, nothing is left, and the name is free.
    bench.judge_survival(&fault, Instant::now())?;
    bench.journal_is_empty()?;
    fault.inject(bench.ready()?.1)?;
    bench.judge_survival(&fault, bench.remove(&fault)?)?;
    Ok(Outcome::Pass)
}

fn an_undo_that_fails_once_is_stuck_in_sight_and_then_done(context: &Context) -> TestResult {
    stuck_for(context, Some(1))
}

fn an_undo_that_fails_twice_is_stuck_in_sight_and_then_done(context: &Context) -> TestResult {
    // The rest of the first attempt, and the beginning of the second.
    stuck_for(context, Some(4))
}

fn an_undo_that_fails_for_ever_is_stuck_in_sight_until_it_can_be_done(context: &Context) -> TestResult {
    stuck_for(context, None)
}

fn a_recovery_that_cannot_undo_says_so_and_the_next_one_can(context: &Context) -> TestResult {
    let file = TrapFile::new()?;
    let mut bench = file.bench(by_stubs(context))?;
    let fault = bench.fault("network_partition")?;
    fault.inject(bench.ready()?.1)?;
    bench.kill_everything()?;
    let (point, role, action) = (Point::BeforeUndo, Role::Recovery, Action::Fail);
    file.set(&Trap { point, role, first: HALFWAY, times: None, action })?;
    for _ in 0..2 {
        let refused = bench.recover();
        let said = format!("{refused:?}");
        assert!(refused?.status.code() == Some(5) && said.contains("STUCK filter chaos_stub"), "{said}");
    }
    file.clear()?;
    bench.judge_death(Instant::now())?;
    Ok(Outcome::Pass)
}

/// A group that is frozen and an interface that is down, and how a note calls that.
const SETTINGS: [(Make, &str); 2] = [(stage::pause, "cgroup.freeze"), (stage::link, "device eth0")];

/// A place where the fault of a setting acts. The undo of the setting comes after the holder's.
fn set(make: Make, file: &TrapFile) -> Result<Place, Error> {
    let environment = file.environment();
    let mut place = Place::new(make, Programs { daemon: PROGRAM, guard: "chaos-daemon", environment })?;
    let fault = place.fault();
    fault.inject(&place.running()?.mcp)?;
    place.assert_acts()?;
    Ok(place)
}

/// Removes the fault of each kind of setting, which cannot be undone at so many passes from the first undo of the setting on.
fn settings_stuck_for(times: Option<u32>) -> TestResult {
    for (make, named) in SETTINGS {
        let file = TrapFile::new()?;
        let mut place = set(make, &file)?;
        let stuck = setting_stuck_for(&mut place, &file, named, times);
        stuck.map_err(|error| format!("{named}: {error}{}", place.log()))?;
    }
    Ok(Outcome::Pass)
}

fn setting_stuck_for(
    place: &mut Place,
    file: &TrapFile,
    named: &str,
    times: Option<u32>,
) -> Result<(), Error> {
    let fault = place.fault();
    let (point, role, action) = (Point::BeforeUndo, Role::Injector, Action::Fail);
    file.set(&Trap { point, role, first: HALFWAY, times, action })?;
    let started = Instant::now();
    let running = place.running()?;
    let remove = json!({"fault_name": fault.name(), "action": "remove"});
    let answer = running.mcp.call_tool("chaos_inject_fault", remove)?;
    assert!(answer.is_error && answer.json["error"]["code"] == "REVERT_FAILED", "{}", answer.json);
    assert!(answer.json["residue"][0].to_string().contains(named), "{}", answer.json);
    let shown = status(&running.mcp, &fault);
    // The first time that it is tried again ends one that fails once.
    let may_be_over = times == Some(1) && started.elapsed() >= RETRY;
    assert!(may_be_over || is_stuck(&shown, named), "{shown:?}");
    if times.is_none() {
        std::thread::sleep(2 * RETRY + RETRY / 2);
        assert_eq!(status(&running.mcp, &fault)?.0, "stuck");
        // What is called stuck is, and the guard leaves it to the injector, which lives.
        place.assert_acts()?;
        assert_eq!(journals(&place.running()?.daemon), 1, "the journal has gone");
        let doctor = place.running()?.mcp.call_tool("chaos_doctor", json!({"residue": true}))?.ok()?;
        let report = &doctor["everywhere"];
        assert!(
            report["level"] == "effect" && report.to_string().contains("which is being undone, still there"),
            "{report}"
        );
        file.clear()?;
    }
    let attempts = if times == Some(1) { 1 } else { 2 };
    let running = place.running()?;
    let gone = || fault.status(&running.mcp).map_or(true, |status| status["active"] == false);
    assert!(wait_until(HANG, gone), "{:?}", fault.status(&running.mcp));
    let least = RETRY * attempts;
    assert!(started.elapsed() >= least.mul_f64(0.9), "done after {:?}", started.elapsed());
    file.clear()?;
    place.judge_survival(&fault)
}

fn a_setting_that_cannot_be_taken_back_once_is_stuck_in_sight_and_then_done(_: &Context) -> TestResult {
    settings_stuck_for(Some(1))
}

fn a_setting_that_cannot_be_taken_back_twice_is_stuck_in_sight_and_then_done(_: &Context) -> TestResult {
    // The setting, and at the second attempt the holder and the setting.
    settings_stuck_for(Some(3))
}

fn a_setting_that_can_never_be_taken_back_is_stuck_in_sight_until_it_can(_: &Context) -> TestResult {
    settings_stuck_for(None)
}

fn a_recovery_that_cannot_take_a_setting_back_says_so_and_the_next_one_can(_: &Context) -> TestResult {
    for (make, named) in SETTINGS {
        let file = TrapFile::new()?;
        let mut place = set(make, &file)?;
        let running = place.running()?;
        running.guard.kill();
        running.daemon.kill_everything();
        let (point, role, action) = (Point::BeforeUndo, Role::Recovery, Action::Fail);
        file.set(&Trap { point, role, first: HALFWAY, times: None, action })?;
        for _ in 0..2 {
            let refused = place.recover()?;
            let said = format!("{refused:?}");
            assert!(
                refused.status.code() == Some(5) && said.contains("STUCK") && said.contains(named),
                "{said}"
            );
            place.assert_acts()?;
        }
        file.clear()?;
        place.judge_recovery()?;
    }
    Ok(Outcome::Pass)
}

/// Nobody is there to undo it but the daemon that starts.
fn what_a_daemon_that_starts_cannot_take_back_is_stuck_in_sight_until_it_can(_: &Context) -> TestResult {
    for (make, named) in SETTINGS {
        let file = TrapFile::new()?;
        let mut place = set(make, &file)?;
        let fault = place.fault();
        let running = place.running()?;
        running.guard.kill();
        running.daemon.kill_everything();
        let (point, role, action) = (Point::BeforeUndo, Role::Injector, Action::Fail);
        file.set(&Trap { point, role, first: HALFWAY, times: None, action })?;
        place.start_again()?;
        let running = place.running()?;
        let shown = || status(&running.mcp, &fault);
        assert!(wait_until(HANG, || is_stuck(&shown(), named)), "{:?}", shown());
        // And is after it has been tried again.
        std::thread::sleep(RETRY + RETRY / 2);
        assert!(is_stuck(&shown(), named), "{:?}", shown());
        place.assert_acts()?;
        // By the folder: a test beside this one may have another fault of this kind.
        let folder = place.running()?.daemon.runtime_dir();
        let verdict = Verdict::ask(&folder)?;
        let left = verdict.names("effect", "journal", &folder.join("journal").to_string_lossy())?;
        assert!(left["what"].as_str().is_some_and(|what| what.contains(named)), "{left}");
        file.clear()?;
        let running = place.running()?;
        let gone = || fault.status(&running.mcp).map_or(true, |status| status["active"] == false);
        assert!(wait_until(HANG, gone), "{:?}", fault.status(&running.mcp));
        place.judge_survival(&fault)?;
    }
    Ok(Outcome::Pass)
}
