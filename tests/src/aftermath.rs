//! What a program of the tests leaves when it is told to end, or killed, and who takes it away: a parent, which outlives it.
//!
//! Whatever such a program makes is a process below it, bears its process id in the name (network namespaces, control groups,
//! other folders), or is in its folder of temporary files. The same holds of the tests that it starts, see [`answer_for`].
//! Where the parent is killed, too, the next start takes it away.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::c_int;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, fork, geteuid};
use tempfile::TempDir;

use crate::process::{self, Process, wait_until};
use crate::{Error, HANG, Result, cgroup, daemon, mounts, netns};

/// By which somebody tells a program to end.
const SIGNALS: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
/// Names the process that starts a program, which is told to end when that is gone. `cargo xtask` sets it.
const STARTER: &str = "CHAOS_STARTED_BY";
/// What the name of a program's folder begins with.
const FOLDER: &str = "chaos-run-";
/// In that folder: a line for each process id that is in the names of what is made.
const PIDS: &str = "pids";
/// How often it is looked what has become of the program.
const LOOK: Duration = Duration::from_millis(20);

/// The signal that has told this process to end; 0 is none.
static TOLD: AtomicI32 = AtomicI32::new(0);

extern "C" fn tell(number: c_int) {
    TOLD.store(number, Ordering::Relaxed);
}

/// From here on, signals that tell this process to end are only noted, for [`told`]. So is the end of who has started it, if
/// that has asked for it.
fn listen() -> Result<()> {
    for each in SIGNALS {
        // SAFETY: the handler stores a number, and does nothing else.
        unsafe { signal(each, SigHandler::Handler(tell)) }.map_err(Error::sys("handle", each.as_str()))?;
    }
    let Ok(starter) = std::env::var(STARTER) else { return Ok(()) };
    // SAFETY: programs listen before they start a thread. What they start themselves is not meant.
    unsafe { std::env::remove_var(STARTER) };
    prctl::set_pdeathsig(Signal::SIGTERM).map_err(Error::sys("ask for", "the end of the parent"))?;
    if starter != parent_id().to_string() {
        tell(Signal::SIGTERM as c_int);
    }
    Ok(())
}

/// The signal that has told this process to end, if one has.
fn told() -> Option<Signal> {
    Signal::try_from(TOLD.load(Ordering::Relaxed)).ok()
}

/// To be called before anything else is done. The program goes on as a child, with `None`; its parent waits for its end, takes
/// away what is left, and has the exit code. A program that another one of the tests has started goes on itself, with `None`: what
/// it leaves is that one's.
pub fn outlive() -> Option<ExitCode> {
    begin().unwrap_or_else(|error| {
        eprintln!("before anything was begun: {error}");
        Some(ExitCode::FAILURE)
    })
}

fn begin() -> Result<Option<ExitCode>> {
    if std::env::temp_dir().join(PIDS).is_file() {
        return Ok(None);
    }
    listen()?;
    take_away_of_dead();
    let folder = Folder::new()?;
    // Orphans of the program become children of its parent, and are found.
    prctl::set_child_subreaper(true).map_err(Error::sys("become", "subreaper"))?;
    let parent = std::process::id();
    // SAFETY: this process has one thread still.
    match unsafe { fork() }.map_err(Error::sys("fork", "the program"))? {
        ForkResult::Parent { child } => {
            let ended = wait_for(child)?;
            Ok(Some(finish(&folder, ended)))
        }
        ForkResult::Child => {
            for each in SIGNALS {
                // SAFETY: no handler is set, but the default restored.
                unsafe { signal(each, SigHandler::SigDfl) }.map_err(Error::sys("restore", each.as_str()))?;
            }
            prctl::set_pdeathsig(Signal::SIGKILL).map_err(Error::sys("end with", "the parent"))?;
            if parent_id() != parent {
                return Err(Error::Different("the parent has ended".into()));
            }
            sign(&folder.path, std::process::id())?;
            // SAFETY: this process has one thread still.
            unsafe { std::env::set_var("TMPDIR", &folder.path) };
            Ok(None)
        }
    }
}

