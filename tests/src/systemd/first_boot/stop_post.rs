//! ExecStopPost on its own: a service that dies and is not started again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::wait_until;
use crate::runner::FIGURE;
use crate::systemd::lab::{Lab, idle};
use crate::systemd::unit::{MEMBER, SERVICE, chaosctl, installed, log, property, systemctl};
use crate::systemd::{TestResult, tests};

tests![what_an_unclean_stop_has_left_is_gone_after_exec_stop_post_alone];

const UNIT: &str = "/usr/lib/systemd/system/chaos-daemon.service";
const FOLDER: &str = "/etc/systemd/system/chaos-daemon.service.d";
/// Where ExecStopPost may go on from.
const GO: &str = "/run/chaos-test-go";

/// A drop-in, gone with the guard.
struct DropIn;

impl DropIn {
    /// Never started again; attached as before Linux 6.6, so that a death leaves something; and the unit's own ExecStopPost
    /// waits until it has been looked at.
    fn install() -> Result<Self> {
        let unit = fs::read_to_string(UNIT).map_err(Error::io("read", UNIT))?;
        let line = |name: &str| {
            let mut lines = unit.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix('='));
            lines.next().map(str::to_owned).ok_or_else(|| Error::Different(format!("{UNIT} has no {name}")))
        };
        let (start, post) = (line("ExecStart")?, line("ExecStopPost")?);
        let text = format!(
            "[Service]\nRestart=no\nExecStart=\nExecStart={start} --attach clsact\nExecStopPost=\n\
             ExecStopPost=/bin/sh -c 'until [ -e {GO} ]; do sleep 0.1; done'\nExecStopPost={post}\n"
        );
        let guard = Self;
        fs::create_dir_all(FOLDER).map_err(Error::io("create", FOLDER))?;
        fs::write(Path::new(FOLDER).join("test.conf"), text).map_err(Error::io("write", FOLDER))?;
        // The one that runs is stopped by the new unit, too, and is not to wait.
        fs::write(GO, "").map_err(Error::io("write", GO))?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["restart", SERVICE])?;
        fs::remove_file(GO).map_err(Error::io("remove", GO))?;
        Ok(guard)
    }
}

impl Drop for DropIn {
    fn drop(&mut self) {
        let _ = fs::write(GO, "");
        let _ = fs::remove_dir_all(FOLDER);
        let _ = systemctl(&["daemon-reload"]);
        let _ = systemctl(&["reset-failed", SERVICE]);
        let _ = systemctl(&["restart", SERVICE]);
        let _ = fs::remove_file(GO);
    }
}

fn what_an_unclean_stop_has_left_is_gone_after_exec_stop_post_alone() -> TestResult {
    installed()?;
    let guard = DropIn::install()?;
    let lab = Lab::with_active_faults()?;
    systemctl(&["kill", "--kill-whom=all", "--signal=KILL", SERVICE])?;
    let sub_state = |wanted: &str| property(SERVICE, "SubState").is_ok_and(|now| now == wanted);
    assert!(wait_until(HANG, || sub_state("stop-post")), "{}", log());
    lab.time_to_normal(Duration::from_secs(5))?;
    let left = lab.inert_leftovers()?;
    println!("{FIGURE}{} lines of inert leftovers before ExecStopPost", left.lines().count());
    fs::write(GO, "")?;
    assert!(wait_until(HANG, || sub_state("failed")), "{}", log());
    lab.assert_clean(0)?;
    assert_eq!(property(SERVICE, "MainPID")?, "0");
    assert_eq!(property(SERVICE, "NRestarts")?, "0");
    drop(guard);
    chaosctl(MEMBER, &["doctor"])?;
    lab.assert_clean(idle())?;
    Ok(())
}
