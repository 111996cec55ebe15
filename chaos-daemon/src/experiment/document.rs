//! A Chaos Toolkit experiment document, understood: steady state, method, rollbacks. What is not supported is refused
//! by name, never skipped.
//!
//! Format: "An Open API for Chaos Engineering Experiments", <https://chaostoolkit.org/reference/api/experiment/>.

use std::time::Duration;

use serde_json::{Map, Value};

use super::EXTENSION;
use super::activity::{Activity, Condition, Deed, Reader, injects, no_controls};
use super::guardrails::{FULL_WEIGHT, Guardrails};
use super::machine::{self, Step};
use super::recovery::is_outage;
use super::role::{Role, Stage, Stages};
use super::sampling::{Mode, STRATEGIES};
use super::sampling_rule::Rule;
use super::schema::ROLLBACKS;
use super::search::Plan;
use super::stage::BlastRadius;
use super::variables::{Outside, Room, Variables};
use crate::probe::Probe;
use crate::request::fields::Fields;
use crate::spec::{FaultName, FaultRequest, SpecError};

/// The most probes a hypothesis may have.
const MOST_PROBES: usize = 32;
/// The most activities a method may have.
const MOST_ACTIVITIES: usize = 64;

/// An experiment, understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Name under which it runs.
    pub name: String,
    /// What it is about.
    pub description: String,
    /// The steady state; never empty.
    pub conditions: Vec<Condition>,
    /// What is done, in order; something injects a fault.
    pub method: Vec<Activity>,
    /// What ends a run before its time.
    pub guardrails: Guardrails,
    /// Configuration and secrets; of use here for what must not be shown.
    pub variables: Variables,
}

impl Experiment {
    /// Understands `document`, with values of its configuration from `outside`.
    ///
    /// # Errors
    /// Names the first part that is missing, wrong or not supported.
    pub fn parse(document: &Map<String, Value>, outside: &dyn Outside) -> Result<Self, SpecError> {
        let mut fields = Fields::new("", document.clone());
        let variables = Variables::read(fields.object("configuration")?, fields.object("secrets")?, outside)?;
        let reader = Reader { variables: &variables, room: Room::default() };
        let parsed = read(fields, &reader)
            .map_err(|error| SpecError { problem: variables.hide(&error.problem), ..error })?;
        let experiment = Self { variables, ..parsed };
        experiment.searchable(document, outside)?;
        Ok(experiment)
    }

    /// Refuses a search of which a candidate makes no sense.
    fn searchable(&self, document: &Map<String, Value>, outside: &dyn Outside) -> Result<(), SpecError> {
        let Some(plan) = Plan::of(self)? else { return Ok(()) };
        for candidate in plan.ends() {
            // It has no search of its own.
            Self::parse(&plan.document(document, &candidate, "search"), outside).map_err(|error| {
                let setting = plan.spec.space.setting(&candidate);
                let problem = format!("the search may try {setting}, which makes no sense: {error}");
                SpecError::new("extensions", problem)
            })?;
        }
        Ok(())
    }

    /// The method as the state machine sees it.
    pub fn steps(&self) -> Vec<Step> {
        let injector = |name: &FaultName| {
            self.method.iter().position(|other| injects(std::slice::from_ref(other), name))
        };
        let step = |activity: &Activity| Step {
            deed: match &activity.deed {
                Deed::Inject { .. } => machine::Deed::Inject,
                Deed::Probe(_) => machine::Deed::Probe,
                Deed::Remove(name) => machine::Deed::Remove(injector(name).unwrap_or(usize::MAX)),
            },
            background: activity.background,
            before: !activity.before.is_zero(),
            after: activity.after.is_some(),
        };
        self.method.iter().map(step).collect()
    }

    /// The faults, with the numbers of their activities and the names that the document has for them.
    pub fn faults(&self) -> impl Iterator<Item = (usize, Option<&FaultName>, &FaultRequest)> {
        self.method.iter().enumerate().filter_map(|(index, activity)| match &activity.deed {
            Deed::Inject { name, fault } => Some((index, name.as_ref(), &**fault)),
            _ => None,
        })
    }

