//! The guard: a process of its own that ends supervised faults when the daemon cannot. It watches the injector's process and
//! its heartbeats; when there is none of either, it ends what is left of the injector and recovers from the journal, by the
//! very code that `recover` is.
//!
//! It holds no fault, serves nobody and reads nothing but the runtime directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::host::MissingPrivilege;
use crate::host::privilege::{GUARD, LimitError, check_guard, limit_to};
use crate::host::program::{Foreign, own};
use crate::injector::manager::ServiceManager;
use crate::injector::recover::{RecoverError, Recovered, recover};
use crate::injector::runtime::{Claimant, Runtime};
use crate::injector::watch::{Heartbeat, SILENCE};
use crate::journal::Journal;
use crate::kernel::process::{Process, ProcessId};
use crate::sabotage;

/// How long one look lasts at most. The end of the injector's process cuts it short.
const LOOK: Duration = Duration::from_millis(50);
/// So many looks at a beat that does not change are long enough to have seen the next: four beats' time.
const ENOUGH_LOOKS: u32 = 20;
/// How long a process that recovers may take: longer than the steps of all faults that it may find.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// How long to wait before an undo that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How often the service manager hears of us.
const TELL: Duration = Duration::from_secs(2);

/// Why the guard cannot run.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Not root, or root without what it needs.
    #[error("guarding needs root")]
    Privilege(#[from] MissingPrivilege),
    /// Capabilities could not be given up.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// There is one already.
    #[error("another guard is running in {0}")]
    InUse(PathBuf),
    /// Others could change the runtime directory.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The operating system refused something.
    #[error("{operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Guards the daemon of `runtime_dir` until SIGTERM. A daemon with supervised faults then ends them; what one that is dead or
/// hangs has left, the guard ends first.
///
/// # Errors
/// When it cannot start.
pub fn run(runtime_dir: &Path, manager: &ServiceManager) -> Result<(), GuardError> {
    check_guard()?;
    limit_to(GUARD)?;
    let mut guard = Guard::claim(runtime_dir, manager)?;
    let orders = orders().map_err(|source| {
        let path = runtime_dir.to_owned();
        GuardError::Io { operation: "listen for signals in", path, source }
    })?;
    manager.tell("READY=1");
    tracing::info!(runtime_dir = %runtime_dir.display(), "guarding");
    let mut told = false;
    loop {
        guard.beat();
        told |= orders.read_signal().is_ok_and(|signal| signal.is_some());
        if told && guard.may_leave() {
            return Ok(());
        }
        guard.look();
    }
}

/// SIGTERM, to be read between two looks (signalfd(2)) instead of being died of.
fn orders() -> io::Result<SignalFd> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTERM);
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

struct Guard<'a> {
    me: ProcessId,
    runtime_dir: PathBuf,
    journal: Journal,
    heartbeat: Heartbeat,
    manager: &'a ServiceManager,
    /// When the service manager heard of us last.
    told: Option<Instant>,
    /// The injector's beat that was seen last, and in how many looks in a row. While the host is suspended or has no time for
    /// anybody, we do not look either: what could not beat then is not dead.
    seen: (u64, u32),
    /// When an undo that failed may be tried again.
    retry: Instant,
    /// While it lives, no other guard is here.
    _lock: Flock<File>,
}

