//! `chaosctl validate`: is this an experiment; and with `--all`, everything that is wrong with several.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::document::{self, Here};
use super::failure::{Failure, USAGE};
use crate::experiment::Experiment;
use crate::experiment::portable;
use crate::experiment::problems::Problem;
use crate::experiment::source::Source;
use crate::spec::SpecError;

/// Which documents, and how much is told of them.
#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// JSON or YAML files, or - for stdin; several with --all
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Tell every problem of every file at once, with what would be right, and what is odd beside them
    #[arg(long)]
    all: bool,
}

/// What was found in a file.
#[derive(Debug, Serialize)]
struct Found {
    file: String,
    valid: bool,
    experiment_name: Option<String>,
    /// Why it is refused.
    problems: Vec<Problem>,
    /// What is odd in it, and no reason to refuse it.
    warnings: Vec<Problem>,
}

/// Checks them: text for people, the answer for programs, and the exit code.
///
/// # Errors
/// Without `--all`, the first problem.
pub(super) fn carry_out(args: &ValidateArgs) -> Result<(String, Value, u8), Failure> {
    if !args.all {
        let [file] = args.files.as_slice() else {
            let problem = format!("{} files: give one, or --all", args.files.len());
            return Err(Failure::Usage(SpecError::new("FILE", problem)));
        };
        let experiment = document::read(file)?.1;
        let answer = json!({"valid": true, "experiment_name": experiment.name});
        let text = format!("{}: a valid experiment: {:?}\n", file.display(), experiment.name);
        return Ok((text, answer, 0));
    }
    let found: Vec<_> = args.files.iter().map(|file| look(file)).collect();
    let valid = found.iter().all(|found| found.valid);
    let text = found.iter().map(lines).collect();
    Ok((text, json!({"valid": valid, "files": found}), if valid { 0 } else { USAGE }))
}

/// Everything that is to be said of one file.
fn look(file: &Path) -> Found {
    let name = file.display().to_string();
    let refused = |problems| Found {
        file: name.clone(),
        valid: false,
        experiment_name: None,
        problems,
        warnings: Vec::new(),
    };
    let text = match document::text(file) {
        Ok(text) => text,
        Err(error) => return refused(vec![Problem::at(None, &SpecError::new("", error.problem))]),
    };
    let source = match Source::read_whole(&text) {
        Ok(source) => source,
        Err(unreadable) => return refused(vec![Problem::at(unreadable.position, &unreadable.error)]),
    };
    let document = source.document();
    let (experiment, problems) = match Experiment::check(document, &Here) {
        Ok(experiment) => (Some(experiment), Vec::new()),
        Err(problems) => (None, problems),
    };
    let problems = source.ambiguous().iter().cloned().chain(problems);
    let problems: Vec<_> = problems.map(|problem| Problem::of(&source, &problem)).collect();
    let warnings = portable::warnings(document);
    Found {
        valid: problems.is_empty(),
        experiment_name: experiment.map(|experiment| experiment.name),
        problems,
        warnings: warnings.iter().map(|warning| Problem::of(&source, warning)).collect(),
        file: name,
    }
}

/// A line for each problem, as editors understand it, and one for the file.
fn lines(found: &Found) -> String {
    let mut out = String::new();
    let mut add = |problem: &Problem, word: &str| {
        let place = match (problem.line, problem.column) {
            (Some(line), Some(column)) => format!(":{line}:{column}"),
            _ => String::new(),
        };
        let path = if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
        let Problem { message, fix, .. } = problem;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}{place}: {word}{path}{message}: {fix}", found.file);
    };
    found.problems.iter().for_each(|problem| add(problem, ""));
    found.warnings.iter().for_each(|warning| add(warning, "warning: "));
    let summary = match (&found.experiment_name, found.problems.len()) {
        (Some(name), 0) => format!("a valid experiment: {name:?}"),
        (_, 1) => "1 problem".to_owned(),
        (_, count) => format!("{count} problems"),
    };
    let _ = writeln!(out, "{}: {summary}", found.file);
    out
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
