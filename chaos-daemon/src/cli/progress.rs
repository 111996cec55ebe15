//! What `chaosctl` shows of a run that goes on, on stderr, so that stdout has the result alone.
//!
//! On a terminal it is some lines that are drawn again and again, and above them what happens. Elsewhere it is a line whenever
//! something has changed. Drawing needs nothing that would have to be taken back: no other screen, no other mode of the terminal, no
//! hidden cursor.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::live::canvas::{Ink, can_be_drawn_on, text};
use super::live::frame::{Frame, doing, times};
use super::live::gauges::Gauges;
use super::live::happened::News;
use super::live::limits::Limits;
use super::live::{bar, canvas};
use crate::experiment::timeline::{Occurrence, Reading};
use crate::host::{terminal, words};
use crate::mcp::results::{RunOutput, RunningView};

/// How many columns and lines a terminal has that does not say.
const SIZE: (u16, u16) = (80, 24);
/// Away with the rest of a line, and of what was drawn.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// How it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Not at all.
    Hidden,
    /// As lines that are drawn anew.
    Drawn,
    /// As a line for each change.
    Written,
}

/// What is looked at of a run that is waited for. Whatever else a daemon of another version says of it, the wait goes on.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Followed {
    /// Whether it has ended.
    #[serde(default)]
    pub(super) ended: bool,
    /// How it went.
    pub(super) run: RunOutput,
    /// What it does right now.
    #[serde(default, deserialize_with = "if_understood")]
    running: Option<RunningView>,
    /// What happened.
    #[serde(default, deserialize_with = "if_understood")]
    events: Vec<Occurrence>,
    /// What was sampled, or what of that is new.
    #[serde(default, deserialize_with = "if_understood")]
    pub(super) samples: Vec<Reading>,
    /// What is run, if that was asked for.
    #[serde(default, deserialize_with = "if_understood")]
    pub(super) document: Option<Map<String, Value>>,
}

/// What is not understood is not shown.
fn if_understood<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// What is shown of a run.
#[derive(Debug)]
pub(super) struct Progress<W: Write> {
    out: W,
    way: Way,
    ink: Ink,
    /// How many columns and lines the terminal has now.
    size: fn() -> (u16, u16),
    /// How many lines are drawn that will be drawn anew.
    drawn: usize,
    /// What the daemon has said last of what it does.
    running: Option<RunningView>,
    gauges: Gauges,
    /// Whether its limits are known, as far as they can be.
    knows_limits: bool,
    /// How many events are told.
    told: usize,
    /// What the last line was about, but for what changes all the time.
    last: String,
    /// When the daemon has said something last.
    heard: Option<Instant>,
    /// Why it cannot be asked.
    trouble: Option<String>,
}

impl Progress<std::io::Stderr> {
    /// Nothing is shown yet, and with `json` nothing ever is.
    pub(super) fn new(json: bool) -> Self {
        let is_drawn = stderr().is_terminal() && can_be_drawn_on(std::env::var_os("TERM"));
        let way = match (json, is_drawn) {
            (true, _) => Way::Hidden,
            (false, true) => Way::Drawn,
            (false, false) => Way::Written,
        };
        Self::to(stderr(), way, Ink::here(), || terminal::size(stderr()).unwrap_or(SIZE))
    }
}

impl<W: Write> Progress<W> {
    fn to(out: W, way: Way, ink: Ink, size: fn() -> (u16, u16)) -> Self {
        Self {
            out,
            way,
            ink,
            size,
            drawn: 0,
            running: None,
            gauges: Gauges::default(),
            knows_limits: false,
            told: 0,
            last: String::new(),
            heard: None,
            trouble: None,
        }
    }

    /// Whether there is anybody to show it to.
    pub(super) fn is_shown(&self) -> bool {
        self.way != Way::Hidden
    }

    /// Whether the document, and all samples so far, are still to be asked for.
    pub(super) fn wants_all(&self) -> bool {
        self.way == Way::Drawn && !self.knows_limits
    }

    /// Says which run is followed, and what ends that.
    pub(super) fn begin(&mut self, run: &str, name: &str, interrupt: &str) {
        self.say(&[(format!("run {run} of {name}; Ctrl-C {interrupt}"), canvas::Tone::Strong)]);
    }

    /// Shows what the daemon says of the run.
    pub(super) fn show(&mut self, seen: &Followed) {
        if !self.is_shown() {
            return;
        }
        (self.heard, self.trouble) = (Some(Instant::now()), None);
        if let Some(document) = &seen.document {
            self.gauges.know(Limits::of(document));
            self.knows_limits = true;
        }
        let mut news: Vec<_> = seen.events.iter().skip(self.told).filter_map(News::of).collect();
        self.told = self.told.max(seen.events.len());
        let latest = seen.running.iter().flat_map(|running| &running.latest);
        news.extend(self.gauges.take(seen.samples.iter().chain(latest)));
        news.sort_by(|one, other| one.at_seconds.total_cmp(&other.at_seconds));
        let mut lines: Vec<_> = news.iter().map(|news| (news.line(), news.tone)).collect();
        if let Some(running) = &seen.running {
            let about = about(running);
            if self.way == Way::Written && about != self.last {
                lines.push((line(running), canvas::Tone::Plain));
                self.last = about;
            }
            self.running = Some(running.clone());
        }
        self.say(&lines);
    }

