//! `chaos_schedule`: experiments that run at times, by themselves.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::results::{Failure, says_its_error};
use super::schema::{object, text};
use super::tool::{Call, Hints, Output, Tool};
use crate::request::fields::Fields;
use crate::request::{Act, ApiError, Caller};
use crate::server::schedule::plan::{LONGEST_JITTER, Words};
use crate::server::schedule::{Chosen, Listed, Outcome, given_name};
use crate::server::service::Service;
use crate::spec::windows::{WindowWords, WindowsWords};
use crate::spec::{Owner, QualifiedName, SpecError};

/// A schedule as it is told of.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScheduleView {
    /// Name: of another user's as UID/NAME.
    pub(crate) name: String,
    /// What it is.
    #[serde(flatten)]
    pub(crate) words: Words,
    /// Whether it stands still.
    pub(crate) paused: bool,
    /// Whose runs its runs are: who has set it.
    pub(crate) set_by: String,
    /// When it was set, ISO 8601 in UTC.
    pub(crate) set_at: String,
    /// When it fires next, with jitter, as the clocks of its time zone show it; empty while it stands still.
    pub(crate) next: Vec<String>,
    /// What has become of its latest firings, the last one last.
    pub(crate) outcomes: Vec<Outcome>,
}

impl ScheduleView {
    fn of(listed: Listed, viewer: Owner) -> Self {
        let Listed { name, schedule, next } = listed;
        Self {
            name: name.shown_to(viewer),
            words: schedule.words,
            paused: schedule.paused,
            set_by: schedule.set_by.to_string(),
            set_at: format!("{:.3}", schedule.set_at),
            next,
            outcomes: schedule.outcomes.into(),
        }
    }
}

/// Result of `chaos_schedule`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub(crate) struct ScheduleOutput {
    /// Those that were asked for, or changed, as they are now.
    pub(crate) schedules: Vec<ScheduleView>,
    /// What happened, in a sentence, and what could not be saved.
    pub(crate) message: String,
    /// Why the call failed.
    #[schemars(with = "Failure")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
}

says_its_error!(ScheduleOutput);

pub(super) struct Scheduling;

impl Tool for Scheduling {
    const NAME: &'static str = "chaos_schedule";
    const TITLE: &'static str = "Schedule experiments";
    const DESCRIPTION: &'static str = "Has a registered experiment run by itself at times, each a run in the name of who has set the schedule. An experiment that is registered anew needs its schedule set again.";
    /// What it sets breaks something later; to set it again changes nothing.
    const HINTS: Hints = Hints { idempotent: true, ..Hints::BREAKS };
    type Output = ScheduleOutput;

    fn input() -> JsonObject {
        let properties = json!({
            "action": {"type": "string", "enum": ["set", "list", "pause", "resume", "delete"], "description": "set makes a \
                schedule, in place of any of yours of the same name; list, pause and resume take one, or all of yours."},
            "name": text("Needed for set and delete."),
            "experiment": text("set: the registered experiment."),
            "cron": text("set: minute, hour, day of the month, month, day of the week, e.g. \"0 10 * * 1-5\"."),
            "time_zone": {"type": "string", "default": "UTC",
                "description": "set: IANA name, e.g. \"Europe/Berlin\"."},
            "windows": {"type": "object", "description": "set: when it may fire: {only: [...], never: [...]} of {days: \"mon-fri\", \
                from: \"09:00\", to: \"17:00\"}, or of {dates: \"2026-12-24..2027-01-01\"}, with from and to if not for whole days."},
            "jitter_seconds": {"type": "integer", "minimum": 0, "maximum": LONGEST_JITTER, "default": 0,
                "description": "set: each firing comes up to so many seconds later, by chance."},
            "seed": {"type": "integer", "minimum": 0, "maximum": u32::MAX,
                "description": "set: decides how much later."},
            "paused": {"type": "boolean", "default": false, "description": "set: it stands still until it is resumed."},
        });
        object(properties, &["action"])
    }

    async fn carry_out(call: Call<'_>) -> Result<ScheduleOutput, ApiError> {
        schedule(call.service, call.caller, call.arguments).await
    }

    fn failed(_arguments: &Map<String, Value>, error: &ApiError) -> ScheduleOutput {
        ScheduleOutput { message: error.message.clone(), ..ScheduleOutput::refused(error) }
    }
}

