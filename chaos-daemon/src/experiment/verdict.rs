//! The last word on a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a run ended. What ended it before its time counts for more than what the steady state was afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The run went as described, the steady state was met whenever it was to be verified: after it, or while it went on. And every
    /// fault was seen to act, or may be idle.
    Held,
    /// The run went as described, and the steady state was not met after it, or at times during it, or met again too late; or
    /// an alert was not as the document expects.
    Deviated,
    /// The steady state was not met before, a gate was breached then, or a fault would be refused: nothing was done.
    Refused,
    /// A gate was breached.
    Tripped,
    /// Something went wrong: an injection, a fault that ended too early, a removal that left something, a probe that does not
    /// work.
    Failed,
    /// Somebody stopped it.
    Aborted,
    /// The daemon, or its server, ended while it went on.
    Interrupted,
    /// The run went as described, and shows nothing. A fault acted on nothing, or nobody knows what became of the steady state:
    /// the document does not ask for it, or what it asks for while the method goes on was not sampled.
    Unverified,
}

/// Every verdict.
pub const VERDICTS: &[Verdict] = &[
    Verdict::Held,
    Verdict::Deviated,
    Verdict::Refused,
    Verdict::Failed,
    Verdict::Tripped,
    Verdict::Aborted,
    Verdict::Interrupted,
    Verdict::Unverified,
];

impl Verdict {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Deviated => "deviated",
            Self::Refused => "refused",
            Self::Tripped => "tripped",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
            Self::Unverified => "unverified",
        }
    }

    /// The verdict of this word.
    pub fn parse(name: &str) -> Option<Self> {
        VERDICTS.iter().copied().find(|verdict| verdict.name() == name)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_has_one_word_everywhere() {
        for verdict in VERDICTS {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
            assert_eq!(Verdict::parse(verdict.name()), Some(*verdict));
        }
        assert_eq!(Verdict::parse("success"), None);
    }
}
