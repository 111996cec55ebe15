//! The chart of a run against time: a lane for each fault and probe, and a panel for each gate that compares numbers. What is drawn is
//! what was recorded: a sample from its question to its answer, and nothing where there was none.
//!
//! Places along the time are percentages, so that the chart is as wide as the page, and its letters stay as large as they are.

use std::fmt::Write as _;

use chaos_search::picture::escaped;

use super::document::called;
use super::facts::active;
use super::story::Story;
use super::words::{amount, exact, line, seconds};
use super::worst::{Limit, gates};
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::{Kind, Reading};

/// Height of a lane, in pixels.
const LANE: f64 = 22.0;
/// Height of a panel.
const PANEL: f64 = 92.0;
/// What is left free above and below the values of a panel.
const MARGIN: f64 = 10.0;
/// How many dots a panel has at most; of more samples each column has the range.
const MOST_DOTS: usize = 300;
/// The shortest stretch that is drawn for itself, as a share of the whole.
const LEAST: f64 = 0.002;
/// The least width of what is drawn, in percent.
const THINNEST: f64 = 0.15;
/// How many times the usual distance two samples may have that are joined.
const JOINED: f64 = 2.5;

/// The chart, with what its signs mean.
pub(super) fn chart(story: &Story<'_>) -> String {
    let axis = Axis::of(story);
    let mut out = String::from("<div class=\"chart\">\n");
    for fault in &story.recorded.faults {
        lane_of_fault(&mut out, story, &axis, fault);
    }
    let limits: Vec<(&str, Limit)> = gates(story.recorded, story.experiment.as_ref())
        .into_iter()
        .filter_map(|gate| Some((gate, Limit::named(story.experiment.as_ref(), gate)?)))
        .filter(|(gate, _)| of_gate(story, gate).any(|sample| sample.value.is_some() || sample.no_data))
        .collect();
    for (role, probe) in probes(story) {
        if role != Role::Gate || !limits.iter().any(|(gate, _)| *gate == probe) {
            lane_of_probe(&mut out, story, &axis, role, probe);
        }
    }
    for (gate, limit) in &limits {
        panel(&mut out, story, &axis, gate, limit);
    }
    axis.write(&mut out);
    out.push_str("</div>\n");
    out.push_str(LEGEND);
    out
}

/// What the signs of the chart mean.
const LEGEND: &str = "<p class=\"legend\"><b class=\"fault\">fault</b><b class=\"met\">sample as it should be</b>\
    <b class=\"unmet\">not as it should be</b><b class=\"blind\">no data</b><b class=\"failed\">seen to fail</b>\
    <b class=\"recovered\">recovered</b><b class=\"limit\">limit of a gate</b><b class=\"breach\">breach</b></p>\n";

/// Where time is.
struct Axis {
    end: f64,
    step: f64,
    /// When faults were active, which every lane has behind it.
    faults: Vec<(f64, f64)>,
    breach: Option<f64>,
}

