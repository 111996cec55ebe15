//! What the processes of a service are like: how many, for how long, how much they hold. Asked of the injector, because the
//! prober sees no process but itself.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::span::Span;
use super::{Bounds, Sampler, Seen};
use crate::request::facts::{Facts, ProcessFacts, Question};
use crate::spec::{ProcessSelector, SpecError, TargetRequest};

/// What is measured of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// How many there are.
    #[default]
    Count,
    /// Seconds since the latest of them was started: small after a restart.
    Youngest,
    /// Seconds since the first of them was started.
    Oldest,
    /// Open descriptors of all of them.
    Descriptors,
    /// Resident memory of all of them, in MiB.
    MemoryMb,
}

/// What can be measured, by name.
pub const MEASURES: &[(&str, Measure)] = &[
    ("count", Measure::Count),
    ("youngest", Measure::Youngest),
    ("oldest", Measure::Oldest),
    ("descriptors", Measure::Descriptors),
    ("memory_mb", Measure::MemoryMb),
];

/// Processes, and what is measured of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    target: Box<TargetRequest>,
    /// The target in words.
    who: String,
    measure: Measure,
}

impl Processes {
    /// Understands whom `target` names, and what is measured of them (their number).
    ///
    /// # Errors
    /// Names what is missing, wrong, or not there.
    pub fn parse(target: TargetRequest, measure: Option<&str>) -> Result<Self, SpecError> {
        let selector = ProcessSelector::parse(&target).map_err(|error| {
            let option =
                error.field.strip_prefix("target.").map_or_else(String::new, |name| format!("--{name}"));
            SpecError::new(option, error.problem)
        })?;
        let measure = super::named("--measure", MEASURES, measure)?;
        Ok(Self { target: Box::new(target), who: selector.to_string(), measure })
    }

    fn judge(&self, facts: &ProcessFacts) -> Seen {
        if facts.count == 0 && self.measure != Measure::Count {
            return Seen::nothing("no such process runs".to_owned());
        }
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let (value, unit) = match self.measure {
            Measure::Count => (Some(f64::from(facts.count)), "running"),
            Measure::Youngest => (seconds(facts.youngest), "s since the latest was started"),
            Measure::Oldest => (seconds(facts.oldest), "s since the first was started"),
            Measure::Descriptors => (facts.descriptors.map(float), "open descriptors"),
            Measure::MemoryMb => {
                (facts.resident.map(|bytes| float(bytes) / f64::from(1 << 20)), "MiB resident")
            }
        };
        match value {
            Some(value) => Seen::measured(value, format!("{} {unit}", (value * 10.0).round() / 10.0)),
            None => Seen::nothing(format!(
                "{unit}: cannot be read; descriptors of other users' processes can from Linux 6.2 on"
            )),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "no process holds 2^52 of anything")]
fn float(number: u64) -> f64 {
    number as f64
}

impl Sampler for Processes {
    async fn take(&self, _: Duration) -> Seen {
        Seen::of_the_daemon()
    }

    fn unit(&self) -> &'static str {
        match self.measure {
            Measure::Count | Measure::Descriptors => "",
            Measure::Youngest | Measure::Oldest => "s",
            Measure::MemoryMb => "MiB",
        }
    }

    fn span(&self, _: Duration) -> Span {
        Span::AMOUNT
    }

    fn injector_question(&self, _: Duration) -> Option<Question> {
        Some(Question::Processes(self.target.clone()))
    }

    fn is_the_daemons(&self) -> bool {
        true
    }

    fn injector_answer(&self, facts: &Facts) -> Option<Seen> {
        match facts {
            Facts::Processes(facts) => Some(self.judge(facts)),
            _ => None,
        }
    }

    /// Without any bound, one is the least that is right.
    fn usual_bounds(&self) -> Bounds {
        match self.measure {
            Measure::Count => Bounds { min: Some(1.0), max: None },
            _ => Bounds::default(),
        }
    }
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "processes of {}", self.who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(measure: &str) -> Processes {
        let target = TargetRequest { exe: Some("/opt/a".into()), ..TargetRequest::default() };
        Processes::parse(target, Some(measure)).unwrap()
    }

    #[test]
    fn each_measure_is_a_number_of_its_own() {
        let facts = ProcessFacts {
            count: 3,
            youngest: Some(Duration::from_millis(1500)),
            oldest: Some(Duration::from_secs(60)),
            descriptors: Some(42),
            resident: Some(3 << 19),
        };
        for (measure, value) in
            [("count", 3.0), ("youngest", 1.5), ("oldest", 60.0), ("descriptors", 42.0), ("memory_mb", 1.5)]
        {
            let seen = of(measure).judge(&facts);
            assert!(seen.verdict.is_ok() && seen.value == Some(value), "{measure}: {:?}", seen.value);
        }
    }

    #[test]
    fn nobody_is_a_number_of_processes_and_nothing_that_could_be_measured() {
        assert_eq!(of("count").judge(&ProcessFacts::default()).value, Some(0.0));
        let seen = of("memory_mb").judge(&ProcessFacts::default());
        assert!(seen.value.is_none() && seen.verdict.unwrap_err().contains("no such process"));
    }

    #[test]
    fn what_cannot_be_read_is_no_zero() {
        let facts = ProcessFacts { count: 1, ..ProcessFacts::default() };
        let seen = of("descriptors").judge(&facts);
        assert!(seen.value.is_none() && seen.verdict.unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn whom_nobody_names_and_what_is_not_measured_are_named() {
        let refused = |target, measure| Processes::parse(target, measure).unwrap_err().field;
        assert_eq!(refused(TargetRequest::default(), None), "--unit");
        let wrong = TargetRequest { exe: Some("a".into()), ..TargetRequest::default() };
        assert_eq!(refused(wrong, None), "--exe");
        let wrong = TargetRequest { below: Some("(".into()), ..TargetRequest::default() };
        assert_eq!(refused(wrong, None), "--below");
        let right = TargetRequest { pid: Some(1), ..TargetRequest::default() };
        assert_eq!(refused(right, Some("threads")), "--measure");
    }
}
