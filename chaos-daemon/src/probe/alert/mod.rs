//! Whether an alert fires, by the HTTP API of a Prometheus Alertmanager, version 2
//! (<https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml>), or by what the daemon was told (`webhook.rs`).
//!
//! Labels are matched by Alertmanager itself, or as it does it; what is said of the alerts that have them is judged here, so that
//! one with the wrong reason or receiver is told from none. One that is resolved is not in Alertmanager's answer.

mod matcher;
mod notification;
mod record;
pub mod webhook;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::matcher::Matcher;
use super::address::{host_of, known};
use super::credential::Credential;
use super::http::{self, Request};
use super::trust::Trust;
use super::{Bounds, Sampler, Seen};
use crate::spec::SpecError;
use crate::spec::expression::expression;

/// The bounds of what is counted when nobody says: at least one has to fire.
pub const FIRES: Bounds = Bounds { min: Some(1.0), max: None };
/// The longest that may have passed since an alert began to fire.
const LONGEST_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How many alerts are told of in words.
const TOLD: usize = 3;
/// Which alerts are meant. Without any condition, all that fire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    source: Source,
    labels: Vec<Matcher>,
    reason: Option<String>,
    receiver: Option<String>,
    within: Option<Duration>,
    credential: Option<Credential>,
}

/// Whence it is known that they fire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Source {
    /// The Alertmanager at this address is asked, which is believed by this word.
    Alertmanager(String, Trust),
    /// The daemon was told.
    Webhook,
}

/// What is asked of an alert.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'a> {
    /// Labels, each as `NAME=VALUE`, `NAME!=VALUE`, `NAME=~REGEX` or `NAME!~REGEX`, without quotation marks.
    pub labels: &'a [String],
    /// Regular expression that is found in one of its annotations.
    pub reason: Option<&'a str>,
    /// Regular expression that one of its receivers' names is matched by as a whole.
    pub receiver: Option<&'a str>,
    /// How long ago it may have begun to fire.
    pub within: Option<Duration>,
}

/// The expressions of an [`Alert`], compiled.
struct Patterns {
    reason: Option<Regex>,
    receiver: Option<Regex>,
}

