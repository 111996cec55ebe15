//! An MCP server (<https://modelcontextprotocol.io/specification/2025-06-18/basic/transports>): opens a session, lists the tools, and
//! calls one if it is told to. A file for each transport.
//!
//! A server that refuses the handshake is asked whether it speaks the revision without one, in which there are no sessions
//! (<https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning>).

mod http;
mod stdio;

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::address::{host_of, known};
use super::credential::Credential;
use super::program::Program;
use super::trust::Trust;
use super::{Sampler, Seen, late, milliseconds};
use crate::spec::SpecError;

/// The protocol revision that is offered in the handshake.
const REVISION: &str = "2025-06-18";
/// The revision that has none: each request says for itself of which revision it is.
const STATELESS: &str = "2026-07-28";
/// The most of an answer that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// What is done with a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialogue {
    server: Server,
    /// A tool that is called, and its arguments, as JSON.
    call: Option<(String, String)>,
    /// A tool that has to be in the list.
    tool: Option<String>,
    credential: Option<Credential>,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Server {
    /// At an address ("streamable HTTP"), and by whose word it is who it says.
    Http(String, Trust),
    /// It is started, spoken with over its standard streams, and ended.
    Stdio(Program),
}

impl Server {
    /// The server at an address, which stands at `field`, or the one that a command line starts.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(
        field: &str,
        url: Option<&str>,
        words: Vec<String>,
        trust: Trust,
    ) -> Result<Self, SpecError> {
        match url {
            None => Program::parse("PROGRAM", words).map(Self::Stdio),
            Some(url) if !url.contains("://") => {
                let problem =
                    format!("{url:?} is not an address: for a server over stdio give -- PROGRAM ARGUMENTS");
                Err(SpecError::new(field, problem))
            }
            Some(url) => known(field, url).map(|url| Self::Http(url, trust)),
        }
    }
}

impl Dialogue {
    /// A session with the server, in which `tool` has to be listed, and `call` is called with `arguments`, an object in
    /// JSON.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(
        server: Server,
        tool: Option<&str>,
        call: Option<&str>,
        arguments: Option<&str>,
    ) -> Result<Self, SpecError> {
        let arguments = match (arguments, call) {
            (None, _) => "{}".to_owned(),
            (Some(_), None) => return Err(SpecError::new("--arguments", "only with --call")),
            (Some(text), Some(_)) => match serde_json::from_str::<Map<String, Value>>(text) {
                Ok(arguments) => Value::Object(arguments).to_string(),
                Err(error) => {
                    return Err(SpecError::new("--arguments", format!("not an object in JSON: {error}")));
                }
            },
        };
        let call = call.map(|call| (call.to_owned(), arguments));
        Ok(Self { server, call, tool: tool.map(str::to_owned), credential: None })
    }

    /// The same, with a credential.
    #[must_use]
    pub fn showing(self, credential: Option<Credential>) -> Self {
        Self { credential, ..self }
    }

    async fn hold(&self, era: Era, limit: Duration, end: Instant) -> Result<Seen, Problem> {
        let begun = Instant::now();
        let left = end.saturating_duration_since(begun);
        let (mut session, patience) = match &self.server {
            // It keeps to its end by itself, and says what it was at.
            Server::Http(url, trust) => {
                let session = http::Session::new(url, trust, self.credential.as_ref(), limit, end);
                (Session::Http(session), left + http::GRACE)
            }
            Server::Stdio(program) => (Session::Stdio(Box::new(stdio::Session::start(program)?)), left),
        };
        let talked = timeout(patience, self.talk(&mut session, era, begun)).await;
        let seen = talked.unwrap_or_else(|_| Err(Problem::Failed(late(limit))));
        match (session.leave().await, seen) {
            (Some(last), Err(problem)) => Err(problem.with(|why| format!("{why}; it said {last:?}"))),
            (_, seen) => seen,
        }
    }

    async fn talk(&self, session: &mut Session, era: Era, begun: Instant) -> Result<Seen, Problem> {
        let opened = match era {
            Era::Handshake => session.greet().await?,
            Era::Stateless => session.discover().await?,
        };
        // Whoever speaks the era and refuses something else is not of another one.
        self.look(session, &opened, begun).await.map_err(Problem::Failed)
    }

    async fn look(&self, session: &mut Session, opened: &Opened, begun: Instant) -> Result<Seen, String> {
        let connected = begun.elapsed();
        let tools = match opened.has_tools {
            true => names(&session.ask("tools/list", &opened.params(json!({}))).await?)?,
            false => Vec::new(),
        };
        let listed = begun.elapsed();
        if let Some(tool) = self.tool.as_ref().filter(|tool| !tools.contains(tool)) {
            return Err(format!("no tool {tool:?} among {}", tools.join(", ")));
        }
        let mut answer = json!({
            "server": opened.server, "revision": opened.revision, "tools": tools,
            "connect_ms": milliseconds(connected), "list_ms": milliseconds(listed - connected),
        });
        let mut said = format!("{} tools", tools.len());
        if let Some((tool, arguments)) = &self.call {
            let arguments: Value = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
            let params = opened.params(json!({"name": tool, "arguments": arguments}));
            let result = session.ask("tools/call", &params).await?;
            if result["resultType"] == json!("input_required") {
                return Err(format!("{tool} asks for more input, which a probe has not"));
            }
            if result["isError"] == json!(true) {
                let text = result["content"][0]["text"].as_str().unwrap_or_default();
                let hidden = self.credential().map(|(credential, url)| credential.hidden(url, text));
                let text = hidden.as_deref().unwrap_or(text);
                return Err(format!("{tool} failed: {}", text.chars().take(200).collect::<String>()));
            }
            answer["call_ms"] = json!(milliseconds(begun.elapsed() - listed));
            said.push_str(&format!(", {tool} answered"));
        }
        // How long it takes to end the session, and the server, is not measured.
        let value = Some(milliseconds(begun.elapsed()));
        Ok(Seen { verdict: Ok(said), answer: Some(answer), value, no_data: None })
    }
}

