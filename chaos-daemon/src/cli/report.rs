//! `chaosctl report`: on one run, on two side by side, or on all of an experiment.

use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use super::compare::both;
use super::failure::Failure;
use super::history::{recorded, run};
use super::runs::object;
use crate::mcp::history::ListOutput;
use crate::report::compare::Comparison;
use crate::report::trend::Trend;
use crate::report::{html, journal, markdown};
use crate::server::history::Recorded;

/// Of how many of its latest runs an experiment's trend is.
const RUNS: u32 = 20;
/// The most.
const MOST_RUNS: u32 = 200;

/// A report.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Handle of the run, or the beginning of it
    #[arg(required_unless_present_any = ["compare", "trend"])]
    run: Option<String>,
    /// In place of one run: two side by side, such as before and after a fix
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["run", "trend"])]
    compare: Option<Vec<String>>,
    /// In place of one run: an experiment over its runs, with verdicts, the worst of each gate, and how soon all was well again
    #[arg(long, value_name = "EXPERIMENT", conflicts_with = "run")]
    trend: Option<String>,
    /// Of the trend: the latest so many runs
    #[arg(long, value_name = "N", requires = "trend", default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RUNS)))]
    runs: u32,
    /// What it is written as; journal: what Chaos Toolkit writes of its runs, in JSON
    #[arg(long, value_enum, default_value = "markdown")]
    format: Format,
    /// Where it is written; stdout without it
    #[arg(long, value_name = "FILE")]
    output: Option<std::path::PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    Markdown,
    Html,
    Journal,
}

/// Asks for what the report is on, and writes it: text, and the same for programs.
pub(super) async fn carry_out(client: &Client, args: &ReportArgs) -> Result<(String, Value), Failure> {
    let only_runs = || Failure::Other("a journal is of one run: give --format markdown or html".to_owned());
    let (text, value) = match (&args.compare, &args.trend) {
        (Some(runs), _) => {
            let [before, after] = both(client, [&runs[0], &runs[1]]).await?;
            let found = Comparison::of(&before, &after);
            let text = match args.format {
                Format::Markdown => found.markdown(),
                Format::Html => found.html(),
                Format::Journal => return Err(only_runs()),
            };
            (text, json!(found))
        }
        (None, Some(experiment)) => {
            let found = trend(client, experiment, args.runs).await?;
            let text = match args.format {
                Format::Markdown => found.markdown(),
                Format::Html => found.html(),
                Format::Journal => return Err(only_runs()),
            };
            (text, json!(found))
        }
        (None, None) => {
            let answer = run(client, args.run.as_deref().unwrap_or_default()).await?;
            of_run(&recorded(answer).map_err(Failure::Other)?, args.format)
        }
    };
    match &args.output {
        None => Ok((text, value)),
        Some(file) => {
            std::fs::write(file, text)
                .map_err(|error| Failure::Other(format!("writing {}: {error}", file.display())))?;
            Ok((String::new(), json!({"written": file})))
        }
    }
}

fn of_run(recorded: &Recorded, format: Format) -> (String, Value) {
    let told = |text: String| (text.clone(), json!({"report": text}));
    match format {
        Format::Markdown => told(markdown::report(recorded)),
        Format::Html => told(html::report(recorded)),
        Format::Journal => {
            let journal = journal::report(recorded);
            (format!("{journal:#}\n"), journal)
        }
    }
}

/// The latest runs of an experiment, the oldest first.
async fn trend(client: &Client, experiment: &str, runs: u32) -> Result<Trend, Failure> {
    let asked = object(json!({"experiment_name": experiment, "limit": runs}));
    let ListOutput { runs: found, .. } = client.ask("chaos_list_runs", asked).await?.read;
    if found.is_empty() {
        let problem = format!("no run of {experiment:?} is recorded: chaosctl experiment list has the names");
        return Err(Failure::Other(problem));
    }
    let mut told = Vec::new();
    for listed in found.iter().rev() {
        told.push(recorded(run(client, &listed.run.run_id).await?).map_err(Failure::Other)?);
    }
    Ok(Trend::of(experiment, &told))
}
