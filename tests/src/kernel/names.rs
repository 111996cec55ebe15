//! A fault that names a host is about what the name stands for now, and not only what it stood for at the start.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::{EAGAIN, ECONNREFUSED, F_SETLEASE, F_WRLCK, SIGURG, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt};
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_fault_of_a_host_goes_where_its_name_goes_and_spares_what_is_protected,
    a_fault_of_a_host_goes_on_as_it_was_while_nobody_knows_the_name,
    a_fault_of_a_host_goes_where_its_name_goes_by_the_prober_that_follows_one_that_died,
    calls_to_a_host_fail_where_its_name_goes_and_nobody_elses_do,
    packets_of_a_service_to_a_host_are_lost_where_its_name_goes_and_nobody_elses_are,
    a_fault_whose_host_is_still_looked_up_when_all_are_ended_does_not_begin,
    names_are_looked_up_by_the_prober_and_one_that_nobody_answers_keeps_no_fault_and_no_status_waiting,
];

const NAME: &str = "db.chaos.test";
/// Addresses of the peer; the last is protected.
const PEERS: [&str; 3] = ["10.77.0.2", "10.77.0.3", "10.77.0.4"];
/// How long an answer may take on its way, and how long a new address may take to be noticed.
const PATIENCE: Duration = Duration::from_millis(150);
/// Which signal tells of a lease: a command of fcntl(2), from `asm-generic/fcntl.h`.
const F_SETSIG: i32 = 10;

/// A peer with three addresses, and a daemon for which names are what a file of the test says.
struct Stage {
    echoes: Vec<Echo>,
    daemon: Daemon,
    mcp: Mcp,
    before: Residue,
    pair: Pair,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Result<Self> {
        let pair = Pair::new()?;
        for peer in &PEERS[1..] {
            pair.far.ip(&["addr", "add", &format!("{peer}/24"), "dev", INTERFACE])?;
        }
        let start = |peer: &&str| Echo::start(&pair.far, peer.parse::<IpAddr>().unwrap_or(Pair::FAR_V4), 7);
        let echoes = PEERS.iter().map(start).collect::<Result<Vec<_>>>()?;
        let folder = tempfile::tempdir().map_err(Error::io("create", "a folder"))?;
        let file = |name: &str| folder.path().join(name);
        write(&file("policy"), &format!("[protect]\ncidrs = [\"{}/32\"]\n", PEERS[2]))?;
        write(&file("nsswitch.conf"), "hosts: files\n")?;
        write(&file("hosts"), &format!("{} {NAME}\n", PEERS[0]))?;
        let files = ["hosts", "nsswitch.conf"].map(|name| (file(name), Path::new("/etc").join(name)));
        let daemon = Daemon::start_with(|command| {
            command.arg("--policy").arg(file("policy"));
            // All lines of a name, and not its first: what `multi on` does in host.conf(5), which not every system has.
            command.env("RESOLV_MULTI", "on");
            // SAFETY: between fork and exec the closure makes system calls only; the paths were made before.
            unsafe { command.pre_exec(move || lay_over(&files)) };
        })?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near, &pair.far])?;
        Ok(Self { echoes, daemon, mcp, before, pair, folder })
    }

    fn fault(&self) -> Fault {
        Fault::new("network_partition").on(&self.pair.near, json!({"host": NAME, "resolve_seconds": 2}))
    }

    /// Has the name stand for these, in the very file that the daemon sees.
    fn name(&self, peers: &[&str]) -> Result<()> {
        let lines: String = peers.iter().map(|peer| format!("{peer} {NAME}\n")).collect();
        write(&self.folder.path().join("hosts"), &lines)
    }

    /// Which peers do not answer.
    fn cut_off(&self) -> Result<[bool; 3]> {
        let mut cut = [false; 3];
        for (cut, echo) in cut.iter_mut().zip(&self.echoes) {
            *cut = udp_rtt(&self.pair.near, echo.address(), PATIENCE)?.is_none();
        }
        Ok(cut)
    }

    /// What a caller gets of each peer.
    fn ask(&self, caller: &mut Caller, ask: fn(SocketAddr) -> Ask) -> Result<Vec<i32>> {
        self.echoes.iter().map(|echo| caller.ask(ask(echo.address()))).collect()
    }

    /// Waits until the status shows these addresses of the name.
    fn assert_stands_for(&self, peers: &[&str]) -> Result<()> {
        self.assert_is_about(&self.fault(), peers)
    }

    fn assert_is_about(&self, fault: &Fault, peers: &[&str]) -> Result<()> {
        let seen = || fault.status(&self.mcp).is_ok_and(|status| status["host_addresses"] == json!(peers));
        let shown = wait_until(HANG, seen);
        assert!(shown, "expected {peers:?}, and the status is {}", fault.status(&self.mcp)?);
        Ok(())
    }

    /// How many names the prober looks up.
    fn looked_up(&self) -> usize {
        self.daemon.prober().map_or(0, |prober| threads(prober.pid, "name"))
    }

    fn assert_nothing_left(self) -> Result<()> {
        assert_eq!(self.cut_off()?, [false; 3]);
        self.before.assert_unchanged_within(&[&self.pair.near, &self.pair.far], HANG)?;
        drop(self.daemon);
        Ok(())
    }
}

