//! `configuration` and `secrets` of a document, and `${name}` where they are used.
//!
//! The meaning is Chaos Toolkit's: a text that is nothing but `${name}` becomes the value with its type, within other
//! text it becomes text, configuration comes before secrets, and `$$` is one dollar. A name that nobody has declared is
//! refused. What a secret says is never shown, see [`Variables::hide`].

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

use super::problems::{Problems, UNREAD};
use crate::request::fields::Fields;
use crate::spec::{Mistake, SpecError};

/// The most bytes of a file that is a value.
pub const LARGEST_VALUE: usize = 64 * 1024;
/// The most bytes that are put in place of names, in all of a document: each name may stand there as often as it likes.
const MOST_SUBSTITUTED: usize = 1024 * 1024;
/// The most texts that secrets are known by: each value, and each line of it.
const MOST_SECRETS: usize = 256;
/// What is shown of a secret.
const HIDDEN: &str = "***";

/// Where values come from that are not in the document: environment and files of whoever reads it.
pub trait Outside {
    /// The variable of the environment.
    ///
    /// # Errors
    /// Why there is none.
    fn environment(&self, name: &str) -> Result<String, String>;

    /// What is in the file.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn file(&self, path: &str) -> Result<String, String>;
}

/// Nothing: the daemon has neither environment nor files that would be its caller's.
#[derive(Debug, Clone, Copy)]
pub struct Nowhere;

impl Outside for Nowhere {
    fn environment(&self, _: &str) -> Result<String, String> {
        Err("the daemon does not have your environment: give the value, or register with chaosctl, which has"
            .to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Err("the daemon does not read your files: give the value, or register with chaosctl, which does"
            .to_owned())
    }
}

/// The values by name.
#[derive(Clone, Default, PartialEq)]
pub struct Variables {
    configuration: BTreeMap<String, Value>,
    secrets: BTreeMap<String, Value>,
    groups: BTreeMap<String, Map<String, Value>>,
    /// Names whose values could not be read, which is noted.
    unread: BTreeSet<String>,
    /// Every text of a secret that is not shown.
    words: BTreeSet<String>,
}

/// How many bytes may still be put in place of names.
#[derive(Debug)]
pub struct Room(Cell<usize>);

impl Default for Room {
    fn default() -> Self {
        Self(Cell::new(MOST_SUBSTITUTED))
    }
}

impl Room {
    /// Takes room for a value, which stands at `path`.
    ///
    /// # Errors
    /// When there is too little.
    pub(super) fn take(&self, path: &str, value: &Value) -> Result<(), SpecError> {
        match self.0.get().checked_sub(size(value)) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                let problem = format!(
                    "too much: what stands for names has more than {} KiB in this document",
                    MOST_SUBSTITUTED >> 10
                );
                Err(SpecError::new(path, problem))
            }
        }
    }
}

/// About how many bytes a value has as text.
fn size(value: &Value) -> usize {
    const ANY: usize = 8;
    ANY + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variables({} of configuration, {} secrets)", self.configuration.len(), self.secrets.len())
    }
}

/// Who may see a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A probe, whose results are shown without secrets.
    Probe,
    /// A fault, which the status shows as it is.
    Fault,
}

impl Variables {
    /// Reads `configuration` and `secrets`, each as it stands in the document. What is wrong, or is not there to be read, is noted.
    pub(super) fn read(
        configuration: Option<Map<String, Value>>,
        secrets: Option<Map<String, Value>>,
        outside: &dyn Outside,
        problems: &Problems,
    ) -> Self {
        let mut variables = Self::default();
        for (name, value) in configuration.unwrap_or_default() {
            match problems.keep(look_up(&format!("configuration.{name}"), value, outside)) {
                Some(value) => drop(variables.configuration.insert(name, value)),
                None => drop(variables.unread.insert(name)),
            }
        }
        for (group, members) in secrets.unwrap_or_default() {
            let path = format!("secrets.{group}");
            let known = variables.groups.entry(group).or_default();
            for (name, value) in problems.keep(grouped(&path, members)).unwrap_or_default() {
                match problems.keep(look_up(&format!("{path}.{name}"), value, outside)) {
                    Some(value) => {
                        known.insert(name.clone(), value.clone());
                        variables.secrets.insert(name, value);
                    }
                    None => drop(variables.unread.insert(name)),
                }
            }
        }
        variables.words = variables.secrets.values().flat_map(words).collect();
        if variables.words.len() > MOST_SECRETS {
            let problem = format!("too many: give at most {MOST_SECRETS} values, and lines of values");
            problems.note(SpecError::new("secrets", problem));
        }
        variables
    }

    /// Whether something has this name.
    fn declares(&self, name: &str) -> bool {
        self.configuration.contains_key(name) || self.secrets.contains_key(name) || self.unread.contains(name)
    }

