//! `chaos_search`: finds the failure of an experiment that barely happens.

use chaos_search::picture::{svg, text as drawn};
use chaos_search::{Best, Cost, NoData, State, Step};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::results::{Failure, says_its_error, word};
use super::schema::{object, text};
use super::tool::{Call, Hints, Output, Tool};
use crate::experiment::Verdict;
use crate::request::fields::Fields;
use crate::request::{Act, ApiError, Caller, ErrorCode};
use crate::server::history::views::sees_all;
use crate::server::search::{Beginning, Kept, RunOf};
use crate::server::service::Service;
use crate::spec::{Owner, SpecError};

/// The most steps that one answer tells.
pub(crate) const MOST_STEPS: usize = 100;

/// A step as it is told of.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StepView {
    /// Its place among the steps, from 1.
    pub(crate) number: usize,
    /// What is tried.
    pub(crate) candidate: String,
    /// Why.
    pub(crate) reason: String,
    /// The margin that was predicted: by what share of its objective the worst gate is missed, below 0 if it is met.
    pub(crate) predicted: f64,
    /// The margin that was seen.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) margin: Option<f64>,
    /// Why nothing was seen: unverified, refused, interrupted; absent while it goes on.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) no_data: Option<String>,
    /// How long it took, in seconds.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// Handle of its run, if one has begun.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
    /// The last word on that.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<Verdict>,
    /// What went wrong.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// The best failure.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BestView {
    /// What fails.
    pub(crate) candidate: String,
    /// By what share the objective is missed.
    pub(crate) margin: f64,
    /// How many runs of it have shown something.
    pub(crate) runs: usize,
    /// How many of those failed.
    pub(crate) failed: usize,
    /// Between what shares of its runs fail, with 95 %.
    pub(crate) fails: (f64, f64),
    /// Whether it was run as often as the document asks for.
    pub(crate) confirmed: bool,
    /// Between which candidates the failures begin, with 90 %; empty where that is not known.
    pub(crate) begins: Vec<String>,
}

/// A search as it is told of.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SearchView {
    /// Name: that of its experiment.
    pub(crate) name: String,
    /// going_on; or why it has ended: found, nothing_fails, too_harsh, no_data, stopped, or budget: runs, seconds or violation.
    pub(crate) state: String,
    /// Why it ended before its time.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// Whose runs its runs are.
    pub(crate) set_by: String,
    /// When it began, ISO 8601 in UTC.
    pub(crate) began_at: String,
    /// What decides what chance decides.
    pub(crate) seed: u64,
    /// How many runs were begun.
    pub(crate) runs: u32,
    /// The most that may be.
    pub(crate) most_runs: u32,
    /// How many seconds were spent, with those to recover.
    pub(crate) seconds: f64,
    /// The most that may be.
    pub(crate) most_seconds: f64,
    /// By how much objectives were missed in sum, as the budget counts it.
    pub(crate) violation: f64,
    /// The most that may be.
    pub(crate) most_violation: f64,
    /// The best failure so far.
    #[schemars(with = "BestView")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) best: Option<BestView>,
    /// Its steps, those that were asked for.
    pub(crate) steps: Vec<StepView>,
    /// The picture, if it was asked for: text or SVG.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) picture: Option<String>,
    /// The document of the best failure, if it was asked for.
    #[schemars(with = "Map<String, Value>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) document: Option<Map<String, Value>>,
}

/// Result of `chaos_search`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct SearchOutput {
    /// Those that were asked for, or changed.
    pub(crate) searches: Vec<SearchView>,
    /// What happened, in a sentence.
    pub(crate) message: String,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(SearchOutput);

/// What is told of a search.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// Its steps after this one; none without.
    after: Option<usize>,
    best: bool,
    picture: Option<Picture>,
    document: bool,
}

#[derive(Debug, Clone, Copy)]
enum Picture {
    Text,
    Svg,
}

pub(super) struct Searching;

impl Tool for Searching {
    const NAME: &'static str = "chaos_search";
    const TITLE: &'static str = "Search for a failure";
    const DESCRIPTION: &'static str = "Finds the mildest faults at which a registered experiment misses its objective, by runs of it within the \
         search and budget of its document. It goes on by itself.";
    const HINTS: Hints = Hints::BREAKS;
    type Output = SearchOutput;

