//! Where supervised faults are tried, by the matrix and by the sweep: a stage, a daemon and its guard, and the oracle that
//! judges what whoever is left of them has made good.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use crate::daemon::binary;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::kernel::supervised::settled;
use crate::kernel::supervised::stage::{Make, Stage};
use crate::late::HANG;
use crate::netns::output;
use crate::process::{self, Process, wait_until};
use crate::residue::{Judged, Level};
use crate::{Daemon, Error, Mcp, Residue, Result};

/// Three seconds after the last heartbeat are promised; a machine under load is not a fault.
const LIMIT: Duration = Duration::from_secs(5);

/// Which builds take part, and what their environment has.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) daemon: &'static str,
    pub(crate) guard: &'static str,
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
}

/// Where a kind is tried, and how it was before.
pub(crate) struct Place {
    programs: Programs,
    running: Option<Running>,
    stage: Box<dyn Stage>,
    policy: NamedTempFile,
    picture: String,
    before: Residue,
    /// What was found of residue; whoever takes it counts it.
    pub(crate) judged: Judged,
}

/// Dropped in this order: who hangs up, who would end the daemon's faults, the daemon.
pub(crate) struct Running {
    pub(crate) mcp: Mcp,
    pub(crate) guard: Guard,
    pub(crate) daemon: Daemon,
}

impl Place {
    pub(crate) fn new(make: Make, programs: Programs) -> Result<Self> {
        let policy = NamedTempFile::new().map_err(Error::io("create", "a policy"))?;
        std::fs::write(policy.path(), "clock_skew = true\n").map_err(Error::io("write", "a policy"))?;
        let stage = make()?;
        let picture = settled(stage.as_ref())?;
        let before = Residue::take_with(&stage.namespaces(), &stage.cgroups())?;
        Ok(Self { programs, running: None, stage, policy, picture, before, judged: Judged::default() })
    }

    /// The fault.
    pub(crate) fn fault(&self) -> Fault {
        self.stage.fault()
    }

    /// Whether the fault acts.
    pub(crate) fn acts(&mut self) -> Result<bool> {
        self.stage.acts()
    }

    /// Fails unless it acts.
    pub(crate) fn assert_acts(&mut self) -> Result<()> {
        match self.acts()? {
            true => Ok(()),
            false => Err(Error::Different("injected, and does not act".into())),
        }
    }

    /// A daemon and its guard.
    pub(crate) fn running(&mut self) -> Result<&mut Running> {
        if self.running.is_none() {
            let Programs { daemon, environment, .. } = &self.programs;
            let daemon = Daemon::start_program(daemon, |command| {
                command.arg("--policy").arg(self.policy.path()).envs(environment.clone());
            })?;
            let guard = self.guard_of(&daemon)?;
            self.running = Some(Running { mcp: daemon.mcp()?, guard, daemon });
        }
        self.running.as_mut().ok_or_else(|| Error::Different("no daemon".into()))
    }

    fn guard_of(&self, daemon: &Daemon) -> Result<Guard> {
        let Programs { guard, environment, .. } = &self.programs;
        Guard::start_program(&binary(guard)?, environment.clone(), daemon)
    }

    /// Recovers with the build and the environment of the daemon.
    pub(crate) fn recover(&mut self) -> Result<Output> {
        let Programs { daemon, environment, .. } = self.programs.clone();
        let mut command = Command::new(binary(daemon)?);
        command
            .arg("recover")
            .arg("--runtime-dir")
            .arg(self.running()?.daemon.runtime_dir())
            .envs(environment);
        command.output().map_err(Error::io("start", daemon))
    }

