//! Resources: documents that a client may read. The JSON Schema of an experiment, a page about each type of fault, and each run.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};
use serde_json::Value;

use super::history;
use super::report::{self, PAGE as PAGE_OF_REPORT, REPORT};
use super::tools::TOOLS;
use crate::experiment::{hub, schema};
use crate::fault::profile::Profile;
use crate::probe::KINDS;
use crate::probe::arguments::usage;
use crate::request::ErrorCode;
use crate::server::service::Service;
use crate::spec::{FAULT_TYPES, FaultType, Owner};

/// Where the schema is found.
const EXPERIMENT: &str = "chaos://schema/experiment";
const SCHEMA: &str = "application/schema+json";
const LINES: &str = "application/x-ndjson";
/// Where the schema of what a tool says is found, before its name.
const OUTPUT: &str = "chaos://schema/output/";
/// Where the page of a type of fault is found, before its name.
const FAULT: &str = "chaos://fault/";
/// Where a run is found, before its handle.
const RUN: &str = "chaos://run/";
const PAGE: &str = "application/json";
/// Where it stands how a probe of a kind is written, before its name.
const PROBE: &str = "chaos://probe/";
const TEXT: &str = "text/plain";
const HTML: &str = "text/html";
/// Where it stands what callers have to keep to.
pub(super) const RULES: &str = "chaos://policy";
const MARKDOWN: &str = "text/markdown";
/// Where the latest of the audit is found.
pub(super) const AUDIT: &str = "chaos://audit";
/// How many lines of it are told at once.
const MOST_LINES: usize = 500;

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
    let rules = Resource::new(RULES, "policy")
        .with_title("What to keep to on this host")
        .with_description("By the policy in force, in a few lines: what this host is, bounds, times, what experiments need.")
        .with_mime_type(MARKDOWN);
    let audit = Resource::new(AUDIT, "audit")
        .with_title("Audit")
        .with_description("The latest of what you have done here, or were refused, a line of JSON each; of all users for root.")
        .with_mime_type(LINES);
    ListResourcesResult::with_all_items([experiment, rules, audit].into_iter().chain(faults).collect())
}

/// The resources that are not listed, because runs come and go.
pub(super) fn templates() -> ListResourceTemplatesResult {
    let run = ResourceTemplate::new(format!("{RUN}{{run_id}}"), "run")
        .with_title("A run of an experiment")
        .with_description(
            "What chaos_get_run tells of it, by its whole handle, also while it goes on. A subscriber hears when there is something new \
             about it, once a second at most, and when it has ended.",
        )
        .with_mime_type(PAGE);
    let output = ResourceTemplate::new(format!("{OUTPUT}{{tool}}"), "output-schema")
        .with_title("JSON Schema of what a tool says")
        .with_description("With a sentence about every field; tools/list has an outline of it.")
        .with_mime_type(SCHEMA);
    let report = ResourceTemplate::new(format!("{REPORT}{{run_id}}{PAGE_OF_REPORT}"), "report")
        .with_title("The report on a run")
        .with_description("As a page with a chart, of a run that has ended, by its whole handle.")
        .with_mime_type(HTML);
    let probe = ResourceTemplate::new(format!("{PROBE}{{kind}}"), "probe")
        .with_title("How a probe is written")
        .with_description("The words and options of a kind of probe, for chaos_probe and for documents.")
        .with_mime_type(TEXT);
    let fault = ResourceTemplate::new(format!("{FAULT}{{fault_type}}"), "fault")
        .with_title("A type of fault")
        .with_description("What it does and needs, its parameters with their bounds, and who undoes it.")
        .with_mime_type(PAGE);
    ListResourceTemplatesResult::with_all_items(vec![run, output, report, probe, fault])
}

/// Whether there is a template of this address.
pub(super) fn is_template(uri: &str) -> bool {
    templates().resource_templates.iter().any(|template| template.uri_template == uri)
}

/// The handle of the run that `uri` is about, if it is about one.
pub(super) fn run_id(uri: &str) -> Option<&str> {
    uri.strip_prefix(RUN).filter(|id| is_plain(id))
}

