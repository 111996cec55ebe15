//! What a document says of when its probes are sampled: by its strategy, or probe by probe in the modes of Litmus,
//! <https://docs.litmuschaos.io/docs/concepts/probes>, by its extension.

use std::time::Duration;

use serde_json::{Value, json};

use super::activity::Condition;
use super::durations::{LONGEST_INTERVAL, SHORTEST_INTERVAL, duration, duration_schema, within};
use super::role::Stage;
use super::sampling::{INTERVAL, Mode, Sampling};
use super::severity::SEVERITIES;
use crate::probe::LONGEST_TIMEOUT;
use crate::request::fields::Fields;
use crate::spec::SpecError;

/// The longest a probe may wait before its first sample.
const LONGEST_DELAY: Duration = Duration::from_secs(300);
/// The shortest time an answer may be given.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
/// The most tries of one sample, beside the first.
const MOST_RETRIES: u32 = 10;

/// The modes of Litmus, by name.
const LITMUS: [(&str, Mode); 5] = [
    ("SOT", Mode::Sot),
    ("EOT", Mode::Eot),
    ("Edge", Mode::Edge),
    ("Continuous", Mode::Continuous),
    ("OnChaos", Mode::OnChaos),
];

/// What a document says of how one of its probes is sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Where it says so.
    at: String,
    /// The name of the probe.
    probe: String,
    /// Its mode, unless it is that of all others.
    mode: Option<Mode>,
    sampling: Sampling,
    timeout: Option<Duration>,
}

impl Rule {
    /// Understands an entry of `probes`.
    ///
    /// # Errors
    /// Names what is wrong.
    pub(super) fn read(mut fields: Fields) -> Result<Self, SpecError> {
        let at = fields.at("name");
        let probe = fields.string("name")?;
        let probe = fields.need("name", probe, "name a probe of the steady state")?;
        let mode = match fields.string("mode")? {
            None => None,
            Some(text) => {
                let mode = LITMUS.into_iter().find(|(name, _)| *name == text);
                let known = LITMUS.map(|(name, _)| name).join(", ");
                let wrong = || SpecError::new(fields.at("mode"), format!("{text:?} is not one of {known}"));
                Some(mode.ok_or_else(wrong)?.1)
            }
        };
        let mut time = |key, least, most| -> Result<Option<Duration>, SpecError> {
            let at = fields.at(key);
            duration(&mut fields, key)?.map(|time| within(&at, time, least, most)).transpose()
        };
        let timeout = time("probeTimeout", SHORTEST_TIMEOUT, LONGEST_TIMEOUT)?;
        let interval = time("interval", SHORTEST_INTERVAL, LONGEST_INTERVAL)?.unwrap_or(INTERVAL);
        let initial_delay = time("initialDelay", Duration::ZERO, LONGEST_DELAY)?.unwrap_or_default();
        let retries = match fields.number("retry")? {
            None => 0,
            Some(number) => {
                (0..=MOST_RETRIES).find(|whole| f64::from(*whole) == number).ok_or_else(|| {
                    let problem =
                        format!("{number} is out of bounds: give a whole number, 0 to {MOST_RETRIES}");
                    SpecError::new(fields.at("retry"), problem)
                })?
            }
        };
        let stop_on_failure = fields.boolean("stopOnFailure")?.unwrap_or(false);
        // The score has it from the document that the history keeps.
        if let Some(text) = fields.string("severity")?
            && !SEVERITIES.iter().any(|(name, _)| *name == text)
        {
            let problem = format!("{text:?} is not one of critical and warning");
            return Err(SpecError::new(fields.at("severity"), problem));
        }
        fields.finish()?;
        let sampling = Sampling { interval, retries, initial_delay, stop_on_failure, ..Sampling::default() };
        Ok(Self { at, probe, mode, sampling, timeout })
    }

    /// Has the probes be sampled as `rules` say, and those of which none says anything as `mode` does.
    ///
    /// # Errors
    /// When a rule is about no probe, or about two, or when nothing would be verified where `mode` has it be.
    pub(super) fn apply(rules: &[Self], mode: Mode, conditions: &mut [Condition]) -> Result<(), SpecError> {
        for condition in conditions.iter_mut() {
            condition.sampling.mode = mode;
        }
        for (index, rule) in rules.iter().enumerate() {
            let wrong = |problem: &str| SpecError::new(&rule.at, format!("{:?} {problem}", rule.probe));
            if rules[..index].iter().any(|other| other.probe == rule.probe) {
                return Err(wrong("is there already: put both into one"));
            }
            let mut named = conditions.iter_mut().filter(|condition| condition.name == rule.probe);
            let Some(condition) = named.next() else {
                return Err(wrong("is no probe of the steady state"));
            };
            if named.next().is_some() {
                return Err(wrong("is the name of two probes of the steady state: give each its own"));
            }
            let mode = rule.mode.unwrap_or(mode);
            if rule.sampling.stop_on_failure && !mode.is_due(Stage::During) {
                return Err(wrong(
                    "is not sampled when it could stop the run: give it the mode Continuous or OnChaos, or leave \
                     stopOnFailure out",
                ));
            }
            condition.sampling = Sampling { mode, ..rule.sampling };
            condition.probe.timeout = rule.timeout.unwrap_or(condition.probe.timeout);
            condition.probe.fits(&rule.at)?;
        }
        for (stage, when, modes) in [
            (Stage::Before, "before the method", "SOT, Edge or Continuous"),
            (Stage::During, "while the method goes on", "Continuous or OnChaos"),
            (Stage::After, "after the method", "EOT, Edge or Continuous"),
        ] {
            if mode.is_due(stage) && !conditions.iter().any(|condition| condition.sampling.mode.is_due(stage))
            {
                let problem = format!(
                    "no probe is sampled {when}, so that nothing would be verified then: give one the mode {modes}, or \
                     another strategy of the hypothesis"
                );
                return Err(SpecError::new("extensions", problem));
            }
        }
        Ok(())
    }
}

/// What `probes` of the extension is, for the schema.
pub(super) fn schema() -> Value {
    let modes = LITMUS.map(|(name, _)| name);
    let severities = SEVERITIES.map(|(name, _)| name);
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "A probe of the steady state."},
                "mode": {"enum": modes, "default": "Edge", "description": "When it is sampled."},
                "probeTimeout": duration_schema("How long an answer may take"),
                "interval": duration_schema("How often it is sampled while the method goes on, and tried again; 1s unless told otherwise"),
                "retry": {"type": "integer", "minimum": 0, "maximum": MOST_RETRIES,
                    "description": "How often it is tried again before a sample counts as not met."},
                "initialDelay": duration_schema("How long it waits before the first sample of before, during and after"),
                "stopOnFailure": {"type": "boolean", "default": false,
                    "description": "Whether the run ends when it is not met while the method goes on."},
                "severity": {"enum": severities, "default": "warning",
                    "description": "How severe it is that it does not pass, for the score by severity: critical counts for 3, warning for 1."},
            },
            "required": ["name"],
            "additionalProperties": false,
        },
        "description": "Of the extension chaos-daemon: when probes of the steady state are sampled, and how often.",
    })
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
