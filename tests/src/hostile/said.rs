//! One connection of a stranger's, on which anything is said, and what was answered: served, or refused with a reason that the
//! documents know.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::canary::SECRET;
use super::stage::Stage;
use super::stranger::Stranger;
use crate::error::{Error, Result};
use crate::wire::Wire;

/// Where the reasons stand, in a table whose first column has their names.
const DOCUMENT: &str = include_str!("../../../docs/security.md");
const BEGIN: &str = "<!-- reasons:begin -->";
const END: &str = "<!-- reasons:end -->";
/// Those of them that say that something has failed, and not that it was refused.
const FAILURES: [&str; 3] = ["INJECTION_FAILED", "REVERT_FAILED", "UNAVAILABLE"];
/// What is said beside the last where nothing has failed: somebody wants it no more.
const TAKEN_BACK: [&str; 2] = ["after it was asked for", "has taken it back"];

/// The reasons that the documents name.
pub(super) fn reasons() -> Vec<&'static str> {
    let table = DOCUMENT.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).unwrap_or_default().0;
    table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect()
}

/// What an error says after which nothing more is read.
const CLOSING: &str = "closing the connection";

/// What a try came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Came {
    /// It was done.
    Served,
    /// By this reason.
    Refused(String),
    /// Not answered: the connection was closed.
    Closed,
}

/// A connection of a stranger's.
pub(super) struct Said<'a> {
    stranger: &'a Stranger,
    socket: PathBuf,
    wire: Wire,
    next: u64,
}

impl<'a> Said<'a> {
    /// Opens a session.
    pub(super) fn open(stage: &Stage, stranger: &'a Stranger) -> Result<Self> {
        let socket = stage.daemon.socket();
        let wire = session(stranger.connect(&socket)?)?;
        Ok(Self { stranger, socket, wire, next: 1000 })
    }

    /// Calls a tool with these bytes as its arguments; returns the answer, if there was one.
    pub(super) fn call(&mut self, tool: &str, arguments: &[u8]) -> Result<Option<Value>> {
        self.next += 1;
        let head = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"{tool}","arguments":"#,
            self.next
        );
        self.say(&[head.as_bytes(), arguments, b"}}\n"].concat())
    }

    /// Says a line; returns what comes back. A connection that was closed is opened anew.
    pub(super) fn say(&mut self, line: &[u8]) -> Result<Option<Value>> {
        // Whoever closes while it is being written to does so by a reset, after the answer.
        let _ = self.wire.bytes(line);
        let answer = match self.wire.answer() {
            Ok(answer) => answer,
            Err(Error::Io { .. }) => None,
            Err(error) => return Err(error),
        };
        let is_open = answer.as_ref().is_some_and(|answer| !answer["error"].to_string().contains(CLOSING));
        if !is_open {
            self.wire = session(self.stranger.connect(&self.socket)?)?;
        }
        Ok(answer)
    }

    /// Says a line that has no answer.
    pub(super) fn tell(&mut self, line: &[u8]) -> Result<()> {
        self.wire.bytes(line)
    }
}

/// A session on a connection.
pub(super) fn session(connection: OwnedFd) -> Result<Wire> {
    let mut wire = Wire::over(connection)?;
    wire.open()?;
    Ok(wire)
}

/// Tries, and what they came to.
#[derive(Debug, Default)]
pub(super) struct Tried {
    pub(super) tried: usize,
    pub(super) served: usize,
    pub(super) closed: usize,
    refused: BTreeMap<String, usize>,
    /// Each with what was said.
    pub(super) wrong: Vec<String>,
    pub(super) effects: Vec<String>,
    /// What else is worth being told.
    pub(super) notes: Vec<String>,
}

impl Tried {
    /// Counts a try by its answer. `what` names it.
    pub(super) fn count(&mut self, what: impl Fn() -> String, answer: Option<&Value>) -> Came {
        self.tried += 1;
        if let Some(answer) = answer.filter(|answer| answer.to_string().contains(SECRET)) {
            self.effects.push(format!("{}: an answer has what only root can read: {answer}", what()));
        }
        let came = judge(answer);
        match &came {
            Came::Served => self.served += 1,
            Came::Closed => self.closed += 1,
            Came::Refused(reason) => {
                *self.refused.entry(reason.clone()).or_default() += 1;
                let answer = answer.map(Value::to_string).unwrap_or_default();
                let is_failure =
                    FAILURES.contains(&&**reason) && !TAKEN_BACK.iter().any(|words| answer.contains(words));
                if is_failure || !reasons().contains(&&**reason) {
                    let end = answer.char_indices().nth(400).map_or(answer.len(), |(at, _)| at);
                    self.wrong.push(format!("{}: {}", what(), &answer[..end]));
                }
            }
        }
        came
    }

