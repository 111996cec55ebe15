//! What is counted, against servers that answer as they should, with nothing, with an error, or not at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use super::*;
use crate::request::evidence::ConnectionEvidence;
use crate::waits::{HANG, wait_for};

/// The time of those who never answer.
const SHORT: Duration = Duration::from_millis(300);

/// Serves every connection with `serve`, on a thread each, until the test's process ends.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address.to_string()
}

fn open(url: &str, amount: Amount, limit: Duration) -> io::Result<Sessions> {
    Sessions::open(&Server::parse(url).unwrap(), amount, limit, &SparedSockets::default())
}

/// Takes steps until something is known of `count` attempts, and says how many are held and what was counted.
fn counted(url: &str, amount: Amount, count: u64) -> (u64, ConnectionEvidence) {
    counted_within(HANG, url, amount, count)
}

/// The same, of answers that may take so long.
fn counted_within(limit: Duration, url: &str, amount: Amount, count: u64) -> (u64, ConnectionEvidence) {
    let mut sessions = open(url, amount, limit).unwrap();
    wait_for(|| {
        sessions.take(sessions.goal()).unwrap();
        sessions.terms.tally.concluded() >= count
    });
    thread::sleep(FRESH_ENOUGH);
    let found = sessions.found();
    (found.things_held, found.connections)
}

/// Percentiles are worked out anew after a quarter of a second.
const FRESH_ENOUGH: Duration = Duration::from_millis(300);

/// Reads a request, head and body, off a stream; empty at its end.
fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer).unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let field = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned));
        let wanted: usize = field.and_then(|field| field.trim().parse().ok()).unwrap_or(0);
        if length == 0 || (text.contains("\r\n\r\n") && body.len() >= wanted) {
            return text;
        }
    }
}

/// An HTTP server that always says the same.
fn says(response: &'static str) -> String {
    listen(move |mut stream| {
        while !request(&mut stream).is_empty() {
            let _ = stream.write_all(response.as_bytes());
        }
    })
}

#[test]
fn connections_are_held_and_a_server_that_closes_them_unsaid_has_answered_with_nothing() {
    let open = listen(|mut stream| drop(stream.read(&mut [0; 8])));
    let (held, found) = counted(&format!("tcp://{open}"), Amount::Held(50), 50);
    assert_eq!((held, found.opened, found.refused), (50, 50, 0), "{found:?}");
    assert!(found.connect.is_some() && found.first_byte.is_none(), "{found:?}");
    let closing = listen(drop);
    let (held, found) = counted(&format!("tcp://{closing}"), Amount::Held(3), 6);
    assert!(held == 0 && found.empty_answers >= 3, "{found:?}");
}

#[test]
fn nobody_who_listens_is_no_load_and_no_session() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let mut sessions = open(&url, Amount::Held(5), HANG).unwrap();
    drop(listener);
    for _ in 0..5 {
        sessions.take(5).unwrap();
    }
    let evidence = sessions.found();
    assert_eq!((evidence.things_held, evidence.shortfall), (0, Some(Shortfall::Exhausted)));
    assert!(evidence.connections.refused >= 5, "{evidence:?}");
    let error = open(&url, Amount::Held(5), HANG).unwrap_err().to_string();
    assert!(error.contains("connect to 127.0.0.1 port") && error.contains("refused"), "{error}");
}

#[test]
fn an_answer_is_good_empty_or_an_error_by_its_status_and_body() {
    for (response, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "held"),
        ("HTTP/1.1 204 No Content\r\n\r\n", "held"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "empty"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "empty"),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", "error"),
        ("no HTTP\r\n\r\n", "error"),
        ("", "late"),
    ] {
        let limit = if expected == "late" { SHORT } else { HANG };
        let url = format!("http://{}/x", says(response));
        let (held, found) = counted_within(limit, &url, Amount::Held(2), 2);
        let seen = match (held, found) {
            (2, ConnectionEvidence { opened: 2, .. }) => "held",
            (0, ConnectionEvidence { empty_answers: 2.., .. }) => "empty",
            (0, ConnectionEvidence { error_answers: 2.., .. }) => "error",
            (0, ConnectionEvidence { timeouts: 2.., .. }) => "late",
            _ => "something else",
        };
        assert_eq!(seen, expected, "{response:?}: {held} held, {found:?}");
    }
    let closing = listen(|mut stream| drop(request(&mut stream)));
    let (_, found) = counted(&format!("http://{closing}"), Amount::Held(1), 1);
    assert_eq!(found.empty_answers, 1, "{found:?}");
}

