//! By what the server at an address knows who asks: a bearer token or a password, which is shown in each request and nowhere else.
//!
//! One of a file the daemon shows only to whom its policy says: the injector reads the file and hands it to the prober when that is
//! started (`injector/credentials.rs`); the server, with which callers speak, never has it. `chaosctl probe` reads the file itself.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Sample;
use super::trust::Trust;
use crate::host::program::is_plain;
use crate::host::secret::{Entrusted, own};
use crate::spec::SpecError;
use crate::spec::origin::Origin;

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// Why a file is not shown where nobody is verified.
const SHOWN_TO_ANYONE: &str =
    "not with --no-verify-tls: it would be shown to whoever answers; give --ca-file";

/// What this process was given, by path; nothing has been said where it is a caller's own.
static GIVEN: OnceLock<BTreeMap<String, Entrusted>> = OnceLock::new();

/// Takes over what the injector has entrusted to this process, if anything; from then on it reads no file itself.
///
/// # Errors
/// When it cannot be read.
pub fn take_over(file: Option<File>) -> io::Result<()> {
    let mut text = Vec::new();
    if let Some(mut file) = file {
        file.read_to_end(&mut text)?;
    }
    let given = if text.is_empty() { BTreeMap::new() } else { serde_json::from_slice(&text)? };
    let _ = GIVEN.set(given);
    Ok(())
}

/// How it is shown (RFC 6750, RFC 7617).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Scheme {
    Bearer,
    Basic,
}

/// Where it is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Source {
    /// Here.
    Value(String),
    /// In the file at this path.
    File(String),
}

/// A credential.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    scheme: Scheme,
    /// Boxed, because most probes have none.
    source: Box<Source>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = self.file().unwrap_or(HIDDEN);
        f.debug_struct("Credential").field("scheme", &self.scheme).field("source", &source).finish()
    }
}

/// The options of a command line, of which one may be given.
#[derive(Clone, Copy, Default)]
pub struct Terms<'a> {
    /// A token.
    pub bearer: Option<&'a str>,
    /// Path of a file with one.
    pub bearer_file: Option<&'a str>,
    /// `USER:PASSWORD`
    pub basic: Option<&'a str>,
    /// Path of a file with these.
    pub basic_file: Option<&'a str>,
}

impl Credential {
    /// The one that is given, if one is, for the server at `url`, which is believed by the word of `trust`.
    ///
    /// # Errors
    /// Names what makes no sense, and repeats nothing of it.
    pub fn parse(terms: Terms<'_>, url: Option<&str>, trust: &Trust) -> Result<Option<Self>, SpecError> {
        let Terms { bearer, bearer_file, basic, basic_file } = terms;
        let value = |scheme, text: &str| (scheme, Source::Value(text.to_owned()));
        let file = |scheme, path: &str| (scheme, Source::File(path.to_owned()));
        let all = [
            ("--bearer", bearer.map(|text| value(Scheme::Bearer, text))),
            ("--bearer-file", bearer_file.map(|path| file(Scheme::Bearer, path))),
            ("--basic", basic.map(|text| value(Scheme::Basic, text))),
            ("--basic-file", basic_file.map(|path| file(Scheme::Basic, path))),
        ];
        let mut given = all.into_iter().filter_map(|(option, given)| Some((option, given?)));
        let Some((option, (scheme, source))) = given.next() else { return Ok(None) };
        if let Some((other, _)) = given.next() {
            return Err(SpecError::new(other, format!("there is {option}, too: give one of them")));
        }
        if url.is_none() {
            return Err(SpecError::new(option, "only with an address of http or https"));
        }
        let credential = Self { scheme, source: Box::new(source) };
        match &*credential.source {
            Source::Value(text) => {
                scheme.header(text).map_err(|problem| SpecError::new(option, problem))?;
            }
            Source::File(path) if !is_plain(path) => {
                let problem = format!(
                    "{path:?} is not an absolute path without detours: give e.g. \"/etc/chaos-daemon/prometheus.token\""
                );
                return Err(SpecError::new(option, problem));
            }
            Source::File(_) if *trust == Trust::Anyone => {
                return Err(SpecError::new(option, SHOWN_TO_ANYONE));
            }
            Source::File(_) => {}
        }
        Ok(Some(credential))
    }

