//! A process that a fault is aimed at by its number ends, and its number becomes another's.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::json;

use super::said::{Came, Said, Tried};
use super::stage::{Stage, USERS};
use crate::error::{Error, Result};
use crate::process::{Killed, Process, linger, wait_for};

/// How long after the first volley the others come, and are waited for.
const INTERVAL: u64 = 1;
const VOLLEYS: Duration = Duration::from_millis(3500);

/// A process that has a number of the test's choice; killed and collected with this.
struct Successor(Pid);

impl Successor {
    /// A process of root's in a session of its own, under this number, which has to be free.
    fn under(number: u32) -> Result<Self> {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        // SAFETY: all zeros is a valid value of this plain struct.
        let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
        how.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        how.set_tid = (&raw const number).addr() as u64;
        how.set_tid_size = 1;
        // SAFETY: the kernel reads one clone_args and one number, which live until the call is over; no memory is shared. The child
        // of this process of several threads makes system calls alone.
        match unsafe { libc::syscall(libc::SYS_clone3, &raw const how, size_of::<libc::clone_args>()) } {
            // SAFETY: as above.
            0 => unsafe {
                libc::setsid();
                loop {
                    libc::pause();
                }
            },
            -1 => Err(Error::io("start", format!("process {number}"))(std::io::Error::last_os_error())),
            _ => Ok(Self(Pid::from_raw(number))),
        }
    }

    fn runs(&self) -> bool {
        matches!(waitpid(self.0, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // One that has ended and was collected is nobody's.
        if self.runs() {
            let _ = kill(self.0, Signal::SIGKILL);
            let _ = waitpid(self.0, None);
        }
    }
}

/// A process of a stranger's in a session of its own.
fn own() -> Result<Killed> {
    let mut command = Command::new("sleep");
    command.arg("3600").uid(USERS[0]).stdin(Stdio::null());
    // SAFETY: between fork and exec only setsid(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into));
    }
    command.spawn().map(Killed).map_err(Error::io("start", "a process of a stranger's"))
}

/// Signals go to nobody else by the number, and nobody else is paused.
pub(super) fn reused(stage: &Stage) -> Result<Tried> {
    let mut tried = Tried::default();
    let mut said = Said::open(stage, &stage.strangers[0])?;
    for (kind, params) in [
        ("process_kill", json!({"signal": "SIGKILL", "times": 3, "interval_seconds": INTERVAL})),
        ("process_pause", json!({"pause_ms": 200, "run_ms": 200})),
    ] {
        let mut process = own()?;
        let number = process.0.id();
        let whole = json!({"fault_name": "hostile", "action": "register", "fault_type": kind, "probability": 1,
            "duration_seconds": 10, "target": {"pid": number}, "params": params});
        for arguments in [whole, json!({"fault_name": "hostile", "action": "inject"})] {
            let answer = said.call("chaos_inject_fault", arguments.to_string().as_bytes())?;
            if tried.count(|| arguments.to_string(), answer.as_ref()) != Came::Served {
                return Err(Error::Different(format!("{arguments}: {answer:?}")));
            }
        }
        let _ = process.0.kill();
        process.0.wait().map_err(Error::io("wait for", "a process"))?;
        wait_for("end of a process", || Process::read(number.cast_signed()).is_none())?;
        let successor = Successor::under(number)?;
        linger(VOLLEYS);
        let state = Process::read(number.cast_signed()).map(|process| process.state);
        if !successor.runs() || state.is_some_and(|state| "tT".contains(state)) {
            tried.effects.push(format!("{kind} has hit who got the number {number}: {state:?}"));
        }
        said.call(
            "chaos_inject_fault",
            json!({"fault_name": "hostile", "action": "remove"}).to_string().as_bytes(),
        )?;
    }
    Ok(tried)
}
