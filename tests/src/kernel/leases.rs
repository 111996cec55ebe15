//! Leases under stress: a fault ends on time though nobody who could end it runs.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime, clock_settime};
use serde_json::json;

use super::{Attach, Context, Outcome, STANDSTILL, TestResult, on_every_attachment, tests};
use crate::cgroup::{self, Cgroup};
use crate::fault::{Fault, LONG};
use crate::guard::Guard;
use crate::late::{HANG, within};
use crate::measure::{Echo, udp_rtt};
use crate::process::{Process, wait_until};
use crate::skip::Environment;
use crate::victim::Victim;
use crate::worker::Program;
use crate::{Daemon, Error, Pair, Reason, Result};

tests![
    with_a_stopped_injector_and_every_processor_busy_the_lease_ends_a_fault,
    with_a_stopped_injector_and_every_processor_busy_its_time_ends_a_fault,
    with_a_stopped_injector_and_every_processor_busy_paused_processes_go_on,
    with_a_stopped_injector_and_no_memory_to_spare_the_lease_ends_a_fault,
    a_clock_set_forward_neither_ends_a_fault_early_nor_keeps_it,
    a_clock_set_back_neither_ends_a_fault_early_nor_keeps_it,
    a_fault_whose_time_is_up_while_the_machine_is_suspended_is_over_when_it_wakes,
];

/// One heartbeat keeps a fault for so long.
const LEASE: Duration = Duration::from_secs(3);
/// A time that ends this long before the lease that a fault is injected with: what ends a fault by then is its time.
const SHORT: Duration = Duration::from_millis(1500);
const BEFORE_LEASE: Duration = Duration::from_millis(1200);
/// So much later than a lease ends, a timer kills a holder that has not given back what no deadline in the kernel can end.
const TIMER: Duration = Duration::from_millis(500);
/// How much later than promised may be seen from outside, by a process that has to wait for its turn itself.
const SEEN: Duration = STANDSTILL;
const PATIENCE: Duration = Duration::from_millis(100);
/// What the injector ends by itself is over so long after the machine has woken: it looks at boot time once a second.
const WOKEN: Duration = Duration::from_secs(3);
const HOUR: Duration = Duration::from_secs(3600);

/// Namespaces, a daemon, and a partition that acts.
struct Scene {
    pair: Pair,
    echo: Echo,
    daemon: Daemon,
}

impl Scene {
    fn new(lasting: Duration, configure: impl FnOnce(&mut Command)) -> Result<Self> {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(configure)?;
        let fault = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}));
        let asked = Instant::now();
        fault.lasting(lasting).inject(&daemon.mcp()?)?;
        let scene = Self { pair, echo, daemon };
        match scene.normal()? {
            false => Ok(scene),
            true if asked.elapsed() >= lasting => {
                Err(Error::Late { what: "a fault seen before its end".into(), after: lasting })
            }
            true => Err(Error::Different("the fault has no effect".into())),
        }
    }

    fn normal(&self) -> Result<bool> {
        Ok(udp_rtt(&self.pair.near, self.echo.address(), PATIENCE)?.is_some())
    }

    /// How long it takes from `since` until traffic is normal: when the first packet that came through left.
    fn time_to_normal(&self, since: Instant) -> Result<Duration> {
        while since.elapsed() < HANG {
            let sent = since.elapsed();
            if self.normal()? {
                return Ok(sent);
            }
        }
        Err(Error::Hung { what: "traffic normal".into() })
    }

    fn injector(&self) -> Result<Process> {
        self.daemon.injector().ok_or_else(|| Error::Different("no injector".into()))
    }
}

/// Processes of the test's own that do nothing but run, four for each processor; they end by themselves, too.
struct Burners(Vec<std::process::Child>);

