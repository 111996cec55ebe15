//! From the installation to a reboot, each with faults active.

mod crashes;
mod drop_ins;
mod experiments;
mod exposure;
mod on_call;
mod patience;
mod processes;
mod reboot;
mod scopes;
mod services;
mod stop_post;
mod storm;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::lab::{Lab, idle};
use super::settings::{HERE, POLICY};
use super::unit::{
    MEMBER, NEXT_PACKAGE, PACKAGE, ROOT, SERVICE, SOCKET, STRANGER, chaosctl, installed, is_active, log,
    main_pid, property, run, say_what_the_host_is, systemctl, wait_restarted,
};
use super::{Test, TestResult, tests, unit};
use crate::late::HANG;
use crate::process::{Process, wait_until};

tests![
    installing_starts_the_daemon_and_opens_it_to_the_group_only,
    a_member_of_the_group_injects_and_removes,
    stopping_the_service_ends_every_fault_and_nobody_starts_it_again_by_connecting,
    who_connects_to_the_socket_alone_starts_the_daemon_and_is_answered,
    killing_the_whole_control_group_ends_every_fault_and_the_daemon_comes_back,
    a_daemon_that_hangs_is_killed_by_the_watchdog_and_comes_back,
    upgrading_ends_every_fault_and_runs_the_new_daemon,
    an_upgrade_keeps_the_policy_and_a_stopped_daemon_stopped,
];

/// Every test of the first boot; the last one is what the reboot interrupts.
pub(super) fn all() -> Vec<Test> {
    [
        TESTS,
        exposure::TESTS,
        processes::TESTS,
        services::TESTS,
        scopes::TESTS,
        crashes::TESTS,
        drop_ins::TESTS,
        experiments::TESTS,
        storm::TESTS,
        on_call::TESTS,
        stop_post::TESTS,
        reboot::TESTS,
    ]
    .concat()
}

const SOCKET_PATH: &str = "/run/chaos-daemon/mcp.sock";

fn installing_starts_the_daemon_and_opens_it_to_the_group_only() -> TestResult {
    run("dpkg", &["--install", PACKAGE])?;
    // "Started" was told by the daemon itself: no waiting here.
    assert!(is_active(SERVICE) && is_active(SOCKET), "{}", log());
    for unit in [SERVICE, SOCKET] {
        assert_eq!(systemctl(&["is-enabled", unit])?.trim(), "enabled");
    }
    installed()?;
    let socket = fs::metadata(SOCKET_PATH)?;
    let group = run("getent", &["group", "chaos"])?;
    let gid: u32 = group.split(':').nth(2).unwrap_or_default().parse()?;
    assert_eq!((socket.uid(), socket.gid(), socket.permissions().mode() & 0o7777), (0, gid, 0o660));
    chaosctl(MEMBER, &["doctor"])?;
    let refused = Command::new("runuser").args(["-u", STRANGER, "--", "chaosctl", "status"]).output()?;
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(property(SERVICE, "StatusText")?.contains("0 faults"), "{}", property(SERVICE, "StatusText")?);
    // Until somebody has said what the host is, nothing is injected.
    let inject = ["inject", "resource_exhaustion", "--resource", "cpu", "--cpu-percent", "1", "--for", "1s"];
    let refused = chaosctl(ROOT, &inject).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("it is not said what this host is"), "{refused}");
    say_what_the_host_is()?;
    chaosctl(ROOT, &inject)?;
    Ok(())
}

fn a_member_of_the_group_injects_and_removes() -> TestResult {
    installed()?;
    let lab = Lab::with_active_faults()?;
    let told = || property(SERVICE, "StatusText").is_ok_and(|text| text.starts_with("2 faults"));
    assert!(wait_until(HANG, told), "{}", property(SERVICE, "StatusText")?);
    // They are root's: anybody ends them who says so.
    assert!(chaosctl(MEMBER, &["stop", "slow"]).is_err(), "ended by a name that is not the member's");
    chaosctl(MEMBER, &["stop", "0/slow"])?;
    chaosctl(MEMBER, &["remove", "0/cut"])?;
    lab.time_to_normal(Duration::from_secs(2))?;
    lab.assert_clean(idle())?;
    Ok(())
}

