//! What `chaosctl` shows of a run that goes on: on a terminal one line that is drawn again and again, elsewhere a line whenever
//! something has changed. On stderr, so that stdout has the result alone.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use super::duration;
use crate::experiment::timeline::Reading;
use crate::host::{terminal, words};
use crate::mcp::results::RunningView;

/// How many columns a terminal has that does not say.
const COLUMNS: usize = 80;
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
    /// How many columns the terminal has now.
    columns: fn() -> usize,
}

impl Progress<std::io::Stderr> {
    /// Nothing is shown yet, and with `json` nothing ever is.
    pub(super) fn new(json: bool) -> Self {
        let way = match (json, stderr().is_terminal()) {
            (true, _) => Way::Hidden,
            (false, true) => Way::Drawn,
            (false, false) => Way::Written,
        };
        let columns = || terminal::columns(stderr()).unwrap_or(COLUMNS);
        Self { out: stderr(), way, last: String::new(), columns }
    }
}

impl<W: Write> Progress<W> {
    /// Whether there is anybody to show it to.
    pub(super) fn is_shown(&self) -> bool {
        self.way != Way::Hidden
    }

    /// Shows what the daemon says of the run.
    pub(super) fn show(&mut self, running: &RunningView) {
        let (news, line) = (news(running), words::line(&line(running)).into_owned());
        let is_new = news != self.last;
        // A terminal that has gone is no reason to end.
        let _ = match self.way {
            Way::Hidden => Ok(()),
            Way::Drawn => {
                write!(self.out, "{CLEAR}{}", cut(&line, (self.columns)())).and_then(|()| self.out.flush())
            }
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
pub(super) fn line(running: &RunningView) -> String {
    let mut line = head(running);
    // Whole seconds: the rest is gone before anybody has read it.
    let whole = |seconds: f64| duration::show(Duration::from_secs(seconds.max(0.0).round() as u64));
    line.push_str(&format!(", {}", whole(running.elapsed_seconds)));
    if let Some(left) = running.remaining_seconds {
        line.push_str(&format!(", {} left", whole(left)));
    }
    let samples: Vec<_> = running.latest.iter().map(sample).collect();
    if !samples.is_empty() {
        line.push_str(&format!("; {}", samples.join(", ")));
    }
    line
}

/// What a line is about: whatever else changes in it is no news.
fn news(running: &RunningView) -> String {
    let met = |sample: &Reading| format!("; {} {} {}", sample.probe, sample.met, sample.no_data);
    head(running) + &running.latest.iter().map(met).collect::<String>()
}

fn head(running: &RunningView) -> String {
    let RunningView { experiment_name, phase, activities, .. } = running;
    let doing = if activities.is_empty() { String::new() } else { format!(" ({})", activities.join(", ")) };
    format!("{experiment_name}: {phase}{doing}")
}

/// The latest sample of a probe or gate, with the value that it has measured.
fn sample(sample: &Reading) -> String {
    let value = sample.value.map(|value| format!(" {value:.1}")).unwrap_or_default();
    let unmet = if sample.met { "" } else { " not met" };
    let ok = match value.is_empty() {
        // What was not seen is not well.
        _ if sample.no_data => " no data",
        true if sample.met => " ok",
        _ => "",
    };
    format!("{}{value}{ok}{unmet}", sample.probe)
}

/// As much of a line as fits into so many columns, and leaves the last one free: a terminal may wrap there.
fn cut(line: &str, columns: usize) -> String {
    let width = columns.saturating_sub(1);
    match line.chars().count() > width {
        true => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::role::{Role, Stage};

    fn reading(probe: &str, role: Role, value: Option<f64>, met: bool) -> Reading {
        Reading {
            at_seconds: 1.0,
            time: String::new(),
            probe: probe.to_owned(),
            role,
            stage: Stage::During,
            met,
            value,
            took_seconds: 0.1,
            late_seconds: None,
            no_data: false,
            detail: String::new(),
        }
    }

    fn running(phase: &str, elapsed_seconds: f64, met: bool) -> RunningView {
        RunningView {
            experiment_name: "slow".to_owned(),
            phase: phase.to_owned(),
            activities: vec!["cut".to_owned()],
            elapsed_seconds,
            remaining_seconds: Some(48.4),
            latest: vec![
                reading("p95", Role::Gate, Some(512.04), met),
                reading("health", Role::SteadyState, None, true),
            ],
            ..RunningView::default()
        }
    }

    fn shown(way: Way, all: &[RunningView]) -> String {
        let mut progress = Progress { out: Vec::new(), way, last: String::new(), columns: || 80 };
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
    fn a_gate_without_data_is_not_well() {
        let mut blind = running("method", 1.0, true);
        blind.latest[0] = Reading { value: None, no_data: true, ..reading("p95", Role::Gate, None, true) };
        assert!(line(&blind).ends_with("; p95 no data, health ok"), "{}", line(&blind));
        blind.latest[0].met = false;
        assert!(line(&blind).ends_with("; p95 no data not met, health ok"), "{}", line(&blind));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let long = RunningView { experiment_name: "x".repeat(200), ..running("method", 1.0, true) };
        let line = shown(Way::Drawn, &[long]);
        assert!(line.contains("x…") && line.chars().count() < 100, "{line}");
        for (columns, expected) in
            [(40, "abcdefghij"), (11, "abcdefghij"), (10, "abcdefgh…"), (1, "…"), (0, "…")]
        {
            assert_eq!(cut("abcdefghij", columns), expected, "{columns}");
        }
    }
}
