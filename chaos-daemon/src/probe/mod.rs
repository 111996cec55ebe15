//! One sample of the outside world: does an HTTP address answer, does a TCP port accept.
//!
//! The daemon's probes run in a process of their own, the only one of its processes that may open connections.

pub mod http;
pub mod prober;

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::spec::SpecError;

/// How long a probe waits when nobody says.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest a probe may wait.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What is asked of the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// This request is answered with one of these statuses; with any 2xx when none is named.
    Http {
        /// The request.
        request: http::Request,
        /// Statuses that are right.
        status: Vec<u16>,
    },
    /// This port accepts a connection.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

/// A check with a time limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What is asked.
    pub check: Check,
    /// How long the answer may take.
    pub timeout: Duration,
}

/// What a probe saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was seen, for people.
    pub detail: String,
    /// How long it took.
    pub took: Duration,
    /// What was measured; of a port and an address the milliseconds until the answer. `None` when nothing was.
    pub value: Option<f64>,
    /// What came back: of HTTP an object with `status`, `headers` and `body`. `None` when nothing did.
    pub answer: Option<Value>,
}

impl Sample {
    /// A sample that could not be taken.
    pub fn failed(detail: String) -> Self {
        Self { ok: false, detail, took: Duration::ZERO, value: None, answer: None }
    }

    /// What `chaosctl probe` prints of it.
    pub fn line(&self) -> String {
        let word = if self.ok { "ok" } else { "failed" };
        format!("{word}: {} ({:.1} ms)", self.detail, self.took.as_secs_f64() * 1e3)
    }

    /// What a process that took it returns: `chaosctl probe`, run by Chaos Toolkit.
    pub fn as_process(&self) -> Value {
        json!({"status": u8::from(!self.ok), "stdout": format!("{}\n", self.line()), "stderr": ""})
    }
}

impl Check {
    /// An HTTP check: a GET of `url`, which stands at `field` of the request.
    ///
    /// # Errors
    /// When `url` is not an address this build can fetch: it carries no TLS.
    pub fn http(field: &str, url: &str, status: Vec<u16>) -> Result<Self, SpecError> {
        Self::request(field, http::Request { url: url.to_owned(), ..http::Request::default() }, status)
    }

    /// An HTTP check, the address of which stands at `field` of the request.
    ///
    /// # Errors
    /// As [`Check::http`].
    pub fn request(field: &str, request: http::Request, status: Vec<u16>) -> Result<Self, SpecError> {
        let url = &request.url;
        if url.starts_with("https://") {
            return Err(SpecError::new(field, "https is not available: probe http, or a tcp port"));
        }
        let host = url.strip_prefix("http://").unwrap_or_default();
        if host.is_empty() || host.starts_with('/') || url.contains(char::is_whitespace) {
            return Err(SpecError::new(
                field,
                format!("{url:?} is not an address: give e.g. \"http://127.0.0.1:8080/health\""),
            ));
        }
        Ok(Self::Http { request, status })
    }