/// How many threads of a process have this name.
fn threads(pid: i32, name: &str) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|each| each.trim() == name).count()
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(Error::io("write", path.display().to_string()))
}

/// Puts files in the place of others, for this process and those that it starts.
fn lay_over(files: &[(PathBuf, PathBuf)]) -> std::io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What is mounted outside later is seen still; what is mounted here is not seen outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_SLAVE | MsFlags::MS_REC, None::<&str>)?;
    for (file, place) in files.iter().filter(|(_, place)| place.exists()) {
        mount(Some(file), place, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    Ok(())
}

fn a_fault_of_a_host_goes_where_its_name_goes_and_spares_what_is_protected(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    assert_eq!(stage.cut_off()?, [false; 3], "before");
    let fault = stage.fault();
    fault.inject(&stage.mcp)?;
    stage.assert_stands_for(&PEERS[..1])?;
    assert_eq!(stage.cut_off()?, [true, false, false]);
    stage.name(&PEERS[1..])?;
    // What it stood for one look-up ago stays for one more.
    stage.assert_stands_for(&PEERS)?;
    assert_eq!(stage.cut_off()?, [true, true, false]);
    stage.assert_stands_for(&PEERS[1..])?;
    assert_eq!(stage.cut_off()?, [false, true, false]);
    fault.remove(&stage.mcp)?;
    stage.assert_nothing_left()?;
    Ok(Outcome::Pass)
}

fn a_fault_of_a_host_goes_on_as_it_was_while_nobody_knows_the_name(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    let fault = stage.fault();
    fault.inject(&stage.mcp)?;
    stage.name(&[])?;
    let noted = || {
        let note = fault.status(&stage.mcp).map(|status| status["note"].to_string());
        note.is_ok_and(|note| note.contains(NAME) && note.contains("goes on"))
    };
    assert!(wait_until(HANG, noted), "{}", fault.status(&stage.mcp)?);
    assert_eq!(stage.cut_off()?, [true, false, false]);
    stage.name(&PEERS[1..2])?;
    stage.assert_stands_for(&PEERS[1..2])?;
    assert_eq!((stage.cut_off()?, &fault.status(&stage.mcp)?["note"]), ([false, true, false], &json!(null)));
    stage.daemon.holders().iter().for_each(|holder| holder.signal(nix::sys::signal::Signal::SIGKILL));
    assert!(wait_until(HANG, || stage.cut_off().is_ok_and(|cut| cut == [false; 3])), "after SIGKILL");
    let ended = || fault.status(&stage.mcp).is_ok_and(|status| status["active"] == false);
    assert!(wait_until(HANG, ended), "{}", fault.status(&stage.mcp)?);
    stage.assert_nothing_left()?;
    Ok(Outcome::Pass)
}

fn a_fault_of_a_host_goes_where_its_name_goes_by_the_prober_that_follows_one_that_died(
    _: &Context,
) -> TestResult {
    let stage = Stage::new()?;
    let fault = stage.fault();
    fault.inject(&stage.mcp)?;
    stage.assert_stands_for(&PEERS[..1])?;
    let prober = stage.daemon.prober().ok_or("no prober")?;
    prober.signal(nix::sys::signal::Signal::SIGKILL);
    stage.name(&PEERS[1..2])?;
    stage.assert_stands_for(&PEERS[1..2])?;
    assert_eq!((stage.cut_off()?, prober.runs()), ([false, true, false], false));
    fault.remove(&stage.mcp)?;
    stage.assert_nothing_left()?;
    Ok(Outcome::Pass)
}

fn calls_to_a_host_fail_where_its_name_goes_and_nobody_elses_do(_: &Context) -> TestResult {
    of_a_service("connect_error", Ask::Connect, ECONNREFUSED)
}

fn packets_of_a_service_to_a_host_are_lost_where_its_name_goes_and_nobody_elses_are(
    _: &Context,
) -> TestResult {
    of_a_service("network_partition", Ask::Trip, EAGAIN)
}

/// A fault of one service and a host: what it asks gets this where the name goes, and nowhere else.
fn of_a_service(kind: &'static str, ask: fn(SocketAddr) -> Ask, fails: i32) -> TestResult {
    let (cgroup, stage) = (Cgroup::new()?, Stage::new()?);
    let mut service = Caller::start(&stage.pair.near, Some(&cgroup))?;
    let mut beside = Caller::start(&stage.pair.near, None)?;
    let get = |caller: &mut Caller| stage.ask(caller, ask);
    assert_eq!((get(&mut service)?, get(&mut beside)?), (vec![0; 3], vec![0; 3]), "before");
    // Longer than it takes to ask of a packet that is lost.
    let target = json!({"cgroup": cgroup.name(), "host": NAME, "resolve_seconds": 3});
    let fault = Fault::new(kind).aimed(target);
    fault.inject(&stage.mcp)?;
    stage.assert_is_about(&fault, &PEERS[..1])?;
    assert_eq!((get(&mut service)?, get(&mut beside)?), (vec![fails, 0, 0], vec![0; 3]));
    stage.name(&PEERS[1..])?;
    // What it stood for one look-up ago stays for one more; the last is protected.
    stage.assert_is_about(&fault, &PEERS)?;
    assert_eq!(get(&mut service)?, [fails, fails, 0]);
    stage.assert_is_about(&fault, &PEERS[1..])?;
    assert_eq!((get(&mut service)?, get(&mut beside)?), (vec![0, fails, 0], vec![0; 3]));
    fault.remove(&stage.mcp)?;
    assert_eq!((get(&mut service)?, get(&mut beside)?), (vec![0; 3], vec![0; 3]), "after");
    drop((service, beside));
    stage.assert_nothing_left()?;
    Ok(Outcome::Pass)
}

/// Has who opens a file wait until what comes back is dropped (a lease, see fcntl(2)).
fn hold(path: &Path) -> Result<File> {
    let failed = |error| Error::io("take a lease on", path.display().to_string())(error);
    let file = File::open(path).map_err(failed)?;
    // SIGURG does nothing, where SIGIO would end this process.
    for (command, argument) in [(F_SETSIG, SIGURG), (F_SETLEASE, F_WRLCK)] {
        // SAFETY: these commands take a whole number, and no memory.
        if unsafe { fcntl(file.as_raw_fd(), command, argument) } == -1 {
            return Err(failed(std::io::Error::last_os_error()));
        }
    }
    Ok(file)
}

fn a_fault_whose_host_is_still_looked_up_when_all_are_ended_does_not_begin(_: &Context) -> TestResult {
    let stage = Stage::new()?;
    let held = hold(&stage.folder.path().join("hosts"))?;
    let (fault, socket) = (stage.fault(), stage.daemon.socket());
    let asked = thread::spawn(move || fault.inject(&Mcp::connect(&socket)?));
    assert!(wait_until(HANG, || stage.looked_up() == 1), "the name is not looked up");
    stage.mcp.call_tool("chaos_stop", json!({}))?.ok()?;
    assert!(!asked.is_finished(), "the look-up did not wait");
    drop(held);
    let answer = asked.join().map_err(|_panic| "the client panicked")?;
    let refused = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains("every fault was ended after it"));
    assert!(refused, "{answer:?}");
    stage.assert_nothing_left()?;
    Ok(Outcome::Pass)
}

