//! One number of a Prometheus server, by its HTTP API (<https://prometheus.io/docs/prometheus/latest/querying/api/>): of now,
//! or of a range of time, reduced to one.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::address::{host_of, known};
use super::credential::Credential;
use super::http::{self, Request};
use super::trust::Trust;
use super::{NoData, Sampler, Seen};
use crate::spec::SpecError;

/// The longest range.
const LONGEST_RANGE: Duration = Duration::from_secs(24 * 3600);
/// The most points of a range: what fits into the largest body that is read.
const MOST_POINTS: u64 = 5000;

/// How the points of a range become one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reducer {
    /// The latest.
    #[default]
    Last,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The mean.
    Avg,
}

/// Names of reducers.
pub const REDUCERS: &[(&str, Reducer)] =
    &[("last", Reducer::Last), ("min", Reducer::Min), ("max", Reducer::Max), ("avg", Reducer::Avg)];
/// What no data may count as.
pub const NO_DATA: &[(&str, NoData)] =
    &[("breach", NoData::Breach), ("ok", NoData::Ok), ("error", NoData::Error)];

impl Reducer {
    #[expect(clippy::cast_precision_loss, reason = "there are not 2^52 points")]
    fn reduce(self, points: &[f64]) -> Option<f64> {
        let last = points.last().copied()?;
        Some(match self {
            Self::Last => last,
            // Of what is no number, and of nothing else, neither is one.
            Self::Min => points.iter().copied().fold(last, f64::min),
            Self::Max => points.iter().copied().fold(last, f64::max),
            Self::Avg => points.iter().sum::<f64>() / points.len() as f64,
        })
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    url: String,
    query: String,
    /// How far back, and in what steps.
    range: Option<(Duration, Duration)>,
    reducer: Reducer,
    pub(super) no_data: NoData,
    /// How old the latest sample of a series may be.
    stale: Option<Duration>,
    trust: Trust,
    credential: Option<Credential>,
}

/// What is asked beside the query.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'a> {
    /// How far back.
    pub range: Option<Duration>,
    /// In what steps; 15 s, or the range if that is less.
    pub step: Option<Duration>,
    /// A name of [`REDUCERS`]; `last`.
    pub reduce: Option<&'a str>,
    /// A name of [`NO_DATA`]; `breach`.
    pub no_data: Option<&'a str>,
    /// How old the latest sample may be.
    pub stale: Option<Duration>,
}

/// Why there is no number.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    /// There is nothing.
    NoData(String),
    /// The server's answer is not one number.
    Wrong(String),
}

impl Query {
    /// Understands a question to the server at `url`.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(url: &str, query: &str, terms: Terms<'_>) -> Result<Self, SpecError> {
        let url = known("URL", url)?;
        if query.trim().is_empty() {
            return Err(SpecError::new("QUERY", "missing: give an expression of PromQL"));
        }
        let range = match (terms.range, terms.step) {
            (None, Some(_)) => return Err(SpecError::new("--step", "only with --range")),
            (None, None) => None,
            (Some(range), step) => Some(steps(range, step.unwrap_or(range.min(Duration::from_secs(15))))?),
        };
        if range.is_none() && terms.reduce.is_some() {
            return Err(SpecError::new("--reduce", "only with --range: there is one value otherwise"));
        }
        if let Some(stale) = terms.stale {
            if stale < Duration::from_secs(1) || stale > LONGEST_RANGE {
                return Err(SpecError::new("--stale", format!("give 1s to {LONGEST_RANGE:?}")));
            }
            if !is_selector(query) {
                let problem =
                    "only of a selector such as up{job=\"pay\"}: of an expression Prometheus tells no age";
                return Err(SpecError::new("--stale", problem));
            }
        }
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            query: query.trim().to_owned(),
            range,
            reducer: named("--reduce", terms.reduce, REDUCERS)?,
            no_data: named("--no-data", terms.no_data, NO_DATA)?,
            stale: terms.stale,
            trust: Trust::default(),
            credential: None,
        })
    }

    /// The same, of a server that is believed by another's word than the host's.
    #[must_use]
    pub fn trusting(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// The same, with a credential.
    #[must_use]
    pub fn showing(self, credential: Option<Credential>) -> Self {
        Self { credential, ..self }
    }

    fn request(&self, now: Duration) -> Request {
        let query = &self.query;
        let asked = match self.stale {
            // An instant query tells the time that was asked for, and not that of the sample.
            Some(stale) => {
                format!("({query}) and (time() - timestamp({query}) <= {})", stale.as_secs_f64())
            }
            None => query.clone(),
        };
        let mut arguments = vec![("query".to_owned(), asked)];
        let path = match self.range {
            None => "query",
            Some((range, step)) => {
                let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
                arguments.extend([
                    ("start".to_owned(), seconds(now.saturating_sub(range))),
                    ("end".to_owned(), seconds(now)),
                    ("step".to_owned(), seconds(step)),
                ]);
                "query_range"
            }
        };
        let (trust, credential) = (self.trust.clone(), self.credential.clone());
        let url = format!("{}/api/v1/{path}", self.url);
        Request { url, arguments, trust, credential, ..Request::default() }
    }

    /// The number in an answer.
    fn number(&self, answer: &Value) -> Result<f64, Problem> {
        let body = &answer["body"];
        if body["status"] == "error" {
            let why = body["error"].as_str().unwrap_or_default();
            return Err(Problem::Wrong(format!("the server refuses the query: {why}")));
        }
        let points = points(&body["data"])?;
        let number = self.reducer.reduce(&points).ok_or_else(|| Problem::NoData("no data".to_owned()))?;
        // Infinity is one: more, or less, than every bound.
        match number.is_nan() {
            false => Ok(number),
            true => Err(Problem::NoData(format!("no data: {number}"))),
        }
    }
}