/// Waits for the program's end, and kills it when this process is told to end. Collects orphans meanwhile.
fn wait_for(program: Pid) -> Result<WaitStatus> {
    loop {
        if told().is_some() {
            let _ = kill(program, Signal::SIGKILL);
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(LOOK),
            Ok(status @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..))) if pid == program => {
                return Ok(status);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::sys("wait for", "the program")(errno)),
        }
    }
}

/// Takes away what the program has left, says what became of it, and has its exit code.
fn finish(folder: &Folder, ended: WaitStatus) -> ExitCode {
    let me = std::process::id().cast_signed();
    let mut left = end_all(|| process::descendants(me));
    left.extend(signed_in(&folder.path).into_iter().flat_map(take_away));
    left.extend(remove(&folder.path));
    let code = |number: i32| ExitCode::from(u8::try_from(number).unwrap_or(u8::MAX));
    if let Some(signal) = told() {
        eprintln!("told to end by {signal}; taken away: {}", listed(&left));
        return code(128 + signal as i32);
    }
    if !left.is_empty() {
        eprintln!("left, and taken away: {}", listed(&left));
    }
    match ended {
        WaitStatus::Exited(_, status) => code(status),
        WaitStatus::Signaled(_, signal, _) => {
            eprintln!("ended by {signal}");
            code(128 + signal as i32)
        }
        _ => ExitCode::FAILURE,
    }
}

fn listed(left: &[String]) -> String {
    if left.is_empty() { "nothing".to_owned() } else { left.join("; ") }
}

/// Whether a process is none that ends by itself, when it has thawed a file system. While one becomes another program it has no
/// arguments for a moment, and nothing is known of it.
fn may_be_killed(process: &Process) -> bool {
    !mounts::thaws(process) && (process.state == 'Z' || !process.arguments.is_empty())
}

/// Kills processes until there are none; says which there were. Those that thaw file systems end by themselves.
fn end_all(find: impl Fn() -> Vec<Process>) -> Vec<String> {
    let mut left = BTreeMap::new();
    let gone = wait_until(HANG, || {
        reap();
        let found = find();
        for process in found.iter().filter(|process| process.runs() && may_be_killed(process)) {
            let words = || process.arguments.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
            left.entry(process.pid).or_insert_with(|| format!("process {} {}", process.pid, words()));
            process.signal(Signal::SIGKILL);
        }
        found.is_empty()
    });
    let late = (!gone).then(|| format!("processes that do not end within {HANG:?}"));
    left.into_values().chain(late).collect()
}

/// Collects orphans that ended. Only to be called when nothing of ours runs that has a child to wait for.
pub(crate) fn reap() {
    while matches!(
        waitpid(None, Some(WaitPidFlag::WNOHANG)),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    ) {}
}

