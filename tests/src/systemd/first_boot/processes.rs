//! Faults of a service's processes, within the rights that the installed unit has.

use std::fs;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::systemd::lab::{assert_idle, idle};
use crate::systemd::settings::DropIn;
use crate::systemd::unit::{
    MEMBER, SERVICE, chaosctl, installed, log, main_pid, property, systemctl, wait_restarted,
};
use crate::systemd::{TestResult, tests};

tests![
    the_installed_daemon_pauses_a_service_which_goes_on_when_the_daemon_is_killed,
    a_service_that_the_installed_daemon_kills_is_seen_to_be_started_again,
    services_that_the_host_needs_are_refused_by_name,
];

const VICTIM: &str = "chaos-victim.service";
const UNIT_FILE: &str = "/run/systemd/system/chaos-victim.service";
/// Of another user, so that it takes capabilities to see, trace and signal it.
const UNIT: &str =
    "[Service]\nType=exec\nUser=nobody\nExecStart=sleep infinity\nRestart=always\nRestartSec=200ms\n";

/// The service, gone when this is.
struct Victim;

impl Victim {
    fn start() -> Result<Self> {
        fs::write(UNIT_FILE, UNIT).map_err(Error::io("write", UNIT_FILE))?;
        let victim = Self;
        systemctl(&["daemon-reload"])?;
        systemctl(&["start", VICTIM])?;
        Ok(victim)
    }

    fn pid() -> i32 {
        property(VICTIM, "MainPID").ok().and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = systemctl(&["stop", VICTIM]);
        let _ = fs::remove_file(UNIT_FILE);
        let _ = systemctl(&["daemon-reload"]);
    }
}

fn state(pid: i32) -> Option<char> {
    Process::read(pid).map(|process| process.state)
}

fn the_installed_daemon_pauses_a_service_which_goes_on_when_the_daemon_is_killed() -> TestResult {
    installed()?;
    let _victim = Victim::start()?;
    let pid = Victim::pid();
    let pause = ["inject", "process_pause", "--name", "still", "--unit", VICTIM, "--for", "10m"];
    let refused = chaosctl(MEMBER, &pause).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        refused.contains("UNSUPPORTED_KERNEL") && refused.contains("SystemCallFilter=ptrace"),
        "{refused}"
    );
    let _may_trace = DropIn::install(&[SERVICE], "SystemCallFilter=ptrace\n")?;
    let shown = chaosctl(MEMBER, &["--json", "targets", "process_pause", "--unit", VICTIM])?;
    let shown: Value = serde_json::from_str(&shown)?;
    let process = &shown["processes"][0];
    assert!(process["pid"] == pid && process["unit"] == VICTIM && shown["matching"] == 1, "{shown}");
    chaosctl(MEMBER, &pause)?;
    assert_eq!(state(pid), Some('t'), "{}", log());
    chaosctl(MEMBER, &["remove", "still"])?;
    assert_eq!(state(pid), Some('S'));

    chaosctl(MEMBER, &pause)?;
    assert_eq!(state(pid), Some('t'), "{}", log());
    let before = main_pid()?;
    systemctl(&["kill", "--kill-whom=all", "--signal=KILL", SERVICE])?;
    assert!(wait_until(HANG, || state(pid) == Some('S')), "{:?}", state(pid));
    wait_restarted(before)?;
    assert_eq!(Victim::pid(), pid, "the service was restarted");
    chaosctl(MEMBER, &["remove", "still"])?;
    assert_idle(idle())?;
    Ok(())
}

fn a_service_that_the_installed_daemon_kills_is_seen_to_be_started_again() -> TestResult {
    installed()?;
    let _victim = Victim::start()?;
    let pid = Victim::pid();
    chaosctl(MEMBER, &["inject", "process_kill", "--name", "gone", "--unit", VICTIM, "--for", "10m"])?;
    let started = || !matches!(Victim::pid(), 0) && Victim::pid() != pid;
    assert!(wait_until(HANG, started), "{}", log());
    let mut evidence = Value::Null;
    let seen = wait_until(HANG, || {
        let status = chaosctl(MEMBER, &["--json", "status"]).unwrap_or_default();
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let faults = status["active_faults"].as_array().cloned().unwrap_or_default();
        let gone = faults.into_iter().find(|fault| fault["name"] == "gone").unwrap_or_default();
        evidence = gone["evidence"].clone();
        evidence["back_after_seconds"].is_number()
    });
    assert!(seen && evidence["processes_ended"] == 1, "{evidence}; {}", log());
    chaosctl(MEMBER, &["remove", "gone"])?;
    assert_idle(idle())?;
    Ok(())
}

fn services_that_the_host_needs_are_refused_by_name() -> TestResult {
    installed()?;
    for unit in ["systemd-journald.service", "dbus.service", SERVICE, "chaos-daemon-guard.service"] {
        let Err(refused) = chaosctl(MEMBER, &["targets", "process_kill", "--unit", unit]) else {
            return Err(format!("{unit} would be killed").into());
        };
        let refused = refused.to_string();
        // A system may have no message bus.
        let absent = unit == "dbus.service" && refused.contains("TARGET_NOT_FOUND");
        assert!(refused.contains("TARGET_PROTECTED") || absent, "{unit}: {refused}");
    }
    // What the unit lacks is said before anything of the target.
    let _may_trace = DropIn::install(&[SERVICE], "SystemCallFilter=ptrace\n")?;
    let refused =
        chaosctl(MEMBER, &["targets", "process_pause", "--pid", "1"]).err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|error| error.contains("TARGET_PROTECTED")), "{refused:?}");
    Ok(())
}
