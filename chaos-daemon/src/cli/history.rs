//! `chaosctl runs`, `show` and `stats`: what has run.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::client::{Answer, Client, ClientError};
use super::live::happened;
use super::runs::object;
use super::{duration, progress, show};
use crate::experiment::Verdict;
use crate::experiment::timeline::Reading;
use crate::mcp::history::{ListOutput, Listed, RunDetails, StatisticsOutput};
use crate::mcp::results::{RunOutput, RunningView, StatusOutput, word};
use crate::server::history::score::{Factor, Score};
use crate::server::history::statistics::{FaultTally, Flaky, Statistics, Tally};
use crate::server::history::{FOUND_RUNS, MOST_FOUND, Recorded, RunFault};

/// What a search of the history is narrowed by, beside the experiment.
#[derive(Debug, Args)]
struct Filters {
    /// Only with a fault of this type or name
    #[arg(long)]
    fault: Option<String>,
    /// Only with this text in the target of a fault, e.g. eth0
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// Only with this verdict: held, deviated, refused, failed, tripped, aborted, interrupted or unverified
    #[arg(long, value_parser = verdict)]
    verdict: Option<Verdict>,
    /// Only with this text in the experiment's name, the error, or what happened
    #[arg(long)]
    text: Option<String>,
    /// Only begun since then: a time, a date, or how long ago, e.g. 2d
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<jiff::Timestamp>,
    /// Only begun before then
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<jiff::Timestamp>,
}

impl Filters {
    /// As the fields of the tools, with the experiment.
    fn fields(&self, experiment: Option<&str>) -> Map<String, Value> {
        let mut fields = object(json!({
            "experiment_name": experiment, "fault": self.fault, "target": self.target, "verdict": self.verdict,
            "text": self.text, "since": self.since, "until": self.until,
        }));
        fields.retain(|_, value| !value.is_null());
        fields
    }
}

/// Which runs.
#[derive(Debug, Args)]
pub(super) struct RunsArgs {
    /// Only this experiment
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,
    #[command(flatten)]
    filters: Filters,
    /// The latest so many
    #[arg(long, value_name = "N", default_value_t = FOUND_RUNS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_FOUND)))]
    limit: u32,
}

impl RunsArgs {
    /// As the fields of the tool.
    fn fields(&self) -> Map<String, Value> {
        let mut fields = self.filters.fields(self.experiment.as_deref());
        fields.insert("limit".to_owned(), json!(self.limit));
        fields
    }

    /// Whether runs that go on are asked for, too: nothing is known of them but their experiment.
    fn of_now(&self) -> bool {
        let Filters { fault, target, verdict, text, since: _, until } = &self.filters;
        let narrowed = [fault, target, text].iter().any(|field| field.is_some());
        !narrowed && verdict.is_none() && until.is_none()
    }
}

/// What runs are counted.
#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    /// Only this experiment
    experiment: Option<String>,
    #[command(flatten)]
    filters: Filters,
}

/// Understands a verdict.
pub(super) fn verdict(word: &str) -> Result<Verdict, String> {
    Verdict::parse(word).ok_or_else(|| format!("{word:?} is no verdict"))
}

/// A time: itself, the beginning of a day in UTC, or so long before now.
pub(super) fn time(text: &str) -> Result<jiff::Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| error.to_string())?;
        return Ok(midnight.timestamp());
    }
    let days = text.strip_suffix('d').and_then(|days| days.trim().parse::<u64>().ok());
    let ago = match days {
        Some(days) => Ok(Duration::from_secs(days.saturating_mul(86_400))),
        None => duration::parse(text),
    };
    let ago =
        ago.map_err(|problem| format!("no time, such as 2026-02-05T10:00:00Z, 2026-02-05 or 2d: {problem}"))?;
    let then =
        jiff::SignedDuration::try_from(ago).ok().and_then(|ago| jiff::Timestamp::now().checked_sub(ago).ok());
    then.ok_or_else(|| format!("{text:?} is too long ago"))
}

/// Runs that were found, for programs.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    /// Those that have ended, the oldest first.
    results: Vec<Listed>,
    /// Those that go on.
    running: Vec<RunningView>,
}

impl Found {
    /// The same for people.
    pub(super) fn lines(&self) -> String {
        show::history(self.results.iter().map(|found| &found.run), &self.running)
    }
}

/// The runs that are asked for.
pub(super) async fn runs(client: &Client, args: &RunsArgs) -> Result<Found, ClientError> {
    let ListOutput { runs: mut results, .. } = client.ask("chaos_list_runs", args.fields()).await?.read;
    results.reverse();
    let mut running = Vec::new();
    if args.of_now() {
        let mut only = object(json!({"experiment_name": args.experiment}));
        only.retain(|_, value| !value.is_null());
        let status: StatusOutput = client.ask("chaos_status", only).await?.read;
        running = status.running;
    }
    Ok(Found { results, running })
}

