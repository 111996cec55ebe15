//! What this host is, and by what production is known.

use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::spec::SpecError;

/// The field that says what this host is.
pub(super) const FIELD: &str = "environment";
/// Words that mean production.
const PRODUCTION: &[&str] = &["production", "prod", "prd", "live"];
/// Words before one of those that mean the opposite.
const NOT: &[&str] = &["pre", "non", "not"];
/// The fields of an experiment that hold prose, which may speak of production.
const PROSE: &[&str] = &["title", "description", "name", "contributions"];
/// The fields below which nothing is prose, whatever it is called.
const VALUES: &[&str] = &["configuration", "secrets", "provider", "controls"];

/// What a host is, as its operator says it: "test", "staging", "production".
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Environment(String);

impl Environment {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether it is production, where nothing is injected.
    pub fn is_production(&self) -> bool {
        PRODUCTION.contains(&self.0.to_lowercase().as_str())
    }
}

impl TryFrom<String> for Environment {
    type Error = SpecError;

    /// Refuses a name of which it is not clear whether it means production, so that nobody has to guess.
    fn try_from(name: String) -> Result<Self, SpecError> {
        let name = name.trim().to_owned();
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(SpecError::new(FIELD, "give a name, such as \"staging\""));
        }
        let lower = name.to_lowercase();
        let words: Vec<_> = words(&lower).collect();
        let is_meant = |(number, word): (usize, &&str)| {
            let before = number.checked_sub(1).and_then(|before| words.get(before));
            PRODUCTION.contains(word) && !before.is_some_and(|before| NOT.contains(before))
        };
        if words.len() > 1 && words.iter().enumerate().any(is_meant) {
            let problem = format!(
                "{name:?} may or may not mean production: give \"production\", or a name without that word"
            );
            return Err(SpecError::new(FIELD, problem));
        }
        Ok(Self(name))
    }
}

/// Runs of letters and digits, and the runs of letters in those: of `db-prod01` these are db, prod01 and prod.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let runs = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    runs.flat_map(|run| {
        let letters = run.split(char::is_numeric).filter(move |part| !part.is_empty() && *part != run);
        std::iter::once(run).chain(letters)
    })
}

/// A name as it was before systemd has escaped it: `\\x2d` is `-` (systemd.unit(5)).
fn unescaped(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits {
            Some(letter) if letter.is_ascii() => {
                text.push(char::from(letter));
                text.push_str(&part[2..]);
            }
            _ => text.push_str(part),
        }
    }
    text
}

/// By what a name is known to be production's: words, and patterns with `*`. Upper and lower case are the same.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Markers(Vec<Marker>);

#[derive(Debug, Clone)]
struct Marker {
    text: String,
    /// Of a pattern, which fits the whole name; a word fits any word of it.
    pattern: Option<Regex>,
}

impl PartialEq for Markers {
    fn eq(&self, other: &Self) -> bool {
        self.texts().eq(other.texts())
    }
}

impl Default for Markers {
    fn default() -> Self {
        let word = |text: &&str| Marker { text: (*text).to_owned(), pattern: None };
        Self(["production", "prod", "prd"].iter().map(word).collect())
    }
}

impl TryFrom<Vec<String>> for Markers {
    type Error = SpecError;