    fn input() -> JsonObject {
        let properties = json!({
            "action": {"type": "string", "enum": ["start", "status", "list", "stop", "minimise"],
                "description": "minimise narrows a failure that was found: that of run_id, or the best."},
            "name": text("Name of the experiment; needed but for list."),
            "seed": {"type": "integer", "description": "start"},
            "run_id": {"type": "string"},
            "after": {"type": "integer", "description": "status: steps after this one."},
            "picture": {"type": "string", "enum": ["text", "svg"]},
            "document": {"type": "boolean", "description": "status: with the best failure as an experiment."},
        });
        object(properties, &["action"])
    }

    async fn carry_out(call: Call<'_>) -> Result<SearchOutput, ApiError> {
        search(call.service, call.caller, call.arguments).await
    }

    fn failed(_arguments: &Map<String, Value>, error: &ApiError) -> SearchOutput {
        SearchOutput { message: error.message.clone(), ..SearchOutput::refused(error) }
    }
}

async fn search(
    service: &Service,
    caller: Caller,
    arguments: Map<String, Value>,
) -> Result<SearchOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let action = fields.string("action")?;
    let action = fields.need("action", action, "start, status, list, stop or minimise")?;
    let name = fields.string("name")?;
    if action == "list" {
        service.ask_leave(Act::Look).await?;
        fields.finish()?;
        return told(service, None, (String::new(), caller.owner()), Told::default()).await;
    }
    let name = fields.need("name", name, "name the experiment")?;
    let viewer = caller.owner();
    match action.as_str() {
        "start" => {
            let seed = fields.whole("seed")?;
            fields.finish()?;
            let name = service.begin_search(&name, Beginning::Anew(seed), caller).await?;
            begun(service, &name, viewer).await
        }
        "minimise" => {
            let run_id = fields.string("run_id")?;
            fields.finish()?;
            let name = service.begin_search(&name, Beginning::Minimise(run_id.as_deref()), caller).await?;
            begun(service, &name, viewer).await
        }
        "stop" => {
            service.ask_leave(Act::End).await?;
            fields.finish()?;
            let kept = service.searches().meant(&name, viewer)?;
            let ended = service.searches().stop(Some(&kept)).await?;
            let message =
                if ended.is_empty() { format!("{name} had ended") } else { format!("ended: {name}") };
            told(service, Some(&kept), (message, viewer), Told { best: true, ..Told::default() }).await
        }
        "status" => {
            service.ask_leave(Act::Look).await?;
            let asked = status(&mut fields)?;
            fields.finish()?;
            let kept = service.searches().meant(&name, viewer)?;
            told(service, Some(&kept), (String::new(), viewer), asked).await
        }
        other => {
            let problem = format!("{other:?} is not one of start, status, list, stop, minimise");
            Err(SpecError::new("action", problem).into())
        }
    }
}

/// What is told of a search that was begun just now.
async fn begun(service: &Service, kept: &str, viewer: Owner) -> Result<SearchOutput, ApiError> {
    let mut output = told(service, Some(kept), (String::new(), viewer), Told::default()).await?;
    output.message =
        output.searches.first().map(|begun| format!("begun: {}", begun.name)).unwrap_or_default();
    Ok(output)
}

/// What `status` is to tell.
fn status(fields: &mut Fields) -> Result<Told, SpecError> {
    let after = fields.whole("after")?.map_or(usize::MAX, |after| after as usize);
    let picture = match fields.string("picture")?.as_deref() {
        None => None,
        Some("text") => Some(Picture::Text),
        Some("svg") => Some(Picture::Svg),
        Some(other) => {
            return Err(SpecError::new("picture", format!("{other:?} is not one of text, svg")));
        }
    };
    let document = fields.boolean("document")?.unwrap_or(false);
    Ok(Told { after: Some(after), best: true, picture, document })
}

