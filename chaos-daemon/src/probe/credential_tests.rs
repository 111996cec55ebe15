//! Credentials: what is shown to whom, and that they are shown nowhere else.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::probe::arguments;

const TOKEN: &str = "hunter2-hunter2";

/// Answers every request with `answer`, in which `{}` is the request, and tells what they were.
async fn server(answer: &'static str) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut seen = Vec::new();
            while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
            }
            let mut seen = String::from_utf8(seen).unwrap();
            // All of it, for else the answer is lost with what was not read.
            let length = seen
                .to_lowercase()
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
            let (asked, sent) = seen.split_once("\r\n\r\n").unwrap();
            let mut rest = vec![0; length - sent.len()];
            stream.read_exact(&mut rest).await.unwrap();
            seen.truncate(asked.len() + 4);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let body = body.replace("{}", &seen);
            let length = format!("Content-Length: {}\r\nConnection: close", body.len());
            stream.write_all(format!("{head}\r\n{length}\r\n\r\n{body}").as_bytes()).await.unwrap();
            // Whoever asked may be gone.
            let _ = tell.send(seen);
        }
    });
    (url, told)
}

async fn sample(words: &[&str]) -> Sample {
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    let probe = arguments::read(&words).unwrap();
    assert!(!format!("{probe:?} {}", probe.check).contains("hunter2"), "{probe:?}");
    probe.sample().await
}

fn refused(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    arguments::read(&words).unwrap_err()
}

#[tokio::test]
async fn every_probe_of_an_address_shows_it_and_says_nothing_of_it_even_if_the_server_says_it_back() {
    let echo =
        "HTTP/1.1 403 Forbidden\r\nX-Back: Bearer hunter2-hunter2\r\nContent-Type: text/plain\r\n\r\nno: {}";
    let (url, mut told) = server(echo).await;
    for kind in [
        &["http", &url][..],
        &["latency", "--samples", "1", "--http", &url],
        &["latency", "--samples", "1", "--mcp", &url],
        &["mcp", &url],
        &["prometheus", &url, "up"],
        &["alert", &url],
    ] {
        let seen = sample(&[kind, &["--bearer", TOKEN]].concat()).await;
        let request = told.recv().await.unwrap();
        assert!(
            request.to_lowercase().contains("\r\nauthorization: bearer hunter2-hunter2\r\n"),
            "{request}"
        );
        assert!(!seen.ok && !format!("{seen:?}").contains("hunter2"), "{kind:?}: {seen:?}");
    }
    let seen = sample(&["http", &url, "--bearer", TOKEN]).await;
    let answer = seen.answer.unwrap();
    assert_eq!(answer["headers"]["X-Back"], "Bearer ***", "it was said back");
    let body = answer["body"].as_str().unwrap();
    assert!(body.to_lowercase().contains("authorization: bearer ***"), "{body}");
}

#[tokio::test]
async fn a_refusal_that_is_cut_in_the_middle_of_it_has_no_part_of_it() {
    let answer = r#"HTTP/1.1 200 OK
Content-Type: application/json

{"jsonrpc": "2.0", "id": 2, "result": {"protocolVersion": "2025-06-18", "capabilities": {"a": 1}, "isError": true,
    "serverInfo": {"name": "a", "version": "1"}, "content": [{"type": "text", "text": "CUT"}]}}"#;
    let text = format!("{}{TOKEN}", "x".repeat(192));
    let (url, _told) = server(answer.replace('\n', "\r\n").replace("CUT", &text).leak()).await;
    let seen = sample(&["mcp", &url, "--call", "pay", "--bearer", TOKEN]).await;
    assert!(seen.detail.ends_with("xx***"), "{seen:?}");
    let seen = sample(&["mcp", &url, "--call", "pay", "--bearer", "another"]).await;
    assert!(seen.detail.ends_with("xxhunter2-"), "it is cut: {seen:?}");
}

#[tokio::test]
async fn a_file_has_a_token_or_user_and_password_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credential");
    let path = path.to_str().unwrap();
    let (url, mut told) = server("HTTP/1.1 200 OK\r\n\r\n{}").await;
    std::fs::write(path, format!("{TOKEN}\n")).unwrap();
    assert!(sample(&["http", &url, "--bearer-file", path]).await.ok);
    assert!(told.recv().await.unwrap().to_lowercase().contains("authorization: bearer hunter2-hunter2\r\n"));
    std::fs::write(path, "probe:hunter2: x\n").unwrap();
    let seen = sample(&["http", &url, "--basic-file", path]).await;
    // `printf 'probe:hunter2: x' | base64`
    assert!(told.recv().await.unwrap().contains("Basic cHJvYmU6aHVudGVyMjogeA==\r\n"));
    let said = format!("{seen:?}");
    assert!(seen.ok && !said.contains("hunter2") && !said.contains("cHJvYmU6"), "{said}");
    for (text, option, said) in [
        ("hunter2 hunter2", "--bearer-file", "no token"),
        ("hunter2\r\nX: y", "--bearer-file", "no token"),
        ("", "--bearer-file", "no token"),
        ("hunter2", "--basic-file", "no user and password"),
        (":hunter2", "--basic-file", "no user and password"),
        ("a:hunter2\r\nX: y", "--basic-file", "no user and password"),
    ] {
        std::fs::write(path, text).unwrap();
        let seen = sample(&["http", &url, option, path]).await;
        assert!(!seen.ok && seen.detail.contains(path) && seen.detail.contains(said), "{seen:?}");
        assert!(!seen.detail.contains("hunter2"), "{seen:?}");
    }
    std::fs::remove_file(path).unwrap();
    let seen = sample(&["prometheus", &url, "up", "--bearer-file", path]).await;
    assert!(!seen.ok && seen.detail.contains("cannot be read"), "{seen:?}");
    assert!(told.try_recv().is_err(), "nothing is asked without it");
}

