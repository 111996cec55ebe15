//! The listener at which alerts are told: `POST /alerts`, one request a connection.
//!
//! Anybody who gets to it may speak, so that everything is bounded: connections, time, head and body. Who has to be known
//! by a token is asked for it before the body is read.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Alert;
use super::notification::Notification;
use super::record::Record;
use crate::probe::Seen;

/// Where notifications are sent.
const PATH: &str = "/alerts";
/// Connections that are served at once; others wait for their turn in the kernel.
const MOST_CONNECTIONS: usize = 16;
/// How long the head of a request may take, and how long all of it.
const HEAD_TIME: Duration = Duration::from_secs(3);
const WHOLE_TIME: Duration = Duration::from_secs(10);
/// The most of both, in bytes.
const LARGEST_HEAD: usize = 16 * 1024;
const LARGEST_NOTIFICATION: usize = 1024 * 1024;
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);

/// What those who tell have to have, as its SHA-256: that is compared, and nothing can be learnt from how long it takes.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// The token of this text.
    pub fn new(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Whether it is what a request brings (RFC 6750).
    fn is_brought(&self, head: &HeaderMap) -> bool {
        let brought = head.get(header::AUTHORIZATION).map_or(&[][..], HeaderValue::as_bytes);
        let (scheme, token) = brought.split_at_checked(b"Bearer ".len()).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(token).into();
        let differs = self.0.iter().zip(digest).fold(0, |differs, (ours, theirs)| differs | (ours ^ theirs));
        scheme.eq_ignore_ascii_case(b"Bearer ") && differs == 0
    }
}

/// The listener, and what it was told.
pub struct Webhook {
    listener: TcpListener,
    desk: Arc<Desk>,
}

/// Answers for what was told, wherever the listener is.
#[derive(Clone)]
pub struct Hearsay(Arc<Desk>);

struct Desk {
    token: Option<Token>,
    record: Mutex<Record>,
}

/// Why a notification is not taken.
struct Refusal(StatusCode, String);

impl Webhook {
    /// Takes over a listening socket. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the socket is of no use.
    pub fn new(listener: std::net::TcpListener, token: Option<Token>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let record = Mutex::new(Record::new(Timestamp::now()));
        Ok(Self { listener: TcpListener::from_std(listener)?, desk: Arc::new(Desk { token, record }) })
    }

    /// What it is told, from now on.
    pub fn hearsay(&self) -> Hearsay {
        Hearsay(Arc::clone(&self.desk))
    }

    /// Listens for ever.
    pub async fn listen(self) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        // Nobody closes it.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let desk = Arc::clone(&self.desk);
                    tokio::spawn(async move {
                        desk.serve(stream).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept who tells of an alert");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

impl Hearsay {
    /// What `alert` asks, as far as it was told of.
    pub(in crate::probe) fn seen(&self, alert: &Alert) -> Seen {
        self.0.record().seen(alert, Timestamp::now())
    }
}

impl Desk {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, stream: TcpStream) {
        let service =
            service_fn(|request| async move { Ok::<_, Infallible>(answer(self.hear(request).await)) });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
        builder.max_buf_size(LARGEST_HEAD).keep_alive(false);
        // It may be anybody: what is wrong with a connection is told to who has it, by closing it.
        match timeout(WHOLE_TIME, builder.serve_connection(TokioIo::new(stream), service)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "who would tell of alerts does not speak HTTP"),
            Err(_) => tracing::debug!("who would tell of alerts is too slow"),
        }
    }

    /// Takes a notification; returns of how many alerts it was.
    async fn hear<B>(&self, request: Request<B>) -> Result<usize, Refusal>
    where
        B: Body<Error = hyper::Error>,
    {
        let (head, body) = request.into_parts();
        self.check(&head)?;
        let too_large = || {
            let most = LARGEST_NOTIFICATION / 1024;
            Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("more than {most} KiB: set max_alerts"))
        };
        if body.size_hint().lower() > LARGEST_NOTIFICATION as u64 {
            return Err(too_large());
        }
        let body = Limited::new(body, LARGEST_NOTIFICATION).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_large(),
            false => Refusal(StatusCode::BAD_REQUEST, format!("the body has no end: {error}")),
        })?;
        let notification = Notification::parse(&body.to_bytes());
        let notification = notification.map_err(|problem| Refusal(StatusCode::BAD_REQUEST, problem))?;
        Ok(self.record().note(notification, Timestamp::now()))
    }

    fn check(&self, head: &Parts) -> Result<(), Refusal> {
        let refuse = |status, why: &str| Err(Refusal(status, why.to_owned()));
        if head.uri.path() != PATH {
            return refuse(StatusCode::NOT_FOUND, "alerts are told at /alerts");
        }
        if head.method != Method::POST {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "alerts are told by POST");
        }
        if self.token.as_ref().is_some_and(|token| !token.is_brought(&head.headers)) {
            return refuse(
                StatusCode::UNAUTHORIZED,
                "give the token: http_config, authorization, credentials",
            );
        }
        // No page in a browser can send this to another host than its own without asking first, which is refused above.
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
        if !kind.trim().eq_ignore_ascii_case("application/json") {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "alerts are told in application/json");
        }
        Ok(())
    }
}

