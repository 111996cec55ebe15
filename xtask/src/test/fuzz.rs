//! cargo-fuzz on the readers of what others have written (`chaos-daemon/src/fuzzing/mod.rs`), one after the other, for so long each.
//!
//! What is found is kept in `target/fuzz/corpus`, beside what is tracked, which a unit test replays. A file that a reader does not
//! bear is kept in `fuzz/artifacts`, and tried first the next time.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use super::chosen::Chosen;
use super::unless_lacking;
use crate::error::Error;
use crate::summary::{Tally, print_replay};
use crate::{run, tools};

/// Of cargo-fuzz.
const VERSION: &str = "0.13.2";
/// For how long each reader is tried, in seconds, if nobody says.
const SECONDS: u64 = 20;
/// How a build for it differs. Without what is not reached, it counts less, and sooner.
const BUILD: &[&str] = &["--features=fuzzing", "--strip-dead-code", "--target-dir=target/fuzz/build"];
/// What libFuzzer is told: the longest input, in bytes, and bounds beside those that each reader is held to. A machine may be busy.
const BOUNDS: &[&str] =
    &["-max_len=32768", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-timeout=20", "-print_final_stats=1"];
/// So many lines of what a failure said are shown.
const SHOWN: usize = 60;

/// Tries each reader, or those of these names.
pub(super) fn fuzz(chosen: &Chosen) -> Result<Tally, Error> {
    let mut program = PathBuf::new();
    let there = tools::require(tools::FUZZ).and_then(|()| cargo_fuzz()).map(|path| program = path);
    unless_lacking(chosen.step, there, || {
        let targets: Vec<_> = targets()?.into_iter().filter(|target| is_meant(chosen, target)).collect();
        build(&program)?;
        let share = chosen.minutes.map(|minutes| 60 * minutes / (targets.len() as u64).max(1));
        let seconds = share.map_or(SECONDS, |share| share.max(SECONDS));
        let mut tally = Tally::default();
        for target in &targets {
            let heard = one(&program, target, seconds)?;
            println!("{target}: {}", heard.line());
            match heard.failure() {
                None => tally.pass(1),
                Some(failure) => {
                    heard.last.iter().for_each(|line| println!("  {line}"));
                    let replay = chosen.replay(target);
                    println!("FAILED: {target}: {failure}");
                    print_replay(&replay);
                    tally.fail_again(format!("{target}: {failure}"), replay);
                }
            }
        }
        tally.cells = targets.len();
        Ok(tally)
    })
}

fn is_meant(chosen: &Chosen, target: &str) -> bool {
    let by_name = chosen.cells.iter().any(|cell| cell == target);
    let by_filter = chosen.filters.iter().any(|filter| target.contains(filter.as_str()));
    by_name || by_filter || (chosen.cells.is_empty() && chosen.filters.is_empty())
}

/// Every reader has a corpus.
fn targets() -> Result<Vec<String>, Error> {
    let folder = run::root().join("fuzz/corpus");
    let listed = fs::read_dir(&folder).map_err(Error::file("list", &folder))?;
    let mut names: Vec<_> =
        listed.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// The program, installed now unless it is there.
fn cargo_fuzz() -> Result<PathBuf, Error> {
    let root = run::root().join(format!("target/fuzz/cargo-fuzz-{VERSION}"));
    let program = root.join("bin/cargo-fuzz");
    if !program.is_file() {
        let mut command = run::cargo();
        command.args(["install", "cargo-fuzz", "--locked", "--version", VERSION, "--root"]).arg(&root);
        status(&mut command).and_then(|status| succeeded(&command, status))?;
    }
    Ok(program)
}

/// cargo-fuzz, with a stable compiler that takes what only unstable ones do: instrumentation for AddressSanitizer.
fn command(program: &Path, subcommand: &str) -> Command {
    let mut command = run::within_tree(Command::new(program));
    command.args(["fuzz", subcommand]).args(BUILD).env("RUSTC_BOOTSTRAP", "1");
    command
}

fn build(program: &Path) -> Result<(), Error> {
    let mut command = command(program, "build");
    status(&mut command).and_then(|status| succeeded(&command, status))
}

fn status(command: &mut Command) -> Result<ExitStatus, Error> {
    command.status().map_err(|source| run::start_error(command, source))
}

fn succeeded(command: &Command, status: ExitStatus) -> Result<(), Error> {
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    match status.success() {
        true => Ok(()),
        false => Err(Error::Status { command: words.join(" "), status, output: String::new() }),
    }
}

/// Tries one reader for so many seconds.
fn one(program: &Path, target: &str, seconds: u64) -> Result<Heard, Error> {
    let found = run::root().join("target/fuzz/corpus").join(target);
    let [tracked, broke] = ["corpus", "artifacts"].map(|kind| Path::new("fuzz").join(kind).join(target));
    for folder in [&found, &run::root().join(&broke)] {
        fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
    }
    let mut command = command(program, "run");
    // What is new goes into the first folder; the others are only read.
    command.arg(target).arg(&found).args([&tracked, &broke]).arg("--").args(BOUNDS);
    command.arg(format!("-max_total_time={seconds}")).stdin(Stdio::null()).stdout(Stdio::null());
    let mut process =
        command.stderr(Stdio::piped()).spawn().map_err(|source| run::start_error(&command, source))?;
    let mut heard = Heard::default();
    for line in process.stderr.take().into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n')) {
        let line = line.map_err(Error::file("read what is said by", program))?;
        heard.read(String::from_utf8_lossy(&line).into_owned());
    }
    heard.succeeded = process.wait().map_err(Error::file("wait for", program))?.success();
    Ok(heard)
}

/// What libFuzzer has said.
#[derive(Debug, Default)]
struct Heard {
    /// How far it came: places in the code that were met, and inputs that have met them.
    coverage: String,
    executions: u64,
    /// The file that was not borne.
    broke: Option<String>,
    succeeded: bool,
    last: VecDeque<String>,
}

impl Heard {
    fn read(&mut self, line: String) {
        if let Some((_, rest)) = line.split_once(" cov: ") {
            let words: Vec<_> = rest.split_whitespace().collect();
            if let [cov, "ft:", ft, "corp:", corpus, ..] = words[..] {
                self.coverage = format!("coverage {cov}, features {ft}, corpus {corpus}");
            }
        }
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = count.trim().parse().unwrap_or_default();
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.broke = Some(path.trim().to_owned());
        }
        self.last.push_back(line);
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
    }

    fn line(&self) -> String {
        format!("{} executions, {}", self.executions, self.coverage)
    }

    /// Why it has failed, if it has.
    fn failure(&self) -> Option<String> {
        match &self.broke {
            Some(path) => Some(format!("does not bear {path}; mended, it belongs into the corpus")),
            None if !self.succeeded => Some("libFuzzer has failed, see above".to_owned()),
            None if self.executions == 0 => Some("nothing was executed".to_owned()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str, succeeded: bool) -> Heard {
        let mut heard = Heard { succeeded, ..Heard::default() };
        text.lines().for_each(|line| heard.read(line.to_owned()));
        heard
    }

    #[test]
    fn executions_and_coverage_are_those_at_the_end() {
        let text = "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
            #4096\tDONE   cov: 345 ft: 678 corp: 90/12Kb lim: 4096 exec/s: 204 rss: 45Mb\n\
            stat::number_of_executed_units: 4096\n";
        let heard = heard(text, true);
        assert_eq!(heard.line(), "4096 executions, coverage 345, features 678, corpus 90/12Kb");
        assert_eq!(heard.failure(), None);
    }

    #[test]
    fn what_was_not_borne_is_named_and_a_fuzzer_that_did_nothing_has_failed() {
        let crash =
            heard("x\nartifact_prefix='fuzz/'; Test unit written to fuzz/artifacts/a/crash-1\n", false);
        assert!(crash.failure().is_some_and(|failure| failure.contains("fuzz/artifacts/a/crash-1")));
        assert!(heard("error: no such target", false).failure().is_some());
        assert!(heard("", true).failure().is_some());
    }
}
