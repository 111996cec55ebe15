//! `chaosctl schedule`: experiments that run at times, by themselves.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::client::{Answer, Client, ClientError};
use super::runs::object;
use super::{duration, show};
use crate::mcp::results::word;
use crate::mcp::schedule::{ScheduleOutput, ScheduleView};
use crate::server::schedule::Outcome;
use crate::server::schedule::plan::Words;
use crate::spec::windows::WindowWords;

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    /// Have a registered experiment run at times, in place of any schedule of the same name; its runs are yours
    Set(Box<SetArgs>),
    /// List all
    List,
    /// Show one: when it fires next, and what has become of its latest firings
    Show {
        /// Name
        name: String,
    },
    /// Have one stand still, or all
    Pause(Which),
    /// Have one go on, or all; what would have come meanwhile does not come
    Resume(Which),
    /// Forget one; a run of it goes on
    Delete {
        /// Name
        name: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    /// Name of the schedule
    name: String,
    /// Registered experiment that it runs
    #[arg(long, value_name = "NAME")]
    experiment: String,
    /// Minute, hour, day of the month, month, day of the week, e.g. '0 10 * * 1-5'
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// Whose clocks, by the IANA name, e.g. Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
    /// It fires within such windows only, e.g. 'mon-fri 09:00-17:00'; several are given one by one
    #[arg(long, value_name = "WINDOW", value_parser = WindowWords::of)]
    only: Vec<WindowWords>,
    /// It never fires within such windows, e.g. '22:00-06:00', or on such dates, e.g. 12-25 or 2026-12-24..2027-01-01
    #[arg(long, value_name = "WINDOW", value_parser = WindowWords::of)]
    never: Vec<WindowWords>,
    /// Each firing comes up to so much later, by chance, e.g. 5m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    jitter: Option<Duration>,
    /// Decides how much later: the same seed, the same times
    #[arg(long)]
    seed: Option<u32>,
    /// It stands still until it is resumed
    #[arg(long)]
    paused: bool,
}

/// One schedule, or all.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Name
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// All of them
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

impl ScheduleCommand {
    /// As the fields of the tool.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut fields = object(match self {
            Self::Set(args) => json!({
                "action": "set", "name": args.name, "experiment": args.experiment, "cron": args.cron,
                "time_zone": args.time_zone, "windows": {"only": args.only, "never": args.never},
                "jitter_seconds": args.jitter.map(|jitter| jitter.as_secs_f64()), "seed": args.seed,
                "paused": args.paused,
            }),
            Self::List => json!({"action": "list"}),
            Self::Show { name } => json!({"action": "list", "name": name}),
            Self::Pause(which) => json!({"action": "pause", "name": which.name}),
            Self::Resume(which) => json!({"action": "resume", "name": which.name}),
            Self::Delete { name } => json!({"action": "delete", "name": name}),
        });
        fields.retain(|_, value| !value.is_null());
        fields
    }
}

/// Asks the daemon: text for people, and the answer.
pub(super) async fn carry_out(
    client: &Client,
    command: &ScheduleCommand,
) -> Result<(String, Value), ClientError> {
    let answer: Answer<ScheduleOutput> = client.ask("chaos_schedule", command.fields()).await?;
    let mut out = match answer.read.message.as_str() {
        "" => String::new(),
        message => format!("{message}\n"),
    };
    for schedule in &answer.read.schedules {
        match command {
            ScheduleCommand::Set(_) | ScheduleCommand::Show { .. } => details(&mut out, schedule),
            ScheduleCommand::List => line(&mut out, schedule),
            _ => {}
        }
    }
    if out.is_empty() {
        out.push_str("no schedule\n");
    }
    Ok((out, answer.json))
}

/// One in a list.
fn line(out: &mut String, schedule: &ScheduleView) {
    let next = match schedule.next.first() {
        _ if schedule.paused => "paused".to_owned(),
        Some(next) => format!("next {next}"),
        None => "never again".to_owned(),
    };
    let last = schedule.outcomes.last();
    let last = last.map(|last| format!("  {} {}", word(last.became), last.time)).unwrap_or_default();
    let Words { experiment, cron, time_zone, .. } = &schedule.words;
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}  {cron}  {time_zone}  {experiment}  {next}{last}", schedule.name);
}

/// All of one.
fn details(out: &mut String, schedule: &ScheduleView) {
    let ScheduleView { name, words, paused, set_by, set_at, next, outcomes } = schedule;
    let Words { experiment, cron, time_zone, windows, jitter_seconds, seed } = words;
    let _ = writeln!(out, "{name}: {experiment} at {cron:?}, {time_zone}\n  set by {set_by}, {set_at}");
    for (kind, windows) in [("only", &windows.only), ("never", &windows.never)] {
        for window in windows {
            let _ = writeln!(out, "  {kind} {window}");
        }
    }
    if *jitter_seconds != 0 {
        let jitter = show::seconds(f64::from(*jitter_seconds));
        let _ = writeln!(out, "  up to {jitter} later, by seed {seed}");
    }
    if *paused {
        let _ = writeln!(out, "  paused: chaosctl schedule resume {name}");
    }
    for next in next {
        let _ = writeln!(out, "  next {next}");
    }
    outcomes.iter().for_each(|outcome| became(out, outcome));
}

/// What has become of a firing.
fn became(out: &mut String, outcome: &Outcome) {
    let _ = write!(out, "  {}  {}", outcome.time, word(outcome.became));
    if outcome.times != 1 {
        let _ = write!(out, ", {} times", outcome.times);
    }
    if let Some(run) = &outcome.run_id {
        let _ = write!(out, ": chaosctl show {run}");
    }
    if let Some(reason) = &outcome.reason {
        let _ = write!(out, ": {reason}");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_told_with_all_that_narrows_it_and_what_has_become_of_it() {
        let schedule: ScheduleView = serde_json::from_value(json!({
            "name": "nightly", "experiment": "slow", "cron": "0 10 * * 1-5", "time_zone": "Europe/Berlin",
            "windows": {"only": [{"days": "mon-fri", "from": "09:00", "to": "17:00"}], "never": [{"from": "12:00", "to": "13:00"}, {"dates": "12-25", "from": "00:00", "to": "24:00"}]},
            "jitter_seconds": 300, "seed": 7, "paused": false, "set_by": "uid 0", "set_at": "2026-02-05T10:00:00.000Z",
            "next": ["2026-02-06T10:01:00+01:00"],
            "outcomes": [
                {"time": "2026-02-04T09:00:00Z", "became": "fired", "times": 1, "run_id": "4f1c"},
                {"time": "2026-02-05T09:00:00Z", "became": "missed", "times": 3, "reason": "asleep"},
            ],
        }))
        .unwrap();
        let mut text = String::new();
        details(&mut text, &schedule);
        assert_eq!(
            text,
            "nightly: slow at \"0 10 * * 1-5\", Europe/Berlin\n  set by uid 0, 2026-02-05T10:00:00.000Z\n  \
             only mon-fri 09:00-17:00\n  never 12:00-13:00\n  never 12-25 00:00-24:00\n  up to 5m later, by seed 7\n  \
             next 2026-02-06T10:01:00+01:00\n  2026-02-04T09:00:00Z  fired: chaosctl show 4f1c\n  \
             2026-02-05T09:00:00Z  missed, 3 times: asleep\n"
        );
        let mut text = String::new();
        line(&mut text, &schedule);
        let expected = "nightly  0 10 * * 1-5  Europe/Berlin  slow  next 2026-02-06T10:01:00+01:00  missed 2026-02-05T09:00:00Z\n";
        assert_eq!(text, expected);
    }
}
