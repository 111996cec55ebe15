//! Takes the fields out of a JSON object one by one, so that whatever is missing, of the wrong type or unknown is
//! refused with its path and with what would be right.

use serde_json::{Map, Value};

use crate::spec::{Mistake, SpecError};

/// A JSON object at a path of the request; fields leave it as they are asked for.
#[derive(Debug)]
pub struct Fields {
    path: String,
    object: Map<String, Value>,
    asked: Vec<&'static str>,
}

/// What a JSON value is, for an error.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl Fields {
    /// The fields of `object`, which stands at `path`; the path of a whole request is empty.
    pub fn new(path: impl Into<String>, object: Map<String, Value>) -> Self {
        Self { path: path.into(), object, asked: Vec::new() }
    }

    /// The fields of `value`.
    ///
    /// # Errors
    /// When `value` is not an object.
    pub fn of(path: impl Into<String>, value: Value) -> Result<Self, SpecError> {
        let path = path.into();
        match value {
            Value::Object(object) => Ok(Self::new(path, object)),
            other => {
                let problem = format!("an object is needed here, not {}", kind(&other));
                Err(SpecError::new(path, problem).code(Mistake::WrongType))
            }
        }
    }

    /// The path of the field `key`.
    pub fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Takes any value; `null` counts as absent, as several clients write it so.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.asked.push(key);
        self.object.remove(key).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        needed: &str,
        convert: impl FnOnce(Value) -> Result<T, Value>,
    ) -> Result<Option<T>, SpecError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        convert(value).map(Some).map_err(|value| {
            let problem = format!("{needed} is needed here, not {}", kind(&value));
            SpecError::new(self.at(key), problem).code(Mistake::WrongType)
        })
    }

    /// Takes a string.
    ///
    /// # Errors
    /// When it is something else.
    pub fn string(&mut self, key: &'static str) -> Result<Option<String>, SpecError> {
        self.typed(key, "a string", |value| match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        })
    }

    /// Takes a whole number from 0 up.
    ///
    /// # Errors
    /// When it is something else.
    pub fn whole(&mut self, key: &'static str) -> Result<Option<u32>, SpecError> {
        let Some(number) = self.number(key)? else { return Ok(None) };
        if number.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&number) {
            return Err(SpecError::new(self.at(key), format!("{number} is not a whole number from 0 up")));
        }
        // Whole, and within bounds.
        Ok(Some(number as u32))
    }

    /// Takes a number.
    ///
    /// # Errors
    /// When it is something else; a number in quotes is something else.
    pub fn number(&mut self, key: &'static str) -> Result<Option<f64>, SpecError> {
        self.typed(key, "a number", |value| value.as_f64().ok_or(value))
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// When it is something else.
    pub fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, SpecError> {
        self.typed(key, "true or false", |value| value.as_bool().ok_or(value))
    }

    /// Takes an array.
    ///
    /// # Errors
    /// When it is something else.
    pub fn array(&mut self, key: &'static str) -> Result<Option<Vec<Value>>, SpecError> {
        self.typed(key, "an array", |value| match value {
            Value::Array(items) => Ok(items),
            other => Err(other),
        })
    }

    /// Takes an object.
    ///
    /// # Errors
    /// When it is something else.
    pub fn object(&mut self, key: &'static str) -> Result<Option<Map<String, Value>>, SpecError> {
        self.typed(key, "an object", |value| match value {
            Value::Object(object) => Ok(object),
            other => Err(other),
        })
    }

    /// Makes a value required.
    ///
    /// # Errors
    /// When it is missing; `example` says what to give.
    pub fn need<T>(&self, key: &str, value: Option<T>, example: &str) -> Result<T, SpecError> {
        value
            .ok_or_else(|| SpecError::new(self.at(key), format!("missing: {example}")).code(Mistake::Missing))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// Names a field that nobody asked for.
    pub fn finish(self) -> Result<(), SpecError> {
        match self.object.keys().next() {
            None => Ok(()),
            Some(unknown) => Err(self.unknown(unknown)),
        }
    }

    /// Ends the reading, and names every field that nobody asked for.
    pub fn strangers(self) -> Vec<SpecError> {
        self.object.keys().map(|unknown| self.unknown(unknown)).collect()
    }

    fn unknown(&self, key: &str) -> SpecError {
        let problem = format!("not a field here: the fields are {}", self.asked.join(", "));
        SpecError::new(self.at(key), problem).code(Mistake::UnknownField)
    }

    /// Leaves out what has no effect: these fields, and those that begin with `x-`, which are for anchors and for other programs.
    pub fn leave_out(&mut self, keys: &[&str]) {
        self.object.retain(|key, _| !key.starts_with("x-") && !keys.contains(&key.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_type_is_named_with_its_path_and_what_would_be_right() {
        let mut fields = Fields::of("method[0]", json!({"name": 3, "p": "0.5", "on": "yes"})).unwrap();
        assert_eq!(
            fields.string("name").unwrap_err().to_string(),
            "method[0].name: a string is needed here, not a number"
        );
        assert_eq!(
            fields.number("p").unwrap_err().to_string(),
            "method[0].p: a number is needed here, not a string"
        );
        assert!(fields.boolean("on").is_err());
        assert!(Fields::of("x", json!([])).is_err());
    }

    #[test]
    fn a_field_nobody_asked_for_is_refused_and_null_is_absence() {
        let mut fields = Fields::of("", json!({"a": null, "surprise": 1})).unwrap();
        assert_eq!(fields.string("a").unwrap(), None);
        assert_eq!(fields.finish().unwrap_err().to_string(), "surprise: not a field here: the fields are a");
    }
}
