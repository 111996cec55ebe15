//! What the search of a document means of its method and its gates.

use std::time::Duration;

use chaos_search::{
    Budget, Candidate, Harsher, Kind, Ladder, LadderWords, Parameter, Place, Space, Spec, Values,
};

use super::words::{Varied, Words};
use crate::experiment::activity::{Activity, Deed};
use crate::experiment::document::Experiment;
use crate::experiment::gate::{Gate, Rule};
use crate::experiment::stage::Stage;
use crate::spec::SpecError;

/// The longest name of an experiment that has a search, in bytes: those of its candidates say more.
const LONGEST_NAME: usize = 110;

/// The search of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The name of the experiment.
    pub(super) name: String,
    /// What is asked of `chaos-search`; the seed is 0 if the document has none.
    pub spec: Spec,
    /// Whether the document says the seed.
    pub has_seed: bool,
    /// Of each kind of the space: its actions, and what is varied of them, in the order of its parameters.
    pub(super) kinds: Vec<Varying>,
    /// Whether the faults last as a candidate says.
    pub(super) lasting: bool,
    /// Whether actions begin as a candidate says.
    pub(super) spaced: bool,
    /// The gates that are the objective.
    pub objective: Vec<Gate>,
    /// The stage of each run, if the document has stages.
    pub stage: Option<Stage>,
}

/// A kind of the space.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Varying {
    /// The names of its actions.
    pub(super) actions: Vec<String>,
    /// What is varied: action and option.
    pub(super) options: Vec<(String, String)>,
}

impl Plan {
    /// The search that a document asks for, if it asks for one.
    ///
    /// # Errors
    /// Names what of the search does not fit the rest of the document.
    pub fn of(experiment: &Experiment) -> Result<Option<Self>, SpecError> {
        let Some(words) = &experiment.guardrails.search else { return Ok(None) };
        let name = experiment.name.clone();
        if name.len() > LONGEST_NAME {
            let problem = format!("too long for a search: give a name of at most {LONGEST_NAME} bytes");
            return Err(SpecError::new("title", problem));
        }
        let groups = groups(words)?;
        let actions = groups.iter().flatten().map(|action| activity(words, experiment, action));
        let actions: Vec<&Activity> = actions.collect::<Result<_, _>>()?;
        timed(words, &actions)?;
        let kinds: Vec<Varying> = groups.into_iter().map(|actions| varying(words, actions)).collect();
        let stage =
            experiment.guardrails.blast_radius.as_ref().and_then(|radius| radius.stages().first().copied());
        let space = Space {
            kinds: kinds.iter().map(|kind| of_space(words, kind)).collect(),
            most: words.most.unwrap_or(kinds.len()),
            gap: words.gap.clone(),
            duration: match &words.duration {
                Some(duration) => duration.clone(),
                None => fixed(&words.at, longest(&actions))?,
            },
        };
        let spec = spec(words, space, stage, experiment.guardrails.recovery)?;
        Ok(Some(Self {
            name,
            spec,
            has_seed: words.seed.is_some(),
            kinds,
            lasting: words.duration.is_some(),
            spaced: words.gap.is_some(),
            objective: objective(words, &experiment.guardrails.gates)?,
            stage,
        }))
    }

    /// Candidates at the ends of the space, and each kind alone: what the document of one is not valid for, nobody may search. They
    /// are few, since each costs as much as the document itself.
    pub fn ends(&self) -> Vec<Candidate> {
        let space = &self.spec.space;
        let all: Vec<usize> = (0..space.kinds.len()).collect();
        let mildest = space.mildest(&all);
        let top = |place: Place| space.ladder(place).map_or(0, Ladder::top);
        let harshest = mildest.places().into_iter();
        let harshest = harshest.fold(mildest.clone(), |harsh, place| harsh.with(place, top(place)));
        let alone = all.iter().filter(|_| all.len() > 1).map(|kind| space.mildest(&[*kind]));
        [harshest, mildest].into_iter().chain(alone).collect()
    }
}

/// Which actions are there or not together: each optional one by itself, or all that are varied.
fn groups(words: &Words) -> Result<Vec<Vec<String>>, SpecError> {
    let mut varied: Vec<String> = Vec::new();
    for Varied { action, .. } in &words.parameters {
        if !varied.contains(action) {
            varied.push(action.clone());
        }
    }
    if words.optional.is_empty() {
        return match varied.is_empty() {
            false => Ok(vec![varied]),
            true => Err(SpecError::new(
                format!("{}.parameters", words.at),
                "missing: give parameters to vary, or actions that are optional",
            )),
        };
    }
    if let Some(always) = varied.iter().find(|action| !words.optional.contains(action)) {
        let problem = format!(
            "{always:?} is varied and not optional, and others are optional: of the actions that are varied all may be left \
             out, or none"
        );
        return Err(SpecError::new(format!("{}.optional", words.at), problem));
    }
    Ok(words.optional.iter().map(|action| vec![action.clone()]).collect())
}

