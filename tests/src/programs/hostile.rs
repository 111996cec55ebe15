//! `hostile --results=FILE [--stride=N] [--offset=N] [--only=TEXT]... [--partition=K/N] [--cell=NAME]... [--until=SECONDS]
//! [--list]`: users with every right to speak to the daemon say everything they can; nothing may come of it. Of what is said to a
//! tool it takes every so manieth. One JSON line per cell, as `test-runner` writes, with its figures; last, how many there were.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cells::{self, Choice};
use crate::hostile::{self, Cell, How};
use crate::skip::kernel_release;

/// How long a flood lasts here; `bench` has longer ones.
const LASTING: Duration = Duration::from_millis(1500);

struct Options {
    results: String,
    how: How,
    only: Vec<String>,
    choice: Choice,
}

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let how = How { stride: 1, offset: 0, lasting: LASTING };
    let mut options =
        Options { results: "/dev/stdout".into(), how, only: Vec::new(), choice: Choice::default() };
    for argument in std::env::args().skip(1) {
        if read(&argument, &mut options).is_none() {
            return refuse(&format!("what is {argument}?"));
        }
    }
    let cells = match chosen(&options) {
        Ok(cells) if options.choice.is_list => {
            return cells::print(&cells.iter().map(|cell| &cell.name).collect::<Vec<_>>());
        }
        Ok(cells) => cells,
        Err(problem) => return refuse(&problem),
    };
    let results = &options.results;
    let mut sink = match OpenOptions::new().append(true).create(true).open(results) {
        Ok(sink) => sink,
        Err(error) => return refuse(&format!("open {results}: {error}")),
    };
    let mut write = |value: Value| {
        if let Err(error) = writeln!(sink, "{value}") {
            eprintln!("hostile: write to {results}: {error}");
        }
    };
    let mut failed = false;
    let left = options.choice.each(&cells, |cell| {
        let line = line_of(cell, &options.how);
        failed |= line["outcome"] == "fail";
        write(line);
    });
    let run = cells.len() - left;
    write(json!({"done": true, "count": run, "cells": run, "left": left}));
    if failed || cells.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(argument: &str, options: &mut Options) -> Option<()> {
    if options.choice.take(argument).is_some() {
        return Some(());
    }
    let (name, text) = argument.split_once('=')?;
    match name {
        "--results" => text.clone_into(&mut options.results),
        "--only" => options.only.push(text.to_owned()),
        "--stride" => options.how.stride = text.parse().ok().filter(|stride| *stride > 0)?,
        "--offset" => options.how.offset = text.parse().ok()?,
        _ => return None,
    }
    Some(())
}

fn chosen(options: &Options) -> Result<Vec<Cell>, String> {
    let mut cells = hostile::cells().map_err(|error| error.to_string())?;
    let wanted = |cell: &Cell| options.only.iter().any(|text| cell.name.contains(text));
    cells.retain(|cell| options.only.is_empty() || wanted(cell));
    options.choice.of(cells, |cell| &cell.name)
}

fn line_of(cell: &Cell, how: &How) -> Value {
    let started = Instant::now();
    let (outcome, reason) = match cell.run(how) {
        Ok(judged) if judged.problems.is_empty() => ("pass", judged.figures),
        Ok(judged) => ("fail", format!("{}\n{}", judged.problems.join("\n"), judged.figures)),
        Err(error) => ("fail", error.to_string()),
    };
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    json!({"kernel": kernel_release(), "test": cell.name, "outcome": outcome, "reason": reason, "ms": ms})
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("hostile: {problem}");
    ExitCode::from(2)
}
