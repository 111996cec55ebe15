//! Where a sweep takes place: two namespaces, a daemon between points, and the oracle that judges each point.

mod signs;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tempfile::{NamedTempFile, TempDir};

use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::daemon::{ROOM, binary, policy_file};
use crate::fault::Fault;
use crate::kernel::Attach;
use crate::kinds::aims::{Aims, NOBODYS_UNIT};
use crate::late::HANG;
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt};
use crate::name_server::comes_back;
use crate::netns::output;
use crate::process::{self, Process, wait_until};
use crate::residue::{Behaviour, Judged, Level};
use crate::sweep::{Kind, list};
use crate::tools::{Came, Session};
use crate::touch::Touch;
use crate::worker::{self, Worker};
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

/// Nobody serves it.
const PORT: u16 = 80;
/// A single answer may take so long; a machine under load is not a fault. Delays that are injected are longer.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same of an answer of an MCP server, behind a proxy, which is a process more. Its fault has calls fail, and delays none.
const PATIENCE_OF_CALLS: Duration = Duration::from_millis(400);
/// Traffic is normal this soon after a strike.
const NORMAL: Duration = Duration::from_secs(1);

/// Namespaces, echo and daemon.
pub(crate) struct Bench {
    attach: Attach,
    /// Which build of the daemon, and what its environment has.
    program: &'static str,
    environment: Vec<(&'static str, PathBuf)>,
    pub(crate) pair: Pair,
    echo: Echo,
    /// Stands still under `process_pause` only.
    worker: Worker,
    /// The worker's file.
    _of_worker: worker::Program,
    running: Option<Running>,
    before: Residue,
    /// What was found of residue; whoever takes it counts it.
    pub(crate) judged: Judged,
    /// For faults of calls: a process in a control group.
    service: RefCell<Caller>,
    cgroup: Cgroup,
    /// For faults of calls to MCP servers: a session with one, behind a proxy.
    session: RefCell<Session>,
    /// For faults of files: one that this process opens.
    file: NamedTempFile,
    /// For faults that take room.
    folder: TempDir,
}

/// What of its behaviour is looked at.
pub(crate) type Look = fn(&Bench) -> Result<Behaviour>;

struct Running {
    // Before the daemon, so that it hangs up first.
    mcp: Mcp,
    daemon: Daemon,
}

impl Bench {
    /// Makes the namespaces; the daemon comes with the first point.
    pub(crate) fn new(attach: Attach) -> Result<Self> {
        Self::of("chaos-daemon", Vec::new(), attach)
    }