fn names_are_looked_up_by_the_prober_and_one_that_nobody_answers_keeps_no_fault_and_no_status_waiting(
    _: &Context,
) -> TestResult {
    let stage = Stage::new()?;
    let beside = Fault::new("network_partition").on(&stage.pair.near, json!({"cidr": PEERS[1]}));
    beside.inject(&stage.mcp)?;
    let held = hold(&stage.folder.path().join("hosts"))?;
    let socket = stage.daemon.socket();
    let target = json!({"interface": INTERFACE, "netns": stage.pair.near.name(), "host": NAME});
    let plan = json!({"fault_name": "planned", "fault_type": "network_partition", "target": target});
    let asked: Vec<_> = (0..5)
        .map(|_| {
            let (socket, plan) = (socket.clone(), plan.clone());
            thread::spawn(move || Mcp::connect(&socket)?.call_tool("chaos_plan", plan))
        })
        .collect();
    // So many of one user are looked up at once.
    assert!(wait_until(HANG, || stage.looked_up() == 4), "{} are looked up", stage.looked_up());
    let since = Instant::now();
    // Longer than a lease, and than the guard waits.
    while since.elapsed() < Duration::from_secs(5) {
        assert_eq!(beside.status(&stage.mcp)?["active"], true);
        assert_eq!(stage.cut_off()?, [false, true, false]);
    }
    assert_eq!((stage.looked_up(), threads(stage.daemon.injector_pid(), "aside")), (4, 0));
    drop(held);
    for asked in asked {
        asked.join().map_err(|_panic| "a client panicked")??.ok()?;
    }
    beside.remove(&stage.mcp)?;
    stage.assert_nothing_left()?;
    Ok(Outcome::Pass)
}
