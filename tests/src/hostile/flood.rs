//! Sixteen strangers with eight calls of a tool under way each, and root that stops meanwhile, has faults, and looks at the server.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, shutdown};
use serde_json::{Value, json};

use super::said::session;
use super::stage::{Stage, USERS};
use super::walk::{DOCUMENT, document, sample};
use crate::daemon::binary;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::measure::udp_rtt;
use crate::pair::INTERFACE;
use crate::process::{linger, wait_until};
use crate::{Mcp, Wire};

/// What no caller gets the server above.
pub(super) const MOST: u64 = 256 << 20;
/// What it may have some seconds after all have gone.
pub(super) const LEFT: u64 = 128 << 20;
/// Connections of each user, and calls under way on each.
const OF_EACH: usize = 4;
const AT_ONCE: usize = 8;
/// Faults of root's that are there meanwhile.
const FAULTS: usize = 8;
/// How often it is looked whether a fault acts.
const LOOK: Duration = Duration::from_millis(400);
/// How long an echo may take where nothing is in its way, and is waited for.
const ECHO: Duration = Duration::from_millis(40);

/// What was seen.
#[derive(Debug, Default)]
pub struct Figures {
    /// How long each `chaosctl stop` of root's took, from its start to its end, sorted.
    pub stops: Vec<Duration>,
    /// What root was refused, or told instead.
    pub refused: Vec<String>,
    /// Answers that strangers got.
    pub answers: u64,
    /// The most memory that the server had, in bytes.
    pub peak: u64,
    /// What it has some seconds after all have gone.
    pub left: u64,
    /// Faults of root's, and why those ended early that did.
    pub faults: usize,
    /// See `faults`.
    pub early: Vec<String>,
}

impl Figures {
    /// So many percent of the stops took no longer.
    pub fn stop(&self, percent: usize) -> Duration {
        let at = self.stops.len() * percent / 100;
        self.stops.get(at.min(self.stops.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// Lines that a client says again and again, but for the number of the message.
pub(super) type Lines = Vec<Value>;

/// What is asked of a tool: what its schema takes for the least, and what costs most of what is known.
pub(super) fn calls(tool: &str, schema: &Value) -> Lines {
    let call = |arguments: Value| json!({"name": tool, "arguments": arguments});
    let mut lines = vec![call(sample(schema))];
    lines.extend(dearest(tool).into_iter().map(call));
    lines
}

/// What costs the daemon most, of the tools that are known. Of others their schema alone says what can be asked.
fn dearest(tool: &str) -> Vec<Value> {
    let fault = |action: &str| json!({"fault_name": "flood", "action": action});
    match tool {
        "chaos_plan" => vec![json!({"fault_name": "flood", "fault_type": "process_kill",
            "target": {"command": "(?:[a-z]?){90}Z"}})],
        "chaos_inject_fault" => vec![
            json!({"fault_name": "flood", "action": "register", "fault_type": "timeout", "probability": 1,
                "duration_seconds": 1, "target": {"interface": INTERFACE, "cidr": "10.99.0.0/16"}}),
            fault("inject"),
            fault("remove"),
        ],
        "chaos_register_experiment" => {
            (0..4).map(|number| document(&format!("flood {number}"), 240_000)).collect()
        }
        "chaos_describe_experiment" => vec![json!({"experiment_name": "flood 1"})],
        "chaos_run_experiment" => vec![json!({"experiment_name": "flood 1", "wait_seconds": 0})],
        "chaos_plan_experiment" => vec![json!({"document": document(DOCUMENT, 100_000)})],
        "chaos_status" => vec![json!({"include_results": true})],
        "chaos_doctor" => vec![json!({"residue": true})],
        "chaos_stop" => vec![json!({"fault_name": "nobodys"})],
        "chaos_list_experiments" | "chaos_list_runs" => vec![json!({"limit": 100})],
        "chaos_probe" => vec![
            json!({"arguments": ["process", "--command", "(?:[a-z]?){90}Z", "--measure", "count"]}),
            json!({"arguments": ["http", "http://127.0.0.1:9/"]}),
        ],
        _ => Vec::new(),
    }
}

/// Nothing of what strangers say ends a fault of root's by name: everybody may stop everything, which is not what is tried here.
fn spares(line: &Value) -> bool {
    line["name"] != "chaos_stop" || line["arguments"]["fault_name"] == "nobodys"
}

/// Floods the daemon for so long with these calls.
pub(super) fn flood(stage: &Stage, lines: &[Value], lasting: Duration) -> Result<Figures> {
    let lines: Vec<_> = lines.iter().filter(|line| spares(line)).cloned().collect();
    let root = stage.root()?;
    if lines.iter().any(|line| line["arguments"]["experiment_name"] == "flood 1") {
        root.call_tool("chaos_register_experiment", document("flood 1", 200_000))?.ok()?;
    }
    let faults = faults(&root)?;
    let clients = USERS.len() * OF_EACH;
    let (over, answers) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let open: &Vec<Mutex<Option<OwnedFd>>> = &(0..clients).map(|_| Mutex::default()).collect();
    let lines = &lines;
    let mut figures = Figures { faults: faults.len(), ..Figures::default() };
    begin(stage)?;
    thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..clients)
            .map(|number| {
                let client = Client { stage, number, lines, over, answers, open: &open[number] };
                scope.spawn(move || client.go_on())
            })
            .collect();
        let watched = watch(stage, &mut figures, lasting);
        over.store(true, Ordering::Release);
        // Nobody waits for what is still to be answered.
        for connection in open.iter().filter_map(taken) {
            let _ = shutdown(connection.as_raw_fd(), Shutdown::Both);
        }
        for client in clients {
            client.join().map_err(|_panic| Error::Different("a client broke".into()))?;
        }
        watched
    })?;
    figures.answers = answers.load(Ordering::Relaxed);
    figures.early.extend(ended(&root, &faults)?);
    faults.iter().try_for_each(|fault| fault.remove(&root).map(drop))?;
    end(stage, &mut figures)?;
    Ok(figures)
}

/// From here on it is known what the server has at most (proc_pid_clear_refs(5)).
pub(super) fn begin(stage: &Stage) -> Result<()> {
    let path = format!("/proc/{}/clear_refs", stage.server()?.pid);
    std::fs::write(&path, "5").map_err(Error::io("write", path))
}

/// What the server had at most, and has some seconds after all have gone.
pub(super) fn end(stage: &Stage, figures: &mut Figures) -> Result<()> {
    let server = stage.server()?;
    figures.peak = server.status("VmHWM");
    linger(Duration::from_millis(500));
    wait_until(Duration::from_secs(8), || server.status("VmRSS") < LEFT);
    figures.left = server.status("VmRSS");
    figures.stops.sort_unstable();
    Ok(())
}

/// Faults of root's that lose what is sent to the peer, each a part of it.
fn faults(root: &Mcp) -> Result<Vec<Fault>> {
    let fault = |number: usize| {
        let cidr = if number == 0 { "10.77.0.2".to_owned() } else { format!("10.77.1.{number}") };
        Fault::new("timeout").here(json!({"cidr": cidr})).named(&format!("roots-{number}"))
    };
    let faults: Vec<_> = (0..FAULTS).map(fault).collect();
    faults.iter().try_for_each(|fault| fault.inject(root).map(drop))?;
    Ok(faults)
}

/// Those that are not active any more.
fn ended(root: &Mcp, faults: &[Fault]) -> Result<Vec<String>> {
    let status = root.call_tool("chaos_status", json!({}))?.ok()?;
    let active: Vec<_> = status["active_faults"].as_array().cloned().unwrap_or_default();
    let is_active = |fault: &&Fault| {
        active.iter().any(|active| active["name"] == fault.name() && active["active"] == json!(true))
    };
    let ended = faults.iter().filter(|fault| !is_active(fault));
    Ok(ended.map(|fault| format!("{} is not active: {status}", fault.name())).collect())
}

/// Has root stop, and asks the network whether its fault acts.
fn watch(stage: &Stage, figures: &mut Figures, lasting: Duration) -> Result<()> {
    let (begun, socket) = (Instant::now(), stage.daemon.socket());
    let mut looked: Option<Instant> = None;
    while begun.elapsed() < lasting {
        stop(&socket, figures)?;
        if looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            continue;
        }
        looked = Some(Instant::now());
        if udp_rtt(&stage.pair.near, stage.echo.address(), ECHO)?.is_some() {
            figures.early.push("a packet got through what root has cut off".into());
        }
    }
    Ok(())
}

