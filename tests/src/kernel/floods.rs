//! Clients that send, ask for, or do not read, as much as they can: the server stays small, and root stops and looks meanwhile.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, Tried, tests};
use crate::process::{linger, wait_for, wait_until};
use crate::{Daemon, Result, Wire};

tests![
    whatever_callers_send_and_do_not_read_the_server_stays_small_and_root_stops_and_looks,
    however_much_is_refused_to_callers_the_log_has_the_lines_of_others_and_how_many_are_left_out,
];

/// What no caller gets the server above.
const MOST: u64 = 256 << 20;
/// What it may have some seconds after all have gone, with a registry that is full.
const LEFT: u64 = 128 << 20;
/// What a server without bounds of its own dies at.
const NEVER: u64 = 1 << 30;
/// Who floods, with how many connections each.
const USERS: [u32; 3] = [61_001, 61_002, 61_003];
const OF_EACH: usize = 4;
/// How long each flood lasts.
const LASTING: Duration = Duration::from_secs(3);

/// What a client does with answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    All,
    Nothing,
    Slowly,
}

/// A kind of flood.
struct Flood {
    name: &'static str,
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

/// A document that is taken, of about so many bytes.
fn register(id: usize, bytes: usize) -> String {
    let document = json!({"title": format!("flood {}", id % 40), "description": "x".repeat(bytes),
        "steady-state-hypothesis": {"title": "t", "probes": [{"type": "probe", "name": "p", "tolerance": 0,
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", "127.0.0.1:9"]}}]},
        "method": [{"type": "action", "name": "a", "provider": {"type": "process", "path": "chaosctl",
            "arguments": {"inject": "timeout", "--interface": "lo", "--cidr": "127.9.9.9", "--for": "1s"}}}]});
    call(id, "chaos_register_experiment", &document)
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

const FLOODS: &[Flood] = &[
    Flood { name: "ping, nothing read", reads: Reads::Nothing, line: |id| request(id, "ping", &json!({})) },
    Flood {
        name: "ping of one id, nothing read",
        reads: Reads::Nothing,
        line: |_| request(1, "ping", &json!({})),
    },
    Flood {
        name: "tools/list, nothing read",
        reads: Reads::Nothing,
        line: |id| request(id, "tools/list", &json!({})),
    },
    Flood {
        name: "tools/list, read slowly",
        reads: Reads::Slowly,
        line: |id| request(id, "tools/list", &json!({})),
    },
    Flood { name: "tools/list, read", reads: Reads::All, line: |id| request(id, "tools/list", &json!({})) },
    Flood {
        name: "resources/read, nothing read",
        reads: Reads::Nothing,
        line: |id| request(id, "resources/read", &json!({"uri": "chaos://schema/experiment"})),
    },
    Flood {
        name: "resources/read, read",
        reads: Reads::All,
        line: |id| request(id, "resources/read", &json!({"uri": "chaos://schema/experiment"})),
    },
    Flood {
        name: "status, read",
        reads: Reads::All,
        line: |id| call(id, "chaos_status", &json!({"include_results": true})),
    },
    Flood { name: "register 240 KB, read", reads: Reads::All, line: |id| register(id, 240_000) },
    Flood { name: "register 0.9 MB, read", reads: Reads::All, line: |id| register(id, 900_000) },
    Flood {
        name: "describe 240 KB, read slowly",
        reads: Reads::Slowly,
        line: |id| {
            call(id, "chaos_describe_experiment", &json!({"experiment_name": format!("flood {}", id % 40)}))
        },
    },
    Flood {
        name: "describe 240 KB, read",
        reads: Reads::All,
        line: |id| {
            call(id, "chaos_describe_experiment", &json!({"experiment_name": format!("flood {}", id % 40)}))
        },
    },
    Flood {
        name: "list, read",
        reads: Reads::All,
        line: |id| call(id, "chaos_list_experiments", &json!({"limit": 100})),
    },
    Flood {
        name: "100,000 levels, read",
        reads: Reads::All,
        line: |_| "[".repeat(100_000) + &"]".repeat(100_000),
    },
    Flood {
        name: "4 MB of numbers, read",
        reads: Reads::All,
        line: |id| call(id, "chaos_plan", &json!({"x": vec![0; 1_900_000]})),
    },
    Flood { name: "190,000 prefixes, read", reads: Reads::All, line: prefixes },
    Flood {
        name: "a line without an end",
        reads: Reads::All,
        line: |_| "x".repeat(3_900_000).replace('\n', ""),
    },
    Flood {
        name: "cancelled at once, nothing read",
        reads: Reads::Nothing,
        line: |id| {
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
            call(id, "chaos_list_runs", &json!({})) + "\n" + &cancelled.to_string()
        },
    },
    Flood {
        name: "notifications",
        reads: Reads::Nothing,
        line: |_| json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
    },
];

/// Has this thread be another user on what it connects to; the process stays who it is. Its groups stay, so that it may connect.
fn become_user(uid: u32) -> io::Result<()> {
    // SAFETY: the system call itself changes this thread alone, and needs no memory.
    match unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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

/// One client: connects, opens a session, and says what the flood says; again, when it is cut off.
fn client(socket: &Path, uid: u32, flood: &Flood, lines: &[String], over: &AtomicBool) -> io::Result<()> {
    become_user(uid)?;
    let open = request(
        0,
        "initialize",
        &json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "flood", "version": "1"}}),
    );
    let mut id = 0;
    while !over.load(Ordering::Acquire) {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(Duration::from_millis(100)))?;
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
        let reading = stream.try_clone()?;
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
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
    }
    Ok(())
}

/// How long root's calls took, each on a connection of its own, and why some were refused.
#[derive(Default)]
struct Asked {
    took: Vec<Duration>,
    refused: Vec<String>,
}

impl Asked {
    fn ask(&mut self, socket: &Path, tool: &str) {
        let began = Instant::now();
        let answer = Wire::connect(socket).and_then(|mut wire| {
            wire.open()?;
            wire.call(tool, json!({}))
        });
        match answer {
            Ok(answer) if answer.is_object() && answer["error"].is_null() => self.took.push(began.elapsed()),
            Ok(answer) => self.refused.push(answer.to_string()),
            Err(error) => self.refused.push(error.to_string()),
        }
    }

    fn share(&mut self, share: f64) -> Duration {
        self.took.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = (self.took.len() as f64 * share) as usize;
        self.took.get(index.min(self.took.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// A daemon that cannot take the host's memory, whatever is wrong with it.
fn bounded() -> Result<Daemon> {
    Daemon::start_with(|command| {
        // SAFETY: between fork and exec only setrlimit(2) is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_DATA, NEVER, NEVER)?));
        }
    })
}

/// Floods the daemon; what root's calls did meanwhile.
fn flood(socket: &Path, flood: &Flood) -> Tried<Asked> {
    let (over, mut asked) = (&AtomicBool::new(false), Asked::default());
    // Long lines are made beforehand, so that it is the server that is slow.
    let lines = match (flood.line)(1).len() {
        0..1_000 => 0,
        1_000..1_000_000 => 40,
        _ => 4,
    };
    let lines: &Vec<_> = &(1..=lines).map(|id| (flood.line)(id)).collect();
    thread::scope(|scope| {
        let clients: Vec<_> = USERS
            .iter()
            .flat_map(|uid| std::iter::repeat_n(*uid, OF_EACH))
            .map(|uid| scope.spawn(move || client(socket, uid, flood, lines, over)))
            .collect();
        let until = Instant::now() + LASTING;
        while Instant::now() < until {
            asked.ask(socket, "chaos_stop");
            asked.ask(socket, "chaos_status");
            linger(Duration::from_millis(10));
        }
        over.store(true, Ordering::Release);
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| Err(io::Error::other("broke"))))
    })?;
    Ok(asked)
}

fn whatever_callers_send_and_do_not_read_the_server_stays_small_and_root_stops_and_looks(
    _: &Context,
) -> TestResult {
    let daemon = bounded()?;
    wait_for("server", || daemon.server().is_some())?;
    let server = daemon.server().ok_or("no server")?;
    println!("{:34} {:>9} {:>9} {:>6} {:>9} {:>9}", "flood", "peak MiB", "then MiB", "asked", "p50", "p99");
    let mut problems = Vec::new();
    for kind in FLOODS {
        // What it had at most from here on (proc_pid_clear_refs(5)).
        std::fs::write(format!("/proc/{}/clear_refs", server.pid), "5")?;
        let mut asked = flood(&daemon.socket(), kind)?;
        let (peak, log) = (server.status("VmHWM"), daemon.log());
        if !server.runs() {
            return Err(format!(
                "{}: the server has died; log: {}",
                kind.name,
                &log[log.len().saturating_sub(2000)..]
            )
            .into());
        }
        // Given back within seconds of when they have gone.
        linger(Duration::from_millis(1500));
        wait_until(Duration::from_secs(5), || server.status("VmRSS") < LEFT);
        let then = server.status("VmRSS");
        let (p50, p99) = (asked.share(0.5), asked.share(0.99));
        println!(
            "{:34} {:9} {:9} {:6} {p50:9.1?} {p99:9.1?}",
            kind.name,
            peak >> 20,
            then >> 20,
            asked.took.len()
        );
        if peak > MOST || then > LEFT {
            problems.push(format!("{}: {} MiB, and then {} MiB", kind.name, peak >> 20, then >> 20));
        }
        if let Some(refused) = asked.refused.first() {
            problems.push(format!("{}: {} refused, such as: {refused}", kind.name, asked.refused.len()));
        }
    }
    match problems.is_empty() {
        true => Ok(Outcome::Pass),
        false => Err(problems.join("; ").into()),
    }
}

/// What is refused, and logged, in server and injector.
const REFUSED: &[Flood] = &[
    Flood {
        name: "faults that are not registered",
        reads: Reads::All,
        line: |id| {
            call(id, "chaos_inject_fault", &json!({"fault_name": format!("none-{id}"), "action": "inject"}))
        },
    },
    Flood {
        name: "faults of an interface that is not there",
        reads: Reads::All,
        line: |id| {
            let fault = json!({"fault_name": "nowhere", "action": "register", "fault_type": "timeout", "probability": 1,
                "target": {"interface": "nowhere0"}});
            let inject = json!({"fault_name": "nowhere", "action": "inject"});
            call(id, "chaos_inject_fault", if id == 1 { &fault } else { &inject })
        },
    },
    Flood {
        name: "tools without arguments",
        reads: Reads::All,
        line: |id| call(id, "chaos_plan", &json!({})),
    },
];

fn however_much_is_refused_to_callers_the_log_has_the_lines_of_others_and_how_many_are_left_out(
    _: &Context,
) -> TestResult {
    let daemon = bounded()?;
    let began = Instant::now();
    for kind in REFUSED {
        let asked = flood(&daemon.socket(), kind)?;
        assert!(asked.refused.is_empty(), "{}: {:?}", kind.name, asked.refused.first());
        let own = json!({"fault_name": "roots-own", "action": "inject"});
        let mut wire = Wire::connect(&daemon.socket())?;
        wire.open()?;
        wire.call("chaos_inject_fault", own)?;
    }
    // Server and injector each say it every 10 s.
    let is_told = || daemon.log().lines().any(|line| line.contains("lines are not in the log"));
    assert!(wait_until(Duration::from_secs(60), is_told), "{}", daemon.log());
    let log = daemon.log();
    let count = |word: &str| log.lines().filter(|line| line.contains(word)).count();
    assert_eq!(
        log.lines().filter(|line| line.contains("uid 0,") && line.contains("roots-own")).count(),
        REFUSED.len()
    );
    // Of each level so many at once and ten a second, by two processes.
    let most = 2 * 2 * (100 + 10 * (began.elapsed().as_secs() as usize + 1));
    for user in USERS {
        let lines = count(&format!("caller=uid {user}"));
        println!("uid {user}: {lines} lines in {:.0?}, of at most {most}", began.elapsed());
        assert!((1..=most).contains(&lines), "uid {user}: {lines} lines");
        assert!(
            log.lines().any(|line| line.contains("left_out") && line.contains(&format!("uid {user}: "))),
            "{user}"
        );
    }
    Ok(Outcome::Pass)
}