/// The action of this name, which injects a fault.
fn activity<'a>(words: &Words, experiment: &'a Experiment, name: &str) -> Result<&'a Activity, SpecError> {
    let mut found = experiment.method.iter().filter(|activity| activity.name == name);
    match (found.next(), found.next()) {
        (Some(activity), None) if matches!(activity.deed, Deed::Inject { .. }) => Ok(activity),
        (Some(_), Some(_)) => {
            let problem = format!("several activities are called {name:?}: give each a name of its own");
            Err(SpecError::new(&words.at, problem))
        }
        _ => {
            let problem = format!("{name:?} is no action of the method that injects a fault: name one");
            Err(SpecError::new(&words.at, problem))
        }
    }
}

/// Refuses pauses that would say otherwise than the search when an action begins, or how long its fault lasts.
fn timed(words: &Words, actions: &[&Activity]) -> Result<(), SpecError> {
    if words.gap.is_none() && words.duration.is_none() {
        return Ok(());
    }
    let paused =
        |action: &&&Activity| action.background || !action.before.is_zero() || action.after.is_some();
    match actions.iter().find(paused) {
        None => Ok(()),
        Some(action) => {
            let problem = format!(
                "the search says when {:?} begins and how long it lasts: leave its background and pauses out",
                action.name
            );
            Err(SpecError::new(&words.at, problem))
        }
    }
}

fn varying(words: &Words, actions: Vec<String>) -> Varying {
    let of_it = words.parameters.iter().filter(|varied| actions.contains(&varied.action));
    let options = of_it.map(|varied| (varied.action.clone(), varied.parameter.clone())).collect();
    Varying { actions, options }
}

fn of_space(words: &Words, kind: &Varying) -> Kind {
    let of_it = words.parameters.iter().filter(|varied| kind.actions.contains(&varied.action));
    let parameter = |Varied { action, parameter, unit, ladder }: &Varied| Parameter {
        name: if kind.actions.len() == 1 { parameter.clone() } else { format!("{action} {parameter}") },
        unit: unit.clone(),
        ladder: ladder.clone(),
    };
    Kind { name: kind.actions.join(" + "), parameters: of_it.map(parameter).collect() }
}

/// How long the longest of the faults lasts.
fn longest(actions: &[&Activity]) -> Duration {
    let lasts = |activity: &&Activity| match &activity.deed {
        Deed::Inject { fault, .. } => fault.parse().map_or(Duration::ZERO, |fault| fault.duration),
        _ => Duration::ZERO,
    };
    actions.iter().map(lasts).max().unwrap_or_default()
}

fn fixed(at: &str, lasts: Duration) -> Result<Ladder, SpecError> {
    let seconds = lasts.as_secs_f64();
    let values =
        Values::Range { from: seconds, to: seconds, scale: Default::default(), step: None, whole: false };
    Ladder::try_from(LadderWords { values, harsher: Harsher::Larger })
        .map_err(|error| SpecError::new(at, error.to_string()))
}

fn spec(
    words: &Words,
    space: Space,
    stage: Option<Stage>,
    recovery: Option<Duration>,
) -> Result<Spec, SpecError> {
    let asked = &words.budget;
    let budget = Budget {
        runs: asked.runs,
        seconds: asked.time.as_secs_f64(),
        magnitude: asked.magnitude.unwrap_or(space.kinds.len() as f64),
        violation: asked.violation.unwrap_or(f64::from(asked.runs) * words.max_violation),
        // The system may take so long after the last fault.
        overhead_seconds: recovery.unwrap_or_default().as_secs_f64(),
        recovery_seconds: asked.recovery.as_secs_f64(),
        stage_percent: stage.map_or(100, |stage| stage.percent()),
    };
    let mut spec = Spec::new(space, budget, words.max_violation, words.seed.unwrap_or(0).into());
    spec.precision = words.precision.unwrap_or(spec.precision);
    spec.repeats = words.repeats.unwrap_or(spec.repeats);
    spec.check().map_err(|error| SpecError::new(&words.at, error.to_string()))?;
    Ok(spec)
}

fn objective(words: &Words, gates: &[Gate]) -> Result<Vec<Gate>, SpecError> {
    let at = format!("{}.objective", words.at);
    let gate = |name: &String| match gates.iter().find(|gate| gate.name == *name) {
        Some(gate) if matches!(gate.rule, Rule::Compare { .. }) => Ok(gate.clone()),
        Some(_) => {
            let problem =
                format!("the gate {name:?} has a tolerance, and no threshold: give it an op and a value");
            Err(SpecError::new(&at, problem))
        }
        None => Err(SpecError::new(&at, format!("{name:?} is no gate of rollback_on: name one"))),
    };
    words.objective.iter().map(gate).collect()
}