/// The handle of the run whose report `uri` is, if it is one.
pub(super) fn reported(uri: &str) -> Option<&str> {
    uri.strip_prefix(REPORT)?.strip_suffix(PAGE_OF_REPORT).filter(|id| is_plain(id))
}

fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// That nothing is there.
pub(super) fn unknown(uri: &str) -> ErrorData {
    let text = format!(
        "no resource {uri:?}: there are {EXPERIMENT}, {RULES}, {AUDIT}, for each type of fault {FAULT}NAME, for each tool {OUTPUT}TOOL, for each \
         kind of probe {PROBE}KIND, for each run that goes on or is recorded {RUN}RUN_ID, and for each that has ended \
         {REPORT}RUN_ID{PAGE_OF_REPORT}"
    );
    ErrorData::resource_not_found(text, None)
}

/// The latest of the audit, as far as a caller may see it.
pub(super) async fn read_audit(service: &Service) -> Result<ReadResourceResult, ErrorData> {
    let lines = service.ledger().latest(MOST_LINES).await;
    let lines = lines.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(contents(lines.join("\n"), AUDIT, LINES))
}

/// The run at `uri`.
pub(super) async fn read_run(
    service: &Service,
    uri: &str,
    run_id: &str,
    viewer: Owner,
) -> Result<ReadResourceResult, ErrorData> {
    match history::page(service, run_id, viewer).await {
        Ok(text) => Ok(contents(text, uri, PAGE)),
        Err(error) if error.code == ErrorCode::RunNotFound => Err(unknown(uri)),
        Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
    }
}

/// The report on the run at `uri`.
pub(super) async fn read_report(
    service: &Service,
    uri: &str,
    run_id: &str,
    viewer: Owner,
) -> Result<ReadResourceResult, ErrorData> {
    match report::page(service, run_id, viewer).await {
        Ok(text) => Ok(contents(text, uri, HTML)),
        Err(error) if error.code == ErrorCode::RunNotFound => Err(unknown(uri)),
        Err(error) => Err(ErrorData::internal_error(error.in_full(), None)),
    }
}

/// What callers have to keep to.
pub(super) async fn read_rules(service: &Service) -> Result<ReadResourceResult, ErrorData> {
    let rules = service.rules().await;
    rules
        .map(|text| contents(text, RULES, MARKDOWN))
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn contents(text: String, uri: &str, kind: &str) -> ReadResourceResult {
    ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(kind)])
}

/// What stands at `uri`, which is about no run.
pub(super) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    // Made once: who asks for them again and again has everybody wait for the making.
    static SCHEMA_TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}", schema::document()));
    static PAGES: LazyLock<Result<BTreeMap<&str, String>, String>> = LazyLock::new(pages);
    static OUTPUTS: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
        TOOLS.iter().map(|tool| (tool.name, format!("{:#}", Value::Object((tool.output)())))).collect()
    });
    if let Some(kind) = uri.strip_prefix(PROBE) {
        let kind = KINDS.iter().find(|known| **known == kind).ok_or_else(|| unknown(uri))?;
        return Ok(contents(usage(Some(kind)), uri, TEXT));
    }
    if let Some(tool) = uri.strip_prefix(OUTPUT) {
        let text = OUTPUTS.get(tool).ok_or_else(|| unknown(uri))?;
        return Ok(contents(text.clone(), uri, SCHEMA));
    }
    let (text, kind) = match uri.strip_prefix(FAULT) {
        None if uri == EXPERIMENT => (&*SCHEMA_TEXT, SCHEMA),
        None => return Err(unknown(uri)),
        Some(name) => {
            let pages = PAGES.as_ref().map_err(|error| ErrorData::internal_error(error.clone(), None))?;
            (pages.get(name).ok_or_else(|| unknown(uri))?, PAGE)
        }
    };
    Ok(contents(text.clone(), uri, kind))
}

/// What there is to know about each type of fault, with the experiments that are built in.
fn pages() -> Result<BTreeMap<&'static str, String>, String> {
    let entries = hub::entries([]).map_err(|error| error.to_string())?;
    let page = |fault_type: &FaultType| {
        let page = Profile::of(*fault_type).with_experiments(&hub::injecting(&entries, *fault_type));
        (fault_type.name(), format!("{page:#}"))
    };
    Ok(FAULT_TYPES.iter().map(page).collect())
}
