//! How severe it is that a probe of the steady state does not pass, in the words of krkn.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::EXTENSION;

/// How severe it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The system has failed.
    Critical,
    /// It is worse than it should be; what nobody says anything of, too.
    #[default]
    Warning,
}

/// Each, by name.
pub(super) const SEVERITIES: [(&str, Severity); 2] =
    [("critical", Severity::Critical), ("warning", Severity::Warning)];

impl Severity {
    /// That of the probe of this name, as the extension of `document` has it.
    pub fn of(document: &Map<String, Value>, probe: &str) -> Self {
        let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let extensions = list(document.get("extensions"));
        let ours = extensions.iter().filter(|extension| extension["name"] == EXTENSION);
        let mut rules = ours.flat_map(|extension| list(extension.get("probes")));
        let rule = rules.find(|rule| rule["name"] == probe);
        let known =
            |(name, severity)| rule.as_ref().is_some_and(|rule| rule["severity"] == name).then_some(severity);
        SEVERITIES.into_iter().find_map(known).unwrap_or_default()
    }
}