fn answer(heard: Result<usize, Refusal>) -> Response<Full<Bytes>> {
    let Refusal(status, text) = heard
        .map_or_else(|refusal| refusal, |count| Refusal(StatusCode::OK, format!("{count} alerts are noted")));
    if !status.is_success() {
        tracing::debug!(%status, text, "a notification is refused");
    }
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match status {
        StatusCode::METHOD_NOT_ALLOWED => headers.insert(header::ALLOW, HeaderValue::from_static("POST")),
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
        }
        _ => None,
    };
    response
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::Terms;
    use super::*;
    use crate::waits::HANG;

    /// A listener, and what it hears.
    fn listen(token: Option<&str>) -> (SocketAddr, Hearsay) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let webhook = Webhook::new(listener, token.map(Token::new)).unwrap();
        let hearsay = webhook.hearsay();
        tokio::spawn(webhook.listen());
        (address, hearsay)
    }

    /// The answer to `request`, until the other end closes.
    async fn say(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // What is not wanted may be refused before all of it is said.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    fn notification() -> String {
        let alert = json!({"status": "firing", "labels": {"alertname": "Pool"}, "annotations": {},
            "startsAt": "2026-05-04T10:00:00Z", "fingerprint": "1"});
        json!({"version": "4", "receiver": "oncall", "alerts": [alert]}).to_string()
    }

    fn post(headers: &str, body: &str) -> String {
        format!("POST /alerts HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
    }

    const JSON: &str = "Content-Type: application/json\r\n";

    fn count(hearsay: &Hearsay) -> f64 {
        hearsay.seen(&Alert::told(Terms::default()).unwrap()).value.unwrap()
    }

    #[tokio::test]
    async fn a_notification_is_heard_whole_or_in_chunks_and_the_connection_closed() {
        let body = notification();
        let chunked = format!(
            "POST /alerts?from=here HTTP/1.1\r\nHost: a\r\ncontent-type: Application/JSON; charset=utf-8\r\n\
             Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        for request in [post(JSON, &body), chunked] {
            let (address, hearsay) = listen(None);
            let answer = say(address, &request).await;
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("1 alerts are noted\n"),
                "{answer}"
            );
            assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
            assert!((count(&hearsay) - 1.0).abs() < 0.01);
        }
    }

    #[tokio::test]
    async fn what_is_no_notification_is_refused_by_a_status_and_changes_nothing() {
        let (address, hearsay) = listen(None);
        let body = notification();
        let large = "x".repeat(LARGEST_NOTIFICATION + 1);
        let head = "POST /alerts HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
        for (request, status, said) in [
            (post(JSON, &body).replace("/alerts", "/"), 404, "at /alerts"),
            (post(JSON, &body).replace("/alerts", "/alerts/"), 404, "at /alerts"),
            (post(JSON, &body).replace("POST", "PUT"), 405, "Allow: POST"),
            ("GET /alerts HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405, "by POST"),
            ("OPTIONS /alerts HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405, "by POST"),
            (post("", &body), 415, "application/json"),
            (post("Content-Type: text/plain\r\n", &body), 415, "application/json"),
            // Before it is sent.
            (format!("{head}Content-Length: {}\r\n\r\n", large.len()), 413, "more than 1024 KiB"),
            // Ends where it is too much: what was said beyond could cost the answer.
            (
                format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{large}", large.len()),
                413,
                "more than 1024 KiB",
            ),
            (post(JSON, ""), 400, "not what an Alertmanager sends"),
            (post(JSON, &body.replace("\"4\"", "\"5\"")), 400, "version \"5\""),
            (post(JSON, &body[..body.len() - 1]), 400, "EOF while parsing"),
            (format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n"), 400, "the body has no end"),
        ] {
            let answer = say(address, &request).await;
            let start = &request[..request.len().min(200)];
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{start}: {answer}");
            assert!(answer.to_lowercase().contains(&said.to_lowercase()), "{start}: {answer}");
        }
        for nonsense in ["hello\r\n\r\n", "POST /alerts HTTP/1.1\r\nbroken\r\n\r\n"] {
            assert!(say(address, nonsense).await.starts_with("HTTP/1.1 400 "), "{nonsense}");
        }
        let long = format!("{head}X: {}\r\n\r\n", "x".repeat(LARGEST_HEAD));
        assert!(!say(address, &long).await.contains(" 200 "));
        assert!(count(&hearsay) < 0.5);
    }

    #[tokio::test]
    async fn who_has_not_the_token_is_not_believed() {
        let (address, hearsay) = listen(Some("0123456789abcdef"));
        let body = notification();
        for wrong in [
            "",
            "Authorization: Bearer 0123456789abcdeF\r\n",
            "Authorization: Bearer 0123456789abcde\r\n",
            "Authorization: Bearer 0123456789abcdef0\r\n",
            "Authorization: Bearer \r\n",
            "Authorization: Basic 0123456789abcdef\r\n",
            "Authorization: 0123456789abcdef\r\n",
        ] {
            let answer = say(address, &post(&format!("{JSON}{wrong}"), &body)).await;
            assert!(answer.starts_with("HTTP/1.1 401 "), "{wrong}: {answer}");
            assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
        }
        assert!(count(&hearsay) < 0.5);
        let right = format!("{JSON}Authorization: Bearer 0123456789abcdef\r\n");
        assert!(say(address, &post(&right, &body)).await.starts_with("HTTP/1.1 200 "));
        assert!((count(&hearsay) - 1.0).abs() < 0.01);
    }

    #[tokio::test]
    async fn who_says_nothing_is_cut_off_and_keeps_nobody_from_being_heard_for_long() {
        let (address, hearsay) = listen(None);
        let start = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..MOST_CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = timeout(HANG, say(address, &post(JSON, &notification()))).await;
        assert!(answer.unwrap().starts_with("HTTP/1.1 200 "));
        assert!(start.elapsed() >= HEAD_TIME, "{:?}", start.elapsed());
        assert!((count(&hearsay) - 1.0).abs() < 0.01);
        let mut rest = Vec::new();
        silent[0].read_to_end(&mut rest).await.unwrap();
        assert!(!String::from_utf8(rest).unwrap().contains("200"));
    }

    #[tokio::test]
    async fn one_that_never_ends_its_body_is_cut_off() {
        let (address, _) = listen(None);
        let start = Instant::now();
        let half = post(JSON, &notification());
        let answer = timeout(HANG, say(address, &half[..half.len() - 1])).await.unwrap();
        assert!(
            !answer.contains(" 200 ") && start.elapsed() >= WHOLE_TIME,
            "{:?}: {answer}",
            start.elapsed()
        );
    }

    #[tokio::test]
    async fn an_answer_that_was_told_has_the_shape_of_one_that_was_asked_for() {
        let (address, hearsay) = listen(None);
        say(address, &post(JSON, &notification())).await;
        let answer = hearsay.seen(&Alert::told(Terms::default()).unwrap()).answer.unwrap();
        let alert: &Value = &answer["firing"][0];
        assert_eq!(alert["labels"], json!({"alertname": "Pool"}));
        assert_eq!(alert["receivers"], json!([{"name": "oncall"}]));
        assert_eq!(alert["status"]["state"], "active");
    }
}
