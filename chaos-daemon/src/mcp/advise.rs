//! `chaos_advise`: which services deserve chaos next, and what to try on them.

use std::time::Duration;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::results::Failure;
use super::schema::{object, text};
use super::tool::{Call, Hints, Output, Tool};
use crate::request::ApiError;
use crate::request::fields::Fields;
use crate::server::advise::{Advised, Report};
use crate::server::service::AdviceWanted;
use crate::spec::SpecError;

/// How long services are looked at when nobody says, in seconds.
pub(crate) const WINDOW: f64 = 5.0;
/// The longest: a call has to be answered.
pub(crate) const LONGEST_WINDOW: f64 = 15.0;
/// About how many services advice is given when nobody says.
const SERVICES: f64 = 5.0;
/// The most.
pub(crate) const MOST_SERVICES: f64 = 20.0;

/// Why a service deserves chaos.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReasonView {
    /// What it is about: forecast, saturation, restarts, oom_kills, errors, cpu_pressure, memory_pressure, io_pressure, waiting, broke,
    /// no_alert, dependency, likeness, stage, greens, untested, idle.
    pub(crate) reason: String,
    /// The number that speaks for it.
    pub(crate) number: f64,
    /// Its unit.
    pub(crate) unit: String,
    /// What that is worth.
    pub(crate) points: f64,
    /// The same for people.
    pub(crate) words: String,
}

/// What would be refused, or whom no fault may go to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RefusedView {
    /// The type of fault, or the service.
    pub(crate) what: String,
    /// Why.
    pub(crate) why: String,
}

/// A service that deserves chaos.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AdviceView {
    /// What a target calls it, e.g. "unit shop.service".
    pub(crate) service: String,
    /// What all reasons are worth together: by this services are in order.
    pub(crate) points: f64,
    /// Why, the one that is worth most first.
    pub(crate) reasons: Vec<ReasonView>,
    /// What to try: an experiment that a plan has just found fit to be run.
    #[schemars(with = "Map<String, Value>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) document: Option<Map<String, Value>>,
    /// What would have answered the reasons better, and would be refused.
    pub(crate) refused: Vec<RefusedView>,
}

/// Result of `chaos_advise`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct AdviseOutput {
    /// The services, the one that deserves chaos most first.
    pub(crate) advice: Vec<AdviceView>,
    /// Services that nothing can be tried on, and why.
    pub(crate) left_out: Vec<RefusedView>,
    /// What could not be looked at, and why.
    pub(crate) not_seen: Vec<String>,
    /// How many services more there are.
    pub(crate) more: usize,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

impl Output for AdviseOutput {
    fn failed(&self) -> bool {
        self.error.is_some()
    }

    fn refused(error: &ApiError) -> Self {
        Self { error: Some(Failure::from(error)), ..Self::default() }
    }
}

pub(super) struct Advise;

impl Tool for Advise {
    const NAME: &'static str = "chaos_advise";
    const TITLE: &'static str = "Advise";
    const DESCRIPTION: &'static str = "Ranks services by what deserves chaos next, with reasons, each with an experiment that would be admitted now.";
    const HINTS: Hints = Hints { open_world: true, ..Hints::LOOKS };
    const GIVEN_UP: bool = true;
    type Output = AdviseOutput;

    fn input() -> JsonObject {
        let number = |most: f64, default: f64| json!({"type": "number", "maximum": most, "default": default});
        object(
            json!({
                "service": text("Only this unit, container or cgroup."),
                "window_seconds": number(LONGEST_WINDOW, WINDOW),
                "limit": number(MOST_SERVICES, SERVICES),
            }),
            &[],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<AdviseOutput, ApiError> {
        let mut fields = Fields::new("", call.arguments);
        let service = fields.string("service")?;
        let window = within(&mut fields, "window_seconds", WINDOW, LONGEST_WINDOW)?;
        let most = within(&mut fields, "limit", SERVICES, MOST_SERVICES)?;
        fields.finish()?;
        if most.fract() != 0.0 {
            return Err(SpecError::new("limit", format!("{most} is not a whole number")).into());
        }
        // Whole, and within bounds.
        let wanted = AdviceWanted { service, window: Duration::from_secs_f64(window), most: most as usize };
        call.service.advise(&wanted, call.caller).await.map(told)
    }
}

/// A number from 1 to `most`.
fn within(fields: &mut Fields, field: &'static str, default: f64, most: f64) -> Result<f64, SpecError> {
    let number = fields.number(field)?.unwrap_or(default);
    match (1.0..=most).contains(&number) {
        true => Ok(number),
        false => Err(SpecError::new(field, format!("{number} is not from 1 to {most}"))),
    }
}

fn told(report: Report) -> AdviseOutput {
    let refused = |all: Vec<(String, String)>| {
        all.into_iter().map(|(what, why)| RefusedView { what, why }).collect::<Vec<_>>()
    };
    let view = |Advised { advice, document, refused: others }: Advised| AdviceView {
        service: advice.service,
        points: advice.points,
        reasons: advice.reasons.iter().map(reason).collect(),
        document,
        refused: refused(others),
    };
    AdviseOutput {
        advice: report.advised.into_iter().map(view).collect(),
        left_out: refused(report.left_out),
        not_seen: report.not_seen,
        more: report.more,
        error: None,
    }
}

fn reason(reason: &chaos_advise::Reason) -> ReasonView {
    let weight = reason.what.weight();
    ReasonView {
        reason: weight.name.to_owned(),
        number: reason.number,
        unit: weight.unit.to_owned(),
        points: reason.points,
        words: reason.words.clone(),
    }
}
