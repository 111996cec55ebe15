//! The HTTP sample: one request, without proxies or redirects, so that what answers is what was asked.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use ureq::Body;
use ureq::config::ConfigBuilder;
use ureq::http::{HeaderName, HeaderValue, Response};
use ureq::typestate::AgentScope;

use super::address::{host_of, known, sent};
use super::credential::Credential;
use super::passage::{DEEPEST, is_deeper};
use super::trust::{self, Trust};
use super::{Sampler, Seen, blocking, late, reach};
use crate::spec::SpecError;

/// The most of a body that is read, in bytes.
pub const LARGEST_BODY: u64 = 256 * 1024;

/// The header that shows a credential.
pub(super) const AUTHORIZATION: &str = "authorization";

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
    /// Address, `http://…` or `https://…`.
    pub url: String,
    /// What is done with it.
    pub method: Method,
    /// Headers beside those that HTTP needs.
    pub headers: Vec<(String, String)>,
    /// What is sent: with POST as a form, otherwise as the query.
    pub arguments: Vec<(String, String)>,
    /// What is sent with POST as it is, in place of the form.
    pub body: Option<String>,
    /// By whose word an `https` address is who it says.
    pub trust: Trust,
    /// What is shown to whoever is asked.
    pub credential: Option<Credential>,
}

impl Request {
    /// A request of `url` by this method, with headers as `NAME: VALUE`, and with POST a body.
    ///
    /// # Errors
    /// Names what cannot be sent; the address is [looked at](super::Check::request) elsewhere.
    pub fn parse(
        url: String,
        method: Option<&str>,
        headers: &[String],
        body: Option<String>,
        trust: Trust,
    ) -> Result<Self, SpecError> {
        let method = match method {
            None => Method::default(),
            Some(name) => Method::parse(name).ok_or_else(|| {
                SpecError::new("--method", format!("{name:?} is not one of GET, HEAD, OPTIONS and POST"))
            })?,
        };
        if body.is_some() && method != Method::Post {
            return Err(SpecError::new("--body", "only with --method POST"));
        }
        let headers = headers.iter().map(|header| self::header(header)).collect::<Result<_, _>>()?;
        Ok(Self { url, method, headers, body, trust, arguments: Vec::new(), credential: None })
    }

    /// The same, with a credential.
    ///
    /// # Errors
    /// When a header shows one already.
    pub fn showing(self, credential: Option<Credential>) -> Result<Self, SpecError> {
        let is_shown = |(name, _): &(String, String)| name.eq_ignore_ascii_case(AUTHORIZATION);
        if credential.is_some() && self.headers.iter().any(is_shown) {
            let problem = "Authorization is what --bearer, --basic and their files make: give one of both";
            return Err(SpecError::new("--header", problem));
        }
        Ok(Self { credential, ..self })
    }
}

/// A header as `NAME: VALUE`.
fn header(text: &str) -> Result<(String, String), SpecError> {
    let parts = text.split_once(':').map(|(name, value)| (name, value.trim()));
    let fits = |(name, value): &(&str, &str)| {
        HeaderName::from_bytes(name.as_bytes()).is_ok() && HeaderValue::from_str(value).is_ok()
    };
    let (name, value) = parts.filter(fits).ok_or_else(|| {
        // Not repeated: it may be a secret.
        SpecError::new("--header", "not a header: give NAME: VALUE, e.g. \"Accept: application/json\"")
    })?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A request, and what is right of its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The request.
    pub request: Request,
    /// Statuses that are right; any 2xx when none is named.
    pub status: Vec<u16>,
}

impl Exchange {
    /// Understands a request, the address of which stands at `field`, and the statuses that are right.
    ///
    /// # Errors
    /// When its address is not one of HTTP.
    pub fn new(field: &str, request: Request, status: Vec<u16>) -> Result<Self, SpecError> {
        let url = known(field, &request.url)?;
        Ok(Self { request: Request { url, ..request }, status })
    }
}

impl Sampler for Exchange {
    async fn take(&self, limit: Duration) -> Seen {
        ask(&self.request, &self.status, limit).await
    }

    fn may_change(&self) -> bool {
        self.request.method == Method::Post
    }

    fn measures_time(&self) -> bool {
        true
    }

    fn host(&self) -> Option<String> {
        Some(host_of(&self.request.url).to_owned())
    }

    fn credential(&self) -> Option<(&Credential, &str)> {
        Some((self.request.credential.as_ref()?, &self.request.url))
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.request.method.name(), self.request.url)
    }
}

