//! Faults that take this machine down: refused until they are allowed, prevented by a removal, and told of after the boot. Each
//! stage ends with one that is under way; `tests/systemd/boot.sh` waits for it.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::lab::{assert_idle, idle};
use super::settings::{HERE, POLICY};
use super::supervised::Supervised;
use super::unit::{
    MEMBER, SERVICE, SERVICE_KILL, chaosctl, installed, is_active, log, main_pid, run, say, systemctl,
    wait_restarted,
};
use super::{TestResult, tests};
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{Process, wait_until};

tests![
    reboot_and_panic_are_refused_until_the_policy_allows_them,
    reboot_is_prevented_by_a_removal_by_a_stop_of_the_daemon_and_by_what_is_in_its_way,
    reboot_does_not_come_when_the_daemon_is_killed_or_hangs_while_it_counts,
    reboot_in_order_by_an_experiment_begins,
    forced_after_a_reboot_in_order_everything_is_told,
    forced_reboot_begins,
    panic_after_a_forced_reboot_everything_is_told,
    panic_is_refused_until_the_unit_and_the_kernel_are_set_and_prevented_by_a_removal,
    panic_by_an_experiment_begins,
    up_again_after_a_panic_everything_is_told,
];

const DROP_IN: &str = "/etc/systemd/system/chaos-daemon.service.d/host-panic.conf";
const RECORD: &str = "/var/lib/chaos-daemon/host-down.json";
/// The kernel's name of this boot, and where the one that is to end writes it down.
const BOOT: (&str, &str) = ("/proc/sys/kernel/random/boot_id", "/chaos/boot-id");
const KERNEL_PANIC: &str = "/proc/sys/kernel/panic";
const STEADY: &str = "chaos-steady.service";
/// Long enough for what the tests say to leave the serial port.
const COUNTDOWN: &str = "20s";
/// Long enough for what calls it off to come in time, under emulation; and after so long it is over.
const CALLED_OFF: (&str, Duration) = ("10s", Duration::from_secs(11));
/// The longest that a boot may take here, under emulation.
const LONGEST_BOOT: f64 = 600.0;

fn refused(args: &[&str], expected: &[&str]) -> Result<()> {
    match chaosctl(MEMBER, args) {
        Ok(said) => Err(Error::Different(format!("{args:?} was done: {said}"))),
        Err(error) => {
            let error = error.to_string();
            match expected.iter().find(|words| !error.contains(*words)) {
                None => Ok(()),
                Some(words) => Err(Error::Different(format!("not a word of {words:?}: {error}"))),
            }
        }
    }
}

fn restart() -> Result<()> {
    systemctl(&["daemon-reload"])?;
    let _ = systemctl(&["reset-failed", SERVICE]);
    systemctl(&["restart", SERVICE]).map(drop)
}

fn status() -> Result<Value> {
    let text = chaosctl(MEMBER, &["--json", "status"])?;
    serde_json::from_str(&text).map_err(|error| Error::Different(format!("{error}: {text}")))
}

/// The first fault of this type, as the status shows it.
fn shown(kind: &str) -> Result<Value> {
    let all = status()?["active_faults"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|fault| fault["fault_type"] == kind);
    found.ok_or_else(|| Error::Different(format!("no {kind}; {}", log())))
}

/// Sees that the host is still there after more than a countdown, and that nothing is written down.
fn still_up() -> Result<()> {
    thread::sleep(CALLED_OFF.1);
    match Path::new(RECORD).exists() {
        true => Err(Error::Different("it is written down that the host went down".into())),
        false => Ok(()),
    }
}

fn reboot_and_panic_are_refused_until_the_policy_allows_them() -> TestResult {
    installed()?;
    fs::write(POLICY, HERE)?;
    restart()?;
    for kind in ["host_reboot", "host_panic"] {
        for args in [&["inject", kind][..], &["inject", kind, "--dry-run"]] {
            refused(args, &["is off unless it is allowed", kind])?;
        }
    }
    fs::write(POLICY, format!("{HERE}host_reboot = true\n"))?;
    restart()?;
    refused(&["inject", "host_panic"], &["is off unless it is allowed"])?;
    let plan = chaosctl(MEMBER, &["inject", "host_reboot", "--dry-run"])?;
    for words in ["reboot.target", RECORD, "irreversible", "every other fault ends with this boot"] {
        assert!(plan.contains(words), "{plan}");
    }
    still_up()?;
    Ok(())
}

