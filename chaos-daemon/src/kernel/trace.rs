//! Processes that stand still because a thread of this process traces them (ptrace(2)): they go on when that thread lets go of
//! them, or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::{Pid, gettid};

use super::process::ProcessId;

/// How long a thread may take to stop: one that is in the middle of a request to a disk stops after it.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// How often it is looked whether all have stopped.
const LOOK: Duration = Duration::from_micros(200);

/// Why processes cannot be made to stand still.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A process cannot be looked at.
    #[error("look at process {pid}")]
    Look {
        /// The process.
        pid: i32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread has a tracer already.
    #[error("trace thread {tid} of process {pid}: thread {tracer} traces it already")]
    Traced {
        /// The process.
        pid: i32,
        /// The thread.
        tid: i32,
        /// Who traces it.
        tracer: i32,
    },
    /// The kernel refuses.
    #[error("trace thread {tid} of process {pid}: {errno}")]
    Refused {
        /// The process.
        pid: i32,
        /// The thread.
        tid: i32,
        /// Why.
        errno: Errno,
    },
    /// A thread has not stopped in time.
    #[error(
        "stop thread {tid} of process {pid}: it still runs, or hangs in the kernel, after {STOP_LIMIT:?}"
    )]
    Runs {
        /// The process.
        pid: i32,
        /// The thread.
        tid: i32,
    },
    /// There is nobody to be stopped.
    #[error("stop processes: every one of them has ended")]
    Ended,
}

/// Why nobody can be traced here; `None` when that is possible.
pub fn forbidden() -> Option<String> {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() == "3" {
        return Some("kernel.yama.ptrace_scope is 3".to_owned());
    }
    // Nobody has this number: the kernel says so, unless it does not even look.
    match ptrace::seize(Pid::from_raw(i32::MAX), Options::empty()) {
        Err(Errno::ESRCH) => None,
        other => Some(format!("the system call is refused: {other:?}")),
    }
}

/// Processes that stand still, for as long as this value and the thread that has made it live.
#[derive(Debug)]
pub struct Standstill {
    processes: BTreeSet<i32>,
    threads: BTreeMap<i32, Thread>,
    /// The kernel knows the tracing thread, not its process.
    _of_this_thread: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Thread {
    process: i32,
    still: bool,
}

impl Standstill {
    /// Has every thread of these processes stop, and waits until all have. Who has ended, or is somebody else by now, is left
    /// out.
    ///
    /// # Errors
    /// Names the thread that cannot be traced or does not stop. All go on when the calling thread ends.
    pub fn begin(targets: &[ProcessId]) -> Result<Self, TraceError> {
        let (processes, threads) = (BTreeSet::new(), BTreeMap::new());
        let mut still = Self { processes, threads, _of_this_thread: PhantomData };
        for id in targets {
            still.take(*id)?;
        }
        let until = Instant::now() + STOP_LIMIT;
        loop {
            still.attend();
            let running = still.threads.iter().find(|(_, thread)| !thread.still);
            match running.map(|(tid, thread)| (*tid, thread.process)) {
                Some((tid, pid)) if Instant::now() > until => return Err(TraceError::Runs { pid, tid }),
                Some(_) => thread::sleep(LOOK),
                // Who was started while the others were being stopped is found now, or nobody is left to start any.
                None if still.take_new()? => {}
                None if still.threads.is_empty() => return Err(TraceError::Ended),
                None => return Ok(still),
            }
        }
    }

    /// How many processes stand still.
    pub fn held(&self) -> u64 {
        self.threads.values().map(|thread| thread.process).collect::<BTreeSet<_>>().len() as u64
    }

    /// Hears what has become of them: who was killed meanwhile is collected, so that its parent hears of it.
    pub fn attend(&mut self) {
        loop {
            let mut status = 0;
            // Of this thread only: what another one traces, or has started, is not ours to hear of.
            let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
            // SAFETY: the kernel writes one int, which lives until the call is over.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, options) };
            match tid {
                0 => return,
                -1 if Errno::last() == Errno::EINTR => {}
                -1 => return,
                tid => self.hear(tid, status),
            }
        }
    }