    /// Adds those of another.
    pub(super) fn add(&mut self, other: Self) {
        let Self { tried, served, closed, refused, wrong, effects, notes } = other;
        (self.tried, self.served, self.closed) =
            (self.tried + tried, self.served + served, self.closed + closed);
        refused.into_iter().for_each(|(reason, count)| *self.refused.entry(reason).or_default() += count);
        self.wrong.extend(wrong);
        self.effects.extend(effects);
        self.notes.extend(notes);
    }

    /// How many were refused, for a reason that is right.
    fn right(&self) -> usize {
        self.refused.values().sum::<usize>().saturating_sub(self.wrong.len())
    }

    /// The three numbers, and by which reasons.
    pub(super) fn figures(&self) -> String {
        let reasons = self.refused.iter().map(|(reason, count)| format!("{reason} {count}"));
        let more: Vec<_> = reasons.chain(self.notes.iter().cloned()).collect();
        format!(
            "tried {}, refused {} ({} with the right reason), served {}, closed {}, effects {}; {}",
            self.tried,
            self.right() + self.wrong.len(),
            self.right(),
            self.served,
            self.closed,
            self.effects.len(),
            more.join(", ")
        )
    }

    /// What is wrong with it, if anything is.
    pub(super) fn problems(&self) -> Vec<String> {
        let first = |what: &str, list: &[String]| {
            let shown: Vec<_> = list.iter().take(8).map(String::as_str).collect();
            (!list.is_empty()).then(|| format!("{} {what}:\n  {}", list.len(), shown.join("\n  ")))
        };
        first("effects", &self.effects).into_iter().chain(first("wrong reasons", &self.wrong)).collect()
    }
}

/// What an answer says, in the shape of whichever tool, or of the protocol.
fn judge(answer: Option<&Value>) -> Came {
    let Some(answer) = answer else { return Came::Closed };
    if let Some(code) = answer["error"]["code"].as_i64() {
        return Came::Refused(code.to_string());
    }
    let result = &answer["result"];
    if result["isError"] != json!(true) {
        return Came::Served;
    }
    let said = &result["structuredContent"];
    let code = said["error"]["code"].as_str().or(said["error_code"].as_str());
    Came::Refused(code.unwrap_or("without a reason").to_owned())
}

#[cfg(test)]
mod tests {
    use chaos_daemon::request::ErrorCode;

    use super::*;

    #[test]
    fn the_documents_know_reasons_and_each_that_is_a_word_is_one() {
        let reasons = reasons();
        assert!(reasons.len() > 20, "{reasons:?}");
        for reason in reasons.iter().filter(|reason| reason.parse::<i64>().is_err()) {
            assert!(serde_json::from_value::<ErrorCode>(json!(reason)).is_ok(), "{reason}");
        }
        assert!(FAILURES.iter().all(|failure| reasons.contains(failure)));
    }

    #[test]
    fn a_try_is_right_by_a_reason_that_is_known_and_says_no_failure() {
        let failed =
            |code: &str| json!({"result": {"isError": true, "structuredContent": {"error": {"code": code}}}});
        let mut tried = Tried::default();
        assert_eq!(tried.count(String::new, Some(&json!({"result": {}}))), Came::Served);
        assert_eq!(tried.count(String::new, None), Came::Closed);
        for code in ["POLICY_DENIED", "INJECTION_FAILED", "NO_SUCH_REASON"] {
            assert_eq!(tried.count(String::new, Some(&failed(code))), Came::Refused(code.to_owned()));
        }
        let invalid = json!({"error": {"code": -32600, "message": SECRET}});
        assert_eq!(tried.count(String::new, Some(&invalid)), Came::Refused("-32600".to_owned()));
        assert_eq!((tried.right(), tried.wrong.len(), tried.effects.len()), (2, 2, 1));
    }
}
