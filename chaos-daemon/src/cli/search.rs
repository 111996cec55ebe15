//! `chaosctl search`: the failure that barely happens, and how it is found.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::{Answer, Client, ClientError};
use super::failure::Failure;
use super::interrupts::Interrupts;
use super::runs::{Experiment, Subject, object};
use super::show;
use crate::host::words;
use crate::mcp::experiment::RegisterOutput;
use crate::mcp::search::{BestView, SearchOutput, SearchView, StepView};
use crate::spec::SpecError;

/// How often it is looked how a search goes.
const LOOK: Duration = Duration::from_millis(500);
/// What `state` says of a search that goes on.
const GOING_ON: &str = "going_on";

/// The exit codes of `chaosctl search`.
pub(super) const EXIT_CODES: &str = "Exit codes:
  0  found: a failure is known, and where it begins; or with stop, status and list: done
  1  refused or failed by the daemon
  2  the command line, or the document, makes no sense
  3  the daemon cannot be reached, or went away; the search goes on when it is there again
  4  not permitted
  5  stopped: by Ctrl-C or SIGTERM of this command, or by somebody else
  6  nothing fails within the space
  7  no answer: the budget is spent, whatever would tell more is too harsh, or no run has shown anything";

/// A search.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct SearchArgs {
    #[command(subcommand)]
    command: Option<SearchCommand>,
    #[command(flatten)]
    begin: Option<BeginArgs>,
}

/// How a search is begun, and what is written of it.
#[derive(Debug, Args)]
pub(super) struct BeginArgs {
    /// Name of a registered experiment; or a file, which is checked and registered first, as by chaosctl run
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::FilePath, value_parser = Subject::of)]
    subject: Subject,
    /// Decides what chance decides, in place of the document's
    #[arg(long, conflicts_with = "minimise")]
    seed: Option<u32>,
    /// Go on from the best failure of the search of this experiment, down to the least that still fails
    #[arg(long)]
    minimise: bool,
    /// With --minimise: from the failure of this run
    #[arg(long, value_name = "RUN", requires = "minimise")]
    run: Option<String>,
    /// Write the picture to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the best failure to this file, as an experiment that shows it
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SearchCommand {
    /// Show one: its steps, its best failure, and the picture
    Status {
        /// Name
        name: String,
    },
    /// End one, and the run that it makes; what it has found stays
    Stop {
        /// Name
        name: String,
    },
    /// List all
    List,
}

impl SearchArgs {
    /// What is searched, if one is begun; and the action of the tool.
    pub(super) fn asks(&self) -> (&'static str, Option<&Subject>) {
        match (&self.command, &self.begin) {
            (Some(SearchCommand::List), _) => ("list", None),
            (Some(SearchCommand::Status { .. }), _) => ("status", None),
            (Some(SearchCommand::Stop { .. }), _) => ("stop", None),
            (None, begin) => ("start", begin.as_ref().map(|begin| &begin.subject)),
        }
    }
}

/// What is told, to programs, and the exit code.
pub(super) type Told = (String, Value, u8);

/// Does it.
pub(super) async fn carry_out(client: &Client, args: &SearchArgs, json: bool) -> Result<Told, Failure> {
    match (&args.command, &args.begin) {
        (Some(SearchCommand::List), _) => {
            let answer = ask(client, json!({"action": "list"})).await?;
            let lines: String = answer.read.searches.iter().map(line).collect();
            let text = if lines.is_empty() { "no search\n".to_owned() } else { lines };
            Ok((text, answer.json, 0))
        }
        (Some(SearchCommand::Stop { name }), _) => {
            let answer = ask(client, json!({"action": "stop", "name": name})).await?;
            Ok((format!("{}\n", answer.read.message), answer.json, 0))
        }
        (Some(SearchCommand::Status { name }), _) => {
            let answer = ask(client, json!({"action": "status", "name": name, "picture": "text"})).await?;
            let search = the_one(&answer.read)?;
            let steps: String = search.steps.iter().map(step).collect();
            Ok((steps + &page(search), answer.json, 0))
        }
        (None, Some(begin)) => to_the_end(client, begin, json).await,
        (None, None) => {
            let problem = "missing: name an experiment or a file; or status, stop or list";
            Err(Failure::Usage(SpecError::new("NAME|FILE", problem)))
        }
    }
}