fn named<T: Copy + Default>(field: &str, name: Option<&str>, known: &[(&str, T)]) -> Result<T, SpecError> {
    let Some(name) = name else { return Ok(T::default()) };
    let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| SpecError::new(field, format!("{name:?} is not one of {}", names.join(", "))))
}

fn steps(range: Duration, step: Duration) -> Result<(Duration, Duration), SpecError> {
    if range < Duration::from_secs(1) || range > LONGEST_RANGE {
        return Err(SpecError::new("--range", format!("give 1s to {LONGEST_RANGE:?}")));
    }
    if step < Duration::from_secs(1) || step > range {
        return Err(SpecError::new("--step", "give 1s up to the range"));
    }
    if range.as_secs() / step.as_secs() > MOST_POINTS {
        return Err(SpecError::new("--step", format!("more than {MOST_POINTS} points: give longer steps")));
    }
    Ok((range, step))
}

/// Whether a query is a name, labels, or both.
fn is_selector(query: &str) -> bool {
    let labels = r#"\{(?:[^{}"'`]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)*\}"#;
    let selector = format!(r"^\s*(?:[a-zA-Z_:][a-zA-Z0-9_:]*\s*(?:{labels})?|{labels})\s*$");
    Regex::new(&selector).is_ok_and(|selector| selector.is_match(query))
}

/// The points of the only series in an answer, oldest first.
fn points(data: &Value) -> Result<Vec<f64>, Problem> {
    let wrong = || Problem::Wrong(format!("not the answer of a Prometheus server: {data}"));
    let number = |point: &Value| point[1].as_str().and_then(|text| text.parse().ok()).ok_or_else(wrong);
    let result = &data["result"];
    let kind = data["resultType"].as_str().ok_or_else(wrong)?;
    if kind == "scalar" {
        return Ok(vec![number(result)?]);
    }
    if kind != "vector" && kind != "matrix" {
        return Err(Problem::Wrong(format!("the query gives a {kind}, and no number")));
    }
    match result.as_array().ok_or_else(wrong)?.as_slice() {
        [] => Err(Problem::NoData("no data".to_owned())),
        [series] if kind == "vector" => Ok(vec![number(&series["value"])?]),
        [series] => series["values"].as_array().ok_or_else(wrong)?.iter().map(number).collect(),
        several => Err(Problem::Wrong(format!(
            "{} series, where one is needed: aggregate them, as in sum(…)",
            several.len()
        ))),
    }
}

impl Sampler for Query {
    async fn take(&self, limit: Duration) -> Seen {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let asked = http::ask(&self.request(now), &[], limit).await;
        let Some(answer) = asked.answer else {
            let why = asked.verdict.err().unwrap_or_else(|| "an answer without a body".to_owned());
            return Seen::nothing(why);
        };
        match self.number(&answer) {
            Ok(number) => Seen { answer: Some(json!(number)), ..Seen::measured(number, number.to_string()) },
            Err(Problem::Wrong(why)) => Seen::nothing(match asked.verdict {
                Ok(_) => why,
                Err(status) => format!("{status}: {why}"),
            }),
            Err(Problem::NoData(why)) => {
                let why = match self.stale {
                    Some(stale) => format!("{why} of the last {stale:?}"),
                    None => why,
                };
                let verdict = if self.no_data == NoData::Ok { Ok(why) } else { Err(why) };
                Seen { verdict, answer: None, value: None, no_data: Some(self.no_data) }
            }
        }
    }

    fn host(&self) -> Option<String> {
        Some(host_of(&self.url).to_owned())
    }

    fn credential(&self) -> Option<(&Credential, &str)> {
        Some((self.credential.as_ref()?, &self.url))
    }

