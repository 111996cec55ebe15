//! A session over HTTP. Requests are made on a thread that may block, one after the other.

use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Body;
use ureq::http::Response;

use super::super::address::sent;
use super::super::credential::Credential;
use super::super::http::{AUTHORIZATION, agent};
use super::super::trust::{self, Trust};
use super::super::{blocking, late};
use super::{LARGEST, REVISION, STATELESS, request};

/// Which session a request is of.
const SESSION: &str = "mcp-session-id";
/// How long a thread is waited for that has to have given up by then.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// A session, and what has been asked in it.
#[derive(Debug)]
pub(super) struct Session {
    way: Way,
    asked: u64,
}

/// How to get there.
#[derive(Debug, Clone)]
struct Way {
    url: String,
    trust: Trust,
    credential: Option<Credential>,
    /// For all that is asked in it, and when that is over.
    limit: Duration,
    end: Instant,
    /// What the server calls the session, if it keeps some.
    id: Option<String>,
    revision: String,
}

impl Session {
    pub(super) fn new(
        url: &str,
        trust: &Trust,
        credential: Option<&Credential>,
        limit: Duration,
        end: Instant,
    ) -> Self {
        let (url, trust, revision) = (url.to_owned(), trust.clone(), REVISION.to_owned());
        let credential = credential.cloned();
        Self { way: Way { url, trust, credential, limit, end, id: None, revision }, asked: 0 }
    }

    pub(super) async fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.asked += 1;
        let (id, message) = (self.asked, request(self.asked, method, params));
        self.go(move |way| way.post(&message).and_then(|response| answer(response, id))).await?
    }

    pub(super) async fn tell(&mut self, message: Value) -> Result<(), String> {
        self.go(move |way| way.post(&message).and_then(taken)).await?
    }

    pub(super) fn agree(&mut self, revision: &str) {
        self.way.revision = revision.to_owned();
    }

    pub(super) async fn leave(mut self) {
        // The server forgets it some time in any case.
        let _ = self.go(Way::leave).await;
    }

    /// Does something on the way that may block, by a copy of it, which then is the way.
    async fn go<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Way) -> T + Send + 'static,
    ) -> Result<T, String> {
        let mut way = self.way.clone();
        let (way, done) = blocking(self.way.left() + GRACE, move || {
            let done = work(&mut way);
            (way, done)
        })
        .await?;
        self.way = way;
        Ok(done)
    }
}

impl Way {
    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// What each request shows, if there is a credential.
    fn shown(&self) -> Result<Option<String>, String> {
        self.credential.as_ref().map(|credential| credential.header(&self.url, &self.trust)).transpose()
    }

    fn post(&mut self, message: &Value) -> Result<Response<Body>, String> {
        let left = self.left();
        if left.is_zero() {
            return Err(late(self.limit));
        }
        let mut request = agent(&self.url, &self.trust, left)?
            .post(sent(&self.url))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", &self.revision);
        if let Some(shown) = self.shown()? {
            request = request.header(AUTHORIZATION, shown);
        }
        if let Some(id) = &self.id {
            request = request.header(SESSION, id);
        }
        if self.revision == STATELESS {
            for (name, value) in mirrored(message)? {
                request = request.header(name, value);
            }
        }
        let response = request.send(message.to_string()).map_err(|error| match error {
            ureq::Error::Timeout(_) => late(self.limit),
            other => trust::problem(&other),
        })?;
        if let Some(id) = response.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
            self.id = Some(id.to_owned());
        }
        Ok(response)
    }

    fn leave(&mut self) {
        if let Some(id) = &self.id {
            let limit = self.left().max(Duration::from_millis(100));
            let Ok(agent) = agent(&self.url, &self.trust, limit) else { return };
            let mut request = agent.delete(sent(&self.url)).header(SESSION, id);
            if let Ok(Some(shown)) = self.shown() {
                request = request.header(AUTHORIZATION, shown);
            }
            drop(request.header("mcp-protocol-version", &self.revision).call());
        }
    }
}

/// The headers that repeat what a message has, as a revision without sessions wants it.
fn mirrored(message: &Value) -> Result<Vec<(&'static str, &str)>, String> {
    let text = |value: &Value| value.as_str().is_some_and(is_plain);
    let (method, name) = (&message["method"], &message["params"]["name"]);
    if !text(method) || !(name.is_null() || text(name)) {
        return Err(format!("{name} cannot be said in a header"));
    }
    let known = [("mcp-method", method), ("mcp-name", name)];
    Ok(known.into_iter().filter_map(|(header, value)| Some((header, value.as_str()?))).collect())
}

/// Whether a header has this as it is; everything else would have to be encoded.
fn is_plain(text: &str) -> bool {
    text.trim() == text
        && !text.starts_with("=?base64?")
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// That a message was taken which has no answer.
fn taken(response: Response<Body>) -> Result<(), String> {
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("status {}", status.as_u16())),
    }
}

/// What a status that is no success comes with, if the server says in the protocol's words what is wrong.
fn refusal(mut response: Response<Body>) -> Result<Value, String> {
    let status = format!("status {}", response.status().as_u16());
    let body = response.body_mut().as_reader().take(LARGEST);
    // What is no message says nothing more than the status.
    let mut message = serde_json::from_reader(body).unwrap_or(Value::Null);
    match message["error"]["message"].as_str() {
        Some(why) => {
            message["error"]["message"] = format!("{status}: {why}").into();
            Ok(message)
        }
        None => Err(status),
    }
}

/// The message that answers request `id`: the body, or one of the events of a stream.
fn answer(mut response: Response<Body>, id: u64) -> Result<Value, String> {
    if !response.status().is_success() {
        return refusal(response);
    }
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

#[cfg(test)]
mod tests {
    use super::super::result;
    use super::*;

    #[test]
    fn a_request_is_mirrored_in_headers_if_they_can_have_it() {
        let of = |name: &str| request(1, "tools/call", &json!({"name": name}));
        let message = of("add two");
        let expected = vec![("mcp-method", "tools/call"), ("mcp-name", "add two")];
        assert_eq!(mirrored(&message), Ok(expected));
        let list = request(1, "tools/list", &json!({}));
        assert_eq!(mirrored(&list), Ok(vec![("mcp-method", "tools/list")]));
        for name in [" a", "ä", "a\nb", "=?base64?YQ==?="] {
            assert!(mirrored(&of(name)).is_err(), "{name:?}");
        }
    }

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
}
