//! Services that the installed daemon stops and restarts, as systemd shows them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::systemd::service::Service;
use crate::systemd::settings::OtherPolicy;
use crate::systemd::unit::{
    GUARD, MEMBER, SERVICE, SERVICE_KILL, chaosctl, installed, is_active, log, main_pid, main_pid_of,
    processes, property, run, say, systemctl, wait_restarted,
};
use crate::systemd::{TestResult, tests};

tests![
    a_service_is_stopped_while_the_fault_lasts_and_started_again,
    a_service_is_started_again_when_the_daemon_is_killed_or_hangs,
    what_somebody_else_did_with_a_stopped_service_stays,
    a_stopped_service_stays_stopped_while_systemd_does_not_answer,
    services_that_cannot_or_must_not_be_stopped_are_refused_by_name,
    a_restart_says_how_long_the_service_was_gone_and_warns_if_it_does_not_come_back,
    a_probe_tells_how_a_unit_is_and_how_often_systemd_has_started_it_again,
    a_probe_counts_what_a_unit_logs_and_what_is_in_a_file_where_the_policy_names_them,
];

const NAME: &str = "chaos-stopped.service";
/// It starts only while this file is there.
const CONDITION: &str = "/run/chaos-stopped-may-start";
/// `Restart=always`: who stops it has to do so by systemd.
const UNIT: &str = "[Service]\nType=exec\nExecStartPre=test -e /run/chaos-stopped-may-start\nExecStart=sleep infinity\n\
                    Restart=always\nRestartSec=200ms\n";
/// Longer than a lease, than `RestartSec=`, and than a unit takes to be started.
const LONG_ENOUGH: Duration = Duration::from_secs(5);
/// Longer than an answer of systemd is waited for, and than two leases.
const SILENCE: Duration = Duration::from_secs(20);

fn victim() -> Result<Service> {
    fs::write(CONDITION, "").map_err(Error::io("write", CONDITION))?;
    Service::start(NAME, UNIT)
}

/// Has it stopped, and sees that it is; the process that it was.
fn stop(victim: &Service, lasting: &str) -> Result<i32> {
    let pid = victim.pid();
    chaosctl(MEMBER, &["inject", "service_stop", "--name", "gone", "--unit", victim.name, "--for", lasting])?;
    match (victim.state().as_str(), Path::new(&format!("/proc/{pid}")).exists()) {
        ("inactive" | "failed", false) => Ok(pid),
        other => Err(Error::Different(format!("not stopped: {other:?}; {}", log()))),
    }
}

/// No undo is pending, and no holder is there but the warm one.
fn nothing_is_left() -> Result<()> {
    let pending = || fs::read_dir("/run/chaos-daemon/journal").map_or(0, Iterator::count);
    let is_holder = |process: &Process| process.arguments.get(1).is_some_and(|word| word == "holder");
    let holders = || processes().iter().filter(|process| is_holder(process)).count();
    match wait_until(HANG, || pending() == 0 && holders() <= 1) {
        true => Ok(()),
        false => Err(Error::Different(format!("{} journals, {} holders; {}", pending(), holders(), log()))),
    }
}

fn status(name: &str) -> Value {
    let status = chaosctl(MEMBER, &["--json", "status"]).unwrap_or_default();
    fault_of(&serde_json::from_str(&status).unwrap_or_default(), name)
}

/// The fault of this name in a status, which may have others that are registered.
fn fault_of(status: &Value, name: &str) -> Value {
    let faults = status["active_faults"].as_array().cloned().unwrap_or_default();
    // Those of others bear their owner before their name.
    let plain = |fault: &Value| fault["name"].as_str().and_then(|name| name.rsplit('/').next()) == Some(name);
    faults.into_iter().find(plain).unwrap_or_default()
}

fn a_service_is_stopped_while_the_fault_lasts_and_started_again() -> TestResult {
    installed()?;
    let victim = victim()?;
    let pid = stop(&victim, "10m")?;
    let seen = status("gone");
    assert!(seen["lifetime"] == "supervised" && seen["state"] == "effective", "{seen}");
    std::thread::sleep(LONG_ENOUGH);
    assert!(!is_active(NAME), "somebody has started it");
    chaosctl(MEMBER, &["remove", "gone"])?;
    victim.time_to_normal(pid, HANG)?;

    let pid = stop(&victim, "4s")?;
    let after = victim.time_to_normal(pid, HANG)?;
    say(&format!("a stop of 4 s ended by itself {after:?} after it was seen"));

    // And when the daemon is stopped in order.
    let pid = stop(&victim, "10m")?;
    systemctl(&["stop", SERVICE])?;
    victim.time_to_normal(pid, HANG)?;
    systemctl(&["start", SERVICE])?;
    nothing_is_left()?;
    Ok(())
}