    fn no_data(&self) -> Option<NoData> {
        Some(self.no_data)
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.query, self.url)?;
        self.range.map_or(Ok(()), |(range, _)| write!(f, ", {:?} of {range:?}", self.reducer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:9090/";

    fn query(terms: Terms<'_>) -> Query {
        Query::parse(URL, "up", terms).unwrap()
    }

    fn answer(kind: &str, result: &Value) -> Value {
        json!({"body": {"status": "success", "data": {"resultType": kind, "result": result}}})
    }

    #[test]
    fn an_answer_becomes_one_number() {
        let matrix = answer("matrix", &json!([{"values": [[1, "4"], [2, "1"], [3, "2.5"]]}]));
        for (reduce, number) in [("last", 2.5), ("min", 1.0), ("max", 4.0), ("avg", 2.5)] {
            let terms =
                Terms { range: Some(Duration::from_secs(60)), reduce: Some(reduce), ..Terms::default() };
            assert_eq!(query(terms).number(&matrix), Ok(number), "{reduce}");
        }
        let instant = query(Terms::default());
        assert_eq!(instant.number(&answer("vector", &json!([{"metric": {}, "value": [1, "0.5"]}]))), Ok(0.5));
        assert_eq!(instant.number(&answer("scalar", &json!([1, "7"]))), Ok(7.0));
    }

    #[test]
    fn nothing_is_told_from_what_is_not_one_number() {
        let instant = query(Terms::default());
        for (kind, result) in [
            ("vector", json!([])),
            ("matrix", json!([])),
            ("matrix", json!([{"values": []}])),
            ("vector", json!([{"value": [1, "NaN"]}])),
        ] {
            let number = instant.number(&answer(kind, &result));
            assert!(matches!(number, Err(Problem::NoData(_))), "{result}: {number:?}");
        }
        for bad in [
            answer("vector", &json!([{"value": [1, "1"]}, {"value": [1, "2"]}])),
            answer("string", &json!([1, "x"])),
            answer("vector", &json!([{"value": [1, "x"]}])),
            answer("vector", &json!("x")),
            json!({"body": {"status": "error", "error": "parse error"}}),
            json!({"body": "<html>"}),
        ] {
            assert!(matches!(instant.number(&bad), Err(Problem::Wrong(_))), "{bad}");
        }
    }

    #[test]
    fn infinity_is_a_number_and_what_is_none_makes_none_of_it() {
        let instant = query(Terms::default());
        for (text, number) in [("+Inf", f64::INFINITY), ("-Inf", f64::NEG_INFINITY)] {
            let seen = instant.number(&answer("vector", &json!([{"value": [1, text]}])));
            assert_eq!(seen, Ok(number));
        }
        let over = |reduce| {
            let range = Some(Duration::from_secs(60));
            query(Terms { range, reduce: Some(reduce), ..Terms::default() })
        };
        let matrix = |values: &Value| answer("matrix", &json!([{"values": values}]));
        let mixed = matrix(&json!([[1, "NaN"], [2, "1"], [3, "+Inf"], [4, "NaN"]]));
        assert_eq!((over("min").number(&mixed), over("max").number(&mixed)), (Ok(1.0), Ok(f64::INFINITY)));
        let none = matrix(&json!([[1, "NaN"], [2, "NaN"]]));
        for reduce in ["last", "min", "max", "avg"] {
            assert!(matches!(over(reduce).number(&none), Err(Problem::NoData(_))), "{reduce}");
        }
    }

    #[test]
    fn what_is_sent_is_what_was_meant() {
        let now = Duration::from_secs(1000);
        assert_eq!(query(Terms::default()).request(now).url, "http://127.0.0.1:9090/api/v1/query");
        let range = query(Terms { range: Some(Duration::from_secs(60)), ..Terms::default() }).request(now);
        assert!(range.url.ends_with("/api/v1/query_range"));
        let sent: Vec<_> = range.arguments.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(sent, ["up", "940.000", "1000.000", "15.000"]);
        let stale = query(Terms { stale: Some(Duration::from_secs(30)), ..Terms::default() }).request(now);
        assert_eq!(stale.arguments[0].1, "(up) and (time() - timestamp(up) <= 30)");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let second = Some(Duration::from_secs(1));
        let none = Terms::default();
        for (url, text, terms, field) in [
            ("ftp://x", "up", none, "URL"),
            (URL, " ", none, "QUERY"),
            (URL, "up", Terms { step: second, ..none }, "--step"),
            (URL, "up", Terms { range: Some(Duration::ZERO), ..none }, "--range"),
            (URL, "up", Terms { range: Some(LONGEST_RANGE), step: second, ..none }, "--step"),
            (URL, "up", Terms { reduce: Some("max"), ..none }, "--reduce"),
            (URL, "up", Terms { range: second, reduce: Some("p99"), ..none }, "--reduce"),
            (URL, "up", Terms { no_data: Some("ignore"), ..none }, "--no-data"),
            (URL, "up", Terms { stale: Some(Duration::ZERO), ..none }, "--stale"),
            (URL, "sum(up)", Terms { stale: second, ..none }, "--stale"),
        ] {
            assert_eq!(Query::parse(url, text, terms).unwrap_err().field, field, "{url} {text}");
        }
    }

    #[test]
    fn a_selector_is_told_from_an_expression() {
        for selector in ["up", "a:b", "up{job=\"x\"}", "{__name__=~\"a.*{2}\"}", " up {a='}', b!=`{`} "] {
            assert!(is_selector(selector), "{selector}");
        }
        for expression in ["rate(up[1m])", "up + 1", "up[1m]", "1", "up{a=\"x\"} or down", "up{a=\"}\" or b"]
        {
            assert!(!is_selector(expression), "{expression}");
        }
    }
}
