//! Faults that outlive the daemon, under systemd: the guard's unit ends them when the service is killed or hangs.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};

use super::lab::{assert_idle, idle};
use super::settings::{DropIn, OtherPolicy};
use super::supervised::{PROMISE, Supervised};
use super::unit::{
    GUARD, MEMBER, NEXT_PACKAGE, SERVICE, SERVICE_KILL, chaosctl, installed, is_active, is_active_anew, log,
    main_pid, main_pid_of, run, say, systemctl, wait_restarted,
};
use super::{TestResult, tests};
use crate::error::{Error, Result};
use crate::late::{HANG, on_this_machine, within};
use crate::process::{Process, wait_until};

tests![
    the_guard_runs_beside_the_daemon_and_is_exposed_no_more_than_it,
    a_service_that_is_killed_has_its_pause_undone_within_three_seconds,
    a_service_that_is_killed_has_its_limit_undone_within_three_seconds,
    a_service_that_is_killed_has_its_cpu_limit_undone_within_three_seconds,
    a_service_that_is_killed_has_its_memory_limit_undone_within_three_seconds,
    a_service_that_is_killed_has_its_io_limit_undone_within_three_seconds,
    a_service_that_is_killed_has_its_link_up_again_within_three_seconds,
    a_service_that_is_killed_has_the_clock_set_right_within_three_seconds_with_the_drop_in_for_it,
    a_service_that_hangs_has_its_faults_undone_within_three_seconds,
    a_guard_that_is_killed_is_started_again_and_its_faults_have_ended,
    a_guard_that_hangs_has_its_faults_ended_by_the_daemon_and_is_started_again_by_its_watchdog,
    a_service_and_a_guard_that_are_killed_at_once_come_back_and_their_faults_have_ended,
    an_upgrade_ends_supervised_faults,
    stopping_the_service_ends_supervised_faults_and_the_guard,
];

/// As [`SERVICE_KILL`], of the guard's.
const GUARD_KILL: &str = "/sys/fs/cgroup/system.slice/chaos-daemon-guard.service/cgroup.kill";
/// For the watchdog of the guard's unit to miss it.
const BY_WATCHDOG: Duration = Duration::from_secs(30);
/// Of each kind.
const KILLS: usize = 3;

/// Has the daemon ready once more, however often it has been killed within a minute.
fn again(before: i32) -> Result<()> {
    wait_restarted(before)?;
    systemctl(&["reset-failed", SERVICE]).map(drop)?;
    match wait_until(HANG, || is_active(GUARD)) {
        true => Ok(()),
        false => Err(Error::Different(format!("no guard after {HANG:?}; {}", log()))),
    }
}

fn in_time(took: Duration) -> Result<()> {
    normal_within(PROMISE, took)
}

fn normal_within(promise: Duration, took: Duration) -> Result<()> {
    within(on_this_machine(promise)?, took, "the way back to normal")
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
    let lab = Supervised::new()?;
    for count in 1..=KILLS {
        lab.inject(kind)?;
        let before = main_pid()?;
        // What `systemctl kill --signal=KILL` comes to, without the time that systemctl takes.
        fs::write(SERVICE_KILL, "1")?;
        let start = Instant::now();
        wait_until(HANG, || lab.ended(kind));
        let took = start.elapsed();
        say(&format!("{kind} {count}: normal {took:?} after every process of the service was killed"));
        assert!(lab.normal(), "{}", lab.picture());
        again(before)?;
        in_time(took)?;
    }
    lab.assert_clean()?;
    Ok(())
}

fn a_service_that_is_killed_has_its_pause_undone_within_three_seconds() -> TestResult {
    killed("pause")
}

fn a_service_that_is_killed_has_its_limit_undone_within_three_seconds() -> TestResult {
    killed("limit")
}

fn a_service_that_is_killed_has_its_cpu_limit_undone_within_three_seconds() -> TestResult {
    killed("cpu")
}

fn a_service_that_is_killed_has_its_memory_limit_undone_within_three_seconds() -> TestResult {
    killed("memory")
}

fn a_service_that_is_killed_has_its_io_limit_undone_within_three_seconds() -> TestResult {
    killed("io")
}

fn a_service_that_is_killed_has_its_link_up_again_within_three_seconds() -> TestResult {
    killed("link")
}

/// What the documentation gives both units for a clock, and by how many seconds it is put wrong.
const CLOCK: &str = "CapabilityBoundingSet=CAP_SYS_TIME\nProtectClock=no\nSystemCallFilter=@clock\n";
const OFFSET: &str = "3600";

fn a_service_that_is_killed_has_the_clock_set_right_within_three_seconds_with_the_drop_in_for_it()
-> TestResult {
    installed()?;
    let inject = ["inject", "clock_skew", "--offset-seconds", OFFSET, "--for", "10m"];
    let _policy = OtherPolicy::of("clock_skew = true\n")?;
    let refused = run("chaosctl", &inject).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("CAP_SYS_TIME"), "{refused}");
    let _drop_in = DropIn::install(&[SERVICE, GUARD], CLOCK)?;
    systemctl(&["restart", GUARD])?;
    assert!(wait_until(HANG, || is_active(GUARD)), "{}", log());
    let (normal, offset) = (clock_offset()?, OFFSET.parse::<f64>()?);
    let moved = || clock_offset().map_or(f64::INFINITY, |now| now - normal);
    for count in 1..=KILLS {
        run("chaosctl", &inject)?;
        assert!((moved() - offset).abs() < 60.0, "the clock is {} s ahead", moved());
        let before = main_pid()?;
        fs::write(SERVICE_KILL, "1")?;
        let start = Instant::now();
        wait_until(HANG, || moved().abs() < 1.0);
        let took = start.elapsed();
        say(&format!("clock {count}: normal {took:?} after every process of the service was killed"));
        assert!(moved().abs() < 1.0, "the clock is {} s ahead", moved());
        again(before)?;
        in_time(took)?;
    }
    Ok(())
}

