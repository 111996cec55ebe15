//! `chaos_report`: what a run has shown, as a post-mortem, as Markdown, or as Chaos Toolkit's journal; as a page it is a resource.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::results::{Failure, says_its_error};
use super::schema::object;
use super::tool::{Call, Hints, Output, Tool};
use crate::report;
use crate::request::fields::Fields;
use crate::request::{ApiError, ErrorCode};
use crate::server::history::Recorded;
use crate::server::service::Service;
use crate::spec::{Owner, SpecError};

/// Where the report on a run is found, before its handle.
pub(super) const REPORT: &str = "chaos://report/";
/// How that ends which is a page.
pub(super) const PAGE: &str = ".html";
/// The longest report that is told, in bytes: clients cut what is longer. A reply has it twice, as text and structured.
const LONGEST: usize = 256 << 10;
/// The longest page, in bytes, which a reply has once.
const LONGEST_PAGE: usize = 448 << 10;
/// What a report may be.
const FORMATS: [&str; 3] = ["markdown", "journal", "post_mortem"];

/// Result of `chaos_report`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct ReportOutput {
    /// Handle of the run.
    pub(crate) run_id: String,
    /// The facts in a paragraph: what, when, what failed first, what was done, how long it took. No cause is guessed.
    pub(crate) post_mortem: String,
    /// The whole report, as Markdown, if that was asked for.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) markdown: Option<String>,
    /// Chaos Toolkit's journal, if that was asked for.
    #[schemars(with = "Map<String, Value>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) journal: Option<Value>,
    /// The resource that has it as a page with a chart.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<String>,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(ReportOutput);

pub(super) struct Report;

impl Tool for Report {
    const NAME: &'static str = "chaos_report";
    const TITLE: &'static str = "Report on a run";
    const DESCRIPTION: &'static str = "The post-mortem of a run that has ended, from what was recorded alone; and the whole report as Markdown, or as Chaos Toolkit's journal.";
    const HINTS: Hints = Hints::LOOKS;
    type Output = ReportOutput;

    fn input() -> JsonObject {
        let format = json!({"type": "string", "enum": FORMATS, "default": FORMATS[0]});
        object(json!({"run_id": {"type": "string"}, "format": format}), &["run_id"])
    }

    async fn carry_out(call: Call<'_>) -> Result<ReportOutput, ApiError> {
        tell(call.service, call.arguments, call.caller.owner()).await
    }

    fn failed(arguments: &Map<String, Value>, error: &ApiError) -> ReportOutput {
        let run_id = arguments.get("run_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        ReportOutput { run_id, ..ReportOutput::refused(error) }
    }
}

async fn tell(
    service: &Service,
    arguments: Map<String, Value>,
    viewer: Owner,
) -> Result<ReportOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let run_id = fields.string("run_id")?;
    let run_id = fields.need("run_id", run_id, "the handle of a run, or the beginning of it")?;
    let format = fields.string("format")?;
    fields.finish()?;
    let format = format.as_deref().unwrap_or(FORMATS[0]);
    if !FORMATS.contains(&format) {
        let problem = format!("{format:?} is not one of {}", FORMATS.join(", "));
        return Err(SpecError::new("format", problem).into());
    }
    let recorded = of_run(service, &run_id, viewer).await?;
    let run_id = recorded.run.run_id.clone();
    let mut output = ReportOutput {
        post_mortem: report::paragraph(&recorded),
        page: Some(format!("{REPORT}{run_id}{PAGE}")),
        run_id,
        ..ReportOutput::default()
    };
    match format {
        "journal" => {
            let journal = report::journal::report(&recorded);
            within(journal.to_string().len(), LONGEST)?;
            output.journal = Some(journal);
        }
        "markdown" => {
            let text = report::markdown::report(&recorded);
            within(text.len(), LONGEST)?;
            output.markdown = Some(text);
        }
        _ => {}
    }
    Ok(output)
}

/// The run with this handle, or which alone begins with it, as `viewer` sees it.
async fn of_run(service: &Service, run_id: &str, viewer: Owner) -> Result<Recorded, ApiError> {
    if run_id.is_empty() {
        // It would be the beginning of every handle.
        return Err(SpecError::new("run_id", "empty: say which").into());
    }
    if let Some(run) = service.find_going_on(run_id)? {
        let text = format!("run {} has not ended, and its report is about how it has", run.run_id);
        return Err(ApiError::new(ErrorCode::Unavailable, text)
            .hint("chaos_get_run with wait_seconds waits for its end, or tells how far it has come"));
    }
    Ok(service.history().run(run_id.to_owned()).await?.seen_by(viewer))
}

fn within(bytes: usize, longest: usize) -> Result<(), ApiError> {
    if bytes <= longest {
        return Ok(());
    }
    let text = format!("format: the report has {bytes} bytes, and {longest} are told at most");
    Err(ApiError::new(ErrorCode::InvalidParameter, text).hint(
        "with format \"post_mortem\" it is a paragraph; chaos_get_run has the samples that say something new",
    ))
}

/// The report on the run with this very handle, as a page.
pub(super) async fn page(service: &Service, run_id: &str, viewer: Owner) -> Result<String, ApiError> {
    let recorded = of_run(service, run_id, viewer).await?;
    if recorded.run.run_id != run_id {
        let text = format!("no run has the handle {run_id:?}, though one begins with it");
        return Err(ApiError::new(ErrorCode::RunNotFound, text));
    }
    let page = report::html::report(&recorded);
    within(page.len(), LONGEST_PAGE)?;
    Ok(page)
}