impl Axis {
    fn of(story: &Story<'_>) -> Self {
        let recorded = story.recorded;
        let events = recorded.events.iter().map(|event| event.at_seconds);
        let samples = recorded.samples.iter().map(|sample| sample.at_seconds);
        let end = events.chain(samples).fold(recorded.run.duration_seconds.max(0.001), f64::max);
        let steps =
            [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
        let step = steps.into_iter().find(|step| end / step <= 6.0).unwrap_or(end / 5.0);
        let spans = recorded.faults.iter().filter(|fault| !story.is_point(fault));
        let spans: Vec<&str> = spans.map(|fault| fault.name.as_str()).collect();
        let faults =
            active(recorded).filter(|(name, ..)| spans.contains(name)).map(|(_, from, to)| (from, to));
        Self {
            end,
            step,
            faults: faults.collect(),
            breach: story.facts.breach.map(|breach| breach.at_seconds),
        }
    }

    /// The place of a moment, in percent of the width.
    fn x(&self, at: f64) -> f64 {
        at.clamp(0.0, self.end) / self.end * 100.0
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (step, end) = (self.step, self.end);
        (0..).map(move |tick| f64::from(tick) * step).take_while(move |at| *at <= end)
    }

    /// Begins a row: its name at the side, what more there is to say of it, and what is behind it.
    fn begin(&self, out: &mut String, (name, more): (&str, &str), height: f64) {
        let more = if more.is_empty() { String::new() } else { format!("<small>{}</small>", escaped(more)) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<div class=\"lane\"><div class=\"name\">{}{more}</div><svg height=\"{height}\" role=\"img\" aria-label=\"{0}\">\
             <rect class=\"row\" width=\"100%\" height=\"{height}\"/>",
            escaped(name)
        );
        for at in self.ticks() {
            let x = self.x(at);
            let _ =
                write!(out, "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{height}\"/>");
        }
        for (from, to) in &self.faults {
            self.stretch(out, "shade", (*from, *to), (0.0, height), "");
        }
    }

    fn end(&self, out: &mut String, height: f64) {
        if let Some(at) = self.breach {
            let x = self.x(at);
            let _ = write!(
                out,
                "<line class=\"breach\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{height}\"/>"
            );
        }
        out.push_str("</svg></div>\n");
    }

    /// A stretch of time, at a height.
    fn stretch(
        &self,
        out: &mut String,
        class: &str,
        (from, to): (f64, f64),
        (top, height): (f64, f64),
        title: &str,
    ) {
        // What took no time is to be seen, too.
        let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(THINNEST));
        let title =
            if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x:.2}%\" y=\"{top:.1}\" width=\"{width:.2}%\" height=\"{height:.1}\">{title}</rect>"
        );
    }

    /// A sign at a moment, in the middle of a lane.
    fn sign(&self, out: &mut String, class: &str, shape: &str, at: f64, title: &str) {
        let (x, title) = (self.x(at), escaped(title));
        let _ = writeln!(
            out,
            "<svg class=\"sign\" x=\"{x:.2}%\" y=\"{}\" overflow=\"visible\"><path class=\"{class}\" d=\"{shape}\"><title>{title}</title></path></svg>",
            LANE / 2.0
        );
    }

    /// The times below the rows.
    fn write(&self, out: &mut String) {
        out.push_str(
            "<div class=\"lane\"><div class=\"name\"></div><svg height=\"18\" aria-hidden=\"true\">",
        );
        for at in self.ticks() {
            let x = self.x(at);
            let anchor = match x {
                left if left < 3.0 => "start",
                right if right > 97.0 => "end",
                _ => "middle",
            };
            let told = if at == 0.0 { "0".to_owned() } else { seconds(at) };
            let _ = write!(
                out,
                "<text class=\"time\" x=\"{x:.2}%\" y=\"13\" text-anchor=\"{anchor}\">{told}</text>"
            );
        }
        out.push_str("</svg></div>\n");
    }
}

/// The signs, around the point where they are.
const STRIKE: &str = "M0-7L7 0L0 7L-7 0Z";
const FAILED: &str = "M-5.5-5H5.5L0 5.5Z";
const NEW: &str = "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0-4.5 0";
const RECOVERED: &str = "M-5.5 5H5.5L0-5.5Z";

fn lane_of_fault(out: &mut String, story: &Story<'_>, axis: &Axis, fault: &crate::server::history::RunFault) {
    let recorded = story.recorded;
    let name = called(recorded, &fault.name);
    let kind = fault.fault_type.replace('_', " ");
    axis.begin(out, (name, &kind), LANE);
    if let Some((_, from, to)) = active(recorded).find(|(of, ..)| *of == fault.name) {
        match story.is_point(fault) {
            true => {
                let at = story.asked(&fault.name).unwrap_or(from);
                axis.sign(out, "fault", STRIKE, at, &format!("{name}: at {}", seconds(at)));
            }
            false => {
                let title = format!("{name}: active from {} to {}", seconds(from), seconds(to));
                axis.stretch(out, "fault", (from, to), (5.0, LANE - 10.0), &title);
            }
        }
    }
    let incidents = recorded.run.recovery.iter().flat_map(|recovery| &recovery.incidents);
    for incident in incidents.filter(|incident| incident.action == name) {
        let Some(began) = story.began(incident) else { continue };
        for (class, shape, what, after) in [
            ("failed", FAILED, "seen to fail", incident.unreachable_after_seconds),
            ("renewed", NEW, "new process", incident.new_process_after_seconds),
            ("recovered", RECOVERED, "recovered", incident.recovered_after_seconds),
        ] {
            if let Some(after) = after {
                axis.sign(out, class, shape, began + after, &format!("{what} after {}", seconds(after)));
            }
        }
    }
    axis.end(out, LANE);
}

