//! What the daemon does when it cannot do as it should: a holder that stands still, no descriptors, no room.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::scene::Scene;
use super::{Attach, Context, Outcome, STANDSTILL, TestResult, on_every_attachment, tests};
use crate::fault::Fault;
use crate::late::{HANG, within};
use crate::measure::{Echo, udp_rtt, udp_rtt_median};
use crate::mounts::{Ballast, with_tiny_tmpfs};
use crate::process::{Process, limit_descriptors, linger, wait_until};
use crate::{Daemon, Error, Pair, Residue, Result};

tests![
    a_fault_whose_holder_stands_still_is_removed_soon_after_its_lease,
    a_fault_that_its_holder_has_not_applied_yet_shows_as_starting_and_can_be_removed,
    a_failed_injection_that_cannot_be_undone_shows_as_stuck_until_it_is,
    without_room_for_its_journal_a_fault_is_refused_and_active_ones_can_be_removed,
];

const PATIENCE: Duration = Duration::from_millis(300);
/// One heartbeat keeps a fault for so long.
const LEASE: Duration = Duration::from_secs(3);

fn partition(pair: &Pair) -> Fault {
    Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}))
}

/// The holder that waits for work: it has loaded its programs, and sleeps.
fn waiting_holder(daemon: &Daemon) -> Result<Process> {
    let sleeps = |process: &Process| Process::read(process.pid).is_some_and(|now| now.state == 'S');
    let mut found = None;
    wait_until(HANG, || {
        found = daemon.holders().pop().filter(|holder| {
            let used = holder.cpu_time();
            (0..20).all(|_| {
                std::thread::sleep(Duration::from_millis(10));
                sleeps(holder)
            }) && holder.cpu_time() == used
        });
        found.is_some()
    });
    found.ok_or_else(|| Error::Hung { what: "a waiting holder".into() })
}

fn a_fault_whose_holder_stands_still_is_removed_soon_after_its_lease(context: &Context) -> TestResult {
    on_every_attachment(context, |attach: Attach| {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        let holder = waiting_holder(&daemon)?;
        let fault = partition(&pair);
        fault.inject(&mcp)?;
        holder.signal(Signal::SIGSTOP);
        let asked = Instant::now();
        fault.remove(&mcp)?;
        let after = asked.elapsed();
        within(LEASE + STANDSTILL, after, "the removal")?;
        assert!(!holder.runs(), "the holder is there still");
        udp_rtt_median(&pair.near, echo.address(), 3, HANG)?;
        before.assert_unchanged_within(&[&pair.near], HANG)?;
        Ok(())
    })
}

fn a_fault_that_its_holder_has_not_applied_yet_shows_as_starting_and_can_be_removed(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let (fault, client, other, mcp) = (partition(&pair), daemon.mcp()?, daemon.mcp()?, daemon.mcp()?);
    let before = Residue::take(&[&pair.near])?;
    let state = || fault.status(&mcp).map(|status| status["state"].clone());
    for removed in [false, true] {
        let holder = waiting_holder(&daemon)?;
        holder.signal(Signal::SIGSTOP);
        let answer = std::thread::scope(|scope| -> Result<_> {
            let injecting = scope.spawn(|| fault.inject(&client));
            let starting = wait_until(HANG, || state().is_ok_and(|state| state == "starting"));
            let removing = removed.then(|| scope.spawn(|| fault.remove(&other)));
            std::thread::sleep(PATIENCE);
            let still = state();
            holder.signal(Signal::SIGCONT);
            let answer = injecting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(starting, "it never started");
            assert_eq!(still?, "starting");
            if let Some(removing) = removing {
                removing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(answer)
        })?;
        if removed {
            assert!(state().is_err(), "it is there still: {:?}", state());
        } else {
            assert_eq!((&answer?["state"], state()?), (&json!("no_traffic"), json!("no_traffic")));
            fault.remove(&mcp)?;
        }
    }
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

/// The holder dies while it arms, and the injector, without a free descriptor, cannot look whether a filter is left.
fn a_failed_injection_that_cannot_be_undone_shows_as_stuck_until_it_is(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start_with(|command| Attach::Clsact.configure(command))?;
    let holder = waiting_holder(&daemon)?;
    holder.signal(Signal::SIGSTOP);
    let (fault, client, mcp) = (partition(&pair), daemon.mcp()?, daemon.mcp()?);
    let journals = daemon.runtime_dir().join("journal");
    let failed = std::thread::scope(|scope| -> Result<_> {
        let injecting = scope.spawn(|| fault.inject(&client));
        wait_until(HANG, || std::fs::read_dir(&journals).is_ok_and(|entries| entries.count() > 0));
        // The journal is there, and its folder is synced next: from then on the injector waits for the holder.
        linger(Duration::from_millis(500));
        // Standard streams only: every further one is refused.
        let free = limit_descriptors(daemon.injector_pid(), 3)?;
        holder.signal(Signal::SIGKILL);
        let failed = injecting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let status = fault.status(&mcp);
        let again = fault.inject(&mcp);
        limit_descriptors(daemon.injector_pid(), free)?;
        let status = status?;
        assert_eq!(status["state"], "stuck", "{status}");
        let note = status["note"].as_str().unwrap_or_default().to_owned();
        assert!(note.contains("filter"), "{status}");
        assert!(again.is_err(), "injected on top of what is stuck");
        Ok(failed)
    })?;
    let said = failed.err().ok_or("it was injected by a dead holder")?.to_string();
    assert!(said.contains("INJECTION_FAILED") && said.contains("undone again"), "{said}");
    assert!(
        wait_until(HANG, || fault.status(&mcp).is_ok_and(|status| status["active"] == false)),
        "{:?}",
        fault.status(&mcp)
    );
    assert_eq!(std::fs::read_dir(&journals)?.count(), 0, "a journal is left");
    fault.inject(&mcp)?;
    fault.remove(&mcp)?;
    Ok(Outcome::Pass)
}

fn without_room_for_its_journal_a_fault_is_refused_and_active_ones_can_be_removed(_: &Context) -> TestResult {
    with_tiny_tmpfs(256, || {
        let scene = Scene::new()?;
        let echo = Echo::start(&scene.pair.far, Pair::FAR_V4, 7)?;
        let blocked = || udp_rtt(&scene.pair.near, echo.address(), PATIENCE).map(|answer| answer.is_none());
        let first = partition(&scene.pair);
        first.inject(&scene.mcp)?;
        assert!(blocked()?, "the fault has no effect");
        {
            let _full = Ballast::fill(&scene.daemon.runtime_dir())?;
            let [code, message, _] = scene.inject_refused(json!({}))?;
            assert_eq!(code, "INJECTION_FAILED", "{message}");
            assert!(message.contains("journal") && message.contains("No space left"), "{message}");
            assert!(blocked()?, "the refusal ended another fault");
            first.remove(&scene.mcp)?;
            assert!(!blocked()?, "removed, and acting still");
            let left = std::fs::read_dir(scene.daemon.runtime_dir().join("journal"))
                .map_err(Error::io("read", "the journal"))?;
            assert_eq!(left.count(), 0, "a journal is left");
        }
        first.inject(&scene.mcp)?;
        assert!(blocked()?, "with room again, it has no effect");
        first.remove(&scene.mcp)?;
        Ok(())
    })?;
    Ok(Outcome::Pass)
}
