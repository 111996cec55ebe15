//! Connections to a server: of a pool that is used up, of a daemon that takes so many, and as many as are asked for a second.

use std::fs::{Permissions, create_dir, set_permissions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, LEASE_ENDS, Taking, evidence};
use crate::daemon::{NOBODY, run_as_nobody};
use crate::fault::Fault;
use crate::late::HANG;
use crate::process::{Process, become_user, wait_until};
use crate::{Daemon, Error, Mcp, NetNs, Pair, Result, Wire};

tests![
    a_pool_of_workers_serves_nobody_else_while_the_fault_lasts_and_everybody_after_it,
    a_pool_is_let_go_when_the_lease_runs_out,
    what_is_held_refused_and_late_is_counted_and_timed,
    a_daemon_of_whose_places_a_user_holds_all_that_are_his_serves_others_alone,
    connections_are_opened_and_closed_at_the_rate_and_none_lingers,
    who_may_not_be_connected_to_is_refused_by_name,
    a_load_is_of_the_caller_and_comes_nowhere_where_the_caller_could_not,
];

/// How many a server of the tests serves at once.
const WORKERS: u64 = 4;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// An HTTP server whose workers serve one connection each, until it is closed.
struct Server {
    address: SocketAddr,
    /// Connections that are being served, and those that ever were.
    served: Arc<[AtomicU64; 2]>,
}

impl Server {
    fn start(namespace: &NetNs) -> Result<Self> {
        let bound = namespace.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = Arc::new(bound.map_err(Error::io("bind", "a listener"))?);
        let address = listener.local_addr().map_err(Error::io("ask", "a listener"))?;
        let served: Arc<[AtomicU64; 2]> = Arc::default();
        for _ in 0..WORKERS {
            let (listener, served) = (Arc::clone(&listener), Arc::clone(&served));
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    for count in served.iter() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    serve(stream);
                    served[0].fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        Ok(Self { address, served })
    }

    fn now(&self) -> u64 {
        self.served[0].load(Ordering::Relaxed)
    }

    fn ever(&self) -> u64 {
        self.served[1].load(Ordering::Relaxed)
    }

    fn load(&self, namespace: &NetNs, params: Value) -> Fault {
        let mut all = json!({"url": format!("http://{}/health", self.address), "timeout_ms": 500});
        if let (Value::Object(all), Value::Object(params)) = (&mut all, params) {
            all.extend(params);
        }
        Fault::new("connection_load").aimed(json!({"netns": namespace.name()})).with(all)
    }
}

/// Answers each request, until the client has gone.
fn serve(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(1..)) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
}

/// Whether a client of its own, that has nothing of the daemon, is served.
fn is_served(namespace: &NetNs, address: SocketAddr) -> bool {
    namespace.run(|| {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else { return false };
        let mut answer = [0; 15];
        stream.set_read_timeout(Some(PATIENCE)).is_ok()
            && stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && answer == *b"HTTP/1.1 200 OK"
    })
}

/// A pool is full, or not, to such a client.
fn pool(ends: &[super::End]) -> TestResult {
    let namespace = NetNs::new()?;
    let server = Server::start(&namespace)?;
    let full = |_: Option<&Process>| Ok(u64::from(!is_served(&namespace, server.address)));
    let fault = server.load(&namespace, json!({"sessions": WORKERS + 2}));
    let outcome = Taking { fault, used: &full, asked: 1, give: 0 }.ends(ends)?;
    assert_eq!(lingering(&namespace, server.address.port())?, 0, "connections linger");
    Ok(outcome)
}

fn a_pool_of_workers_serves_nobody_else_while_the_fault_lasts_and_everybody_after_it(
    _: &Context,
) -> TestResult {
    pool(ENDS)
}

fn a_pool_is_let_go_when_the_lease_runs_out(_: &Context) -> TestResult {
    pool(LEASE_ENDS)
}

