//! Looking at processes through `/proc`, and ending those that a test started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use chaos_daemon::host::Part;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::late::HANG;

/// What waits for something that cannot be seen waits so long at a time.
const NAP: Duration = Duration::from_millis(20);

/// Has the calling thread, and no other, be somebody else to whom it connects. It ends so.
pub(crate) fn become_user(user: libc::uid_t) -> Result<()> {
    let same = libc::uid_t::MAX;
    // SAFETY: it takes no memory; the kernel knows of threads only, and the C library's function of the same name is for all of them.
    match unsafe { libc::syscall(libc::SYS_setresuid, same, user, same) } {
        0 => Ok(()),
        _ => Err(Error::io("become", "another user")(std::io::Error::last_os_error())),
    }
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Process id of its parent.
    pub parent: i32,
    /// When it started, in clock ticks since boot: with the pid an identity.
    pub start_time: u64,
    /// State letter; Z is a zombie.
    pub state: char,
    /// How many threads it has; a zombie with more than one has not let go of its files yet.
    pub threads: u32,
    /// Command line; empty for a zombie.
    pub arguments: Vec<String>,
}

impl Process {
    /// Reads one process; `None` when it is gone.
    pub fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may itself contain parentheses and blanks.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments = command_line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            arguments,
        })
    }

    /// Whether this very process still runs (a zombie does not).
    pub fn runs(&self) -> bool {
        let alive = |now: Self| now.start_time == self.start_time && (now.state != 'Z' || now.threads > 1);
        Self::read(self.pid).is_some_and(alive)
    }

    /// CPU time it has used, in user mode and in the kernel; zero when it is gone.
    pub fn cpu_time(&self) -> Duration {
        times(self.pid).into_iter().sum()
    }

    /// A number in its `status` (proc(5)), in bytes where that is in kB; 0 when the process is gone or has no such field.
    pub fn status(&self, field: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let mut words = line.unwrap_or_default().split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if words.next() == Some("kB") { number << 10 } else { number }
    }

    /// Sends a signal, unless the process is gone or its id is another's by now.
    pub fn signal(&self, signal: Signal) {
        if self.runs() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Stops it, and waits until it is: the signal has come when kill(2) returns, its effect has not.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        wait_until(HANG, || Self::read(self.pid).is_none_or(|process| "TZ".contains(process.state)));
    }
}

/// CPU time in user mode and in the kernel.
fn times(pid: i32) -> [Duration; 2] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // utime and stime, in hundredths of a second (proc(5); USER_HZ is 100 everywhere we run).
    [11, 12].map(|at| {
        let ticks = fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        Duration::from_millis(ticks * 10)
    })
}

/// Every process.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// The children of a process, their children, and so on; parents first.
pub fn descendants(pid: i32) -> Vec<Process> {
    let mut ids = family(pid);
    // The kernel may leave one out while another ends (proc(5)): what was seen twice is right.
    loop {
        let again = family(pid);
        if again == ids {
            return ids.into_iter().filter_map(Process::read).collect();
        }
        ids = again;
    }
}

/// Not by looking at every process there is: on a busy machine most are nobody's concern here.
fn family(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for thread in threads_that_start_others(parent) {
            let children = children(&thread);
            parents.extend(&children);
            found.extend(children);
        }
    }
    found
}

/// What a thread, by its folder in `/proc`, has started, and nobody has collected yet.
pub fn children(thread: &Path) -> Vec<i32> {
    let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
    children.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Asks again and again, at most so long, whether something holds by now.
pub fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for what only a hang keeps from happening.
///
/// # Errors
/// When it has not happened by then.
pub fn wait_for(what: &str, holds: impl FnMut() -> bool) -> Result<()> {
    match wait_until(HANG, holds) {
        true => Ok(()),
        false => Err(Error::Hung { what: what.to_owned() }),
    }
}

/// Waits so long for what cannot be seen. In short naps: a machine that stands still loses one of them, and whoever is waited for has
/// had as many turns on its processors as this thread.
pub fn linger(span: Duration) {
    for _ in 0..naps(span) {
        std::thread::sleep(NAP);
    }
}

/// Looks for something for so long, counted as by [`linger`]: a look takes one nap, and tells by `None` that it was in vain.
pub fn look_patiently<T>(patience: Duration, mut look: impl FnMut(Duration) -> Option<T>) -> Option<T> {
    (0..naps(patience)).find_map(|_| look(NAP.min(patience)))
}

fn naps(span: Duration) -> u128 {
    span.as_millis().div_ceil(NAP.as_millis()).max(1)
}

/// The threads of a process that may have children, by folder. Of the daemon's processes not more than these: what has been listed of a
/// thread is taken apart when it ends, and until then nobody can collect its process. The injector is kept in the kernel by that
/// for seconds, on a machine that has no time for the thread.
fn threads_that_start_others(pid: i32) -> Vec<PathBuf> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let (all, first) = (format!("/proc/{pid}/task"), format!("/proc/{pid}/task/{pid}"));
    match Part::named(name.trim_end()) {
        Some(Part::Holder | Part::Server | Part::Prober) => Vec::new(),
        Some(Part::Injector) => vec![first.into()],
        _ => fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path()).collect(),
    }
}

/// Sets how many descriptors a process may have, and returns how many it might have before.
///
/// # Errors
/// When the kernel refuses.
pub fn limit_descriptors(pid: i32, count: u64) -> Result<u64> {
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut old: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rlimit, which lives until the call is over; the null is "no new limit".
    let read = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut old) };
    let new = libc::rlimit { rlim_cur: count, ..old };
    // SAFETY: the kernel reads one rlimit, which lives until the call is over.
    let written = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const new, std::ptr::null_mut()) };
    match (read, written) {
        (0, 0) => Ok(old.rlim_cur),
        _ => Err(Error::io("limit", format!("process {pid}"))(std::io::Error::last_os_error())),
    }
}

/// A child that ends with this.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended by itself is ended, too.
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_a_descendant_until_it_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(descendants(me).iter().any(|process| process.pid == pid));
        let process = Process::read(pid).unwrap();
        assert!(process.runs());
        process.signal(Signal::SIGKILL);
        child.wait().unwrap();
        assert!(!process.runs());
    }
}
