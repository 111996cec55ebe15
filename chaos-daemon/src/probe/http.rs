//! The HTTP sample: one request, without proxies or redirects, so that what answers is what was asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use ureq::Body;
use ureq::http::Response;

/// The most of a body that is read, in bytes.
pub const LARGEST_BODY: u64 = 256 * 1024;

/// What is done with the address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Get what is there.
    #[default]
    Get,
    /// Get its head.
    Head,
    /// Ask what can be done.
    Options,
    /// Send it something.
    Post,
}

impl Method {
    /// The method of this name, in capitals or not.
    pub fn parse(name: &str) -> Option<Self> {
        let known = [Self::Get, Self::Head, Self::Options, Self::Post];
        known.into_iter().find(|method| method.name().eq_ignore_ascii_case(name))
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Post => "POST",
        }
    }
}

/// A request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Address, `http://…`.
    pub url: String,
    /// What is done with it.
    pub method: Method,
    /// Headers beside those that HTTP needs.
    pub headers: Vec<(String, String)>,
    /// What is sent: with POST as a form, otherwise as the query.
    pub arguments: Vec<(String, String)>,
    /// What is sent with POST, as JSON, in place of the form.
    pub json: Option<String>,
}

/// What came back.
pub(super) struct Seen {
    /// What was seen, for people; `Ok` means that the status was right.
    pub(super) verdict: Result<String, String>,
    /// `{status, headers, body}`, if there was an answer.
    pub(super) answer: Option<Value>,
}

impl Seen {
    fn nothing(why: String) -> Self {
        Self { verdict: Err(why), answer: None }
    }
}

/// Carries `request` out; one of `status` is right, or any 2xx when it is empty.
pub(super) async fn ask(request: &Request, status: &[u16], limit: Duration) -> Seen {
    let (request, status) = (request.clone(), status.to_vec());
    let blocking = spawn_blocking(move || fetch(&request, &status, limit));
    // The client's own limit does not cover a name service that hangs; ours does, at the price of a thread
    // that outlives the sample.
    match timeout(limit + Duration::from_millis(250), blocking).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => Seen::nothing(format!("the probe broke: {error}")),
        Err(_) => Seen::nothing(format!("no answer within {limit:?}")),
    }
}

fn fetch(request: &Request, status: &[u16], limit: Duration) -> Seen {
    let mut response = match send(request, limit) {
        Ok(response) => response,
        Err(error) => return Seen::nothing(error.to_string()),
    };
    let seen = response.status();
    let right = if status.is_empty() { seen.is_success() } else { status.contains(&seen.as_u16()) };
    let verdict = match right {
        true => Ok(format!("status {}", seen.as_u16())),
        false if status.is_empty() => Err(format!("status {}, where 2xx is right", seen.as_u16())),
        false => Err(format!("status {}, where {status:?} is right", seen.as_u16())),
    };
    match answer(&mut response) {
        Ok(answer) => Seen { verdict, answer: Some(answer) },
        Err(error) => Seen::nothing(format!("status {}, and then: {error}", seen.as_u16())),
    }
}

fn send(request: &Request, limit: Duration) -> Result<Response<Body>, ureq::Error> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .build()
        .new_agent();
    let arguments = || request.arguments.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let headers = || request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let url = request.url.as_str();
    let builder = match request.method {
        Method::Get => agent.get(url),
        Method::Head => agent.head(url),
        Method::Options => agent.options(url),
        Method::Post => {
            let builder =
                headers().fold(agent.post(url), |builder, (name, value)| builder.header(name, value));
            return match &request.json {
                Some(json) => builder.send(json),
                None => builder.send_form(arguments()),
            };
        }
    };
    let builder = headers().fold(builder, |builder, (name, value)| builder.header(name, value));
    builder.query_pairs(arguments()).call()
}

/// The answer as Chaos Toolkit has it. A body that is too long is none: half of it would be judged as if it were all.
fn answer(response: &mut Response<Body>) -> Result<Value, ureq::Error> {
    let mut headers = Map::new();
    for (name, value) in response.headers() {
        headers.insert(customary(name.as_str()), String::from_utf8_lossy(value.as_bytes()).into());
    }
    let is_json = headers.get("Content-Type").is_some_and(|kind| *kind == "application/json");
    let body = match response.body_mut().with_config().limit(LARGEST_BODY).read_to_vec() {
        Ok(bytes) => {
            let json = if is_json { serde_json::from_slice(&bytes).ok() } else { None };
            json.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into())
        }
        Err(ureq::Error::BodyExceedsLimit(_)) => Value::Null,
        Err(error) => return Err(error),
    };
    Ok(json!({"status": response.status().as_u16(), "headers": headers, "body": body}))
}

/// The name of a header as servers mostly write it: case has no meaning, and is lost on the way.
fn customary(name: &str) -> String {
    let mut start = true;
    let letter = |c: char| {
        let written = if start { c.to_ascii_uppercase() } else { c };
        start = c == '-';
        written
    };
    name.chars().map(letter).collect()
}
