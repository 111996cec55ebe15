//! What a line is like, before anything is made of it: who it is from, and how much memory it will take.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::server::budget::MOST_HELD;

/// How deep a message may be nested.
pub(super) const DEEPEST: usize = 100;
/// The most values in a message: those of a fault with the most prefixes, and some more.
const MOST_VALUES: usize = 250_000;

/// What a message takes for each value in it: it is read twice, of which the first reading guesses, and handed on twice.
const OF_A_VALUE: usize = 320;
/// And for each byte of it: the line, and the texts in it.
const OF_A_BYTE: usize = 4;
/// As how many values an object counts beside those in it: a map has room for some, however few it has.
const OF_AN_OBJECT: usize = 6;

/// Who a message is from and what it is about, as far as that can be told of any JSON.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    outside: Outside,
    call: Option<Call>,
}

#[derive(Debug, Default, Deserialize)]
struct Outside {
    #[serde(default)]
    id: Value,
    method: Option<Value>,
}

/// A call of a tool.
#[derive(Debug, Deserialize)]
struct Call {
    params: Params,
}

#[derive(Debug, Deserialize)]
struct Params {
    name: String,
    #[serde(default)]
    arguments: Arguments,
}

#[derive(Debug, Default, Deserialize)]
struct Arguments {
    /// Of `chaos_get_run`, whose answer may be long then.
    #[serde(default)]
    all_samples: bool,
}

impl Envelope {
    /// That of a line; an empty one where that cannot be told.
    pub(super) fn of(line: &[u8]) -> Self {
        // serde takes a list for an object whose names were left out.
        if !line.trim_ascii_start().starts_with(b"{") {
            return Self::default();
        }
        let outside: Outside = serde_json::from_slice(line).unwrap_or_default();
        let is_call = outside.method.as_ref().is_some_and(|method| method == "tools/call");
        Self { outside, call: serde_json::from_slice(line).ok().filter(|_| is_call) }
    }

    /// What its answer has to name.
    pub(super) fn id(&self) -> &Value {
        let id = &self.outside.id;
        if id.is_string() || id.is_number() { id } else { &Value::Null }
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.outside.method.as_ref().and_then(Value::as_str)
    }

    /// Whether it is to be answered by nobody.
    pub(super) fn is_notification(&self) -> bool {
        self.outside.method.is_some() && self.outside.id.is_null()
    }

    /// The name of the tool that is called.
    pub(super) fn tool(&self) -> Option<&str> {
        self.call.as_ref().map(|call| call.params.name.as_str())
    }

    /// Whether every sample of a run is asked for.
    pub(super) fn all_samples(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.params.arguments.all_samples)
    }
}

/// How much memory a line takes while it is read and handed on, in bytes.
///
/// # Errors
/// Of the category "data" when it is nested too deep, has too many values, or an object of it has a key twice, of which
/// somebody else may take the other one; of another when it is not JSON.
pub(super) fn weigh(line: &[u8]) -> serde_json::Result<usize> {
    let mut values = 0;
    let mut reader = serde_json::Deserializer::from_slice(line);
    Weighing { values: &mut values, depth: 0 }.deserialize(&mut reader)?;
    reader.end()?;
    Ok((OF_A_BYTE * line.len() + OF_A_VALUE * values).min(MOST_HELD / 2))
}

struct Weighing<'a> {
    values: &'a mut usize,
    depth: usize,
}

impl Weighing<'_> {
    fn within(&mut self) -> Weighing<'_> {
        Weighing { values: self.values, depth: self.depth + 1 }
    }

    fn check<E: Error>(&self) -> Result<(), E> {
        match self.depth < DEEPEST {
            true => Ok(()),
            false => Err(E::custom(format_args!("nested more than {DEEPEST} levels deep"))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Weighing<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        *self.values += 1;
        if *self.values > MOST_VALUES {
            let text =
                format_args!("more than {MOST_VALUES} values, where an object is {}", OF_AN_OBJECT + 1);
            return Err(D::Error::custom(text));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weighing<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.check()?;
        *self.values += OF_AN_OBJECT;
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if let Some(Key(twice)) = keys.replace(key) {
                return Err(A::Error::custom(format_args!("the key {twice:?} is there twice in one object")));
            }
            map.next_value_seed(self.within())?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut all: A) -> Result<(), A::Error> {
        self.check()?;
        while all.next_element_seed(self.within())?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// A key, of the line itself where it has no escapes.
#[derive(Deserialize, PartialEq, Eq, Hash)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deep_large_or_ambiguous_is_told_from_what_is_no_json() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let many = format!("[{}0]", "0,".repeat(MOST_VALUES));
        let objects = format!("[{}0]", "{},".repeat(MOST_VALUES / OF_AN_OBJECT));
        for (line, is_json, expected) in [
            (deep(DEEPEST), true, None),
            (deep(DEEPEST + 1), true, Some("nested more than 100 levels deep")),
            (deep(1_000_000), true, Some("nested more than 100 levels deep")),
            (r#"{"a":1,"b":{"a":1}}"#.to_owned(), true, None),
            (r#"{"a":1,"a":1}"#.to_owned(), true, Some(r#"the key "a" is there twice"#)),
            (r#"{"p":[{"a":1,"\u0061":1}]}"#.to_owned(), true, Some(r#"the key "a" is there twice"#)),
            (many, true, Some("more than 250000 values")),
            (objects, true, Some("more than 250000 values, where an object is 7")),
            ("[1,]".to_owned(), false, Some("trailing comma")),
            ("{} x".to_owned(), false, Some("trailing characters")),
            ("\"\u{1}\"".to_owned(), false, Some("control character")),
        ] {
            let error = weigh(line.as_bytes()).err();
            let text = error.as_ref().map(ToString::to_string);
            assert_eq!(text.is_some(), expected.is_some(), "{text:?}");
            assert!(text.is_none_or(|text| text.contains(expected.unwrap())));
            assert!(
                error.is_none_or(|error| (error.classify() == serde_json::error::Category::Data) == is_json)
            );
        }
    }

    #[test]
    fn whom_to_answer_is_known_of_what_cannot_be_read() {
        let deep = format!(r#"{{"params":{}{},"id":7}}"#, "[".repeat(100_000), "]".repeat(100_000));
        for (line, id) in [
            (deep.as_str(), "7"),
            (r#"{"id":"a","method":"tools/call","params":{"name":3}}"#, "\"a\""),
            ("[7]", "null"),
            (r#"{"id":[1]}"#, "null"),
            ("[1,", "null"),
            ("{", "null"),
        ] {
            assert_eq!(Envelope::of(line.as_bytes()).id().to_string(), id, "{}", &line[..line.len().min(40)]);
        }
        let call =
            br#"{"id":1,"method":"tools/call","params":{"arguments":{"name":"x"},"name":"chaos_stop"}}"#;
        assert_eq!(Envelope::of(call).tool(), Some("chaos_stop"));
    }
}