    /// All of the configuration, and all secrets by their groups, as long as there is room; for what stands at `path`.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn all(&self, path: &str, room: &Room) -> Result<(Value, Value), SpecError> {
        let configuration: Value = self.configuration.clone().into_iter().collect();
        let secrets: Value = self.groups.clone().into_iter().collect();
        room.take(path, &configuration)?;
        room.take(path, &secrets)?;
        Ok((configuration, secrets))
    }

    /// Whether a group of secrets is called so.
    pub fn has_group(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// Puts values in place of names, everywhere in `value`, which stands at `path`, as long as there is room.
    ///
    /// # Errors
    /// When a name is not declared, or is a secret's in a fault, or there is no room.
    pub fn substitute(&self, path: &str, value: &mut Value, user: Use, room: &Room) -> Result<(), SpecError> {
        match value {
            Value::String(text) => {
                if let Some(new) = self.expand(path, text, user, room)? {
                    *value = new;
                }
                Ok(())
            }
            Value::Array(items) => {
                let mut items = items.iter_mut().enumerate();
                items.try_for_each(|(index, item)| {
                    self.substitute(&format!("{path}[{index}]"), item, user, room)
                })
            }
            Value::Object(fields) => {
                let mut fields = fields.iter_mut();
                fields
                    .try_for_each(|(key, value)| self.substitute(&format!("{path}.{key}"), value, user, room))
            }
            _ => Ok(()),
        }
    }

    /// `None` when there is nothing to expand.
    fn expand(&self, path: &str, text: &str, user: Use, room: &Room) -> Result<Option<Value>, SpecError> {
        let value = |name: &str| {
            let value = self.value(path, name, user)?;
            room.take(path, value).map(|()| value)
        };
        if let Some((name, "")) = braced(text) {
            return value(name).map(|value| Some(value.clone()));
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            rest = &rest[dollar..];
            if let Some(after) = rest.strip_prefix("$$") {
                out.push('$');
                rest = after;
            } else if let Some((name, after)) = braced(rest).or_else(|| self.bare(rest)) {
                match value(name)? {
                    Value::String(text) => out.push_str(text),
                    other => out.push_str(&other.to_string()),
                }
                rest = after;
            } else if let Some(odd) = enclosed(rest).filter(|odd| self.declares(odd)) {
                let problem = format!(
                    "${{{odd}}} stands for nothing, since a name that is used is of A-Z a-z 0-9 _ and does not begin with a \
                     digit: rename it"
                );
                return Err(SpecError::new(path, problem));
            } else {
                out.push('$');
                rest = &rest[1..];
            }
        }
        out.push_str(rest);
        Ok((out != text).then_some(Value::String(out)))
    }

    /// `$name` at the beginning, which counts only if it is declared, and what follows.
    fn bare<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let name = text.strip_prefix('$')?;
        let end = name.find(|c: char| !is_letter(c) && !c.is_ascii_digit()).unwrap_or(name.len());
        let (name, rest) = name.split_at(end);
        self.declares(name).then_some((name, rest))
    }

    fn value(&self, path: &str, name: &str, user: Use) -> Result<&Value, SpecError> {
        if let Some(value) = self.configuration.get(name) {
            return Ok(value);
        }
        match (self.secrets.get(name), user) {
            (Some(value), Use::Probe) => Ok(value),
            (Some(_), Use::Fault) => {
                let problem =
                    format!("{name} is a secret, and what a fault does is shown: put it into configuration");
                Err(SpecError::new(path, problem))
            }
            (None, _) if self.unread.contains(name) => Err(SpecError::new(path, UNREAD)),
            (None, _) => {
                let problem = format!(
                    "${{{name}}} is neither in configuration nor in secrets: declare it, or write $${{{name}}} for the \
                     text itself"
                );
                Err(SpecError::new(path, problem).code(Mistake::Undeclared))
            }
        }
    }

    /// `text` without what any secret says.
    pub fn hide(&self, text: &str) -> String {
        // All are looked for in the text as it was: what is shown in place of one may look like another.
        let mut is_secret = vec![false; text.len()];
        for (at, found) in self.words.iter().flat_map(|word| text.match_indices(word.as_str())) {
            is_secret[at..at + found.len()].fill(true);
        }
        let mut shown = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            match is_secret[at] {
                false => shown.push(c),
                true if at == 0 || !is_secret[at - 1] => shown.push_str(HIDDEN),
                true => {}
            }
        }
        shown
    }

    /// `value` without what any secret says, in whatever text it has.
    pub fn hide_in(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.hide(text)),
            Value::Array(items) => items.iter().map(|item| self.hide_in(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (self.hide(name), self.hide_in(value))).collect()
            }
            other => other.clone(),
        }
    }
}