#[tokio::test]
async fn nobody_is_shown_it_to_whom_an_answer_leads() {
    let (other, mut elsewhere) = server("HTTP/1.1 200 OK\r\n\r\n{}").await;
    let moved = format!("HTTP/1.1 307 Moved\r\nLocation: {other}/api/v1/query\r\n\r\n");
    let (url, mut told) = server(moved.leak()).await;
    for kind in [&["http", &url][..], &["mcp", &url], &["prometheus", &url, "up"], &["alert", &url]] {
        let seen = sample(&[kind, &["--basic", "probe:hunter2"]].concat()).await;
        assert!(!seen.ok && seen.detail.contains("307"), "{seen:?}");
        assert!(told.recv().await.unwrap().contains("Basic "));
    }
    assert!(elsewhere.try_recv().is_err());
}

#[test]
fn what_is_entrusted_to_the_prober_is_shown_at_its_origins_alone() {
    let origins = [Origin::of("https://p.test:9090").unwrap()].into();
    let given = Entrusted { origins, text: Ok(TOKEN.to_owned()) };
    assert!(!format!("{given:?}").contains("hunter2"));
    let at = |url: &str| entrusted(Some(&given), "/etc/t", url);
    assert_eq!(at("https://p.test:9090/api/v1/query"), Ok(TOKEN.to_owned()));
    for url in ["http://p.test:9090", "https://p.test", "https://q.test:9090", "https://p.test:9090@q.test"] {
        let problem = at(url).unwrap_err();
        assert!(problem.contains("/etc/t may not be shown") && !problem.contains("hunter2"), "{problem}");
    }
    // Whoever asks the prober may not have looked.
    let file = Credential { scheme: Scheme::Bearer, source: Box::new(Source::File("/etc/t".to_owned())) };
    assert!(file.header("https://p.test:9090", &Trust::Anyone).unwrap_err().contains("--no-verify-tls"));
    assert!(entrusted(None, "/etc/t", "https://p.test:9090").unwrap_err().contains("not among"));
    let unread = Entrusted { text: Err("/etc/t cannot be read".to_owned()), ..given.clone() };
    assert!(
        entrusted(Some(&unread), "/etc/t", "https://p.test:9090").unwrap_err().contains("cannot be read")
    );
}

#[tokio::test]
async fn a_secret_that_was_not_shown_hides_nothing_and_a_time_without_answer_says_nothing_of_it() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for kind in [&["http", &url][..], &["mcp", &url], &["prometheus", &url, "up"]] {
        let seen = sample(&[kind, &["--bearer", TOKEN, "--timeout", "300ms"]].concat()).await;
        assert!(!seen.ok && seen.detail.contains("no answer within 300ms"), "{seen:?}");
        assert!(!format!("{seen:?}").contains("hunter2"), "{seen:?}");
    }
}

#[test]
fn what_makes_no_sense_is_named_and_not_repeated() {
    let url = "https://127.0.0.1:9090";
    for (words, option) in [
        (&["http", url, "--bearer", "hunter2 hunter2"][..], "--bearer"),
        (&["prometheus", url, "up", "--basic", "hunter2"], "--basic"),
        (&["alert", url, "--bearer-file", "etc/token"], "--bearer-file"),
        (&["alert", url, "--bearer-file", "/etc/../token"], "--bearer-file"),
        (&["alert", url, "--basic-file", "/etc/token", "--no-verify-tls"], "--basic-file"),
        (&["alert", "--webhook", "--bearer", "hunter2"], "--bearer"),
        (&["latency", "--tcp", "127.0.0.1:1", "--bearer", "hunter2"], "--bearer"),
        (&["mcp", "--bearer", "hunter2", "--", "/bin/true"], "--bearer"),
        (&["http", url, "--header", "authorization: hunter2", "--bearer", "hunter2"], "--bearer"),
    ] {
        let problem = refused(words);
        assert!(problem.contains(option) && !problem.contains("hunter2"), "{words:?}: {problem}");
    }
    let problem = refused(&["http", url, "--bearer", "a", "--basic-file", "/b"]);
    assert!(problem.contains("--b"), "{problem}");
}
