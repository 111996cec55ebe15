//! The chart of a run: a row for each fault, probe and gate, drawn against time, as SVG.

use std::fmt::Write as _;

use chaos_search::picture::escaped;

use super::document::called;
use super::{Facts, active};
use crate::experiment::role::Role;
use crate::experiment::timeline::Reading;
use crate::server::history::Recorded;

/// Width of what is left of the rows, for their names.
const NAMES: f64 = 200.0;
/// Width of the rows.
const WIDTH: f64 = 720.0;
/// Height of a row.
const ROW: f64 = 24.0;
/// The least width of anything drawn, so that it is seen.
const LEAST: f64 = 2.0;
/// The longest name that is written in full, in characters.
const LONGEST_NAME: usize = 26;

/// A stretch of a row that is drawn in one colour.
#[derive(Debug, Clone, PartialEq)]
struct Span {
    from: f64,
    to: f64,
    class: &'static str,
    title: String,
}

/// The row of a sample: a probe has one, whatever it was sampled for.
fn row_name(role: Role, probe: &str) -> String {
    match role {
        Role::SteadyState | Role::Method | Role::Recovery => probe.to_owned(),
        Role::Gate => format!("gate {probe}"),
        Role::Alert => format!("alert {probe}"),
    }
}

/// The chart.
pub(super) fn chart(recorded: &Recorded) -> String {
    let mut rows: Vec<(String, Vec<Span>)> = Vec::new();
    for (name, from, to) in active(recorded) {
        let name = called(recorded, name);
        let title = format!("{name}: active from {from:.1} s to {to:.1} s");
        rows.push((format!("fault {name}"), vec![Span { from, to, class: "fault", title }]));
    }
    let last = |times: &mut dyn Iterator<Item = f64>| times.fold(0.0, f64::max);
    let end = last(&mut recorded.events.iter().map(|event| event.at_seconds))
        .max(last(&mut recorded.samples.iter().map(|sample| sample.at_seconds)))
        .max(recorded.run.duration_seconds)
        .max(0.001);
    rows.extend(probes(recorded, end));
    let x = |at: f64| NAMES + at.clamp(0.0, end) / end * WIDTH;
    let bottom = ROW * rows.len() as f64;
    let (width, height) = (NAMES + WIDTH + 20.0, bottom + 30.0);
    // Writing to a string cannot fail.
    let mut out = format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-label=\"Faults, probes and gates against time\">\n"
    );
    for (row, (name, spans)) in (0..).map(f64::from).zip(&rows) {
        let top = row * ROW;
        let short: String = name.chars().take(LONGEST_NAME).collect();
        let dots = if short.len() < name.len() { "…" } else { "" };
        let _ = writeln!(
            out,
            "<text class=\"name\" x=\"0\" y=\"{:.1}\">{}{dots}<title>{}</title></text>",
            top + 16.0,
            escaped(&short),
            escaped(name)
        );
        let _ = writeln!(
            out,
            "<rect class=\"row\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{WIDTH}\" height=\"{:.1}\"/>",
            top + 4.0,
            ROW - 8.0
        );
        for span in spans {
            let _ = writeln!(
                out,
                "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                span.class,
                x(span.from),
                top + 4.0,
                (x(span.to) - x(span.from)).max(LEAST),
                ROW - 8.0,
                escaped(&span.title)
            );
        }
    }
    if let Some(breach) = Facts::of(recorded).breach {
        let at = x(breach.at_seconds);
        let _ = writeln!(
            out,
            "<line class=\"breach\" x1=\"{at:.1}\" y1=\"0\" x2=\"{at:.1}\" y2=\"{bottom:.1}\"><title>{}</title></line>",
            escaped(&breach.detail)
        );
    }
    for part in 0..=4 {
        let at = end * f64::from(part) / 4.0;
        let anchor = ["start", "middle", "middle", "middle", "end"][part as usize];
        let _ = writeln!(
            out,
            "<text class=\"time\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{at:.1} s</text>",
            x(at),
            bottom + 20.0
        );
    }
    out.push_str("</svg>\n");
    out
}

/// A row for each probe, in the order of their first samples, of a chart that ends then.
fn probes(recorded: &Recorded, end: f64) -> Vec<(String, Vec<Span>)> {
    let mut names: Vec<String> = Vec::new();
    for sample in &recorded.samples {
        let name = row_name(sample.role, &sample.probe);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |name: String| {
        let of = |sample: &&Reading| row_name(sample.role, &sample.probe) == name;
        let spans = spans(recorded.samples.iter().filter(of), end * LEAST / WIDTH);
        (name, spans)
    };
    names.into_iter().map(row).collect()
}

/// Samples of one probe, each from its question to its answer. Of the time between two nothing is known, and nothing drawn. Those that
/// say the same, and are too near to each other to be told apart, are one stretch.
fn spans<'a>(samples: impl Iterator<Item = &'a Reading>, seen: f64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for sample in samples {
        let class = match (sample.no_data, sample.met) {
            (true, _) => "blind",
            (false, true) => "met",
            (false, false) => "unmet",
        };
        let from = (sample.at_seconds - sample.took_seconds).max(0.0);
        match spans.last_mut() {
            Some(span) if span.class == class && from - span.to <= seen => span.to = sample.at_seconds,
            _ => spans.push(Span {
                from,
                to: sample.at_seconds,
                class,
                title: format!("{:.1} s: {}", sample.at_seconds, sample.detail),
            }),
        }
    }
    spans
}