fn names(list: &Value) -> Result<Vec<String>, String> {
    let tools = list["tools"].as_array().ok_or("tools/list: the answer has no tools")?;
    Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
}

/// How a server and its clients come to terms.
#[derive(Clone, Copy)]
enum Era {
    /// By a handshake, which opens a session.
    Handshake,
    /// By each request.
    Stateless,
}

/// A session with a server.
enum Session {
    Http(http::Session),
    Stdio(Box<stdio::Session>),
}

/// Who asks.
fn client() -> Value {
    json!({"name": "chaos-daemon", "version": env!("CARGO_PKG_VERSION")})
}

/// What is known of a server with which requests can be exchanged.
struct Opened {
    revision: String,
    /// Its name.
    server: Value,
    has_tools: bool,
    /// What each request has to carry.
    meta: Option<Value>,
}

impl Opened {
    /// Parameters of a request.
    fn params(&self, mut params: Value) -> Value {
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        params
    }
}

/// Why a request has no result.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    /// The server says so.
    Refused(String),
    /// There is no answer, or one that is none.
    Failed(String),
}

impl Problem {
    /// The same in other words.
    fn with(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(words(why)),
            Self::Failed(why) => Self::Failed(words(why)),
        }
    }
}

impl From<String> for Problem {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<Problem> for String {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Refused(why) | Problem::Failed(why) => why,
        }
    }
}

impl Session {
    /// Opens it by the handshake.
    async fn greet(&mut self) -> Result<Opened, Problem> {
        let hello = json!({"protocolVersion": REVISION, "capabilities": {}, "clientInfo": client()});
        let mut greeting = self.ask("initialize", &hello).await?;
        let Some(revision) = greeting["protocolVersion"].as_str().map(str::to_owned) else {
            return Err("initialize: the answer names no revision".to_owned().into());
        };
        self.agree(&revision);
        self.tell("notifications/initialized").await?;
        Ok(Opened {
            revision,
            server: greeting["serverInfo"]["name"].take(),
            has_tools: greeting["capabilities"]["tools"].is_object(),
            meta: None,
        })
    }

