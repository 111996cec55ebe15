//! The report as one HTML file that asks for nothing outside of it.

use std::fmt::Write as _;

use chaos_search::picture::escaped;

use super::chart::chart;
use super::document::text;
use super::facts::verdict;
use super::page::{page, table};
use super::paragraph::told;
use super::steps::{Step, Tone, steps};
use super::story::{Story, sentence};
use crate::server::history::Recorded;

/// The most rows of what happened.
const MOST_STEPS: usize = 200;
/// The longest document that is shown, in bytes.
const LONGEST_DOCUMENT: usize = 64 << 10;

/// The report on a run.
pub fn report(recorded: &Recorded) -> String {
    let story = Story::of(recorded);
    let mut out = String::new();
    top(&mut out, &story);
    let _ = writeln!(out, "<p class=\"story\">{}</p>", escaped(&told(&story)));
    if !recorded.samples.is_empty() || !recorded.events.is_empty() {
        let _ = write!(out, "<h2>Over time</h2>\n{}", chart(&story));
    }
    happened(&mut out, &steps(&story));
    for (title, items) in [("Findings", story.findings()), ("What to do next", story.next())] {
        if !items.is_empty() {
            let items: String =
                items.iter().map(|item| format!("<li>{}</li>\n", escaped(&sentence(item)))).collect();
            let _ = write!(out, "<h2>{title}</h2>\n<ul>\n{items}</ul>\n");
        }
    }
    fold(&mut out, &story);
    page(&format!("{}: {}", recorded.run.experiment_name, verdict(recorded)), &out)
}

/// The name, the verdict, and the table of facts.
fn top(out: &mut String, story: &Story<'_>) {
    let run = &story.recorded.run;
    let (word, meaning) = story.verdict();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<h1>{}</h1>", escaped(&run.experiment_name));
    if let Some(description) = text(story.recorded, "description") {
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escaped(description));
    }
    let why = run.error.as_ref().map(|error| format!("<p>{}</p>", escaped(&sentence(error))));
    let _ = writeln!(
        out,
        "<div class=\"verdict tone {}\"><b>{word}</b><span>{meaning}</span>{}</div>\n<table class=\"facts\">",
        class(verdict(story.recorded)),
        why.unwrap_or_default()
    );
    let rows = story.rows();
    for (at, (label, told)) in rows.iter().enumerate() {
        let same = at > 0 && rows[at - 1].0 == *label;
        let more = rows.get(at + 1).is_some_and(|next| next.0 == *label);
        let class = match (same, more) {
            (true, true) => " class=\"same more\"",
            (true, false) => " class=\"same\"",
            (false, true) => " class=\"more\"",
            (false, false) => "",
        };
        let label = if same { "" } else { label };
        let _ = writeln!(out, "<tr{class}><th scope=\"row\">{label}</th><td>{}</td></tr>", escaped(told));
    }
    out.push_str("</table>\n");
}

/// A verdict as the name of a class.
pub(super) fn class(verdict: &str) -> String {
    verdict.replace(' ', "-")
}

fn happened(out: &mut String, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    out.push_str(
        "<h2>What happened</h2>\n<table class=\"steps\">\n<tr><th class=\"at\">after</th><th class=\"clock\">UTC</th><th>what</th>\
         <th>detail</th></tr>\n",
    );
    for Step { at, clock, tone, what, detail } in steps.iter().take(MOST_STEPS) {
        let tone = match tone {
            Tone::Plain => "",
            Tone::Fault => " fault",
            Tone::Good => " good",
            Tone::Bad => " bad",
        };
        let _ = writeln!(
            out,
            "<tr><td class=\"at\">{at:.2} s</td><td class=\"clock\">{}</td><td class=\"what{tone}\">{}</td><td>{}</td></tr>",
            escaped(clock),
            escaped(what),
            escaped(detail)
        );
    }
    out.push_str("</table>\n");
    if steps.len() > MOST_STEPS {
        let _ = writeln!(out, "<p class=\"soft\">And {} more rows.</p>", steps.len() - MOST_STEPS);
    }
}

/// What only programs need: handles, digests, names inside the daemon, and the document.
fn fold(out: &mut String, story: &Story<'_>) {
    let recorded = story.recorded;
    out.push_str("<details>\n<summary>For programs: handle, digests, names inside the daemon, the document</summary>\n");
    table(out, &["what".to_owned(), "value".to_owned()], &identifiers(recorded));
    if let Some(document) = &recorded.document {
        let text = serde_json::to_string_pretty(document).unwrap_or_default();
        match text.len() <= LONGEST_DOCUMENT {
            true => {
                // It has lines, each of which is escaped.
                let lines: Vec<_> = text.lines().map(escaped).collect();
                let _ = writeln!(out, "<pre>{}</pre>", lines.join("\n"));
            }
            false => {
                out.push_str("<p>The document is too long for a report: chaosctl --json show has it.</p>\n")
            }
        }
    }
    out.push_str("</details>\n");
}

/// What a run and its faults are known by.
pub(super) fn identifiers(recorded: &Recorded) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["run".to_owned(), recorded.run.run_id.clone()]];
    rows.extend(recorded.digest.iter().map(|digest| vec!["document".to_owned(), digest.clone()]));
    rows.extend(
        recorded.staged.iter().map(|digest| vec!["document without stages".to_owned(), digest.clone()]),
    );
    for fault in &recorded.faults {
        rows.push(vec![format!("fault {}", fault.name), format!("{} at {}", fault.fault_type, fault.target)]);
    }
    rows
}
