//! One line of a journal as it is read: whoever wrote it may have been another version, which knew other things.

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::Event;
use crate::host::BootId;

/// A whole line that is not understood. What it stands for may be on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// Its number in the file, from 1.
    pub line: usize,
    /// Why.
    pub cause: String,
}

/// What a first line says of itself, whatever else is in it.
#[derive(Debug, Deserialize)]
pub(super) struct Origin {
    pub(super) boot: BootId,
    #[serde(default)]
    pub(super) version: Option<String>,
}

/// The event that a line is.
pub(super) fn event(line: &[u8]) -> serde_json::Result<Event> {
    let said: Value = serde_json::from_slice(line)?;
    let event = Event::deserialize(&said)?;
    match &event {
        Event::Intent(_) => match lost(&said, &serde_json::to_value(&event)?) {
            Some(field) => Err(serde_json::Error::custom(format!("unknown field `{field}`"))),
            None => Ok(event),
        },
        // What more they say is for people.
        Event::Fault { .. } | Event::Applied | Event::Ending { .. } => Ok(event),
    }
}

/// Where a line comes from that is not understood, if it is a first line.
pub(super) fn origin(line: &[u8]) -> Option<Origin> {
    let said: Value = serde_json::from_slice(line).ok()?;
    Origin::deserialize(said.get("fault")?).ok()
}

/// Why a line is not understood, without a place in it, which nobody looks up.
pub(super) fn cause(error: &serde_json::Error) -> String {
    if error.is_data() { error.to_string() } else { "no JSON".to_owned() }
}

/// A field of `said` that is not in `kept`, which is what this version takes it for. Serde passes over what it does not know, and
/// a step without it would perhaps be undone by half.
fn lost(said: &Value, kept: &Value) -> Option<String> {
    match (said, kept) {
        (Value::Object(said), Value::Object(kept)) => {
            said.iter().find_map(|(field, value)| match kept.get(field) {
                Some(kept) => lost(value, kept),
                None => Some(field.clone()),
            })
        }
        (Value::Array(said), Value::Array(kept)) => {
            said.iter().zip(kept).find_map(|(said, kept)| lost(said, kept))
        }
        _ => None,
    }
}
