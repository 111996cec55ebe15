//! Parameters that several types of fault take, each with the same meaning.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Probability, SpecError};

/// Of what meets packets one by one.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) struct PacketShare {
    /// Share of the matching packets that is affected.
    #[serde(default = "one")]
    #[schemars(range(min = 0.0, max = 1.0))]
    packet_probability: f64,
}

fn one() -> f64 {
    1.0
}

impl PacketShare {
    pub(super) fn probability(self) -> Result<Probability, SpecError> {
        Probability::new("params.packet_probability", self.packet_probability)
    }
}

/// Of what is rolled packet by packet.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) struct Correlated {
    /// How much each roll depends on the one before.
    // At 100 the first roll would decide for good.
    #[schemars(range(min = 0.0, max = 99.0))]
    pub(super) correlation_percent: Option<f64>,
}

impl Correlated {
    /// As a fraction.
    pub(super) fn correlation(self) -> Result<Probability, SpecError> {
        Probability::new("params.correlation_percent", self.correlation_percent.unwrap_or(0.0) / 100.0)
    }
}

/// Of what is taken step by step.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) struct Ramp {
    /// How long it takes until all of it is used.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 3600.0))]
    ramp_seconds: f64,
}

impl Ramp {
    pub(super) fn duration(self) -> Duration {
        Duration::from_secs_f64(self.ramp_seconds)
    }
}

/// Of what fails calls.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) struct CallShare {
    /// Share of the matching calls that fails.
    #[serde(default = "one")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub(super) call_probability: f64,
    /// How many matching calls pass first.
    #[serde(default)]
    pub(super) after_calls: u64,
    /// How many calls fail at most; no limit unless it is given. With a signal: 1.
    #[schemars(range(min = 1))]
    pub(super) times: Option<u64>,
}

/// Of calls by which a signal may come.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CallSignal {
    /// Name of the signal that whoever makes the call is sent beside its error, e.g. SIGKILL; none unless it is given.
    pub(super) signal: Option<String>,
}

/// Of what happens to the whole host.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) struct Countdown {
    /// How long after the injection it happens. A removal before that prevents it.
    #[serde(default = "one")]
    #[schemars(range(min = 1.0, max = 600.0))]
    countdown_seconds: f64,
}

impl Countdown {
    /// Of a fault that lasts so long.
    pub(super) fn within(self, lasts: Duration) -> Result<Duration, SpecError> {
        let countdown = Duration::from_secs_f64(self.countdown_seconds);
        if countdown < lasts {
            return Ok(countdown);
        }
        let seconds = self.countdown_seconds;
        let problem = format!("it would end before the {seconds} s of its countdown are over: give more");
        Err(SpecError::new("duration_seconds", problem))
    }
}
