//! `search` of the extension `chaos-daemon`, as it is written. What it means of the rest of the document is in `plan.rs`.

use std::time::Duration;

use chaos_search::{Harsher, Ladder, LadderWords, Scale, Values};
use serde_json::{Value, json};

use crate::experiment::durations::{duration, duration_schema, length, within};
use crate::request::fields::Fields;
use crate::spec::SpecError;
use crate::spec::units::LONGEST_FAULT;

/// The most runs of a search.
const MOST_RUNS: u32 = 1000;
/// The longest that a search may take.
const LONGEST_SEARCH: Duration = Duration::from_hours(7 * 24);
/// The largest margin that is predicted of a run when nobody says.
const MAX_VIOLATION: f64 = 1.0;

/// A parameter that is varied.
#[derive(Debug, Clone, PartialEq)]
pub struct Varied {
    /// The name of the action.
    pub action: String,
    /// The option of `chaosctl inject` that is set, without its dashes.
    pub parameter: String,
    /// What stands behind its numbers, such as `ms`.
    pub unit: String,
    /// What it may be.
    pub ladder: Ladder,
}

/// What a search may cost.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetWords {
    /// The most runs.
    pub runs: u32,
    /// The most time on the clock.
    pub time: Duration,
    /// The largest magnitude of a candidate; without it, that of all faults at their harshest.
    pub magnitude: Option<f64>,
    /// The most of violation in sum; without it, as much as all runs may have.
    pub violation: Option<f64>,
    /// How long the system has to itself between two runs.
    pub recovery: Duration,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Words {
    /// Where it stands.
    pub at: String,
    /// What is varied.
    pub parameters: Vec<Varied>,
    /// The actions that may be left out.
    pub optional: Vec<String>,
    /// How many of those are in one candidate at most.
    pub most: Option<usize>,
    /// How long after one action another may begin, in seconds.
    pub gap: Option<Ladder>,
    /// How long faults may last, in seconds.
    pub duration: Option<Ladder>,
    /// The names of the gates that are the objective.
    pub objective: Vec<String>,
    /// What it may cost.
    pub budget: BudgetWords,
    /// The largest margin that may be predicted of a run.
    pub max_violation: f64,
    /// How near to the boundary is near enough, as a share.
    pub precision: Option<f64>,
    /// How many runs confirm a failure.
    pub repeats: Option<u32>,
    /// Decides what chance decides.
    pub seed: Option<u32>,
}

impl Words {
    /// Reads it.
    ///
    /// # Errors
    /// Names what is missing, wrong or not supported.
    pub(in crate::experiment) fn read(at: &str, value: Value) -> Result<Self, SpecError> {
        let mut fields = Fields::of(at, value)?;
        let mut parameters = Vec::new();
        let place = fields.at("parameters");
        for (index, entry) in fields.array("parameters")?.unwrap_or_default().into_iter().enumerate() {
            parameters.push(varied(Fields::of(format!("{place}[{index}]"), entry)?)?);
        }
        let optional = names(&mut fields, "optional")?;
        let most = fields.whole("most")?.map(|most| most as usize);
        let gap = seconds(&mut fields, "gap", Harsher::Unknown)?;
        let duration = seconds(&mut fields, "duration", Harsher::Larger)?;
        let objective = names(&mut fields, "objective")?;
        if objective.is_empty() {
            return Err(SpecError::new(
                fields.at("objective"),
                "missing: name gates of rollback_on that have an op and a value, such as [\"p95\"]",
            ));
        }
        let budget = fields.object("budget")?;
        let budget = fields.need("budget", budget, "give {runs, time}")?;
        let budget = budget_of(Fields::new(fields.at("budget"), budget))?;
        let max_violation = fields.number("max_violation")?.unwrap_or(MAX_VIOLATION);
        let precision = fields.number("precision")?;
        let (repeats, seed) = (fields.whole("repeats")?, fields.whole("seed")?);
        fields.finish()?;
        let at = at.to_owned();
        Ok(Self {
            at,
            parameters,
            optional,
            most,
            gap,
            duration,
            objective,
            budget,
            max_violation,
            precision,
            repeats,
            seed,
        })
    }
}