/// How many connections to a port are known to the kernel still, whose client has gone (`TIME_WAIT`).
fn lingering(namespace: &NetNs, port: u16) -> Result<usize> {
    let table = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/tcp"));
    let table = table.map_err(Error::io("read", "/proc/thread-self/net/tcp"))?;
    let server = format!(":{port:04X}");
    let lingers = |line: &&str| {
        let mut words = line.split_whitespace();
        // Of the remote end; then the state.
        words.nth(2).is_some_and(|remote| remote.ends_with(&server)) && words.next() == Some("06")
    };
    Ok(table.lines().filter(lingers).count())
}

fn what_is_held_refused_and_late_is_counted_and_timed(_: &Context) -> TestResult {
    /// No server is so slow that lives.
    const ANSWER_MS: f64 = 20_000.0;
    let namespace = NetNs::new()?;
    let server = Server::start(&namespace)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = server.load(&namespace, json!({"sessions": WORKERS - 1, "timeout_ms": ANSWER_MS}));
    fault.inject(&mcp)?;
    // Worked out a few times a second.
    let timed =
        || evidence(&fault, &mcp).is_ok_and(|found| found["connections"]["first_byte_ms"].is_object());
    assert!(wait_until(HANG, timed), "{}", evidence(&fault, &mcp)?);
    let found = evidence(&fault, &mcp)?;
    assert_eq!((&found["things_held"], server.now()), (&json!(WORKERS - 1), WORKERS - 1), "{found}");
    assert_eq!(found["connections"]["opened"], json!(WORKERS - 1), "{found}");
    assert_eq!(found["connections"]["refused"], 0, "{found}");
    assert!(found["shortfall"].is_null(), "{found}");
    for times in ["connect_ms", "first_byte_ms"] {
        let [low, high] =
            ["p50", "p99"].map(|rank| found["connections"][times][rank].as_f64().unwrap_or(-1.0));
        assert!(0.0 < low && low <= high && high < ANSWER_MS, "{times}: {found}");
    }
    let served = || is_served(&namespace, server.address);
    assert!(wait_until(HANG, served), "nobody is served, although one worker is free");
    fault.remove(&mcp)?;
    // More than there are workers: the others wait in the queue of the socket, until they have waited long enough.
    let fault = server.load(&namespace, json!({"sessions": WORKERS + 3})).named("full");
    fault.inject(&mcp)?;
    let late =
        || evidence(&fault, &mcp).is_ok_and(|found| found["connections"]["timeouts"].as_u64() >= Some(3));
    assert!(wait_until(HANG, late), "{}", evidence(&fault, &mcp)?);
    let found = evidence(&fault, &mcp)?;
    assert_eq!(
        (&found["things_held"], &found["shortfall"]),
        (&json!(WORKERS), &json!("exhausted")),
        "{found}"
    );
    fault.remove(&mcp)?;
    refusals_are_counted(&namespace, &mcp)?;
    Ok(Outcome::Pass)
}

/// By a server that has gone: each of its connections is tried again, and refused.
fn refusals_are_counted(namespace: &NetNs, mcp: &Mcp) -> Result<()> {
    const SESSIONS: u64 = 2;
    let listener = namespace.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listener = listener.map_err(Error::io("bind", "a listener"))?;
    let address = listener.local_addr().map_err(Error::io("ask", "a listener"))?;
    let params = json!({"url": format!("tcp://{address}"), "sessions": SESSIONS, "timeout_ms": 500});
    let fault = Fault::new("connection_load").aimed(json!({"netns": namespace.name()})).with(params);
    let fault = fault.named("gone");
    fault.inject(mcp)?;
    drop(listener);
    // What was open is reset, which may count as refused as well.
    let refused = || {
        evidence(&fault, mcp).is_ok_and(|found| {
            found["connections"]["refused"].as_u64() > Some(SESSIONS) && found["things_held"] == 0
        })
    };
    assert!(wait_until(HANG, refused), "{}", evidence(&fault, mcp)?);
    fault.remove(mcp).map(drop)
}

/// How many places the user of a daemon has.
const PLACES: u32 = 16;

/// Connects as a user who is not root.
fn as_user<T: Send>(connect: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let connected = thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            become_user(61_001)?;
            connect()
        });
        connecting.join()
    });
    connected.map_err(|_panic| Error::Different("a connection panicked".into()))?
}