fn a_service_is_started_again_when_the_daemon_is_killed_or_hangs() -> TestResult {
    installed()?;
    let victim = victim()?;
    let pid = stop(&victim, "10m")?;
    let before = main_pid()?;
    fs::write(SERVICE_KILL, "1")?;
    // How soon is said and not judged: to start a unit takes an emulated machine seconds of its own. `cargo xtask bench --only kills`
    // measures the promise.
    let after = victim.time_to_normal(pid, HANG)?;
    say(&format!("a stopped service was started {after:?} after every process of the daemon was killed"));
    wait_restarted(before)?;
    let _ = systemctl(&["reset-failed", SERVICE]);
    assert!(wait_until(HANG, || is_active(GUARD)), "{}", log());

    let pid = stop(&victim, "10m")?;
    let before = main_pid()?;
    Process::read(before).ok_or("no injector")?.signal(Signal::SIGSTOP);
    let after = victim.time_to_normal(pid, HANG)?;
    say(&format!("a stopped service was started {after:?} after the injector was stopped"));
    wait_restarted(before)?;
    let _ = systemctl(&["reset-failed", SERVICE]);
    assert!(wait_until(HANG, || is_active(GUARD)), "{}", log());
    nothing_is_left()?;
    Ok(())
}

fn what_somebody_else_did_with_a_stopped_service_stays() -> TestResult {
    installed()?;
    let victim = victim()?;
    stop(&victim, "10m")?;
    systemctl(&["start", NAME])?;
    let theirs = victim.pid();
    let said = chaosctl(MEMBER, &["--json", "remove", "gone"])?;
    assert!(said.contains("started by somebody else") && victim.pid() == theirs, "{said}; {}", log());

    // What nothing refers to systemd would forget.
    let refers = Service::start(
        "chaos-refers.service",
        "[Unit]\nWants=chaos-stopped.service\n[Service]\nExecStart=sleep infinity\n",
    )?;
    stop(&victim, "10m")?;
    systemctl(&["start", NAME])?;
    let theirs = property(NAME, "InvocationID")?;
    systemctl(&["stop", NAME])?;
    let remembered = property(NAME, "InvocationID")?;
    assert!(!theirs.is_empty() && remembered == theirs, "systemd has forgotten it: {theirs}, {remembered:?}");
    let said = chaosctl(MEMBER, &["--json", "remove", "gone"])?;
    assert!(said.contains("stopped by somebody else") && !is_active(NAME), "{said}; {}", log());
    drop(refers);
    systemctl(&["start", NAME])?;

    stop(&victim, "10m")?;
    fs::remove_file(victim.file())?;
    systemctl(&["mask", "--runtime", NAME])?;
    let said = chaosctl(MEMBER, &["--json", "remove", "gone"])?;
    assert!(said.contains("masked") && !is_active(NAME), "{said}; {}", log());
    nothing_is_left()?;
    Ok(())
}

fn a_stopped_service_stays_stopped_while_systemd_does_not_answer() -> TestResult {
    installed()?;
    let victim = victim()?;
    let pid = stop(&victim, "10m")?;
    let bus = Process::read(main_pid_of("dbus.service")?).ok_or("no message bus")?;
    bus.signal(Signal::SIGSTOP);
    std::thread::sleep(SILENCE);
    // As root, without a session, which would need the bus.
    let seen = run("chaosctl", &["--json", "status"]);
    bus.signal(Signal::SIGCONT);
    let seen: Value = serde_json::from_str(&seen?)?;
    assert_eq!(fault_of(&seen, "gone")["state"], "effective", "{seen}; {}", log());
    chaosctl(MEMBER, &["remove", "gone"])?;
    victim.time_to_normal(pid, HANG)?;
    nothing_is_left()?;
    Ok(())
}

