//! Signals: who ends, who comes in their place, who is left alone, and what ends the repeats.

use super::*;
use crate::process::Process;
use crate::worker::Supervisor;

tests![
    a_killed_service_is_seen_to_end_and_to_come_back_and_others_run_on,
    without_a_supervisor_the_status_says_so,
    a_repeat_hits_whoever_has_come_and_a_removal_prevents_the_next,
    a_signal_that_a_process_survives_ends_nobody,
    the_death_of_the_holder_ends_the_repeats,
    the_death_of_the_injector_ends_the_repeats,
    no_signal_is_sent_when_the_lease_is_over,
    repeats_end_with_the_time_of_the_fault,
];

/// How long the tests' supervisor waits before it starts a worker anew.
const RESTART: Duration = Duration::from_millis(50);
/// Longer than the time between two volleys here, by much.
const QUIET: Duration = Duration::from_millis(900);

/// More often than a policy lets by default.
const OFTEN: &str = "[open]\nleast_interval_ms = 100\n";

fn again_and_again(program: &Program) -> Fault {
    on("process_kill", program).with(json!({"times": 1000, "interval_seconds": 0.2, "jitter_ms": 50}))
}

/// Fails unless it strikes at least three times, and whoever it has struck is replaced each time.
fn assert_repeats(supervisor: &Supervisor) {
    assert!(wait_until(HANG, || supervisor.started() >= 4), "only {} started", supervisor.started());
}

/// Whether nobody is killed for some time.
fn is_quiet(supervisor: &Supervisor) -> bool {
    let nobody_is_killed = || {
        let (count, latest) = (supervisor.started(), supervisor.latest());
        std::thread::sleep(QUIET);
        let runs = Process::read(latest).is_some_and(|process| process.state != 'Z');
        runs && supervisor.started() == count
    };
    // One that was killed just now is still to be replaced.
    std::thread::sleep(4 * RESTART);
    nobody_is_killed() || nobody_is_killed()
}

fn a_killed_service_is_seen_to_end_and_to_come_back_and_others_run_on(_: &Context) -> TestResult {
    let (program, other) = (Program::new()?, Program::new()?);
    let supervisor = program.supervise(RESTART)?;
    let bystander = other.start(2, "bystander")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let before = Residue::take(&[])?;
    let first = supervisor.latest();
    let fault = on("process_kill", &program);
    let answer = fault.inject(&mcp)?;
    let evidence = &answer["evidence"];
    assert_eq!(
        (&answer["lifetime"], &evidence["signals_sent"]),
        (&json!("irreversible"), &json!(1)),
        "{answer}"
    );
    let words = answer["description"].as_str().unwrap_or_default();
    assert!(words.contains("SIGKILL to 1 of 1 process "), "{words}");
    let status = met(&fault, &mcp, |status| status["evidence"]["back_after_seconds"].is_number())?;
    let evidence = &status["evidence"];
    assert_eq!(
        (&status["state"], &evidence["processes_ended"]),
        (&json!("effective"), &json!(1)),
        "{status}"
    );
    let seconds = |field: &str| evidence[field].as_f64().unwrap_or(-1.0);
    let (gone, back) = (seconds("gone_after_seconds"), seconds("back_after_seconds"));
    assert!(back >= RESTART.as_secs_f64(), "{status}");
    for (limit, seconds) in [(1, gone), (2, back)] {
        within(
            Duration::from_secs(limit) + STANDSTILL,
            Duration::try_from_secs_f64(seconds)?,
            &status.to_string(),
        )?;
    }
    assert!(
        supervisor.started() == 2 && supervisor.latest() != first && status["note"].is_null(),
        "{status}"
    );
    assert!(bystander.runs() && Process::read(first).is_none_or(|process| process.state == 'Z'));
    // Once means once.
    assert!(is_quiet(&supervisor));
    fault.remove(&mcp)?;
    before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}

fn without_a_supervisor_the_status_says_so(_: &Context) -> TestResult {
    let program = Program::new()?;
    let mut worker = program.start(1, "alone")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = on("process_kill", &program).with(json!({"signal": "TERM"}));
    fault.inject(&mcp)?;
    assert!(wait_until(HANG, || worker.has_ended()));
    let said = |status: &Value| status["note"].as_str().is_some_and(|note| note.contains("no supervisor?"));
    let status = met(&fault, &mcp, said)?;
    assert!(status["evidence"]["gone_after_seconds"].is_number(), "{status}");
    assert!(status["evidence"]["back_after_seconds"].is_null(), "{status}");
    // Late is better than never.
    let _second = program.start(1, "again")?;
    met(&fault, &mcp, |status| status["evidence"]["back_after_seconds"].is_number() && !said(status))?;
    fault.remove(&mcp)?;
    Ok(Outcome::Pass)
}