#[test]
fn connections_are_opened_and_closed_at_the_rate() {
    let server = says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut sessions = open(&format!("http://{server}"), Amount::PerSecond(100), HANG).unwrap();
    let start = Instant::now();
    wait_for(|| {
        sessions.take(100).unwrap();
        sessions.found().connections.opened >= 50
    });
    let evidence = sessions.found();
    let (found, took) = (evidence.connections, start.elapsed());
    // A busy machine does fewer, never more.
    assert!(found.opened as f64 <= took.as_secs_f64() * 100.0 + 5.0, "{found:?} in {took:?}");
    assert_eq!((evidence.things_held, evidence.shortfall), (0, None));
}

/// The JSON-RPC answer of a small MCP server with these tools.
fn mcp_answer(message: &str, tools: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let result = match message["method"].as_str()? {
        "initialize" => r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#.to_owned(),
        "tools/list" => format!(r#"{{"tools":{tools}}}"#),
        _ => return None,
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message["id"]))
}

/// An MCP server over HTTP, whose answers are JSON or a stream of events; counts the sessions that were ended by DELETE.
fn posts(tools: &'static str, events: bool, ended: &Arc<std::sync::atomic::AtomicU64>) -> String {
    let ended = Arc::clone(ended);
    listen(move |mut stream| {
        loop {
            let text = request(&mut stream);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { return };
            if head.starts_with("DELETE") && head.contains("mcp-session-id: s7") {
                ended.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            let answer = match mcp_answer(body, tools) {
                Some(answer) if events => {
                    let body = format!("event: message\ndata: {answer}\n\n");
                    format!("Content-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                }
                Some(answer) => {
                    format!(
                        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
                        answer.len()
                    )
                }
                None => "Content-Length: 0\r\n\r\n".to_owned(),
            };
            let status = if answer.starts_with("Content-Length: 0") { "202 Accepted" } else { "200 OK" };
            let _ =
                stream.write_all(format!("HTTP/1.1 {status}\r\nMcp-Session-Id: s7\r\n{answer}").as_bytes());
        }
    })
}

#[test]
fn an_mcp_session_over_http_is_held_and_ended_by_delete() {
    for events in [false, true] {
        let ended = Arc::default();
        let url = format!("mcp+http://{}/mcp", posts(r#"[{"name":"t"}]"#, events, &ended));
        let (held, found) = counted(&url, Amount::Held(4), 4);
        assert_eq!((held, found.opened), (4, 4), "{found:?}");
        assert!(found.initialize.is_some() && found.first_byte.is_some(), "{found:?}");
        assert_eq!(ended.load(std::sync::atomic::Ordering::Relaxed), 4);
    }
}

#[test]
fn a_list_without_tools_is_an_empty_answer() {
    let url = format!("mcp+http://{}/mcp", posts("[]", false, &Arc::default()));
    let (held, found) = counted(&url, Amount::Held(2), 2);
    assert!(held == 0 && found.empty_answers >= 2, "{found:?}");
}

#[test]
fn an_mcp_session_over_lines_is_held_and_a_refusal_in_its_place_is_an_error_answer() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        // The first is the look whether somebody is there.
        for (number, stream) in listener.incoming().flatten().enumerate() {
            thread::spawn(move || serve_lines(stream, number > 3));
        }
    });
    fn serve_lines(mut stream: UnixStream, full: bool) {
        if full {
            let refusal =
                "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"full\"}}\n";
            let _ = stream.write_all(refusal.as_bytes());
            return;
        }
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if let Some(answer) = mcp_answer(&line, r#"[{"name":"t"}]"#) {
                let _ = writeln!(stream, "{answer}");
            }
        }
    }
    let (held, found) = counted(&format!("mcp+unix:{}", path.display()), Amount::Held(5), 5);
    assert_eq!((held, found.opened, found.error_answers), (3, 3, 2), "{found:?}");
}

#[test]
fn a_path_is_followed_at_each_connection_and_never_to_a_socket_that_is_spared() {
    let folder = tempfile::tempdir().unwrap();
    let (path, own) = (folder.path().join("a"), folder.path().join("own"));
    let (listener, spared) = (UnixListener::bind(&path).unwrap(), UnixListener::bind(&own).unwrap());
    spared.set_nonblocking(true).unwrap();
    let server = Server::parse(&format!("unix:{}", path.display())).unwrap();
    let mut sessions = Sessions::open(&server, Amount::Held(3), HANG, &SparedSockets::look(&own)).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&own, &path).unwrap();
    for _ in 0..5 {
        sessions.take(3).unwrap();
    }
    let evidence = sessions.found();
    let refused = evidence.connections.refused;
    assert!(evidence.things_held == 0 && refused >= 3, "{evidence:?}");
    assert_eq!(spared.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    // A server that starts again makes its socket anew.
    std::fs::remove_file(&path).unwrap();
    drop(listener);
    let _again = UnixListener::bind(&path).unwrap();
    wait_for(|| {
        sessions.take(3).unwrap();
        sessions.found().things_held == 3
    });
}