    /// Everything that is sampled, with the name that the document has for it.
    pub fn probes(&self) -> impl Iterator<Item = (&str, &Probe)> {
        let conditions = self.conditions.iter().map(|condition| (condition.name.as_str(), &condition.probe));
        let gates = self.guardrails.gates.iter().map(|gate| (gate.name.as_str(), &gate.probe));
        let method = self.method.iter().filter_map(|activity| match &activity.deed {
            Deed::Probe(probe) => Some((activity.name.as_str(), probe)),
            _ => None,
        });
        let alerts = self.guardrails.alerts.iter().map(|alert| (alert.name.as_str(), &alert.probe));
        conditions.chain(gates).chain(method).chain(alerts)
    }

    /// When the steady state is to be verified.
    pub fn asked(&self) -> Stages {
        asked(&self.conditions)
    }

    /// What the fault of this activity weighs in the resiliency score, from 0 to 10.
    pub fn weight(&self, index: usize) -> u8 {
        let weight = self.method.get(index).and_then(|activity| self.guardrails.weights.get(&activity.name));
        weight.copied().unwrap_or(FULL_WEIGHT)
    }

    /// How long the method takes when nothing ends it, without the time that its activities themselves take.
    pub fn lasts(&self) -> Duration {
        let (mut now, mut end) = (Duration::ZERO, Duration::ZERO);
        for activity in &self.method {
            let begins = now + activity.before;
            let own = match (&activity.deed, activity.after) {
                (Deed::Inject { fault, .. }, None) => {
                    fault.parse().map_or(Duration::ZERO, |fault| fault.duration)
                }
                (_, after) => after.unwrap_or_default(),
            };
            end = end.max(begins + own);
            if !activity.background {
                now = begins + activity.after.unwrap_or_default();
            }
        }
        end
    }
}

fn read(mut fields: Fields, reader: &Reader<'_>) -> Result<Experiment, SpecError> {
    let name = name(&mut fields)?;
    let description = fields.string("description")?.unwrap_or_default();
    annotations(&mut fields)?;
    no_controls(&mut fields)?;
    let mode = runtime(&mut fields)?;
    let guardrails = extensions(&mut fields, reader)?;
    let hypothesis = fields.take("steady-state-hypothesis");
    let hypothesis = fields.need(
        "steady-state-hypothesis",
        hypothesis,
        "give {title, probes}; without it nothing could be learned",
    )?;
    let mut conditions = conditions(hypothesis, reader)?;
    Rule::apply(&guardrails.sampling, mode, &mut conditions)?;
    knowable(&guardrails, asked(&conditions))?;
    soon_enough(&guardrails, &conditions)?;
    let method = method(&mut fields, reader)?;
    let is_outage = |activity: &Activity| matches!(&activity.deed, Deed::Inject { fault, .. } if is_outage(fault.fault_type));
    if guardrails.rto.is_some() && !method.iter().any(is_outage) {
        let problem =
            "there is an rto, and no action that kills, stops, restarts or cuts off anything: leave it out";
        return Err(SpecError::new("extensions", problem));
    }
    let injecting = |name: &String| {
        method.iter().any(|activity| activity.name == *name && matches!(activity.deed, Deed::Inject { .. }))
    };
    if let Some(unknown) = guardrails.weights.keys().find(|name| !injecting(name)) {
        let problem = format!("there is a weight of {unknown:?}, which is no action that injects a fault");
        return Err(SpecError::new("extensions", problem));
    }
    if let Some(alert) = guardrails.alerts.iter().find(|alert| alert.action(&method).is_none()) {
        let (alert, action) = (&alert.name, alert.action.as_deref().unwrap_or_default());
        let problem = format!("the alert {alert:?} waits for the action {action:?}, which injects nothing");
        return Err(SpecError::new("extensions", problem));
    }
    if guardrails.blast_radius.is_some() {
        BlastRadius::check(&method)?;
    }
    let rollbacks = fields.array("rollbacks")?.unwrap_or_default();
    if rollbacks.len() > MOST_ACTIVITIES {
        return Err(SpecError::new("rollbacks", format!("too long: give at most {MOST_ACTIVITIES}")));
    }
    for (index, rollback) in rollbacks.into_iter().enumerate() {
        reader.rollback(&format!("rollbacks[{index}]"), rollback, &method)?;
    }
    fields.finish()?;
    let variables = Variables::default();
    Ok(Experiment { name, description, conditions, method, guardrails, variables })
}

