//! `chaos_describe_experiment`: all there is to know about one experiment, but its secrets.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::catalogue::Listed;
use super::history;
use super::results::{Failure, says_its_error, word};
use super::schema::{object, text};
use super::tool::{Call, Hints, Output, Tool};
use crate::experiment::Experiment;
use crate::experiment::activity::Deed;
use crate::experiment::hub::Parameter;
use crate::experiment::role::Role;
use crate::probe::Probe;
use crate::request::fields::Fields;
use crate::request::{ApiError, Caller};
use crate::server::catalogue::Known;
use crate::server::history::{Filter, RunFault, Summary};
use crate::server::service::Service;

/// How many of its latest runs are told.
const RUNS: u32 = 10;

/// A value of the configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct Variable {
    /// Name, used as ${name} in the document.
    pub(crate) name: String,
    /// The variable of the environment from which chaosctl takes it when it registers the document.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) environment: Option<String>,
    /// What it is when nobody says.
    #[schemars(with = "Value")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<Value>,
}

impl From<Parameter> for Variable {
    fn from(Parameter { name, environment, default }: Parameter) -> Self {
        Self { name, environment, default }
    }
}

/// Something that is sampled.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct Sampled {
    /// Name.
    pub(crate) name: String,
    /// "steady_state", "gate", "method" or "alert".
    pub(crate) role: String,
    /// What is asked.
    pub(crate) check: String,
}

/// Result of `chaos_describe_experiment`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct Description {
    /// Name that was asked for.
    pub(crate) experiment_name: String,
    /// The experiment in short, as chaos_list_experiments has it.
    #[schemars(with = "Listed")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) experiment: Option<Listed>,
    /// What is expected to hold.
    pub(crate) description: String,
    /// The document, without its secrets; absent when this version does not understand it, and so cannot tell what is secret.
    #[schemars(with = "Map<String, Value>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) document: Option<Value>,
    /// Its configuration.
    pub(crate) variables: Vec<Variable>,
    /// Names of its secrets, with their groups.
    pub(crate) secrets: Vec<String>,
    /// What it samples.
    pub(crate) probes: Vec<Sampled>,
    /// The faults that it injects; the name is empty where each run makes one up.
    pub(crate) faults: Vec<RunFault>,
    /// How long its method takes when nothing ends it.
    #[schemars(with = "f64")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold_seconds: Option<f64>,
    /// Its latest runs, the latest first.
    pub(crate) runs: Vec<history::Listed>,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(Description);

pub(super) struct DescribeExperiment;

impl Tool for DescribeExperiment {
    const NAME: &'static str = "chaos_describe_experiment";
    const TITLE: &'static str = "Describe an experiment";
    const DESCRIPTION: &'static str = "One experiment, registered or built in: its document without secrets, variables, probes, faults and \
         latest runs.";
    const HINTS: Hints = Hints::LOOKS;
    type Output = Description;

    fn input() -> JsonObject {
        object(
            json!({"experiment_name": text("Name of the experiment, as chaos_list_experiments has it.")}),
            &["experiment_name"],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<Description, ApiError> {
        describe(call.service, call.arguments, call.caller).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> Description {
        let name = arguments.get("experiment_name").and_then(Value::as_str).unwrap_or_default();
        Description { experiment_name: name.to_owned(), ..Description::refused(error) }
    }
}

async fn describe(
    service: &Service,
    arguments: Map<String, Value>,
    caller: Caller,
) -> Result<Description, ApiError> {
    let mut fields = Fields::new("", arguments);
    let name = fields.string("experiment_name")?;
    let name = fields.need("experiment_name", name, "name an experiment of chaos_list_experiments")?;
    fields.finish()?;
    let (known, viewer) = (service.known(&name, caller).await?, caller.owner());
    let runs = runs(service, &known).await?;
    let last = match &known.registered {
        Some(registered) => service.history().latest().await?.remove(registered),
        None => None,
    };
    let going_on = service.going_on();
    let running = going_on.iter().find(|run| known.is_of(run));
    let listed = Listed::new(&known, last, running.map(|run| run.run_id.clone()), viewer);
    let understood = known.experiment.as_ref().ok();
    Ok(Description {
        experiment_name: name,
        experiment: Some(listed),
        description: known.description(),
        document: known.shown_document(),
        variables: known.parameters().into_iter().map(Variable::from).collect(),
        probes: understood.map(probes).unwrap_or_default(),
        faults: known.faults(),
        hold_seconds: understood.map(|experiment| experiment.lasts().as_secs_f64()),
        runs: runs.into_iter().map(|run| history::Listed::of(run, viewer)).collect(),
        secrets: known.secrets,
        error: None,
    })
}

/// Its latest runs. What is built in has none under its name.
async fn runs(service: &Service, known: &Known) -> Result<Vec<Summary>, ApiError> {
    let Some(registered) = &known.registered else { return Ok(Vec::new()) };
    let (experiment, limit) = (Some(vec![registered.clone()]), Some(RUNS));
    service.history().search(Filter { experiment, limit, ..Filter::default() }).await
}

/// All that it samples, in the order of the document's parts.
fn probes(experiment: &Experiment) -> Vec<Sampled> {
    let hide = |text: &str| experiment.variables.hide(text);
    let sampled = |role: Role, name: &str, probe: &Probe| Sampled {
        name: hide(name),
        role: word(role),
        check: hide(&probe.check.to_string()),
    };
    let mut all = Vec::new();
    all.extend(experiment.conditions.iter().map(|one| sampled(Role::SteadyState, &one.name, &one.probe)));
    let guardrails = &experiment.guardrails;
    all.extend(guardrails.gates.iter().map(|gate| sampled(Role::Gate, &gate.name, &gate.probe)));
    all.extend(experiment.method.iter().filter_map(|activity| match &activity.deed {
        Deed::Probe { probe, .. } => Some(sampled(Role::Method, &activity.name, probe)),
        _ => None,
    }));
    all.extend(guardrails.alerts.iter().map(|alert| sampled(Role::Alert, &alert.name, &alert.probe)));
    all
}
