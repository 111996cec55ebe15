//! Every fault ends: by its time, by removal, and by the death of whichever process dies.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::gettid;
use serde_json::json;
use tempfile::TempDir;

use super::effects::inject_netem;
use super::oracle::Elsewhere;
use super::served::AT_ONCE;
use super::{
    Attach, Context, Outcome, STANDSTILL, TestResult, Tried, assert_lasted, on_every_attachment, tests,
    with_netem,
};
use crate::daemon::binary;
use crate::fault::{Fault, LONG};
use crate::late::HANG;
use crate::matrix::place::journals;
use crate::measure::{Echo, udp_rtt, udp_rtt_median};
use crate::netns::output;
use crate::pair::INTERFACE;
use crate::process::{Killed, Process, wait_until};
use crate::sweep::{Strike, Sweep, Whose, list};
use crate::{Daemon, Error, Pair, Residue, Wire};

tests![
    a_fault_ends_at_its_time_without_anybody_asking,
    killing_every_process_at_once_ends_a_partition_at_once_and_recover_leaves_nothing,
    killing_every_process_at_once_ends_a_delay_at_once_and_recover_leaves_nothing,
    stopping_every_process_ends_a_partition_with_the_lease_and_recover_leaves_nothing,
    stopping_every_process_ends_a_delay_with_the_lease_and_recover_leaves_nothing,
    a_stopped_holder_dies_with_its_injector,
    a_stopped_holder_is_killed_some_time_after_the_end_of_its_fault,
    a_holder_that_dies_takes_its_own_fault_with_it_and_no_other,
    a_server_that_dies_ends_every_fault_and_is_started_again,
    a_signal_ends_every_fault_without_any_client,
    a_fault_injected_again_under_its_name_shows_as_active,
    who_ended_a_fault_is_in_the_log,
    recover_refuses_while_a_daemon_runs,
    a_fault_in_a_namespace_that_lost_its_name_is_undone_there,
    a_fault_in_a_namespace_that_only_a_mount_of_somebody_else_keeps_is_undone_there,
    a_fault_in_a_namespace_that_is_gone_can_be_removed,
    what_a_user_has_open_or_mounted_keeps_no_fault_in_a_namespace_that_is_gone,
    a_delay_ends_at_whichever_system_call_of_its_holder_everything_dies,
    an_injection_succeeds_after_the_waiting_holder_was_killed,
    an_injection_that_is_cancelled_is_answered_or_there_is_no_such_fault,
];

/// How soon a stopped holder has gone that the kernel kills.
const KILLED: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_millis(300);
/// How long one heartbeat keeps a fault.
const LEASE: Duration = Duration::from_secs(3);

fn partition(pair: &Pair) -> Fault {
    Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}))
}

fn delay(pair: &Pair) -> Fault {
    Fault::new("latency").on(&pair.near, json!({"cidr": "10.77.0.2"})).with(json!({"delay_ms": 300}))
}

/// Whether a round trip is as it is without a fault.
fn normal(pair: &Pair, echo: &Echo) -> Result<bool, Error> {
    Ok(udp_rtt(&pair.near, echo.address(), Duration::from_millis(100))?.is_some())
}

/// How long it takes from now until traffic is normal; the time at which the first packet that came through left.
fn time_to_normal(pair: &Pair, echo: &Echo, limit: Duration) -> Result<Duration, Error> {
    let start = Instant::now();
    while start.elapsed() < limit {
        let sent = start.elapsed();
        if normal(pair, echo)? {
            return Ok(sent);
        }
    }
    Err(Error::in_vain("traffic normal", limit))
}

fn a_fault_ends_at_its_time_without_anybody_asking(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        // Long enough for a slow machine to see it before it ends.
        let lasting = LEASE;
        let fault = partition(&pair).lasting(lasting);
        let asked = Instant::now();
        fault.inject(&mcp)?;
        assert!(!normal(&pair, &echo)?);
        time_to_normal(&pair, &echo, lasting + STANDSTILL)?;
        assert_lasted(asked, lasting);
        before.assert_unchanged_within(&[&pair.near], HANG)?;
        Ok(())
    })
}

/// What is done to every process at once, and how long a fault may go on after it.
#[derive(Clone, Copy)]
pub(super) enum Blow {
    Kill,
    Stop,
}