fn a_repeat_hits_whoever_has_come_and_a_removal_prevents_the_next(_: &Context) -> TestResult {
    let program = Program::new()?;
    let supervisor = program.supervise(RESTART)?;
    let daemon = Daemon::start_under(OFTEN)?;
    let mcp = daemon.mcp()?;
    let fault = again_and_again(&program);
    fault.inject(&mcp)?;
    assert_repeats(&supervisor);
    let removed = fault.remove(&mcp)?;
    let sent = removed["evidence"]["signals_sent"].as_u64().unwrap_or_default();
    assert!(
        sent >= 3 && sent + 1 >= supervisor.started() as u64,
        "{removed}; {} started",
        supervisor.started()
    );
    assert!(is_quiet(&supervisor), "somebody is killed after the removal");
    Ok(Outcome::Pass)
}

fn a_signal_that_a_process_survives_ends_nobody(_: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(2, "tough")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    // Ignored unless somebody handles it.
    let fault = on("process_kill", &program).with(json!({"signal": "SIGWINCH"}));
    let answer = fault.inject(&mcp)?;
    assert_eq!(answer["evidence"]["signals_sent"], 1, "{answer}");
    assert_eq!(answer["evidence"]["processes_ended"], 0, "{answer}");
    assert!(worker.runs());
    fault.remove(&mcp)?;
    assert!(worker.runs());
    Ok(Outcome::Pass)
}

fn the_death_of_the_holder_ends_the_repeats(_: &Context) -> TestResult {
    let program = Program::new()?;
    let supervisor = program.supervise(RESTART)?;
    let daemon = Daemon::start_under(OFTEN)?;
    let mcp = daemon.mcp()?;
    let before: Vec<i32> = daemon.holders().iter().map(|holder| holder.pid).collect();
    let fault = again_and_again(&program);
    fault.inject(&mcp)?;
    assert_repeats(&supervisor);
    let holders = daemon.holders();
    let new: Vec<_> = holders.iter().filter(|holder| !before.contains(&holder.pid)).collect();
    new.iter().for_each(|holder| holder.signal(Signal::SIGKILL));
    let ended = |status: &Value| status["active"] == false;
    let status = met(&fault, &mcp, ended)?;
    assert!(status["note"].as_str().is_some_and(|note| note.contains("holder died")), "{status}");
    assert!(is_quiet(&supervisor), "somebody is killed after the death of the holder");
    Ok(Outcome::Pass)
}

fn the_death_of_the_injector_ends_the_repeats(_: &Context) -> TestResult {
    let program = Program::new()?;
    let supervisor = program.supervise(RESTART)?;
    let mut daemon = Daemon::start_under(OFTEN)?;
    again_and_again(&program).inject(&daemon.mcp()?)?;
    assert_repeats(&supervisor);
    let processes = daemon.processes();
    daemon.injector().iter().for_each(|injector| injector.signal(Signal::SIGKILL));
    assert!(wait_until(HANG, || !processes.iter().any(|process| process.runs())), "somebody still runs");
    assert!(is_quiet(&supervisor), "somebody is killed after the death of the injector");
    daemon.kill_everything();
    Ok(Outcome::Pass)
}

fn no_signal_is_sent_when_the_lease_is_over(_: &Context) -> TestResult {
    let program = Program::new()?;
    let supervisor = program.supervise(RESTART)?;
    let mut daemon = Daemon::start_under(OFTEN)?;
    again_and_again(&program).inject(&daemon.mcp()?)?;
    assert_repeats(&supervisor);
    // The holder goes on, and hears nothing any more.
    let injector = daemon.injector().ok_or("no injector")?;
    injector.signal(Signal::SIGSTOP);
    std::thread::sleep(LEASE + Duration::from_millis(300));
    let quiet = is_quiet(&supervisor);
    daemon.kill_everything();
    assert!(quiet, "somebody is killed after the lease");
    Ok(Outcome::Pass)
}

fn repeats_end_with_the_time_of_the_fault(_: &Context) -> TestResult {
    let program = Program::new()?;
    let supervisor = program.supervise(RESTART)?;
    let daemon = Daemon::start_under(OFTEN)?;
    let mcp = daemon.mcp()?;
    let before = Residue::take(&[])?;
    let fault = again_and_again(&program).lasting(Duration::from_secs(3));
    fault.inject(&mcp)?;
    met(&fault, &mcp, |status| status["active"] == false)?;
    assert!(supervisor.started() >= 3, "{} started", supervisor.started());
    assert!(is_quiet(&supervisor), "somebody is killed after the end of the fault");
    before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}