/// Wall clock less the clock that nobody sets, in seconds.
fn clock_offset() -> Result<f64> {
    let read = |clock| clock_gettime(clock).map(Duration::from).map_err(Error::sys("read", "a clock"));
    Ok(read(ClockId::CLOCK_REALTIME)?.as_secs_f64() - read(ClockId::CLOCK_BOOTTIME)?.as_secs_f64())
}

fn a_service_that_hangs_has_its_faults_undone_within_three_seconds() -> TestResult {
    installed()?;
    let lab = Supervised::new()?;
    lab.inject_all()?;
    let before = main_pid()?;
    Process::read(before).ok_or("no injector")?.signal(Signal::SIGSTOP);
    let took = lab.time_to_normal(HANG)?;
    say(&format!("normal {took:?} after the injector was stopped"));
    again(before)?;
    in_time(took)?;
    lab.assert_clean()?;
    Ok(())
}

fn a_guard_that_is_killed_is_started_again_and_its_faults_have_ended() -> TestResult {
    installed()?;
    let lab = Supervised::new()?;
    lab.inject_all()?;
    let before = main_pid_of(GUARD)?;
    systemctl(&["kill", "--signal=KILL", GUARD])?;
    // Either the new guard is there before the daemon has missed the old one, or the daemon ends them.
    assert!(wait_until(HANG, || is_active_anew(GUARD, before)), "{}", log());
    chaosctl(MEMBER, &["stop", "--all"])?;
    normal_within(2 * PROMISE, lab.time_to_normal(HANG)?)?;
    lab.inject_all()?;
    chaosctl(MEMBER, &["stop", "--all"])?;
    lab.assert_clean()?;
    Ok(())
}

fn a_guard_that_hangs_has_its_faults_ended_by_the_daemon_and_is_started_again_by_its_watchdog() -> TestResult
{
    installed()?;
    let lab = Supervised::new()?;
    lab.inject_all()?;
    let before = main_pid_of(GUARD)?;
    Process::read(before).ok_or("no guard")?.signal(Signal::SIGSTOP);
    let start = Instant::now();
    let took = lab.time_to_normal(HANG)?;
    normal_within(2 * PROMISE, took)?;
    say(&format!("normal {took:?} after the guard was stopped"));
    assert!(wait_until(HANG, || chaosctl(MEMBER, &["doctor"]).is_ok_and(|said| said.contains("is silent"))));
    let refused = lab.inject_all().map_or_else(|error| error.to_string(), |()| "injected".to_owned());
    assert!(refused.contains("needs a guard"), "without a guard: {refused}");
    assert!(wait_until(BY_WATCHDOG + HANG, || is_active_anew(GUARD, before)), "{}", log());
    say(&format!("a new guard {:?} after the old one was stopped", start.elapsed()));
    lab.inject_all()?;
    chaosctl(MEMBER, &["stop", "--all"])?;
    lab.assert_clean()?;
    Ok(())
}

fn a_service_and_a_guard_that_are_killed_at_once_come_back_and_their_faults_have_ended() -> TestResult {
    installed()?;
    let lab = Supervised::new()?;
    for count in 1..=KILLS {
        lab.inject_all()?;
        let before = main_pid()?;
        fs::write(SERVICE_KILL, "1")?;
        fs::write(GUARD_KILL, "1")?;
        let took = lab.time_to_normal(HANG)?;
        say(&format!("all {count}: normal {took:?} after service and guard were killed at once"));
        again(before)?;
    }
    lab.assert_clean()?;
    Ok(())
}

fn an_upgrade_ends_supervised_faults() -> TestResult {
    installed()?;
    let lab = Supervised::new()?;
    lab.inject_all()?;
    let before = main_pid()?;
    run("dpkg", &["--install", "--force-confold", NEXT_PACKAGE])?;
    // The old daemon ends them when it is stopped, which dpkg waits for.
    assert!(lab.normal(), "{}", lab.picture());
    again(before)?;
    assert_idle(idle())?;
    lab.assert_clean()?;
    Ok(())
}

fn stopping_the_service_ends_supervised_faults_and_the_guard() -> TestResult {
    installed()?;
    let lab = Supervised::new()?;
    lab.inject_all()?;
    systemctl(&["stop", SERVICE])?;
    assert!(lab.normal(), "{}", lab.picture());
    assert!(wait_until(HANG, || !is_active(GUARD)), "the guard goes on without anybody to guard");
    systemctl(&["start", SERVICE])?;
    assert!(wait_until(HANG, || is_active(GUARD)), "{}", log());
    lab.assert_clean()?;
    Ok(())
}