    fn hear(&mut self, tid: i32, status: libc::c_int) {
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&tid);
            return;
        }
        if !self.threads.contains_key(&tid) {
            let process = process_of(tid);
            if !self.processes.contains(&process) {
                // A process that one of them has just made with clone(2): it is nobody's target.
                let _ = ptrace::detach(Pid::from_raw(tid), None);
                return;
            }
            self.threads.insert(tid, Thread { process, still: false });
        }
        // Without an event a signal is about to be delivered: it is, for it was sent before the stop, and the stop follows.
        let delivers = status >> 16 == 0;
        if delivers {
            proceed(tid, libc::WSTOPSIG(status));
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.still = !delivers;
        }
    }

    fn take(&mut self, id: ProcessId) -> Result<(), TraceError> {
        let pid = id.pid;
        let look = |source| TraceError::Look { pid, source };
        // Held open until the threads are traced, so that the number cannot be given to another meanwhile.
        let Some(_open) = id.open().map_err(look)? else { return Ok(()) };
        self.processes.insert(pid);
        self.take_threads(pid)?;
        Ok(())
    }

    /// Traces threads that were not there before. True when there were some.
    fn take_new(&mut self) -> Result<bool, TraceError> {
        let mut found = false;
        for pid in self.processes.clone() {
            found |= self.take_threads(pid)?;
        }
        Ok(found)
    }

    fn take_threads(&mut self, pid: i32) -> Result<bool, TraceError> {
        let mut found = false;
        for tid in threads_of(pid) {
            if self.threads.contains_key(&tid) {
                continue;
            }
            match seize(tid) {
                Ok(()) => {}
                // Ended, or about to.
                Err(Errno::ESRCH) => continue,
                Err(errno) => match refusal(tid) {
                    Refusal::Ending => continue,
                    // Its maker was traced when it was started, so that it is as well.
                    Refusal::Traced(tracer) if tracer == gettid().as_raw() => {}
                    Refusal::Traced(tracer) => return Err(TraceError::Traced { pid, tid, tracer }),
                    Refusal::Other => return Err(TraceError::Refused { pid, tid, errno }),
                },
            }
            found = true;
            self.threads.insert(tid, Thread { process: pid, still: false });
        }
        Ok(found)
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        for (tid, thread) in &self.threads {
            // One that runs cannot be let go of; the end of this thread does it. One that has ended need not be.
            if thread.still {
                let _ = ptrace::detach(Pid::from_raw(*tid), None);
            }
        }
    }
}

fn seize(tid: i32) -> nix::Result<()> {
    let thread = Pid::from_raw(tid);
    ptrace::seize(thread, Options::PTRACE_O_TRACECLONE)?;
    ptrace::interrupt(thread)
}

/// Lets a thread go on with a signal; any number, real-time ones included.
fn proceed(tid: i32, signal: libc::c_int) {
    let data = std::ptr::without_provenance_mut::<libc::c_void>(signal.unsigned_abs() as usize);
    // SAFETY: for this request the kernel takes the last argument as a number, and touches no memory of ours.
    unsafe { libc::ptrace(libc::PTRACE_CONT, tid, std::ptr::null_mut::<libc::c_void>(), data) };
}

enum Refusal {
    Ending,
    Traced(i32),
    Other,
}

/// Why a thread cannot be traced.
fn refusal(tid: i32) -> Refusal {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let tracer = field("TracerPid:").and_then(|text| text.parse().ok()).unwrap_or(0);
    match field("State:").and_then(|text| text.chars().next()) {
        None | Some('Z' | 'X') => Refusal::Ending,
        Some(_) if tracer != 0 => Refusal::Traced(tracer),
        Some(_) => Refusal::Other,
    }
}

/// The process that a thread belongs to; 0 when it has gone.
fn process_of(tid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    tgid.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn threads_of(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.into_iter().flatten().flatten().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::waits::wait_for;

    /// A process that ends with this value.
    struct Busy(Child);

    impl Busy {
        fn start() -> (Self, ProcessId) {
            let mut shell = Command::new("sh");
            let child = shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
            let id = ProcessId::of(child.id().cast_signed()).unwrap();
            (Self(child), id)
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn state(pid: i32) -> char {
        procfs::process::Process::new(pid).unwrap().stat().unwrap().state
    }

    #[test]
    fn a_process_stands_still_until_the_value_is_dropped() {
        assert_eq!(forbidden(), None);
        let (_busy, id) = Busy::start();
        // On a thread of its own, as this one's children are the processes that it has started.
        thread::spawn(move || {
            let still = Standstill::begin(&[id]).unwrap();
            assert_eq!((still.held(), state(id.pid)), (1, 't'));
            drop(still);
            assert_ne!(state(id.pid), 't');
        })
        .join()
        .unwrap();
    }

    #[test]
    fn threads_side_by_side_do_not_hear_what_is_meant_for_each_other() {
        let trace = || {
            let (_busy, id) = Busy::start();
            let begin = || (0..100).try_for_each(|_| Standstill::begin(&[id]).map(drop));
            thread::scope(|scope| scope.spawn(begin).join().unwrap())
        };
        let both = [thread::spawn(trace), thread::spawn(trace)];
        both.into_iter().for_each(|one| one.join().unwrap().unwrap());
    }

    #[test]
    fn the_end_of_the_thread_is_enough_and_who_has_ended_is_left_out() {
        let (_busy, id) = Busy::start();
        thread::spawn(move || {
            let gone = ProcessId { start_time: id.start_time + 1, ..id };
            assert!(matches!(Standstill::begin(&[gone]), Err(TraceError::Ended)));
            let _never_dropped = std::mem::ManuallyDrop::new(Standstill::begin(&[gone, id]).unwrap());
            assert_eq!(state(id.pid), 't');
        })
        .join()
        .unwrap();
        wait_for(|| state(id.pid) != 't');
    }
}
