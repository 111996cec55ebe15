//! `chaos_status`: what is registered, what is active, what experiments have shown.

use std::collections::BTreeMap;

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use super::results::{Failure, FaultView, RunOutput, RunningView, StatusOutput};
use super::schema::{object, text};
use super::tool::{Call, Hints, Tool};
use crate::request::fields::Fields;
use crate::request::{ApiError, Evidence, FaultStatus};
use crate::server::history::{Filter, Total};
use crate::server::registry::Registry;
use crate::server::service::Service;

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
        status(call.service, call.arguments).await
    }
}

async fn status(service: &Service, arguments: Map<String, Value>) -> Result<StatusOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let include_results = fields.boolean("include_results")?.unwrap_or(false);
    let only = fields.string("experiment_name")?;
    fields.finish()?;
    let overview = service.overview().await;
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let registry = &*overview.registry;
    let totals = service.history().totals().await;
    let all = totals.iter().flatten().filter(|(name, _)| wanted(name));
    let total = all.fold(Total::default(), |sum, (_, total)| sum + *total);
    let results = match include_results {
        true => {
            let limit = Some(MOST_RESULTS);
            let filter = Filter { experiment: only.clone(), limit, ..Filter::default() };
            service.history().search(filter).await
        }
        false => Ok(Vec::new()),
    };
    let unread = [overview.faults.as_ref().err(), totals.as_ref().err(), results.as_ref().err()];
    let error = unread.into_iter().flatten().next().map(Failure::from);
    let oldest_first = results.unwrap_or_default().into_iter().rev();
    let running = overview.runs.iter().filter(|run| wanted(&run.experiment));
    Ok(StatusOutput {
        active_faults: faults(registry, overview.faults.as_deref().ok()),
        registered_experiments: registry.experiments.len() as u64,
        results: oldest_first.map(|found| RunOutput::from(found.run)).collect(),
        total_runs: total.runs,
        success_rate: total.success_rate(),
        experiments: registry.experiments.keys().filter(|name| wanted(name)).cloned().collect(),
        running: running.map(RunningView::from).collect(),
        error,
    })
}

/// Registered faults with what is known of their activity, and active ones that nobody registered, by name. `status`
/// is `None` when it could not be read: then nothing is claimed about activity.
fn faults(registry: &Registry, status: Option<&[FaultStatus]>) -> Vec<FaultView> {
    let mut views: BTreeMap<&str, FaultView> = BTreeMap::new();
    for (name, entry) in &registry.faults {
        let fault = &entry.what;
        let view = FaultView {
            name: name.to_string(),
            fault_type: fault.fault_type.name().to_owned(),
            probability: fault.probability.get(),
            registered: true,
            active: status.map(|_| false),
            state: None,
            description: None,
            lifetime: None,
            guard: None,
            age_seconds: None,
            remaining_seconds: None,
            evidence: None,
            host_addresses: Vec::new(),
            note: None,
        };
        views.insert(name.as_str(), view);
    }
    for fault in status.unwrap_or_default() {
        let view = views.entry(fault.name.as_str()).or_insert_with(|| FaultView {
            name: fault.name.to_string(),
            fault_type: fault.fault_type.name().to_owned(),
            probability: 1.0,
            registered: false,
            active: None,
            state: None,
            description: None,
            lifetime: None,
            guard: None,
            age_seconds: None,
            remaining_seconds: None,
            evidence: None,
            host_addresses: Vec::new(),
            note: None,
        });
        view.set_status(fault);
    }
    // What has taken the host down is told of even if its registration was lost with what was not on disk.
    let told = |view: &FaultView| matches!(view.evidence, Some(Evidence::Down(down)) if down.host_downs > 0);
    views.into_values().filter(|view| view.registered || view.active != Some(false) || told(view)).collect()
}
