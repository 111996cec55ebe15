//! What a probe of the steady state may return: a scalar, a range, a list, a regular expression, a JSON path.
//!
//! The meaning is that of Chaos Toolkit, <https://chaostoolkit.org/reference/api/experiment/#steady-state-probe-tolerance>,
//! and where its text leaves something open, that of its program. What would make that program stop with an error is
//! refused when the document is read.

use regex::Regex;
use serde_json::Value;
use serde_json_path::JsonPath;

use super::futile;
use crate::probe::Sample;
use crate::probe::command::is_found;
use crate::request::fields::Fields;
use crate::spec::expression::expression;
use crate::spec::{Mistake, SpecError};

/// The longest JSON path, in bytes.
const LONGEST_PATH: usize = 1024;
/// How deep brackets of a JSON path may lie in each other: its reader goes down with them, and tries what is in them twice.
const DEEPEST_PATH: usize = 8;

/// What kind of object a probe returns: that of the provider `http`, or of `process`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `{status, headers, body}`
    Http,
    /// `{status, stdout, stderr}`, of `chaosctl`
    Process,
    /// `{status, stdout, stderr}`, of the program itself
    Command,
    /// `{value, met}`, of a function of Python and of chaostoolkit-lib
    Python,
}

impl Form {
    /// What the provider returns of this sample; `None` when it returns nothing, because it failed.
    pub fn output(self, sample: &Sample) -> Option<Value> {
        match self {
            Self::Http | Self::Command | Self::Python => sample.answer.clone(),
            Self::Process => Some(sample.as_process()),
        }
    }

    fn targets(self) -> &'static [&'static str] {
        match self {
            Self::Http => &["status", "headers", "body"],
            Self::Process | Self::Command => &["status", "stdout", "stderr"],
            Self::Python => &["value"],
        }
    }
}

/// What is accepted.
#[derive(Debug, Clone)]
pub enum Tolerance {
    /// This value.
    Equal(Value),
    /// For a status one of these; for anything else of two the bounds, of more one of these.
    List(Vec<Value>),
    /// A number within these bounds, which belong to it.
    Range {
        /// Part of what was returned.
        target: Option<String>,
        /// Lower and upper bound.
        bounds: (f64, f64),
    },
    /// Text in which this is found.
    Regex {
        /// Part of what was returned.
        target: Option<String>,
        /// The expression.
        pattern: Regex,
    },
    /// A document in which this path finds something.
    JsonPath {
        /// Part of what was returned.
        target: Option<String>,
        /// The path, RFC 9535.
        path: JsonPath,
        /// How many values it has to find.
        count: Option<u64>,
        /// Which values it has to find, in order.
        expect: Option<Vec<Value>>,
    },
    /// What chaostoolkit-lib was asked about, and has answered.
    Asked(Value),
}

impl PartialEq for Tolerance {
    fn eq(&self, other: &Self) -> bool {
        // A regular expression is its text.
        format!("{self:?}") == format!("{other:?}")
    }
}

/// Understands a JSON path that is no larger than can be read soon.
fn json_path(text: &str) -> Result<JsonPath, String> {
    // A bracket in a name counts as well: that is better than to take for a name what the reader does not.
    let depths = text.chars().scan(0_usize, |depth, c| {
        *depth = match c {
            '[' | '(' => *depth + 1,
            ']' | ')' => depth.saturating_sub(1),
            _ => *depth,
        };
        Some(*depth)
    });
    if text.len() > LONGEST_PATH || depths.max() > Some(DEEPEST_PATH) {
        return Err(format!(
            "too large: give at most {LONGEST_PATH} bytes, with brackets at most {DEEPEST_PATH} deep"
        ));
    }
    JsonPath::parse(text).map_err(|error| format!("not a JSON path (RFC 9535), which begins with $: {error}"))
}

impl Tolerance {
    /// Understands `tolerance`, which stands at `path`, for what a probe of this `form` returns.
    ///
    /// # Errors
    /// When it makes no sense, could never be met, or is met whatever comes.
    pub fn parse(path: &str, tolerance: Value, form: Form) -> Result<Self, SpecError> {
        let understood = Self::read(path, tolerance, form)?;
        futile::tolerance(path, &understood, form)?;
        Ok(understood)
    }

