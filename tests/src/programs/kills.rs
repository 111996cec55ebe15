//! `kills --results=FILE [--count=N] [--only=TEXT]...`: ends faults of every kind in every way so many times, and says how
//! soon everything was normal (of ends that are no deaths a fifth as many). One JSON line per figure, as `test-runner` writes, with the figure in it.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use crate::kills::{End, Kind, Measured, kinds, measure};
use crate::skip::kernel_release;
use serde_json::{Value, json};

struct Options {
    results: String,
    count: usize,
    only: Vec<String>,
}

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let mut options = Options { results: "/dev/stdout".into(), count: 100, only: Vec::new() };
    for argument in std::env::args().skip(1) {
        if read(&argument, &mut options).is_none() {
            return refuse(&format!("what is {argument}?"));
        }
    }
    let results = &options.results;
    let mut sink = match OpenOptions::new().append(true).create(true).open(results) {
        Ok(sink) => sink,
        Err(error) => return refuse(&format!("open {results}: {error}")),
    };
    let mut write = |value: Value| {
        if let Err(error) = writeln!(sink, "{value}") {
            eprintln!("kills: write to {results}: {error}");
        }
    };
    let (mut lines, mut failed) = (0, false);
    for kind in kinds() {
        for end in kind.ends() {
            let name = format!("{} {end:?}", kind.name);
            if !options.only.is_empty() && !options.only.iter().any(|text| name.contains(text)) {
                continue;
            }
            for line in lines_of(kind, *end, end.count(options.count)) {
                lines += 1;
                failed |= line["outcome"] == "fail";
                write(line);
            }
        }
    }
    write(json!({"done": true, "count": lines}));
    if failed || lines == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(argument: &str, options: &mut Options) -> Option<()> {
    let (name, text) = argument.split_once('=')?;
    match name {
        "--results" => text.clone_into(&mut options.results),
        "--only" => options.only.push(text.to_owned()),
        "--count" => options.count = text.parse().ok().filter(|count| *count > 0)?,
        _ => return None,
    }
    Some(())
}

/// One verdict for each figure, or one for the failure.
fn lines_of(kind: Kind, end: End, count: usize) -> Vec<Value> {
    let started = Instant::now();
    let measured = measure(kind, end, count)
        .unwrap_or_else(|error| Measured { figures: Vec::new(), failure: Some(error) });
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = |test: String, outcome: &str| json!({"kernel": kernel_release(), "test": test, "outcome": outcome, "ms": ms});
    let figures = measured.figures.into_iter().map(|(what, figures)| {
        let mut line = line(format!("{what} ... {figures}"), "pass");
        line["figures"] = json!({what: figures.json()});
        line
    });
    let failure = measured.failure.map(|error| {
        let mut line = line(format!("{}: {end:?}", kind.name), "fail");
        line["reason"] = json!(error.to_string());
        line
    });
    figures.chain(failure).collect()
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("kills: {problem}");
    ExitCode::from(2)
}