fn stopping_the_service_ends_every_fault_and_nobody_starts_it_again_by_connecting() -> TestResult {
    installed()?;
    let lab = Lab::with_active_faults()?;
    systemctl(&["stop", SERVICE])?;
    let after = lab.time_to_normal(Duration::from_secs(2))?;
    println!("normal {after:?} after systemctl stop had returned");
    lab.assert_clean(0)?;
    assert!(chaosctl(MEMBER, &["status"]).is_err(), "somebody answered");
    assert!(!is_active(SERVICE) && !is_active(SOCKET) && !Path::new(SOCKET_PATH).exists());
    systemctl(&["start", SERVICE])?;
    // Faults stay registered, and do not come back by themselves.
    chaosctl(MEMBER, &["status"])?;
    lab.assert_clean(idle())?;
    Ok(())
}

fn who_connects_to_the_socket_alone_starts_the_daemon_and_is_answered() -> TestResult {
    installed()?;
    systemctl(&["stop", SERVICE])?;
    systemctl(&["start", SOCKET])?;
    assert!(is_active(SOCKET) && !is_active(SERVICE) && unit::processes().is_empty());
    let status = chaosctl(MEMBER, &["status"])?;
    assert!(is_active(SERVICE), "{status}; {}", log());
    Ok(())
}

fn killing_the_whole_control_group_ends_every_fault_and_the_daemon_comes_back() -> TestResult {
    installed()?;
    let lab = Lab::with_active_faults()?;
    let (before, all) = (main_pid()?, unit::processes());
    systemctl(&["kill", "--kill-whom=all", "--signal=KILL", SERVICE])?;
    let after = lab.time_to_normal(Duration::from_secs(5))?;
    println!("normal {after:?} after the kill of {} processes", all.len());
    wait_restarted(before)?;
    assert!(!all.iter().any(Process::runs));
    lab.assert_clean(idle())?;
    chaosctl(MEMBER, &["doctor"])?;
    Ok(())
}

fn a_daemon_that_hangs_is_killed_by_the_watchdog_and_comes_back() -> TestResult {
    installed()?;
    let lab = Lab::with_active_faults()?;
    let before = main_pid()?;
    let injector = Process::read(before).ok_or("no injector")?;
    injector.signal(Signal::SIGSTOP);
    // Faults do not wait for the watchdog: the lease is 3 s.
    let after = lab.time_to_normal(Duration::from_secs(8))?;
    println!("normal {after:?} after the injector was stopped");
    wait_restarted(before)?;
    assert!(!injector.runs());
    assert!(log().contains("atchdog"), "systemd did not say that it was the watchdog: {}", log());
    lab.assert_clean(idle())?;
    Ok(())
}

fn upgrading_ends_every_fault_and_runs_the_new_daemon() -> TestResult {
    installed()?;
    let lab = Lab::with_active_faults()?;
    let before = main_pid()?;
    fs::write(POLICY, format!("{HERE}max_active = 7\n"))?;
    run("dpkg", &["--install", "--force-confold", NEXT_PACKAGE])?;
    assert!(run("dpkg-query", &["--show", "chaos-daemon"])?.contains("next"));
    lab.time_to_normal(Duration::from_secs(2))?;
    assert!(is_active(SERVICE) && main_pid()? != before, "{}", log());
    // A replaced file is called "(deleted)".
    let executable = fs::read_link(format!("/proc/{}/exe", main_pid()?))?;
    assert_eq!(executable, Path::new("/usr/bin/chaos-daemon"));
    lab.assert_clean(idle())?;
    Ok(())
}

fn an_upgrade_keeps_the_policy_and_a_stopped_daemon_stopped() -> TestResult {
    installed()?;
    fs::write(POLICY, format!("{HERE}max_active = 7\n"))?;
    systemctl(&["stop", SERVICE])?;
    run("dpkg", &["--install", "--force-confold", NEXT_PACKAGE])?;
    assert_eq!(fs::read_to_string(POLICY)?, format!("{HERE}max_active = 7\n"));
    assert!(!is_active(SERVICE), "an upgrade started what the operator had stopped");
    assert!(unit::processes().is_empty());
    systemctl(&["start", SERVICE])?;
    chaosctl(MEMBER, &["doctor"])?;
    Ok(())
}