fn budget_of(mut fields: Fields) -> Result<BudgetWords, SpecError> {
    let runs = fields.whole("runs")?;
    let runs = fields.need("runs", runs, "the most runs, such as 30")?;
    if !(1..=MOST_RUNS).contains(&runs) {
        return Err(SpecError::new(
            fields.at("runs"),
            format!("{runs} is out of bounds: give 1 to {MOST_RUNS}"),
        ));
    }
    let time = duration(&mut fields, "time")?;
    let time = fields.need("time", time, "the most time that it may take, such as \"1h\"")?;
    let time = within(&fields.at("time"), time, Duration::from_secs(1), LONGEST_SEARCH)?;
    let recovery = duration(&mut fields, "recovery")?.unwrap_or_default();
    let recovery = within(&fields.at("recovery"), recovery, Duration::ZERO, LONGEST_FAULT)?;
    let (magnitude, violation) = (fields.number("magnitude")?, fields.number("violation")?);
    fields.finish()?;
    Ok(BudgetWords { runs, time, magnitude, violation, recovery })
}

fn varied(mut fields: Fields) -> Result<Varied, SpecError> {
    let action = fields.string("action")?;
    let action = fields.need("action", action, "the name of an action of the method")?;
    let parameter = fields.string("parameter")?;
    let parameter = fields.need("parameter", parameter, "an option of the action, such as \"delay\"")?;
    let parameter = parameter.trim_start_matches("--").to_owned();
    if parameter.is_empty() || !parameter.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        let problem = format!("{parameter:?} is no option: give the name of one, such as \"delay\"");
        return Err(SpecError::new(fields.at("parameter"), problem));
    }
    let unit = fields.string("unit")?.unwrap_or_default();
    let harsher = match fields.string("harsher")?.as_deref() {
        None | Some("larger") => Harsher::Larger,
        Some("smaller") => Harsher::Smaller,
        Some("unknown") => Harsher::Unknown,
        Some(other) => {
            let problem = format!("{other:?} is not one of larger, smaller, unknown");
            return Err(SpecError::new(fields.at("harsher"), problem));
        }
    };
    let place = fields.at("values");
    let values = match fields.array("values")? {
        Some(values) => {
            let text = |value: Value| match value {
                Value::String(text) => Ok(text),
                Value::Number(number) => Ok(number.to_string()),
                other => Err(SpecError::new(&place, format!("{other} is no value: give text or a number"))),
            };
            Values::Set(values.into_iter().map(text).collect::<Result<_, _>>()?)
        }
        None => {
            let (from, to) = (fields.number("from")?, fields.number("to")?);
            let from = fields.need("from", from, "the mildest number; or give values")?;
            let to = fields.need("to", to, "the largest number")?;
            let whole = fields.boolean("whole")?.unwrap_or(false);
            range(&mut fields, from, to, whole)?
        }
    };
    let ladder = ladder(&fields.at("from"), values, harsher)?;
    fields.finish()?;
    Ok(Varied { action, parameter, unit, ladder })
}

/// A range of seconds, written as durations.
fn seconds(fields: &mut Fields, key: &'static str, harsher: Harsher) -> Result<Option<Ladder>, SpecError> {
    let at = fields.at(key);
    let Some(object) = fields.object(key)? else { return Ok(None) };
    let mut fields = Fields::new(&at, object);
    let mut end = |key: &'static str, what: &str| {
        let at = fields.at(key);
        let value = fields.take(key);
        let value = fields.need(key, value, what)?;
        within(&at, length(&at, &value)?, Duration::ZERO, LONGEST_FAULT).map(|length| length.as_secs_f64())
    };
    let (from, to) =
        (end("from", "the shortest, such as \"5s\"")?, end("to", "the longest, such as \"1m\"")?);
    let values = range(&mut fields, from, to, false)?;
    fields.finish()?;
    ladder(&at, values, harsher).map(Some)
}