    /// Another daemon in the same directories, and a guard, when those that were are dead.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let Programs { daemon, environment, .. } = self.programs.clone();
        running.daemon.start_program_again(daemon, |command| {
            command.arg("--policy").arg(self.policy.path()).envs(environment);
        })?;
        running.mcp = running.daemon.mcp()?;
        running.guard = self.guard_of(&running.daemon)?;
        self.running = Some(running);
        Ok(())
    }

    /// Another guard in the place of one that has ended, as systemd starts one.
    pub(crate) fn replace_guard(&mut self) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            running.guard = self.guard_of(&running.daemon)?;
            self.running = Some(running);
        }
        Ok(())
    }

    /// Waits until nothing of the fault is left or the guard has ended.
    pub(crate) fn wait_for_guard(&self) {
        let Some(running) = &self.running else { return };
        let done = || begun(&running.daemon) == 0 && self.is_normal();
        wait_until(HANG, || !running.guard.runs() || done());
    }

    /// Whether the guard has ended. One that was `killed` is waited for: that may have been after it had undone everything.
    pub(crate) fn guard_has_ended(&self, killed: bool) -> bool {
        let Some(running) = &self.running else { return false };
        let limit = if killed { HANG } else { Duration::ZERO };
        wait_until(limit, || !running.guard.runs())
    }

    /// Whether the kernel shows what it showed before, as far as the fault itself changes it.
    fn is_normal(&self) -> bool {
        let now = self.stage.picture();
        now.is_ok_and(|now| now.lines().next() == self.picture.lines().next()) && self.stage.stays_away()
    }

    /// Since `struck` there is nobody but the guard: it leaves nothing, and nothing to do for `recover`.
    pub(crate) fn judge_guard(&mut self, struck: Instant) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let left = LIMIT.saturating_sub(struck.elapsed());
        let on_time = wait_until(left, || begun(&running.daemon) == 0 && self.is_normal());
        let (guard, begun) = (running.guard.log(), begun(&running.daemon));
        let guards = !running.guard.has_ended();
        bury(&mut running);
        if !on_time {
            let what = format!("normal; now {:?}, {begun} journals; guard:\n{guard}", self.stage.picture());
            return Err(Error::in_vain(what, LIMIT));
        }
        if !guards {
            return Err(Error::Different(format!("the guard has ended:\n{guard}")));
        }
        let said = recover(&running.daemon)?;
        if !said.contains("nothing was left behind") {
            return Err(Error::Different(format!("the guard left something: {said}")));
        }
        let journals = journals(&running.daemon);
        if journals > 0 {
            return Err(Error::Different(format!("{journals} journals are there still: {said}")));
        }
        self.assert_as_before()
    }

    /// The daemon goes on, and has nothing of the fault left, as soon as that is removed; nor has anybody when it has ended.
    pub(crate) fn judge_survival(&mut self, fault: &Fault) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        if fault.remove(&running.mcp).is_err() {
            // The server may have been started again, and with it every connection has ended.
            fault.remove(&running.daemon.mcp_again()?)?;
        }
        let on_time = wait_until(LIMIT, || self.is_normal());
        let lives = running.daemon.injector().is_some_and(|injector| injector.runs());
        let log = running.daemon.log();
        running.daemon.stop()?;
        let said = recover(&running.daemon)?;
        let journals = journals(&running.daemon);
        bury(&mut running);
        let now = || format!("now {:?}, {journals} journals, {said}; daemon:\n{log}", self.stage.picture());
        if journals > 0 || said.contains("STUCK") {
            return Err(Error::Different(format!("a removal leaves something; {}", now())));
        }
        if !on_time {
            return Err(Error::in_vain(format!("normal; {}", now()), LIMIT));
        }
        if !lives {
            return Err(Error::Different(format!("the injector died; log:\n{log}")));
        }
        self.assert_as_before()
    }

    /// Nobody is left, the guard neither: a setting may act still, and recovery leaves nothing.
    pub(crate) fn judge_recovery(&mut self) -> Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        bury(&mut running);
        let level = self.level(Duration::ZERO)?;
        self.judged.before_recovery(&level);
        let said = recover(&running.daemon)?;
        let journals = journals(&running.daemon);
        if said.contains("STUCK") || journals > 0 {
            return Err(Error::Different(format!("{journals} journals are left: {said}")));
        }
        self.assert_as_before()
    }

    fn assert_as_before(&mut self) -> Result<()> {
        let level = self.level(HANG)?;
        self.judged.in_the_end(level, HANG)
    }

    fn level(&mut self, settle: Duration) -> Result<Level> {
        let mut now = String::new();
        wait_until(settle, || {
            now = self.stage.picture().unwrap_or_default();
            now == self.picture
        });
        let wrong = match now == self.picture {
            false => Some(format!("before:\n{}\nafter:\n{now}", self.picture)),
            // A machine that stands still does not answer, and one that is told to does not for good.
            true => (!wait_until(settle, || !self.stage.acts().unwrap_or(true)))
                .then(|| "it acts, and does not show".to_owned()),
        };
        let behaves = || wrong.map_or(Ok(()), |wrong| Err(Error::Different(wrong)));
        self.before.level_within(&self.stage.namespaces(), settle, behaves)
    }

    /// What daemon and guard wrote lately.
    pub(crate) fn log(&self) -> String {
        let Some(running) = &self.running else { return String::new() };
        let (daemon, guard) = (running.daemon.log(), running.guard.log());
        let last = |log: &str| log.lines().rev().take(6).map(|line| format!("\n    {line}")).collect();
        [daemon, guard].map(|log| -> String { last(&log) }).concat()
    }
}

fn recover(daemon: &Daemon) -> Result<String> {
    let mut command = Command::new(binary("chaos-daemon")?);
    output(command.arg("recover").arg("--runtime-dir").arg(daemon.runtime_dir()))
}

/// Collects what is left of a daemon whose injector has died, and of its guard.
fn bury(running: &mut Running) {
    let all = running.daemon.processes();
    running.daemon.kill_everything();
    running.guard.kill();
    wait_until(HANG, || !all.iter().any(Process::runs));
    // Children of ours only where orphans become ours.
    let orphans = process::descendants(std::process::id().cast_signed());
    for orphan in orphans.iter().filter(|orphan| orphan.state == 'Z') {
        let _ = waitpid(Pid::from_raw(orphan.pid), Some(WaitPidFlag::WNOHANG));
    }
}

/// How many journals have a whole line. Of one that has none nothing was made: it is not the guard's, but for the next recovery to
/// take away.
fn begun(daemon: &Daemon) -> usize {
    let journals = std::fs::read_dir(daemon.runtime_dir().join("journal")).into_iter().flatten().flatten();
    journals.filter(|file| std::fs::read(file.path()).is_ok_and(|text| text.contains(&b'\n'))).count()
}

/// How many journals there are.
pub(crate) fn journals(daemon: &Daemon) -> usize {
    std::fs::read_dir(daemon.runtime_dir().join("journal")).map_or(0, Iterator::count)
}