    fn try_from(texts: Vec<String>) -> Result<Self, SpecError> {
        texts.into_iter().map(Marker::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Marker {
    fn parse(text: String) -> Result<Self, SpecError> {
        let field = "production_markers";
        let lower = text.to_lowercase();
        if !text.contains('*') {
            let is_word = words(&lower).next() == Some(&lower);
            return match is_word {
                true => Ok(Self { text: lower, pattern: None }),
                false => {
                    let problem =
                        format!("{text:?} is neither a word nor a pattern: give e.g. \"prod\" or \"prod-*\"");
                    Err(SpecError::new(field, problem))
                }
            };
        }
        if lower.chars().all(|letter| letter == '*') {
            return Err(SpecError::new(
                field,
                "\"*\" is every name: set `environment` to \"production\" instead",
            ));
        }
        let parts: Vec<_> = lower.split('*').map(regex_lite::escape).collect();
        let pattern =
            RegexBuilder::new(&format!("^{}$", parts.join(".*"))).dot_matches_new_line(true).build();
        let pattern = pattern.map_err(|error| SpecError::new(field, format!("{text:?}: {error}")))?;
        Ok(Self { text: lower, pattern: Some(pattern) })
    }

    fn fits(&self, lower: &str) -> bool {
        match &self.pattern {
            Some(pattern) => pattern.is_match(lower),
            None => words(lower).any(|word| word == self.text),
        }
    }
}

impl Markers {
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|marker| marker.text.as_str())
    }

    /// The marker that is in this name, if one is.
    pub fn of(&self, name: &str) -> Option<&str> {
        let lower = unescaped(&name.to_lowercase());
        self.0.iter().find(|marker| marker.fits(&lower)).map(|marker| marker.text.as_str())
    }
}

/// Every text in the fields of a document or a part of it, but for its prose.
pub fn texts_of(fields: &Map<String, Value>) -> Vec<&str> {
    let mut found = Vec::new();
    collect_fields(fields, true, &mut found);
    found
}

/// Every text in a value, its keys left out.
pub fn texts(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    collect(value, false, &mut found);
    found
}

fn collect_fields<'a>(fields: &'a Map<String, Value>, has_prose: bool, found: &mut Vec<&'a str>) {
    for (name, value) in fields {
        if !(has_prose && PROSE.contains(&name.as_str())) {
            collect(value, has_prose && !VALUES.contains(&name.as_str()), found);
        }
    }
}

fn collect<'a>(value: &'a Value, has_prose: bool, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(all) => all.iter().for_each(|value| collect(value, has_prose, found)),
        Value::Object(all) => collect_fields(all, has_prose, found),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_production_or_not_and_one_that_may_be_is_refused() {
        for (name, production) in [
            ("production", true),
            ("Prod", true),
            ("live", true),
            ("staging", false),
            ("test", false),
            ("pre-prod", false),
            ("non-production", false),
            ("products", false),
        ] {
            let environment = Environment::try_from(name.to_owned()).unwrap();
            assert_eq!(environment.is_production(), production, "{name}");
        }
        for name in ["", " ", "prod1", "prod-eu", "eu/production", "production-like", "a\nb"] {
            assert_eq!(Environment::try_from(name.to_owned()).unwrap_err().field, FIELD, "{name:?}");
        }
    }

    #[test]
    fn a_marker_is_a_word_of_a_name_or_fits_all_of_it() {
        let markers = Markers::default();
        for name in [
            "prod-db.service",
            "db@prod.service",
            "/srv/PRODUCTION/data",
            "k8s_api_prod_1",
            "prod01",
            "db\\x2dprod.slice",
        ] {
            assert!(markers.of(name).is_some(), "{name}");
        }
        for name in ["product-catalog.service", "reproduce", "eth0", ""] {
            assert_eq!(markers.of(name), None, "{name}");
        }
        let markers = Markers::try_from(vec!["db-*".to_owned(), "p1".to_owned()]).unwrap();
        assert_eq!(markers.of("db-a"), Some("db-*"));
        assert_eq!(markers.of("x-P1.scope"), Some("p1"));
        assert_eq!(markers.of("a-db-a"), None);
        for odd in ["*", "**", "two words", "prod-db", ""] {
            let refused = Markers::try_from(vec![odd.to_owned()]).unwrap_err();
            assert_eq!(refused.field, "production_markers", "{odd:?}");
        }
    }

    #[test]
    fn what_a_document_does_counts_and_not_what_it_says_of_itself() {
        let document = json!({"title": "never in production", "method": [{"name": "prod", "provider": {
            "arguments": ["--unit", "prod-db.service"]}}], "configuration": {"host": "db.prod", "name": "named.prod"}});
        let found = texts_of(document.as_object().unwrap());
        assert_eq!(found, ["db.prod", "named.prod", "--unit", "prod-db.service"]);
    }
}
