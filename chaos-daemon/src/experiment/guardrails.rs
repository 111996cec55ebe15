//! The extension `chaos-daemon` of a document: gates, what else ends a run, which alerts it expects, and in which stages it is run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::activity::{Reader, printable};
use super::alert::{Alert, Wanted};
use super::durations::{LONGEST_INTERVAL, SHORTEST_INTERVAL, duration, duration_schema, length, within};
use super::futile;
use super::gate::{self, Gate, Op, Rule};
use super::sampling_rule;
use super::search::words::Words;
use super::stage::BlastRadius;
use super::variables::Use;
use crate::probe::Check;
use crate::probe::alert::FIRES;
use crate::request::facts::Precautions;
use crate::request::fields::Fields;
use crate::spec::SpecError;
use crate::spec::units::LONGEST_FAULT;

/// How often a gate is sampled, or an alert asked for, when nobody says.
const INTERVAL: Duration = Duration::from_secs(1);
/// What a fault weighs in the resiliency score unless its document says otherwise; Litmus' own default, and its most.
pub const FULL_WEIGHT: u8 = 10;
/// The most gates of one experiment.
const MOST_GATES: usize = 16;
/// The most alerts of one experiment.
const MOST_ALERTS: usize = 16;

/// What ends a run before its time, what else is expected of it, and how much of it there may be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Guardrails {
    /// Gates, which are sampled while the method goes on and faults are active.
    pub gates: Vec<Gate>,
    /// How long the steady state may take to be met again after the faults were removed; without it, no time at all.
    pub recovery: Option<Duration>,
    /// How long recovery from an outage may take, counted from the action that made it.
    pub rto: Option<Duration>,
    /// When probes of the steady state are sampled, where that is said.
    pub sampling: Vec<sampling_rule::Rule>,
    /// What faults weigh in the resiliency score, from 0 to 10, by the name of the action; the others weigh [`FULL_WEIGHT`].
    pub weights: BTreeMap<String, u8>,
    /// Alerts that have to fire because of its faults, or must not.
    pub alerts: Vec<Alert>,
    /// In which stages it is run; without it, as it is written.
    pub blast_radius: Option<BlastRadius>,
    /// In which environments it may run; empty for any.
    pub environments: Vec<String>,
    /// What may be searched of it.
    pub search: Option<Words>,
}

impl Guardrails {
    /// Understands the extension, whose fields are `fields`.
    ///
    /// # Errors
    /// Names what is wrong or not supported.
    pub(super) fn read(mut fields: Fields, reader: &Reader<'_>) -> Result<Self, SpecError> {
        let mut guardrails = Self::default();
        for key in ["rollback_on", "abort_when"] {
            let at = fields.at(key);
            for (index, entry) in fields.array(key)?.unwrap_or_default().into_iter().enumerate() {
                // Each is looked at, whatever comes of those before it.
                let entry = Fields::of(format!("{at}[{index}]"), entry);
                reader
                    .problems
                    .keep(entry.and_then(|entry| guardrails.entry(entry, key == "abort_when", reader)));
            }
        }
        let at = fields.at("probes");
        for (index, rule) in fields.array("probes")?.unwrap_or_default().into_iter().enumerate() {
            guardrails.sampling.push(sampling_rule::Rule::read(Fields::of(format!("{at}[{index}]"), rule)?)?);
        }
        let at = fields.at("weights");
        for (action, weight) in fields.object("weights")?.unwrap_or_default() {
            let whole = weight.as_u64().and_then(|weight| u8::try_from(weight).ok());
            let weight = whole.filter(|weight| *weight <= FULL_WEIGHT).ok_or_else(|| {
                let problem = format!("{weight} is out of bounds: give a whole number, 0 to {FULL_WEIGHT}");
                SpecError::new(format!("{at}.{action}"), problem)
            })?;
            guardrails.weights.insert(action, weight);
        }
        let at = fields.at("alerts");
        for (index, entry) in fields.array("alerts")?.unwrap_or_default().into_iter().enumerate() {
            let entry = Fields::of(format!("{at}[{index}]"), entry);
            let alert = entry.and_then(|entry| alert(entry, index, reader));
            guardrails.alerts.extend(reader.problems.keep(alert));
        }
        let at = fields.at("rto");
        if let Some(value) = fields.take("rto") {
            let value = reader.substituted(&at, value, Use::Probe)?;
            guardrails.rto = Some(within(&at, length(&at, &value)?, SHORTEST_INTERVAL, LONGEST_FAULT)?);
        }
        let at = fields.at("blast_radius");
        if let Some(value) = fields.take("blast_radius") {
            guardrails.blast_radius = Some(BlastRadius::read(&at, value)?);
        }
        let at = fields.at("search");
        if let Some(value) = fields.take("search") {
            guardrails.search = Some(Words::read(&at, value)?);
        }
        let at = fields.at("environments");
        for (index, name) in fields.array("environments")?.unwrap_or_default().into_iter().enumerate() {
            let at = format!("{at}[{index}]");
            let name = name.as_str().filter(|name| !name.trim().is_empty());
            let name = name.ok_or_else(|| SpecError::new(&at, "give a name, such as \"staging\""))?;
            printable(&at, name)?;
            guardrails.environments.push(name.to_owned());
        }
        fields.finish()?;
        if guardrails.gates.len() > MOST_GATES {
            return Err(SpecError::new("extensions", format!("too many gates: give at most {MOST_GATES}")));
        }
        if guardrails.alerts.len() > MOST_ALERTS {
            return Err(SpecError::new("extensions", format!("too many alerts: give at most {MOST_ALERTS}")));
        }
        Ok(guardrails)
    }