fn a_daemon_of_whose_places_a_user_holds_all_that_are_his_serves_others_alone(_: &Context) -> TestResult {
    // The load is of a user, who has so many of the places.
    let loaded = Daemon::start_with(|command| {
        command.args(["--user-connections", &PLACES.to_string()]);
    })?;
    let daemon = Daemon::start()?;
    let mcp = as_user(|| Mcp::connect(&daemon.socket()))?;
    let serves = || -> Result<bool> {
        let mut wire = as_user(|| Wire::connect(&loaded.socket()))?;
        // Who is refused may be told so before the question is out. Its state is told, and its faults are ended, all the same.
        let asked = wire.open();
        Ok(asked.is_ok() && wire.call("chaos_list_experiments", json!({})).is_ok_and(|told| !told.is_null()))
    };
    assert!(serves()?, "it serves nobody before");
    let url = format!("mcp+unix:{}", loaded.socket().display());
    let fault = Fault::new("connection_load").with(json!({"url": url, "sessions": PLACES + 4}));
    fault.inject(&mcp)?;
    // What is held is counted before its first answer is.
    let full = || {
        evidence(&fault, &mcp).is_ok_and(|found| {
            let connections = &found["connections"];
            let no = [&connections["error_answers"], &connections["refused"]];
            let no: u64 = no.iter().filter_map(|count| count.as_u64()).sum();
            found["things_held"] == PLACES && no >= 4 && connections["initialize_ms"]["p50"].is_number()
        })
    };
    assert!(wait_until(HANG, full), "{}", evidence(&fault, &mcp)?);
    let connections = &evidence(&fault, &mcp)?["connections"];
    assert_eq!(connections["empty_answers"], 0, "{connections}");
    assert!(!serves()?, "it serves the user beside those that are held");
    assert!(loaded.mcp()?.tools().is_ok(), "it does not serve others");
    fault.remove(&mcp)?;
    assert!(wait_until(HANG, || serves().unwrap_or(false)), "it serves nobody after");
    Ok(Outcome::Pass)
}

fn connections_are_opened_and_closed_at_the_rate_and_none_lingers(_: &Context) -> TestResult {
    const RATE: u64 = 100;
    let namespace = NetNs::new()?;
    let server = Server::start(&namespace)?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = server.load(&namespace, json!({"connections_per_second": RATE}));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(server.ever(), 0, "somebody connects before");
    fault.inject(&mcp)?;
    let (started, before) = (Instant::now(), server.ever());
    thread::sleep(Duration::from_secs(2));
    let opened = || server.ever() - before;
    assert!(wait_until(HANG, || opened() >= RATE / 2), "{} in {:?}", opened(), started.elapsed());
    // A busy machine opens fewer, never more; but who wakes late has counted for longer.
    let (opened, most) = (opened(), RATE as f64 * started.elapsed().as_secs_f64() * 1.1);
    assert!(opened as f64 <= most, "{opened} in {:?}", started.elapsed());
    assert!(wait_until(HANG, || is_served(&namespace, server.address)), "the workers are free in between");
    let answer = fault.remove(&mcp)?;
    let after = server.ever();
    thread::sleep(Duration::from_millis(300));
    assert_eq!((server.ever(), server.now()), (after, 0), "{answer}");
    assert_eq!(lingering(&namespace, server.address.port())?, 0, "connections linger");
    Ok(Outcome::Pass)
}