fn reboot_is_prevented_by_a_removal_by_a_stop_of_the_daemon_and_by_what_is_in_its_way() -> TestResult {
    installed()?;
    let inject = ["inject", "host_reboot", "--name", "r", "--countdown", CALLED_OFF.0];
    for end in [&["remove", "r"][..], &["stop", "--all"], &[]] {
        chaosctl(MEMBER, &inject)?;
        let fault = shown("host_reboot")?;
        assert_eq!(
            (&fault["active"], &fault["evidence"]["host_downs"]),
            (&json!(true), &json!(0)),
            "{fault}"
        );
        // While it counts, nothing else begins.
        let cut = ["inject", "network_partition", "--interface", "lo", "--cidr", "127.0.0.2"];
        refused(&cut, &["takes this host down", "chaosctl stop r"])?;
        match end {
            [] => drop(systemctl(&["restart", SERVICE])?),
            end => drop(chaosctl(MEMBER, end)?),
        }
        still_up()?;
    }
    let lab = Supervised::new()?;
    lab.inject("pause")?;
    refused(&inject, &["is supervised"])?;
    chaosctl(MEMBER, &["stop", "--all"])?;
    assert!(lab.normal(), "{}", lab.picture());
    assert_idle(idle())?;
    Ok(())
}

fn reboot_does_not_come_when_the_daemon_is_killed_or_hangs_while_it_counts() -> TestResult {
    installed()?;
    for hangs in [false, true] {
        chaosctl(MEMBER, &["inject", "host_reboot", "--name", "r", "--countdown", CALLED_OFF.0])?;
        let before = main_pid()?;
        match hangs {
            false => fs::write(SERVICE_KILL, "1")?,
            true => Process::read(before).ok_or("no injector")?.signal(Signal::SIGSTOP),
        }
        still_up()?;
        // One that hangs is killed by its guard or its watchdog.
        wait_restarted(before)?;
        systemctl(&["reset-failed", SERVICE])?;
        still_up()?;
    }
    assert_idle(idle())?;
    Ok(())
}

/// Writes down which boot this is, so that also a panic leaves it.
fn remember_this_boot() -> Result<()> {
    let (now, file) = BOOT;
    let boot = fs::read_to_string(now).map_err(Error::io("read", now))?;
    fs::write(file, boot).map_err(Error::io("write", file))?;
    let written = fs::File::open(file).and_then(|written| written.sync_all());
    written.map_err(Error::io("put on disk", file))
}

/// By the kernel's word alone, this is another boot than the one that was to end, and a young one.
fn assert_another_boot() -> Result<()> {
    let read = |path: &str| fs::read_to_string(path).map_err(Error::io("read", path.to_owned()));
    let (now, before, uptime) = (read(BOOT.0)?, read(BOOT.1)?, read("/proc/uptime")?);
    let uptime: Option<f64> = uptime.split(' ').next().and_then(|word| word.parse().ok());
    match now != before && !before.is_empty() && uptime.is_some_and(|seconds| seconds < LONGEST_BOOT) {
        true => Ok(()),
        false => Err(Error::Different(format!("boot {now:?} after {before:?}, up for {uptime:?} s"))),
    }
}

/// Registers an experiment whose fault takes the host down, and has it run.
fn begin_by_an_experiment(kind: &str) -> Result<()> {
    remember_this_boot()?;
    run("systemd-run", &["--quiet", "--unit", STEADY, "sleep", "infinity"])?;
    let provider = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let document = json!({
        "title": kind,
        "description": "The host goes down.",
        "steady-state-hypothesis": {"title": "it runs", "probes": [{"type": "probe", "name": "one", "tolerance": 0,
            "provider": provider(json!(["probe", "process", "--exe", "/usr/bin/sleep", "--min", 1, "--timeout", "30s"]))}]},
        "method": [{"type": "action", "name": "down", "pauses": {"after": 60},
            "provider": provider(json!({"inject": kind, "--countdown": COUNTDOWN, "--for": "2m"}))}],
        "rollbacks": [],
    });
    let file = format!("/tmp/chaos-test-{kind}.json");
    fs::write(&file, document.to_string()).map_err(Error::io("write", &file))?;
    chaosctl(MEMBER, &["experiment", "register", &file])?;
    // Who waits for the run is told to end as well when the host goes down, and would stop it.
    let unit = format!("chaos-run-{kind}");
    run("systemd-run", &["--quiet", "--unit", &unit, "chaosctl", "run", "--detach", kind])?;
    let counts = || shown(kind).is_ok_and(|fault| fault["active"] == true);
    match wait_until(HANG, counts) {
        true => Ok(()),
        false => {
            let said = run("journalctl", &["--no-pager", "--lines=20", "--output=cat", "--unit=chaos-run-*"]);
            Err(Error::Different(format!("the experiment does not take the host down: {said:?}; {}", log())))
        }
    }
}

fn reboot_in_order_by_an_experiment_begins() -> TestResult {
    installed()?;
    Ok(begin_by_an_experiment("host_reboot")?)
}

