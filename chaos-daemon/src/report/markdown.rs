//! The report as Markdown.

use std::fmt::Write as _;

use super::document::called;
use super::{paragraph, place, verdict, word};
use crate::server::history::Recorded;
use crate::server::history::score::score;

/// The most samples in the table; those that are not met come first.
const SHOWN_SAMPLES: usize = 50;

/// The report on a run.
pub fn report(recorded: &Recorded) -> String {
    let run = &recorded.run;
    let mut out = format!("# {}: {}\n\n", plain(&run.experiment_name), verdict(recorded));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}\n", plain(&paragraph(recorded)));
    if let Some(score) = score(recorded) {
        let _ = writeln!(
            out,
            "## Resiliency score: {}\n\n| fault | type | weight | probes passed |\n|---|---|---|---|",
            score.score
        );
        for factor in &score.factors {
            let passed = match factor.ran {
                true => format!("{:.0} %", factor.probe_success_percent),
                false => "not injected".to_owned(),
            };
            let (fault, kind) = (plain(called(recorded, &factor.fault)), plain(&factor.fault_type));
            let _ = writeln!(out, "| {fault} | {kind} | {} | {passed} |", factor.weight);
        }
        let _ = writeln!(out, "\n| probe | passed | samples met |\n|---|---|---|");
        for probe in &score.probes {
            let passed = if probe.passed { "yes" } else { "no" };
            let _ =
                writeln!(out, "| {} | {passed} | {} of {} |", plain(&probe.probe), probe.met, probe.samples);
        }
        out.push('\n');
    }
    let _ = writeln!(out, "## What happened\n\n| seconds | wall clock | what | |\n|---|---|---|---|");
    for event in &recorded.events {
        let told = [called(recorded, &event.subject), event.detail.as_str()];
        let told: Vec<_> = told.into_iter().filter(|text| !text.is_empty()).map(plain).collect();
        let _ = writeln!(
            out,
            "| {:.3} | {} | {} | {} |",
            event.at_seconds,
            plain(&event.time),
            word(event.kind),
            told.join(": ")
        );
    }
    let unmet: Vec<_> = recorded.samples.iter().filter(|sample| !sample.met).collect();
    let _ = writeln!(out, "\n## Samples out of bounds: {} of {}\n", unmet.len(), recorded.samples.len());
    if !unmet.is_empty() {
        let _ = writeln!(out, "| seconds | probe | of | what was seen |\n|---|---|---|---|");
    }
    for sample in unmet.iter().take(SHOWN_SAMPLES) {
        let (probe, detail) = (plain(&sample.probe), plain(&sample.detail));
        let _ = writeln!(out, "| {:.3} | {probe} | {} | {detail} |", sample.at_seconds, place(sample));
    }
    if unmet.len() > SHOWN_SAMPLES {
        let _ = writeln!(out, "\nThe first {SHOWN_SAMPLES} of them.");
    }
    out
}

/// Text that means nothing in Markdown, on one line.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '!' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}
