//! `test-runner [--results=FILE] [--filter=TEXT]... [--limit=SECONDS] [--leave-out=FILE] [--partition=K/N] [--cell=TEST]...
//! [--until=SECONDS] [--list] EXECUTABLE...`: runs the tests of the executables whose names contain one of the texts, of these
//! every N-th from the K-th, or those that are cells, but for those that a line of the file names, behind a space with the reason,
//! and writes one JSON line per test, then the count. It begins no test when the machine has been up for so many seconds. With
//! `--list` it only says which they are.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::cells::{self, Choice};
use crate::fault::LONG;
use crate::runner::{self, Count, Plan, Verdict};

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let mut plan = Plan {
        executables: Vec::new(),
        filters: Vec::new(),
        limit: LONG,
        leave_out: HashMap::new(),
        choice: Choice::default(),
    };
    let mut results = PathBuf::from("/dev/stdout");
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("--results", path)) => results = path.into(),
            Some(("--filter", text)) => plan.filters.push(text.to_owned()),
            Some(("--limit", text)) => match text.parse() {
                Ok(seconds) => plan.limit = Duration::from_secs(seconds),
                Err(error) => return usage(&format!("--limit {text}: {error}")),
            },
            Some(("--leave-out", path)) => match std::fs::read_to_string(path) {
                Ok(text) => plan.leave_out = text.lines().map(left_out).collect(),
                Err(error) => return usage(&format!("--leave-out {path}: {error}")),
            },
            _ if plan.choice.take(&argument).is_some() => {}
            _ if argument.starts_with('-') => return usage(&format!("unknown option {argument}")),
            _ => plan.executables.push(argument.into()),
        }
    }
    if plan.choice.is_list {
        return match runner::names(&plan) {
            Ok(names) => cells::print(&names),
            Err(error) => usage(&error.to_string()),
        };
    }
    // Not truncated: it may be a terminal, or a file that somebody reads from already.
    let mut sink = match OpenOptions::new().append(true).create(true).open(&results) {
        Ok(sink) => sink,
        Err(error) => return usage(&format!("open {}: {error}", results.display())),
    };
    let mut write = |value: serde_json::Value| {
        if let Err(error) = writeln!(sink, "{value}") {
            eprintln!("test-runner: write to {}: {error}", results.display());
        }
    };
    let mut failed = false;
    let count = runner::run(&plan, |line| {
        failed |= line.outcome == Verdict::Fail;
        write(serde_json::json!(line));
    });
    match count {
        Ok(Count { run, left }) => {
            write(serde_json::json!({ "done": true, "count": run, "left": left }));
            if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => usage(&error.to_string()),
    }
}

fn left_out(line: &str) -> (String, String) {
    let (name, why) = line.split_once(' ').unwrap_or((line, ""));
    (name.to_owned(), why.to_owned())
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("test-runner: {problem}");
    ExitCode::from(2)
}