    /// Path of the file that it is in, if it is in one.
    pub fn file(&self) -> Option<&str> {
        match &*self.source {
            Source::Value(_) => None,
            Source::File(path) => Some(path),
        }
    }

    /// What a request to `url` has as its header `Authorization`, if who answers there is believed by the word of `trust`.
    ///
    /// # Errors
    /// When it may not be shown there, cannot be read, or is none.
    pub(super) fn header(&self, url: &str, trust: &Trust) -> Result<String, String> {
        // Not left to whoever has read the probe: an origin is one only if somebody says so.
        if let (Some(path), Trust::Anyone) = (self.file(), trust) {
            return Err(format!("{path} {SHOWN_TO_ANYONE}"));
        }
        let text = self.text(url)?;
        self.scheme.header(&text).map_err(|problem| match self.file() {
            Some(path) => format!("{path}: {problem}"),
            None => problem.to_owned(),
        })
    }

    fn text(&self, url: &str) -> Result<String, String> {
        let path = match &*self.source {
            Source::Value(text) => return Ok(text.clone()),
            Source::File(path) => path,
        };
        match GIVEN.get() {
            Some(given) => entrusted(given.get(path), path, url),
            None => own(Path::new(path), true)
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_bytes| format!("{path} is not text"))),
        }
    }

    /// A text of whoever answers at `url` without the secret, for one that is cut: a part of a secret is not known for one.
    pub(super) fn hidden(&self, url: &str, text: &str) -> String {
        // Where it is not known it was not shown.
        self.text(url)
            .map_or_else(|_unknown| text.to_owned(), |secret| hide(&self.scheme.secrets(&secret), text))
    }

    /// The sample without the secret: whoever answers may say it back.
    pub(super) fn hide(&self, url: &str, sample: Sample) -> Sample {
        // Where it is not known it was not shown.
        let Ok(text) = self.text(url) else { return sample };
        let secrets = self.scheme.secrets(&text);
        let answer = sample.answer.as_ref().map(|answer| hide_in(&secrets, answer));
        Sample { detail: hide(&secrets, &sample.detail), answer, ..sample }
    }
}

/// What the process was given of the file at `path`, if it may be shown at `url`.
fn entrusted(given: Option<&Entrusted>, path: &str, url: &str) -> Result<String, String> {
    let given = given.ok_or_else(|| format!("{path} is not among the credentials of probes"))?;
    match Origin::of(url).is_some_and(|origin| given.origins.contains(&origin)) {
        true => given.text.clone(),
        false => Err(format!("{path} may not be shown to {url}")),
    }
}

impl Scheme {
    fn header(self, text: &str) -> Result<String, &'static str> {
        let text = text.trim_ascii();
        let is_line = text.len() <= 8192 && !text.contains(char::is_control);
        match self {
            Self::Bearer
                if is_line && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) =>
            {
                Ok(format!("Bearer {text}"))
            }
            Self::Bearer => Err("no token: give one line of ASCII without blanks"),
            Self::Basic if is_line && text.split_once(':').is_some_and(|(user, _)| !user.is_empty()) => {
                Ok(format!("Basic {}", STANDARD.encode(text)))
            }
            Self::Basic => Err("no user and password: give one line, USER:PASSWORD"),
        }
    }

    /// Every way in which it may be said back, the longest first.
    fn secrets(self, text: &str) -> Vec<String> {
        let text = text.trim_ascii();
        let mut secrets = vec![text.to_owned()];
        if self == Self::Basic {
            secrets.extend(text.split_once(':').map(|(_, password)| password.to_owned()));
            secrets.push(STANDARD.encode(text));
        }
        let escaped = |secret: &String| {
            let escaped = Value::String(secret.clone()).to_string();
            escaped[1..escaped.len() - 1].to_owned()
        };
        secrets.extend(secrets.iter().map(escaped).collect::<Vec<_>>());
        secrets.retain(|secret| !secret.is_empty());
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }
}

fn hide(secrets: &[String], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
}

fn hide_in(secrets: &[String], value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(hide(secrets, text)),
        Value::Array(items) => items.iter().map(|item| hide_in(secrets, item)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (hide(secrets, name), hide_in(secrets, value))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
#[path = "credential_tests.rs"]
mod tests;