/// Everything about the run with this handle.
pub(super) async fn run(client: &Client, run: &str) -> Result<Answer<RunDetails>, ClientError> {
    client.ask("chaos_get_run", object(json!({"run_id": run, "all_samples": true}))).await
}

/// What all runs say together, or those that are asked for.
pub(super) async fn statistics(
    client: &Client,
    args: &StatsArgs,
) -> Result<Answer<StatisticsOutput>, ClientError> {
    client.ask("chaos_statistics", args.filters.fields(args.experiment.as_deref())).await
}

/// The same for people.
pub(super) fn figures(found: &Statistics) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(out, "{} runs, {}", found.runs, show::successful(found.success_rate));
    if let Some(score) = found.mean_score {
        let _ = write!(out, ", mean resiliency score {score:.0}");
    }
    out.push('\n');
    for (title, counts) in
        [("by verdict", &found.verdicts), ("what failed", &found.failure_modes), ("by score", &found.scores)]
    {
        let counts: Vec<_> =
            counts.iter().map(|count| format!("{} {}", count.name.replace('_', " "), count.runs)).collect();
        if !counts.is_empty() {
            let _ = writeln!(out, "{title}: {}", counts.join(", "));
        }
    }
    fault_figures(&mut out, &found.faults);
    for (title, tallies) in [("by experiment", &found.experiments), ("by day", &found.days)] {
        if !tallies.is_empty() {
            let _ = writeln!(out, "{title}:");
        }
        tallies.iter().for_each(|tally| tally_line(&mut out, tally));
    }
    for Flaky { experiment_name, held, deviated, .. } in &found.flaky {
        let _ = writeln!(
            out,
            "flaky: {experiment_name}: the same document held {held} times, and did not {deviated} times"
        );
    }
    out
}

/// How many runs of an experiment, or of a day, there were, and how they went.
fn tally_line(out: &mut String, tally: &Tally) {
    let Tally { name, runs, success_rate, latest_score, previous_score, .. } = tally;
    let _ = write!(out, "  {name}: {runs} runs, {}", show::successful(*success_rate));
    if let Some(score) = latest_score {
        let _ = write!(out, ", latest score {score}");
        if let Some(before) = previous_score.filter(|before| before > score) {
            let _ = write!(out, ", fallen from {before}");
        }
    }
    out.push('\n');
}

/// What became of faults, by their types.
fn fault_figures(out: &mut String, tallies: &[FaultTally]) {
    if !tallies.is_empty() {
        out.push_str("by fault:\n");
    }
    for FaultTally { name, runs, asked, injected, effective, removed_clean: clean, .. } in tallies {
        let _ = write!(out, "  {name}: {runs} runs");
        if *asked != 0 {
            let _ = write!(
                out,
                "; of {asked} faults {injected} injected, {effective} seen to act, {clean} removed clean"
            );
        }
        out.push('\n');
    }
}

/// What is recorded of a run that the daemon has told of.
pub(super) fn recorded(answer: Answer<RunDetails>) -> Result<Recorded, String> {
    if !answer.read.ended {
        let run = answer.read.run.run_id;
        return Err(format!("run {run} has not ended: chaosctl show --wait {run} waits for that"));
    }
    serde_json::from_value(answer.json).map_err(|error| format!("the daemon's answer on the run: {error}"))
}

/// The most samples that are shown to people; `--json` has all.
const SHOWN_SAMPLES: usize = 40;

/// How a run goes that has not ended.
fn going_on(run: &RunOutput, running: &RunningView) -> String {
    let RunOutput { run_id, started_at, .. } = run;
    let line = progress::line(running);
    format!("{line}\n  run {run_id}, begun {started_at}, goes on: --wait waits for its end\n")
}

/// Everything about a run, for people.
pub(super) fn details(answer: &RunDetails) -> String {
    let mut out = match &answer.running {
        Some(running) => going_on(&answer.run, running),
        None => show::details(&answer.run),
    };
    // Writing to a string cannot fail.
    if let Some(owner) = &answer.owner {
        let _ = writeln!(out, "  of {owner}");
    }
    for fault in &answer.faults {
        let RunFault { name, fault_type, target, seconds, .. } = fault;
        let _ = writeln!(out, "  fault {name}: {fault_type} at {target}, for {}", show::seconds(*seconds));
        for met in fault.met() {
            let _ = writeln!(out, "      {met}");
        }
    }
    if let Some(resiliency) = &answer.resiliency {
        score(&mut out, resiliency);
    }
    for event in &answer.events {
        let _ = writeln!(out, "  {:>9.3} s  {}", event.at_seconds, happened::words(event));
    }
    for blind in &answer.without_data {
        let _ = writeln!(out, "  {blind}");
    }
    samples(&mut out, &answer.samples);
    out
}

