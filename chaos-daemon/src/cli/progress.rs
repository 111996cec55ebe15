//! What `chaosctl` shows of a run that goes on: on a terminal one line that is drawn again and again, elsewhere a line whenever
//! something has changed. On stderr, so that stdout has the result alone.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use serde_json::{Value, json};

use super::duration;
use super::show::{list, text};
use crate::host::words;

/// How many characters of the line fit into a terminal of the usual width.
const WIDTH: usize = 79;
/// Back to the beginning of the line, and away with what it has.
const CLEAR: &str = "\r\x1b[K";

/// How it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Not at all.
    Hidden,
    /// As one line, drawn anew.
    Drawn,
    /// As a line for each change.
    Written,
}

/// What is shown of a run.
#[derive(Debug)]
pub(super) struct Progress<W: Write> {
    out: W,
    way: Way,
    /// What the last line was about, but for what changes all the time.
    last: String,
}

impl Progress<std::io::Stderr> {
    /// Nothing is shown yet, and with `json` nothing ever is.
    pub(super) fn new(json: bool) -> Self {
        let way = match (json, stderr().is_terminal()) {
            (true, _) => Way::Hidden,
            (false, true) => Way::Drawn,
            (false, false) => Way::Written,
        };
        Self { out: stderr(), way, last: String::new() }
    }
}

impl<W: Write> Progress<W> {
    /// Whether there is anybody to show it to.
    pub(super) fn is_shown(&self) -> bool {
        self.way != Way::Hidden
    }

    /// Shows what the daemon says of the run.
    pub(super) fn show(&mut self, running: &Value) {
        let (news, line) = (news(running), words::line(&line(running)).into_owned());
        let is_new = news != self.last;
        // A terminal that has gone is no reason to end.
        let _ = match self.way {
            Way::Hidden => Ok(()),
            Way::Drawn => write!(self.out, "{CLEAR}{}", cut(&line)).and_then(|()| self.out.flush()),
            Way::Written if is_new => writeln!(self.out, "{line}"),
            Way::Written => Ok(()),
        };
        self.last = news;
    }

    /// Makes room for the result.
    pub(super) fn end(&mut self) {
        if self.way == Way::Drawn && !self.last.is_empty() {
            let _ = write!(self.out, "{CLEAR}").and_then(|()| self.out.flush());
        }
    }
}

/// `slow: method (cut), 12s, 48s left; p95 512.0, health not met`
pub(super) fn line(running: &Value) -> String {
    let mut line = head(running);
    let elapsed = running["elapsed_seconds"].as_f64().unwrap_or_default();
    // Whole seconds: the rest is gone before anybody has read it.
    let whole = |seconds: f64| duration::show(Duration::from_secs(seconds.max(0.0).round() as u64));
    line.push_str(&format!(", {}", whole(elapsed)));
    if let Some(left) = running["remaining_seconds"].as_f64() {
        line.push_str(&format!(", {} left", whole(left)));
    }
    let samples: Vec<_> = list(running, "latest").iter().map(sample).collect();
    if !samples.is_empty() {
        line.push_str(&format!("; {}", samples.join(", ")));
    }
    line
}

/// What a line is about: whatever else changes in it is no news.
fn news(running: &Value) -> String {
    let met = |sample: &Value| format!("; {} {}", text(sample, "probe"), sample["met"]);
    head(running) + &list(running, "latest").iter().map(met).collect::<String>()
}

fn head(running: &Value) -> String {
    let activities: Vec<_> = list(running, "activities").iter().filter_map(Value::as_str).collect();
    let doing = if activities.is_empty() { String::new() } else { format!(" ({})", activities.join(", ")) };
    format!("{}: {}{doing}", text(running, "experiment_name"), text(running, "phase"))
}

/// The latest sample of a probe or gate, with the value that it has measured.
fn sample(sample: &Value) -> String {
    let value = sample["value"].as_f64().map(|value| format!(" {value:.1}")).unwrap_or_default();
    let unmet = if sample["met"] == json!(false) { " not met" } else { "" };
    let ok = if value.is_empty() && unmet.is_empty() { " ok" } else { "" };
    format!("{}{value}{ok}{unmet}", text(sample, "probe"))
}

fn cut(line: &str) -> String {
    match line.chars().count() > WIDTH {
        true => line.chars().take(WIDTH - 1).chain(['…']).collect(),
        false => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(phase: &str, elapsed: f64, met: bool) -> Value {
        json!({"experiment_name": "slow", "phase": phase, "activities": ["cut"], "elapsed_seconds": elapsed,
            "remaining_seconds": 48.4, "latest": [
                {"probe": "p95", "role": "gate", "value": 512.04, "met": met},
                {"probe": "health", "role": "steady_state", "met": true}]})
    }

    fn shown(way: Way, all: &[Value]) -> String {
        let mut progress = Progress { out: Vec::new(), way, last: String::new() };
        all.iter().for_each(|running| progress.show(running));
        progress.end();
        String::from_utf8(progress.out).unwrap()
    }

    #[test]
    fn a_terminal_has_one_line_that_is_drawn_again_and_goes() {
        let all = [running("method", 12.2, true), running("method", 12.7, false)];
        let expected = "\r\x1b[Kslow: method (cut), 12s, 48s left; p95 512.0, health ok\
                        \r\x1b[Kslow: method (cut), 13s, 48s left; p95 512.0 not met, health ok\r\x1b[K";
        assert_eq!(shown(Way::Drawn, &all), expected);
        assert_eq!(shown(Way::Drawn, &[]), "");
    }

    #[test]
    fn what_is_no_terminal_has_a_line_when_something_has_changed() {
        let all = [
            running("method", 1.0, true),
            running("method", 2.0, true),
            running("method", 3.0, false),
            running("after", 4.0, false),
        ];
        let lines = shown(Way::Written, &all);
        let begins: Vec<_> = lines.lines().map(|line| line.split(", 48s").next().unwrap()).collect();
        assert_eq!(begins, ["slow: method (cut), 1s", "slow: method (cut), 3s", "slow: after (cut), 4s"]);
        assert_eq!(shown(Way::Hidden, &all), "");
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let mut long = running("method", 1.0, true);
        long["experiment_name"] = json!("x".repeat(200));
        let line = shown(Way::Drawn, &[long]);
        assert!(line.contains("x…") && line.chars().count() < 100, "{line}");
    }
}