impl<'a> Guard<'a> {
    fn claim(runtime_dir: &Path, manager: &'a ServiceManager) -> Result<Self, GuardError> {
        let io = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| GuardError::Io { operation, path, source }
        };
        own("the runtime directory", runtime_dir)?;
        std::fs::create_dir_all(runtime_dir).map_err(io("create the runtime directory", runtime_dir))?;
        own("the runtime directory", runtime_dir)?;
        let path = runtime_dir.join("guard");
        // OPENS: root, who starts the guard | the guard | the folder is root's, with all above it (`own`)
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(io("open", &path))?;
        let mut lock =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
                Errno::EWOULDBLOCK => GuardError::InUse(runtime_dir.to_owned()),
                errno => io("lock", &path)(errno.into()),
            })?;
        let heartbeat = Heartbeat::of_guard(runtime_dir).map_err(io("open the heartbeat in", runtime_dir))?;
        // Before the name: who is named is expected to beat.
        heartbeat.beat();
        let me = ProcessId::of(std::process::id().cast_signed()).map_err(io::Error::other);
        let me = me.map_err(io("identify", &path))?;
        let text = serde_json::to_string(&me).map_err(io::Error::from).map_err(io("identify", &path))?;
        let write = lock.set_len(0).and_then(|()| lock.write_all(text.as_bytes()));
        write.map_err(io("write", &path))?;
        let journal =
            Journal::open(runtime_dir.join("journal")).map_err(io("open the journal in", runtime_dir))?;
        let now = Instant::now();
        let runtime_dir = runtime_dir.to_owned();
        let (told, seen) = (None, (0, 0));
        Ok(Self { me, runtime_dir, journal, heartbeat, manager, told, seen, retry: now, _lock: lock })
    }

    /// Says that it is there, to the injector and to the service manager.
    fn beat(&mut self) {
        self.heartbeat.beat();
        if self.told.is_none_or(|told| told.elapsed() > TELL) {
            self.manager.tell("WATCHDOG=1");
            self.told = Some(Instant::now());
        }
    }

    /// Who is named as injector, alive or not. After a recovery of ours that is this process, which stands for nobody.
    fn injector(&self) -> Option<Claimant> {
        Runtime::named(&self.runtime_dir).filter(|claimant| claimant.process != self.me)
    }

    /// One look: nothing to do while the injector lives and beats, or has left nothing that outlives it.
    fn look(&mut self) {
        if sabotage::without(sabotage::Guard::GuardUnit) {
            return thread::sleep(LOOK);
        }
        let alive = self.injector().map(|claimant| (claimant, claimant.process.open()));
        match alive {
            // Killed, and gone in a moment; or it hangs in the kernel, for nobody knows how long.
            Some((claimant, Ok(Some(process)))) if process.dying => {
                let hangs = !process.wait(LOOK).unwrap_or(false);
                if hangs && Instant::now() >= self.retry && self.pending() {
                    tracing::error!(pid = claimant.process.pid, "the injector was killed, and has not ended");
                    self.end_and_recover(&process);
                }
            }
            Some((claimant, Ok(Some(process)))) => {
                let patience = if claimant.recovers { RECOVERY_LIMIT } else { SILENCE };
                match self.silent_beyond(patience, Self::pending) {
                    Some(silent) if Instant::now() >= self.retry => {
                        let pid = claimant.process.pid;
                        let (stat, waits_in) = last_seen(pid);
                        tracing::error!(pid, ?silent, stat, waits_in, "the injector is silent; ending it");
                        self.end_and_recover(&process);
                    }
                    // Wakes at once when it ends.
                    _ => drop(process.wait(LOOK)),
                }
            }
            Some((_, Err(error))) => {
                tracing::error!(%error, "cannot look at the injector");
                thread::sleep(LOOK);
            }
            Some((_, Ok(None))) | None if self.pending() && Instant::now() >= self.retry => {
                tracing::error!("the injector has ended and left supervised faults; undoing them");
                self.recover();
            }
            Some((_, Ok(None))) | None => thread::sleep(LOOK),
        }
    }

    /// How long the injector has not beaten, if that is longer than `patience` and something is pending. The beat is looked at
    /// once more at last, for it may have come before what is pending.
    fn silent_beyond(&mut self, patience: Duration, pending: impl FnOnce(&Self) -> bool) -> Option<Duration> {
        let is_silent = self.silent_for() > patience && pending(self);
        is_silent.then(|| self.silent_for()).filter(|silent| *silent > patience)
    }

    /// How long the injector has not beaten, as far as we have been looking.
    fn silent_for(&mut self) -> Duration {
        let Ok(heartbeat) = Heartbeat::of_injector(&self.runtime_dir) else { return Duration::ZERO };
        let last = heartbeat.last();
        if last != self.seen.0 {
            self.seen = (last, 0);
        }
        self.seen.1 = self.seen.1.saturating_add(1);
        if self.seen.1 < ENOUGH_LOOKS { Duration::ZERO } else { heartbeat.age() }
    }

    /// Whether there may be something on the node that does not end by itself. What cannot be read counts.
    fn pending(&self) -> bool {
        self.journal
            .left_behind()
            .map_or(true, |found| found.iter().any(crate::journal::Found::is_supervised))
    }

    /// Whether nobody needs it: an injector that beats ends its faults when it misses the guard, and otherwise nothing may be left.
    fn may_leave(&self) -> bool {
        let lives =
            |claimant: Claimant| claimant.process.open().is_ok_and(|open| open.is_some_and(|it| !it.dying));
        let beats = self.injector().is_some_and(lives)
            && Heartbeat::of_injector(&self.runtime_dir).is_ok_and(|heartbeat| heartbeat.age() < SILENCE);
        beats || !self.pending()
    }

    /// What was killed does nothing more in user space: if it hangs in the kernel, recovery takes its place.
    fn end_and_recover(&mut self, process: &Process) {
        if let Err(error) = process.signal(libc::SIGKILL) {
            tracing::error!(%error, "cannot end the injector");
        }
        self.recover();
    }

    /// Recovers, and beats meanwhile, for as long as that may take.
    fn recover(&mut self) {
        let runtime_dir = self.runtime_dir.clone();
        let recovered = thread::scope(|scope| {
            let (under_way, over) = mpsc::channel::<()>();
            let work = || {
                let _until_it_is_over = under_way;
                recover(&runtime_dir, None)
            };
            let worker = thread::Builder::new().spawn_scoped(scope, work).ok()?;
            let begun = Instant::now();
            while begun.elapsed() < RECOVERY_LIMIT
                && over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout)
            {
                self.beat();
            }
            worker.join().ok()
        });
        // Without a thread for it, or when that has panicked.
        let recovered = recovered.unwrap_or_else(|| recover(&self.runtime_dir, None));
        self.report(recovered);
    }

    fn report(&mut self, recovered: Result<Recovered, RecoverError>) {
        match recovered {
            Ok(recovered) => {
                recovered.log();
                if !recovered.stuck.is_empty() {
                    self.retry = Instant::now() + RETRY;
                }
            }
            // Somebody else was quicker, and recovers as well: the next look says whether anything is left.
            Err(RecoverError::Runtime(error)) => {
                tracing::info!(%error, "somebody else has taken over");
                thread::sleep(LOOK);
            }
            Err(error) => {
                tracing::error!(%error, "cannot recover");
                self.retry = Instant::now() + RETRY;
            }
        }
    }
}