fn range(fields: &mut Fields, from: f64, to: f64, whole: bool) -> Result<Values, SpecError> {
    let scale = match fields.string("scale")?.as_deref() {
        None | Some("linear") => Scale::Linear,
        Some("log") => Scale::Logarithmic,
        Some(other) => {
            let problem = format!("{other:?} is not one of linear, log");
            return Err(SpecError::new(fields.at("scale"), problem));
        }
    };
    let step = fields.number("step")?;
    Ok(Values::Range { from, to, scale, step, whole })
}

fn ladder(at: &str, values: Values, harsher: Harsher) -> Result<Ladder, SpecError> {
    Ladder::try_from(LadderWords { values, harsher }).map_err(|error| SpecError::new(at, error.to_string()))
}

fn names(fields: &mut Fields, key: &'static str) -> Result<Vec<String>, SpecError> {
    let at = fields.at(key);
    let name = |(index, value): (usize, Value)| match value {
        Value::String(name) => Ok(name),
        other => Err(SpecError::new(format!("{at}[{index}]"), format!("{other} is no name: give text"))),
    };
    fields.array(key)?.unwrap_or_default().into_iter().enumerate().map(name).collect()
}

/// For the schema of a document.
pub(in crate::experiment) fn schema() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    let number = |what: &str| json!({"type": "number", "description": what});
    let scale = json!({"enum": ["linear", "log"], "default": "linear"});
    let names = |what: &str| json!({"type": "array", "items": {"type": "string"}, "description": what});
    let whole = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
    let seconds = |what: &str| {
        json!({"type": "object", "additionalProperties": false, "required": ["from", "to"], "description": what, "properties": {
            "from": duration_schema("The shortest"), "to": duration_schema("The longest"), "scale": scale, "step": number("From one value to the next, in seconds; on a log scale a factor."),
        }})
    };
    let parameter = json!({"type": "object", "additionalProperties": false, "required": ["action", "parameter"], "properties": {
        "action": text("Name of an action of the method."),
        "parameter": text("The option of chaosctl inject that is set, such as \"delay\"."),
        "from": number("The smallest number."), "to": number("The largest number."),
        "scale": scale, "step": number("From one value to the next: a difference, or on a log scale a factor."),
        "whole": {"type": "boolean", "default": false, "description": "Whole numbers only."},
        "unit": text("Stands behind the numbers, such as \"ms\"."),
        "values": {"type": "array", "items": {"type": ["string", "number"]}, "description": "In place of from and to: all values, the mildest first."},
        "harsher": {"enum": ["larger", "smaller", "unknown"], "default": "larger", "description": "Which values hurt more."},
    }});
    let budget = json!({"type": "object", "additionalProperties": false, "required": ["runs", "time"], "properties": {
        "runs": {"type": "integer", "minimum": 1, "maximum": MOST_RUNS, "description": "The most runs."},
        "time": duration_schema("The most time on the clock, with all that is between runs"),
        "magnitude": number("The largest magnitude of a candidate: 1 for each fault at its harshest."),
        "violation": number("The most that objectives may be missed by in sum, as shares of them."),
        "recovery": duration_schema("How long the system has to itself between two runs"),
    }});
    json!({"type": "object", "additionalProperties": false, "required": ["objective", "budget"],
    "description": "Of the extension chaos-daemon: what chaosctl search may vary, to find the failure that barely happens.",
    "properties": {
        "parameters": {"type": "array", "items": parameter},
        "optional": names("Actions that may be left out; at least one of them is in each candidate."),
        "most": whole("How many of those are in one candidate at most."),
        "gap": seconds("How long after one of two actions the other may begin"),
        "duration": seconds("How long faults may last"),
        "objective": names("Gates of rollback_on, with op and value, that are to be met."),
        "budget": budget,
        "max_violation": number("No run is asked for of which a gate is predicted to be missed by a larger share; 1 unless told otherwise."),
        "precision": number("How near to the boundary is near enough, as a share of its values; 0.05 unless told otherwise."),
        "repeats": whole("How many runs confirm a failure; 3 unless told otherwise."),
        "seed": whole("Decides what chance decides; by chance without it."),
    }})
}