    /// What the operator may ask for, of a document that says these things.
    pub fn precautions(&self, texts: Vec<String>) -> Precautions {
        let fires = |alert: &Alert| matches!(alert.wanted, Wanted::Fires { .. });
        Precautions {
            environments: self.environments.clone(),
            gate: self.gates.iter().any(Gate::needs_data),
            alert: self.alerts.iter().any(fires),
            stages: self.blast_radius.is_some(),
            texts,
        }
    }

    fn entry(&mut self, mut fields: Fields, aborts: bool, reader: &Reader<'_>) -> Result<(), SpecError> {
        if aborts && let Some(limit) = duration(&mut fields, "not_recovered_within")? {
            self.recovery =
                Some(within(&fields.at("not_recovered_within"), limit, SHORTEST_INTERVAL, LONGEST_FAULT)?);
            return fields.finish();
        }
        self.gates.push(gate(fields, self.gates.len(), reader)?);
        Ok(())
    }
}

fn gate(mut fields: Fields, number: usize, reader: &Reader<'_>) -> Result<Gate, SpecError> {
    let name = fields.string("name")?.unwrap_or_else(|| (number + 1).to_string());
    printable(&fields.at("name"), &name)?;
    if gate::is_of_the_host(&name) {
        let problem = format!(
            "begins with {:?}, as the limits of a host by its policy do: give another name",
            gate::PREFIX
        );
        return Err(SpecError::new(fields.at("name"), problem));
    }
    let (mut probe, form) = reader.probe(reader.provider(&mut fields, Use::Probe)?)?;
    let interval = interval(&mut fields)?;
    probe.timeout = probe.timeout.min(interval);
    probe.fits(&fields.at("interval"))?;
    let alert_after = duration(&mut fields, "alertAfter")?.unwrap_or_default();
    let alert_after = within(&fields.at("alertAfter"), alert_after, Duration::ZERO, LONGEST_FAULT)?;
    let no_data = fields.string("noData")?;
    let no_data_is_breach = match no_data.as_deref() {
        None | Some("breach") => true,
        Some("ignore") => false,
        Some(other) => {
            let problem = format!("{other:?} is not one of breach, ignore");
            return Err(SpecError::new(fields.at("noData"), problem));
        }
    };
    let rule = match fields.take("tolerance") {
        Some(tolerance) => {
            let at = fields.at("tolerance");
            Rule::Tolerance(reader.tolerance(&at, tolerance, &mut probe, form)?)
        }
        None => compare(&mut fields, reader)?,
    };
    let at = fields.at("value");
    fields.finish()?;
    let gate = Gate { name, probe, form, rule, alert_after, interval, no_data_is_breach };
    futile::gate(at.trim_end_matches(".value"), &gate)?;
    Ok(gate)
}

fn alert(mut fields: Fields, number: usize, reader: &Reader<'_>) -> Result<Alert, SpecError> {
    let name = fields.string("name")?.unwrap_or_else(|| (number + 1).to_string());
    printable(&fields.at("name"), &name)?;
    let (probe, _) = reader.probe(reader.provider(&mut fields, Use::Probe)?)?;
    if !matches!(probe.check, Check::Alert(_)) || probe.bounds != FIRES {
        let problem = "give \"chaosctl probe alert …\" without --min and --max: what the alert has to do stands beside it";
        return Err(SpecError::new(fields.at("provider"), problem));
    }
    let interval = interval(&mut fields)?;
    let action = fields.string("action")?;
    let mut time = |key: &'static str| {
        let at = fields.at(key);
        let Some(value) = fields.take(key) else { return Ok(None) };
        let value = reader.substituted(&at, value, Use::Probe)?;
        within(&at, length(&at, &value)?, SHORTEST_INTERVAL, LONGEST_FAULT).map(Some)
    };
    let (fires, gone) = (time("fires_within")?, time("gone_within")?);
    let wanted = match (fires, gone, fields.boolean("must_not_fire")?.unwrap_or(false)) {
        (Some(within), gone_within, false) => Wanted::Fires { within, gone_within },
        (None, None, true) => Wanted::Silence,
        _ => {
            let problem = "give how soon it has to fire, such as \"1m\", and if it matters gone_within; or must_not_fire: true \
                           alone";
            return Err(SpecError::new(fields.at("fires_within"), problem));
        }
    };
    fields.finish()?;
    Ok(Alert { name, probe, interval, action, wanted })
}

