//! `kills --results=FILE [--count=N] [--only=TEXT]... [--partition=K/N] [--cell=NAME]... [--until=SECONDS] [--list]`: ends faults
//! of every kind in every way so many times, and says how soon everything was normal (of ends that are no deaths a fifth as many).
//! One JSON line per figure, as `test-runner` writes, with the figure in it; last, how many lines and cells there were.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use crate::cells::{self, Choice};
use crate::kernel::Context;
use crate::kills::{self, Cell, Measured, measure};
use crate::kinds::Machine;
use crate::late::{MARK, SECOND_TRY};
use crate::skip::kernel_release;
use serde_json::{Value, json};

struct Options {
    results: String,
    count: usize,
    only: Vec<String>,
    choice: Choice,
}

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let (results, choice) = ("/dev/stdout".into(), Choice::default());
    let mut options = Options { results, count: 100, only: Vec::new(), choice };
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
            eprintln!("kills: write to {results}: {error}");
        }
    };
    let machine = Machine::of(&Context::new());
    let (possible, lacking): (Vec<_>, Vec<_>) =
        cells.into_iter().partition(|cell| cell.kind.lacks(&machine).is_none());
    let (mut lines, mut failed) = (0, false);
    for (kind, why) in skips(&lacking, &machine) {
        lines += 1;
        write(json!({"kernel": kernel_release(), "test": kind, "outcome": "skip", "reason": why, "ms": 0}));
    }
    let left = options.choice.each(&possible, |cell| {
        for line in lines_of(cell, cell.end.count(options.count)) {
            lines += 1;
            failed |= line["outcome"] == "fail";
            write(line);
        }
    });
    write(json!({"done": true, "count": lines, "cells": possible.len() - left, "left": left}));
    if failed || lines + left == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(argument: &str, options: &mut Options) -> Option<()> {
    if options.choice.take(argument).is_some() {
        return Some(());
    }
    let (name, text) = argument.split_once('=')?;
    match name {
        "--results" => text.clone_into(&mut options.results),
        "--only" => options.only.push(text.to_owned()),
        "--count" => options.count = text.parse().ok().filter(|count| *count > 0)?,
        _ => return None,
    }
    Some(())
}

/// Each kind of these cells once, with what this machine lacks for it.
fn skips(cells: &[Cell], machine: &Machine) -> BTreeMap<&'static str, &'static str> {
    cells.iter().filter_map(|cell| Some((cell.kind.name, cell.kind.lacks(machine)?))).collect()
}

/// The cells that are asked for.
fn chosen(options: &Options) -> Result<Vec<Cell>, String> {
    let mut cells = kills::cells();
    let wanted = |cell: &Cell| options.only.iter().any(|text| cell.name.contains(text));
    cells.retain(|cell| options.only.is_empty() || wanted(cell));
    options.choice.of(cells, |cell| &cell.name)
}

/// One verdict for each figure, or one for the failure.
fn lines_of(cell: &Cell, count: usize) -> Vec<Value> {
    let started = Instant::now();
    let measured = measure(cell.kind, cell.end, count).unwrap_or_else(|error| Measured {
        figures: Vec::new(),
        failure: Some(error),
        late: None,
    });
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = |test: String, outcome: &str| json!({"kernel": kernel_release(), "test": test, "outcome": outcome, "ms": ms});
    let figures = measured.figures.into_iter().map(|(what, figures)| {
        let mut line = line(format!("{what} ... {figures}"), "pass");
        line["figures"] = json!({what: figures.json()});
        line
    });
    let failure = measured.failure.map(|error| {
        let mut line = line(cell.name.clone(), "fail");
        line["reason"] = json!(error.to_string());
        line
    });
    let mut lines: Vec<_> = figures.chain(failure).collect();
    if let (Some(first), Some(late)) = (lines.first_mut(), measured.late) {
        let reason = first["reason"].as_str().unwrap_or_default().to_owned();
        first["tries"] = json!(2);
        first["reason"] = json!(format!("{reason}\n{SECOND_TRY}{}", late.replace(MARK, "")).trim_start());
    }
    lines
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("kills: {problem}");
    ExitCode::from(2)
}