async fn told(
    service: &Service,
    name: Option<&str>,
    (message, viewer): (String, Owner),
    asked: Told,
) -> Result<SearchOutput, ApiError> {
    let mut kept = service.searches().list(name)?;
    // What others search is told to root alone; that it is ended, to everybody.
    kept.retain(|kept| sees_all(kept.owner(), viewer));
    // What is the best, and a picture of all, may take a while.
    let views =
        tokio::task::spawn_blocking(move || kept.iter().map(|kept| view(kept, viewer, asked)).collect());
    let searches: Result<_, ApiError> = views.await.map_err(|error| {
        ApiError::new(ErrorCode::Unavailable, format!("what a search knows cannot be told: {error}"))
    })?;
    Ok(SearchOutput { searches: searches?, message, error: None })
}

fn view(kept: &Kept, viewer: Owner, asked: Told) -> Result<SearchView, ApiError> {
    let Kept { search, set_by, began_at, problem, .. } = kept;
    let (budget, Cost { runs, seconds, violation, .. }) = (&search.spec().budget, search.cost());
    let best = asked.best.then(|| search.best()).flatten();
    let document = match &best {
        Some(best) if asked.document => Some(minimal(kept, best)?),
        _ => None,
    };
    Ok(SearchView {
        name: kept.shown_to(viewer),
        state: state(search.state()),
        problem: problem.clone(),
        set_by: set_by.to_string(),
        began_at: format!("{began_at:.3}"),
        seed: search.spec().seed,
        runs,
        most_runs: budget.runs,
        seconds,
        most_seconds: budget.seconds,
        violation,
        most_violation: budget.violation,
        best: best.map(|best| best_view(kept, best)),
        steps: asked.after.map(|after| steps(kept, after)).unwrap_or_default(),
        picture: asked.picture.map(|kind| match kind {
            Picture::Text => drawn(&search.picture()),
            Picture::Svg => svg(&search.picture()),
        }),
        document,
    })
}

/// Whether it goes on, or why it has ended.
fn state(state: State) -> String {
    match state {
        State::Ready | State::Pending => "going_on".to_owned(),
        State::Finished(chaos_search::Finish::Budget(spent)) => format!("budget: {}", word(spent)),
        State::Finished(finish) => word(finish),
    }
}

fn best_view(kept: &Kept, best: Best) -> BestView {
    let shown = |candidate| kept.search.spec().space.setting(candidate).to_string();
    BestView {
        candidate: shown(&best.candidate),
        margin: best.margin,
        runs: best.runs.0,
        failed: best.runs.1,
        fails: best.fails,
        confirmed: best.confirmed,
        begins: best.begins.iter().flat_map(|(low, high)| [shown(low), shown(high)]).collect(),
    }
}

/// The best failure as an experiment of its own, without secrets.
fn minimal(kept: &Kept, best: &Best) -> Result<Map<String, Value>, ApiError> {
    let plan = kept.plan()?;
    let (runs, failed) = best.runs;
    let shows = format!(
        "Found by the search {:?} with seed {}: {}; {failed} of {runs} runs missed the objective, by {:.1} %.",
        kept.shown_to(kept.owner()),
        kept.search.spec().seed,
        plan.spec.space.setting(&best.candidate),
        best.margin * 100.0
    );
    let mut document = plan.minimal(&kept.document, &best.candidate, &shows);
    document.remove("secrets");
    Ok(document)
}

/// The latest steps after this one, or the latest of all if that is beyond them.
fn steps(kept: &Kept, after: usize) -> Vec<StepView> {
    let all = kept.search.history();
    let from = match after {
        usize::MAX => all.len().saturating_sub(MOST_STEPS),
        after => after.min(all.len()),
    };
    let told = all.iter().enumerate().skip(from).take(MOST_STEPS);
    told.map(|(index, step)| step_view(kept, index, step)).collect()
}

fn step_view(kept: &Kept, index: usize, step: &Step) -> StepView {
    let run = kept.runs.get(index);
    let seen = step.outcome.as_ref().map(|outcome| outcome.margin());
    StepView {
        number: index + 1,
        candidate: kept.search.spec().space.setting(&step.candidate).to_string(),
        reason: step.reason.clone(),
        predicted: step.predicted,
        margin: seen.and_then(Result::ok),
        no_data: seen.and_then(Result::err).map(|why: NoData| word(why)),
        seconds: step.outcome.as_ref().map(|outcome| outcome.seconds),
        run_id: run.and_then(|run| run.run_id.clone()),
        verdict: run.and_then(|run: &RunOf| run.verdict),
        problem: run.and_then(|run| run.problem.clone()),
    }
}