fn interval(fields: &mut Fields) -> Result<Duration, SpecError> {
    let interval = duration(fields, "interval")?.unwrap_or(INTERVAL);
    within(&fields.at("interval"), interval, SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

fn compare(fields: &mut Fields, reader: &Reader<'_>) -> Result<Rule, SpecError> {
    let op = fields.string("op")?;
    let op = fields.need("op", op, "give gt, gte, lt or lte with a value, or a tolerance")?;
    let op = Op::parse(&op)
        .ok_or_else(|| SpecError::new(fields.at("op"), format!("{op:?} is not one of gt, gte, lt, lte")))?;
    let at = fields.at("value");
    let value = fields.take("value");
    let value = fields.need("value", value, "give a number")?;
    let value = reader.substituted(&at, value, Use::Probe)?;
    let value =
        value.as_f64().ok_or_else(|| SpecError::new(at, format!("a number is needed here, not {value}")))?;
    let lookback = duration(fields, "lookbackWindow")?.unwrap_or_default();
    let lookback = within(&fields.at("lookbackWindow"), lookback, Duration::ZERO, LONGEST_FAULT)?;
    Ok(Rule::Compare { op, value, lookback })
}

/// What the extension says beside its name, for the schema.
pub(super) fn fields() -> Value {
    let text = |what: &str| serde_json::json!({"type": "string", "description": what});
    let length = duration_schema;
    let gate = serde_json::json!({
        "type": "object",
        "properties": {
            "name": text("Name of the gate."),
            "provider": super::schema::provider_of_probe(),
            "op": {"enum": ["gt", "gte", "lt", "lte"], "description": "True in a breach."},
            "value": {"description": "What the probe measures is compared with this."},
            "tolerance": {"description": "In place of op and value: as of a probe of the steady state."},
            "alertAfter": length("How long it has to be breached"),
            "lookbackWindow": length("Over how long what was measured is averaged"),
            "interval": length("How often it is sampled, 1s unless told otherwise"),
            "noData": {"enum": ["breach", "ignore"], "default": "breach"},
            "not_recovered_within": length("In abort_when, alone: how long recovery may take"),
        },
        "additionalProperties": false,
    });
    let alert = serde_json::json!({
        "type": "object",
        "properties": {
            "name": text("Name of the alert."),
            "provider": super::schema::provider_of_alert(),
            "action": text("Name of the action from which time counts; without it, the first that injects."),
            "fires_within": length("How soon it has to fire"),
            "gone_within": length("How soon after the removal of the last fault it has to be gone again"),
            "must_not_fire": {"type": "boolean", "default": false, "description": "In place of fires_within."},
            "interval": length("How often it is asked for, 1s unless told otherwise"),
        },
        "required": ["provider"],
        "additionalProperties": false,
    });
    serde_json::json!({
        "rollback_on": {"type": "array", "items": gate, "description": "Of the extension chaos-daemon: gates."},
        "abort_when": {"type": "array", "items": gate, "description": "Of the extension chaos-daemon: gates, and not_recovered_within."},
        "probes": sampling_rule::schema(),
        "weights": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0, "maximum": FULL_WEIGHT},
            "description": "Of the extension chaos-daemon: what faults weigh in the resiliency score, by the name of the action; \
                            10 unless told otherwise.",
        },
        "blast_radius": {
            "type": "object",
            "properties": {"stages": super::stage::schema()},
            "additionalProperties": false,
            "description": "Of the extension chaos-daemon: each run affects a share of what its faults match, and a larger one \
                            is due when the smaller ones were held.",
        },
        "alerts": {"type": "array", "items": alert, "maxItems": MOST_ALERTS,
            "description": "Of the extension chaos-daemon: alerts that have to fire because of the faults, or must not."},
        "environments": {"type": "array", "items": {"type": "string"},
            "description": "Of the extension chaos-daemon: what a host has to be, by its policy, for it to be run there, such as \"staging\"."},
        "search": super::search::words::schema(),
        "rto": length("Of the extension chaos-daemon: recovery time objective, from an action that kills, stops, restarts or cuts off"),
    })
}
