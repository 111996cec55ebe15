//! What happened in a run, as a line.

use super::canvas::Tone;
use crate::experiment::timeline::{Kind, Occurrence};
use crate::mcp::results::word;

/// A line about something that has happened.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct News {
    /// Seconds since the run began.
    pub(in crate::cli) at_seconds: f64,
    /// As what it is shown.
    pub(in crate::cli) tone: Tone,
    /// What.
    pub(in crate::cli) words: String,
}

impl News {
    /// An event; of what the phase of a run says anyway, none.
    pub(in crate::cli) fn of(event: &Occurrence) -> Option<Self> {
        let tone = match event.kind {
            Kind::Started | Kind::Phase | Kind::Injecting | Kind::Removing => return None,
            Kind::Met | Kind::Removed | Kind::AlertGone => Tone::Good,
            Kind::Injected | Kind::AlertFired => Tone::Strong,
            Kind::Finding | Kind::EndedEarly => Tone::Doubt,
            Kind::NotMet | Kind::InjectionFailed | Kind::RemovalFailed | Kind::Breach | Kind::Abort => {
                Tone::Bad
            }
        };
        Some(Self { at_seconds: event.at_seconds, tone, words: words(event) })
    }

    /// `    1.250 s  injected: cut`
    pub(in crate::cli) fn line(&self) -> String {
        format!("{:>9.3} s  {}", self.at_seconds, self.words)
    }
}

/// What happened, to what, and more of it.
pub(in crate::cli) fn words(event: &Occurrence) -> String {
    let kind = word(event.kind).replace('_', " ");
    let words = [kind.as_str(), &event.subject, &event.detail];
    let told: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    told.join(": ")
}
