//! The processes without rights, as children of the injector: the server, the prober, and the runner where the policy names programs.
//! Another user, no capability, the sockets that they need; the server also without any network, and what the runner starts in a
//! namespace of process numbers that ends with it. The rest they give up themselves (`host/sandbox.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::Options;
use super::alerts::Ears;
use super::child::{CHILD_FD, collect, ended, kill, start_child};
use crate::host::accounts;
use crate::host::allowed::Allowed;
use crate::request::WentDown;
use crate::request::claim::arrivals;
use crate::request::descriptors::hand_over;
use crate::request::names::Resolver;
use crate::spec::origin::Origin;

/// The user that an installed daemon has for its server.
const USER: &str = "chaos";
/// Where there is no such user. Neither Debian nor systemd gives these numbers to anybody, and nobody is shared by whoever has no user
/// of its own.
const UNNAMED_SERVER: (u32, u32) = (65_531, 65_531);
/// The prober's user, which has no name: no file is its own, and the server, with which callers speak, is another.
const PROBER: (u32, u32) = (65_532, 65_532);
/// The user that an installed daemon has for the programs of probes: not the server's, whose files and processes are none of their business.
const RUNNER: &str = "chaos-probe";
/// Where there is no such user.
const UNNAMED_RUNNER: (u32, u32) = (65_533, 65_533);

/// How long to wait before a prober or a runner that has died is followed by another.
const TAKER_PAUSE: Duration = Duration::from_millis(300);
/// How long a runner may take to end by itself; its programs end in any case.
const RUNNER_ENDS: Duration = Duration::from_secs(1);

/// A running server, and those that take samples for it. Dropping it kills them.
#[derive(Debug)]
pub struct ServerProcess {
    server: Child,
    prober: Taker,
    runner: Option<Taker>,
}

/// The prober or the runner: it may die and be replaced while the server lives.
#[derive(Debug)]
struct Taker {
    what: &'static str,
    /// None while there is a pause before the next.
    child: Option<Child>,
    /// By which the server gets its stream to each of them.
    to_server: StdUnixStream,
}

/// Everything that is needed to start the server, and to start it again.
#[derive(Debug)]
pub struct Recipe {
    directory: PathBuf,
    user: (u32, u32),
    /// What probes may run, and as whom.
    allowed: Allowed,
    runner: (u32, u32),
    /// With what probes may ask clusters.
    kubeconfigs: BTreeSet<String>,
    /// What probes may show, and to whom.
    credentials: BTreeMap<String, BTreeSet<Origin>>,
    alerts: Option<Ears>,
    keep_runs: u32,
    keep_megabytes: u64,
    keep_days: Option<u32>,
    most_runs: u32,
    connections: u32,
    /// What has taken the host down before this boot.
    went_down: Option<WentDown>,
}

impl Recipe {
    /// Prepares the server's directory below the state directory.
    ///
    /// # Errors
    /// When it cannot be made or given to the server's user.
    pub fn new(options: &Options, alerts: Option<Ears>, went_down: Option<WentDown>) -> io::Result<Self> {
        let user = unprivileged()?;
        let directory = options.state_dir.join("server");
        own_directory(&directory, user)?;
        let programs = options.policy.programs().map_err(io::Error::other)?;
        let allowed = Allowed { programs, python: options.policy.probe_python.clone() };
        let runner = accounts::user(RUNNER)?.unwrap_or(UNNAMED_RUNNER);
        let kubeconfigs = options.policy.probe_kubeconfigs.clone();
        let credentials = options.policy.probe_credentials.clone();
        let (keep_runs, keep_megabytes) = (options.keep_runs, options.keep_megabytes);
        let (keep_days, most_runs) = (options.keep_days, options.most_runs);
        Ok(Self {
            directory,
            user,
            allowed,
            runner,
            kubeconfigs,
            credentials,
            alerts,
            keep_runs,
            keep_megabytes,
            keep_days,
            most_runs,
            connections: options.connections,
            went_down,
        })
    }