    /// A TCP check of `address`, as `HOST:PORT` or `[IPV6]:PORT`, which stands at `field` of the request.
    ///
    /// # Errors
    /// When `address` is not of that form.
    pub fn tcp(field: &str, address: &str) -> Result<Self, SpecError> {
        let parts = address.rsplit_once(':').and_then(|(host, port)| {
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
            (!host.is_empty()).then(|| Self::Tcp { host: host.to_owned(), port })
        });
        parts.ok_or_else(|| {
            SpecError::new(field, format!("{address:?} is not HOST:PORT: give e.g. \"127.0.0.1:5432\""))
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { request, .. } => write!(f, "{} {}", request.method.name(), request.url),
            Self::Tcp { host, port } => write!(f, "connect to {host} port {port}"),
        }
    }
}

impl Probe {
    /// Takes one sample. Never waits much longer than the probe's time limit, and never fails: what goes wrong is
    /// what was seen.
    pub async fn sample(&self) -> Sample {
        let start = Instant::now();
        let mut answer = None;
        let seen = match &self.check {
            Check::Http { request, status } => {
                let seen = http::ask(request, status, self.timeout).await;
                answer = seen.answer;
                seen.verdict
            }
            Check::Tcp { host, port } => match timeout(self.timeout, connect(host, *port)).await {
                Ok(seen) => seen,
                Err(_) => Err(format!("no answer within {:?}", self.timeout)),
            },
        };
        let ok = seen.is_ok();
        let (Ok(seen) | Err(seen)) = seen;
        let took = start.elapsed();
        let answered = ok || answer.is_some();
        let value = answered.then_some(took.as_secs_f64() * 1e3);
        Sample { ok, detail: format!("{}: {seen}", self.check), took, value, answer }
    }
}

async fn connect(host: &str, port: u16) -> Result<String, String> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    // A closed local port may be picked as our own end, and then TCP connects to itself.
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) if local == peer => Err("nobody but ourselves listens there".to_owned()),
        (_, Err(error)) => Err(error.to_string()),
        _ => Ok("connected".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn probe(check: Check) -> Probe {
        Probe { check, timeout: Duration::from_millis(300) }
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
            tokio::time::sleep(Duration::from_secs(if response.is_empty() { 2 } else { 0 })).await;
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
            let sample = probe(Check::http("url", &url, status).unwrap()).sample().await;
            assert_eq!(sample.ok, ok, "{response:?}: {sample:?}");
            assert!(sample.took < Duration::from_secs(1), "{sample:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_kept_with_status_headers_and_body() {
        let json =
            "HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"up\": 1} ";
        let url = http_server(json).await;
        let sample = probe(Check::http("url", &url, vec![]).unwrap()).sample().await;
        let answer = sample.answer.unwrap();
        assert_eq!((&answer["status"], &answer["body"]), (&json!(500), &json!({"up": 1})));
        assert_eq!(answer["headers"]["Content-Type"], "application/json");
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        let sample = probe(Check::http("url", &http_server(text).await, vec![]).unwrap()).sample().await;
        assert_eq!(sample.answer.unwrap()["body"], "hi");
        // One that stops in the middle is none.
        let half = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi";
        let sample = probe(Check::http("url", &http_server(half).await, vec![]).unwrap()).sample().await;
        assert!(!sample.ok && sample.answer.is_none(), "{sample:?}");
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_none_and_not_half_of_it() {
        let length = usize::try_from(http::LARGEST_BODY).unwrap() + 1;
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
        let sample =
            probe(Check::http("url", &http_server(long.leak()).await, vec![]).unwrap()).sample().await;
        assert!(sample.ok, "{sample:?}");
        assert_eq!(sample.answer.unwrap()["body"], Value::Null);
    }

    #[tokio::test]
    async fn what_is_sent_arrives() {
        let arguments = vec![("a b".to_owned(), "1&2".to_owned())];
        let headers = vec![("X-Token".to_owned(), "t".to_owned())];
        for (method, json, expected) in [
            (http::Method::Get, None, "GET /health?a%20b=1%262 HTTP/1.1\r\n"),
            (http::Method::Head, None, "HEAD /health?a%20b=1%262 HTTP/1.1\r\n"),
            (http::Method::Post, None, "\r\n\r\na+b=1%262"),
            (http::Method::Post, Some("{}".to_owned()), "\r\n\r\n{}"),
        ] {
            let (url, request) = http_echo().await;
            let asked =
                http::Request { url, method, headers: headers.clone(), arguments: arguments.clone(), json };
            let sample = probe(Check::request("url", asked, vec![]).unwrap()).sample().await;
            let request = request.await.unwrap();
            assert!(sample.ok && request.contains(expected), "{request:?}");
            assert!(request.to_lowercase().contains("x-token: t"), "{request:?}");
        }
    }

    /// Answers one request, and tells what it was.
    async fn http_echo() -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/health", listener.local_addr().unwrap());
        let request = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            // A body may come by itself, and as soon as there is none left to come, nothing does.
            while let Ok(Ok(read)) = timeout(Duration::from_millis(50), stream.read_buf(&mut seen)).await {
                assert!(read > 0);
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
        assert!(Check::http("url", "https://example.org", vec![]).unwrap_err().problem.contains("https"));
        for bad in ["", "http://", "ftp://x", "http:///x", "http://a b"] {
            assert!(Check::http("url", bad, vec![]).is_err(), "{bad:?} was accepted");
        }
        for bad in ["", "host", ":80", "host:0", "host:65536", "host:http"] {
            assert!(Check::tcp("tcp", bad).is_err(), "{bad:?} was accepted");
        }
        assert_eq!(Check::tcp("t", "[::1]:80").unwrap(), Check::Tcp { host: "::1".into(), port: 80 });
    }
}