    fn read(path: &str, tolerance: Value, form: Form) -> Result<Self, SpecError> {
        let wrong = |problem: String| Err(SpecError::new(path, problem));
        match tolerance {
            Value::Bool(_) | Value::String(_) => wrong(format!(
                "{tolerance} is never what this probe returns, an object with a status: give the status, such as {}",
                if form == Form::Http { 200 } else { 0 }
            )),
            Value::Number(_) => Ok(Self::Equal(tolerance)),
            Value::Array(items) if items.is_empty() => wrong("empty: give what is right".to_owned()),
            Value::Array(items) => match items.iter().find(|item| !item.is_number()) {
                None => Ok(Self::List(items)),
                Some(item) => wrong(format!("{item} is never a status: give numbers")),
            },
            Value::Object(object) => Self::of_object(Fields::new(path, object), form),
            Value::Null => wrong("missing: give a status, a list, or an object with a type".to_owned()),
        }
    }

    fn of_object(mut fields: Fields, form: Form) -> Result<Self, SpecError> {
        let kind = fields.string("type")?;
        let kind = fields.need("type", kind, "range, regex or jsonpath")?;
        let target = match kind.as_str() {
            "range" | "regex" | "jsonpath" => target(&mut fields, &kind, form)?,
            "probe" => {
                let problem = "\"probe\" is not supported: only one in Python could judge, and none is run here (of http and \
                               process Chaos Toolkit takes whatever they answer for right); give range, regex or \
                               jsonpath, or make it a probe of the steady state";
                return Err(SpecError::new(fields.at("type"), problem).code(Mistake::NotSupported));
            }
            other => {
                let problem = format!("{other:?} is not one of range, regex, jsonpath");
                return Err(SpecError::new(fields.at("type"), problem));
            }
        };
        let tolerance = match kind.as_str() {
            "range" => Self::Range { target, bounds: bounds(&mut fields)? },
            "regex" => {
                let text = fields.string("pattern")?;
                let text = fields.need("pattern", text, "give a regular expression")?;
                Self::Regex { target, pattern: expression(&fields.at("pattern"), &text)? }
            }
            _ => {
                let text = fields.string("path")?;
                let text = fields.need("path", text, "give a JSON path, such as $.state")?;
                let path =
                    json_path(text.trim()).map_err(|problem| SpecError::new(fields.at("path"), problem))?;
                let expect = fields.take("expect").map(|expect| match expect {
                    Value::Array(values) => values,
                    value => vec![value],
                });
                Self::JsonPath { target, path, count: count(&mut fields)?, expect }
            }
        };
        fields.finish()?;
        Ok(tolerance)
    }

    /// Whether what a probe of this form has returned is within it.
    ///
    /// # Errors
    /// What it is instead, for people.
    pub fn judge_sample(&self, form: Form, sample: &Sample) -> Result<(), String> {
        // A request without an answer has failed, whatever would have been right.
        let output = form.output(sample).ok_or_else(|| sample.detail.clone())?;
        self.judge(&output).map_err(|problem| format!("{} ({problem})", sample.detail))
    }

    /// Whether `output` is within it.
    ///
    /// # Errors
    /// What it is instead, for people.
    pub fn judge(&self, output: &Value) -> Result<(), String> {
        let status = output.get("status");
        match self {
            Self::Asked(wanted) => verdict(output.get("met") == Some(&Value::Bool(true)), || {
                format!("{}, where {} is right", brief(output.get("value").unwrap_or(output)), brief(wanted))
            }),
            Self::Equal(wanted) => {
                let seen = status.unwrap_or(output);
                verdict(equal(seen, wanted), || format!("{}, where {wanted} is right", brief(seen)))
            }
            Self::List(wanted) => {
                let (seen, good) = match (status, wanted.as_slice()) {
                    (Some(status), _) => (status, wanted.iter().any(|value| equal(status, value))),
                    (None, [low, high]) => (output, between(low, output, high)),
                    (None, _) => (output, wanted.iter().any(|value| equal(output, value))),
                };
                verdict(good, || {
                    format!("{}, where {} is right", brief(seen), brief(&Value::Array(wanted.clone())))
                })
            }
            Self::Range { target, bounds: (low, high) } => {
                let seen = part(output, target.as_deref());
                let good = number(seen).is_some_and(|value| (*low..=*high).contains(&value));
                verdict(good, || format!("{}, where {low} to {high} is right", brief(seen)))
            }
            Self::Regex { target, pattern } => {
                let seen = part(output, target.as_deref());
                // Of a body that was read as JSON, what came.
                let text = if target.as_deref() == Some("body") { output.get("text") } else { None };
                let seen = text.unwrap_or(seen);
                let good = seen.as_str().is_some_and(|text| is_found(pattern, text));
                verdict(good, || format!("{:?} is not found in {}", pattern.as_str(), brief(seen)))
            }
            Self::JsonPath { target, path, count, expect } => {
                let seen = part(output, target.as_deref());
                // Text is read as JSON if it is some.
                let read = seen.as_str().and_then(|text| serde_json::from_str(text).ok());
                let found = path.query(read.as_ref().unwrap_or(seen)).all();
                let good = match (expect, count) {
                    (Some(expect), _) => {
                        found.len() == expect.len()
                            && found.iter().zip(expect).all(|(found, value)| equal(found, value))
                    }
                    (None, Some(count)) => found.len() as u64 == *count,
                    (None, None) => !found.is_empty(),
                };
                verdict(good, || {
                    let found = Value::Array(found.into_iter().cloned().collect());
                    format!("{path} finds {}", brief(&found))
                })
            }
        }
    }
}

