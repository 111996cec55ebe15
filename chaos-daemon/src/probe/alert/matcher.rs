//! Labels, matched as Alertmanager does it: a whole value or a whole expression, and a label that is not there is empty.

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::whole;
use crate::spec::SpecError;

/// How a label is matched. Of two with the same beginning the longer one comes first.
const OPERATORS: &[&str] = &["=~", "!~", "!=", "="];

/// What is asked of one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Matcher {
    name: String,
    operator: String,
    value: String,
}

/// A [`Matcher`], compiled.
pub(super) struct Test<'a> {
    name: &'a str,
    value: Regex,
    wanted: bool,
}

impl Matcher {
    /// Understands a label with an operator.
    pub(super) fn parse(label: &str) -> Result<Self, SpecError> {
        let wrong = || {
            let problem =
                format!("{label:?} is no label: give NAME=VALUE, NAME!=VALUE, NAME=~REGEX or NAME!~REGEX");
            SpecError::new("--label", problem)
        };
        let end = label.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').ok_or_else(wrong)?;
        let (name, rest) = label.split_at(end);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong());
        }
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator)).ok_or_else(wrong)?;
        let value = &rest[operator.len()..];
        let matcher =
            Self { name: name.to_owned(), operator: (*operator).to_owned(), value: value.to_owned() };
        matcher.test()?;
        Ok(matcher)
    }

    pub(super) fn test(&self) -> Result<Test<'_>, SpecError> {
        let value = match self.operator.ends_with('~') {
            true => whole("--label", &self.value)?,
            false => whole("--label", &regex::escape(&self.value))?,
        };
        Ok(Test { name: &self.name, value, wanted: self.operator.starts_with('=') })
    }
}

/// In Alertmanager's words, `name="value"`.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        write!(f, "{}{}\"{value}\"", self.name, self.operator)
    }
}

impl Test<'_> {
    /// Whether it is so of an alert with these labels.
    pub(super) fn fits(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(self.name).map_or("", String::as_str);
        self.value.is_match(value) == self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_matched_as_a_whole_and_one_that_is_not_there_is_empty() {
        let labels = [("team", "pay"), ("path", "a.b"), ("lines", "a\nb")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for (label, fits) in [
            ("team=pay", true),
            ("team=pa", false),
            ("team!=pay", false),
            ("team!=dev", true),
            ("team=~p.*", true),
            ("team=~a", false),
            ("team=~dev|pay", true),
            ("team!~dev|pa", true),
            ("team!~p.y", false),
            ("path=a.b", true),
            ("path=axb", false),
            ("path=~a.b", true),
            ("lines=a\nb", true),
            ("lines=a", false),
            ("absent=", true),
            ("absent!=", false),
            ("absent!=x", true),
            ("absent=~.+", false),
        ] {
            let matcher = Matcher::parse(label).unwrap();
            assert_eq!(matcher.test().unwrap().fits(&labels), fits, "{label}");
        }
    }
}
