//! Why the policy refuses something, and what would allow it.

use std::fmt::Display;

use crate::request::{ApiError, ErrorCode};

/// A refusal by a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is refused, and why.
    pub message: String,
    /// The rule: the name of a field of the policy file, with that of its table.
    pub rule: String,
    /// What would allow it.
    pub way: Way,
}

/// What would allow something that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Lines of the policy file, in place of those that are there.
    Lines {
        /// All of them.
        full: String,
        /// As callers are told, who learn nothing of what else is there.
        told: String,
    },
    /// Something else than the policy file.
    Otherwise(String),
    /// Nothing that the policy file can say.
    Nothing,
}

impl Refusal {
    /// A refusal that nothing in the policy file takes back.
    pub(super) fn new(rule: impl Into<String>, message: impl Into<String>) -> Self {
        Self { message: message.into(), rule: rule.into(), way: Way::Nothing }
    }

    /// The same, where these lines of the policy file would allow it.
    #[must_use]
    pub(super) fn but_for(self, lines: impl Into<String>) -> Self {
        let full: String = lines.into();
        Self { way: Way::Lines { told: full.clone(), full }, ..self }
    }

    /// The same, where one more entry of a list in the policy file would allow it.
    #[must_use]
    pub(super) fn but_for_one_more<T: Display>(
        self,
        field: &str,
        known: impl IntoIterator<Item = T>,
        new: T,
    ) -> Self {
        let known: Vec<_> = known.into_iter().map(|value| value.to_string()).collect();
        let told = match known.is_empty() {
            true => format!("{field} = [{new}]"),
            false => format!("{field} = [\u{2026}, {new}]"),
        };
        let full = format!("{field} = [{}]", [known, vec![new.to_string()]].concat().join(", "));
        Self { way: Way::Lines { full, told }, ..self }
    }

    /// The same, where something else than the policy file would allow it.
    #[must_use]
    pub(super) fn unless(self, otherwise: impl Into<String>) -> Self {
        Self { way: Way::Otherwise(otherwise.into()), ..self }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { message, rule, way } = refusal;
        let hint = match way {
            Way::Lines { told, .. } => format!(
                "rule `{rule}` of the daemon's policy file. Only the operator changes it, above its first table: {}",
                told.replace('\n', " and ")
            ),
            Way::Otherwise(otherwise) => format!("rule `{rule}` of the daemon's policy file: {otherwise}"),
            Way::Nothing => {
                format!("rule `{rule}` of the daemon's policy file; nothing in that file allows it")
            }
        };
        Self { rule: Some(rule), ..Self::new(ErrorCode::PolicyDenied, message).hint(hint) }
    }
}

/// A string of TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
