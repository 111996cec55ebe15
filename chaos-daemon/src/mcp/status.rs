//! `chaos_status`: what is registered, what is active, what experiments have shown.

use std::collections::BTreeMap;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::results::{Failure, FaultView, RunOutput, RunningView, StatusOutput};
use super::schema::{object, text};
use super::tool::{Call, Hints, Tool};
use crate::request::fields::Fields;
use crate::request::{ApiError, Evidence, FaultStatus};
use crate::server::history::views::sees_all;
use crate::server::history::{Filter, Total};
use crate::server::registry::Belongings;
use crate::server::service::Service;
use crate::spec::owner::meanings;
use crate::spec::{Owner, QualifiedName};

/// The most results in one answer; `chaos_list_runs` finds the others.
const MOST_RESULTS: u32 = 500;

pub(super) struct Status;

impl Tool for Status {
    const NAME: &'static str = "chaos_status";
    const TITLE: &'static str = "Status";
    const DESCRIPTION: &'static str = "Current state: registered and active faults with what they have met, registered experiments, and \
        historical results if asked for.";
    const HINTS: Hints = Hints::LOOKS;
    type Output = StatusOutput;

    fn input() -> JsonObject {
        object(
            json!({
                "include_results": {"type": "boolean", "default": false, "description": "Include historical experiment results."},
                "experiment_name": text("Filter results and statistics to one experiment."),
            }),
            &[],
        )
    }

    async fn carry_out(call: Call<'_>) -> Result<StatusOutput, ApiError> {
        status(call.service, call.arguments, call.caller.owner()).await
    }
}

async fn status(
    service: &Service,
    arguments: Map<String, Value>,
    viewer: Owner,
) -> Result<StatusOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let include_results = fields.boolean("include_results")?.unwrap_or(false);
    let only = fields.string("experiment_name")?;
    fields.finish()?;
    let overview = service.overview().await;
    let wanted = |owner: Owner, name: &str| {
        only.as_deref().is_none_or(|only| meanings(only, viewer).any(|meant| meant == (owner, name)))
    };
    let registry = &*overview.registry;
    let totals = service.history().totals().await;
    let all =
        totals.iter().flatten().filter(|((owner, name), _)| sees_all(*owner, viewer) && wanted(*owner, name));
    let total = all.fold(Total::default(), |sum, (_, total)| sum + *total);
    let results = match include_results {
        true => {
            let (experiment, limit) = (meant(only.as_deref(), viewer), Some(MOST_RESULTS));
            service.history().search(Filter { experiment, limit, ..Filter::default() }).await
        }
        false => Ok(Vec::new()),
    };
    let unread = [overview.faults.as_ref().err(), totals.as_ref().err(), results.as_ref().err()];
    let error = unread.into_iter().flatten().next().map(Failure::from);
    let oldest_first = results.unwrap_or_default().into_iter().rev();
    let running = overview.runs.iter().filter(|run| wanted(run.owner, &run.experiment));
    let seen: Vec<_> = registry.owned.iter().filter(|(owner, _)| sees_all(**owner, viewer)).collect();
    let experiments =
        seen.iter().flat_map(|(owner, theirs)| theirs.experiments.keys().map(|name| (**owner, name)));
    Ok(StatusOutput {
        active_faults: faults(&seen, overview.faults.as_deref().ok(), viewer),
        registered_experiments: experiments.clone().count() as u64,
        results: oldest_first.map(|found| RunOutput::of(found.run, found.owner, viewer)).collect(),
        total_runs: total.runs,
        success_rate: total.success_rate(),
        experiments: experiments
            .filter(|(owner, name)| wanted(*owner, name))
            .map(|(owner, name)| owner.name_for(viewer, name))
            .collect(),
        running: running.map(|run| RunningView::of(run, viewer)).collect(),
        error,
    })
}

/// Which experiments may be meant by a name, for a search.
pub(super) fn meant(name: Option<&str>, caller: Owner) -> Option<Vec<(Owner, String)>> {
    Some(meanings(name?, caller).map(|(owner, name)| (owner, name.to_owned())).collect())
}

/// Registered faults that `viewer` sees with what is known of their activity, and active ones of everybody, by name: the viewer's own
/// first. `status` is `None` when it could not be read: then nothing is claimed about activity.
fn faults(
    registered: &[(&Owner, &Belongings)],
    status: Option<&[FaultStatus]>,
    viewer: Owner,
) -> Vec<FaultView> {
    let mut views: BTreeMap<(bool, QualifiedName), FaultView> = BTreeMap::new();
    let key = |name: QualifiedName| (name.owner != viewer, name);
    let unknown = |name: &QualifiedName| FaultView {
        name: name.shown_to(viewer),
        owner: name.owner.told_to(viewer),
        ..FaultView::default()
    };
    for (owner, theirs) in registered {
        for (name, entry) in &theirs.faults {
            let (fault, name) = (&entry.what, QualifiedName::new(**owner, name.clone()));
            let view = FaultView {
                fault_type: fault.fault_type.name().to_owned(),
                probability: fault.probability.get(),
                registered: true,
                active: status.map(|_| false),
                ..unknown(&name)
            };
            views.insert(key(name), view);
        }
    }
    for fault in status.unwrap_or_default() {
        let view = views
            .entry(key(fault.name.clone()))
            .or_insert_with(|| FaultView { probability: 1.0, ..unknown(&fault.name) });
        match sees_all(fault.name.owner, viewer) {
            true => view.set_status(fault),
            false => view.set_outline(fault),
        }
    }
    // What has taken the host down is told of even if its registration was lost with what was not on disk.
    let told = |view: &FaultView| matches!(view.evidence, Some(Evidence::Down(down)) if down.host_downs > 0);
    views.into_values().filter(|view| view.registered || view.active != Some(false) || told(view)).collect()
}