fn asked(conditions: &[Condition]) -> Stages {
    Stages::of(|stage| conditions.iter().any(|condition| condition.sampling.mode.is_due(stage)))
}

fn name(fields: &mut Fields) -> Result<String, SpecError> {
    let title = fields.string("title")?;
    let name = fields.string("name")?.or(title);
    let name = fields.need("title", name, "say in a few words what the experiment is about")?;
    if name.trim().is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        return Err(SpecError::new("title", "must be 1 to 128 bytes of printable text"));
    }
    Ok(name)
}

/// What has no effect, here as in Chaos Toolkit.
fn annotations(fields: &mut Fields) -> Result<(), SpecError> {
    fields.take("version");
    fields.object("contributions")?;
    for (index, tag) in fields.array("tags")?.unwrap_or_default().iter().enumerate() {
        if tag.as_str().is_none_or(str::is_empty) {
            return Err(SpecError::new(format!("tags[{index}]"), format!("{tag} is no tag: give text")));
        }
    }
    Ok(())
}

/// When the steady state is sampled, but for probes of which something else is said.
fn runtime(fields: &mut Fields) -> Result<Mode, SpecError> {
    let Some(runtime) = fields.object("runtime")? else { return Ok(Mode::Edge) };
    let mut runtime = Fields::new("runtime", runtime);
    strategy(&mut runtime, "rollbacks", &ROLLBACKS, "every fault is removed, whatever becomes of the run")?;
    let names = STRATEGIES.map(|(name, _)| name);
    let hypothesis = strategy(&mut runtime, "hypothesis", &names, "without any nothing could be learned")?;
    runtime.finish()?;
    let mode = STRATEGIES.into_iter().find(|(name, _)| Some(*name) == hypothesis.as_deref());
    Ok(mode.map_or(Mode::Edge, |(_, mode)| mode))
}

/// The strategy of a part of `runtime`, one of `known`, if it says any; `why` there is no other.
fn strategy(
    runtime: &mut Fields,
    part: &'static str,
    known: &[&str],
    why: &str,
) -> Result<Option<String>, SpecError> {
    let at = runtime.at(part);
    let Some(object) = runtime.object(part)? else { return Ok(None) };
    let mut object = Fields::new(&at, object);
    let strategy = object.string("strategy")?;
    object.finish()?;
    match strategy.as_deref().filter(|strategy| !known.contains(strategy)) {
        None => Ok(strategy),
        Some(other) => {
            let problem = format!("{other:?} is not one of {}: {why}", known.join(", "));
            Err(SpecError::new(format!("{at}.strategy"), problem))
        }
    }
}

/// Refuses what could not be known of a steady state that is verified at no other time than `asked`.
fn knowable(guardrails: &Guardrails, asked: Stages) -> Result<(), SpecError> {
    for (given, part, known, when) in [
        (guardrails.rto.is_some(), "rto", asked.after, "after the method"),
        (guardrails.recovery.is_some(), "not_recovered_within", asked.after, "after the method"),
        (
            guardrails.blast_radius.is_some(),
            "blast_radius",
            asked.during || asked.after,
            "during the method or after it",
        ),
    ] {
        if given && !known {
            let problem = format!(
                "there is {part}, and the steady state is not verified {when}: leave it out, or give another strategy of \
                 the hypothesis"
            );
            return Err(SpecError::new("extensions", problem));
        }
    }
    Ok(())
}

