//! What callers ask for costs themselves: while one has this host looked at without end, faults stay as they are, and end when
//! they are to.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use crate::fault::Fault;
use crate::guard::Guard;
use crate::process::{become_user, wait_for};
use crate::victim::Victim;
use crate::wire::Wire;
use crate::{Daemon, Error, Mcp, Result};

tests![a_flood_of_dry_runs_costs_who_asks_for_them_and_no_fault];

/// For how long it is flooded: two and a half times what the guard waits for a sign of life.
const FLOOD: Duration = Duration::from_secs(5);
/// As many as a user may have.
const CONNECTIONS: usize = 4;
/// As many as a connection may have under way.
const AT_ONCE: usize = 8;
/// Others than the operator, with the operator's group and so the socket.
const HOSTILE: [libc::uid_t; 3] = [65_534, 65_530, 65_529];
/// Takes long in each long command line, and is found in none.
const EXPRESSION: &str = "(?:[a-z]?){90}Z";
const PROCESSES: usize = 60;
const ARGUMENT: usize = 60_000;

/// Processes with long command lines, which wait to be told to end.
struct Crowd(Vec<Child>);

impl Crowd {
    fn start() -> Result<Self> {
        let mut crowd = Self(Vec::new());
        for _ in 0..PROCESSES {
            let mut command = Command::new("sh");
            command.args(["-c", "read -r line", "sh"]).arg("a".repeat(ARGUMENT)).stdin(Stdio::piped());
            crowd.0.push(command.spawn().map_err(Error::io("start", "a shell"))?);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for each in &mut self.0 {
            let _ = each.kill();
            let _ = each.wait();
        }
    }
}

/// Asks on many connections, and reads every answer.
struct Flood {
    over: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Flood {
    fn start(daemon: &Daemon) -> Self {
        let mut flood = Self { over: Arc::default(), answers: Arc::default(), threads: Vec::new() };
        for user in HOSTILE.into_iter().flat_map(|user| [user; CONNECTIONS]) {
            let (socket, over, answers) =
                (daemon.socket(), Arc::clone(&flood.over), Arc::clone(&flood.answers));
            flood.threads.push(thread::spawn(move || {
                become_user(user)?;
                let mut wire = Wire::connect(&socket)?;
                wire.open()?;
                while !over.load(Ordering::Relaxed) {
                    wire.bytes(&questions()?)?;
                    for _ in 0..AT_ONCE {
                        wire.answer()?.ok_or_else(|| Error::Different("the connection was closed".into()))?;
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            }));
        }
        flood
    }

    /// Ends it, and says how many answers there were.
    fn end(self) -> Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_panic| Error::Different("a connection panicked".into()))??;
        }
        Ok(self.answers.load(Ordering::Relaxed))
    }
}

fn questions() -> Result<Vec<u8>> {
    let fault = json!({
        "fault_name": "hostile", "fault_type": "process_kill", "probability": 1, "target": {"command": EXPRESSION},
    });
    let mut lines = Vec::new();
    for id in 0..AT_ONCE {
        let params = json!({"name": "chaos_plan", "arguments": fault});
        let call = json!({"jsonrpc": "2.0", "id": 1000 + id, "method": "tools/call", "params": params});
        writeln!(lines, "{call}").map_err(Error::io("write", "a line"))?;
    }
    Ok(lines)
}

/// How long stopping a fault that is not there took each time, again and again for so long.
fn stops(mcp: &Mcp, lasting: Duration) -> Result<Vec<Duration>> {
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < lasting {
        let asked = Instant::now();
        mcp.call_tool("chaos_stop", json!({"fault_name": "nobodys"}))?.ok()?;
        took.push(asked.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    took.sort_unstable();
    Ok(took)
}

fn told(when: &str, took: &[Duration]) {
    let share = |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1)));
    println!(
        "stop {when}: n {}, p50 {:?}, p99 {:?}, max {:?}",
        took.len(),
        share(50),
        share(99),
        took.last()
    );
}

fn a_flood_of_dry_runs_costs_who_asks_for_them_and_no_fault(_: &Context) -> TestResult {
    let (victim, other) = (Victim::new(&[])?, Victim::new(&[])?);
    let mut daemon = Daemon::start()?;
    let guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let pause = |victim: &Victim| Fault::new("pause").aimed(json!({"cgroup": victim.name()}));
    let fault = pause(&victim);
    fault.inject(&mcp)?;
    let injector = daemon.injector().ok_or_else(|| Error::Different("no injector".into()))?;
    told("at rest", &stops(&mcp, FLOOD / 10)?);

    let _crowd = Crowd::start()?;
    let flood = Flood::start(&daemon);
    wait_for("first answer", || flood.answers.load(Ordering::Relaxed) > 0)?;
    told("beside the flood", &stops(&mcp, FLOOD)?);
    let status = fault.status(&mcp)?;
    assert!(status["active"] == true && status["state"] == "effective", "{status}");
    assert!(status["guard"].to_string().contains(&guard.pid().to_string()), "{status}");
    assert_eq!(victim.read("cgroup.freeze")?, "1", "the fault has ended; guard:\n{}", guard.log());
    assert!(injector.runs(), "guard:\n{}", guard.log());
    // Who injects waits for nobody who only looks.
    let second = pause(&other).named("second");
    let asked = Instant::now();
    second.inject(&mcp)?;
    println!("an injection beside the flood: {:?}", asked.elapsed());
    second.remove(&mcp)?;
    fault.remove(&mcp)?;
    assert_eq!(victim.read("cgroup.freeze")?, "0");
    println!("{} dry runs were answered", flood.end()?);
    assert!(injector.runs(), "guard:\n{}", guard.log());
    daemon.stop()?;
    Ok(Outcome::Pass)
}