    /// Shows that the daemon has not answered for a while, if so.
    pub(super) fn is_silent(&mut self) {
        let silent = self.heard.map_or(0, |heard| heard.elapsed().as_secs());
        if self.trouble.is_none() && silent >= 3 {
            self.draw(&[], Some(&format!("the daemon has not answered for {silent}s")));
        }
    }

    /// Shows that the daemon cannot be asked, and for how long its return is waited for.
    pub(super) fn lose(&mut self, why: &str, seconds: u64) {
        let trouble =
            format!("the daemon does not answer; waiting {seconds}s at most for it to come back: {why}");
        if self.trouble.is_none() && self.way == Way::Written {
            self.say(&[(trouble.clone(), canvas::Tone::Bad)]);
        }
        self.draw(&[], Some(&trouble));
        self.trouble = Some(trouble);
    }

    /// Takes away what was drawn, which makes room for the result.
    pub(super) fn end(&mut self) {
        if self.drawn > 0 {
            let away = format!("{}{CLEAR_BELOW}", self.up());
            self.drawn = 0;
            self.write(&away);
        }
    }

    /// Shows the verdict of the run, on a terminal alone: elsewhere the result says it.
    pub(super) fn verdict(&mut self, run: &RunOutput) {
        self.end();
        if self.way == Way::Drawn {
            let (width, ink) = (self.width(), self.ink);
            let lines = text((width, bar::HEIGHT), ink, true, |canvas| bar::draw(canvas, run));
            self.write(&format!("\n{}\n\n", lines.join("\n")));
        }
    }

    /// Says something that stays, above what is drawn.
    fn say(&mut self, lines: &[(String, canvas::Tone)]) {
        match self.way {
            Way::Hidden => {}
            Way::Drawn => {
                let trouble = self.trouble.clone();
                self.draw(lines, trouble.as_deref());
            }
            Way::Written => {
                let all: String = lines.iter().map(|(line, _)| format!("{}\n", words::line(line))).collect();
                self.write(&all);
            }
        }
    }

    /// Draws the run anew, below lines that stay.
    fn draw(&mut self, above: &[(String, canvas::Tone)], trouble: Option<&str>) {
        if self.way != Way::Drawn {
            return;
        }
        let (width, lines) = (self.width(), (self.size)().1);
        let height = u16::try_from(above.len()).unwrap_or(u16::MAX);
        let mut all = text((width, height), self.ink, true, |canvas| {
            for ((line, tone), y) in above.iter().zip(0..) {
                canvas.put((0, y), width, line, *tone);
            }
        });
        let mut frame = Vec::new();
        if let Some(running) = &self.running {
            let shown = Frame { running, gauges: &self.gauges, trouble };
            // All of it has to be on the screen, with the line that the cursor is in: the cursor goes up no further.
            let height = shown.height().min(lines.saturating_sub(1));
            frame = text((width, height), self.ink, true, |canvas| shown.draw(canvas));
        }
        let up = self.up();
        self.drawn = frame.len();
        all.append(&mut frame);
        let mut out = up;
        for line in all {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{line}{CLEAR_LINE}");
        }
        out.push_str(CLEAR_BELOW);
        self.write(&out);
    }

    /// To the first line that is drawn. Where a narrower terminal has broken lines, some of the old ones stay: never is more
    /// overwritten than was drawn.
    fn up(&self) -> String {
        if self.drawn > 0 { format!("\r\x1b[{}A", self.drawn) } else { String::new() }
    }

    /// All columns but the last: a terminal may wrap there.
    fn width(&self) -> u16 {
        (self.size)().0.saturating_sub(1).max(1)
    }

    /// A terminal that has gone is no reason to end.
    fn write(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

/// `slow: method (cut), 12s, 48s left; p95 512.0, health not met`
pub(super) fn line(running: &RunningView) -> String {
    let mut line = format!("{}, {}", head(running), times(running));
    let samples: Vec<_> = running.latest.iter().map(sample).collect();
    if !samples.is_empty() {
        let _ = write!(line, "; {}", samples.join(", "));
    }
    line
}

/// What a line is about: whatever else changes in it is no news.
fn about(running: &RunningView) -> String {
    let met = |sample: &Reading| format!("; {} {} {}", sample.probe, sample.met, sample.no_data);
    head(running) + &running.latest.iter().map(met).collect::<String>()
}

fn head(running: &RunningView) -> String {
    let RunningView { experiment_name, phase, activities, .. } = running;
    format!("{experiment_name}: {}", doing(phase, activities))
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

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
