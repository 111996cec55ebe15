//! Strangers who send, ask for, or do not read as much as they can: the server stays small, and root stops meanwhile.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::flood::{Figures, begin, end, stop};
use super::said::Tried;
use super::stage::Stage;
use super::walk::document;
use crate::error::{Error, Result};
use crate::process::{linger, wait_for};

/// Connections of each of three users, which are all the places that are not kept.
const OF_EACH: usize = 4;
const USERS: usize = 3;

/// What a client does with answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    All,
    Nothing,
    Slowly,
}

/// A kind of flood.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flood {
    pub(super) name: &'static str,
    reads: Reads,
    /// What is said, by the number of the message.
    line: fn(usize) -> String,
}

fn call(id: usize, tool: &str, arguments: &Value) -> String {
    request(id, "tools/call", &json!({"name": tool, "arguments": arguments}))
}

fn request(id: usize, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn describe(id: usize) -> String {
    call(id, "chaos_describe_experiment", &json!({"experiment_name": format!("flood {}", id % 40)}))
}

fn register(id: usize, bytes: usize) -> String {
    call(id, "chaos_register_experiment", &document(&format!("flood {}", id % 40), bytes))
}

fn prefixes(id: usize) -> String {
    let all: Vec<_> =
        (0..190_000_u32).map(|n| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string()).collect();
    call(
        id,
        "chaos_inject_fault",
        &json!({"fault_name": format!("f{}", id % 40), "action": "register", "fault_type": "timeout",
            "target": {"interface": "lo", "cidrs": all}}),
    )
}

fn cancelled(id: usize) -> String {
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    format!("{}\n{cancelled}", call(id, "chaos_list_runs", &json!({})))
}

const fn flood(name: &'static str, reads: Reads, line: fn(usize) -> String) -> Flood {
    Flood { name, reads, line }
}

pub(super) const FLOODS: &[Flood] = &[
    flood("ping, nothing read", Reads::Nothing, |id| request(id, "ping", &json!({}))),
    flood("ping of one id, nothing read", Reads::Nothing, |_| request(1, "ping", &json!({}))),
    flood("tools/list, nothing read", Reads::Nothing, |id| request(id, "tools/list", &json!({}))),
    flood("tools/list, read slowly", Reads::Slowly, |id| request(id, "tools/list", &json!({}))),
    flood("tools/list, read", Reads::All, |id| request(id, "tools/list", &json!({}))),
    flood("resources/read, nothing read", Reads::Nothing, |id| {
        request(id, "resources/read", &json!({"uri": "chaos://schema/experiment"}))
    }),
    flood("resources/read, read", Reads::All, |id| {
        request(id, "resources/read", &json!({"uri": "chaos://schema/experiment"}))
    }),
    flood("status, read", Reads::All, |id| call(id, "chaos_status", &json!({"include_results": true}))),
    flood("register 240 KB, read", Reads::All, |id| register(id, 240_000)),
    flood("register 0.9 MB, read", Reads::All, |id| register(id, 900_000)),
    flood("describe 240 KB, read slowly", Reads::Slowly, describe),
    flood("describe 240 KB, read", Reads::All, describe),
    flood("list, read", Reads::All, |id| call(id, "chaos_list_experiments", &json!({"limit": 100}))),
    flood("100,000 levels, read", Reads::All, |_| "[".repeat(100_000) + &"]".repeat(100_000)),
    flood("4 MB of numbers, read", Reads::All, |id| {
        call(id, "chaos_plan", &json!({"x": vec![0; 1_900_000]}))
    }),
    flood("190,000 prefixes, read", Reads::All, prefixes),
    flood("lines of 3.9 MB that are no JSON, read", Reads::All, |_| "x".repeat(3_900_000)),
    flood("cancelled at once, nothing read", Reads::Nothing, cancelled),
    flood("notifications", Reads::Nothing, |_| {
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()
    }),
];

/// Floods of what is refused, and logged, in server and injector.
const REFUSED: &[Flood] = &[
    flood("faults that are not registered", Reads::All, |id| {
        call(id, "chaos_inject_fault", &json!({"fault_name": format!("none-{id}"), "action": "inject"}))
    }),
    flood("faults of an interface that is not there", Reads::All, |id| {
        let fault = json!({"fault_name": "nowhere", "action": "register", "fault_type": "timeout", "probability": 1,
            "target": {"interface": "nowhere0"}});
        let inject = json!({"fault_name": "nowhere", "action": "inject"});
        call(id, "chaos_inject_fault", if id == 1 { &fault } else { &inject })
    }),
    flood("tools without arguments", Reads::All, |id| call(id, "chaos_plan", &json!({}))),
];

/// However much is refused to strangers, the log has the lines of root's calls, and how many of theirs are left out.
pub(super) fn refused(stage: &Stage) -> Result<Tried> {
    let (mut tried, began) = (Tried::default(), Instant::now());
    for flood in REFUSED {
        let figures = run(stage, flood, Duration::from_millis(1500))?;
        tried.tried += 1;
        tried.effects.extend(figures.refused.first().map(|refused| format!("{}: {refused}", flood.name)));
        stage
            .root()?
            .call_tool("chaos_inject_fault", json!({"fault_name": "roots-own", "action": "inject"}))?;
    }
    // Server and injector each say it every 10 s.
    let is_told = || stage.daemon.log().lines().any(|line| line.contains("lines are not in the log"));
    wait_for("how many lines are left out", is_told)?;
    let log = stage.daemon.log();
    let count =
        |words: &[&str]| log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
    let own = count(&["uid 0,", "roots-own"]);
    if own != REFUSED.len() {
        tried.effects.push(format!("of root's calls {own} are in the log, and not {}", REFUSED.len()));
    }
    // Of each level so many at once and ten a second, by two processes.
    let most = 2 * 2 * (100 + 10 * (usize::try_from(began.elapsed().as_secs()).unwrap_or(0) + 1));
    for user in &super::stage::USERS[..USERS] {
        let (lines, left_out) =
            (count(&[&format!("caller=uid {user}")]), count(&["left_out", &format!("uid {user}: ")]));
        tried.notes.push(format!("user {user}: {lines} lines of at most {most}"));
        if !(1..=most).contains(&lines) || left_out == 0 {
            tried
                .effects
                .push(format!("user {user} has {lines} lines, and {left_out} say how many are left out"));
        }
    }
    Ok(tried)
}

/// Floods the daemon for so long.
pub(super) fn run(stage: &Stage, flood: &Flood, lasting: Duration) -> Result<Figures> {
    let (over, mut figures) = (&AtomicBool::new(false), Figures::default());
    // Long lines are made beforehand, so that it is the server that is slow.
    let lines = match (flood.line)(1).len() {
        0..1_000 => 0,
        1_000..1_000_000 => 40,
        _ => 4,
    };
    let lines: &Vec<_> = &(1..=lines).map(|id| (flood.line)(id)).collect();
    begin(stage)?;
    thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..USERS * OF_EACH)
            .map(|number| scope.spawn(move || client(stage, number, flood, lines, over)))
            .collect();
        let (begun, socket) = (Instant::now(), stage.daemon.socket());
        let mut watched = Ok(());
        while begun.elapsed() < lasting && watched.is_ok() {
            watched = stop(&socket, &mut figures);
            linger(Duration::from_millis(10));
        }
        over.store(true, Ordering::Release);
        for client in clients {
            client.join().map_err(|_panic| Error::Different("a client broke".into()))??;
        }
        watched
    })?;
    end(stage, &mut figures)?;
    Ok(figures)
}

