//! An MCP server over HTTP ("streamable HTTP", <https://modelcontextprotocol.io/specification/2025-06-18/basic/transports>):
//! opens a session, lists the tools, and calls one if it is told to.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use ureq::Body;
use ureq::http::Response;

use super::http::{agent, check_address};
use super::{Seen, blocking, late, milliseconds};
use crate::spec::SpecError;

/// The protocol revision that is offered.
const REVISION: &str = "2025-06-18";
/// Which session a request is of.
const SESSION: &str = "mcp-session-id";
/// The most of an answer that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// What is done with a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialogue {
    url: String,
    /// A tool that is called, and its arguments, as JSON.
    call: Option<(String, String)>,
    /// A tool that has to be in the list.
    tool: Option<String>,
}

impl Dialogue {
    /// A session with the server at `url`, in which `tool` has to be listed, and `call` is called with `arguments`, an object in
    /// JSON.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(
        url: &str,
        tool: Option<&str>,
        call: Option<&str>,
        arguments: Option<&str>,
    ) -> Result<Self, SpecError> {
        if !url.contains("://") {
            let problem =
                format!("{url:?} is not an address: a server over stdio cannot be probed, one over http can");
            return Err(SpecError::new("URL", problem));
        }
        check_address("URL", url)?;
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
        Ok(Self { url: url.to_owned(), call, tool: tool.map(str::to_owned) })
    }

    pub(super) async fn take(&self, limit: Duration) -> Seen {
        let dialogue = self.clone();
        let end = Instant::now() + limit;
        let held = blocking(limit + Duration::from_millis(250), move || dialogue.hold(end)).await;
        held.and_then(|held| held).into()
    }

    fn hold(&self, end: Instant) -> Result<Seen, String> {
        let mut session = Session { url: &self.url, end, id: None, revision: REVISION.to_owned(), asked: 0 };
        let seen = self.talk(&mut session);
        session.leave();
        seen
    }

    fn talk(&self, session: &mut Session<'_>) -> Result<Seen, String> {
        let begun = Instant::now();
        let client = json!({"name": "chaos-daemon", "version": env!("CARGO_PKG_VERSION")});
        let hello = json!({"protocolVersion": REVISION, "capabilities": {}, "clientInfo": client});
        let greeting = session.ask("initialize", &hello)?;
        let revision =
            greeting["protocolVersion"].as_str().ok_or("initialize: the answer names no revision")?;
        session.revision = revision.to_owned();
        session.tell("notifications/initialized")?;
        let connected = begun.elapsed();
        let tools = match greeting["capabilities"]["tools"].is_object() {
            true => names(&session.ask("tools/list", &json!({}))?)?,
            false => Vec::new(),
        };
        let listed = begun.elapsed();
        if let Some(tool) = self.tool.as_ref().filter(|tool| !tools.contains(tool)) {
            return Err(format!("no tool {tool:?} among {}", tools.join(", ")));
        }
        let mut answer = json!({
            "server": greeting["serverInfo"]["name"], "revision": revision, "tools": tools,
            "connect_ms": milliseconds(connected), "list_ms": milliseconds(listed - connected),
        });
        let mut said = format!("{} tools", tools.len());
        if let Some((tool, arguments)) = &self.call {
            let arguments: Value = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
            let result = session.ask("tools/call", &json!({"name": tool, "arguments": arguments}))?;
            if result["isError"] == json!(true) {
                let text = result["content"][0]["text"].as_str().unwrap_or_default();
                return Err(format!("{tool} failed: {}", text.chars().take(200).collect::<String>()));
            }
            answer["call_ms"] = json!(milliseconds(begun.elapsed() - listed));
            said.push_str(&format!(", {tool} answered"));
        }
        Ok(Seen { verdict: Ok(said), answer: Some(answer), value: None, no_data: None })
    }
}

fn names(list: &Value) -> Result<Vec<String>, String> {
    let tools = list["tools"].as_array().ok_or("tools/list: the answer has no tools")?;
    Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
}

/// A session with a server.
struct Session<'a> {
    url: &'a str,
    end: Instant,
    /// What the server calls it, if it keeps sessions.
    id: Option<String>,
    revision: String,
    asked: u64,
}