/// `${name}` at the beginning: the name, and what follows.
fn braced(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.strip_prefix("${")?.split_once('}')?;
    (name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit()))
        .then_some((name, rest))
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// Puts the values of environment and files into `document` itself, for a reader that has neither.
///
/// # Errors
/// Names what is wrong, or is not there to be read.
pub fn inline(document: &mut Map<String, Value>, outside: &dyn Outside) -> Result<(), SpecError> {
    let resolve = |path: &str, entries: &mut Map<String, Value>| -> Result<(), SpecError> {
        entries.iter_mut().try_for_each(|(name, value)| {
            *value = look_up(&format!("{path}.{name}"), value.take(), outside)?;
            Ok(())
        })
    };
    if let Some(Value::Object(configuration)) = document.get_mut("configuration") {
        resolve("configuration", configuration)?;
    }
    if let Some(Value::Object(groups)) = document.get_mut("secrets") {
        for (group, members) in groups {
            if let Value::Object(members) = members {
                resolve(&format!("secrets.{group}"), members)?;
            }
        }
    }
    Ok(())
}

/// What stands between `${` at the beginning and the next brace, whether or not it is a name.
fn enclosed(text: &str) -> Option<&str> {
    text.strip_prefix("${")?.split_once('}').map(|(name, _)| name)
}

/// The members of a group of secrets, which stands at `path`.
fn grouped(path: &str, members: Value) -> Result<Map<String, Value>, SpecError> {
    let wrong = |problem: &str| Err(SpecError::new(path, format!("secrets come in groups: {problem}")));
    match members {
        Value::Object(members)
            if members
                .get("type")
                .is_some_and(|kind| ["env", "file", "vault"].iter().any(|other| kind == other)) =>
        {
            wrong("put this into one, under a name")
        }
        Value::Object(members) => Ok(members),
        _ => wrong("give {\"group\": {\"name\": …}}"),
    }
}

/// Every way in which a value may show.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => {
            let escaped = Value::String(text.clone()).to_string();
            let lines = text.lines().map(str::to_owned);
            [text.clone(), escaped[1..escaped.len() - 1].to_owned()]
                .into_iter()
                .chain(lines)
                .filter(|word| !word.is_empty())
                .collect()
        }
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(words).collect(),
        Value::Object(fields) => fields.values().flat_map(words).collect(),
        Value::Bool(_) | Value::Null => Vec::new(),
    }
}

/// The value that an entry stands for.
fn look_up(path: &str, entry: Value, outside: &dyn Outside) -> Result<Value, SpecError> {
    let kind = entry.get("type").and_then(Value::as_str).map(str::to_owned);
    let (Value::Object(object), Some(kind)) = (&entry, kind) else { return Ok(entry) };
    let mut fields = Fields::new(path, object.clone());
    fields.take("type");
    let value = match kind.as_str() {
        "env" => {
            let key = fields.string("key")?;
            let key = fields.need("key", key, "name the variable of the environment")?;
            let default = fields.take("default");
            let convert = fields.string("env_var_type")?;
            match (outside.environment(&key), default) {
                (Ok(text), _) => {
                    converted(&fields.at("env_var_type"), convert.as_deref(), Value::String(text))
                }
                (Err(_), Some(default)) => converted(&fields.at("env_var_type"), convert.as_deref(), default),
                (Err(why), None) => {
                    Err(SpecError::new(fields.at("key"), format!("{key}: {why}")).code(Mistake::Unset))
                }
            }?
        }
        "file" => {
            let file = fields.string("path")?;
            let file = fields.need("path", file, "name the file")?;
            let text = outside
                .file(&file)
                .map_err(|why| SpecError::new(fields.at("path"), why).code(Mistake::Unset))?;
            if text.len() > LARGEST_VALUE {
                let problem = format!("{file}: longer than {} KiB", LARGEST_VALUE >> 10);
                return Err(SpecError::new(fields.at("path"), problem));
            }
            Value::String(text.strip_suffix('\n').unwrap_or(&text).to_owned())
        }
        "vault" | "probe" => {
            let problem = format!("{kind:?} is not supported: give the value, or type env or file");
            return Err(SpecError::new(fields.at("type"), problem).code(Mistake::NotSupported));
        }
        // An object that happens to have a type is a value.
        _ => return Ok(entry),
    };
    fields.finish()?;
    Ok(value)
}

/// The value as the type that `env_var_type` asks for.
fn converted(path: &str, kind: Option<&str>, value: Value) -> Result<Value, SpecError> {
    let text = value.as_str().map(str::to_owned);
    let new = match (kind, text) {
        (None | Some("str" | "string"), _)
        | (Some("json" | "bool" | "int" | "integer" | "float" | "number"), None) => {
            return Ok(value);
        }
        (Some("int" | "integer"), Some(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        (Some("float" | "number"), Some(text)) => text.trim().parse::<f64>().ok().map(Value::from),
        (Some("bool"), Some(text)) => {
            Some(Value::Bool(!["false", "0", "no"].contains(&text.to_ascii_lowercase().as_str())))
        }
        (Some("json"), Some(text)) => serde_json::from_str(&text).ok(),
        (Some(other), _) => {
            let problem = format!("{other:?} is not one of str, int, float, bool, json");
            return Err(SpecError::new(path, problem));
        }
    };
    new.filter(|value| !value.is_null()).ok_or_else(|| SpecError::new(path, "the value is not of this type"))
}

#[cfg(test)]
#[path = "variables_tests.rs"]
mod tests;
