//! The samples of a run as they come: of each gate and probe the latest, a graph of those before, and what is right.

use std::collections::{BTreeMap, VecDeque};

use ratatui::layout::Rect;
use ratatui::widgets::{Sparkline, SparklineBar, Widget as _};

use super::canvas::{Canvas, Tone, columns};
use super::happened::News;
use super::limits::{Limit, Limits};
use crate::cli::show;
use crate::experiment::gate;
use crate::experiment::role::Role;
use crate::experiment::timeline::Reading;

/// How many samples of each are kept for its graph.
const KEPT: usize = 120;
/// The most columns of a value with its unit, and of a graph.
const VALUE: u16 = 11;
const GRAPH: u16 = 40;
/// The height of a graph, in steps that it can show.
const HEIGHT: u64 = 64;

/// One sample of a graph.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bar {
    value: Option<f64>,
    met: bool,
    no_data: bool,
}

/// A gate or a probe.
#[derive(Debug, Clone)]
struct Gauge {
    latest: Reading,
    bars: VecDeque<Bar>,
    /// Since when it is not as it should be.
    bad_since: Option<f64>,
}

/// All of a run: gates first, as the daemon has them.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Gauges {
    all: BTreeMap<(bool, Role, String), Gauge>,
    limits: Limits,
}

impl Gauges {
    /// That these limits are known from now on.
    pub(in crate::cli) fn know(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How many there are.
    pub(in crate::cli) fn len(&self) -> u16 {
        u16::try_from(self.all.len()).unwrap_or(u16::MAX)
    }

    /// Takes in samples, in their order, and says what has turned. What was taken in before is left out.
    pub(in crate::cli) fn take<'a>(&mut self, samples: impl IntoIterator<Item = &'a Reading>) -> Vec<News> {
        samples.into_iter().filter_map(|sample| self.take_one(sample)).collect()
    }

    fn take_one(&mut self, sample: &Reading) -> Option<News> {
        // As the timeline of the daemon has it.
        let role = if sample.role == Role::Recovery { Role::SteadyState } else { sample.role };
        let key = (role != Role::Gate, role, sample.probe.clone());
        let is_new = !self.all.contains_key(&key);
        let gauge = self.all.entry(key).or_insert_with(|| Gauge {
            latest: sample.clone(),
            bars: VecDeque::new(),
            bad_since: None,
        });
        if !is_new && sample.at_seconds <= gauge.latest.at_seconds {
            return None;
        }
        let Reading { value, met, no_data, .. } = *sample;
        gauge.bars.push_back(Bar { value, met, no_data });
        if gauge.bars.len() > KEPT {
            gauge.bars.pop_front();
        }
        gauge.latest = sample.clone();
        gauge.turn()
    }

    /// Draws a line each, into the first columns of an area, as many as there is room for.
    pub(in crate::cli) fn draw(&self, canvas: &mut Canvas<'_>, area: Rect) {
        let limits: Vec<_> = self.all.keys().map(|(is_other, _, name)| self.limit(!is_other, name)).collect();
        let widest = |widths: &mut dyn Iterator<Item = u16>| widths.max().unwrap_or_default();
        let name = widest(&mut self.all.keys().map(|(_, _, name)| columns(name))).min(area.width / 4).max(4);
        let words =
            widest(&mut limits.iter().map(|limit| columns(&limit.words))).min((area.width * 2 / 5).max(12));
        // A mark, and two columns between the parts.
        let taken = 2 + name + 2 + VALUE + 2 + if words > 0 { words + 2 } else { 0 };
        let graph = area.width.saturating_sub(taken).min(GRAPH);
        for ((gauge, limit), y) in self.all.values().zip(&limits).zip(area.top()..area.bottom()) {
            let mut x = area.left();
            let (mark, tone) = gauge.mark();
            canvas.put((x, y), 2, mark, tone);
            x += 2;
            canvas.put((x, y), name, &gauge.latest.probe, Tone::Plain);
            x += name + 2;
            canvas.put_right((x, y), VALUE, &gauge.value(limit.unit), tone);
            x += VALUE + 2;
            gauge.graph(canvas, Rect::new(x, y, graph, 1).intersection(area));
            x += graph + 2;
            canvas.put((x, y), words, &limit.words, Tone::Dim);
        }
    }

    fn limit(&self, is_gate: bool, name: &str) -> Limit {
        match self.limits.get(is_gate, name) {
            Some(limit) => limit.clone(),
            // Those of the host are no gates of the document, and all of them are shares.
            None if gate::is_of_the_host(name) => Limit { unit: "%", words: "by the policy".to_owned() },
            None => Limit::default(),
        }
    }
}

impl Gauge {
    /// Says so if it has become bad, or well again. Of alerts the events tell.
    fn turn(&mut self) -> Option<News> {
        let Reading { at_seconds, ref probe, role, met, ref detail, .. } = self.latest;
        let news = match (met, self.bad_since) {
            (false, None) => {
                self.bad_since = Some(at_seconds);
                (Tone::Bad, format!("{probe} seen to fail: {detail}"))
            }
            (true, Some(since)) => {
                self.bad_since = None;
                let after = show::seconds((at_seconds - since).max(0.0));
                (Tone::Good, format!("{probe} recovered after {after}"))
            }
            _ => return None,
        };
        (role != Role::Alert).then_some(News { at_seconds, tone: news.0, words: news.1 })
    }

