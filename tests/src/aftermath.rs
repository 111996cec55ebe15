//! What a program of the tests leaves when it is told to end, or killed, and who takes it away: a parent, which outlives it.
//!
//! Whatever such a program makes is a process below it, bears its process id in the name (network namespaces, control groups,
//! runtime directories), or is in its folder of temporary files. Where the parent is killed, too, the next start takes
//! it away.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
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
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, geteuid};
use tempfile::TempDir;

use crate::process::{self, Process, wait_until};
use crate::{Error, Result, cgroup, daemon, netns};

/// By which somebody tells a program to end.
const SIGNALS: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
/// Names the process that starts a program, which is told to end when that is gone. `cargo xtask` sets it.
const STARTER: &str = "CHAOS_STARTED_BY";
/// What the name of a program's folder begins with.
const FOLDER: &str = "chaos-run-";
/// In that folder: the process id that is in the names of what the program makes.
const PID: &str = "pid";
/// How long processes may take to be gone that were killed.
const GONE: Duration = Duration::from_secs(10);
/// How often it is looked what has become of the program.
const LOOK: Duration = Duration::from_millis(20);

/// The signal that has told this process to end; 0 is none.
static TOLD: AtomicI32 = AtomicI32::new(0);

extern "C" fn tell(number: c_int) {
    TOLD.store(number, Ordering::Relaxed);
}

/// From here on, signals that tell this process to end are only noted, for [`told`]. So is the end of who has started it, if
/// that has asked for it.
///
/// # Errors
/// When the kernel refuses.
pub fn listen() -> Result<()> {
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
pub fn told() -> Option<Signal> {
    Signal::try_from(TOLD.load(Ordering::Relaxed)).ok()
}

/// To be called before anything else is done. The program goes on as a child, with `None`; its parent waits for its end, takes
/// away what is left, and has the exit code.
pub fn outlive() -> Option<ExitCode> {
    begin().unwrap_or_else(|error| {
        eprintln!("before anything was begun: {error}");
        Some(ExitCode::FAILURE)
    })
}

fn begin() -> Result<Option<ExitCode>> {
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
            Ok(Some(finish(child, &folder, ended)))
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
            folder.take()?;
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
fn finish(program: Pid, folder: &Folder, ended: WaitStatus) -> ExitCode {
    let me = std::process::id().cast_signed();
    let mut left = end_all(|| process::descendants(me));
    left.extend(take_away(program.as_raw()));
    left.extend(folder.remove().err().map(|error| error.to_string()));
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

/// Kills processes until there are none; says which there were.
fn end_all(find: impl Fn() -> Vec<Process>) -> Vec<String> {
    let mut left = BTreeMap::new();
    let gone = wait_until(GONE, || {
        reap();
        let found = find();
        for process in found.iter().filter(|process| process.runs()) {
            let words = || process.arguments.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
            left.entry(process.pid).or_insert_with(|| format!("process {} {}", process.pid, words()));
            process.signal(Signal::SIGKILL);
        }
        found.is_empty()
    });
    let late = (!gone).then(|| format!("processes that do not end within {GONE:?}"));
    left.into_values().chain(late).collect()
}

/// Collects orphans that ended. Only to be called when nothing of ours runs that has a child to wait for.
pub(crate) fn reap() {
    while matches!(
        waitpid(None, Some(WaitPidFlag::WNOHANG)),
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
    ) {}
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
        remove("runtime directory", path.display().to_string(), removed);
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
        // Without a number it is only just being made, and not locked yet.
        let pid = fs::read_to_string(path.join(PID)).ok().and_then(|text| text.parse::<i32>().ok());
        let (Some(pid), Ok(folder)) = (pid, File::open(&path)) else { continue };
        // A number that is somebody else's by now may be in the names of what is theirs.
        if folder.try_lock().is_err() || Process::read(pid).is_some_and(|process| process.runs()) {
            continue;
        }
        let mut left = end_all(|| started_in(&path));
        left.extend(take_away(pid));
        left.extend(fs::remove_dir_all(&path).err().map(|error| format!("{}: {error}", path.display())));
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

    /// Makes it this process's.
    fn take(&self) -> Result<()> {
        let path = self.path.join(PID);
        fs::write(&path, std::process::id().to_string())
            .map_err(Error::io("write", path.display().to_string()))
    }

    fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.path).map_err(Error::io("remove", self.path.display().to_string()))
    }
}