/// Begins a search and follows it to its end. An interrupt ends it.
async fn to_the_end(client: &Client, args: &BeginArgs, json: bool) -> Result<Told, Failure> {
    let experiment = match args.subject.read()? {
        Experiment::Registered(name) => name,
        Experiment::Document(document) => {
            let registered: Answer<RegisterOutput> =
                client.ask("chaos_register_experiment", object(document)).await?;
            registered.read.experiment_name
        }
    };
    // From before there is anything to end.
    let mut interrupts = Interrupts::new().map_err(Failure::Other)?;
    let mut begin = object(match args.minimise {
        true => json!({"action": "minimise", "name": experiment, "run_id": args.run}),
        false => json!({"action": "start", "name": experiment, "seed": args.seed}),
    });
    begin.retain(|_, value| !value.is_null());
    let begun = ask(client, Value::Object(begin)).await?;
    let begun = the_one(&begun.read)?;
    let name = begun.name.clone();
    if !json {
        eprintln!("chaosctl: searching {name}, with seed {}; Ctrl-C ends it", begun.seed);
    }
    let mut shown = 0;
    let mut interrupted = None;
    loop {
        let answer = ask(client, json!({"action": "status", "name": name, "after": shown})).await?;
        let search = the_one(&answer.read)?;
        for told in search.steps.iter().filter(|step| step.seconds.is_some()) {
            shown = told.number;
            if !json {
                say(&step(told));
            }
        }
        let pending = search.steps.last().is_some_and(|step| step.seconds.is_none());
        if search.state != GOING_ON && !pending {
            break;
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            signal = interrupts.next() => {
                if let Some(first) = interrupted.replace(signal) {
                    let text = format!("{first}, {signal}: the search is stopped, and its run is ending: see chaosctl search status {name:?}");
                    return Err(Failure::Other(text));
                }
                eprintln!("chaosctl: {signal}: stopping the search {name:?}, and waiting for its run; again to wait no longer");
                ask(client, json!({"action": "stop", "name": name})).await?;
            }
        }
    }
    ended(client, args, &name).await
}

/// What has become of a search that has ended, and what is to be written of it.
async fn ended(client: &Client, args: &BeginArgs, name: &str) -> Result<Told, Failure> {
    let asked = json!({"action": "status", "name": name, "picture": "text", "document": true});
    let answer = ask(client, asked).await?;
    let search = the_one(&answer.read)?;
    let mut text = page(search);
    if let Some(file) = &args.svg {
        let drawn = ask(client, json!({"action": "status", "name": name, "picture": "svg"})).await?;
        let picture = the_one(&drawn.read)?.picture.clone().unwrap_or_default();
        write(file, &picture)?;
        let _ = writeln!(text, "the picture: {}", file.display());
    }
    match (&args.document, &search.document) {
        (Some(file), Some(document)) => {
            write(file, &format!("{:#}\n", Value::Object(document.clone())))?;
            let _ = writeln!(text, "the experiment: {}", file.display());
        }
        (Some(file), None) => {
            let _ = writeln!(text, "{} is not written: no failure is known", file.display());
        }
        (None, _) => {}
    }
    Ok((text, answer.json, exit_code(&search.state)))
}

fn exit_code(state: &str) -> u8 {
    match state {
        "found" => 0,
        "stopped" => 5,
        "nothing_fails" => 6,
        _ => 7,
    }
}

async fn ask(client: &Client, asked: Value) -> Result<Answer<SearchOutput>, ClientError> {
    client.ask("chaos_search", object(asked)).await
}

fn the_one(answer: &SearchOutput) -> Result<&SearchView, Failure> {
    let none = || Failure::Other("the daemon has said nothing of the search".to_owned());
    answer.searches.first().ok_or_else(none)
}

fn write(file: &PathBuf, text: &str) -> Result<(), Failure> {
    let written = std::fs::write(file, text);
    written.map_err(|error| Failure::Other(format!("writing to {}: {error}", file.display())))
}

/// Prints at once; a reader that has gone is no reason to end a search.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(words::plain(text).as_bytes());
}

