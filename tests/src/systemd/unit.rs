//! The service as systemd and dpkg see it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};
use crate::late::{self, HANG};
use crate::netns::output;
use crate::process::{self, Process, wait_until};

pub(super) const SERVICE: &str = "chaos-daemon.service";
pub(super) const GUARD: &str = "chaos-daemon-guard.service";
/// Kills every process of the service at once (cgroup-v2.rst, `cgroup.kill`).
pub(super) const SERVICE_KILL: &str = "/sys/fs/cgroup/system.slice/chaos-daemon.service/cgroup.kill";
pub(super) const SOCKET: &str = "chaos-daemon.socket";
/// The package, and the same with a higher version.
pub(super) const PACKAGE: &str = "/chaos/this.deb";
pub(super) const NEXT_PACKAGE: &str = "/chaos/next.deb";
/// A user of the machine who may use the socket.
pub(super) const MEMBER: &str = "alice";
/// Who may name what root keeps.
pub(super) const ROOT: &str = "root";
/// A user who may not.
pub(super) const STRANGER: &str = "mallory";

pub(super) fn run(program: &str, args: &[&str]) -> Result<String> {
    output(Command::new(program).args(args))
}

pub(crate) fn systemctl(args: &[&str]) -> Result<String> {
    run("systemctl", args)
}

/// A property of the service.
pub(super) fn property(unit: &str, name: &str) -> Result<String> {
    systemctl(&["show", "--value", "--property", name, unit]).map(|text| text.trim().to_owned())
}

/// Process id of the injector; 0 when there is none.
pub(super) fn main_pid() -> Result<i32> {
    main_pid_of(SERVICE)
}

/// Process id of a unit's main process; 0 when there is none.
pub(super) fn main_pid_of(unit: &str) -> Result<i32> {
    let text = property(unit, "MainPID")?;
    text.parse().map_err(|error| Error::Different(format!("MainPID is {text:?}: {error}")))
}

pub(super) fn is_active(unit: &str) -> bool {
    property(unit, "ActiveState").is_ok_and(|state| state == "active")
}

/// Whether a unit is active with another main process than `before`. Asked for in one: between two questions the old process may
/// end, and the new one is not ready yet.
pub(super) fn is_active_anew(unit: &str, before: i32) -> bool {
    let Ok(text) = systemctl(&["show", "--property", "ActiveState,MainPID", unit]) else { return false };
    let is = |name: &str, right: &dyn Fn(&str) -> bool| {
        text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).any(right)
    };
    let is_new = |pid: &str| pid.parse::<i32>().is_ok_and(|pid| pid != 0 && pid != before);
    is("ActiveState", &|state| state == "active") && is("MainPID", &is_new)
}

/// Waits until the service is active with another main process than `before`.
pub(super) fn wait_restarted(before: i32) -> Result<()> {
    match wait_until(HANG, || is_active_anew(SERVICE, before)) {
        true => Ok(()),
        false => Err(Error::Hung { what: format!("{SERVICE} active again; {}", log()) }),
    }
}

/// Has the package, and the two users, if they are not there yet.
pub(super) fn installed() -> Result<()> {
    let is_new = !Path::new("/usr/bin/chaos-daemon").exists();
    if is_new {
        run("dpkg", &["--install", PACKAGE])?;
    }
    for user in [MEMBER, STRANGER] {
        if run("id", &[user]).is_err() {
            run("useradd", &[user])?;
        }
    }
    run("usermod", &["--append", "--groups", "chaos", MEMBER])?;
    match wait_until(HANG, || is_active(SERVICE)) {
        true if is_new => say_what_the_host_is(),
        true => Ok(()),
        false => Err(Error::Hung { what: format!("{SERVICE} active; {}", log()) }),
    }
}

/// Without that, nothing is injected.
pub(super) fn say_what_the_host_is() -> Result<()> {
    chaosctl(ROOT, &["policy", "init", "--environment", "test"])?;
    systemctl(&["reload", SERVICE])?;
    match wait_until(HANG, || log().contains("the policy was read again")) {
        true => Ok(()),
        false => Err(Error::Hung { what: format!("another policy; {}", log()) }),
    }
}

/// Runs `chaosctl` as a user. What only the processor was too slow for is late, and nothing worse.
pub(super) fn chaosctl(user: &str, args: &[&str]) -> Result<String> {
    let said = output(Command::new("runuser").args(["-u", user, "--", "chaosctl"]).args(args));
    said.map_err(|error| match too_slow(&error.to_string()) {
        true => Error::Different(format!("{}{error}", late::MARK)),
        false => error,
    })
}

/// Whether a look at the host was given up that takes too much of a processor. An emulated one needs twenty times as long for it as a
/// real one.
pub(super) fn too_slow(error: &str) -> bool {
    error.contains("a look at this host may take")
}

/// Every process of the daemon but its guard, whoever started it: by its executable, also if that was replaced since.
pub(super) fn processes() -> Vec<Process> {
    let mut all = process::all();
    all.retain(|process| {
        let executable = fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
        let guard = process.arguments.get(1).is_some_and(|word| word == "guard");
        executable.to_string_lossy().starts_with("/usr/bin/chaos-daemon") && process.state != 'Z' && !guard
    });
    all
}

/// Says a figure that was measured, also on the console of the machine: what a test that passes prints is not kept.
pub(super) fn say(text: &str) {
    println!("{text}");
    drop(fs::write("/dev/console", format!("{text}\n")));
}

/// The last lines of the service's log.
pub(super) fn log() -> String {
    run("journalctl", &["--no-pager", "--lines=30", "--unit=chaos-daemon*", "--output=cat"])
        .unwrap_or_else(|error| error.to_string())
}