    /// What it is right now, as a mark that needs no colour.
    fn mark(&self) -> (&'static str, Tone) {
        match (self.latest.met, self.latest.no_data) {
            // What was not seen is not well.
            (true, true) => ("?", Tone::Doubt),
            (true, false) => ("✓", Tone::Good),
            (false, _) => ("✗", Tone::Bad),
        }
    }

    /// The latest value with its unit, or what there is in place of one.
    fn value(&self, unit: &str) -> String {
        match self.latest.value {
            Some(value) => format!("{} {unit}", number(value)).trim_end().to_owned(),
            None if self.latest.no_data => "no data".to_owned(),
            None if self.latest.met => "ok".to_owned(),
            None => "not met".to_owned(),
        }
    }

    /// The latest samples as bars, the newest at the right; one without a value is full if it was bad.
    fn graph(&self, canvas: &mut Canvas<'_>, area: Rect) {
        let shown = self.bars.iter().skip(self.bars.len().saturating_sub(usize::from(area.width)));
        let values: Vec<_> = shown.clone().filter_map(|bar| bar.value).collect();
        let low = values.iter().copied().fold(0.0, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        let bars = shown.map(|bar| {
            let height = match (bar.value, bar.no_data) {
                (Some(value), _) => Some(step((value - low) / (high - low))),
                (None, true) => None,
                (None, false) => Some(step(if bar.met { 0.0 } else { 1.0 })),
            };
            let tone = if bar.met { Tone::Good } else { Tone::Bad };
            SparklineBar::from(height).style(canvas.ink.style(tone))
        });
        let graph = Sparkline::default().data(bars.collect::<Vec<_>>()).max(HEIGHT).absent_value_symbol("·");
        graph.render(area, canvas.cells);
    }
}

/// A height of a graph; the least can be seen.
fn step(share: f64) -> u64 {
    let least = HEIGHT / 8;
    // Between both by the clamp; of no number the least.
    least + (share.clamp(0.0, 1.0) * (HEIGHT - least) as f64) as u64
}

/// A number with three digits that say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e7 || (size > 0.0 && size < 5e-3) => format!("{value:.2e}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;
    use crate::cli::live::canvas::{Ink, text};
    use crate::experiment::role::Stage;

    /// A sample at this second.
    pub(in crate::cli) fn reading(
        probe: &str,
        role: Role,
        at: f64,
        value: Option<f64>,
        met: bool,
    ) -> Reading {
        Reading {
            at_seconds: at,
            time: String::new(),
            probe: probe.to_owned(),
            role,
            stage: Stage::During,
            met,
            value,
            took_seconds: 0.1,
            late_seconds: None,
            no_data: false,
            detail: format!("{probe} says"),
        }
    }

    fn drawn(gauges: &Gauges, width: u16) -> Vec<String> {
        text((width, gauges.len()), Ink { colours: false }, false, |canvas| {
            gauges.draw(canvas, canvas.cells.area);
        })
    }

    #[test]
    fn what_turns_is_told_once_and_what_was_taken_in_before_is_left_out() {
        let mut gauges = Gauges::default();
        let good = |at| reading("up", Role::SteadyState, at, None, true);
        let bad = |at| reading("up", Role::Recovery, at, None, false);
        assert_eq!(gauges.take([&good(1.0)]), []);
        let news = gauges.take([&good(1.0), &bad(2.0), &bad(2.5)]);
        let told: Vec<_> = news.iter().map(|news| (news.at_seconds, news.words.as_str())).collect();
        assert_eq!(told, [(2.0, "up seen to fail: up says")]);
        let news = gauges.take([&bad(2.5), &good(4.0)]);
        assert_eq!(news.len(), 1, "{news:?}");
        assert_eq!(news[0].line(), "    4.000 s  up recovered after 2s");
        assert_eq!((gauges.len(), drawn(&gauges, 60)[0].contains("▁██▁")), (1, true));
        assert_eq!(gauges.take([&reading("pager", Role::Alert, 5.0, None, false)]), []);
    }

    #[test]
    fn gates_come_first_and_a_graph_has_a_bar_for_each_sample() {
        let mut gauges = Gauges::default();
        gauges.take([&reading("health", Role::SteadyState, 1.0, None, true)]);
        for (at, value) in [(1.0, 0.0), (2.0, 50.0), (3.0, 100.0)] {
            gauges.take([&reading("p95", Role::Gate, at, Some(value), value < 100.0)]);
        }
        gauges.take([&Reading { no_data: true, ..reading("blind", Role::Gate, 1.0, None, true) }]);
        let lines = drawn(&gauges, 60);
        assert_eq!(lines[0], "? blind       no data  ·");
        assert_eq!(lines[1], "✗ p95             100  ▁▄█");
        assert_eq!(lines[2], "✓ health           ok  ▁");
        for width in [1, 10, 30, 60, 80, 120] {
            assert!(drawn(&gauges, width).iter().all(|line| columns(line) <= width), "{width}");
        }
    }

    #[test]
    fn a_number_has_the_digits_that_say_something() {
        for (value, shown) in [
            (0.0, "0"),
            (200.0, "200"),
            (512.04, "512"),
            (12.34, "12.3"),
            (-1.256, "-1.26"),
            (0.0001, "1.00e-4"),
            (3e9, "3.00e9"),
        ] {
            assert_eq!(number(value), shown);
        }
    }
}
