//! An MCP session: the handshake and the list of tools, by POST (streamable HTTP) or line by line (as over stdio).

use hyper::header;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::Terms;
use super::http::{Http, whole};
use super::session::{Stream, answering, timed, within};
use super::tally::{Outcome, Timed};

/// The protocol revision that is offered.
const REVISION: &str = "2025-06-18";
/// Which session a request is of (streamable HTTP).
const SESSION: &str = "mcp-session-id";
/// No line is longer, in bytes.
const LONGEST: u64 = 4 << 20;
/// The numbers of the two requests.
const HELLO: u64 = 1;
const LIST: u64 = 2;

fn hello() -> Value {
    json!({"jsonrpc": "2.0", "id": HELLO, "method": "initialize", "params": {
        "protocolVersion": REVISION, "capabilities": {},
        "clientInfo": {"name": "chaos-daemon", "version": env!("CARGO_PKG_VERSION")},
    }})
}

fn ready() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": LIST, "method": "tools/list"})
}

/// What the answer to the handshake says: the revision that is spoken, and whether there are tools to be asked for.
fn greeted(answer: &Value) -> Result<(String, bool), Outcome> {
    let result = answer.get("result").ok_or(Outcome::ErrorAnswer)?;
    let revision = result["protocolVersion"].as_str().ok_or(Outcome::ErrorAnswer)?;
    Ok((revision.to_owned(), result["capabilities"]["tools"].is_object()))
}

/// A list without tools, of a server that says it has some, is an empty answer.
fn has_tools(answer: &Value) -> Result<(), Outcome> {
    let result = answer.get("result").ok_or(Outcome::ErrorAnswer)?;
    match result["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
        true => Ok(()),
        false => Err(Outcome::Empty),
    }
}

/// Whether a message answers this request; one that could not be read at all is answered without a number.
fn answers(message: &Value, id: u64) -> bool {
    message["id"] == id || (message["id"].is_null() && message.get("error").is_some())
}

/// A session over HTTP.
#[derive(Debug)]
pub(super) struct Posts {
    http: Http,
    path: String,
    /// What the server calls it, if it keeps sessions.
    session: Option<header::HeaderValue>,
    revision: String,
}

impl Posts {
    /// Shakes hands, and asks for the tools.
    pub(super) async fn open(http: Http, path: &str, terms: &Terms) -> Result<Self, Outcome> {
        let (path, revision) = (path.to_owned(), REVISION.to_owned());
        let mut posts = Self { http, path, session: None, revision };
        let hello = hello();
        let first = within(terms.limit, posts.ask(&hello, HELLO, terms));
        let (revision, tools) = greeted(&timed(&terms.tally, Timed::Initialize, first).await?)?;
        posts.revision = revision;
        within(terms.limit, posts.tell(&ready(), terms)).await?;
        if tools {
            has_tools(&within(terms.limit, posts.ask(&list(), LIST, terms)).await?)?;
        }
        Ok(posts)
    }

    fn request(&self, method: &str) -> hyper::http::request::Builder {
        let mut request =
            self.http.request(method, &self.path).header("mcp-protocol-version", &self.revision);
        if let Some(session) = &self.session {
            request = request.header(SESSION, session);
        }
        request
    }

    /// Posts a message; the body of what is answered, and whether it is a stream of events.
    async fn post(&mut self, message: &Value, terms: &Terms) -> Result<(Vec<u8>, bool), Outcome> {
        let request = self
            .request("POST")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .body(message.to_string().into());
        let response = self.http.ask(request, &terms.tally).await?;
        if let Some(session) = response.headers().get(SESSION) {
            self.session = Some(session.clone());
        }
        let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec());
        let events = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        Ok((whole(response.into_body()).await?.to_vec(), events))
    }

    async fn tell(&mut self, message: &Value, terms: &Terms) -> Result<(), Outcome> {
        self.post(message, terms).await.map(drop)
    }

    async fn ask(&mut self, message: &Value, id: u64, terms: &Terms) -> Result<Value, Outcome> {
        let (body, events) = self.post(message, terms).await?;
        if body.is_empty() {
            return Err(Outcome::Empty);
        }
        if !events {
            return serde_json::from_slice(&body).map_err(|_invalid| Outcome::ErrorAnswer);
        }
        let text = String::from_utf8_lossy(&body);
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let mut messages = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        messages.find(|message| answers(message, id)).ok_or(Outcome::Empty)
    }

    /// Waits until the server closes the connection.
    pub(super) async fn closed(&mut self) -> Outcome {
        self.http.closed().await
    }

    /// Ends the session, which the server would keep beyond the connection. Who does not listen keeps it.
    pub(super) async fn take_leave(&mut self) {
        if self.session.is_some() {
            let request = self.request("DELETE").body(Default::default());
            let books = super::Tally::default();
            drop(self.http.ask(request, &books).await);
        }
    }
}

/// A session over lines.
pub(super) struct Lines {
    stream: BufReader<Box<dyn Stream>>,
}

impl Lines {
    /// Shakes hands, and asks for the tools.
    pub(super) async fn open(stream: Box<dyn Stream>, terms: &Terms) -> Result<Self, Outcome> {
        let mut lines = Self { stream: BufReader::new(stream) };
        let hello = hello();
        let first = within(terms.limit, lines.ask(&hello, HELLO));
        let (_, tools) = greeted(&timed(&terms.tally, Timed::Initialize, first).await?)?;
        lines.write(&ready()).await?;
        if tools {
            has_tools(&within(terms.limit, lines.ask(&list(), LIST)).await?)?;
        }
        Ok(lines)
    }

    async fn write(&mut self, message: &Value) -> Result<(), Outcome> {
        let line = format!("{message}\n");
        self.stream.write_all(line.as_bytes()).await.map_err(|error| answering(&error))
    }

    async fn ask(&mut self, message: &Value, id: u64) -> Result<Value, Outcome> {
        // Who is refused may be told so before anything is asked, and then nobody reads.
        let written = self.write(message).await;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stream).take(LONGEST).read_until(b'\n', &mut line).await;
            if read.map_err(|error| answering(&error))? == 0 {
                return Err(written.err().unwrap_or(Outcome::Empty));
            }
            let message: Value = serde_json::from_slice(&line).map_err(|_invalid| Outcome::ErrorAnswer)?;
            if answers(&message, id) {
                return Ok(message);
            }
        }
    }

    /// Waits until the server closes the connection.
    pub(super) async fn closed(&mut self) -> Outcome {
        let mut buffer = [0; 4096];
        while matches!(self.stream.read(&mut buffer).await, Ok(1..)) {}
        Outcome::Lost
    }
}
