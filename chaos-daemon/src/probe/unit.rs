//! How a systemd unit is: its state, for how long, and how often systemd has started it again (org.freedesktop.systemd1(5)).
//! Asked of the injector, because the prober reaches no message bus.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::span::Span;
use super::{Sampler, Seen};
use crate::request::facts::{Facts, Question, UnitFacts};
use crate::spec::{ProcessSelector, SpecError, TargetRequest};

/// States of a unit.
pub const STATES: &[&str] = &["active", "reloading", "inactive", "failed", "activating", "deactivating"];

/// What is measured of a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Seconds since it became active.
    #[default]
    Uptime,
    /// How often systemd has started it again by itself since somebody started it.
    Restarts,
}

/// What can be measured, by name.
pub const MEASURES: &[(&str, Measure)] = &[("uptime", Measure::Uptime), ("restarts", Measure::Restarts)];

/// A unit, and how it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    name: String,
    state: String,
    sub: Option<String>,
    measure: Measure,
}

impl Unit {
    /// Understands the name of a unit, the state it should be in (active), the state in the words of its kind (any), and what
    /// is measured (uptime).
    ///
    /// # Errors
    /// Names what there is not.
    pub fn parse(
        name: &str,
        state: Option<&str>,
        sub: Option<&str>,
        measure: Option<&str>,
    ) -> Result<Self, SpecError> {
        let target = TargetRequest { unit: Some(name.to_owned()), ..TargetRequest::default() };
        ProcessSelector::parse(&target).map_err(|error| SpecError::new("UNIT", error.problem))?;
        let state = state.unwrap_or("active");
        if !STATES.contains(&state) {
            let problem = format!("{state:?} is not one of {}", STATES.join(", "));
            return Err(SpecError::new("--state", problem));
        }
        let measure = super::named("--measure", MEASURES, measure)?;
        Ok(Self { name: name.to_owned(), state: state.to_owned(), sub: sub.map(str::to_owned), measure })
    }

    fn judge(&self, facts: &UnitFacts) -> Seen {
        let value = match self.measure {
            Measure::Uptime => facts.active_for.map(|time| time.as_secs_f64()),
            Measure::Restarts => facts.restarts.map(f64::from),
        };
        let mut words = format!("{} ({})", facts.active, facts.sub);
        if let Some(time) = facts.active_for {
            words.push_str(&format!(" for {:.1} s", time.as_secs_f64()));
        }
        if let Some(restarts) = facts.restarts {
            words.push_str(&format!(", restarted {restarts} times"));
        }
        let met = facts.active == self.state && self.sub.as_ref().is_none_or(|sub| *sub == facts.sub);
        Seen { verdict: if met { Ok(words) } else { Err(words) }, answer: None, value, no_data: None }
    }
}

impl Sampler for Unit {
    async fn take(&self, _: Duration) -> Seen {
        Seen::of_the_daemon()
    }

    fn unit(&self) -> &'static str {
        match self.measure {
            Measure::Uptime => "s",
            Measure::Restarts => "",
        }
    }

    fn span(&self, _: Duration) -> Span {
        Span::AMOUNT
    }

    fn injector_question(&self, _: Duration) -> Option<Question> {
        Some(Question::Unit(self.name.clone()))
    }

    fn is_the_daemons(&self) -> bool {
        true
    }

    fn injector_answer(&self, facts: &Facts) -> Option<Seen> {
        match facts {
            Facts::Unit(facts) => Some(self.judge(facts)),
            _ => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(active: &str, sub: &str) -> UnitFacts {
        let active_for = (active == "active").then_some(Duration::from_secs(90));
        UnitFacts { active: active.into(), sub: sub.into(), restarts: Some(2), active_for }
    }

    #[test]
    fn a_unit_is_as_it_should_be_in_the_state_that_is_asked_for() {
        let unit = |state, sub| Unit::parse("a.service", state, sub, None).unwrap();
        for (unit, facts, right) in [
            (unit(None, None), facts("active", "running"), true),
            (unit(None, Some("exited")), facts("active", "running"), false),
            (unit(None, None), facts("activating", "auto-restart"), false),
            (unit(Some("inactive"), None), facts("inactive", "dead"), true),
            (unit(Some("activating"), Some("auto-restart")), facts("activating", "auto-restart"), true),
        ] {
            assert_eq!(unit.judge(&facts).verdict.is_ok(), right, "{unit:?} {facts:?}");
        }
    }

    #[test]
    fn what_is_measured_is_uptime_or_restarts_and_of_what_is_not_up_there_is_no_uptime() {
        let value = |measure, facts: &UnitFacts| {
            Unit::parse("a.service", None, None, Some(measure)).unwrap().judge(facts).value
        };
        assert_eq!(value("uptime", &facts("active", "running")), Some(90.0));
        assert_eq!(value("restarts", &facts("failed", "failed")), Some(2.0));
        assert_eq!(value("uptime", &facts("failed", "failed")), None);
        assert_eq!(value("restarts", &UnitFacts { restarts: None, ..facts("active", "running") }), None);
    }

    #[test]
    fn what_there_is_not_is_named() {
        for (name, state, measure, field) in [
            ("a.timer", None, None, "UNIT"),
            ("a/b.service", None, None, "UNIT"),
            ("a.service", Some("running"), None, "--state"),
            ("a.service", None, Some("memory"), "--measure"),
        ] {
            assert_eq!(Unit::parse(name, state, None, measure).unwrap_err().field, field);
        }
    }
}
