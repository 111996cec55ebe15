//! `sabotage --results=FILE [--netem] [--partition=K/N] [--cell=NAME]... [--until=SECONDS] [--list]`: takes each guard out of the
//! daemon in turn and sees whether a test notices; with `--netem` those that need netem, without it all others. One JSON line per
//! verdict, as `test-runner` writes; last, how many verdicts and cells there were.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

use crate::cells::{self, Choice};
use crate::runner::Verdict;
use crate::sabotage::{self, Stage};

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let (mut netem, mut choice) = (false, Choice::default());
    let mut results = "/dev/stdout".to_owned();
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("--results", path)) => path.clone_into(&mut results),
            None if argument == "--netem" => netem = true,
            _ if choice.take(&argument).is_some() => {}
            _ => return refuse(&format!("what is {argument}?")),
        }
    }
    let cells = match choice.of(sabotage::cells(netem), |cell| &cell.name) {
        Ok(cells) if choice.is_list => {
            return cells::print(&cells.iter().map(|cell| &cell.name).collect::<Vec<_>>());
        }
        Ok(cells) => cells,
        Err(problem) => return refuse(&problem),
    };
    let mut sink = match OpenOptions::new().append(true).create(true).open(&results) {
        Ok(sink) => sink,
        Err(error) => return refuse(&format!("open {results}: {error}")),
    };
    let mut write = |value: serde_json::Value| {
        if let Err(error) = writeln!(sink, "{value}") {
            eprintln!("sabotage: write to {results}: {error}");
        }
    };
    let stage = match Stage::new() {
        Ok(stage) => stage,
        Err(error) => return refuse(&error.to_string()),
    };
    // SAFETY: this process has one thread still.
    unsafe { std::env::set_var("CHAOS_BIN_DIR", stage.folder()) };
    let mut failed = false;
    let (count, left) = stage.run(&cells, &choice, |line| {
        failed |= line.outcome == Verdict::Fail;
        write(serde_json::json!(line));
    });
    write(serde_json::json!({"done": true, "count": count, "cells": cells.len() - left, "left": left}));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("sabotage: {problem}");
    ExitCode::from(2)
}
