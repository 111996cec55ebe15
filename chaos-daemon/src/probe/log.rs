//! How many entries of a log match, and the last few of them. Asked of the injector, which asks the policy: the prober can open
//! no file of the host, and who asks need not be allowed to.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::span::Span;
use super::{Bounds, Sampler, Seen};
use crate::request::facts::{Facts, LogFacts, Question};
use crate::spec::{LogRequest, LogSearch, SpecError};

/// The bounds of what is counted when nobody says: at least one has to match.
const OCCURS: Bounds = Bounds { min: Some(1.0), max: None };

/// Which entries of which log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    request: Box<LogRequest>,
    /// The log in words.
    log: String,
}

impl Entries {
    /// Understands which ones are asked for.
    ///
    /// # Errors
    /// Names what is missing or wrong.
    pub fn parse(request: LogRequest) -> Result<Self, SpecError> {
        let log = LogSearch::parse(&request)?.log.to_string();
        Ok(Self { request: Box::new(request), log })
    }

    fn judge(&self, facts: &LogFacts) -> Seen {
        let LogFacts { count, seen, ahead, last } = facts;
        let mut words = format!("{count} of {seen} entries match");
        if !last.is_empty() {
            let told: Vec<_> = last.iter().map(|entry| format!("\"{entry}\"")).collect();
            words.push_str(&format!(", the last: {}", told.join(", ")));
        }
        if *ahead > 0 {
            words.push_str(&format!("; {ahead} more have a time that has not come yet by this host's clock"));
        }
        let answer = json!({"matching": count, "of": seen, "last": last});
        let count = u32::try_from(*count).unwrap_or(u32::MAX);
        Seen { answer: Some(answer), ..Seen::measured(f64::from(count), words) }
    }
}

impl Sampler for Entries {
    async fn take(&self, _: Duration) -> Seen {
        Seen::of_the_daemon()
    }

    fn span(&self, _: Duration) -> Span {
        Span::AMOUNT
    }

    fn injector_question(&self, limit: Duration) -> Option<Question> {
        Some(Question::Log { request: self.request.clone(), limit })
    }

    fn is_the_daemons(&self) -> bool {
        true
    }

    fn injector_answer(&self, facts: &Facts) -> Option<Seen> {
        match facts {
            Facts::Log(facts) => Some(self.judge(facts)),
            _ => None,
        }
    }

    fn usual_bounds(&self) -> Bounds {
        OCCURS
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.request.pattern, self.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries {
        let (unit, pattern) = (Some("a.service".into()), "ERR\"".into());
        Entries::parse(LogRequest { unit, pattern, ..LogRequest::default() }).unwrap()
    }

    #[test]
    fn what_matches_is_a_number_and_the_last_of_it_is_told() {
        let last = vec!["ERR 4".to_owned(), "ERR 5".to_owned()];
        let facts = LogFacts { count: 5, seen: 70, ahead: 0, last };
        let seen = entries().judge(&facts);
        assert_eq!((seen.value, seen.no_data), (Some(5.0), None));
        assert_eq!(seen.verdict.unwrap(), "5 of 70 entries match, the last: \"ERR 4\", \"ERR 5\"");
        assert_eq!(seen.answer.unwrap(), json!({"matching": 5, "of": 70, "last": ["ERR 4", "ERR 5"]}));
        assert_eq!(entries().to_string(), "\"ERR\\\"\" in the journal of a.service within 60s");
    }

    #[test]
    fn none_is_a_number_too_and_what_is_dated_ahead_is_told_of() {
        let seen = entries().judge(&LogFacts { ahead: 2, seen: 9, ..LogFacts::default() });
        assert_eq!(seen.value, Some(0.0));
        let words = seen.verdict.unwrap();
        assert!(words.starts_with("0 of 9 entries match; 2 more have a time"), "{words}");
    }
}
