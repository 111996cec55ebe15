//! What becomes of a fault when a process of ours hangs in the kernel, where nobody can end it: a thread of it writes to a file
//! system that is frozen. Its first thread is a zombie then.

use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use chaos_daemon::host::CgroupRef;
use chaos_daemon::injector::watch::GuardPost;
use chaos_daemon::journal::Journal;
use chaos_daemon::kernel::setting::{CgroupSetting, Knob, Setting};
use chaos_daemon::kernel::step::Step;
use chaos_daemon::spec::{FaultType, QualifiedName};
use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::hoards::holder;
use super::{Context, Outcome, STANDSTILL, TestResult, tests};
use crate::claimant::Claimant;
use crate::daemon::binary;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::late::{HANG, within};
use crate::matrix::place::journals;
use crate::mounts::{Disk, with_tmpfs};
use crate::process::{Process, wait_for, wait_until};
use crate::skip::Environment;
use crate::victim::Victim;
use crate::{Daemon, Error, Reason, Result};

tests![
    a_fault_whose_holder_hangs_is_stuck_until_the_kernel_lets_it_go,
    a_daemon_that_is_told_to_stop_ends_although_a_holder_hangs,
    what_a_killed_injector_leaves_that_hangs_is_undone_and_its_place_is_taken,
];

const MIB: u64 = 1 << 20;
/// Longer than a disk takes to read or write.
const MOMENT: Duration = Duration::from_millis(500);
/// How long a removal waits for a holder: to disarm (1.5 s), to end by itself (2 s), and, killed, to be gone (5 s, twice).
const REMOVAL: Duration = Duration::from_secs(14);
/// How soon the guard has undone what a dead injector has left.
const GUARDED: Duration = Duration::from_secs(3);

/// Runs a closure with an ext4 file system of its own.
fn on_a_disk(context: &Context, work: impl FnOnce(&Disk, &Path) -> Result<Outcome> + Send) -> TestResult {
    if context.environment == Environment::Host && !Path::new("/dev/loop-control").exists() {
        return Ok(Outcome::Skip(Reason::NoLoop, "/dev/loop-control is not there".into()));
    }
    let folder = TempDir::new()?;
    Ok(with_tmpfs(folder.path(), "size=1m,mode=1777", || {
        let disk = Disk::mount_on(folder.path(), 64)?;
        work(&disk, folder.path())
    })?)
}

/// Uses the disk.
fn load(path: &Path) -> Fault {
    let params = json!({"path": path, "resource": "disk_io", "bytes_per_second": 4 * MIB, "size_mb": 8});
    Fault::new("resource_exhaustion").with(params)
}

/// Threads of a process that are in the kernel, where no signal reaches them, and how often each has slept.
fn uninterruptible(pid: i32) -> Vec<(i32, u64)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    let there = numbers.filter_map(Process::read).filter(|thread| thread.state == 'D');
    there.map(|thread| (thread.pid, thread.status("voluntary_ctxt_switches"))).collect()
}

/// Whether a thread of a process is in the kernel and stays there: who waits for a disk is there for a moment, too.
fn hangs(pid: i32) -> bool {
    let before = uninterruptible(pid);
    sleep(MOMENT);
    uninterruptible(pid).iter().any(|thread| before.contains(thread))
}

fn wait_until_hangs(pid: i32) -> Result<()> {
    wait_for(&format!("hanging thread of process {pid}"), || hangs(pid))
}

fn recover(daemon: &Daemon) -> Result<Output> {
    let mut command = Command::new(binary("chaos-daemon")?);
    command.arg("recover").arg("--runtime-dir").arg(daemon.runtime_dir());
    command.output().map_err(Error::io("start", "chaos-daemon recover"))
}

fn a_fault_whose_holder_hangs_is_stuck_until_the_kernel_lets_it_go(context: &Context) -> TestResult {
    on_a_disk(context, |disk, path| {
        let mut daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let fault = load(path);
        fault.inject(&mcp)?;
        let pid = holder(&daemon)?.pid;
        let frozen = disk.freeze()?;
        wait_until_hangs(pid)?;
        let started = Instant::now();
        let remove = json!({"fault_name": fault.name(), "action": "remove"});
        let answer = mcp.call_tool("chaos_inject_fault", remove)?;
        println!("answered after {:?}", started.elapsed());
        within(REMOVAL + STANDSTILL, started.elapsed(), "the answer")?;
        assert!(answer.is_error && answer.json["error"]["code"] == "REVERT_FAILED", "{}", answer.json);
        let named =
            |text: &str| text.contains(&format!("process {pid}")) && text.contains("it hangs in the kernel");
        assert!(named(&answer.json["residue"].to_string()), "{}", answer.json);
        let status = fault.status(&mcp)?;
        assert!(status["state"] == "stuck" && named(&status["note"].to_string()), "{status}");
        assert_eq!(journals(&daemon), 1, "the journal has gone");
        let dead = Process::read(pid).is_some_and(|process| process.state == 'Z' && process.threads > 1);
        assert!(dead, "{:?}", Process::read(pid));
        let doctor = mcp.call_tool("chaos_doctor", json!({"residue": true}))?.ok()?.to_string();
        assert!(doctor.contains(&format!("process {pid} is killed, and hangs in the kernel")), "{doctor}");

        drop(frozen);
        let gone = || fault.status(&mcp).map_or(true, |status| status["active"] == false);
        assert!(wait_until(HANG, gone), "{:?}", fault.status(&mcp));
        assert!(Process::read(pid).is_none(), "nobody has collected it: {:?}", Process::read(pid));
        assert_eq!(journals(&daemon), 0);
        fault.inject(&mcp)?;
        fault.remove(&mcp)?;
        daemon.stop()?;
        Ok(Outcome::Pass)
    })
}