fn services_that_cannot_or_must_not_be_stopped_are_refused_by_name() -> TestResult {
    installed()?;
    let victim = victim()?;
    let needs = Service::start(
        "chaos-needs.service",
        "[Unit]\nRequires=chaos-stopped.service\n[Service]\nExecStart=sleep infinity\n",
    )?;
    run("systemd-run", &["--quiet", "--unit", "chaos-transient.service", "sleep", "infinity"])?;
    let refused = |kind: &str, unit: &str, words: &str| -> TestResult {
        let answer = chaosctl(MEMBER, &["inject", kind, "--name", "r", "--unit", unit]);
        let said = answer.as_ref().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(words), "{kind} {unit}: expected {words}, got {answer:?}");
        Ok(())
    };
    for unit in ["systemd-journald.service", "dbus.service", SERVICE, GUARD] {
        for kind in ["service_stop", "service_restart"] {
            refused(kind, unit, "TARGET_PROTECTED")?;
        }
    }
    refused("service_stop", NAME, "chaos-needs.service as well")?;
    refused("service_stop", "chaos-transient.service", "has no file")?;
    refused("service_stop", "chaos-no-such.service", "TARGET_NOT_FOUND")?;
    refused("service_stop", "system.slice", "is no service")?;
    systemctl(&["stop", "chaos-transient.service", needs.name])?;
    let follows = Service::start(
        "chaos-follows.service",
        "[Unit]\nStopPropagatedFrom=chaos-stopped.service\n[Service]\nExecStart=sleep infinity\n",
    )?;
    for kind in ["service_stop", "service_restart"] {
        refused(kind, NAME, "chaos-follows.service as well")?;
    }
    systemctl(&["stop", follows.name, victim.name])?;
    refused("service_stop", NAME, "only a service that is active")?;
    refused("service_restart", NAME, "only a service that is active")?;
    nothing_is_left()?;
    Ok(())
}

fn a_restart_says_how_long_the_service_was_gone_and_warns_if_it_does_not_come_back() -> TestResult {
    installed()?;
    let victim = victim()?;
    let pid = victim.pid();
    let restart = ["inject", "service_restart", "--name", "again", "--unit", NAME, "--for", "10m"];
    chaosctl(MEMBER, &restart)?;
    victim.time_to_normal(pid, HANG)?;
    let mut seen = Value::Null;
    let known = wait_until(HANG, || {
        seen = status("again");
        seen["evidence"]["back_after_seconds"].is_number()
    });
    assert!(known && seen["evidence"]["gone_after_seconds"].is_number(), "{seen}");
    assert!(seen["lifetime"] == "irreversible" && seen["state"] == "effective", "{seen}");
    say(&format!("restart: {}", seen["evidence"]));
    chaosctl(MEMBER, &["remove", "again"])?;
    assert!(is_active(NAME));

    fs::remove_file(CONDITION)?;
    chaosctl(MEMBER, &restart)?;
    // systemd gives up after five tries.
    let warned = wait_until(HANG, || {
        seen = status("again");
        seen["note"].as_str().is_some_and(|note| note.contains("is not active again"))
    });
    assert!(warned && seen["evidence"]["back_after_seconds"].is_null(), "{seen}; {}", victim.state());
    chaosctl(MEMBER, &["remove", "again"])?;
    nothing_is_left()?;
    Ok(())
}