    /// Starts the server with its prober and its runner; returns them, and the injector's ends of the door to the server and of the
    /// socket by which it gets connections. By `resolver` the prober is asked for addresses of names.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn start(&self, resolver: &Resolver) -> io::Result<(ServerProcess, UnixStream, UnixStream)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (announces, arrivals) = arrivals()?;
        let (prober, probers) = Taker::new("prober", self.start_prober(resolver)?)?;
        let (runner, runners) = match self.start_runner()? {
            Some(started) => Some(Taker::new("runner", started)?).unzip(),
            None => (None, None),
        };
        let mut fds = vec![arrivals.into(), theirs.into(), probers.into()];
        let mut names = vec!["--arrivals-fd", "--door-fd", "--prober-fd"];
        if let Some(runners) = runners {
            fds.push(runners.into());
            names.push("--runner-fd");
        }
        let server = spawn(self.user, CloneFlags::CLONE_NEWNET, fds, |command| {
            command.arg("server").arg("--state-dir").arg(&self.directory);
            command.arg("--keep-runs").arg(self.keep_runs.to_string());
            command.arg("--keep-megabytes").arg(self.keep_megabytes.to_string());
            command.arg("--most-runs").arg(self.most_runs.to_string());
            command.arg("--user-connections").arg(self.connections.to_string());
            if let Some(days) = self.keep_days {
                command.arg("--keep-days").arg(days.to_string());
            }
            if let Some(went_down) = &self.went_down {
                command.arg("--went-down").arg(went_down.to_argument());
            }
            for (name, fd) in names.iter().zip(CHILD_FD..) {
                command.arg(name).arg(fd.to_string());
            }
        })?;
        let announces = UnixStream::from_std(announces)?;
        Ok((ServerProcess { server, prober, runner }, UnixStream::from_std(ours)?, announces))
    }

    /// A prober, which `resolver` asks from now on, and the server's end of the stream to it.
    fn start_prober(&self, resolver: &Resolver) -> io::Result<(Child, StdUnixStream)> {
        let (asks, answers) = StdUnixStream::pair()?;
        let (looks_up, told) = StdUnixStream::pair()?;
        looks_up.set_nonblocking(true)?;
        let mut fds = vec![answers.into(), told.into()];
        let heard = self.alerts.as_ref().map(|ears| ears.hand_over(&mut fds)).transpose()?;
        let shown = self.show_kubeconfigs(&mut fds)?;
        let entrusted = super::credentials::hand_over(&self.credentials, &mut fds)?;
        let prober = spawn(PROBER, CloneFlags::empty(), fds, |command| {
            command.arg("prober").args(heard.into_iter().flatten()).args(shown).args(entrusted);
        })?;
        resolver.connect(UnixStream::from_std(looks_up)?);
        Ok((prober, asks))
    }

    #[cfg(feature = "kubernetes")]
    fn show_kubeconfigs(&self, fds: &mut Vec<OwnedFd>) -> io::Result<Vec<String>> {
        super::kubeconfigs::hand_over(&self.kubeconfigs, fds)
    }

    #[cfg(not(feature = "kubernetes"))]
    fn show_kubeconfigs(&self, _: &mut Vec<OwnedFd>) -> io::Result<Vec<String>> {
        if !self.kubeconfigs.is_empty() {
            tracing::warn!("the policy names kubeconfigs, and this build has no probes of Kubernetes");
        }
        Ok(Vec::new())
    }

    /// The runner and the server's end of the stream to it; `None` where no program may be run, or none can be so that it is sure to
    /// end. The daemon does without.
    fn start_runner(&self) -> io::Result<Option<(Child, StdUnixStream)>> {
        if self.allowed.is_empty() {
            return Ok(None);
        }
        let (asks, answers) = StdUnixStream::pair()?;
        let runner = spawn(self.runner, CloneFlags::CLONE_NEWPID, vec![answers.into()], |command| {
            command.arg("runner");
            self.allowed.words().iter().for_each(|word| {
                command.arg("--command").arg(word);
            });
        });
        match runner {
            Ok(runner) => Ok(Some((runner, asks))),
            Err(error) => {
                tracing::error!(
                    %error,
                    "no program of a probe can be run: a namespace of process numbers is needed, which the unit has \
                     to allow (RestrictNamespaces=pid)"
                );
                Ok(None)
            }
        }
    }
}

/// Starts this program again, as another user and with namespaces of its own.
fn spawn(
    user: (u32, u32),
    own: CloneFlags,
    fds: Vec<OwnedFd>,
    arguments: impl FnOnce(&mut Command),
) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    arguments(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    // First: a change of the user would take the parent-death signal back (prctl(2)).
    drop_rights(&mut command, user, Vec::new(), own);
    start_child(command, fds)
}