/// What the kernel says of a process, for whoever has to find out why it was silent: its state and usage, and where it waits.
fn last_seen(pid: i32) -> (String, String) {
    let says = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default().trim().to_owned();
    (says("stat"), says("wchan"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CgroupRef;
    use crate::kernel::process::end_child;
    use crate::kernel::process::tests::child_without_its_first_thread;
    use crate::kernel::setting::{CgroupSetting, Knob, Setting};
    use crate::kernel::step::Step;
    use crate::spec::{FaultType, QualifiedName};
    use crate::waits::wait_for;

    /// Has the journal say that the folder, a control group as far as values go, was limited to 5 processes instead of 9.
    fn begin_limit(guard: &Guard<'_>) {
        let cgroup = CgroupRef::find(&guard.runtime_dir).unwrap().unwrap();
        let setting = CgroupSetting { cgroup, knob: Knob::PidsMax, old: "9".into(), new: "5".into() };
        let name = QualifiedName::parse("a").unwrap();
        let step = Step::Setting(Setting::Cgroup(setting));
        guard.journal.begin(1, &name, FaultType::ResourceExhaustion, &[step]).unwrap();
    }

    #[test]
    fn one_guard_per_runtime_directory() {
        let folder = tempfile::tempdir().unwrap();
        let manager = ServiceManager::default();
        let first = Guard::claim(folder.path(), &manager).unwrap();
        assert!(matches!(Guard::claim(folder.path(), &manager), Err(GuardError::InUse(_))));
        drop(first);
        assert!(Guard::claim(folder.path(), &manager).is_ok());
    }

    #[test]
    fn while_it_waits_for_somebody_else_who_recovers_the_guard_beats() {
        let folder = tempfile::tempdir().unwrap();
        let manager = ServiceManager::default();
        let mut guard = Guard::claim(folder.path(), &manager).unwrap();
        let other = Runtime::claim(folder.path()).unwrap();
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(2 * SILENCE);
                drop(other);
            });
            guard.recover();
        });
        // Without a beat meanwhile, the last one would be from before it.
        let (age, took) = (guard.heartbeat.age(), begun.elapsed());
        assert!(age < took / 2, "it took {took:?}, and the last beat was {age:?} ago");
    }

    #[test]
    fn what_an_injector_has_left_is_undone_although_a_thread_of_it_has_not_ended() {
        let folder = tempfile::tempdir().unwrap();
        let manager = ServiceManager::default();
        let mut guard = Guard::claim(folder.path(), &manager).unwrap();
        let value = folder.path().join("pids.max");
        std::fs::write(&value, "5\n").unwrap();
        begin_limit(&guard);
        let dead = child_without_its_first_thread(|| {
            let mut runtime = Runtime::claim(folder.path()).unwrap();
            drop(runtime.serve());
            runtime
        });
        guard.look();
        assert!(!guard.pending());
        assert_eq!(std::fs::read_to_string(&value).unwrap(), "9\n");
        end_child(dead.pid).unwrap();
    }

    #[test]
    fn an_undo_that_failed_is_tried_again_soon_although_the_recovery_has_left_the_guards_name() {
        let folder = tempfile::tempdir().unwrap();
        let manager = ServiceManager::default();
        let mut guard = Guard::claim(folder.path(), &manager).unwrap();
        // A control group as far as values go, of which one cannot be read at first.
        let value = folder.path().join("pids.max");
        std::fs::create_dir(&value).unwrap();
        begin_limit(&guard);

        guard.look();
        assert!(guard.pending(), "what cannot be read was taken for undone");
        assert!(!guard.may_leave(), "nobody else would try again");
        std::fs::remove_dir(&value).unwrap();
        std::fs::write(&value, "5\n").unwrap();
        wait_for(|| {
            guard.look();
            !guard.pending()
        });
        assert_eq!(std::fs::read_to_string(&value).unwrap(), "9\n");
    }

    #[test]
    fn an_injector_is_silent_only_after_it_has_been_looked_at_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let manager = ServiceManager::default();
        let mut guard = Guard::claim(folder.path(), &manager).unwrap();
        assert_eq!(guard.silent_for(), Duration::ZERO);
        let silent = (0..ENOUGH_LOOKS).map(|_| guard.silent_for()).max();
        assert!(silent > Some(SILENCE), "one that has never beaten is silent");
        Heartbeat::of_injector(folder.path()).unwrap().beat();
        assert_eq!(guard.silent_for(), Duration::ZERO);
    }

    #[test]
    fn one_that_beats_while_the_guard_looks_for_what_is_pending_is_not_silent() {
        let folder = tempfile::tempdir().unwrap();
        let manager = ServiceManager::default();
        let mut guard = Guard::claim(folder.path(), &manager).unwrap();
        let look_for_long = |guard: &mut Guard<'_>| (0..ENOUGH_LOOKS).map(|_| guard.silent_for()).max();
        look_for_long(&mut guard);
        assert_eq!(guard.silent_beyond(SILENCE, |_| false), None, "nothing is pending");
        assert!(guard.silent_beyond(SILENCE, |_| true) > Some(SILENCE));
        let beats = |guard: &Guard<'_>| {
            Heartbeat::of_injector(&guard.runtime_dir).unwrap().beat();
            true
        };
        assert_eq!(guard.silent_beyond(SILENCE, beats), None);
    }

    #[test]
    fn what_is_said_of_a_silent_process_is_its_state_as_the_kernel_sees_it() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = ProcessId::of(child.id().cast_signed()).unwrap();
        let opened = process.open().unwrap().unwrap();
        opened.signal(libc::SIGSTOP).unwrap();
        wait_for(|| last_seen(process.pid).0.contains(") T "));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(last_seen(process.pid).0, "");
    }
}
