//! A search with real faults: how many sessions a pool of connections bears, also across the death of the server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::late::HANG;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, NetNs, Residue, Result};

tests![a_search_finds_how_many_sessions_a_pool_bears_though_the_server_is_killed_in_its_midst];

/// How many connections the objective allows.
const BEARS: u64 = 12;
/// How long a whole search may take.
const SEARCH: Duration = Duration::from_secs(240);

/// A server of connections, each served by a thread until it is closed, and a Prometheus that says how many there are.
struct Pool {
    address: SocketAddr,
    prometheus: SocketAddr,
}

impl Pool {
    fn start(namespace: &NetNs) -> Result<Self> {
        let bound = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let wrong = |what| Error::io(what, "a listener");
        let (pool, tells) = (namespace.run(bound).map_err(wrong("bind"))?, bound().map_err(wrong("bind"))?);
        let (address, prometheus) =
            (pool.local_addr().map_err(wrong("ask"))?, tells.local_addr().map_err(wrong("ask"))?);
        let open = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&open);
        thread::spawn(move || {
            for stream in pool.incoming().flatten() {
                let open = Arc::clone(&open);
                thread::spawn(move || {
                    open.fetch_add(1, Ordering::Relaxed);
                    answer(stream, |_| ("text/plain", "ok".to_owned()));
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        thread::spawn(move || {
            for stream in tells.incoming().flatten() {
                let open = Arc::clone(&counted);
                thread::spawn(move || answer(stream, |_| ("application/json", sample(&open))));
            }
        });
        Ok(Self { address, prometheus })
    }
}

/// The answer to a query: how many are open.
fn sample(open: &AtomicU64) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs());
    let result = json!([now, open.load(Ordering::Relaxed).to_string()]);
    json!({"status": "success", "data": {"resultType": "scalar", "result": result}}).to_string()
}

/// Answers each request with what `body` says, until the client has gone.
fn answer(mut stream: TcpStream, body: impl Fn(&[u8]) -> (&'static str, String)) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        let (kind, body) = body(&buffer[..read]);
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

fn document(namespace: &NetNs, pool: &Pool) -> Value {
    let chaosctl = |arguments: Value| json!({"type": "process", "path": "chaosctl", "arguments": arguments});
    let open = chaosctl(json!(["probe", "prometheus", format!("http://{}", pool.prometheus), "open"]));
    json!({
        "title": "pool",
        "description": "How many sessions a pool bears.",
        "steady-state-hypothesis": {"title": "there are sockets", "probes": [{"type": "probe", "name": "sockets",
            "tolerance": 0, "provider": chaosctl(json!(["probe", "sockets", "all", "--min", 0]))}]},
        "method": [{"type": "action", "name": "load", "provider": chaosctl(json!({"inject": "connection-load",
            "--netns": namespace.name(), "--url": format!("http://{}/", pool.address), "--sessions": 1, "--for": "1500ms"}))}],
        "rollbacks": [],
        "extensions": [{"name": "chaos-daemon",
            "rollback_on": [{"name": "open", "provider": open, "op": "gt", "value": BEARS, "interval": "200ms"}],
            "search": {"parameters": [{"action": "load", "parameter": "sessions", "from": 1, "to": 64, "whole": true, "step": 1}],
                "objective": ["open"], "repeats": 2, "seed": 7, "budget": {"runs": 40, "time": "10m", "recovery": "500ms"}}}],
    })
}

fn status(mcp: &Mcp) -> Result<Value> {
    let asked = json!({"action": "status", "name": "pool"});
    Ok(mcp.call_tool("chaos_search", asked)?.ok()?["searches"][0].clone())
}

fn steps(search: &Value) -> Vec<Value> {
    search["steps"].as_array().cloned().unwrap_or_default()
}

fn a_search_finds_how_many_sessions_a_pool_bears_though_the_server_is_killed_in_its_midst(
    _: &Context,
) -> TestResult {
    let namespace = NetNs::new()?;
    let pool = Pool::start(&namespace)?;
    let before = Residue::take(&[&namespace])?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    mcp.call_tool("chaos_register_experiment", document(&namespace, &pool))?.ok()?;
    mcp.call_tool("chaos_search", json!({"action": "start", "name": "pool"}))?.ok()?;
    let mut midst = Vec::new();
    let in_a_run = || {
        midst = status(&mcp).map(|search| steps(&search)).unwrap_or_default();
        midst.len() == 3 && midst[2]["run_id"].is_string() && midst[2]["seconds"].is_null()
    };
    assert!(wait_until(HANG, in_a_run), "{}", daemon.log());
    daemon.server().ok_or("no server")?.signal(Signal::SIGKILL);
    let mcp = daemon.mcp_again()?;
    let mut found = Value::Null;
    let ended = wait_until(SEARCH, || {
        found = status(&mcp).unwrap_or_default();
        found["state"].as_str().is_some_and(|state| state != "going_on")
    });
    assert!(ended && found["state"] == "found", "{found:#}\n{}", daemon.log());
    let all = steps(&found);
    assert_eq!(all[..2], midst[..2], "no step is lost");
    assert_eq!((&all[2]["run_id"], &all[2]["no_data"]), (&midst[2]["run_id"], &json!("interrupted")));
    let best = found["best"]["candidate"].as_str().unwrap_or_default();
    let least = format!("load sessions {}, for 1.5s", BEARS + 1);
    assert_eq!(best, least, "{found:#}");
    drop(daemon);
    before.assert_unchanged_within(&[&namespace], HANG)?;
    Ok(Outcome::Pass)
}