/// The user without rights, and its group.
pub(super) fn unprivileged() -> io::Result<(u32, u32)> {
    Ok(accounts::user(USER)?.unwrap_or(UNNAMED_SERVER))
}

/// Has `command`'s process be another user, in its own group and `groups` alone, who can never get a capability again. Of the namespaces
/// that are its `own`, that of process numbers is for what it starts.
pub(super) fn drop_rights(command: &mut Command, (uid, gid): (u32, u32), groups: Vec<Gid>, own: CloneFlags) {
    // SAFETY: between fork and exec only async-signal-safe calls are made: unshare, prctl, setgroups, setgid, setuid.
    unsafe {
        command.pre_exec(move || {
            if !own.is_empty() {
                unshare(own)?;
            }
            // Up to the first number that this kernel does not know.
            for capability in 0..64 {
                if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                    break;
                }
            }
            setgroups(&groups)?;
            setgid(Gid::from_raw(gid))?;
            setuid(Uid::from_raw(uid))?;
            set_no_new_privs()?;
            Ok(())
        });
    }
}

impl Taker {
    /// Of one that was started; returns also the server's end of the socket by which it gets its streams, of which the first is there.
    fn new(what: &'static str, (child, stream): (Child, StdUnixStream)) -> io::Result<(Self, StdUnixStream)> {
        let (to_server, streams) = StdUnixStream::pair()?;
        to_server.set_nonblocking(true)?;
        hand_over(to_server.as_fd(), &stream)?;
        Ok((Self { what, child: Some(child), to_server }, streams))
    }

    /// Starts another as often as one ends, after a pause. Returns why there can be none.
    async fn keep(&mut self, start: impl Fn() -> io::Result<Option<(Child, StdUnixStream)>>) -> String {
        loop {
            if let Some(child) = &mut self.child {
                let how = said(self.what, ended(child).await);
                tracing::error!(how, "it takes no samples any more: another is started");
            }
            if let Some(child) = self.child.take() {
                collect(child, self.what).await;
            }
            sleep(TAKER_PAUSE).await;
            let started = start().and_then(|started| {
                let (child, stream) = started.ok_or(io::ErrorKind::Unsupported)?;
                hand_over(self.to_server.as_fd(), &stream)?;
                Ok(child)
            });
            match started {
                Ok(child) => self.child = Some(child),
                Err(error) => return format!("{}: it cannot be started again: {error}", self.what),
            }
        }
    }
}

/// Which process has ended, and how.
fn said(what: &str, status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("{what}: {status}"),
        Err(error) => format!("{what}: {error}"),
    }
}

impl ServerProcess {
    /// Waits until the server has ended, and says how. Meanwhile a prober or a runner that ends is followed by another: no fault ends
    /// with it, since what it reads comes from strangers. Returns as well where there can be none, and says why.
    pub async fn ended(&mut self, recipe: &Recipe, resolver: &Resolver) -> String {
        let runner = async {
            match &mut self.runner {
                Some(runner) => runner.keep(|| recipe.start_runner()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = ended(&mut self.server) => said("server", status),
            why = self.prober.keep(|| recipe.start_prober(resolver).map(Some)) => why,
            why = runner => why,
        }
    }

    /// Kills them, all at once, and waits until they are gone, but not for one that hangs in the kernel: no signal would be heard
    /// meanwhile, and no other server started. The runner ends what it has started before it goes, since the server is gone.
    pub async fn end(self) {
        let Self { mut server, prober, runner } = self;
        kill(&mut server, "server");
        let prober = async {
            let Some(mut prober) = prober.child else { return };
            kill(&mut prober, "prober");
            collect(prober, "prober").await;
        };
        let runner = async {
            let Some(mut runner) = runner.and_then(|runner| runner.child) else { return };
            if timeout(RUNNER_ENDS, ended(&mut runner)).await.is_err() {
                kill(&mut runner, "runner");
            }
            collect(runner, "runner").await;
        };
        tokio::join!(prober, collect(server, "server"), runner);
    }
}

/// The directories above stay open to passers-by: the server has to get through. One that has its owner already is left
/// alone, for which no capability is needed.
fn own_directory(directory: &Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let now = fs::metadata(directory)?;
    if (now.uid(), now.gid()) == (uid, gid) {
        return Ok(());
    }
    chown(directory, Some(uid), Some(gid))
}
