//! Connections in every language that they are held in: how many there are is the server's to say, and what of it the kernel
//! shows.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{Context, ENDS, Taking, TestResult, tests};
use crate::fault::Fault;
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::{Error, NetNs, Result};

tests![
    plain_connections_are_open_while_the_fault_lasts_and_closed_after_it,
    connections_to_a_socket_of_the_file_system_are_open_while_the_fault_lasts_and_closed_after_it,
    sessions_of_mcp_over_http_are_begun_and_open_while_the_fault_lasts_and_closed_after_it,
];

const SESSIONS: u64 = 12;

/// How many connections there are, by those who serve them.
#[derive(Debug, Clone, Default)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Serves one on a thread of its own, until its client has gone.
    fn serve<S: Send + 'static>(&self, stream: S, serve: fn(S)) {
        let count = self.clone();
        count.0.fetch_add(1, Ordering::Relaxed);
        thread::spawn(move || {
            serve(stream);
            count.0.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// A server of a namespace, which serves everybody at once.
fn listen(namespace: &NetNs, serve: fn(TcpStream)) -> Result<(SocketAddr, Count)> {
    let bound = namespace.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listener = bound.map_err(Error::io("bind", "a listener"))?;
    let address = listener.local_addr().map_err(Error::io("ask", "a listener"))?;
    let count = Count::default();
    let counting = count.clone();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| counting.serve(stream, serve)));
    Ok((address, count))
}

/// Says nothing, until the client has gone.
fn silent(mut stream: impl Read) {
    while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
}

/// Ends of connections to a server that the kernel shows as established (01 in proc_net_tcp).
fn established(namespace: &NetNs, port: u16) -> Result<u64> {
    let table = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/tcp"));
    let table = table.map_err(Error::io("read", "/proc/thread-self/net/tcp"))?;
    let server = format!(":{port:04X}");
    let counts = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next().is_some_and(|remote| remote.ends_with(&server)) && words.next() == Some("01")
    };
    Ok(table.lines().filter(counts).count() as u64)
}

fn load(url: String) -> Fault {
    Fault::new("connection_load").with(json!({"url": url, "sessions": SESSIONS, "timeout_ms": 2000}))
}

/// What is held is opened in the background: a moment is given to it.
fn settled(count: impl Fn() -> Result<u64>, holder: Option<&Process>) -> Result<u64> {
    if let Some(holder) = holder {
        wait_until(HANG, || !holder.runs() || count().is_ok_and(|count| count == SESSIONS));
    }
    count()
}

/// Both the server and the kernel see so many.
fn held(namespace: &NetNs, (address, count): (SocketAddr, Count), url: String) -> TestResult {
    let seen = || match (count.now(), established(namespace, address.port())?) {
        (served, shown) if served == shown => Ok(served),
        (served, shown) => Err(Error::Different(format!("{served} are served, and {shown} shown"))),
    };
    let used = |holder: Option<&Process>| settled(seen, holder);
    let fault = load(url).aimed(json!({"netns": namespace.name()}));
    Ok(Taking { fault, used: &used, asked: SESSIONS, give: 0 }.ends(ENDS)?)
}

fn plain_connections_are_open_while_the_fault_lasts_and_closed_after_it(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let server = listen(&namespace, silent)?;
    let url = format!("tcp://{}", server.0);
    held(&namespace, server, url)
}

fn connections_to_a_socket_of_the_file_system_are_open_while_the_fault_lasts_and_closed_after_it(
    _: &Context,
) -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("server.sock");
    let listener = UnixListener::bind(&path)?;
    let count = Count::default();
    let counting = count.clone();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| counting.serve(stream, silent)));
    let used = |holder: Option<&Process>| settled(|| Ok(count.now()), holder);
    let fault = load(format!("unix:{}", path.display()));
    Ok(Taking { fault, used: &used, asked: SESSIONS, give: 0 }.ends(ENDS)?)
}

/// Reads a request, head and body; empty at the end.
fn request(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut buffer).unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        let Some((head, body)) = text.split_once("\r\n\r\n").filter(|_| length > 0) else {
            if length == 0 {
                return String::new();
            }
            continue;
        };
        let head = head.to_ascii_lowercase();
        let wanted = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if body.len() >= wanted.unwrap_or(0) {
            return text;
        }
    }
}

/// An MCP server of one tool, by streamable HTTP.
fn tools(mut stream: TcpStream) {
    loop {
        let text = request(&mut stream);
        let Some((_, body)) = text.split_once("\r\n\r\n") else { return };
        let message: Value = serde_json::from_str(body).unwrap_or_default();
        let result = match message["method"].as_str() {
            Some("initialize") => {
                json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"}})
            }
            Some("tools/list") => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
            _ => Value::Null,
        };
        let said = match result {
            Value::Null => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
            result => {
                let said = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s";
                format!("{head}\r\nContent-Length: {}\r\n\r\n{said}", said.len())
            }
        };
        if stream.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

fn sessions_of_mcp_over_http_are_begun_and_open_while_the_fault_lasts_and_closed_after_it(
    _: &Context,
) -> TestResult {
    let namespace = NetNs::new()?;
    let server = listen(&namespace, tools)?;
    let url = format!("mcp+http://{}/mcp", server.0);
    held(&namespace, server, url)
}