impl Alert {
    /// Understands a question to the Alertmanager at `url`.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(url: &str, trust: Trust, terms: Terms<'_>) -> Result<Self, SpecError> {
        let url = known("URL", url)?;
        Self::of(Source::Alertmanager(url.trim_end_matches('/').to_owned(), trust), terms)
    }

    /// Understands a question about what the daemon was told.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn told(terms: Terms<'_>) -> Result<Self, SpecError> {
        Self::of(Source::Webhook, terms)
    }

    fn of(source: Source, terms: Terms<'_>) -> Result<Self, SpecError> {
        if terms.within.is_some_and(|within| within.is_zero() || within > LONGEST_WITHIN) {
            return Err(SpecError::new("--within", format!("give up to {LONGEST_WITHIN:?}")));
        }
        let alert = Self {
            source,
            labels: terms.labels.iter().map(|label| Matcher::parse(label)).collect::<Result<_, _>>()?,
            reason: terms.reason.map(str::to_owned),
            receiver: terms.receiver.map(str::to_owned),
            within: terms.within,
            credential: None,
        };
        alert.patterns()?;
        Ok(alert)
    }

    /// The same, with a credential.
    #[must_use]
    pub fn showing(self, credential: Option<Credential>) -> Self {
        Self { credential, ..self }
    }

    /// Whether it is about what the daemon was told.
    pub(super) fn is_told(&self) -> bool {
        self.source == Source::Webhook
    }

    fn patterns(&self) -> Result<Patterns, SpecError> {
        let reason = self.reason.as_deref().map(|text| expression("--reason", text)).transpose()?;
        let receiver = self.receiver.as_deref().map(|text| whole("--receiver", text)).transpose()?;
        Ok(Patterns { reason, receiver })
    }

    fn request(&self, url: &str, trust: &Trust) -> Request {
        let arguments = self.labels.iter().map(|label| ("filter".to_owned(), label.to_string())).collect();
        let (url, trust) = (format!("{url}/api/v2/alerts"), trust.clone());
        Request { url, arguments, trust, credential: self.credential.clone(), ..Request::default() }
    }

    /// How many alerts of an answer are meant, and why the others are not.
    fn judge(&self, answer: &Value, now: Timestamp) -> Result<Seen, String> {
        if answer.is_null() {
            return Err(format!(
                "more than {} KiB of alerts: give labels that fewer have",
                http::LARGEST_BODY / 1024
            ));
        }
        let alerts =
            answer.as_array().ok_or_else(|| "not the answer of an Alertmanager, API version 2".to_owned())?;
        let patterns = self.patterns().map_err(|error| error.to_string())?;
        let (mut firing, mut fire, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for alert in alerts {
            let name = alert["labels"]["alertname"].as_str().unwrap_or_default();
            match self.mismatch(alert, &patterns, now) {
                None => {
                    firing.push(alert);
                    fire.push(format!("{name:?} ({})", annotations(alert)));
                }
                Some(why) => others.push(format!("{name:?} {why}")),
            }
        }
        let detail = match (fire.is_empty(), others.is_empty()) {
            (false, _) => format!("firing: {}", told(&fire)),
            (true, true) => "none fires".to_owned(),
            (true, false) => format!("none fires as it should: {}", told(&others)),
        };
        let count = u32::try_from(firing.len()).unwrap_or(u32::MAX);
        Ok(Seen { answer: Some(json!({"firing": firing})), ..Seen::measured(f64::from(count), detail) })
    }

    /// Why an alert that has the labels is not meant.
    fn mismatch(&self, alert: &Value, patterns: &Patterns, now: Timestamp) -> Option<String> {
        match alert["status"]["state"].as_str() {
            // Nobody is told of it.
            Some("suppressed") => return Some("is silenced or inhibited".to_owned()),
            Some("resolved") => return Some("is resolved".to_owned()),
            _ => {}
        }
        if let Some(receiver) = &patterns.receiver {
            let receivers = alert["receivers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<_> = receivers.iter().filter_map(|receiver| receiver["name"].as_str()).collect();
            if !names.iter().any(|name| receiver.is_match(name)) {
                return Some(format!("goes to {names:?}"));
            }
        }
        if let Some(reason) = &patterns.reason {
            let texts = alert["annotations"].as_object().into_iter().flat_map(|texts| texts.values());
            if !texts.filter_map(Value::as_str).any(|text| reason.is_match(text)) {
                return Some(format!("gives another reason ({})", annotations(alert)));
            }
        }
        let within = self.within?;
        let began = alert["startsAt"].as_str().unwrap_or_default();
        let age = began.parse::<Timestamp>().map(|began| now.duration_since(began).as_secs_f64());
        match age {
            Ok(age) if age <= within.as_secs_f64() => None,
            Ok(age) => Some(format!("has been firing for {age:.0} s")),
            Err(_) => Some(format!("does not say since when it fires: {began:?}")),
        }
    }
}

/// The expression that was given at `option`, and that has to match the whole of a text.
fn whole(option: &str, given: &str) -> Result<Regex, SpecError> {
    expression(option, given)?;
    expression(option, &format!("^(?:{given})$"))
}

/// What an alert says of itself. Escaped, for anybody may send alerts.
fn annotations(alert: &Value) -> String {
    let texts = alert["annotations"].as_object().into_iter().flatten();
    let texts: Vec<_> =
        texts.map(|(name, text)| format!("{name}: {:?}", text.as_str().unwrap_or_default())).collect();
    if texts.is_empty() { "no annotation".to_owned() } else { texts.join(", ") }
}

/// The first few of `texts`.
fn told(texts: &[String]) -> String {
    let more = texts.len().saturating_sub(TOLD);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", texts[..texts.len().min(TOLD)].join(", "))
}

impl Sampler for Alert {
    async fn take(&self, limit: Duration) -> Seen {
        let Source::Alertmanager(url, trust) = &self.source else {
            return Seen::nothing("only the daemon can know what it was told".to_owned());
        };
        let asked = http::ask(&self.request(url, trust), &[200], limit).await;
        match (asked.verdict, asked.answer) {
            (Ok(_), Some(answer)) => self.judge(&answer["body"], Timestamp::now()).into(),
            (Err(status), Some(answer)) => Seen::nothing(match answer["body"].as_str() {
                Some(why) if !why.is_empty() => format!("{status}: {why:?}"),
                _ => status,
            }),
            (verdict, None) => Seen::nothing(verdict.unwrap_or_else(|why| why)),
        }
    }

    fn host(&self) -> Option<String> {
        match &self.source {
            Source::Alertmanager(url, _) => Some(host_of(url).to_owned()),
            Source::Webhook => None,
        }
    }

    fn credential(&self) -> Option<(&Credential, &str)> {
        match &self.source {
            Source::Alertmanager(url, _) => Some((self.credential.as_ref()?, url)),
            Source::Webhook => None,
        }
    }

    fn is_the_daemons(&self) -> bool {
        self.is_told()
    }

    fn usual_bounds(&self) -> Bounds {
        FIRES
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.labels.iter().map(Matcher::to_string).collect();
        let labels = labels.join(", ");
        match &self.source {
            Source::Alertmanager(url, _) => write!(f, "alerts {{{labels}}} of {url}"),
            Source::Webhook => write!(f, "alerts {{{labels}}} that the daemon was told of"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:9093/";
    const NOW: &str = "2026-05-04T10:00:30Z";

    fn alert(terms: Terms<'_>) -> Alert {
        Alert::parse(URL, Trust::Host, terms).unwrap()
    }

    fn fires() -> Value {
        json!({
            "labels": {"alertname": "PoolUsedUp", "severity": "p1"},
            "annotations": {"summary": "no connection left", "runbook": "restart the pool"},
            "receivers": [{"name": "archive"}, {"name": "oncall"}],
            "startsAt": "2026-05-04T10:00:00.000Z",
            "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
        })
    }

    /// How many of `alerts` are meant, and what is said.
    fn judge(terms: Terms<'_>, alerts: &[Value]) -> (f64, String) {
        let seen = alert(terms).judge(&json!(alerts), NOW.parse().unwrap()).unwrap();
        (seen.value.unwrap(), seen.verdict.unwrap())
    }

    #[test]
    fn an_alert_counts_if_reason_receiver_and_age_are_right_and_otherwise_it_is_said_what_is_not() {
        let none = Terms::default();
        let within = |seconds| Terms { within: Some(Duration::from_secs(seconds)), ..none };
        for (terms, said) in [
            (none, None),
            (Terms { reason: Some("connection"), ..none }, None),
            (Terms { reason: Some("^restart"), ..none }, None),
            (Terms { reason: Some("disk"), ..none }, Some("another reason (runbook: \"restart the pool\"")),
            // No text that goes from one annotation into the other.
            (Terms { reason: Some("(?s)pool.*left"), ..none }, Some("another reason")),
            (Terms { receiver: Some("oncall|nobody"), ..none }, None),
            (Terms { receiver: Some("call"), ..none }, Some("goes to [\"archive\", \"oncall\"]")),
            (within(30), None),
            (within(29), Some("firing for 30 s")),
            (Terms { reason: Some("connection"), receiver: Some("dev"), ..within(60) }, Some("goes to")),
        ] {
            let (count, detail) = judge(terms, &[fires()]);
            match said {
                None => {
                    assert!(
                        count > 0.5 && detail.starts_with("firing: \"PoolUsedUp\" ("),
                        "{terms:?}: {detail}"
                    );
                }
                Some(said) => assert!(count < 0.5 && detail.contains(said), "{terms:?}: {detail}"),
            }
        }
        assert_eq!(judge(none, &[]), (0.0, "none fires".to_owned()));
    }

    #[test]
    fn one_that_nobody_hears_of_does_not_fire() {
        let mut silenced = fires();
        silenced["status"]["state"] = json!("suppressed");
        let (count, detail) = judge(Terms::default(), &[silenced.clone(), fires()]);
        assert!((count - 1.0).abs() < 0.01 && !detail.contains("silenced"), "{detail}");
        let (count, detail) = judge(Terms::default(), &[silenced]);
        assert!(count < 0.5 && detail.contains("is silenced or inhibited"), "{detail}");
    }

    #[test]
    fn several_are_counted_and_a_few_told_of_without_anything_that_a_terminal_obeys() {
        let mut alarming = fires();
        alarming["annotations"]["summary"] = json!("\u{1b}[2J\n");
        let (count, detail) = judge(Terms::default(), &vec![alarming; 5]);
        assert!((count - 5.0).abs() < 0.01 && detail.ends_with(", and 2 more"), "{detail}");
        assert!(!detail.contains(char::is_control), "{detail}");
    }

    #[test]
    fn what_is_no_answer_of_an_alertmanager_is_no_count() {
        let now = NOW.parse().unwrap();
        for (answer, said) in [
            (Value::Null, "more than 256 KiB"),
            (json!("<html>"), "not the answer"),
            (json!({"status": "success", "data": []}), "not the answer"),
        ] {
            let error = alert(Terms::default()).judge(&answer, now).err().unwrap();
            assert!(error.contains(said), "{answer}: {error}");
        }
    }

    #[test]
    fn labels_are_sent_as_alertmanager_reads_them() {
        let labels = ["alertname=Pool", "team!=dev", "job=~a|b", r#"path!~\d+""#, "empty=", "sum=a=b"]
            .map(str::to_owned);
        let alert = alert(Terms { labels: &labels, ..Terms::default() });
        let Source::Alertmanager(url, trust) = &alert.source else { panic!("{alert}") };
        let request = alert.request(url, trust);
        assert_eq!(request.url, "http://127.0.0.1:9093/api/v2/alerts");
        let sent: Vec<_> = request.arguments.iter().map(|(_, value)| value.as_str()).collect();
        let expected = [
            r#"alertname="Pool""#,
            r#"team!="dev""#,
            r#"job=~"a|b""#,
            r#"path!~"\\d+\"""#,
            r#"empty="""#,
            r#"sum="a=b""#,
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let none = Terms::default();
        for label in ["", "alertname", "=x", "1a=x", "a b=x", "a>1", "job=~("] {
            let labels = [label.to_owned()];
            let error = Alert::parse(URL, Trust::Host, Terms { labels: &labels, ..none }).unwrap_err();
            assert_eq!(error.field, "--label", "{label:?}");
        }
        for (url, terms, field) in [
            ("ftp://x", none, "URL"),
            (URL, Terms { reason: Some("("), ..none }, "--reason"),
            (URL, Terms { receiver: Some("a)(b"), ..none }, "--receiver"),
            (URL, Terms { within: Some(Duration::ZERO), ..none }, "--within"),
        ] {
            assert_eq!(Alert::parse(url, Trust::Host, terms).unwrap_err().field, field);
            let told = Alert::told(terms).map_err(|error| error.field);
            assert_eq!(told.is_err(), field != "URL", "{told:?}");
        }
    }
}