pub(super) fn survives(context: &Context, blow: Blow, fault: fn(&Pair) -> Fault) -> TestResult {
    let mut skipped = None;
    let passed = on_every_attachment(context, |attach| {
        skipped = survives_once(attach, blow, fault)?;
        Ok(())
    })?;
    Ok(skipped.unwrap_or(passed))
}

fn survives_once(attach: Attach, blow: Blow, fault: fn(&Pair) -> Fault) -> Tried<Option<Outcome>> {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let mut daemon = Daemon::start_with(|command| attach.configure(command))?;
    let before = Residue::take(&[&pair.near])?;
    let skipped = inject_netem(&fault(&pair), &daemon.mcp()?)?;
    if skipped.is_some() {
        return Ok(skipped);
    }
    assert!(!normal(&pair, &echo)?, "the fault has no effect");
    let (signal, limit) = match blow {
        Blow::Kill => (Signal::SIGKILL, AT_ONCE),
        Blow::Stop => (Signal::SIGSTOP, LEASE + STANDSTILL),
    };
    let processes = daemon.processes();
    processes.iter().for_each(|process| process.signal(signal));
    time_to_normal(&pair, &echo, limit).inspect_err(|_| kill_all(&processes))?;
    if let Blow::Kill = blow {
        assert!(wait_until(HANG, || !processes.iter().any(|process| process.runs())));
    }
    let said = recover(&daemon)?;
    assert!(!said.contains("STUCK"), "{said}");
    assert!(wait_until(HANG, || !processes.iter().any(|process| process.runs())), "somebody still runs");
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    time_to_normal(&pair, &echo, HANG)?;
    daemon.kill_everything();
    Ok(None)
}

/// Of processes that are stopped, and so do not end when they are told to.
fn kill_all(processes: &[Process]) {
    processes.iter().for_each(|process| process.signal(Signal::SIGKILL));
}

pub(super) fn recover(daemon: &Daemon) -> Result<String, Error> {
    let mut command = std::process::Command::new(binary("chaos-daemon")?);
    output(command.arg("recover").arg("--runtime-dir").arg(daemon.runtime_dir()))
}

fn killing_every_process_at_once_ends_a_partition_at_once_and_recover_leaves_nothing(
    context: &Context,
) -> TestResult {
    survives(context, Blow::Kill, partition)
}

fn killing_every_process_at_once_ends_a_delay_at_once_and_recover_leaves_nothing(
    context: &Context,
) -> TestResult {
    survives(context, Blow::Kill, delay)
}

fn stopping_every_process_ends_a_partition_with_the_lease_and_recover_leaves_nothing(
    context: &Context,
) -> TestResult {
    survives(context, Blow::Stop, partition)
}

fn stopping_every_process_ends_a_delay_with_the_lease_and_recover_leaves_nothing(
    context: &Context,
) -> TestResult {
    survives(context, Blow::Stop, delay)
}

/// It cannot see that its socket has closed: the kernel has to end it.
fn a_stopped_holder_dies_with_its_injector(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        partition(&pair).inject(&daemon.mcp()?)?;
        assert!(!normal(&pair, &echo)?, "the fault has no effect");
        let (injector, holders) = (daemon.injector().ok_or("no injector")?, daemon.holders());
        holders.iter().for_each(|holder| holder.signal(Signal::SIGSTOP));
        injector.signal(Signal::SIGKILL);
        let dead = wait_until(KILLED, || !holders.iter().any(Process::runs));
        kill_all(&holders);
        dead.then_some(())
            .ok_or_else(|| Error::in_vain("a stopped holder outlived its injector: gone", KILLED))?;
        time_to_normal(&pair, &echo, HANG)?;
        Ok(())
    })
}

/// With nobody left who could end it: by its own timer, which the kernel keeps.
fn a_stopped_holder_is_killed_some_time_after_the_end_of_its_fault(_: &Context) -> TestResult {
    const LASTING: Duration = Duration::from_secs(1);
    const GRACE: Duration = Duration::from_secs(8);
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    partition(&pair).lasting(LASTING).inject(&daemon.mcp()?)?;
    let (processes, holders) = (daemon.processes(), daemon.holders());
    processes.iter().for_each(|process| process.signal(Signal::SIGSTOP));
    let died = wait_until(LASTING + GRACE + KILLED, || !holders.iter().all(Process::runs));
    kill_all(&processes);
    let limit = LASTING + GRACE + KILLED;
    died.then_some(()).ok_or_else(|| Error::in_vain("a stopped holder outlived its fault: gone", limit))?;
    Ok(Outcome::Pass)
}