fn target(fields: &mut Fields, kind: &str, form: Form) -> Result<Option<String>, SpecError> {
    let target = fields.string("target")?;
    let known = form.targets();
    match &target {
        None if kind == "jsonpath" => Ok(None),
        None => Err(SpecError::new(
            fields.at("target"),
            format!("missing: say which part is meant: {}", known.join(", ")),
        )),
        Some(name) if !known.contains(&name.as_str()) => Err(SpecError::new(
            fields.at("target"),
            format!("{name:?} is not returned by this probe: give {}", known.join(", ")),
        )),
        Some(name) if kind == "regex" && matches!(name.as_str(), "status" | "headers") => {
            Err(SpecError::new(fields.at("target"), format!("{name:?} is no text: use range or jsonpath")))
        }
        Some(name) if kind == "range" && name == "headers" => {
            Err(SpecError::new(fields.at("target"), "\"headers\" is no number: use jsonpath"))
        }
        Some(_) => Ok(target),
    }
}

fn bounds(fields: &mut Fields) -> Result<(f64, f64), SpecError> {
    let range = fields.array("range")?;
    let range = fields.need("range", range, "give [lowest, highest]")?;
    let bounds: Option<Vec<f64>> = range.iter().map(Value::as_f64).collect();
    match bounds.as_deref() {
        Some([low, high]) if low <= high => Ok((*low, *high)),
        _ => Err(SpecError::new(fields.at("range"), "give two numbers, the lower first")),
    }
}

fn count(fields: &mut Fields) -> Result<Option<u64>, SpecError> {
    let Some(count) = fields.take("count") else { return Ok(None) };
    let wrong = || SpecError::new(fields.at("count"), format!("{count} is no count: give 0 or more"));
    count.as_u64().map(Some).ok_or_else(wrong)
}

fn part<'a>(output: &'a Value, target: Option<&str>) -> &'a Value {
    target.and_then(|target| output.get(target)).unwrap_or(output)
}

/// As Python compares: 1 is 1.0, and true is 1.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_) | Value::Bool(_), Value::Number(_) | Value::Bool(_)) => {
            plain_number(a) == plain_number(b)
        }
        _ => a == b,
    }
}

fn between(low: &Value, value: &Value, high: &Value) -> bool {
    match (low, value, high) {
        (Value::String(low), Value::String(value), Value::String(high)) => (low..=high).contains(&value),
        _ => match (plain_number(low), plain_number(value), plain_number(high)) {
            (Some(low), Some(value), Some(high)) => (low..=high).contains(&value),
            _ => false,
        },
    }
}

fn plain_number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(|on| f64::from(u8::from(on))))
}

/// A number, also as text, with blanks around it.
fn number(value: &Value) -> Option<f64> {
    let text = || value.as_str().and_then(|text| text.trim().parse().ok());
    plain_number(value).or_else(text).filter(|number| number.is_finite())
}

fn verdict(good: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if good { Ok(()) } else { Err(otherwise()) }
}

/// A value in a line.
fn brief(value: &Value) -> String {
    const MOST: usize = 120;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
#[path = "tolerance_tests.rs"]
mod tests;
