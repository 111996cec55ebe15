//! What a program says: its exit status, and its output.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::program::{Program, keep};
use super::{Sampler, Seen};
use crate::spec::SpecError;
use crate::spec::expression::{expression, is_in_every_text};

/// How long the output of a program that has ended is waited for, when somebody whom it has left behind keeps it open.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How much of an output is shown to people, in characters.
const SHOWN: usize = 120;
/// The option that has the expression.
const STDOUT: &str = "--stdout";

/// What is measured of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Milliseconds until it has ended.
    #[default]
    Time,
    /// The number that its standard output consists of.
    Stdout,
}

/// What can be measured, by name.
pub const MEASURES: &[(&str, Measure)] = &[("time", Measure::Time), ("stdout", Measure::Stdout)];

/// A program, and what is right of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    program: Program,
    /// Statuses that are right; `None` for all.
    status: Option<Vec<i32>>,
    /// What is found in its standard output.
    stdout: Option<String>,
    measure: Measure,
}

/// How a program has ended.
pub(super) struct End {
    status: i32,
    pub(super) stdout: String,
    stderr: String,
}

impl End {
    /// The status, and the first line that it said.
    pub(super) fn words(&self) -> String {
        let Self { status, stdout, stderr } = self;
        match [stdout, stderr].into_iter().find_map(|text| first_line(text)) {
            Some(said) => format!("status {status}, {said:?}"),
            None => format!("status {status}"),
        }
    }
}

impl Command {
    /// Understands a command line, the statuses that are right (0), a regular expression that is found in the standard output, and what is
    /// measured (the time).
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(
        words: Vec<String>,
        status: Vec<u8>,
        stdout: Option<&str>,
        measure: Option<&str>,
    ) -> Result<Self, SpecError> {
        let program = Program::parse("PROGRAM", words)?;
        stdout.map(|given| expression(STDOUT, given)).transpose()?;
        if let Some(given) = stdout.filter(|given| is_in_every_text(given)) {
            let problem = format!("{given:?} is found in every text, also in none, so that this cannot fail");
            return Err(SpecError::new(STDOUT, problem));
        }
        let status = if status.is_empty() { vec![0] } else { status.into_iter().map(i32::from).collect() };
        let measure = super::named("--measure", MEASURES, measure)?;
        Ok(Self { program, status: Some(status), stdout: stdout.map(str::to_owned), measure })
    }

    /// One of which every end is right: something else is to judge.
    pub fn any(program: Program) -> Self {
        Self { program, status: None, stdout: None, measure: Measure::Time }
    }

    fn judge(&self, end: &End) -> Seen {
        let End { status, stdout, stderr } = end;
        let words = end.words();
        let value = match self.measure {
            Measure::Time => None,
            Measure::Stdout => stdout.trim().parse::<f64>().ok().filter(|value| value.is_finite()),
        };
        let verdict = match self.problem(end, value) {
            None => Ok(words),
            Some(problem) => Err(format!("{words}; {problem}")),
        };
        let answer = json!({"status": status, "stdout": stdout, "stderr": stderr});
        Seen { verdict, answer: Some(answer), value, no_data: None }
    }

    fn problem(&self, end: &End, value: Option<f64>) -> Option<String> {
        if let Some(right) = self.status.as_ref().filter(|right| !right.contains(&end.status)) {
            let right: Vec<_> = right.iter().map(ToString::to_string).collect();
            return Some(format!("{} is right", right.join(" or ")));
        }
        if let Some(pattern) = &self.stdout
            && !expression(STDOUT, pattern).is_ok_and(|pattern| is_found(&pattern, &end.stdout))
        {
            return Some(format!("{pattern:?} is not found in its output"));
        }
        (self.measure == Measure::Stdout && value.is_none()).then(|| "its output is no number".to_owned())
    }
}

/// Runs a program to its end, with this at its standard input, for no longer than `limit`.
pub(super) async fn run(program: &Program, input: Option<Vec<u8>>, limit: Duration) -> Result<End, String> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut running = program.start(stdin)?;
    let stdin = running.child.stdin.take();
    let (Some(mut stdout), Some(mut stderr)) = (running.child.stdout.take(), running.child.stderr.take())
    else {
        return Err("has no output".to_owned());
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = {
        let saying = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // One that does not read it all says why by its end.
                let _ = stdin.write_all(&input).await;
            }
        };
        let reading =
            async { tokio::join!(saying, keep(&mut stdout, &mut out), keep(&mut stderr, &mut err)) };
        tokio::pin!(reading);
        let mut read = false;
        let ended = timeout(limit, async {
            loop {
                tokio::select! {
                    ended = running.ended() => return ended,
                    _ = &mut reading, if !read => read = true,
                }
            }
        });
        let ended = ended.await;
        running.kill();
        if !read {
            // What has come by then is what it said.
            let _ = timeout(LAST_WORDS, reading).await;
        }
        ended
    };
    let status = running.collect().await.map_err(|error| error.to_string())?;
    match ended {
        Ok(Ok(())) => Ok(End { status, stdout: text(&out), stderr: text(&err) }),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no end within {limit:?}: killed")),
    }
}

/// Whether an expression is found in a text, as Python finds it: its end is also before the end of the last line.
pub fn is_found(pattern: &Regex, text: &str) -> bool {
    pattern.is_match(text) || text.strip_suffix('\n').is_some_and(|text| pattern.is_match(text))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first line with something in it, as far as it is shown.
fn first_line(text: &str) -> Option<String> {
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    let mut shown: String = line.trim().chars().take(SHOWN).collect();
    if line.trim().chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    Some(shown)
}

impl Sampler for Command {
    async fn take(&self, limit: Duration) -> Seen {
        run(&self.program, None, limit).await.map(|end| self.judge(&end)).into()
    }

    /// What is run.
    fn program(&self) -> Option<&Program> {
        Some(&self.program)
    }

    fn program_mut(&mut self) -> Option<&mut Program> {
        Some(&mut self.program)
    }

    /// Whether it is the time that is measured.
    fn measures_time(&self) -> bool {
        self.measure == Measure::Time
    }

    fn may_change(&self) -> bool {
        true
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {}", self.program)
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
