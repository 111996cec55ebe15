//! Resources: documents that a client may read. There is one, the JSON Schema of an experiment.

use rmcp::ErrorData;
use rmcp::model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents};

use crate::experiment::schema;

/// Where the schema is found.
const EXPERIMENT: &str = "chaos://schema/experiment";
const KIND: &str = "application/schema+json";

pub(super) fn list() -> ListResourcesResult {
    let experiment = Resource::new(EXPERIMENT, "experiment-schema")
        .with_title("JSON Schema of an experiment")
        .with_description("What chaos_register_experiment takes, probes and gates included.")
        .with_mime_type(KIND);
    ListResourcesResult::with_all_items(vec![experiment])
}

/// What stands at `uri`.
pub(super) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    if uri != EXPERIMENT {
        let text = format!("no resource {uri:?}: there is {EXPERIMENT}");
        return Err(ErrorData::resource_not_found(text, None));
    }
    let text = format!("{:#}", schema::document());
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, EXPERIMENT).with_mime_type(KIND)]))
}