/// A sample by a member of the daemon's group, who has no right to ask systemd's bus for more than anybody: whether it is as it
/// should be, and what is said. How long it takes under emulation is not what this is about.
fn probed(options: &[&str], words: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new("runuser");
    command.args(["-u", MEMBER, "--", "chaosctl"]).args(options).args(["probe", "--timeout", "20s"]);
    let output = command.args(words).output().map_err(Error::io("start", "chaosctl"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((output.status.success(), said))
}

/// A sample that is as it should be.
fn sample(words: &[&str]) -> Result<Value> {
    match probed(&["--json"], words)? {
        (true, said) => {
            serde_json::from_str(&said).map_err(|error| Error::Different(format!("{error}: {said}")))
        }
        (false, said) => Err(Error::Different(format!("{words:?}: {said}"))),
    }
}

fn a_probe_tells_how_a_unit_is_and_how_often_systemd_has_started_it_again() -> TestResult {
    installed()?;
    let victim = victim()?;
    let restarts = || sample(&["unit", NAME, "--measure", "restarts"]).map(|seen| seen["value"].as_f64());
    assert_eq!(restarts()?, Some(0.0));
    let up = sample(&["unit", NAME, "--sub", "running"])?;
    assert!(up["value"].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{up}");
    let pid = victim.pid();
    assert_eq!(sample(&["process", "--unit", NAME])?["value"], 1.0);
    assert!(sample(&["process", "--unit", NAME, "--measure", "memory_mb"])?["value"].as_f64() > Some(0.0));
    Process::read(pid).ok_or("no victim")?.signal(Signal::SIGKILL);
    victim.time_to_normal(pid, HANG)?;
    assert_eq!(restarts()?, Some(1.0));
    let young = sample(&["process", "--unit", NAME, "--measure", "youngest", "--max", "60"])?;
    assert!(young["value"].is_number(), "{young}");
    systemctl(&["stop", NAME])?;
    assert!(sample(&["unit", NAME]).is_err(), "it is not active");
    let down = sample(&["unit", NAME, "--state", "inactive"])?;
    assert!(down["value"].is_null(), "{down}");
    assert_eq!(sample(&["process", "--unit", NAME, "--max", "0"])?["value"], 0.0);
    for (unit, words) in [("dbus.service", "protected"), ("chaos-no-such.service", "no unit")] {
        let (is_so, said) = probed(&[], &["unit", unit])?;
        assert!(!is_so && said.contains(words), "{unit}: {said}");
    }
    Ok(())
}

const LOGGING: &str = "chaos-logging.service";
const LOGS: &str = "/var/log/chaos-logging";
/// Any that is not root.
const OTHER: u32 = 65_534;

/// What a probe of a log says, whether or not it is as it should be.
fn logged(words: &[&str]) -> Result<String> {
    probed(&[], &[&["log"], words].concat()).map(|(_, said)| said)
}

fn a_probe_counts_what_a_unit_logs_and_what_is_in_a_file_where_the_policy_names_them() -> TestResult {
    installed()?;
    let _victim = Service::start(
        LOGGING,
        "[Service]\nExecStart=/bin/sh -c 'echo \"<4>pool used up\"; echo all is well; exec sleep infinity'\n",
    )?;
    let pool = ["log", "--unit", LOGGING, "--match", "^pool", "--within", "10m"];
    let said = logged(&pool[1..])?;
    assert!(said.contains("probe_logs = [\"unit:chaos-logging.service\"]"), "{said}");

    let rules = format!("probe_logs = [\"unit:{LOGGING}\", \"unit:chaos-no-such.service\", \"{LOGS}/*\"]\n");
    let _policy = OtherPolicy::of(&rules)?;
    // What a service writes is on its way to the journal for a while.
    let arrived = wait_until(HANG, || sample(&pool).is_ok_and(|seen| seen["value"] == 1.0));
    assert!(arrived, "{}", logged(&pool[1..])?);
    sample(&[&pool[..], &["--priority", "warning"]].concat())?;
    sample(&[&pool[..], &["--priority", "err", "--max", "0"]].concat())?;
    let said = logged(&["--unit", LOGGING, "--match", "^Started", "--within", "10m"])?;
    assert!(said.starts_with("ok: "), "{said}");
    let said = logged(&["--unit", "chaos-no-such.service", "--match", "x", "--max", "0"])?;
    assert!(said.contains("no entry of chaos-no-such.service"), "{said}");

    fs::create_dir_all(LOGS)?;
    let path = |name: &str| format!("{LOGS}/{name}");
    fs::write(path("a.log"), "ERR one\nERR two\n")?;
    fs::set_permissions(path("a.log"), fs::Permissions::from_mode(0o600))?;
    sample(&["log", "--file", &path("a.log"), "--match", "^ERR", "--min", "2", "--max", "2"])?;
    // What root may not read without a right that the daemon does not have.
    fs::write(path("closed.log"), "ERR\n")?;
    fs::set_permissions(path("closed.log"), fs::Permissions::from_mode(0o600))?;
    chown(path("closed.log"), Some(OTHER), Some(OTHER))?;
    symlink("/etc/shadow", path("link.log"))?;
    for (file, words) in [
        (&*path("closed.log"), "cannot be read by the daemon"),
        (&path("link.log"), "symbolic link"),
        ("/etc/shadow", "\"/etc/shadow\"]"),
    ] {
        let said = logged(&["--file", file, "--match", "^root", "--max", "0"])?;
        assert!(said.contains(words) && !said.contains("entries match"), "{file}: {said}");
    }
    fs::remove_dir_all(LOGS)?;
    Ok(())
}