/// Refuses a time to recover that is over before the steady state is looked at for the first time.
fn soon_enough(guardrails: &Guardrails, conditions: &[Condition]) -> Result<(), SpecError> {
    let Some(limit) = guardrails.recovery else { return Ok(()) };
    let after =
        conditions.iter().filter(|condition| condition.sampling.is_due(Role::SteadyState, Stage::After));
    match after.max_by_key(|condition| condition.sampling.initial_delay) {
        Some(last) if last.sampling.initial_delay >= limit => {
            let (name, delay) = (&last.name, last.sampling.initial_delay);
            let problem = format!(
                "not_recovered_within is {limit:?}, and {name:?} is sampled for the first time after its initialDelay of \
                 {delay:?}: give it more time"
            );
            Err(SpecError::new("extensions", problem))
        }
        _ => Ok(()),
    }
}

/// Those of others have no meaning here, as the format says.
fn extensions(fields: &mut Fields, reader: &Reader<'_>) -> Result<Guardrails, SpecError> {
    let mut guardrails = None;
    for (index, extension) in fields.array("extensions")?.unwrap_or_default().into_iter().enumerate() {
        let path = format!("extensions[{index}]");
        let mut extension = Fields::of(&path, extension)?;
        let name = extension.string("name")?;
        if extension.need("name", name, "say whose it is")? != EXTENSION {
            continue;
        }
        if guardrails.replace(Guardrails::read(extension, reader)?).is_some() {
            return Err(SpecError::new(path, format!("{EXTENSION:?} is there already: put both into one")));
        }
    }
    Ok(guardrails.unwrap_or_default())
}

fn conditions(hypothesis: Value, reader: &Reader<'_>) -> Result<Vec<Condition>, SpecError> {
    let mut fields = Fields::of("steady-state-hypothesis", hypothesis)?;
    fields.string("title")?;
    no_controls(&mut fields)?;
    let probes = fields.array("probes")?.unwrap_or_default();
    fields.finish()?;
    if probes.is_empty() || probes.len() > MOST_PROBES {
        return Err(SpecError::new(
            "steady-state-hypothesis.probes",
            format!("missing: give 1 to {MOST_PROBES} probes"),
        ));
    }
    let path = |index| format!("steady-state-hypothesis.probes[{index}]");
    probes.into_iter().enumerate().map(|(index, probe)| reader.condition(&path(index), probe)).collect()
}

fn method(fields: &mut Fields, reader: &Reader<'_>) -> Result<Vec<Activity>, SpecError> {
    let method = fields.array("method")?;
    let method = fields.need("method", method, "give a list with an action")?;
    if method.len() > MOST_ACTIVITIES {
        return Err(SpecError::new("method", format!("too long: give at most {MOST_ACTIVITIES} activities")));
    }
    let mut activities: Vec<Activity> = Vec::new();
    for (index, activity) in method.into_iter().enumerate() {
        let path = format!("method[{index}]");
        let activity = reader.activity(&path, activity)?;
        match &activity.deed {
            Deed::Remove(name) if !injects(&activities, name) => {
                let problem = format!("no earlier action injects a fault with --name {name}");
                return Err(SpecError::new(format!("{path}.provider.arguments"), problem));
            }
            Deed::Inject { name: Some(name), .. } if injects(&activities, name) => {
                let problem = format!("{name} is the --name of an earlier action: give another");
                return Err(SpecError::new(format!("{path}.provider.arguments"), problem));
            }
            Deed::Inject { fault, .. } => {
                let wrong = |error| SpecError::new(format!("{path}.provider.arguments"), format!("{error}"));
                fault.parse().map_err(wrong)?;
            }
            _ => {}
        }
        activities.push(activity);
    }
    match activities.iter().any(|activity| matches!(activity.deed, Deed::Inject { .. })) {
        true => Ok(activities),
        false => Err(SpecError::new(
            "method",
            "nothing is injected: give an action that runs \"chaosctl inject …\"",
        )),
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "document_probe_tests.rs"]
mod probe_tests;

#[cfg(test)]
#[path = "strategy_tests.rs"]
mod strategy_tests;
