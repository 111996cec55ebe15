//! Processes of the test's own to aim at: each runs `chaos-worker` from a path that nobody else runs, and counts as long as it
//! can. Gone when the guard is.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::daemon::binary;
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{Process, descendants, wait_for, wait_until};

/// Keeps what its arguments say running below another shell, which has the arguments in its command line and not the name of this one.
const NEST: &str = r#"while sleep 0.05; do sh -c '"$@"; :' sh "$@"; done"#;

/// A program at a path of its own, of which workers can be started.
#[derive(Debug)]
pub struct Program {
    folder: TempDir,
}

impl Program {
    /// Copies the program.
    ///
    /// # Errors
    /// When it was not built.
    pub fn new() -> Result<Self> {
        let folder = TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?;
        let program = Self { folder };
        fs::copy(binary("chaos-worker")?, program.path()).map_err(Error::io("copy", "chaos-worker"))?;
        Ok(program)
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("worker")
    }

    /// Starts a worker with some threads, whose command line ends with `word`.
    ///
    /// # Errors
    /// When it does not begin to count.
    pub fn start(&self, threads: u64, word: &str) -> Result<Worker> {
        let file = self.folder.path().join(format!("count-{word}"));
        let child = spawn(&self.path(), &file, threads, word)?;
        let worker = Worker { child, file, threads };
        wait_for(&format!("count of worker {word}"), || worker.counts().iter().all(|count| *count > 0))?;
        Ok(worker)
    }

    /// Keeps a worker running below a shell that is below another, in whose command line `above` stands.
    ///
    /// # Errors
    /// When it does not begin to count.
    pub fn start_below(&self, above: &str, word: &str) -> Result<Nest> {
        let (path, file) = (self.path(), self.folder.path().join(format!("count-{word}")));
        let mut command = Command::new("sh");
        command.args(["-c", NEST, above]).arg(&path).arg(&file).args(["0", word]).stdin(Stdio::null());
        let child = command.spawn().map_err(Error::io("start", "a shell"))?;
        let nest = Nest { shell: Worker { child, file, threads: 0 }, path };
        wait_for(&format!("count of worker {word}"), || nest.shell.counts()[0] > 0)?;
        Ok(nest)
    }

    /// Keeps one worker running: starts another some time after it has ended, as a service manager does.
    ///
    /// # Errors
    /// When the first cannot be started.
    pub fn supervise(&self, pause: Duration) -> Result<Supervisor> {
        let (path, file) = (self.path(), self.folder.path().join("count-supervised"));
        let start = move || spawn(&path, &file, 1, "supervised");
        let first = start()?;
        let started = Arc::new(Mutex::new(vec![first.id().cast_signed()]));
        let stop = Arc::new(AtomicBool::new(false));
        let (pids, stopping) = (Arc::clone(&started), Arc::clone(&stop));
        let thread = thread::spawn(move || supervise(first, start, pause, &pids, &stopping));
        Ok(Supervisor { started, stop, thread: Some(thread) })
    }
}

fn spawn(path: &Path, file: &Path, threads: u64, word: &str) -> Result<Child> {
    let mut command = Command::new(path);
    command.arg(file).arg(threads.to_string()).arg(word).stdin(Stdio::null());
    let mut started = command.spawn();
    // Another thread of ours has just forked, and has the file open for writing until it executes something.
    wait_until(HANG, || {
        let busy = matches!(&started, Err(error) if error.kind() == ErrorKind::ExecutableFileBusy);
        if busy {
            started = command.spawn();
        }
        !busy
    });
    started.map_err(Error::io("start", "a worker"))
}

fn supervise(
    mut child: Child,
    start: impl Fn() -> Result<Child>,
    pause: Duration,
    pids: &Mutex<Vec<i32>>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(Some(_)) = child.try_wait() {
            thread::sleep(pause);
            let Ok(next) = start() else { return };
            child = next;
            pids.lock().unwrap_or_else(PoisonError::into_inner).push(child.id().cast_signed());
        }
        thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    file: PathBuf,
    threads: u64,
}

impl Worker {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// How far each thread has come; the last is the number of threads started and ended.
    pub fn counts(&self) -> Vec<u64> {
        let bytes = fs::read(&self.file).unwrap_or_default();
        let mut counts: Vec<_> = bytes
            .chunks_exact(8)
            .map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default()))
            .collect();
        counts.resize(usize::try_from(self.threads).unwrap_or_default() + 1, 0);
        counts
    }

    /// Whether every thread counts within some time.
    pub fn runs(&self) -> bool {
        let before = self.counts();
        wait_until(HANG, || self.counts().iter().zip(&before).all(|(now, before)| now > before))
    }

    /// Whether no thread counts for some time.
    pub fn stands_still(&self) -> bool {
        let before = self.counts();
        thread::sleep(Duration::from_millis(150));
        self.counts() == before
    }

    /// Its state letter (proc(5)); `None` when it is gone.
    pub fn state(&self) -> Option<char> {
        Process::read(self.pid()).map(|process| process.state)
    }

    /// Whether it has ended; collects it.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker below others, kept running until this is dropped.
#[derive(Debug)]
pub struct Nest {
    /// The outer shell, and what the worker counts.
    shell: Worker,
    path: PathBuf,
}

impl Nest {
    /// The process id of the worker that runs now; 0 between two.
    pub fn pid(&self) -> i32 {
        let is_worker = |process: &Process| process.arguments.first().is_some_and(|word| self.path == *word);
        descendants(self.shell.pid()).into_iter().find(is_worker).map_or(0, |process| process.pid)
    }

    /// Whether it counts within some time.
    pub fn runs(&self) -> bool {
        self.shell.runs()
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        // One that stands still starts nobody.
        if let Some(shell) = Process::read(self.shell.pid()) {
            shell.stop();
        }
        descendants(self.shell.pid()).iter().for_each(|process| process.signal(Signal::SIGKILL));
    }
}

/// Keeps a worker running until it is dropped.
#[derive(Debug)]
pub struct Supervisor {
    started: Arc<Mutex<Vec<i32>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Supervisor {
    fn pids(&self) -> MutexGuard<'_, Vec<i32>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many workers it has started.
    pub fn started(&self) -> usize {
        self.pids().len()
    }

    /// The process id of the one that it has started last.
    pub fn latest(&self) -> i32 {
        self.pids().last().copied().unwrap_or_default()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
