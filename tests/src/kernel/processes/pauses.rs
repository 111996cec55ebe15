//! Processes that stand still, thread by thread, and go on whatever becomes of who stopped them.

use std::time::Instant;

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::*;
use crate::error::Error;
use crate::process::Process;
use crate::worker::Worker;

tests![
    every_thread_of_who_is_paused_stands_still_and_nobody_else_does,
    a_share_of_a_service_stands_still_and_the_rest_runs,
    in_a_rhythm_processes_stand_still_and_run_by_turns,
    a_pause_ends_at_its_time,
    who_is_killed_while_paused_is_gone_at_once,
    who_was_stopped_before_stays_stopped_after,
    a_process_with_a_tracer_is_refused_by_name,
    the_death_of_the_holder_lets_everybody_go_on,
    the_death_of_everybody_lets_everybody_go_on,
    a_stopped_injector_ends_a_pause_with_the_lease,
    a_stopped_holder_is_killed_soon_after_the_lease,
    when_everybody_is_stopped_the_holder_is_killed_soon_after_the_lease,
];

/// From the death of everybody until its process runs: less than a lease, which would end it too.
const PROMISE: Duration = Duration::from_millis(1500);

/// A worker with threads, and a fault that has it stand still.
struct Scene {
    worker: Worker,
    daemon: Daemon,
    mcp: Mcp,
    fault: Fault,
    before: Residue,
    /// When the fault was asked for.
    asked: Instant,
    /// The holder of the fault.
    holder: Process,
    _program: Program,
}

impl Scene {
    fn paused(lasting: Duration) -> Result<Self> {
        let program = Program::new()?;
        let worker = program.start(4, "scene")?;
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[])?;
        let fault = on("process_pause", &program).lasting(lasting);
        let asked = Instant::now();
        let answer = fault.inject(&mcp)?;
        let evidence = &answer["evidence"];
        if answer["lifetime"] != "kernel" || evidence["processes_paused"] != 1 || evidence["pauses"] != 1 {
            return Err(Error::Different(format!("{answer}")));
        }
        let tracer = tracer_of(worker.pid());
        let holder = daemon.holders().into_iter().find(|holder| has_thread(holder, tracer));
        let holder = holder.ok_or_else(|| Error::Different(format!("{tracer} is no holder's thread")))?;
        match worker.stands_still() && worker.state() == Some('t') {
            true => Ok(Self { worker, daemon, mcp, fault, before, asked, holder, _program: program }),
            false => Err(Error::Different(format!("it runs; {answer}; {}", daemon.log()))),
        }
    }

    /// How long from now until no thread stands still; then all count.
    fn time_to_normal(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        if !wait_until(limit, || self.worker.state().is_some_and(|state| state != 't')) {
            return Err(Error::in_vain(format!("running; {}", self.daemon.log()), limit));
        }
        let after = start.elapsed();
        match self.worker.runs() && tracer_of(self.worker.pid()) == 0 {
            true => Ok(after),
            false => Err(Error::Different(format!("not every thread runs: {:?}", self.worker.counts()))),
        }
    }
}

