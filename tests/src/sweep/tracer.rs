//! Striking a process at its n-th state-changing system call, by ptrace(2): what `strace --inject` does, but counted
//! over all threads of the process, and in the VM as well.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::calls::{Strike, selected};
use crate::error::{Error, Result};

/// What to trace, and where to strike.
#[derive(Debug, Clone)]
pub(crate) struct Aim {
    /// The process.
    pub(crate) pid: i32,
    /// Strike the children it starts, instead of itself.
    pub(crate) children: bool,
    /// At which call, counted from 1.
    pub(crate) at: usize,
    /// How.
    pub(crate) strike: Strike,
    /// Who dies by [`Strike::KillEverything`].
    pub(crate) everybody: Vec<i32>,
}

/// What a trace saw.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Calls that count.
    pub(crate) calls: usize,
    /// The one that was struck, and when.
    pub(crate) struck: Option<(&'static str, Instant)>,
}

/// A running trace.
#[derive(Debug)]
pub(crate) struct Trace {
    pid: i32,
    stop: Arc<AtomicBool>,
    struck: Arc<AtomicBool>,
    thread: Option<JoinHandle<nix::Result<Seen>>>,
}

impl Trace {
    /// Starts tracing; when this returns, every call counts.
    ///
    /// # Errors
    /// When the process cannot be traced.
    pub(crate) fn start(aim: Aim) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let struck = Arc::new(AtomicBool::new(false));
        let (pid, stopped, strikes) = (aim.pid, Arc::clone(&stop), Arc::clone(&struck));
        let thread = std::thread::spawn(move || {
            let mut tracer = Tracer {
                aim,
                stop: stopped,
                struck: strikes,
                threads: HashMap::new(),
                seen: Seen::default(),
            };
            let attached = tracer.attach();
            let _ = ready.send(attached);
            attached?;
            tracer.run()?;
            Ok(tracer.seen)
        });
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Self { pid, stop, struck, thread: Some(thread) }),
            Ok(Err(errno)) => Err(Error::sys("trace", format!("process {pid}"))(errno)),
            Err(_) => Err(Error::Different("the tracing thread panicked".into())),
        }
    }

    /// What is found before the strike; of what is found after it nothing is said.
    pub(crate) fn unless_struck(&self, find: impl FnOnce() -> Result<()>) -> Result<()> {
        let found = if self.has_struck() { Ok(()) } else { find() };
        if self.has_struck() { Ok(()) } else { found }
    }

    /// Whether the call has been reached.
    pub(crate) fn has_struck(&self) -> bool {
        self.struck.load(Ordering::Relaxed)
    }

    /// Lets go of the process, if it still runs.
    ///
    /// # Errors
    /// When tracing failed.
    pub(crate) fn finish(mut self) -> Result<Seen> {
        let pid = self.pid;
        match self.end() {
            Some(Ok(Ok(seen))) => Ok(seen),
            Some(Ok(Err(errno))) => Err(Error::sys("trace", format!("process {pid}"))(errno)),
            _ => Err(Error::Different("the tracing thread panicked".into())),
        }
    }

    fn end(&mut self) -> Option<std::thread::Result<nix::Result<Seen>>> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Relaxed);
        while !thread.is_finished() {
            // Ignored by whom it reaches, but the tracer is told of it first, and so wakes up.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGURG);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Some(thread.join())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the tracer knows of one thread.
#[derive(Debug, Default)]
struct Tracee {
    /// The process it belongs to.
    process: i32,
    /// Its current call is to fail with this errno.
    failing: Option<i32>,
}

struct Tracer {
    aim: Aim,
    stop: Arc<AtomicBool>,
    struck: Arc<AtomicBool>,
    threads: HashMap<i32, Tracee>,
    seen: Seen,
}

impl Tracer {
    /// Stops every thread, and only then lets them go on: a call that one of them makes while another is not stopped
    /// yet would be struck in the middle of this.
    fn attach(&mut self) -> nix::Result<()> {
        let mut stopped = Vec::new();
        let mut known = HashSet::new();
        // A thread that a not yet traced one starts is missing from the listing; once all are stopped, none starts.
        loop {
            let mut moving = HashSet::new();
            for tid in threads_of(self.aim.pid) {
                if known.insert(tid) && self.seize(tid)? {
                    moving.insert(tid);
                }
            }
            if moving.is_empty() {
                break;
            }
            while !moving.is_empty() {
                let status = wait()?;
                match status {
                    WaitStatus::Exited(tid, _) | WaitStatus::Signaled(tid, ..) => {
                        moving.remove(&tid.as_raw());
                    }
                    // A thread that a traced one has started begins with this stop too.
                    WaitStatus::PtraceEvent(tid, _, libc::PTRACE_EVENT_STOP) => {
                        known.insert(tid.as_raw());
                        moving.remove(&tid.as_raw());
                        stopped.push(status);
                    }
                    _ => self.handle(status),
                }
            }
        }
        stopped.into_iter().for_each(|status| self.handle(status));
        Ok(())
    }

    /// Begins to stop a thread; says whether there is one to wait for.
    fn seize(&self, tid: i32) -> nix::Result<bool> {
        let mut options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
        if self.aim.children {
            options |= Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK;
        }
        let thread = Pid::from_raw(tid);
        match ptrace::seize(thread, options).and_then(|()| ptrace::interrupt(thread)) {
            Ok(()) => Ok(true),
            // One that has ended meanwhile is none to stop, and one that a traced one has started is traced already.
            Err(Errno::ESRCH | Errno::EPERM) if tid != self.aim.pid => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Until everything traced has ended or the flag is up. Nothing is traced any more then.
    fn run(&mut self) -> nix::Result<()> {
        while !self.threads.is_empty() && !self.stop.load(Ordering::Relaxed) {
            match wait() {
                Ok(status) => self.handle(status),
                Err(Errno::ECHILD) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.let_go()
    }

    /// Lets every thread go on. The kernel would do so when this thread ends, but somewhat later than one that joins it goes on: a
    /// stop that nobody has waited for yet would be, to who asks whether the process has ended, its end.
    /// Only for a thread without children of its own, whose ends it would wait for, too.
    fn let_go(&mut self) -> nix::Result<()> {
        for tid in self.threads.keys() {
            // One that has ended has nothing to stop.
            let _ = ptrace::interrupt(Pid::from_raw(*tid));
        }
        loop {
            let status = match wait() {
                Ok(status) => status,
                Err(Errno::ECHILD) => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            let Some(tid) = status.pid() else { continue };
            if self.threads.get(&tid.as_raw()).is_some_and(|thread| thread.failing.is_some()) {
                // Its call has to return the error first.
                self.handle(status);
                let _ = ptrace::interrupt(tid);
                continue;
            }
            let signal = if let WaitStatus::Stopped(_, signal) = status { Some(signal) } else { None };
            let _ = ptrace::detach(tid, signal);
        }
    }

    fn handle(&mut self, status: WaitStatus) {
        let (tid, signal) = match status {
            WaitStatus::Exited(tid, _) | WaitStatus::Signaled(tid, ..) => {
                self.threads.remove(&tid.as_raw());
                return;
            }
            WaitStatus::PtraceSyscall(tid) => {
                self.at_call(tid);
                (tid, None)
            }
            WaitStatus::PtraceEvent(tid, ..) => (tid, None),
            WaitStatus::Stopped(tid, signal) => (tid, Some(signal)),
            _ => return,
        };
        self.know(tid.as_raw());
        // A thread that has been killed meanwhile is none to go on: ESRCH.
        let _ = ptrace::syscall(tid, signal);
    }

    fn know(&mut self, tid: i32) -> &mut Tracee {
        self.threads
            .entry(tid)
            .or_insert_with(|| Tracee { process: process_of(tid).unwrap_or(tid), failing: None })
    }

    fn at_call(&mut self, tid: Pid) {
        let Ok(info) = ptrace::syscall_info(tid) else { return };
        let tracee = self.know(tid.as_raw());
        let process = tracee.process;
        match info.op {
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                if let Some(errno) = tracee.failing.take() {
                    fail(tid, errno);
                }
            }
            libc::PTRACE_SYSCALL_INFO_ENTRY if (process == self.aim.pid) != self.aim.children => {
                // SAFETY: the kernel has filled in this member, for the operation is `entry`.
                let (number, arguments) = unsafe { (info.u.entry.nr, info.u.entry.args) };
                let number = i64::try_from(number).unwrap_or(-1);
                if let Some(name) = selected(process, number, &arguments, self.aim.strike) {
                    self.count(tid, process, name);
                }
            }
            _ => {}
        }
    }

    fn count(&mut self, tid: Pid, process: i32, name: &'static str) {
        self.seen.calls += 1;
        if self.seen.calls != self.aim.at {
            return;
        }
        self.seen.struck = Some((name, Instant::now()));
        self.struck.store(true, Ordering::Relaxed);
        match self.aim.strike {
            Strike::Kill => drop(kill(Pid::from_raw(process), Signal::SIGKILL)),
            Strike::KillEverything => {
                for pid in self.aim.everybody.iter().chain([&process]) {
                    let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
                }
            }
            Strike::Fail(errno) => {
                if skip(tid).is_ok() {
                    self.know(tid.as_raw()).failing = Some(errno);
                }
            }
        }
    }
}

/// What happens next to anything that this thread traces.
fn wait() -> nix::Result<WaitStatus> {
    waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD))
}

/// Has the kernel make no call at all instead of the one that the thread is about to make.
fn skip(tid: Pid) -> nix::Result<()> {
    let mut registers = ptrace::getregs(tid)?;
    registers.orig_rax = u64::MAX;
    ptrace::setregs(tid, registers)
}

/// Has the call that was skipped return an error.
fn fail(tid: Pid, errno: i32) {
    if let Ok(mut registers) = ptrace::getregs(tid) {
        registers.rax = i64::from(-errno).cast_unsigned();
        let _ = ptrace::setregs(tid, registers);
    }
}

fn threads_of(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn process_of(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process::Process;

    #[test]
    fn a_process_goes_on_with_nobody_who_traces_it_as_soon_as_that_is_to_stop() {
        let mut command = Command::new("sh");
        // Calls without a pause, so that it stands at one at nearly any time; its own time is limited, should this fail.
        command.args(["-c", "ulimit -t 60; while kill -0 $$; do :; done"]).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (pid, strike) = (child.id().cast_signed(), Strike::Kill);
        let process = Process::read(pid).unwrap();
        for round in 0..20 {
            let mut tracer = Tracer {
                aim: Aim { pid, children: false, at: usize::MAX, strike, everybody: Vec::new() },
                stop: Arc::new(AtomicBool::new(true)),
                struck: Arc::default(),
                threads: HashMap::new(),
                seen: Seen::default(),
            };
            // On a thread that has no children, as a trace is.
            let traced = std::thread::scope(|scope| {
                let trace = || {
                    tracer.attach().unwrap();
                    let before = process.status("TracerPid");
                    tracer.run().unwrap();
                    (before != 0, process.status("TracerPid") != 0)
                };
                scope.spawn(trace).join().unwrap()
            });
            assert_eq!(traced, (true, false), "round {round}");
            assert_eq!(child.try_wait().unwrap(), None, "round {round}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
