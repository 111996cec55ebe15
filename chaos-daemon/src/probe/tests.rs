//! Tests of the checks of addresses and ports, and of what all samples have.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::waits::HANG as PATIENCE;

fn probe(check: Check) -> Probe {
    Probe { check, timeout: PATIENCE, bounds: Bounds::default() }
}

/// Answers one request with `response`, or with nothing.
async fn http_server(response: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(response.as_bytes()).await.unwrap();
        tokio::time::sleep(if response.is_empty() { 2 * PATIENCE } else { Duration::ZERO }).await;
    });
    format!("http://{address}/health")
}

#[tokio::test]
async fn the_status_decides_about_an_http_probe() {
    for (response, status, ok) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", vec![], true),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", vec![], false),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", vec![503], true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", vec![204], false),
        ("", vec![], false),
    ] {
        let url = http_server(response).await;
        let probe = probe(Check::http("url", &url, status).unwrap());
        // Who says nothing need not be waited for so long.
        let timeout = if response.is_empty() { Duration::from_millis(300) } else { PATIENCE };
        let sample = Probe { timeout, ..probe }.sample().await;
        assert_eq!(sample.ok, ok, "{response:?}: {sample:?}");
        assert!(sample.took < PATIENCE, "{sample:?}");
    }
}

#[tokio::test]
async fn an_answer_is_kept_with_status_headers_and_body() {
    let json = "HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"up\": 1} ";
    let url = http_server(json).await;
    let sample = probe(Check::http("url", &url, vec![]).unwrap()).sample().await;
    let answer = sample.answer.unwrap();
    assert_eq!((&answer["status"], &answer["body"]), (&json!(500), &json!({"up": 1})));
    assert_eq!(
        (&answer["headers"]["Content-Type"], &answer["text"]),
        (&json!("application/json"), &json!("{\"up\": 1} "))
    );
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let sample = probe(Check::http("url", &http_server(text).await, vec![]).unwrap()).sample().await;
    assert_eq!(sample.answer.unwrap()["body"], "hi");
    // One that stops in the middle is none.
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi";
    let sample = probe(Check::http("url", &http_server(half).await, vec![]).unwrap()).sample().await;
    assert!(!sample.ok && sample.answer.is_none(), "{sample:?}");
}

#[tokio::test]
async fn a_body_that_is_nested_too_deep_to_be_handed_on_is_text() {
    for (depth, is_text) in [(99, false), (100, true), (126, true)] {
        let body = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
        let response = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        let url = http_server(response.leak()).await;
        let sample = probe(Check::http("url", &url, vec![]).unwrap()).sample().await;
        assert!(sample.ok, "{sample:?}");
        assert_eq!(sample.answer.unwrap()["body"].is_string(), is_text, "{depth}");
    }
}