/// Collects orphans that ended, until it comes to this child, for which somebody waits. As PID 1 does: the first process of a namespace
/// of process numbers, once killed, ends only when all others of it have been collected (`zap_pid_ns_processes` in
/// kernel/pid_namespace.c).
pub(crate) fn reap_others(child: Pid) {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Some(orphan) =
        waitid(Id::All, ended).ok().and_then(|status| status.pid()).filter(|pid| *pid != child)
    {
        if waitpid(orphan, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

/// Removes what bears the number of a process that has ended, and says what it was, and what could not be removed.
pub(crate) fn take_away(pid: i32) -> Vec<String> {
    let mut left = Vec::new();
    let mut remove = |what: &str, name: String, removed: Result<()>| {
        left.push(format!("{what} {name}"));
        left.extend(removed.err().map(|error| error.to_string()));
    };
    for name in netns::left_by(pid.cast_unsigned()) {
        let removed = netns::remove_by_name(&name);
        remove("network namespace", name, removed);
    }
    for path in cgroup::left_by(pid.cast_unsigned()) {
        remove("control group", path.display().to_string(), cgroup::remove(&path));
    }
    for path in daemon::left_by(pid.cast_unsigned()) {
        let removed = fs::remove_dir_all(&path).map_err(Error::io("remove", path.display().to_string()));
        remove("folder", path.display().to_string(), removed);
    }
    left
}

/// Takes away what programs have left that were killed together with their parents: those whose folder nobody has locked.
fn take_away_of_dead() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let path = entry.path();
        // Anybody may make a folder of this name.
        let is_ours = entry.metadata().is_ok_and(|is| is.is_dir() && is.uid() == geteuid().as_raw());
        if !is_ours || !entry.file_name().to_string_lossy().starts_with(FOLDER) {
            continue;
        }
        let (pids, Ok(folder)) = (signed_in(&path), File::open(&path)) else { continue };
        // Without a number it is only just being made, and not locked yet.
        if pids.is_empty() || folder.try_lock().is_err() {
            continue;
        }
        let mut left = end_all(|| started_in(&path));
        left.extend(pids.into_iter().flat_map(take_away));
        left.extend(remove(&path));
        eprintln!("left by a program that was killed, and taken away: {}", listed(&left));
    }
}

/// Processes that have this as their folder of temporary files, and so were started by the program that had it.
fn started_in(folder: &Path) -> Vec<Process> {
    let variable = format!("TMPDIR={}", folder.display());
    let has_it = |process: &Process| {
        let variables = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|each| each == variable.as_bytes())
    };
    process::all().into_iter().filter(has_it).collect()
}

/// Where a program has its temporary files. Locked for as long as its parent lives.
struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    fn new() -> Result<Self> {
        let path = TempDir::with_prefix(FOLDER).map_err(Error::io("create", "a folder"))?.keep();
        let failed = |operation| Error::io(operation, path.display().to_string());
        let lock = File::open(&path).map_err(failed("open"))?;
        lock.lock().map_err(failed("lock"))?;
        // The daemon's server has to get through, without privileges.
        lock.set_permissions(Permissions::from_mode(0o755)).map_err(failed("set the mode of"))?;
        Ok(Self { path, _lock: lock })
    }
}

/// Of a program that is outlived: what bears the number of this child of it is taken away with the rest.
///
/// # Errors
/// When its folder cannot be written.
pub(crate) fn answer_for(child: u32) -> Result<()> {
    sign(&std::env::temp_dir(), child)
}

/// Writes a process into a program's folder, as one whose number is in the names of what it makes.
fn sign(folder: &Path, pid: u32) -> Result<()> {
    let path = folder.join(PIDS);
    let line = format!("{pid}\n");
    let mut options = File::options();
    let file = options.append(true).create(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(Error::io("write", path.display().to_string()))
}

/// Those that have signed, but for numbers that somebody else has by now: names with these may be theirs.
fn signed_in(folder: &Path) -> Vec<i32> {
    let text = fs::read_to_string(folder.join(PIDS)).unwrap_or_default();
    let is_free = |pid: &i32| Process::read(*pid).is_none_or(|process| !process.runs());
    text.lines().filter_map(|line| line.parse().ok()).filter(is_free).collect()
}

/// Removes a program's folder, and first what is mounted in it. Says what could not be removed, and what was mounted.
fn remove(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for path in mounts::below(folder) {
        left.push(format!("mount {}", path.display()));
        left.extend(mounts::unmount(&path).err().map(|error| error.to_string()));
    }
    let removed = fs::remove_dir_all(folder).map_err(Error::io("remove", folder.display().to_string()));
    left.extend(removed.err().map(|error| error.to_string()));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_thaws_a_file_system_is_spared_also_while_it_becomes_the_program_that_does_it() {
        let process = |state: char, arguments: &[&str]| Process {
            pid: 1,
            parent: 0,
            start_time: 0,
            state,
            threads: 2,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        };
        assert!(!may_be_killed(&process('S', &["sh", "-c", "read end; exec fsfreeze -u /dev/stdout"])));
        assert!(!may_be_killed(&process('R', &[])));
        assert!(may_be_killed(&process('S', &["sleep", "60"])));
        // Whose first thread has ended, and another hangs.
        assert!(may_be_killed(&process('Z', &[])));
    }
}