/// After the boot: the daemon serves, nothing is left, and it says what took the host down and for how long it was gone, also when
/// it is started once more.
fn assert_told(kind: &str) -> Result<()> {
    assert_another_boot()?;
    let serves = || is_active(SERVICE) && status().is_ok();
    if !wait_until(HANG, serves) {
        return Err(Error::Hung { what: format!("{SERVICE} serving; {}", log()) });
    }
    chaosctl(MEMBER, &["doctor", "--residue"])?;
    assert_idle(idle())?;
    let fault = shown(kind)?;
    let note = fault["note"].as_str().unwrap_or_default().to_owned();
    let figure =
        |after: &str| -> Option<f64> { note.split_once(after)?.1.split_whitespace().next()?.parse().ok() };
    let (gone, uptime) = (figure("there again "), figure("s later, "));
    let plausible =
        |seconds: Option<f64>| seconds.is_some_and(|seconds| seconds > 0.5 && seconds < LONGEST_BOOT);
    if fault["active"] != false
        || fault["evidence"]["host_downs"] != 1
        || !plausible(gone)
        || !plausible(uptime)
    {
        return Err(Error::Different(format!("not told: {fault}")));
    }
    say(&format!("{kind}: {note}"));
    let people = chaosctl(MEMBER, &["status"])?;
    if !people.contains("took the host down") {
        return Err(Error::Different(people));
    }
    restart()?;
    match shown(kind)?["note"].as_str() {
        Some(again) if again == note => Ok(()),
        other => Err(Error::Different(format!("said {note:?}, and after a restart {other:?}"))),
    }
}

/// The run that took the host down is in the history, once, as interrupted by that.
fn assert_interrupted(kind: &str) -> Result<()> {
    let text = chaosctl(MEMBER, &["--json", "runs", "--experiment", kind])?;
    let answer: Value =
        serde_json::from_str(&text).map_err(|error| Error::Different(format!("{error}: {text}")))?;
    let runs = answer["results"].as_array().cloned().unwrap_or_default();
    let [found] = runs.as_slice() else { return Err(Error::Different(format!("not one run: {text}"))) };
    let id = found["run_id"].as_str().unwrap_or_default();
    let told = chaosctl(MEMBER, &["--json", "show", id])?;
    let says = |words: &str| told.contains(words);
    match says("\"interrupted\"") && says("took the host down") && says(&format!("({kind})")) {
        true => Ok(()),
        false => Err(Error::Different(format!("not recorded as interrupted by its fault: {told}"))),
    }
}

fn forced_after_a_reboot_in_order_everything_is_told() -> TestResult {
    assert_told("host_reboot")?;
    Ok(assert_interrupted("host_reboot")?)
}

fn forced_reboot_begins() -> TestResult {
    remember_this_boot()?;
    let inject = ["inject", "host_reboot", "--name", "forced", "--forced", "--countdown", COUNTDOWN];
    Ok(chaosctl(MEMBER, &inject).map(drop)?)
}

fn panic_after_a_forced_reboot_everything_is_told() -> TestResult {
    assert_told("host_reboot")?;
    // No other run was recorded with it.
    Ok(assert_interrupted("host_reboot")?)
}

fn panic_is_refused_until_the_unit_and_the_kernel_are_set_and_prevented_by_a_removal() -> TestResult {
    fs::write(POLICY, format!("{HERE}host_reboot = true\nhost_panic = true\n"))?;
    fs::write(KERNEL_PANIC, "0")?;
    restart()?;
    refused(&["inject", "host_panic"], &["/proc/sysrq-trigger", "ProtectKernelTunables=no"])?;
    fs::create_dir_all(Path::new(DROP_IN).parent().ok_or("no folder")?)?;
    fs::write(DROP_IN, "[Service]\nProtectKernelTunables=no\n")?;
    restart()?;
    refused(&["inject", "host_panic"], &["kernel.panic is 0", "stay_down"])?;
    let plan = chaosctl(MEMBER, &["inject", "host_panic", "--stay-down", "--dry-run"])?;
    assert!(plan.contains("stays down until somebody resets it"), "{plan}");
    fs::write(KERNEL_PANIC, "1")?;
    let plan = chaosctl(MEMBER, &["inject", "host_panic", "--dry-run"])?;
    assert!(plan.contains("reboots 1 s later") && plan.contains("write c to"), "{plan}");
    fs::remove_file(RECORD)?;
    chaosctl(MEMBER, &["inject", "host_panic", "--name", "p", "--countdown", CALLED_OFF.0])?;
    chaosctl(MEMBER, &["remove", "p"])?;
    still_up()?;
    Ok(())
}

fn panic_by_an_experiment_begins() -> TestResult {
    Ok(begin_by_an_experiment("host_panic")?)
}

fn up_again_after_a_panic_everything_is_told() -> TestResult {
    assert_told("host_panic")?;
    assert_interrupted("host_panic")?;
    fs::remove_file(DROP_IN)?;
    fs::write(POLICY, HERE)?;
    Ok(restart()?)
}
