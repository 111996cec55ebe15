//! `cargo xtask tidy --figures`: what the tree weighs, and what a change of it costs.

use std::process::{Command, ExitCode};

use super::Source;
use super::circles::circles;
use super::look_ups;
use crate::error::Error;
use crate::run;

/// Where programs are, and not their tests.
const PROGRAMS: [&str; 4] = ["chaos-common/", "chaos-daemon/", "chaos-ebpf/", "xtask/"];

/// Lines of Rust.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    comments: usize,
    tests: usize,
    /// Functions that are tests.
    test_functions: usize,
}

/// Prints the figures as tables of Markdown.
pub(super) fn print(sources: &[Source], commits: &[String]) -> Result<ExitCode, Error> {
    println!(
        "| lines of Rust | code | comments | share of comments | tests | test functions |\n|---|---|---|---|---|---|"
    );
    let mut all = Lines::default();
    for folder in PROGRAMS.into_iter().chain(["tests/", "fuzz/"]) {
        let mut lines = Lines::default();
        for source in sources.iter().filter(|source| source.is_rust() && source.path.starts_with(folder)) {
            lines.add(&count(source));
        }
        if PROGRAMS.contains(&folder) {
            all.add(&lines);
        }
        print_lines(&format!("`{folder}`"), &lines);
    }
    print_lines("all but `tests/` and `fuzz/`", &all);

    println!("\n| circle | file | names of the circle |\n|---|---|---|");
    for circle in circles(sources) {
        for (file, named) in &circle {
            let named: Vec<_> = named.iter().map(String::as_str).collect();
            println!("| {} | {file} | {} |", circle.len(), named.join(", "));
        }
    }

    let look_ups = look_ups::all(sources);
    println!("\n| values looked up by strings in `{}` | {look_ups} |\n|---|---|", look_ups::COMMAND_LINE);

    if !commits.is_empty() {
        println!("\n| commit | files changed that were there | new files |\n|---|---|---|");
    }
    let mut changed = Vec::new();
    for commit in commits {
        let (existing, new) = touched(commit)?;
        println!("| {commit} | {existing} | {new} |");
        changed.push(existing);
    }
    changed.sort_unstable();
    if let Some(median) = changed.get(changed.len() / 2) {
        println!("| median | {median} | |");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_lines(name: &str, lines: &Lines) {
    let Lines { code, comments, tests, test_functions } = lines;
    let share = comments * 100 / (code + comments).max(1);
    println!("| {name} | {code} | {comments} | {share} % | {tests} | {test_functions} |");
}

impl Lines {
    fn add(&mut self, other: &Self) {
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
        self.test_functions += other.test_functions;
    }
}

/// Counts by lines; one with code and a comment is code, one without either does not count.
fn count(source: &Source) -> Lines {
    let mut lines = Lines::default();
    let mut of_tests = source.path.starts_with("tests/")
        || source.path.ends_with("tests.rs")
        || source.path.contains("_tests/");
    let mut previous = "";
    for line in source.text.lines().map(str::trim_end) {
        // A module of tests is the last thing in its file.
        of_tests |= previous == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{');
        previous = line;
        let line = line.trim_start();
        lines.test_functions += usize::from(line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
        match (line.is_empty(), of_tests, line.starts_with("//")) {
            (true, ..) => {}
            (_, true, _) => lines.tests += 1,
            (_, _, true) => lines.comments += 1,
            _ => lines.code += 1,
        }
    }
    lines
}

/// How many files a commit has changed that were there, and how many it has added.
fn touched(commit: &str) -> Result<(usize, usize), Error> {
    let list = run::text(
        Command::new("git").args(["show", "--format=", "--name-status", commit]).current_dir(run::root()),
    )?;
    let new = list.lines().filter(|line| line.starts_with('A')).count();
    Ok((list.lines().filter(|line| !line.is_empty()).count() - new, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_code_comments_or_tests() {
        let text =
            "//! What it is.\n\nfn f() {} // why\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn g() {}\n}\n";
        let lines = count(&Source { path: "chaos-daemon/src/a.rs".into(), text: text.into() });
        assert_eq!(lines, Lines { code: 2, comments: 1, tests: 4, test_functions: 1 });
    }
}