    /// Asks a server that knows no handshake what it speaks.
    async fn discover(&mut self) -> Result<Opened, Problem> {
        self.agree(STATELESS);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": client(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let mut found = self.ask("server/discover", &json!({"_meta": meta})).await?;
        if !found["supportedVersions"].as_array().is_some_and(|known| known.contains(&json!(STATELESS))) {
            let known = &found["supportedVersions"];
            return Err(format!("server/discover: it speaks {known}, and not {STATELESS}").into());
        }
        Ok(Opened {
            revision: STATELESS.to_owned(),
            server: found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].take(),
            has_tools: found["capabilities"]["tools"].is_object(),
            meta: Some(meta),
        })
    }

    /// Asks, and waits for the answer.
    async fn ask(&mut self, method: &str, params: &Value) -> Result<Value, Problem> {
        let answer = match self {
            Self::Http(session) => session.ask(method, params).await,
            Self::Stdio(session) => session.ask(method, params).await,
        };
        let result = answer.map_err(Problem::Failed).and_then(result);
        result.map_err(|problem| problem.with(|why| format!("{method}: {why}")))
    }

    async fn tell(&mut self, method: &str) -> Result<(), String> {
        let message = json!({"jsonrpc": "2.0", "method": method});
        let told = match self {
            Self::Http(session) => session.tell(message).await,
            Self::Stdio(session) => session.tell(&message).await,
        };
        told.map_err(|why| format!("{method}: {why}"))
    }

    /// The revision that both speak from now on.
    fn agree(&mut self, revision: &str) {
        if let Self::Http(session) = self {
            session.agree(revision);
        }
    }

    /// Ends it; returns the last that the server said to its operator, if it is one over stdio.
    async fn leave(self) -> Option<String> {
        match self {
            Self::Http(session) => {
                session.leave().await;
                None
            }
            Self::Stdio(session) => session.leave().await,
        }
    }
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn result(mut message: Value) -> Result<Value, Problem> {
    match (message.get("result"), message.get("error")) {
        (Some(_), _) => Ok(message["result"].take()),
        (None, Some(error)) => {
            let why = error["message"].as_str().unwrap_or("an error without a message");
            Err(Problem::Refused(why.to_owned()))
        }
        (None, None) => Err("the answer is none".to_owned().into()),
    }
}

impl Sampler for Dialogue {
    async fn take(&self, limit: Duration) -> Seen {
        let end = Instant::now() + limit;
        let seen = match self.hold(Era::Handshake, limit, end).await {
            Err(Problem::Refused(why)) => {
                // Anew, also over stdio: it may have ended by that. That it was first asked for something else is not its time.
                let other = self.hold(Era::Stateless, limit, end).await;
                other.map_err(|other| format!("{why}; {}", String::from(other)))
            }
            seen => seen.map_err(String::from),
        };
        seen.into()
    }

    /// Whether it may change something: a tool that it calls may, and so may a program that it starts.
    fn may_change(&self) -> bool {
        self.call.is_some() || matches!(self.server, Server::Stdio(_))
    }

    /// The program that is the server, if it is one over stdio.
    fn program(&self) -> Option<&Program> {
        match &self.server {
            Server::Http(..) => None,
            Server::Stdio(program) => Some(program),
        }
    }

    fn program_mut(&mut self) -> Option<&mut Program> {
        match &mut self.server {
            Server::Http(..) => None,
            Server::Stdio(program) => Some(program),
        }
    }

    fn host(&self) -> Option<String> {
        match &self.server {
            Server::Http(url, _) => Some(host_of(url).to_owned()),
            Server::Stdio(_) => None,
        }
    }

    fn credential(&self) -> Option<(&Credential, &str)> {
        match &self.server {
            Server::Http(url, _) => Some((self.credential.as_ref()?, url)),
            Server::Stdio(_) => None,
        }
    }

    fn unit(&self) -> &'static str {
        "ms"
    }
}

impl fmt::Display for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Http(url, _) => write!(f, "MCP session with {url}"),
            Server::Stdio(program) => write!(f, "MCP session with {program}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_from_a_result() {
        let refused = result(json!({"id": 1, "error": {"code": -1, "message": "no"}}));
        assert_eq!(refused, Err(Problem::Refused("no".to_owned())));
        assert!(matches!(result(json!({"id": 1})), Err(Problem::Failed(_))));
        assert_eq!(
            names(&json!({"tools": [{"name": "a"}, {"name": "b"}]})),
            Ok(vec!["a".into(), "b".into()])
        );
        assert!(names(&json!({})).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let url = "http://127.0.0.1:8000/mcp";
        for (address, call, arguments, field) in [
            ("ftp://x/mcp", None, None, "URL"),
            ("my-server --stdio", None, None, "URL"),
            (url, None, Some("{}"), "--arguments"),
            (url, Some("add"), Some("[1]"), "--arguments"),
            (url, Some("add"), Some("{"), "--arguments"),
        ] {
            let parsed = Server::parse("URL", Some(address), Vec::new(), Trust::Host)
                .and_then(|server| Dialogue::parse(server, None, call, arguments));
            assert_eq!(parsed.unwrap_err().field, field, "{address}");
        }
        let server = Server::parse("URL", Some(url), Vec::new(), Trust::Host).unwrap();
        assert!(Dialogue::parse(server, None, Some("add"), Some("{\"a\":1}")).is_ok());
        for words in [vec![], vec!["my-server".to_owned()]] {
            assert_eq!(Server::parse("URL", None, words, Trust::Host).unwrap_err().field, "PROGRAM");
        }
    }
}