async fn schedule(
    service: &Service,
    caller: Caller,
    arguments: Map<String, Value>,
) -> Result<ScheduleOutput, ApiError> {
    let mut fields = Fields::new("", arguments);
    let action = fields.string("action")?;
    let action = fields.need("action", action, "set, list, pause, resume or delete")?;
    match action.as_str() {
        "set" | "resume" => service.ask_leave(Act::Schedule).await?,
        "pause" | "delete" => service.ask_leave(Act::End).await?,
        _ => {}
    }
    let viewer = caller.owner();
    let name = match fields.string("name")? {
        Some(name) => {
            let name = given_name(&name)?;
            Some(QualifiedName::new(service.meant(name.owner, caller).await?, name.name))
        }
        None => None,
    };
    let chosen = name.clone().map_or(Chosen::AllOf(viewer), Chosen::One);
    let (schedules, now) = (service.schedules(), jiff::Timestamp::now());
    let (message, problem) = match action.as_str() {
        "set" => {
            let name = fields.need("name", name.clone(), "name the schedule")?;
            let words = words(&mut fields)?;
            let paused = fields.boolean("paused")?.unwrap_or(false);
            fields.finish()?;
            let problem = service.set_schedule(name.clone(), (words, paused), caller, now).await?;
            tracing::info!(%caller, schedule = %name, paused, "set a schedule");
            (format!("set: {}", name.shown_to(viewer)), problem)
        }
        "list" => {
            fields.finish()?;
            (String::new(), None)
        }
        "pause" => {
            fields.finish()?;
            let (names, problem) = schedules.pause(chosen.clone()).await?;
            logged(caller, "paused a schedule", &names);
            (told("stands still", &names, "there is no schedule", viewer), problem)
        }
        "resume" => {
            fields.finish()?;
            let (names, problem) = schedules.resume(chosen.clone(), now).await?;
            logged(caller, "resumed a schedule", &names);
            (told("goes on", &names, "nothing stood still", viewer), problem)
        }
        "delete" => {
            let name = fields.need("name", name.clone(), "name the schedule")?;
            fields.finish()?;
            let (was, problem) = service.delete_schedule(name.clone()).await?;
            let shown = name.shown_to(viewer);
            let message = match was {
                true => {
                    logged(caller, "deleted a schedule", &[name]);
                    format!("deleted: {shown}")
                }
                false => format!("there is no schedule {shown:?}"),
            };
            return Ok(ScheduleOutput { message: with(message, problem), ..ScheduleOutput::default() });
        }
        other => {
            let problem = format!("{other:?} is not one of set, list, pause, resume, delete");
            return Err(SpecError::new("action", problem).into());
        }
    };
    let listed = schedules.list(&chosen, now)?;
    let schedules = listed.into_iter().map(|listed| ScheduleView::of(listed, viewer)).collect();
    Ok(ScheduleOutput { schedules, message: with(message, problem), error: None })
}

fn logged(caller: Caller, what: &str, names: &[QualifiedName]) {
    for name in names {
        tracing::info!(%caller, schedule = %name, "{what}");
    }
}

fn told(what: &str, names: &[QualifiedName], nothing: &str, viewer: Owner) -> String {
    let names: Vec<_> = names.iter().map(|name| name.shown_to(viewer)).collect();
    match names.as_slice() {
        [] => nothing.to_owned(),
        names => format!("{what}: {}", names.join(", ")),
    }
}

fn with(message: String, problem: Option<String>) -> String {
    match problem {
        None => message,
        Some(problem) => format!("{message}; {problem}"),
    }
}

/// Understands the fields of a schedule, as far as its words go.
pub(super) fn words(fields: &mut Fields) -> Result<Words, ApiError> {
    let experiment = fields.string("experiment")?;
    let experiment = fields.need("experiment", experiment, "name a registered experiment")?;
    let cron = fields.string("cron")?;
    let cron = fields.need(
        "cron",
        cron,
        "minute, hour, day of the month, month, day of the week, e.g. \"0 10 * * 1-5\"",
    )?;
    let time_zone = fields.string("time_zone")?.unwrap_or_else(|| "UTC".to_owned());
    let windows = match fields.object("windows")? {
        None => WindowsWords::default(),
        Some(windows) => {
            let mut windows = Fields::new("windows", windows);
            let (only, never) = (windows.array("only")?, windows.array("never")?);
            windows.finish()?;
            WindowsWords { only: all(only, "windows.only")?, never: all(never, "windows.never")? }
        }
    };
    let jitter_seconds = fields.whole("jitter_seconds")?.unwrap_or(0);
    let seed = fields.whole("seed")?.unwrap_or_else(rand::random);
    Ok(Words { experiment, cron, time_zone, windows, jitter_seconds, seed })
}

fn all(windows: Option<Vec<Value>>, path: &str) -> Result<Vec<WindowWords>, SpecError> {
    let windows = windows.into_iter().flatten().enumerate();
    windows
        .map(|(index, value)| {
            let mut fields = Fields::of(format!("{path}[{index}]"), value)?;
            let (days, dates) = (fields.string("days")?, fields.string("dates")?);
            let (from, to) = (fields.string("from")?, fields.string("to")?);
            if let (Some(dates), None, None) = (&dates, &from, &to) {
                fields.finish()?;
                return Ok(WindowWords { days, ..WindowWords::on(dates.clone()) });
            }
            let from = fields.need("from", from, "when it begins, e.g. \"09:00\"")?;
            let to = fields.need("to", to, "when it is over, e.g. \"17:00\"")?;
            fields.finish()?;
            Ok(WindowWords { days, dates, from, to })
        })
        .collect()
}