/// Who traces a process; 0 is nobody.
fn tracer_of(pid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

fn has_thread(process: &Process, tid: i32) -> bool {
    std::path::Path::new(&format!("/proc/{}/task/{tid}", process.pid)).exists()
}

/// How often a rhythm is looked at, five milliseconds apart.
const LOOKS: u32 = 400;

fn every_thread_of_who_is_paused_stands_still_and_nobody_else_does(_: &Context) -> TestResult {
    let program = Program::new()?;
    let other = program.start(2, "bystander")?;
    let scene = Scene::paused(LONG)?;
    assert!(other.runs() && tracer_of(other.pid()) == 0);
    // For longer than a lease: heartbeats keep it.
    std::thread::sleep(LEASE + Duration::from_millis(500));
    assert!(scene.worker.stands_still());
    let status = scene.fault.status(&scene.mcp)?;
    assert_eq!(
        (&status["state"], &status["evidence"]["processes_paused"]),
        (&json!("effective"), &json!(1)),
        "{status}"
    );
    scene.fault.remove(&scene.mcp)?;
    assert_ne!(scene.worker.state(), Some('t'), "the removal was answered too early");
    assert!(scene.worker.runs() && tracer_of(scene.worker.pid()) == 0);
    scene.before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}

fn a_share_of_a_service_stands_still_and_the_rest_runs(_: &Context) -> TestResult {
    let program = Program::new()?;
    let start = |number: i32| program.start(2, &format!("n{number}"));
    let workers = (0..4).map(start).collect::<Result<Vec<_>>>()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let target = json!({"exe": program.path(), "share": "25%", "seed": 11});
    let fault = Fault::new("process_pause").aimed(target);
    let answer = fault.inject(&mcp)?;
    assert!(answer["description"].as_str().is_some_and(|text| text.contains("1 of 4 processes")), "{answer}");
    let (still, running): (Vec<_>, Vec<_>) = workers.iter().partition(|worker| worker.state() == Some('t'));
    assert!(
        still.len() == 1 && still[0].stands_still() && running.iter().all(|worker| worker.runs()),
        "{} stand still",
        still.len()
    );
    // A second fault on the same process says who is in its way.
    let (code, words) = refused(&mcp, "process_pause", &json!({"pid": still[0].pid()}), &json!({}))?;
    assert!(code == "INVALID_PARAMETER" && words.contains("chaos-holder"), "{words}");
    fault.remove(&mcp)?;
    assert!(workers.iter().all(Worker::runs));
    Ok(Outcome::Pass)
}

fn in_a_rhythm_processes_stand_still_and_run_by_turns(_: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(3, "rhythm")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let rhythm = json!({"pause_ms": 60, "run_ms": 40, "jitter_ms": 10});
    let fault = on("process_pause", &program).with(rhythm);
    fault.inject(&mcp)?;
    let (start, before) = (Instant::now(), worker.counts());
    let (mut still, mut changes, mut last) = (0, 0, None);
    for _ in 0..LOOKS {
        let now = worker.state() == Some('t');
        still += u32::from(now);
        changes += u32::from(last.is_some_and(|last| last != now));
        last = Some(now);
        std::thread::sleep(Duration::from_millis(5));
    }
    let (took, after) = (start.elapsed(), worker.counts());
    assert!(changes > 10, "{still} of {LOOKS} still, {changes} changes");
    // Whoever has no processor pauses late, and lets go late.
    if !(40..=80).contains(&(still * 100 / LOOKS)) {
        let what = format!("a pause and a run of 60 and 40 ms by turns, but {still} of {LOOKS} looks still,");
        return Err(Error::Late { what, after: took }.into());
    }
    assert!(
        after.iter().zip(&before).all(|(after, before)| after > before),
        "{before:?}, {after:?}, {took:?}"
    );
    let status = fault.status(&mcp)?;
    assert!(status["evidence"]["pauses"].as_u64().is_some_and(|pauses| pauses > 5), "{status}");
    fault.remove(&mcp)?;
    assert!(worker.runs() && tracer_of(worker.pid()) == 0);
    Ok(Outcome::Pass)
}

fn a_pause_ends_at_its_time(_: &Context) -> TestResult {
    let lasting = Duration::from_secs(2);
    let scene = Scene::paused(lasting)?;
    scene.time_to_normal(lasting + STANDSTILL)?;
    assert_lasted(scene.asked, lasting);
    scene.before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}

fn who_is_killed_while_paused_is_gone_at_once(_: &Context) -> TestResult {
    let mut scene = Scene::paused(LONG)?;
    kill(Pid::from_raw(scene.worker.pid()), Signal::SIGKILL)?;
    assert!(wait_until(HANG, || scene.worker.has_ended()), "its parent does not hear of its end");
    met(&scene.fault, &scene.mcp, |status| status["evidence"]["processes_paused"] == 0)?;
    scene.fault.remove(&scene.mcp)?;
    Ok(Outcome::Pass)
}

fn who_was_stopped_before_stays_stopped_after(_: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(2, "stopped")?;
    let pid = Pid::from_raw(worker.pid());
    kill(pid, Signal::SIGSTOP)?;
    assert!(wait_until(HANG, || worker.state() == Some('T')));
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = on("process_pause", &program);
    fault.inject(&mcp)?;
    assert_eq!(worker.state(), Some('t'));
    fault.remove(&mcp)?;
    assert!(wait_until(HANG, || worker.state() == Some('T')), "{:?}", worker.state());
    assert!(worker.stands_still());
    kill(pid, Signal::SIGCONT)?;
    assert!(worker.runs());
    Ok(Outcome::Pass)
}

fn a_process_with_a_tracer_is_refused_by_name(_: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(1, "debugged")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let pid = Pid::from_raw(worker.pid());
    ptrace::seize(pid, Options::empty())?;
    let (code, words) = refused(&mcp, "process_pause", &json!({"exe": program.path()}), &json!({}))?;
    let named = words.contains(&format!("process {pid} (worker) is traced already"));
    assert!(code == "INVALID_PARAMETER" && named, "{words}");
    assert!(worker.runs());
    Ok(Outcome::Pass)
}

fn the_death_of_the_holder_lets_everybody_go_on(_: &Context) -> TestResult {
    let scene = Scene::paused(LONG)?;
    scene.holder.signal(Signal::SIGKILL);
    let after = scene.time_to_normal(HANG)?;
    println!("it ran {after:?} after SIGKILL of the holder");
    met(&scene.fault, &scene.mcp, |status| status["active"] == false)?;
    scene.before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}

fn the_death_of_everybody_lets_everybody_go_on(_: &Context) -> TestResult {
    for whom in [Daemon::processes, |daemon: &Daemon| daemon.injector().into_iter().collect()] {
        let mut scene = Scene::paused(LONG)?;
        whom(&scene.daemon).iter().for_each(|process| process.signal(Signal::SIGKILL));
        let after = scene.time_to_normal(PROMISE)?;
        println!("it ran {after:?} after SIGKILL");
        scene.daemon.kill_everything();
        scene.before.assert_unchanged_within(&[], HANG)?;
    }
    Ok(Outcome::Pass)
}

fn a_stopped_injector_ends_a_pause_with_the_lease(_: &Context) -> TestResult {
    let mut scene = Scene::paused(LONG)?;
    scene.daemon.injector().iter().for_each(|injector| injector.signal(Signal::SIGSTOP));
    let after = scene.time_to_normal(LEASE + STANDSTILL);
    // It has let go by itself.
    let lives = scene.holder.runs();
    scene.daemon.kill_everything();
    println!("it ran {:?} after the injector was stopped", after?);
    assert!(lives, "the holder had to be killed");
    scene.before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}

fn a_stopped_holder_is_killed_soon_after_the_lease(_: &Context) -> TestResult {
    let scene = Scene::paused(LONG)?;
    scene.holder.signal(Signal::SIGSTOP);
    let after = scene.time_to_normal(LEASE + STANDSTILL)?;
    println!("it ran {after:?} after the holder was stopped");
    let status = met(&scene.fault, &scene.mcp, |status| status["active"] == false)?;
    assert!(status["note"].as_str().is_some_and(|note| note.contains("holder died")), "{status}");
    scene.before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}

fn when_everybody_is_stopped_the_holder_is_killed_soon_after_the_lease(_: &Context) -> TestResult {
    let mut scene = Scene::paused(LONG)?;
    scene.daemon.processes().iter().for_each(|process| process.signal(Signal::SIGSTOP));
    let after = scene.time_to_normal(LEASE + STANDSTILL);
    scene.daemon.kill_everything();
    println!("it ran {:?} after everybody was stopped", after?);
    scene.before.assert_unchanged_within(&[], HANG)?;
    Ok(Outcome::Pass)
}
