//! Resources: documents that a client may read. The JSON Schema of an experiment, and a page about each type of fault.

use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents};

use crate::experiment::{hub, schema};
use crate::fault::profile::Profile;
use crate::spec::{FAULT_TYPES, FaultType};

/// Where the schema is found.
const EXPERIMENT: &str = "chaos://schema/experiment";
const SCHEMA: &str = "application/schema+json";
/// Where the page of a type of fault is found, before its name.
const FAULT: &str = "chaos://fault/";
const PAGE: &str = "application/json";

pub(super) fn list() -> ListResourcesResult {
    let experiment = Resource::new(EXPERIMENT, "experiment-schema")
        .with_title("JSON Schema of an experiment")
        .with_description("What chaos_register_experiment takes, probes and gates included.")
        .with_mime_type(SCHEMA);
    let faults = FAULT_TYPES.iter().map(|kind| {
        let name = kind.name();
        Resource::new(format!("{FAULT}{name}"), name)
            .with_title(format!("The fault {name}"))
            .with_description(kind.summary())
            .with_mime_type(PAGE)
    });
    ListResourcesResult::with_all_items([experiment].into_iter().chain(faults).collect())
}

/// What stands at `uri`.
pub(super) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let (text, kind) = match uri.strip_prefix(FAULT).map(FaultType::parse) {
        Some(Ok(fault_type)) => (page(fault_type)?, PAGE),
        None if uri == EXPERIMENT => (format!("{:#}", schema::document()), SCHEMA),
        _ => {
            let text = format!(
                "no resource {uri:?}: there are {EXPERIMENT} and, for each type of fault, {FAULT}NAME"
            );
            return Err(ErrorData::resource_not_found(text, None));
        }
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(kind)]))
}

/// What there is to know about a type of fault, with the experiments that are built in.
fn page(fault_type: FaultType) -> Result<String, ErrorData> {
    let entries = hub::entries([]).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let page = Profile::of(fault_type).with_experiments(&hub::injecting(&entries, fault_type));
    Ok(format!("{page:#}"))
}