fn who_may_not_be_connected_to_is_refused_by_name(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let listener = pair.far.run(|| TcpListener::bind((Pair::FAR_V4, 7000)));
    let listener = listener.map_err(Error::io("bind", "a listener"))?;
    let far = |port: u16| json!({"url": format!("tcp://{}:{port}", Pair::FAR_V4), "sessions": 1});
    let near = json!({"netns": pair.near.name()});
    let load = |params: Value| Fault::new("connection_load").with(params);
    {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let unix = |path: &str| load(json!({"url": format!("unix:{path}"), "sessions": 1}));
        for (fault, words) in [
            (load(far(7000)).aimed(near.clone()), "POLICY_DENIED"),
            (load(json!({"url": "tcp://127.0.0.1:22", "sessions": 1})), "TARGET_PROTECTED"),
            (unix(&daemon.socket().display().to_string()), "TARGET_PROTECTED"),
            (unix("/run/no-such.sock"), "TARGET_NOT_FOUND"),
            (unix("/etc/passwd"), "it is no socket"),
            (load(json!({"url": "http://example.org", "sessions": 1})), "is no address"),
            (load(far(7000)).aimed(json!({"netns": "none-of-this-name"})), "TARGET_NOT_FOUND"),
            // Of this host, as seen from there, but nobody listens.
            (load(far(7001)).aimed(json!({"netns": pair.far.name()})), "Connection refused"),
        ] {
            let answer = fault.inject(&mcp);
            let named = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words));
            assert!(named, "expected {words}, got {answer:?}");
        }
        let own = load(far(7000)).aimed(json!({"netns": pair.far.name()})).named("own");
        assert_eq!(own.inject(&mcp)?["evidence"]["things_held"], 1);
        own.remove(&mcp)?;
    }
    let policy = tempfile::NamedTempFile::new()?;
    std::fs::write(policy.path(), format!("load_cidrs = [\"{}/32\"]", Pair::FAR_V4))?;
    let daemon = Daemon::start_with(|command| {
        command.arg("--policy").arg(policy.path());
    })?;
    let mcp = daemon.mcp()?;
    let allowed = load(far(7000)).aimed(near);
    assert_eq!(allowed.inject(&mcp)?["evidence"]["things_held"], 1);
    allowed.remove(&mcp)?;
    drop(listener);
    Ok(Outcome::Pass)
}

fn a_load_is_of_the_caller_and_comes_nowhere_where_the_caller_could_not(_: &Context) -> TestResult {
    let folder = tempfile::TempDir::with_prefix("chaos-test-")?;
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str, mode: u32| set_permissions(at(name), Permissions::from_mode(mode));
    mode("", 0o755)?;
    create_dir(at("private"))?;
    let open = UnixListener::bind(at("open"))?;
    let _shut = (UnixListener::bind(at("closed"))?, UnixListener::bind(at("private/socket"))?);
    for (name, is) in [("open", 0o666), ("closed", 0o600), ("private/socket", 0o666), ("private", 0o700)] {
        mode(name, is)?;
    }
    symlink("private/socket", at("link"))?;
    let namespace = NetNs::new()?;
    let daemon = Daemon::start_with(|command| {
        command.args(["--socket-group", "nogroup"]);
    })?;
    let socket = format!("--socket={}", daemon.socket().display());
    let load = |url: &str, more: &[&str]| {
        let fault = ["inject", "connection_load", "--url", url, "--sessions=1", "--for=20s", "--name=load"];
        run_as_nobody("chaosctl", &[&[&*socket], &fault[..], more].concat())
    };
    for (name, words) in [
        ("closed", "Permission denied"),
        ("private/socket", "Permission denied"),
        ("link", "Permission denied"),
    ] {
        let output = load(&format!("unix:{}", at(name).display()), &[])?;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(words), "{name}: {text}");
    }
    // Where root's own things are.
    let fd = format!("unix:/proc/{}/fd/3", daemon.injector().map_or(1, |injector| injector.pid));
    assert!(!load(&fd, &[])?.status.success());
    let netns = format!("--netns={}", namespace.name());
    let output = load("tcp://127.0.0.1:1", &[&netns])?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("POLICY_DENIED") && text.contains("process of your own"), "{text}");
    let output = load(&format!("unix:{}", at("open").display()), &[])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (stream, _) = open.accept()?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials).map_err(std::io::Error::from)?;
    assert_eq!((peer.uid(), peer.gid()), (NOBODY, NOBODY));
    assert!(daemon.holders().iter().any(|holder| holder.pid == peer.pid()), "{peer:?}");
    daemon.mcp()?.call_tool("chaos_stop", json!({}))?.ok()?;
    Ok(Outcome::Pass)
}
