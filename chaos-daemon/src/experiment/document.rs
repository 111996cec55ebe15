//! A Chaos Toolkit experiment document, understood: steady state, method, rollbacks. What is not supported is refused
//! by name, never skipped.
//!
//! Format: "An Open API for Chaos Engineering Experiments", <https://chaostoolkit.org/reference/api/experiment/>.

use std::time::Duration;

use serde_json::{Map, Value};

use super::EXTENSION;
use super::activity::{Activity, Condition, Deed, GAP, Reader, gap, injects, no_controls};
use super::guardrails::{FULL_WEIGHT, Guardrails};
use super::machine::{self, Step};
use super::problems::Problems;
use super::recovery::is_outage;
use super::reference::Named;
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
    /// The steady state; empty where the document has none, whose runs are unverified.
    pub conditions: Vec<Condition>,
    /// What is done, in order. A run of a method that injects nothing is unverified.
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
        Self::understand(document, outside, Problems::new(true)).map_err(|problems| {
            problems.into_iter().next().unwrap_or_else(|| SpecError::new("", "makes no sense"))
        })
    }

    /// Understands `document` likewise.
    ///
    /// # Errors
    /// Names every part that is missing, wrong or not supported.
    pub fn check(document: &Map<String, Value>, outside: &dyn Outside) -> Result<Self, Vec<SpecError>> {
        Self::understand(document, outside, Problems::new(false))
    }

    fn understand(
        document: &Map<String, Value>,
        outside: &dyn Outside,
        problems: Problems,
    ) -> Result<Self, Vec<SpecError>> {
        let mut fields = Fields::new("", document.clone());
        let gaps = document.get(GAP).and_then(Value::as_array).into_iter().flatten();
        gaps.enumerate().for_each(|(index, why)| problems.note(gap(format!("{GAP}[{index}]"), why)));
        let configuration = problems.keep(fields.object("configuration")).flatten();
        let secrets = problems.keep(fields.object("secrets")).flatten();
        let variables = Variables::read(configuration, secrets, outside, &problems);
        let reader = Reader { variables: &variables, room: Room::default(), problems };
        let parsed = if reader.problems.is_full() { None } else { read(fields, &reader) };
        let problems = reader.problems.into_vec();
        match parsed.filter(|_| problems.is_empty()) {
            Some(parsed) => {
                let experiment = Self { variables, ..parsed };
                experiment.searchable(document, outside).map_err(|problem| vec![problem])?;
                Ok(experiment)
            }
            None => {
                let hidden =
                    |error: SpecError| SpecError { problem: variables.hide(&error.problem), ..error };
                Err(problems.into_iter().map(hidden).collect())
            }
        }
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
                Deed::Probe { .. } => machine::Deed::Probe,
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
            Deed::Probe { probe, .. } => Some((activity.name.as_str(), probe)),
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

fn read(mut fields: Fields, reader: &Reader<'_>) -> Option<Experiment> {
    let told = &reader.problems;
    let name = told.keep(name(&mut fields));
    let description = told.keep(fields.string("description")).flatten().unwrap_or_default();
    told.keep(annotations(&mut fields));
    told.keep(no_controls(&mut fields));
    let mode = told.keep(runtime(&mut fields));
    let guardrails = told.keep(extensions(&mut fields, reader));
    let probes = match fields.take("steady-state-hypothesis") {
        Some(hypothesis) => told.keep(probes(hypothesis, reader)),
        None => Some(Vec::new()),
    };
    let steps = told.keep(fields.array("method"));
    let steps = steps.and_then(|steps| {
        told.keep(fields.need("method", steps, "give a list of actions and probes, which may be empty"))
    });
    let named = Named::of(probes.as_deref().unwrap_or_default(), steps.as_deref().unwrap_or_default());
    let conditions = probes.as_deref().and_then(|probes| conditions(probes, reader));
    let method = steps.as_deref().and_then(|steps| method(steps, &named, reader));
    let rollbacks = told.keep(fields.array("rollbacks")).flatten().unwrap_or_default();
    if rollbacks.len() > MOST_ACTIVITIES {
        told.note(SpecError::new("rollbacks", format!("too long: give at most {MOST_ACTIVITIES}")));
    }
    for (index, rollback) in rollbacks.into_iter().take(MOST_ACTIVITIES).enumerate() {
        if let Some((at, rollback)) = named.resolve(&format!("rollbacks[{index}]"), rollback, reader) {
            told.keep(reader.rollback(&at, rollback, method.as_deref()));
        }
    }
    fields.leave_out(&[]);
    fields.strangers().into_iter().for_each(|stranger| told.note(stranger));
    if !told.is_empty() {
        return None;
    }
    let (mut conditions, guardrails, method) = (conditions?, guardrails?, method?);
    told.keep(agree(&guardrails, mode?, &mut conditions, &method))?;
    let variables = Variables::default();
    Some(Experiment { name: name?, description, conditions, method, guardrails, variables })
}

/// Sees that the parts of a document fit each other, and has the probes be sampled as the others say.
fn agree(
    guardrails: &Guardrails,
    mode: Mode,
    conditions: &mut [Condition],
    method: &[Activity],
) -> Result<(), SpecError> {
    if !conditions.is_empty() || !guardrails.sampling.is_empty() {
        Rule::apply(&guardrails.sampling, mode, conditions)?;
    }
    knowable(guardrails, asked(conditions))?;
    soon_enough(guardrails, conditions)?;
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
    if let Some(alert) = guardrails.alerts.iter().find(|alert| alert.action(method).is_none()) {
        let (alert, action) = (&alert.name, alert.action.as_deref().unwrap_or_default());
        let problem = format!("the alert {alert:?} waits for the action {action:?}, which injects nothing");
        return Err(SpecError::new("extensions", problem));
    }
    if guardrails.blast_radius.is_some() {
        BlastRadius::check(method)?;
    }
    Ok(())
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

/// The probes of a hypothesis, as they stand there.
fn probes(hypothesis: Value, reader: &Reader<'_>) -> Result<Vec<Value>, SpecError> {
    const PATH: &str = "steady-state-hypothesis";
    let mut fields = Fields::of(PATH, hypothesis)?;
    fields.string("title")?;
    reader.problems.keep(no_controls(&mut fields));
    let probes = fields.array("probes")?.unwrap_or_default();
    fields.leave_out(&["description", "tags", "extensions"]);
    fields.strangers().into_iter().for_each(|stranger| reader.problems.note(stranger));
    match probes.len() {
        0..=MOST_PROBES => Ok(probes),
        _ => Err(SpecError::new(
            format!("{PATH}.probes"),
            format!("too long: give at most {MOST_PROBES} probes"),
        )),
    }
}

/// What each probe means; `None` if it is not known of one.
fn conditions(probes: &[Value], reader: &Reader<'_>) -> Option<Vec<Condition>> {
    let path = |index| format!("steady-state-hypothesis.probes[{index}]");
    let read = |(index, probe): (usize, &Value)| reader.condition(&path(index), probe.clone());
    // Each is looked at, whatever comes of those before it.
    let wanted = |_: &(usize, &Value)| !reader.problems.is_full();
    let read: Vec<_> = probes.iter().enumerate().take_while(wanted).map(read).collect();
    read.into_iter().collect()
}

/// What each activity means; `None` if it is not known of one.
fn method(method: &[Value], named: &Named<'_>, reader: &Reader<'_>) -> Option<Vec<Activity>> {
    let told = &reader.problems;
    if method.len() > MOST_ACTIVITIES {
        told.note(SpecError::new("method", format!("too long: give at most {MOST_ACTIVITIES} activities")));
        return None;
    }
    let (mut activities, mut understood): (Vec<Activity>, bool) = (Vec::new(), true);
    for (index, activity) in method.iter().enumerate() {
        if told.is_full() {
            return None;
        }
        let path = format!("method[{index}]");
        let read = named.resolve(&path, activity.clone(), reader);
        let Some(activity) = read.and_then(|(at, activity)| reader.activity(&at, activity)) else {
            understood = false;
            continue;
        };
        told.keep(follows(&path, &activity, &activities, understood));
        activities.push(activity);
    }
    understood.then_some(activities)
}

/// Sees that an activity, which stands at `path`, makes sense after those before it. Whether these are all is `known`.
fn follows(path: &str, activity: &Activity, before: &[Activity], known: bool) -> Result<(), SpecError> {
    let wrong = |problem| Err(SpecError::new(format!("{path}.provider.arguments"), problem));
    match &activity.deed {
        Deed::Remove(name) if known && !injects(before, name) => {
            wrong(format!("no earlier action injects a fault with --name {name}"))
        }
        Deed::Inject { name: Some(name), .. } if injects(before, name) => {
            wrong(format!("{name} is the --name of an earlier action: give another"))
        }
        Deed::Inject { fault, .. } => match fault.parse() {
            Ok(_) => Ok(()),
            Err(error) => wrong(error.to_string()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "document_probe_tests.rs"]
mod probe_tests;

#[cfg(test)]
#[path = "leniency_tests.rs"]
mod leniency_tests;

#[cfg(test)]
#[path = "strategy_tests.rs"]
mod strategy_tests;