#[test]
fn what_came_back_too_deep_to_be_handed_on_is_said_and_left_out() {
    let probe = probe(Check::tcp("address", "127.0.0.1:9").unwrap());
    for (depth, ok) in [(100, true), (101, false), (126, false)] {
        let answer = (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
        let seen = Seen { answer: Some(answer), ..Seen::measured(1.0, "seen".to_owned()) };
        let sample = probe.judge(seen, Duration::ZERO);
        assert_eq!((sample.ok, sample.answer.is_some()), (ok, ok), "{depth}");
        assert_eq!(sample.detail.contains("more than 100 levels deep"), !ok, "{}", sample.detail);
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_is_none_and_not_half_of_it() {
    let length = usize::try_from(http::LARGEST_BODY).unwrap() + 1;
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
    let sample = probe(Check::http("url", &http_server(long.leak()).await, vec![]).unwrap()).sample().await;
    assert!(sample.ok, "{sample:?}");
    assert_eq!(sample.answer.unwrap()["body"], Value::Null);
}

#[tokio::test]
async fn what_is_sent_arrives() {
    let arguments = vec![("a b".to_owned(), "1&2".to_owned())];
    let headers = vec![("X-Token".to_owned(), "t".to_owned())];
    for (method, body, expected) in [
        (http::Method::Get, None, "GET /health?a%20b=1%262 HTTP/1.1\r\n"),
        (http::Method::Head, None, "HEAD /health?a%20b=1%262 HTTP/1.1\r\n"),
        (http::Method::Post, None, "\r\n\r\na+b=1%262"),
        (http::Method::Post, Some("{}".to_owned()), "\r\n\r\n{}"),
    ] {
        let (url, request) = http_echo().await;
        let asked = http::Request {
            url,
            method,
            headers: headers.clone(),
            arguments: arguments.clone(),
            body,
            ..http::Request::default()
        };
        let sample = probe(Check::request("url", asked, vec![]).unwrap()).sample().await;
        let request = request.await.unwrap();
        assert!(sample.ok && request.contains(expected), "{request:?}");
        assert!(request.to_lowercase().contains("x-token: t"), "{request:?}");
    }
}

#[tokio::test]
async fn an_address_is_sent_as_it_can_be_and_shown_as_it_was_written() {
    let (url, request) = http_echo().await;
    let url = format!("{}?query=sum(rate(x{{job=\"a\"}}[1m])) > 0", url.replace("http://", "HTTP://"));
    let sample = probe(Check::http("url", &url, vec![]).unwrap()).sample().await;
    let request = request.await.unwrap();
    let expected = "GET /health?query=sum(rate(x%7Bjob=%22a%22%7D%5B1m%5D))%20%3E%200 HTTP/1.1\r\n";
    assert!(sample.ok && request.contains(expected), "{request:?} {}", sample.detail);
    assert!(sample.detail.contains("{job=\"a\"}[1m]"), "{}", sample.detail);
}

#[test]
fn a_request_is_understood_and_what_cannot_be_sent_is_named_and_not_repeated() {
    let parse = |method, header: &str, body: Option<&str>| {
        let headers = [header.to_owned()];
        http::Request::parse(
            "http://x/".into(),
            method,
            &headers,
            body.map(str::to_owned),
            trust::Trust::Host,
        )
    };
    let request = parse(Some("post"), "X-Token:  a:b ", Some("{}")).unwrap();
    assert_eq!((request.method, request.body.as_deref()), (http::Method::Post, Some("{}")));
    assert_eq!(request.headers, [("X-Token".to_owned(), "a:b".to_owned())]);
    assert_eq!(parse(None, "A:", None).unwrap().method, http::Method::Get);
    for (method, header, body, field) in [
        (Some("PUT"), "A: b", None, "--method"),
        (None, "A: b", Some("{}"), "--body"),
        (Some("HEAD"), "A: b", Some(""), "--body"),
        (None, "hunter2", None, "--header"),
        (None, "A b: hunter2", None, "--header"),
        (None, ": hunter2", None, "--header"),
        (None, "A: hunter2\r\nB: c", None, "--header"),
    ] {
        let error = parse(method, header, body).unwrap_err();
        assert_eq!(error.field, field, "{method:?} {header:?}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

/// Whether a request has come with as much of a body as its head says.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// Answers one request, and tells what it was.
async fn http_echo() -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        // A body may come by itself.
        while !is_whole(&String::from_utf8_lossy(&seen)) {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        String::from_utf8(seen).unwrap()
    });
    (url, request)
}

#[tokio::test]
async fn a_tcp_probe_tells_open_from_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert!(probe(Check::tcp("address", &address).unwrap()).sample().await.ok);
    // Bound and not listening: refuses, and nobody else gets the port meanwhile.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let closed = probe(Check::tcp("address", &address).unwrap()).sample().await;
    assert!(!closed.ok && closed.detail.contains("refused"), "{closed:?}");
}

#[test]
fn an_address_that_cannot_be_probed_is_named_before_anything_runs() {
    assert!(Check::http("url", "https://example.org", vec![]).is_ok());
    assert!(Check::http("url", "HTTP://example.org/a b?q={}", vec![]).is_ok());
    for bad in ["", "http://", "https://", "ftp://x", "http:///x", "https:///x", "http://a b", "//x"] {
        assert!(Check::http("url", bad, vec![]).is_err(), "{bad:?} was accepted");
    }
    for bad in ["", "host", ":80", "host:0", "host:65536", "host:http"] {
        assert!(Check::tcp("tcp", bad).is_err(), "{bad:?} was accepted");
    }
    assert_eq!(
        Check::tcp("t", "[::1]:80").unwrap(),
        Check::Tcp(tcp::Connection { host: "::1".into(), port: 80 })
    );
}

#[tokio::test]
async fn a_value_out_of_bounds_is_not_as_it_should_be_and_stays_a_value() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let bounded = |min, max| Probe {
        bounds: Bounds::new(min, max).unwrap(),
        ..probe(Check::tcp("address", &address).unwrap())
    };
    assert!(bounded(None, Some(20_000.0)).sample().await.ok);
    let slow = bounded(None, Some(0.0)).sample().await;
    assert!(!slow.ok && slow.value.is_some() && slow.detail.contains("at most 0 is right"), "{slow:?}");
    let fast = bounded(Some(60_000.0), None).sample().await;
    assert!(!fast.ok && fast.detail.contains("at least 60000 is right"), "{fast:?}");
    assert_eq!(Bounds::new(Some(2.0), Some(1.0)).unwrap_err().field, "--max");
    assert_eq!(Bounds::new(Some(f64::NAN), None).unwrap_err().field, "--min");
}
