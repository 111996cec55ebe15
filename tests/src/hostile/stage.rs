//! Where strangers are let in: a daemon in a network namespace of the test's, what no stranger can reach, and what tells that somebody
//! has.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::canary::{Canary, SECRET, set_mode};
use super::stranger::{GROUP, Stranger};
use super::values::Names;
use super::walk::Known;
use crate::cgroup::Cgroup;
use crate::daemon::ROOM;
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::measure::Echo;
use crate::process::{Killed, Process, wait_for, wait_until};
use crate::{Daemon, Mcp, Pair, Residue};

/// Who is a stranger; each may have four connections.
pub(super) const USERS: [u32; 4] = [61_001, 61_002, 61_003, 61_004];
/// What a server without bounds of its own dies at.
const NEVER: u64 = 1 << 30;
/// How many faults there may be at once.
const MOST_FAULTS: u32 = 64;

/// Everything that a test of strangers needs.
pub(super) struct Stage {
    // First, so that it ends before what it is in.
    pub(super) daemon: Daemon,
    pub(super) pair: Pair,
    pub(super) echo: Echo,
    pub(super) canary: Canary,
    pub(super) strangers: Vec<Stranger>,
    pub(super) own: TempDir,
    /// A process of root's.
    pub(super) sleeper: Killed,
    group: Cgroup,
    _policy: TempDir,
    before: Residue,
}

impl Stage {
    pub(super) fn new() -> Result<Self> {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 4750)?;
        let canary = Canary::new(&pair.far)?;
        let own = own_folder(&canary)?;
        let strangers = USERS.iter().map(|user| Stranger::start(*user)).collect::<Result<Vec<_>>>()?;
        let (sleeper, group) = (Killed(sleep()?), Cgroup::new()?);
        let policy = crate::daemon::folder_of_roots("policy")?;
        let path = policy.path().join("policy.toml");
        fs::write(&path, format!("max_active = {MOST_FAULTS}\n{ROOM}least_disk_mb = 0\n"))
            .map_err(Error::io("write", "a policy"))?;
        let daemon = Daemon::start_with(|command| {
            pair.near.place(command);
            command.args(["--socket-group", GROUP]).arg("--policy").arg(&path).env("CANARY", SECRET);
            bound(command);
        })?;
        wait_for("server", || daemon.server().is_some())?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        Ok(Self { daemon, pair, echo, canary, strangers, own, sleeper, group, _policy: policy, before })
    }

    pub(super) fn names(&self) -> Names {
        let injector = self.daemon.injector_pid().cast_unsigned();
        Names {
            roots: self.canary.path("").trim_end_matches('/').to_owned(),
            own: self.own.path().display().to_string(),
            namespace: self.pair.far.name().to_owned(),
            processes: [self.strangers[0].pid(), self.sleeper.0.id(), injector],
        }
    }

    pub(super) fn known(&self) -> Known {
        let own = self.own.path().display().to_string();
        Known { group: self.group.name(), process: self.strangers[0].pid(), own }
    }

    pub(super) fn server(&self) -> Result<Process> {
        self.daemon.server().ok_or_else(|| Error::Different(format!("no server; log:\n{}", self.log_end())))
    }

    /// The last of the log.
    pub(super) fn log_end(&self) -> String {
        let log = self.daemon.log();
        let from = log.len().saturating_sub(2000);
        log.get(from..).unwrap_or(&log).to_owned()
    }

    /// What has come of all that strangers did: whatever they have reached, changed or left, and each line of the log that is not the
    /// daemon's. Ends all faults before.
    pub(super) fn effects(&self) -> Result<Vec<String>> {
        let mcp = self.daemon.mcp_again()?;
        mcp.call_tool("chaos_stop", json!({}))?;
        let mut effects = self.canary.touched()?;
        let left = || -> Result<Value> {
            let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
            let mut faults = status["active_faults"].as_array().cloned().unwrap_or_default();
            faults.retain(|fault| fault["active"] == json!(true));
            Ok(json!(faults))
        };
        if !wait_until(HANG, || left().is_ok_and(|left| left == json!([]))) {
            effects.push(format!("faults that are still there: {}", left()?));
        }
        let doctor = mcp.call_tool("chaos_doctor", json!({}))?.ok()?;
        if doctor["residue"] != json!([]) {
            effects.push(format!("left: {}", doctor["residue"]));
        }
        if let Err(error) = self.before.assert_unchanged_within(&[&self.pair.near, &self.pair.far], SETTLE) {
            effects.push(error.to_string());
        }
        effects
            .extend(broken_lines(&self.daemon.log()).into_iter().map(|line| format!("in the log: {line}")));
        Ok(effects)
    }

    /// Root's client.
    pub(super) fn root(&self) -> Result<Mcp> {
        self.daemon.mcp_again()
    }
}

/// How long what goes by itself may be there still.
const SETTLE: Duration = Duration::from_secs(10);

/// A process of root's that does nothing.
pub(super) fn sleep() -> Result<Child> {
    let mut command = Command::new("sleep");
    command.arg("3600").env("CANARY", SECRET).stdin(Stdio::null());
    command.spawn().map_err(Error::io("start", "sleep"))
}

/// Has a daemon that cannot take the host's memory, whatever is wrong with it.
fn bound(command: &mut Command) {
    // SAFETY: between fork and exec only setrlimit(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_DATA, NEVER, NEVER)?));
    }
}

/// A folder of the first stranger's, with links that lead to what is root's, and a pipe.
fn own_folder(canary: &Canary) -> Result<TempDir> {
    let folder = TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?;
    let made = || Error::io("create", format!("a link in {}", folder.path().display()));
    let path = |name: &str| folder.path().join(name);
    for (name, to) in [("link", "file"), ("way", "closed"), ("socket", "socket")] {
        symlink(canary.path(to), path(name)).map_err(made())?;
    }
    symlink("circle", path("circle")).map_err(made())?;
    mkfifo(&path("pipe"), Mode::from_bits_truncate(0o666)).map_err(Error::sys("create", "a pipe"))?;
    set_mode(folder.path(), 0o755)?;
    chown(folder.path(), Some(USERS[0]), None).map_err(made())?;
    Ok(folder)
}

/// Lines of a log that do not begin as the daemon begins each of its own, or in which a terminal would obey something. No caller can
/// make it say that it has an error, either.
fn broken_lines(log: &str) -> Vec<String> {
    let is_own = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let time = words.next().unwrap_or_default();
        let is_time = time.len() == 27 && time.ends_with('Z') && time.get(..4) > Some("2020");
        let level = words.next().unwrap_or_default();
        is_time && ["WARN", "INFO"].contains(&level) && !line.contains(char::is_control)
    };
    log.split('\n').filter(|line| !line.is_empty() && !is_own(line)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::values::FORGED;
    use super::*;

    #[test]
    fn a_line_that_somebody_else_has_begun_is_broken() {
        let own = "2026-11-28T10:00:00.123456Z  WARN refused: a\\nb";
        assert!(broken_lines(&format!("{own}\n{own}\n")).is_empty());
        for text in [FORGED.to_owned(), format!("{own}\rx"), format!("{own}\u{1b}[2J"), "a".to_owned()] {
            assert_eq!(broken_lines(&format!("{own}\n{text}\n")).len(), 1, "{text:?}");
        }
    }
}
