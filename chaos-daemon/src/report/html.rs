//! The report as one HTML file that asks for nothing outside of it.

use std::fmt::Write as _;

use chaos_search::picture::escaped;

use super::chart::chart;
use super::document::called;
use super::{paragraph, place, verdict, word};
use crate::server::history::Recorded;
use crate::server::history::score::score;

/// The most samples in the table.
const SHOWN_SAMPLES: usize = 200;

const STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; background: #fff; overflow-wrap: anywhere }
h1 small { font-weight: normal; color: #57606a }
table { border-collapse: collapse; width: 100%; font-size: 14px }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid #d8dee4 }
th { overflow-wrap: normal }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
svg .row { fill: #f0f2f4 } svg .fault { fill: #8250df } svg .met { fill: #2da44e } svg .unmet { fill: #cf222e } svg .blind { fill: #8c959f }
svg .breach { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 4 3 } svg .time { fill: #57606a }
.legend { color: #57606a; font-size: 13px } .legend b { font-weight: normal; margin-right: 1.2em }
.legend b::before { content: \"\"; display: inline-block; width: .8em; height: .8em; margin-right: .4em }
.legend .fault::before { background: #8250df } .legend .met::before { background: #2da44e } .legend .unmet::before { background: #cf222e }
.legend .blind::before { background: #8c959f }
";

/// What the colours of the chart mean.
const LEGEND: &str = "<p class=\"legend\"><b class=\"fault\">fault active</b><b class=\"met\">as it should be</b>\
                      <b class=\"unmet\">not as it should be</b><b class=\"blind\">no data</b>dashed: a gate was breached</p>\n";

/// The report on a run.
pub fn report(recorded: &Recorded) -> String {
    let run = &recorded.run;
    let name = escaped(&run.experiment_name);
    // Writing to a string cannot fail.
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{name}: {verdict}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{name} <small>{verdict}</small></h1>\n<p>{}</p>\n<h2>Timeline</h2>\n{}{LEGEND}",
        escaped(&paragraph(recorded)),
        chart(recorded),
        verdict = verdict(recorded),
    );
    if let Some(score) = score(recorded) {
        let _ = writeln!(out, "<h2>Resiliency score: {}</h2>", score.score);
        let rows = score.factors.iter().map(|factor| {
            let passed = match factor.ran {
                true => format!("{:.0} %", factor.probe_success_percent),
                false => "not injected".to_owned(),
            };
            [
                called(recorded, &factor.fault).to_owned(),
                factor.fault_type.clone(),
                factor.weight.to_string(),
                passed,
            ]
        });
        table(&mut out, ["fault", "type", "weight", "probes passed"], rows);
        let rows = score.probes.iter().map(|probe| {
            let passed = if probe.passed { "yes" } else { "no" };
            [probe.probe.clone(), passed.to_owned(), format!("{} of {}", probe.met, probe.samples)]
        });
        table(&mut out, ["probe", "passed", "samples met"], rows);
    }
    out.push_str("<h2>What happened</h2>\n");
    let rows = recorded.events.iter().map(|event| {
        [
            format!("{:.3}", event.at_seconds),
            event.time.clone(),
            word(event.kind).to_owned(),
            called(recorded, &event.subject).to_owned(),
            event.detail.clone(),
        ]
    });
    table(&mut out, ["seconds", "wall clock (UTC)", "what", "of", "detail"], rows);
    let unmet: Vec<_> = recorded.samples.iter().filter(|sample| !sample.met).collect();
    let _ = writeln!(out, "<h2>Samples out of bounds: {} of {}</h2>", unmet.len(), recorded.samples.len());
    let rows = unmet.iter().take(SHOWN_SAMPLES).map(|sample| {
        [format!("{:.3}", sample.at_seconds), sample.probe.clone(), place(sample), sample.detail.clone()]
    });
    table(&mut out, ["seconds", "probe", "of", "what was seen"], rows);
    if unmet.len() > SHOWN_SAMPLES {
        let _ = writeln!(out, "<p>The first {SHOWN_SAMPLES} of them.</p>");
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn table<const N: usize>(out: &mut String, head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let cells = |tag: &str, row: &[String; N]| -> String {
        row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
    };
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = writeln!(out, "<table>\n<tr>{}</tr>", cells("th", &head.map(str::to_owned)));
    for row in rows {
        let _ = writeln!(out, "<tr>{}</tr>", cells("td", &row));
    }
    out.push_str("</table>\n");
}