    /// As [`Bench::new`], with another build of the daemon, and variables for it.
    pub(crate) fn of(
        program: &'static str,
        environment: Vec<(&'static str, PathBuf)>,
        attach: Attach,
    ) -> Result<Self> {
        // What the injector leaves when it dies becomes a child of ours, so that we can tell.
        prctl::set_child_subreaper(true).map_err(Error::sys("become", "subreaper"))?;
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let of_worker = worker::Program::new()?;
        let worker = of_worker.start(1, "bench")?;
        let cgroup = Cgroup::new()?;
        let file = NamedTempFile::new().map_err(Error::io("create", "a file"))?;
        let folder = TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?;
        let service = RefCell::new(Caller::start(&pair.near, Some(&cgroup))?);
        let session = RefCell::new(Session::start()?);
        let before = Residue::take_with(&[&pair.near, &pair.far], &[cgroup.path()])?;
        Ok(Self {
            attach,
            program,
            environment,
            pair,
            echo,
            worker,
            _of_worker: of_worker,
            running: None,
            before,
            judged: Judged::default(),
            service,
            cgroup,
            session,
            file,
            folder,
        })
    }

    /// A fault of a kind that is called so.
    pub(crate) fn fault(&self, name: &str) -> Result<Fault> {
        self.of_kind(name, Kind::fault)
    }

    /// The same as the matrix has it.
    pub(crate) fn fault_in_matrix(&self, name: &str) -> Result<Fault> {
        self.of_kind(name, Kind::fault_in_matrix)
    }

    fn of_kind(&self, name: &str, fault: fn(&Kind, &Aims) -> Option<Fault>) -> Result<Fault> {
        let kind = list::all().find(|kind| kind.name == name);
        let fault = kind.and_then(|kind| fault(kind, &self.aims()));
        fault.ok_or_else(|| Error::Different(format!("{name} is not tried on the bench")))
    }

    fn aims(&self) -> Aims {
        Aims {
            netns: Some(self.pair.near.name().to_owned()),
            peer: "10.77.0.2",
            // A server of the far namespace's own host.
            server: self.echo.address(),
            netns_of_server: Some(self.pair.far.name().to_owned()),
            port: PORT,
            unit: NOBODYS_UNIT,
            group: self.cgroup.name(),
            process: self.worker.pid(),
            proxy: self.session.borrow().pid(),
            file: self.file.path().to_owned(),
            folder: self.folder.path().to_owned(),
        }
    }

    /// A daemon that has its warm holder waiting.
    pub(crate) fn ready(&mut self) -> Result<(&Daemon, &Mcp)> {
        if self.running.is_none() {
            let policy = policy_file(ROOM)?;
            let daemon = Daemon::start_program(self.program, |command| {
                self.attach.configure(command);
                command.arg("--policy").arg(policy.path());
                command.envs(self.environment.iter().map(|(name, value)| (name, value)));
            })?;
            self.running = Some(Running { mcp: daemon.mcp()?, daemon });
        }
        let running = self.running()?;
        running.daemon.wait_until_warm()?;
        self.daemon()
    }

    /// How it behaves before all faults, looked at so.
    pub(crate) fn behaviour(&mut self, look: Look) -> Result<Behaviour> {
        self.ready()?;
        Behaviour::before(|| look(self))
    }

    /// Fails unless it behaves as it did then.
    pub(crate) fn assert_behaves_like(&mut self, before: &Behaviour, look: Look) -> Result<()> {
        self.ready()?;
        Behaviour::after(before, || look(self))
    }

    /// Losses, round trip, and what calls of the service get: in a few milliseconds.
    pub(crate) fn traffic_and_calls(&self) -> Result<Behaviour> {
        let (mut service, file) = (self.service.borrow_mut(), self.file.path());
        Behaviour::of_traffic_and_calls(&self.pair, &self.echo, &mut service, file)
    }

    /// And who uses up CPU time: 100 ms of it, on a busy machine twice as long.
    pub(crate) fn everything(&self) -> Result<Behaviour> {
        self.traffic_and_calls()?.and_of_processors()
    }

    /// The daemon, whatever it does.
    pub(crate) fn daemon(&self) -> Result<(&Daemon, &Mcp)> {
        self.running().map(|running| (&running.daemon, &running.mcp))
    }

    fn running(&self) -> Result<&Running> {
        self.running.as_ref().ok_or_else(|| Error::Different("no daemon".into()))
    }

    /// After the injector or everything was killed: all is gone at once, and recovery leaves nothing. Returns the
    /// time from the strike to the first packet that came through.
    pub(crate) fn judge_death(&mut self, struck: Instant) -> Result<Duration> {
        let normal = self.time_to_normal(struck)?;
        let Some(mut running) = self.running.take() else { return Ok(normal) };
        running.daemon.kill_everything();
        if !wait_until(HANG, || self.orphans().is_empty()) {
            return Err(Error::Different(format!("still running: {:?}", self.orphans())));
        }
        self.assert_nothing_acts()?;
        let mut command = Command::new(binary("chaos-daemon")?);
        let said = output(command.arg("recover").arg("--runtime-dir").arg(running.daemon.runtime_dir()))?;
        if said.contains("STUCK") {
            return Err(Error::Different(said));
        }
        self.assert_nothing_left()?;
        journal_is_empty(&running.daemon)?;
        Ok(normal)
    }

    /// Kills every process of the daemon.
    pub(crate) fn kill_everything(&mut self) -> Result<()> {
        if let Some(running) = &mut self.running {
            running.daemon.kill_everything();
        }
        match wait_until(HANG, || self.orphans().is_empty()) {
            true => Ok(()),
            false => Err(Error::Different(format!("still running: {:?}", self.orphans()))),
        }
    }

    /// Recovers with the build and the environment of this place.
    pub(crate) fn recover(&self) -> Result<Output> {
        let mut command = Command::new(binary(self.program)?);
        command.arg("recover").arg("--runtime-dir").arg(self.running()?.daemon.runtime_dir());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.output().map_err(Error::io("start", self.program))
    }

    /// After a holder was killed or a call failed: the daemon itself has undone everything and goes on.
    pub(crate) fn judge_survival(&mut self, fault: &Fault, struck: Instant) -> Result<Duration> {
        let normal = self.time_to_normal(struck)?;
        let Some(running) = &self.running else { return Ok(normal) };
        if running.daemon.injector().is_none_or(|injector| !injector.runs()) {
            return Err(Error::Different(format!("the injector died; log:\n{}", running.daemon.log())));
        }
        self.remove(fault)?;
        self.assert_nothing_left()?;
        let Some(running) = &self.running else { return Ok(normal) };
        // A holder that was started for a fault has no room to load programs for one not known yet.
        let idle = || running.daemon.holders().iter().all(|holder| holder.arguments.len() > 2);
        if !wait_until(HANG, idle) {
            return Err(Error::Different(format!("holders left: {:?}", running.daemon.holders())));
        }
        Ok(normal)
    }

    /// Nobody has recovered yet: whatever is left does nothing. That traffic is normal was measured just now.
    fn assert_nothing_acts(&mut self) -> Result<()> {
        let level = self.level(Duration::ZERO, || Ok(()))?;
        self.judged.before_recovery(&level);
        match level {
            Level::Effect(what) => Err(Error::Different(format!("acts before recovery: {what}"))),
            Level::Identical | Level::Inert(_) => Ok(()),
        }
    }

    fn assert_nothing_left(&mut self) -> Result<()> {
        // How soon was judged before: now it is whether.
        let level = self.level(HANG, || self.normal_within(Instant::now(), HANG).map(drop))?;
        self.judged.in_the_end(level, HANG)
    }

    fn level(&self, settle: Duration, behaves: impl FnOnce() -> Result<()>) -> Result<Level> {
        self.before.level_within(&[&self.pair.near, &self.pair.far], settle, behaves)
    }

    /// Removes the fault; returns since when it is.
    pub(crate) fn remove(&self, fault: &Fault) -> Result<Instant> {
        if let Some(running) = &self.running
            && fault.remove(&running.mcp).is_err()
        {
            // The server may have been started again, and with it every connection has ended.
            fault.remove(&running.daemon.mcp_again()?)?;
        }
        Ok(Instant::now())
    }

    /// Whether no journal is left; recovery removes what the daemon could not.
    pub(crate) fn journal_is_empty(&self) -> Result<()> {
        self.running.as_ref().map_or(Ok(()), |running| journal_is_empty(&running.daemon))
    }

    /// Ends the daemon as an operator would, and recovers.
    pub(crate) fn restart(&mut self) -> Result<()> {
        match self.running.take() {
            Some(mut running) => {
                running.daemon.stop()?;
                let mut command = Command::new(binary("chaos-daemon")?);
                output(command.arg("recover").arg("--runtime-dir").arg(running.daemon.runtime_dir()))?;
                journal_is_empty(&running.daemon)
            }
            None => Ok(()),
        }
    }

    /// What the daemon wrote lately.
    pub(crate) fn log(&self) -> String {
        let log = self.running.as_ref().map(|running| running.daemon.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(6).collect();
        lines.iter().rev().map(|line| format!("\n    {line}")).collect()
    }

    /// What is not as without a fault, if anything.
    fn abnormal(&self) -> Result<Option<&'static str>> {
        let (from, to) = (&self.pair.near, self.echo.address());
        let mut service = self.service.borrow_mut();
        Ok(if self.worker.state() == Some('t') {
            Some("the worker")
        } else if service.ask(Ask::Associate(to))? != 0 {
            Some("calls")
        } else if service.touch(Touch::Open, self.file.path())? != 0 {
            Some("files")
        } else if self.session.borrow_mut().ask("a", PATIENCE_OF_CALLS)? != Came::Result {
            Some("the MCP session")
        } else if udp_rtt(from, to, PATIENCE)?.is_none() {
            Some("datagrams")
        } else if !comes_back(from, to, PATIENCE)? {
            Some("questions")
        } else if !matches!(tcp_rtt(from, to, PATIENCE)?, Tcp::Answered { .. }) {
            Some("connections")
        } else {
            None
        })
    }

    /// Processes below this one that still run, but for our own; those that have ended are collected.
    fn orphans(&self) -> Vec<Process> {
        let mut found = process::descendants(std::process::id().cast_signed());
        let mut ours = self.session.borrow().pids();
        ours.extend([self.service.borrow().pid().cast_signed(), self.worker.pid()]);
        found.retain(|process| match process.state {
            _ if ours.contains(&process.pid) => false,
            'Z' => waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG)).is_err(),
            _ => true,
        });
        found
    }

    fn time_to_normal(&self, since: Instant) -> Result<Duration> {
        self.normal_within(since, NORMAL)
    }

    fn normal_within(&self, since: Instant, limit: Duration) -> Result<Duration> {
        loop {
            let sent = since.elapsed();
            match self.abnormal()? {
                None => return Ok(sent),
                // It is looked once at least, however long ago that was.
                Some(what) if since.elapsed() >= limit => {
                    return Err(Error::in_vain(format!("{what} normal"), limit));
                }
                Some(_) => {}
            }
        }
    }
}

fn journal_is_empty(daemon: &Daemon) -> Result<()> {
    let folder = daemon.runtime_dir().join("journal");
    let left = || match std::fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
        // The daemon died before it was made.
        Err(_) => Vec::new(),
    };
    match wait_until(HANG, || left().is_empty()) {
        true => Ok(()),
        false => Err(Error::Different(format!("journals left: {:?}", left()))),
    }
}