/// The probes that were sampled, in the order of their first samples: a probe of the steady state is one, whatever it was sampled for.
fn probes<'a>(story: &Story<'a>) -> Vec<(Role, &'a str)> {
    let mut probes: Vec<(Role, &str)> = Vec::new();
    for sample in &story.recorded.samples {
        let probe = (kind(sample.role), sample.probe.as_str());
        if !probes.contains(&probe) {
            probes.push(probe);
        }
    }
    probes
}

fn kind(role: Role) -> Role {
    match role {
        Role::SteadyState | Role::Method | Role::Recovery => Role::SteadyState,
        other => other,
    }
}

/// Samples of one probe, each from its question to its answer. Those that say the same, and are too near to each other to be told apart,
/// are one stretch.
fn lane_of_probe(out: &mut String, story: &Story<'_>, axis: &Axis, role: Role, probe: &str) {
    let what = match role {
        Role::Gate => "gate",
        Role::Alert => "alert",
        Role::SteadyState | Role::Method | Role::Recovery => "",
    };
    let mut spans: Vec<(f64, f64, &str, &Reading)> = Vec::new();
    let samples = story.recorded.samples.iter();
    for sample in samples.filter(|sample| kind(sample.role) == role && sample.probe == probe) {
        let (from, class) = (asked(sample), class(sample));
        match spans.last_mut() {
            Some((_, to, of, _)) if *of == class && from - *to <= axis.end * LEAST => *to = sample.at_seconds,
            _ => spans.push((from, sample.at_seconds, class, sample)),
        }
    }
    axis.begin(out, (probe, what), LANE);
    for (from, to, class, sample) in spans {
        let title = format!("{}: {}", seconds(sample.at_seconds), line(&sample.detail));
        axis.stretch(out, class, (from, to), (5.0, LANE - 10.0), &title);
    }
    for event in story.recorded.events.iter().filter(|event| role == Role::Alert && event.subject == probe) {
        match event.kind {
            Kind::AlertFired => axis.sign(out, "failed", FAILED, event.at_seconds, "fired"),
            Kind::AlertGone => axis.sign(out, "recovered", RECOVERED, event.at_seconds, "gone"),
            _ => {}
        }
    }
    axis.end(out, LANE);
}

/// When a sample was asked for.
fn asked(sample: &Reading) -> f64 {
    (sample.at_seconds - sample.took_seconds).max(0.0)
}

fn class(sample: &Reading) -> &'static str {
    match (sample.no_data, sample.met) {
        (true, _) => "blind",
        (false, true) => "met",
        (false, false) => "unmet",
    }
}

fn of_gate<'a>(story: &Story<'a>, gate: &'a str) -> impl Iterator<Item = &'a Reading> + use<'a> {
    story.recorded.samples.iter().filter(move |sample| sample.role == Role::Gate && sample.probe == gate)
}