fn a_holder_that_dies_takes_its_own_fault_with_it_and_no_other(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let (v4, v6) = (Echo::start(&pair.far, Pair::FAR_V4, 7)?, Echo::start(&pair.far, Pair::FAR_V6, 7)?);
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        daemon.wait_until_warm()?;
        let first = partition(&pair).named("first");
        first.inject(&mcp)?;
        let second =
            Fault::new("network_partition").named("second").on(&pair.near, json!({"cidr": "fd77::2"}));
        second.inject(&mcp)?;
        assert!(!normal(&pair, &v4)? && !normal(&pair, &v6)?);
        // The oldest first: the youngest is the warm holder, whose death ends no fault.
        let mut holders = daemon.holders();
        holders.sort_by_key(|holder| holder.start_time);
        let mut freed = [false; 2];
        for holder in holders {
            holder.signal(Signal::SIGKILL);
            let any = wait_until(HANG, || {
                freed = [&v4, &v6].map(|echo| normal(&pair, echo).unwrap_or(false));
                freed.contains(&true)
            });
            if any {
                break;
            }
        }
        assert_eq!(freed.iter().filter(|free| **free).count(), 1, "v4 and v6 are free: {freed:?}");
        let (dead, alive, held) = if freed[0] { (&first, &second, &v6) } else { (&second, &first, &v4) };
        assert!(wait_until(HANG, || dead.status(&mcp).is_ok_and(|status| status["active"] == false)));
        assert!(!normal(&pair, held)?, "the other fault went with the one whose holder died");
        alive.remove(&mcp)?;
        before.assert_unchanged_within(&[&pair.near], HANG)?;
        Ok(())
    })
}

fn a_server_that_dies_ends_every_fault_and_is_started_again(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let daemon = Daemon::start()?;
    let before = Residue::take(&[&pair.near])?;
    let fault = partition(&pair);
    fault.inject(&daemon.mcp()?)?;
    let server = daemon.server().ok_or("no server")?;
    server.signal(Signal::SIGKILL);
    time_to_normal(&pair, &echo, HANG)?;
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    assert!(wait_until(HANG, || daemon.server().is_some_and(|now| now.pid != server.pid)), "no new server");
    // What was registered is still known.
    let mcp = daemon.mcp()?;
    assert_eq!(fault.status(&mcp)?["active"], false);
    Ok(Outcome::Pass)
}

fn a_signal_ends_every_fault_without_any_client(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let daemon = Daemon::start()?;
    partition(&pair).inject(&daemon.mcp()?)?;
    assert!(udp_rtt(&pair.near, echo.address(), PATIENCE)?.is_none());
    daemon.injector().ok_or("no injector")?.signal(Signal::SIGUSR1);
    time_to_normal(&pair, &echo, HANG)?;
    assert!(daemon.injector().is_some_and(|injector| injector.runs()), "the daemon went too");
    Ok(Outcome::Pass)
}

fn a_fault_injected_again_under_its_name_shows_as_active(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = partition(&pair);
    fault.inject(&mcp)?;
    fault.remove(&mcp)?;
    fault.inject(&mcp)?;
    let status = fault.status(&mcp)?;
    assert_eq!(status["active"], true, "the life that has ended hides the one that goes on: {status}");
    assert_eq!(status["note"], json!(null), "{status}");
    Ok(Outcome::Pass)
}

fn who_ended_a_fault_is_in_the_log(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let (mcp, fault) = (daemon.mcp()?, partition(&pair));
    fault.inject(&mcp)?;
    fault.remove(&mcp)?;
    fault.inject(&mcp)?;
    mcp.call_tool("chaos_stop", json!({}))?.ok()?;
    let own = format!("by uid 0, pid {}", std::process::id());
    for ended in [format!("removed {own}"), format!("stopped {own}")] {
        assert!(daemon.log().contains(&ended), "{ended:?} is not in {}", daemon.log());
    }
    Ok(Outcome::Pass)
}

fn recover_refuses_while_a_daemon_runs(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = partition(&pair);
    fault.inject(&mcp)?;
    let refusal = recover(&daemon);
    assert!(
        matches!(&refusal, Err(Error::Command { output, .. }) if output.contains("is running")),
        "{refusal:?}"
    );
    assert!(!normal(&pair, &echo)?, "the refused recovery changed something");
    fault.remove(&mcp)?;
    udp_rtt_median(&pair.near, echo.address(), 3, HANG)?;
    Ok(Outcome::Pass)
}

