//! What supervised faults are tried on: each stage has a fault, an independent look whether it acts, and a picture of all
//! that has to be as before when it has ended.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::net::if_::InterfaceFlags;
use serde_json::json;

use crate::disk::Disk;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt};
use crate::netns::NetNs;
use crate::pair::INTERFACE;
use crate::process::{wait_for, wait_until};
use crate::victim::Victim;
use crate::{Error, Pair, Result};

/// How long an answer is waited for when there may be none.
const PATIENCE: Duration = Duration::from_millis(250);
/// By how much the clock is set wrong, in seconds.
const OFFSET: f64 = 5400.0;

/// A place for a fault.
pub(crate) trait Stage {
    /// The fault.
    fn fault(&self) -> Fault;
    /// Whether it acts.
    fn acts(&mut self) -> Result<bool>;
    /// Of a fault that comes and goes: whether it does not come any more.
    fn stays_away(&self) -> bool {
        true
    }
    /// What the fault changes, as the kernel shows it.
    fn picture(&self) -> Result<String>;
    /// The namespaces that it is in.
    fn namespaces(&self) -> Vec<&NetNs> {
        Vec::new()
    }
    /// The control groups that it is in.
    fn cgroups(&self) -> Vec<&Path> {
        Vec::new()
    }
    /// Does what somebody else might do while the fault is active; returns what the picture contains once it has been removed.
    fn disturb(&self) -> Result<Vec<String>> {
        Err(Error::Different("nobody else can do to it what its undo would not do".into()))
    }
}

/// Makes a stage.
pub(crate) type Make = fn() -> Result<Box<dyn Stage>>;

/// Stages, made one after the other, and what they need.
#[derive(Clone, Copy)]
pub(super) struct Stages {
    pub(super) make: &'static [Make],
    pub(super) controllers: &'static [&'static str],
    pub(super) own_clock: bool,
}

pub(super) const PAUSE_AND_LINK: Stages = Stages { make: &[pause, link], controllers: &[], own_clock: false };
pub(super) const LINK: Stages = Stages { make: &[link], controllers: &[], own_clock: false };
pub(super) const SOURCED_LINK: Stages = Stages { make: &[sourced_link], controllers: &[], own_clock: false };
pub(super) const LIMITS: Stages = Stages { make: &[cpu, pids], controllers: CONTROLLERS, own_clock: false };
/// By itself: who is short of memory is slow.
pub(super) const MEMORY: Stages = Stages { make: &[memory], controllers: CONTROLLERS, own_clock: false };
pub(super) const DISK: Stages = Stages { make: &[disk], controllers: &["io"], own_clock: false };
/// One way of a disk each, and the other as before.
pub(super) const ONE_WAY: Stages =
    Stages { make: &[slow_reads, slow_writes], controllers: &["io"], own_clock: false };
pub(super) const FLAPS: Stages = Stages { make: &[flaps], controllers: &[], own_clock: false };
pub(super) const CLOCK: Stages = Stages { make: &[clock], controllers: &[], own_clock: true };
pub(super) const CLOCK_AHEAD: Stages = Stages { make: &[clock_ahead], controllers: &[], own_clock: true };
pub(crate) const CONTROLLERS: &[&str] = &["cpu", "pids", "memory"];

pub(crate) fn pause() -> Result<Box<dyn Stage>> {
    Ok(Box::new(Paused(Victim::new(&[])?)))
}

pub(crate) fn link() -> Result<Box<dyn Stage>> {
    Ok(Box::new(link_with_belongings()?))
}

fn link_with_belongings() -> Result<Down> {
    let pair = Pair::new()?;
    let near = &pair.near;
    // Something of each kind that going down takes away.
    for words in [
        "-4 route add 198.51.100.0/24 via 10.77.0.2 dev eth0 metric 7",
        "-4 route add 203.0.113.0/24 dev eth0 table 100",
        "-6 address add 2001:db8:1::1/64 dev eth0 nodad",
        "-6 route add 2001:db8:2::/64 via fd77::2 dev eth0",
        "-6 route add default via 2001:db8:1::2 dev eth0 metric 2048",
        "neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent",
        "neigh add proxy 10.77.0.8 dev eth0",
        "neigh add proxy fd77::8 dev eth0",
    ] {
        near.ip(&words.split(' ').collect::<Vec<_>>())?;
    }
    let echo = Echo::start(&pair.far, Pair::FAR_V6, 7)?;
    Ok(Down { pair, echo })
}