/// What a gate has measured over time, with the limit that makes a breach.
fn panel(out: &mut String, story: &Story<'_>, axis: &Axis, gate: &str, limit: &Limit) {
    let samples: Vec<&Reading> = of_gate(story, gate).collect();
    let during = samples.iter().filter(|sample| sample.stage != Stage::Before);
    let worst = Limit::worst(limit.op, during.filter_map(|sample| sample.value));
    let worst = worst.map(|worst| format!(", worst {}", amount(worst, limit.unit))).unwrap_or_default();
    axis.begin(out, (gate, &format!("breach {}{worst}", limit.breach())), PANEL);
    let values = || samples.iter().filter_map(|sample| sample.value).chain([limit.value]);
    let (low, high) = (values().fold(0.0, f64::min), values().fold(f64::MIN_POSITIVE, f64::max));
    let y =
        |value: f64| MARGIN + (high - value) / (high - low).max(f64::MIN_POSITIVE) * (PANEL - 2.0 * MARGIN);
    for sample in samples.iter().filter(|sample| sample.value.is_none()) {
        let title = format!("{}: {}", seconds(sample.at_seconds), line(&sample.detail));
        axis.stretch(out, class(sample), (asked(sample), sample.at_seconds), (PANEL - 5.0, 4.0), &title);
    }
    match samples.len() <= MOST_DOTS {
        true => dots(out, axis, &samples, &y, limit.unit),
        false => ranges(out, axis, &samples, &y),
    }
    let at = y(limit.value);
    // Above the line, or below where there is no room.
    let label = if at < 16.0 { at + 12.0 } else { at - 4.0 };
    let _ = writeln!(
        out,
        "<line class=\"limit\" x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"limit\" x=\"4\" y=\"{label:.1}\">{}</text>",
        escaped(&exact(limit.value, limit.unit))
    );
    axis.end(out, PANEL);
}

/// Each sample as a dot; two that are as near as usual are joined.
fn dots(out: &mut String, axis: &Axis, samples: &[&Reading], y: &dyn Fn(f64) -> f64, unit: &str) {
    let mut gaps: Vec<f64> = samples.windows(2).map(|two| two[1].at_seconds - two[0].at_seconds).collect();
    gaps.sort_by(f64::total_cmp);
    let usual = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
    for two in samples.windows(2) {
        let [left, right] = two else { continue };
        let near = right.at_seconds - left.at_seconds <= usual * JOINED;
        if let (Some(from), Some(to), true) = (left.value, right.value, near) {
            let (x1, x2) = (axis.x(left.at_seconds), axis.x(right.at_seconds));
            let _ = write!(
                out,
                "<line class=\"trace\" x1=\"{x1:.2}%\" y1=\"{:.1}\" x2=\"{x2:.2}%\" y2=\"{:.1}\"/>",
                y(from),
                y(to)
            );
        }
    }
    for sample in samples {
        let Some(value) = sample.value else { continue };
        let (x, y, class) = (axis.x(sample.at_seconds), y(value), class(sample));
        let title = format!("{}: {}", seconds(sample.at_seconds), amount(value, unit));
        let _ = writeln!(
            out,
            "<circle class=\"{class}\" cx=\"{x:.2}%\" cy=\"{y:.1}\" r=\"2.6\"><title>{}</title></circle>",
            escaped(&title)
        );
    }
}

/// Of each column of the chart the least and the most that was measured in it.
fn ranges(out: &mut String, axis: &Axis, samples: &[&Reading], y: &dyn Fn(f64) -> f64) {
    let mut columns: Vec<Option<(f64, f64, &str)>> = vec![None; MOST_DOTS + 1];
    for sample in samples {
        let Some(value) = sample.value else { continue };
        // From 0 to the number of columns.
        let at = (axis.x(sample.at_seconds) / 100.0 * MOST_DOTS as f64) as usize;
        let Some(column) = columns.get_mut(at) else { continue };
        let (low, high, of) = column.unwrap_or((value, value, class(sample)));
        let class = if sample.met { of } else { "unmet" };
        *column = Some((low.min(value), high.max(value), class));
    }
    for (at, column) in columns.iter().enumerate() {
        let Some((low, high, class)) = column else { continue };
        let x = at as f64 / MOST_DOTS as f64 * 100.0;
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x:.2}%\" width=\"0.2%\" y=\"{:.1}\" height=\"{:.1}\"/>",
            y(*high) - 1.0,
            y(*low) - y(*high) + 2.0
        );
    }
}