impl Burners {
    fn start() -> Result<Self> {
        let count = 4 * std::thread::available_parallelism().map_or(1, usize::from);
        let burner = |_| {
            let mut command = Command::new("timeout");
            command.args(["15", "sh", "-c", "while :; do :; done"]);
            command.spawn().map_err(Error::io("start", "a burner"))
        };
        (0..count).map(burner).collect::<Result<_>>().map(Self)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Not SIGKILL: `timeout` passes this one on.
            let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
            let _ = nix::sys::signal::kill(pid, Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

/// After the injector has stopped and `stress` has begun, the fault ends within its lease.
fn ends_by_lease<T>(scene: &Scene, stress: impl FnOnce() -> Result<T>) -> Result<()> {
    let injector = scene.injector()?;
    injector.signal(Signal::SIGSTOP);
    let since = Instant::now();
    let ended = stress().and_then(|_stress| scene.time_to_normal(since));
    injector.signal(Signal::SIGCONT);
    let after = ended?;
    within(LEASE + SEEN, after, "the end after the injector had stopped")
}

fn with_a_stopped_injector_and_every_processor_busy_the_lease_ends_a_fault(context: &Context) -> TestResult {
    on_every_attachment(context, |attach: Attach| {
        let scene = Scene::new(LONG, |command| attach.configure(command))?;
        Ok(ends_by_lease(&scene, Burners::start)?)
    })
}

fn with_a_stopped_injector_and_every_processor_busy_its_time_ends_a_fault(context: &Context) -> TestResult {
    on_every_attachment(context, |attach: Attach| {
        let asked = Instant::now();
        let scene = Scene::new(SHORT, |command| attach.configure(command))?;
        let (latest, injector) = (Instant::now() + SHORT, scene.injector()?);
        injector.signal(Signal::SIGSTOP);
        let burners = Burners::start()?;
        let ended = scene.time_to_normal(asked);
        drop(burners);
        injector.signal(Signal::SIGCONT);
        let ended = asked + ended?;
        assert!(ended >= asked + SHORT, "it ended {:?} early", asked + SHORT - ended);
        Ok(within(
            BEFORE_LEASE,
            ended.saturating_duration_since(latest),
            "the end of a fault whose time is up",
        )?)
    })
}

/// The holder lets them go itself; if it cannot, a timer kills it half a second later.
fn with_a_stopped_injector_and_every_processor_busy_paused_processes_go_on(_: &Context) -> TestResult {
    let worker_program = Program::new()?;
    let worker = worker_program.start(0, "lease")?;
    let daemon = Daemon::start()?;
    let fault = Fault::new("process_pause").aimed(json!({"pid": worker.pid()})).lasting(LONG);
    fault.inject(&daemon.mcp()?)?;
    let stands = || worker.state() == Some('t');
    assert!(wait_until(HANG, stands), "the fault has no effect");
    let injector = daemon.injector().ok_or("no injector")?;
    injector.signal(Signal::SIGSTOP);
    let since = Instant::now();
    let burners = Burners::start()?;
    let goes_on = wait_until(HANG, || !stands());
    let after = since.elapsed();
    drop(burners);
    // Before the injector runs again, which renews the lease.
    let runs = worker.runs();
    injector.signal(Signal::SIGCONT);
    assert!(goes_on, "it still stands {HANG:?} after the injector had stopped");
    within(LEASE + TIMER + SEEN, after, "going on after the injector had stopped")?;
    assert!(runs, "it does not run: state {:?}, {}", worker.state(), daemon.log());
    Ok(Outcome::Pass)
}

/// The daemon's control group has no byte to spare, and whatever of it is not in use has to be read again.
fn with_a_stopped_injector_and_no_memory_to_spare_the_lease_ends_a_fault(context: &Context) -> TestResult {
    if context.environment == Environment::Host {
        return Ok(Outcome::Skip(Reason::NotOurMachine, "a memory limit by cgroup v2".into()));
    }
    cgroup::enable("memory")?;
    let cgroup = Cgroup::new()?;
    let scene = Scene::new(LONG, |command| cgroup.place(command))?;
    ends_by_lease(&scene, || {
        let used: u64 = cgroup.get("memory.current")?.trim().parse().unwrap_or(u64::MAX);
        // Not below: the kernel would kill, which ends a fault, too.
        cgroup.set("memory.high", &(used / 2).to_string())
    })?;
    cgroup.set("memory.high", "max")?;
    Ok(Outcome::Pass)
}

/// An hour there and back.
struct Stepped(bool);

impl Stepped {
    fn step(forward: bool) -> Result<()> {
        let clock = ClockId::CLOCK_REALTIME;
        let now = Duration::from(clock_gettime(clock).map_err(Error::sys("read", "the clock"))?);
        let then = if forward { now + HOUR } else { now.saturating_sub(HOUR) };
        clock_settime(clock, then.into()).map_err(Error::sys("set", "the clock"))
    }

    fn new(forward: bool) -> Result<Self> {
        Self::step(forward).map(|()| Self(forward))
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        if let Err(error) = Self::step(!self.0) {
            eprintln!("clean up: {error}");
        }
    }
}

fn a_clock_set_forward_neither_ends_a_fault_early_nor_keeps_it(context: &Context) -> TestResult {
    with_the_clock_set(context, true)
}

fn a_clock_set_back_neither_ends_a_fault_early_nor_keeps_it(context: &Context) -> TestResult {
    with_the_clock_set(context, false)
}

fn with_the_clock_set(context: &Context, forward: bool) -> TestResult {
    if context.environment == Environment::Host {
        return Ok(Outcome::Skip(Reason::NotOurMachine, "the clock is everybody's".into()));
    }
    let lasting = Duration::from_secs(4);
    let asked = Instant::now();
    let scene = Scene::new(lasting, |_| ())?;
    let latest = Instant::now() + lasting;
    let stepped = Stepped::new(forward)?;
    let ended = asked + scene.time_to_normal(asked)?;
    drop(stepped);
    assert!(ended >= asked + lasting, "it ended {:?} early", asked + lasting - ended);
    within(SEEN, ended.saturating_duration_since(latest), "the end after its time")?;
    // And by its lease, while the injector stands still.
    let scene = Scene::new(LONG, |_| ())?;
    ends_by_lease(&scene, || Stepped::new(forward))?;
    Ok(Outcome::Pass)
}

/// Suspended to memory, woken by the clock. Boot time goes on meanwhile; the monotonic clock does not.
fn a_fault_whose_time_is_up_while_the_machine_is_suspended_is_over_when_it_wakes(
    context: &Context,
) -> TestResult {
    if context.environment == Environment::Host {
        return Ok(Outcome::Skip(Reason::NotOurMachine, "it would suspend everybody".into()));
    }
    // By the monotonic clock it would go on for most of this, which is longer than a machine stands still.
    let lasting = Duration::from_secs(20);
    let group = Victim::new(&[])?;
    let scene = Scene::new(lasting, |_| ())?;
    let _guard = Guard::start(&scene.daemon)?;
    let mcp = scene.daemon.mcp()?;
    let pause = Fault::new("pause").aimed(json!({"cgroup": group.name()})).lasting(lasting);
    pause.inject(&mcp)?;
    assert_eq!(group.read("cgroup.freeze")?, "1");
    let (before, awake) = (clock(ClockId::CLOCK_BOOTTIME)?, clock(ClockId::CLOCK_MONOTONIC)?);
    suspend(Duration::from_secs(22))?;
    let woken = Instant::now();
    let (slept, ran) = (clock(ClockId::CLOCK_BOOTTIME)? - before, clock(ClockId::CLOCK_MONOTONIC)? - awake);
    println!("suspended: boot time went on by {slept:?}, the monotonic clock by {ran:?}");
    assert!(slept > ran + Duration::from_secs(1), "it was not suspended");
    let after = scene.time_to_normal(Instant::now())?;
    within(SEEN, after, "the end after the machine had woken")?;
    // No program asks the clock whether a setting has had its time, so that the injector has to.
    let thawed = wait_until(HANG, || group.read("cgroup.freeze").is_ok_and(|frozen| frozen == "0"));
    let after = woken.elapsed();
    println!("thawed {after:?} after the machine had woken");
    assert!(thawed, "it is paused for {after:?} after the machine had woken");
    within(WOKEN + SEEN, after, "the end of a pause after the machine had woken")?;
    let ended = || pause.status(&mcp).is_ok_and(|status| status["active"] == false);
    assert!(wait_until(HANG, ended), "{}", pause.status(&mcp)?);
    let status = pause.status(&mcp)?;
    assert!(status["note"].as_str().is_some_and(|note| note.contains("its time was up")), "{status}");
    let none = || {
        let status = mcp.call_tool("chaos_status", json!({})).map(|answer| answer.json).unwrap_or_default();
        let faults = status["active_faults"].as_array().cloned().unwrap_or_default();
        faults.iter().all(|fault| fault["active"] == false)
    };
    assert!(wait_until(HANG, none), "it is still shown as active");
    Ok(Outcome::Pass)
}

fn clock(id: ClockId) -> Result<Duration> {
    clock_gettime(id).map(Duration::from).map_err(Error::sys("read", "a clock"))
}

/// Has the clock of the machine wake it after so long, and suspends it. In a VM, which is ours.
fn suspend(span: Duration) -> Result<()> {
    const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";
    let write = |path: &str, text: &str| std::fs::write(path, text).map_err(Error::io("write", path));
    write(ALARM, "0")?;
    write(ALARM, &format!("+{}", span.as_secs()))?;
    // Not "freeze": the clock's alarm, which comes by way of the HPET in QEMU, does not end that.
    write("/sys/power/state", "mem")
}