/// With a route whose source is an address that is checked for duplicates each time that it comes, and one that needs that route.
fn sourced_link() -> Result<Box<dyn Stage>> {
    let down = link_with_belongings()?;
    let ip = |words: &str| down.pair.near.ip(&words.split(' ').collect::<Vec<_>>());
    ip("-6 address add 2001:db8:3::1/64 dev eth0")?;
    let is_checked = || ip("-6 address show dev eth0").is_ok_and(|text| !text.contains("tentative"));
    wait_for("address checked for duplicates", is_checked)?;
    ip("-6 route add 2001:db8:4::/64 dev eth0 src 2001:db8:3::1")?;
    ip("-6 route add 2001:db8:5::/64 via 2001:db8:4::9 dev eth0")?;
    Ok(Box::new(down))
}

pub(crate) fn flaps() -> Result<Box<dyn Stage>> {
    Ok(Box::new(Flapping(link_with_belongings()?)))
}

pub(crate) fn cpu() -> Result<Box<dyn Stage>> {
    let (params, file) = (json!({"resource": "cpu_limit", "cpu_percent": 5}), "cpu.max");
    Ok(Box::new(Limited {
        cgroup: Victim::new(CONTROLLERS)?,
        params,
        file,
        other: "50000 100000",
        probe: throttled,
    }))
}

pub(crate) fn pids() -> Result<Box<dyn Stage>> {
    let (params, file) = (json!({"resource": "pids_limit", "pids": 1}), "pids.max");
    Ok(Box::new(Limited { cgroup: Victim::new(CONTROLLERS)?, params, file, other: "77", probe: cannot_fork }))
}

pub(crate) fn memory() -> Result<Box<dyn Stage>> {
    let (params, file) = (json!({"resource": "memory_limit", "memory_mb": 2}), "memory.high");
    Ok(Box::new(Limited {
        cgroup: Victim::new(CONTROLLERS)?,
        params,
        file,
        other: "33554432",
        probe: reclaimed,
    }))
}

pub(crate) fn disk() -> Result<Box<dyn Stage>> {
    on_disk(json!({"bytes_per_second": DISK_RATE}), reading, None)
}

fn slow_reads() -> Result<Box<dyn Stage>> {
    on_disk(json!({"read_iops": READS}), reading_in_pieces, Some(writing))
}

fn slow_writes() -> Result<Box<dyn Stage>> {
    on_disk(json!({"write_bps": DISK_RATE}), writing, Some(reading_in_pieces))
}

fn on_disk(limit: serde_json::Value, slow: Access, quick: Option<Access>) -> Result<Box<dyn Stage>> {
    Ok(Box::new(OnDisk { cgroup: Victim::new(&["io"])?, disk: Disk::new(1 << 20)?, limit, slow, quick }))
}

pub(crate) fn clock() -> Result<Box<dyn Stage>> {
    Ok(Box::new(Clock { before: clock_distance(), offset: -OFFSET }))
}

fn clock_ahead() -> Result<Box<dyn Stage>> {
    Ok(Box::new(Clock { before: clock_distance(), offset: OFFSET }))
}

struct Paused(Victim);

impl Stage for Paused {
    fn fault(&self) -> Fault {
        Fault::new("pause").aimed(json!({"cgroup": self.0.name()}))
    }

    fn acts(&mut self) -> Result<bool> {
        Ok(self.0.ask("true", PATIENCE)?.is_none())
    }

    fn picture(&self) -> Result<String> {
        Ok(format!("{}\n{}", self.0.read("cgroup.freeze")?, self.0.read("cgroup.events")?))
    }

    fn cgroups(&self) -> Vec<&Path> {
        vec![self.0.path()]
    }
}

struct Limited {
    cgroup: Victim,
    params: serde_json::Value,
    file: &'static str,
    /// What somebody else might set.
    other: &'static str,
    probe: fn(&mut Victim) -> Result<bool>,
}

impl Stage for Limited {
    fn fault(&self) -> Fault {
        let fault = Fault::new("resource_exhaustion").named(self.file);
        fault.aimed(json!({"cgroup": self.cgroup.name()})).with(self.params.clone())
    }

    fn acts(&mut self) -> Result<bool> {
        (self.probe)(&mut self.cgroup)
    }

    fn picture(&self) -> Result<String> {
        self.cgroup.read(self.file)
    }

    fn cgroups(&self) -> Vec<&Path> {
        vec![self.cgroup.path()]
    }

    fn disturb(&self) -> Result<Vec<String>> {
        self.cgroup.write(self.file, self.other)?;
        Ok(vec![self.other.to_owned()])
    }
}

/// A counter of one of the group's files.
fn counter(cgroup: &Victim, file: &str, name: &str) -> Result<u64> {
    let text = cgroup.read(file)?;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.ok_or_else(|| Error::Different(format!("no {name} in {file}: {text}")))
}

fn throttled(cgroup: &mut Victim) -> Result<bool> {
    let before = counter(cgroup, "cpu.stat", "nr_throttled")?;
    // Some 20 ms of work without a limit, even under emulation.
    cgroup.ask("i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done", HANG)?;
    Ok(counter(cgroup, "cpu.stat", "nr_throttled")? > before)
}