/// One client: connects, opens a session, and says what the flood says; again, when it is cut off.
fn client(stage: &Stage, number: usize, flood: &Flood, lines: &[String], over: &AtomicBool) -> Result<()> {
    let stranger = &stage.strangers[number % USERS];
    let open = request(
        0,
        "initialize",
        &json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "flood", "version": "1"}}),
    );
    let mut id = 0;
    while !over.load(Ordering::Acquire) {
        let mut stream = UnixStream::from(stranger.connect(&stage.daemon.socket())?);
        let set = || Error::io("set the time limit of", "a connection");
        stream.set_write_timeout(Some(Duration::from_millis(100))).map_err(set())?;
        stream.set_read_timeout(Some(Duration::from_millis(100))).map_err(set())?;
        let reading = stream.try_clone().map_err(Error::io("share", "a connection"))?;
        thread::scope(|scope| {
            if flood.reads != Reads::Nothing {
                scope.spawn(|| read(reading, flood.reads, over));
            }
            let mut say = || -> io::Result<()> {
                write(&mut stream, format!("{open}\n").as_bytes(), over)?;
                while !over.load(Ordering::Acquire) {
                    id += 1;
                    match lines {
                        [] => write(&mut stream, (flood.line)(id).as_bytes(), over)?,
                        lines => write(&mut stream, lines[id % lines.len()].as_bytes(), over)?,
                    }
                    write(&mut stream, b"\n", over)?;
                }
                Ok(())
            };
            // It was cut off.
            if say().is_err() {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

/// Writes all of it, unless it is over.
fn write(stream: &mut UnixStream, mut bytes: &[u8], over: &AtomicBool) -> io::Result<()> {
    while !bytes.is_empty() && !over.load(Ordering::Acquire) {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until the connection is closed.
fn read(mut stream: UnixStream, reads: Reads, over: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    let most = if reads == Reads::Slowly { 512 } else { buffer.len() };
    loop {
        match stream.read(&mut buffer[..most]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !over.load(Ordering::Acquire) => {}
            Ok(read) if read > 0 => {}
            _ => return,
        }
        if reads == Reads::Slowly {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
