//! Documents as people write them: YAML, in the order in which an experiment is read, with gaps as comments.

use serde_json::{Map, Value};

use crate::experiment::activity::GAP;

/// In which order fields stand; all others come after them, by their names.
const ORDER: [&str; 26] = [
    GAP,
    "title",
    "name",
    "description",
    "version",
    "tags",
    "contributions",
    "configuration",
    "secrets",
    "runtime",
    "steady-state-hypothesis",
    "method",
    "rollbacks",
    "extensions",
    "type",
    "background",
    "pauses",
    "tolerance",
    "provider",
    "path",
    "module",
    "func",
    "url",
    "arguments",
    "probes",
    "ref",
];

/// The text of a document.
pub fn write(document: &Map<String, Value>) -> String {
    let mut out = String::new();
    mapping(document, 0, &mut out);
    out
}

fn mapping(fields: &Map<String, Value>, depth: usize, out: &mut String) {
    let place = |key: &str| ORDER.iter().position(|other| *other == key).unwrap_or(ORDER.len());
    let mut keys: Vec<_> = fields.keys().collect();
    keys.sort_by_key(|key| (place(key), key.as_str()));
    for (number, key) in keys.into_iter().enumerate() {
        // The first field of an item of a list stands behind its dash.
        if number > 0 || !out.ends_with("- ") {
            out.push_str(&"  ".repeat(depth));
        }
        out.push_str(&scalar_text(key));
        out.push(':');
        value(&fields[key], depth + 1, out);
    }
}

fn value(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            mapping(fields, depth, out);
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            out.push('\n');
            for item in items {
                out.push_str(&"  ".repeat(depth - 1));
                out.push_str("- ");
                match item {
                    Value::Object(fields) if !fields.is_empty() => mapping(fields, depth, out),
                    other => {
                        out.push_str(&other.to_string());
                        out.push('\n');
                    }
                }
            }
        }
        Value::String(text) => {
            out.push(' ');
            out.push_str(&scalar_text(text));
            out.push('\n');
        }
        // JSON is YAML.
        other => {
            out.push(' ');
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

/// A text: as it is if it can only be read as itself, and quoted as JSON has it otherwise.
fn scalar_text(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.' | '/' | '(' | ')' | ';'))
        && !text.ends_with(' ');
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    match is_plain && !is_word.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        true => text.to_owned(),
        false => Value::String(text.to_owned()).to_string(),
    }
}