/// A resiliency score, and what has lowered it.
fn score(out: &mut String, resiliency: &Score) {
    let _ = writeln!(out, "  resiliency score {}", resiliency.score);
    for Factor { fault, weight, ran, probe_success_percent: percent, .. } in &resiliency.factors {
        let passed = match ran {
            true => format!("{percent:.0} % of the probes passed"),
            false => "was not injected".to_owned(),
        };
        let _ = writeln!(out, "    {fault}, weight {weight}: {passed}");
    }
    for probe in resiliency.probes.iter().filter(|probe| !probe.passed) {
        let _ = writeln!(out, "    did not pass: {}", probe.probe);
    }
}

/// How many samples there are, and those that were not met.
fn samples(out: &mut String, samples: &[Reading]) {
    let unmet: Vec<_> = samples.iter().filter(|sample| !sample.met).collect();
    let _ = writeln!(out, "  {} samples, {} of them not met", samples.len(), unmet.len());
    for Reading { at_seconds: at, probe, stage, detail, .. } in unmet.iter().take(SHOWN_SAMPLES) {
        let _ = writeln!(out, "  {at:>9.3} s  {probe} ({}): {detail}", word(stage));
    }
    if unmet.len() > SHOWN_SAMPLES {
        let _ = writeln!(out, "  and {} more: chaosctl --json show", unmet.len() - SHOWN_SAMPLES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_itself_a_day_or_so_long_ago() {
        let now = jiff::Timestamp::now();
        assert_eq!(time("2026-02-05T10:00:00Z").unwrap().to_string(), "2026-02-05T10:00:00Z");
        assert_eq!(time("2026-02-05").unwrap().to_string(), "2026-02-05T00:00:00Z");
        for (text, seconds) in [("2d", 172_800), ("90m", 5400), ("1h 30m", 5400)] {
            let ago = now.duration_since(time(text).unwrap()).as_secs();
            assert!((seconds - 5..=seconds + 5).contains(&ago), "{text}: {ago}");
        }
        for wrong in ["", "soon", "yesterday", "-2d", "99999999999999d"] {
            assert!(time(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_score_that_has_fallen_is_told_with_the_one_before() {
        let line = |latest_score: u8, previous_score: Option<u8>| {
            let tally = Tally {
                name: "cache".into(),
                runs: 2,
                successes: 1,
                success_rate: 0.5,
                mean_score: None,
                latest_score: Some(latest_score),
                previous_score,
            };
            figures(&Statistics {
                runs: 2,
                success_rate: 0.5,
                experiments: vec![tally],
                ..Statistics::default()
            })
        };
        assert!(line(50, Some(100)).ends_with(", latest score 50, fallen from 100\n"));
        for (latest, previous) in [(100, Some(50)), (50, Some(50)), (50, None)] {
            assert!(line(latest, previous).ends_with(&format!(", latest score {latest}\n")));
        }
    }

    #[test]
    fn what_happened_is_told_with_its_time() {
        let time = "2026-02-05T10:00:00.000Z";
        let answer: RunDetails = serde_json::from_value(json!({
            "ended": true,
            "run": {"experiment_name": "x", "verdict": "tripped", "run_id": "ab", "started_at": time},
            "faults": [{"name": "cut", "fault_type": "timeout", "target": "{\"interface\":\"eth0\"}", "seconds": 60.0,
                "evidence": {"packets_matched": 4, "packets_affected": 3, "packets_protected": 1}}],
            "events": [{"at_seconds": 1.25, "time": time, "kind": "injection_failed", "subject": "cut", "detail": "no eth0"}],
            "samples": [{"at_seconds": 1.5, "time": time, "probe": "up", "role": "gate", "stage": "during", "met": false,
                "took_seconds": 0.1, "detail": "refused"}],
        }))
        .unwrap();
        let text = details(&answer);
        assert!(text.contains("1.250 s  injection failed: cut: no eth0\n"), "{text}");
        assert!(text.contains("for 1m\n      packets: 4 matched, 3 affected, 1 protected\n"), "{text}");
        assert!(text.contains("1 samples, 1 of them not met\n"), "{text}");
        assert!(text.contains("1.500 s  up (during): refused\n"), "{text}");
    }
}