/// A step: ` 3  slow delay 480ms, for 20s  predicted +12 %: missed by 31 % in 4f1c…`
fn step(step: &StepView) -> String {
    let StepView { number, candidate, reason, predicted, margin, no_data, run_id, problem, .. } = step;
    let seen = match (margin, no_data) {
        (Some(margin), _) if *margin > 0.0 => format!("missed by {}", percent(*margin)),
        (Some(margin), _) => format!("met, with {} left", percent(-margin)),
        (None, Some(why)) => format!("nothing seen ({why})"),
        (None, None) => "going on".to_owned(),
    };
    let run = run_id.as_ref().map(|run| format!("; run {run}")).unwrap_or_default();
    let problem = problem.as_ref().map(|problem| format!("; {problem}")).unwrap_or_default();
    let predicted = format!("{}{}", if *predicted < 0.0 { "-" } else { "+" }, percent(predicted.abs()));
    format!("{number:3}  {candidate}: {seen}, {predicted} predicted ({reason}){run}{problem}\n")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// One in a list.
fn line(search: &SearchView) -> String {
    let SearchView { name, state, runs, most_runs, began_at, .. } = search;
    format!("{name}  {state}  {runs} of {most_runs} runs  since {began_at}\n")
}

/// What is known of one.
fn page(search: &SearchView) -> String {
    let SearchView { name, state, problem, seed, runs, most_runs, seconds, most_seconds, .. } = search;
    let mut out = search.picture.clone().unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{name}: {state}, after {runs} of {most_runs} runs and {} of {}, with seed {seed}",
        show::seconds(*seconds),
        show::seconds(*most_seconds)
    );
    if let Some(problem) = problem {
        let _ = writeln!(out, "  {problem}");
    }
    if let Some(BestView { candidate, margin, runs, failed, fails, confirmed, begins }) = &search.best {
        let confirmed = if *confirmed { "" } else { ", not confirmed" };
        let _ =
            writeln!(out, "  the mildest failure: {candidate}: missed by {}{confirmed}", percent(*margin));
        let (least, most) = (percent(fails.0), percent(fails.1));
        let _ = writeln!(out, "  {failed} of {runs} runs failed: with 95 %, {least} to {most} do");
        if let [low, high] = begins.as_slice() {
            let _ = writeln!(out, "  with 90 %, failures begin between {low} and {high}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(more: Value) -> SearchView {
        let mut view = json!({"name": "shop", "state": "found", "set_by": "uid 0", "began_at": "2026-02-05T10:00:00.000Z",
            "seed": 7, "runs": 12, "most_runs": 40, "seconds": 61.0, "most_seconds": 600.0, "violation": 1.0,
            "most_violation": 40.0, "steps": []});
        view.as_object_mut().unwrap().extend(object(more));
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn a_step_is_a_line_with_what_was_tried_seen_and_predicted() {
        let told = |more: Value| {
            let mut view = json!({"number": 3, "candidate": "slow delay 480ms, for 20s", "reason": "between", "predicted": -0.25});
            view.as_object_mut().unwrap().extend(object(more));
            step(&serde_json::from_value(view).unwrap())
        };
        let begins = "  3  slow delay 480ms, for 20s: ";
        assert_eq!(
            told(json!({"margin": 0.31, "seconds": 20.5, "run_id": "4f1c"})),
            format!("{begins}missed by 31.0 %, -25.0 % predicted (between); run 4f1c\n")
        );
        assert!(told(json!({"margin": -0.1})).starts_with(&format!("{begins}met, with 10.0 % left")));
        let refused = told(json!({"no_data": "refused", "problem": "too harsh"}));
        assert!(refused.starts_with(&format!("{begins}nothing seen (refused)")), "{refused}");
        assert!(refused.ends_with("; too harsh\n"), "{refused}");
        assert!(told(json!({})).contains(": going on, "));
    }

    #[test]
    fn a_page_says_why_it_ended_and_the_mildest_failure() {
        let best = json!({"candidate": "slow delay 380ms, for 20s", "margin": 0.05, "runs": 3, "failed": 3,
            "fails": [0.44, 1.0], "confirmed": true, "begins": ["a", "b"]});
        assert_eq!(
            page(&search(json!({"best": best, "picture": "drawn\n"}))),
            "drawn\nshop: found, after 12 of 40 runs and 1m 1s of 10m, with seed 7\n  the mildest failure: slow delay \
             380ms, for 20s: missed by 5.0 %\n  3 of 3 runs failed: with 95 %, 44.0 % to 100.0 % do\n  with 90 %, failures \
             begin between a and b\n"
        );
        assert!(page(&search(json!({"state": "stopped", "problem": "x"}))).ends_with("seed 7\n  x\n"));
        assert_eq!(line(&search(json!({}))), "shop  found  12 of 40 runs  since 2026-02-05T10:00:00.000Z\n");
    }

    #[test]
    fn every_end_has_an_exit_code_which_the_help_explains() {
        for (state, code) in
            [("found", 0), ("stopped", 5), ("nothing_fails", 6), ("budget: runs", 7), ("no_data", 7)]
        {
            assert_eq!(exit_code(state), code, "{state}");
            assert!(EXIT_CODES.contains(&format!("\n  {code}  ")), "{state}");
        }
    }
}