/// Whether nobody in the group can start another process.
pub(in crate::kernel) fn cannot_fork(cgroup: &mut Victim) -> Result<bool> {
    // One that goes into the group, which is no fork, and then wants a child. A shell that gets none ends.
    let mut command = Command::new("sh");
    command
        .args(["-c", "read -r line; (exit 0) || exit 1; exit 0"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut shell = command.spawn().map_err(Error::io("start", "a shell"))?;
    let moved = cgroup.write("cgroup.procs", &shell.id().to_string());
    drop(shell.stdin.take());
    let status = shell.wait().map_err(Error::io("wait for", "a shell"))?;
    moved.map(|()| !status.success())
}

fn reclaimed(cgroup: &mut Victim) -> Result<bool> {
    let before = counter(cgroup, "memory.events", "high")?;
    // A little more than the limit, with the shell itself: what goes far beyond is slowed down for minutes.
    cgroup.ask("dd if=/dev/zero of=/dev/null bs=2M count=1", HANG)?;
    Ok(counter(cgroup, "memory.events", "high")? > before)
}

/// A process that uses a disk, which is limited.
struct OnDisk {
    cgroup: Victim,
    disk: Disk,
    limit: serde_json::Value,
    /// What is limited, and something that is not.
    slow: Access,
    quick: Option<Access>,
}

/// How a disk is used, past the cache: a command, of the disk's path.
type Access = fn(&str) -> String;

/// Bytes per second that the disk is limited to, and reading operations.
const DISK_RATE: u32 = 128 << 10;
const READS: u32 = 8;
/// What is limited takes twice as long, and what is not much less.
const SLOW: Duration = Duration::from_millis(250);
/// How often what is not limited may be slow for another reason.
const HICCUPS: u32 = 5;

/// Half a second's worth of bytes.
fn reading(disk: &str) -> String {
    format!("dd if={disk} of=/dev/null bs=32k count=2 iflag=direct")
}

/// Half a second's worth of operations, and far less of bytes.
fn reading_in_pieces(disk: &str) -> String {
    format!("dd if={disk} of=/dev/null bs=4k count=5 iflag=direct")
}

/// Half a second's worth of bytes.
fn writing(disk: &str) -> String {
    format!("dd if=/dev/zero of={disk} bs=32k count=2 oflag=direct conv=notrunc")
}

impl OnDisk {
    fn is_slow(&mut self, access: Access) -> Result<bool> {
        let start = Instant::now();
        match self.cgroup.ask(&access(self.disk.path()), HANG)? {
            Some(0) => Ok(start.elapsed() > SLOW),
            other => Err(Error::Different(format!("cannot use the disk: {other:?}"))),
        }
    }
}

impl Stage for OnDisk {
    fn fault(&self) -> Fault {
        let mut params = self.limit.clone();
        params["resource"] = json!("io_limit");
        params["device"] = json!(self.disk.number());
        Fault::new("resource_exhaustion").aimed(json!({"cgroup": self.cgroup.name()})).with(params)
    }

    fn acts(&mut self) -> Result<bool> {
        let slow = self.is_slow(self.slow)?;
        let Some(quick) = self.quick.filter(|_| slow) else { return Ok(slow) };
        for _ in 0..HICCUPS {
            if !self.is_slow(quick)? {
                return Ok(true);
            }
        }
        Err(Error::Different(format!("what is not limited is slow, too: {}", quick(self.disk.path()))))
    }

    fn picture(&self) -> Result<String> {
        Ok(format!("limits: {}", self.cgroup.read("io.max")?))
    }

    fn cgroups(&self) -> Vec<&Path> {
        vec![self.cgroup.path()]
    }

    fn disturb(&self) -> Result<Vec<String>> {
        let other = format!("{} rbps=max wbps=4194304 riops=max wiops=max", self.disk.number());
        self.cgroup.write("io.max", &other)?;
        Ok(vec![other])
    }
}

/// Whether the interface is administratively up, as the kernel says in its namespace.
pub(in crate::kernel) fn is_up(namespace: &NetNs) -> bool {
    namespace.run(|| {
        let mut all = nix::ifaddrs::getifaddrs().into_iter().flatten();
        all.any(|found| found.interface_name == INTERFACE && found.flags.contains(InterfaceFlags::IFF_UP))
    })
}

struct Down {
    pair: Pair,
    echo: Echo,
}

impl Stage for Down {
    fn fault(&self) -> Fault {
        Fault::new("link_down").on(&self.pair.near, json!({}))
    }

    fn acts(&mut self) -> Result<bool> {
        let flags = self.pair.near.ip(&["-o", "link", "show", "dev", INTERFACE])?;
        // "No route" is how it shows to whoever sends.
        let trip = udp_rtt(&self.pair.near, self.echo.address(), PATIENCE);
        let passes = trip.is_ok_and(|trip| trip.is_some());
        Ok(!passes || !flags.contains(",UP"))
    }

    fn picture(&self) -> Result<String> {
        let near = &self.pair.near;
        let mut text = String::new();
        for words in [
            "-o link show dev eth0",
            "-o -4 address show dev eth0",
            "-o -6 address show dev eth0",
            "-4 route show table all",
            "-6 route show table all",
            "neigh show dev eth0 nud permanent",
            "neigh show proxy",
        ] {
            let mut lines: Vec<_> =
                near.ip(&words.split(' ').collect::<Vec<_>>())?.lines().map(str::to_owned).collect();
            // Alternatives with the same metric have no order.
            lines.sort();
            text.push_str(&lines.join("\n"));
            text.push('\n');
        }
        Ok(text)
    }

    fn namespaces(&self) -> Vec<&NetNs> {
        vec![&self.pair.near, &self.pair.far]
    }

    fn disturb(&self) -> Result<Vec<String>> {
        // Up again, with something else in two of the places that the undo fills.
        for words in [
            "link set dev eth0 up txqueuelen 777",
            "-4 route add 198.51.100.0/24 via 10.77.0.3 dev eth0 metric 7",
            "neigh replace 10.77.0.9 lladdr 02:00:00:00:00:77 dev eth0 nud permanent",
        ] {
            self.pair.near.ip(&words.split(' ').collect::<Vec<_>>())?;
        }
        let theirs = ["qlen 777", "198.51.100.0/24 via 10.77.0.3 ", "10.77.0.9 lladdr 02:00:00:00:00:77 "];
        // What they have not brought back is for the undo to give.
        let ours =
            ["2001:db8:1::1/64 ", "2001:db8:2::/64 via fd77::2 ", "10.77.0.8 dev eth0", "fd77::8 dev eth0"];
        Ok(theirs.into_iter().chain(ours).map(str::to_owned).collect())
    }
}

/// A link that goes down and up by turns.
struct Flapping(Down);

/// How long it is down, and up in between.
const PHASE: Duration = Duration::from_millis(100);

impl Flapping {
    /// Whether it is down at some time within so many phases.
    fn goes_down(&self, phases: u32) -> bool {
        wait_until(phases * PHASE, || !is_up(&self.0.pair.near))
    }
}

impl Stage for Flapping {
    fn fault(&self) -> Fault {
        self.0.fault().named("flap").with(json!({"down_ms": 100, "up_ms": 100, "jitter_ms": 50}))
    }

    fn acts(&mut self) -> Result<bool> {
        Ok(self.goes_down(20))
    }

    fn stays_away(&self) -> bool {
        !self.goes_down(6)
    }

    fn picture(&self) -> Result<String> {
        self.0.picture()
    }

    fn namespaces(&self) -> Vec<&NetNs> {
        vec![&self.0.pair.near, &self.0.pair.far]
    }
}

struct Clock {
    before: f64,
    offset: f64,
}

/// Wall clock minus boot clock, in seconds.
fn clock_distance() -> f64 {
    let read = |clock| nix::time::clock_gettime(clock).map_or(Duration::ZERO, Duration::from).as_secs_f64();
    read(nix::time::ClockId::CLOCK_REALTIME) - read(nix::time::ClockId::CLOCK_BOOTTIME)
}

impl Stage for Clock {
    fn fault(&self) -> Fault {
        Fault::new("clock_skew").aimed(json!({})).with(json!({"offset_seconds": self.offset}))
    }

    fn acts(&mut self) -> Result<bool> {
        Ok((clock_distance() - self.before - self.offset).abs() < 1.0)
    }

    fn picture(&self) -> Result<String> {
        // Nobody slews or steps the clock of the VM: what is left is what it took to read two clocks.
        let moved = clock_distance() - self.before;
        Ok(if moved.abs() < 0.05 { "right".into() } else { format!("wrong by {moved:.1} s") })
    }

    fn disturb(&self) -> Result<Vec<String>> {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
            .map_err(Error::sys("read", "a clock"))?;
        let right = Duration::from(now).as_secs_f64() + self.before + 0.2;
        let right = Duration::from_secs_f64(right);
        nix::time::clock_settime(nix::time::ClockId::CLOCK_REALTIME, right.into())
            .map_err(Error::sys("set", "the clock"))?;
        Ok(vec!["wrong by 0.2 s".into()])
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let off = clock_distance() - self.before;
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME);
        if off.abs() > 0.05
            && let Ok(now) = now
        {
            let right = Duration::from_secs_f64(Duration::from(now).as_secs_f64() - off);
            let _ = nix::time::clock_settime(nix::time::ClockId::CLOCK_REALTIME, right.into());
        }
    }
}