/// Carries `request` out; one of `status` is right, or any 2xx when it is empty.
pub(super) async fn ask(request: &Request, status: &[u16], limit: Duration) -> Seen {
    let request = request.clone();
    let prepare = move || {
        let agent = agent(&request.url, &request.trust, limit)?;
        let shown =
            request.credential.as_ref().map(|credential| credential.header(&request.url, &request.trust));
        let shown = shown.transpose()?.map(|shown| (AUTHORIZATION.to_owned(), shown));
        let headers = request.headers.iter().cloned().chain(shown).collect();
        Ok((Request { headers, ..request }, agent))
    };
    carry(prepare, status, limit).await
}

/// Carries a request out that is made where it may block, with the client for it; otherwise as [`ask`].
pub(super) async fn carry(
    prepare: impl FnOnce() -> Result<(Request, ureq::Agent), String> + Send + 'static,
    status: &[u16],
    limit: Duration,
) -> Seen {
    let status = status.to_vec();
    let fetch = move || match prepare() {
        Ok((request, agent)) => fetch(&agent, &request, &status, limit),
        Err(problem) => Seen::nothing(problem),
    };
    // The client's own limit does not cover a name service that hangs; ours does.
    blocking(limit + Duration::from_millis(250), fetch).await.unwrap_or_else(Seen::nothing)
}

fn fetch(agent: &ureq::Agent, request: &Request, status: &[u16], limit: Duration) -> Seen {
    let problem = |error: &ureq::Error| match error {
        ureq::Error::Timeout(_) => late(limit),
        other => trust::problem(other),
    };
    let mut response = match send(agent, request) {
        Ok(response) => response,
        Err(error) => return Seen::nothing(problem(&error)),
    };
    let seen = response.status();
    let right = if status.is_empty() { seen.is_success() } else { status.contains(&seen.as_u16()) };
    let verdict = match right {
        true => Ok(format!("status {}", seen.as_u16())),
        false if status.is_empty() => Err(format!("status {}, where 2xx is right", seen.as_u16())),
        false => Err(format!("status {}, where {status:?} is right", seen.as_u16())),
    };
    match answer(&mut response) {
        Ok(answer) => Seen { verdict, answer: Some(answer), value: None, no_data: None },
        Err(error) => Seen::nothing(format!("status {}, and then: {}", seen.as_u16(), problem(&error))),
    }
}

/// A client for the server at `url`, which takes every status for an answer, and begins anew: it knows no earlier connection, nor a
/// session of one. `limit` is for each request.
pub(super) fn agent(url: &str, trust: &Trust, limit: Duration) -> Result<ureq::Agent, String> {
    let client = client(limit);
    // Without TLS there is nobody to be trusted.
    let client = match url.starts_with("https://") {
        true => client.tls_config(trust.config()?.build()),
        false => client,
    };
    Ok(reach::agent(client.build()))
}

/// The settings of such a client.
pub(super) fn client(limit: Duration) -> ConfigBuilder<AgentScope> {
    ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
}

fn send(agent: &ureq::Agent, request: &Request) -> Result<Response<Body>, ureq::Error> {
    let arguments = || request.arguments.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let headers = || request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let url = sent(&request.url);
    let builder = match request.method {
        Method::Get => agent.get(url),
        Method::Head => agent.head(url),
        Method::Options => agent.options(url),
        Method::Post => {
            let builder =
                headers().fold(agent.post(url), |builder, (name, value)| builder.header(name, value));
            return match &request.body {
                Some(body) => builder.send(body),
                None => builder.send_form(arguments()),
            };
        }
    };
    let builder = headers().fold(builder, |builder, (name, value)| builder.header(name, value));
    builder.query_pairs(arguments()).call()
}

/// The answer as Chaos Toolkit has it, and in `text` a body that was read as JSON as it came. A body that is too long is none: half of
/// it would be judged as if it were all.
fn answer(response: &mut Response<Body>) -> Result<Value, ureq::Error> {
    let mut headers = Map::new();
    for (name, value) in response.headers() {
        headers.insert(customary(name.as_str()), String::from_utf8_lossy(value.as_bytes()).into());
    }
    let is_json = headers.get("Content-Type").is_some_and(|kind| *kind == "application/json");
    let status = response.status().as_u16();
    let bytes = match response.body_mut().with_config().limit(LARGEST_BODY).read_to_vec() {
        Ok(bytes) => bytes,
        Err(ureq::Error::BodyExceedsLimit(_)) => {
            return Ok(json!({"status": status, "headers": headers, "body": null}));
        }
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    let json: Option<Value> = if is_json { serde_json::from_slice(&bytes).ok() } else { None };
    // What is nested too deep to be handed on is text, as what is no JSON.
    Ok(match json.filter(|json| !is_deeper(json, DEEPEST - 1)) {
        Some(body) => json!({"status": status, "headers": headers, "body": body, "text": text}),
        None => json!({"status": status, "headers": headers, "body": text}),
    })
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