/// `chaosctl stop` of a fault that is not there.
pub(super) fn stop(socket: &Path, figures: &mut Figures) -> Result<()> {
    let mut command = Command::new(binary("chaosctl")?);
    command.arg("--socket").arg(socket).args(["stop", "nobodys"]).stdin(Stdio::null());
    let begun = Instant::now();
    let output = command.output().map_err(Error::io("start", "chaosctl"))?;
    match output.status.success() {
        true => figures.stops.push(begun.elapsed()),
        false => figures.refused.push(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
    Ok(())
}

fn taken(slot: &Mutex<Option<OwnedFd>>) -> Option<OwnedFd> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// One client of a flood.
struct Client<'a> {
    stage: &'a Stage,
    number: usize,
    lines: &'a [Value],
    over: &'a AtomicBool,
    answers: &'a AtomicU64,
    /// The connection that it has.
    open: &'a Mutex<Option<OwnedFd>>,
}

impl Client<'_> {
    /// Opens a session, and has so many calls under way; again, when it is cut off, or has no place.
    fn go_on(&self) {
        let mut next = self.number;
        while !self.over.load(Ordering::Acquire) {
            // Whoever has no place is refused, and comes again.
            if self.talk(&mut next).is_err() {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn talk(&self, next: &mut usize) -> Result<()> {
        let stranger = &self.stage.strangers[self.number % self.stage.strangers.len()];
        let connection = stranger.connect(&self.stage.daemon.socket())?;
        let copy = connection.try_clone().map_err(Error::io("share", "a connection"))?;
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
        let mut wire: Wire = session(connection)?;
        while !self.over.load(Ordering::Acquire) {
            let mut said = Vec::new();
            for _ in 0..AT_ONCE {
                *next += 1;
                let params = &self.lines[*next % self.lines.len()];
                let line = json!({"jsonrpc": "2.0", "id": *next, "method": "tools/call", "params": params});
                said.extend(format!("{line}\n").into_bytes());
            }
            wire.bytes(&said)?;
            for _ in 0..AT_ONCE {
                wire.answer()?.ok_or_else(|| Error::Different("it was cut off".into()))?;
                self.answers.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