fn a_daemon_that_is_told_to_stop_ends_although_a_holder_hangs(context: &Context) -> TestResult {
    on_a_disk(context, |disk, path| {
        let mut daemon = Daemon::start()?;
        load(path).inject(&daemon.mcp()?)?;
        let pid = holder(&daemon)?.pid;
        let injector = daemon.injector().ok_or_else(|| Error::Different("no injector".into()))?;
        let frozen = disk.freeze()?;
        wait_until_hangs(pid)?;
        injector.signal(Signal::SIGTERM);
        assert!(wait_until(HANG, || !injector.runs()), "it waits for its holder");
        // What is left is said, and not forgotten.
        let refused = recover(&daemon)?;
        let said = format!("{refused:?}");
        assert!(
            refused.status.code() == Some(5) && said.contains(&format!("STUCK holder process {pid}")),
            "{said}"
        );
        assert_eq!(journals(&daemon), 1, "the journal has gone");

        drop(frozen);
        assert!(wait_until(HANG, || Process::read(pid).is_none_or(|process| !process.runs())));
        let done = recover(&daemon)?;
        assert!(done.status.success() && journals(&daemon) == 0, "{done:?}");
        daemon.kill_everything();
        Ok(Outcome::Pass)
    })
}

/// Has the journal of the runtime directory say that this group was frozen, and freezes it.
fn freeze(victim: &Victim, runtime_dir: &Path) -> Result<()> {
    let io = |what| Error::io(what, runtime_dir.display().to_string());
    let cgroup = CgroupRef::find(victim.path()).map_err(io("look for a group of"))?;
    let cgroup = cgroup.ok_or_else(|| Error::Different("no group".into()))?;
    let setting = CgroupSetting { cgroup, knob: Knob::Freeze, old: "0".into(), new: "1".into() };
    let step = Step::Setting(Setting::Cgroup(setting));
    let name = QualifiedName::parse("pause").map_err(|error| Error::Different(error.to_string()))?;
    let journal = Journal::open(runtime_dir.join("journal")).map_err(io("open the journal in"))?;
    journal.begin(2, &name, FaultType::Pause, &[step]).map_err(io("begin a journal in"))?;
    victim.write("cgroup.freeze", "1")
}

fn what_a_killed_injector_leaves_that_hangs_is_undone_and_its_place_is_taken(
    context: &Context,
) -> TestResult {
    on_a_disk(context, |disk, path| {
        let victim = Victim::new(&[])?;
        // Its directories, and its log.
        let mut daemon = Daemon::start()?;
        daemon.stop()?;
        let runtime_dir = daemon.runtime_dir();
        let claimant = Claimant::start(&runtime_dir, &path.join("file"))?;
        let injector = claimant.process().ok_or_else(|| Error::Different("no claimant".into()))?;
        let guard = Guard::start(&daemon)?;
        freeze(&victim, &runtime_dir)?;
        let frozen = disk.freeze()?;
        wait_until_hangs(injector.pid)?;
        assert_eq!(victim.read("cgroup.freeze")?, "1", "the guard does not wait for its end");

        injector.signal(Signal::SIGKILL);
        let still_hangs = || {
            let now = Process::read(injector.pid);
            now.is_some_and(|now| now.state == 'Z' && now.threads > 1 && hangs(injector.pid))
        };
        assert!(wait_until(HANG, still_hangs), "{:?}", claimant.process());
        let undone = || victim.read("cgroup.freeze").is_ok_and(|value| value == "0");
        let killed = Instant::now();
        assert!(wait_until(HANG, undone), "guard:\n{}", guard.log());
        within(GUARDED + STANDSTILL, killed.elapsed(), "the undoing by the guard")?;
        assert!(wait_until(HANG, || journals(&daemon) == 0), "guard:\n{}", guard.log());
        assert_eq!(GuardPost::new(&runtime_dir).watchful(), Ok(guard.pid()));
        let said = recover(&daemon)?;
        assert!(said.status.success(), "{said:?}");
        assert!(String::from_utf8_lossy(&said.stdout).contains("nothing was left behind"), "{said:?}");

        daemon.start_again(|_| ())?;
        assert!(still_hangs(), "it does not hang any more, and nothing is shown");
        // A place that is taken by one that lives is not for anybody else.
        assert_eq!(recover(&daemon)?.status.code(), Some(6));
        drop(frozen);
        assert!(wait_until(HANG, || !injector.runs()));
        assert_eq!(recover(&daemon)?.status.code(), Some(6), "the lock went with the one that hung");
        daemon.stop()?;
        Ok(Outcome::Pass)
    })
}