impl Session<'_> {
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn post(&mut self, message: &Value) -> Result<Response<Body>, String> {
        let left = self.left();
        if left.is_zero() {
            return Err("the time was over".to_owned());
        }
        let mut request = agent(left)
            .post(self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", &self.revision);
        if let Some(id) = &self.id {
            request = request.header(SESSION, id);
        }
        let response = request.send(message.to_string()).map_err(|error| match error {
            ureq::Error::Timeout(_) => late(left),
            other => other.to_string(),
        })?;
        if let Some(id) = response.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            self.id = Some(id.to_owned());
        }
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(format!("status {}", status.as_u16())),
        }
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.asked += 1;
        let id = self.asked;
        let asked = self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let response = asked.and_then(|response| answer(response, id));
        response.and_then(result).map_err(|why| format!("{method}: {why}"))
    }

    fn tell(&mut self, method: &str) -> Result<(), String> {
        let told = self.post(&json!({"jsonrpc": "2.0", "method": method}));
        told.map(drop).map_err(|why| format!("{method}: {why}"))
    }

    /// Ends the session, which the server would keep otherwise. A server may refuse that.
    fn leave(&mut self) {
        if let Some(id) = &self.id {
            let limit = self.left().max(Duration::from_millis(100));
            let request = agent(limit).delete(self.url).header(SESSION, id);
            drop(request.header("mcp-protocol-version", &self.revision).call());
        }
    }
}

/// The message that answers request `id`: the body, or one of the events of a stream.
fn answer(mut response: Response<Body>, id: u64) -> Result<Value, String> {
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let events = kind.starts_with("text/event-stream");
    let reader = response.body_mut().as_reader().take(LARGEST);
    match events {
        true => event(BufReader::new(reader), id),
        false => serde_json::from_reader(reader).map_err(|error| format!("not a message: {error}")),
    }
}

/// The event that answers request `id`. What else comes, such as progress, is passed over; the rest is not waited for.
fn event(reader: impl BufRead, id: u64) -> Result<Value, String> {
    let mut data = String::new();
    for line in reader.lines() {
        let line = line.map_err(|error| error.to_string())?;
        if let Some(more) = line.strip_prefix("data:") {
            data.push_str(more.strip_prefix(' ').unwrap_or(more));
            data.push('\n');
        } else if line.is_empty() {
            match serde_json::from_str::<Value>(&data) {
                Ok(message) if message["id"] == json!(id) => return Ok(message),
                _ => data.clear(),
            }
        }
    }
    Err("the stream ended without an answer".to_owned())
}

fn result(mut message: Value) -> Result<Value, String> {
    match (message.get("result"), message.get("error")) {
        (Some(_), _) => Ok(message["result"].take()),
        (None, Some(error)) => {
            Err(error["message"].as_str().unwrap_or("an error without a message").to_owned())
        }
        (None, None) => Err("the answer is none".to_owned()),
    }
}

impl fmt::Display for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MCP session with {}", self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_among_the_events_of_a_stream() {
        let stream = "event: message\r\ndata: {\"method\":\"notifications/progress\"}\r\n\r\n: alive\n\n\
                      id: 7\ndata: {\"id\":2,\ndata: \"result\":{\"a\":1}}\n\ndata: {\"id\":3}\n\n";
        let found = event(stream.as_bytes(), 2).unwrap();
        assert_eq!(result(found), Ok(json!({"a": 1})));
        assert!(event(stream.as_bytes(), 9).unwrap_err().contains("without an answer"));
        // One that is not finished is none.
        assert!(event("data: {\"id\":1}\n".as_bytes(), 1).is_err());
    }

    #[test]
    fn an_error_is_told_from_a_result() {
        assert_eq!(result(json!({"id": 1, "error": {"code": -1, "message": "no"}})), Err("no".to_owned()));
        assert!(result(json!({"id": 1})).is_err());
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
            ("https://x/mcp", None, None, "URL"),
            ("my-server --stdio", None, None, "URL"),
            (url, None, Some("{}"), "--arguments"),
            (url, Some("add"), Some("[1]"), "--arguments"),
            (url, Some("add"), Some("{"), "--arguments"),
        ] {
            assert_eq!(
                Dialogue::parse(address, None, call, arguments).unwrap_err().field,
                field,
                "{address}"
            );
        }
        assert!(Dialogue::parse(url, None, Some("add"), Some("{\"a\":1}")).is_ok());
    }
}