fn an_injection_succeeds_after_the_waiting_holder_was_killed(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let daemon = Daemon::start()?;
    // The socket is there before the daemon knows what the kernel can do.
    assert!(wait_until(HANG, || !daemon.holders().is_empty()), "no holder waits");
    let waiting = daemon.holders();
    waiting.iter().for_each(|holder| holder.signal(Signal::SIGKILL));
    assert!(wait_until(HANG, || !waiting.iter().any(|holder| holder.runs())));
    partition(&pair).inject(&daemon.mcp()?)?;
    assert!(!normal(&pair, &echo)?);
    Ok(Outcome::Pass)
}

fn a_fault_in_a_namespace_that_lost_its_name_is_undone_there(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        let fault = partition(&pair);
        fault.inject(&mcp)?;
        pair.near.lose_name()?;
        fault.remove(&mcp)?;
        before.assert_unchanged_within(&[&pair.near], HANG)?;
        Ok(())
    })
}

fn a_fault_in_a_namespace_that_only_a_mount_of_somebody_else_keeps_is_undone_there(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    // What outlives a holder, on every kernel.
    let daemon = Daemon::start_with(|command| Attach::Clsact.configure(command))?;
    let mcp = daemon.mcp()?;
    let fault = partition(&pair);
    fault.inject(&mcp)?;
    let queues = ["qdisc", "show", "dev", INTERFACE];
    let before = pair.near.tc(&queues)?;
    assert!(before.contains("clsact"), "{before}");
    let folder = TempDir::new()?;
    let (name, kept) = (pair.near.path(), folder.path().join("kept"));
    File::create_new(&kept)?;
    let (tell, told) = mpsc::channel();
    let point = kept.clone();
    let elsewhere = Elsewhere::new(move || {
        mount(Some(&name), &point, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(Error::sys("mount on", point.display().to_string()))?;
        // Without anyone who waits there is nobody to tell.
        let _ = tell.send(gettid());
        Ok(())
    })?;
    let there = format!("/proc/{}/root{}", told.recv()?, kept.display());
    // With its name goes the last descriptor. The peer stays, without which there would be nothing to undo.
    let Pair { near, far } = pair;
    drop(near);
    fault.remove(&mcp)?;
    let namespace = chaos_daemon::host::NetNs::at(there.as_ref())?;
    let show = || output(Command::new("tc").args(queues)).map_err(std::io::Error::other);
    let after = namespace.inside(show)?;
    assert!(!after.contains("clsact"), "{after}");
    drop((elsewhere, far));
    Ok(Outcome::Pass)
}

fn a_fault_in_a_namespace_that_is_gone_can_be_removed(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let pair = Pair::new()?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let fault = partition(&pair);
        fault.inject(&mcp)?;
        drop(pair);
        fault.remove(&mcp)?;
        // It is answered just before the journal is closed.
        assert!(wait_until(HANG, || journals(&daemon) == 0), "it is in the journal still");
        Ok(())
    })
}

/// A folder so far down that the kernel does not tell where it is; and a mount of the namespace in a user namespace, which another
/// mount hides.
fn what_a_user_has_open_or_mounted_keeps_no_fault_in_a_namespace_that_is_gone(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    // What outlives a holder, on every kernel.
    let daemon = Daemon::start_with(|command| Attach::Clsact.configure(command))?;
    let mcp = daemon.mcp()?;
    let fault = partition(&pair);
    fault.inject(&mcp)?;
    let folder = TempDir::new()?;
    let deep = far_down(folder.path())?;
    let shown = std::fs::read_link(format!("/proc/self/fd/{}", deep.as_raw_fd()));
    let refused = shown.err().and_then(|error| error.raw_os_error());
    assert_eq!(refused, Some(nix::libc::ENAMETOOLONG));
    std::fs::create_dir(folder.path().join("m"))?;
    File::create_new(folder.path().join("m/ns"))?;
    let script = "mount -o bind \"$1\" m/ns && mount -t tmpfs none m && echo mounted && exec sleep 60";
    let mut user = Command::new("unshare");
    user.args(["-U", "-r", "-m", "sh", "-c", script, "sh"]).arg(pair.near.path());
    let mut user = Killed(user.current_dir(folder.path()).stdout(Stdio::piped()).spawn()?);
    let mut said = String::new();
    BufReader::new(user.0.stdout.take().ok_or("no output")?).read_line(&mut said)?;
    assert_eq!(said, "mounted\n");
    drop(pair);
    fault.remove(&mcp)?;
    assert!(wait_until(HANG, || journals(&daemon) == 0), "it is in the journal still");
    drop((deep, user));
    Ok(Outcome::Pass)
}

/// Makes a folder whose path is longer than any that the kernel tells.
fn far_down(folder: &Path) -> nix::Result<OwnedFd> {
    let name = "d".repeat(255);
    let mut deep = open(folder, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    for _ in 0..20 {
        mkdirat(&deep, name.as_str(), Mode::S_IRWXU)?;
        deep = openat(&deep, name.as_str(), OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    }
    Ok(deep)
}

/// A few points of the sweep, where there is netem; on the host the sweep has a step of its own.
fn a_delay_ends_at_whichever_system_call_of_its_holder_everything_dies(context: &Context) -> TestResult {
    const STRIDE: usize = 45;
    with_netem(context, || {
        let kind = list::here(context).find(|kind| kind.name == "latency").ok_or("no such kind")?;
        // The runner ends a test that hangs.
        let deadline = Instant::now() + LONG;
        for strike in [Strike::Kill, Strike::KillEverything] {
            let (attach, whose) = (Attach::Auto, Whose::Holder);
            let found = Sweep { kind, attach, whose, strike, stride: STRIDE, first: 20 }.run(deadline)?;
            assert!(found.failures.is_empty() && found.points > 1, "{found:?}");
        }
        Ok(Outcome::Pass)
    })
}

/// Cancelled at any time from before it is looked at until after it acts; with programs that wait, and with some that are to be loaded.
fn an_injection_that_is_cancelled_is_answered_or_there_is_no_such_fault(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let before = Residue::take(&[&pair.near, &pair.far])?;
    let looks = daemon.mcp()?;
    let (mut answered, mut taken_back) = (0, 0);
    for kind in ["network_partition", "dns_error"] {
        let mut wire = Wire::connect(&daemon.socket())?;
        wire.open()?;
        let register = json!({"fault_name": "f", "action": "register", "fault_type": kind, "probability": 1,
            "duration_seconds": LONG.as_secs(), "target": {"interface": INTERFACE, "netns": pair.near.name()}});
        wire.call("chaos_inject_fault", register)?;
        for (id, delay_ms) in (1000..).zip([0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 600, 3000]) {
            let params =
                json!({"name": "chaos_inject_fault", "arguments": {"fault_name": "f", "action": "inject"}});
            let inject = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            let cancel =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
            wire.bytes(format!("{inject}\n").as_bytes())?;
            std::thread::sleep(Duration::from_millis(delay_ms));
            let ping = json!({"jsonrpc": "2.0", "id": "end", "method": "ping"});
            wire.bytes(format!("{cancel}\n{ping}\n").as_bytes())?;
            let first = wire.answer()?.ok_or("the connection was closed")?;
            if first["id"] == id {
                answered += 1;
                assert_eq!(wire.answer()?.ok_or("the connection was closed")?["id"], "end");
                let result = &first["result"]["structuredContent"];
                assert_eq!(result["was_triggered"], true, "{kind}, {delay_ms} ms: {first}");
                looks.call_tool("chaos_stop", json!({"fault_name": "f"}))?.ok()?;
            } else {
                assert_eq!(first["id"], "end", "{first}");
                taken_back += 1;
            }
            let is_gone = || {
                let status = looks.call_tool("chaos_status", json!({}));
                let faults =
                    status.and_then(|answer| answer.ok()).map(|status| status["active_faults"].clone());
                let is_active = |fault: &serde_json::Value| fault["active"] == true;
                faults.is_ok_and(|faults| !faults.as_array().into_iter().flatten().any(is_active))
            };
            // It may be there for a moment, until it is ended.
            assert!(wait_until(HANG, is_gone), "{kind}, {delay_ms} ms: {:?}", daemon.log());
        }
    }
    println!("{answered} answered, {taken_back} taken back");
    assert!(answered > 0 && taken_back > 0, "{answered}, {taken_back}");
    before.assert_unchanged_within(&[&pair.near, &pair.far], HANG)?;
    Ok(Outcome::Pass)
}
