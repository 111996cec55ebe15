//! The report as Markdown.

use std::fmt::Write as _;

use super::document::text;
use super::html::identifiers;
use super::paragraph::told;
use super::steps::{Step, steps};
use super::story::{Story, sentence};
use crate::server::history::Recorded;

/// The most rows of what happened.
const MOST_STEPS: usize = 60;
/// The widest column that is filled up, in characters.
const WIDEST: usize = 48;

/// The report on a run.
pub fn report(recorded: &Recorded) -> String {
    let story = Story::of(recorded);
    let run = &recorded.run;
    let (word, meaning) = story.verdict();
    let mut out = format!("# {}\n\n", plain(&run.experiment_name));
    // Writing to a string cannot fail.
    if let Some(description) = text(recorded, "description") {
        let _ = writeln!(out, "{}\n", plain(description));
    }
    let why = run.error.as_ref().map(|error| format!(" {}", plain(&sentence(error)))).unwrap_or_default();
    let _ = writeln!(out, "**{word}.** {meaning}{why}\n");
    let rows = story.rows();
    let rows = rows.iter().enumerate().map(|(at, (label, told))| {
        let same = at > 0 && rows[at - 1].0 == *label;
        vec![if same { String::new() } else { (*label).to_owned() }, told.clone()]
    });
    table(&mut out, &["", ""], &rows.collect::<Vec<_>>());
    let _ = writeln!(out, "\n{}", plain(&told(&story)));
    happened(&mut out, &steps(&story));
    for (title, items) in [("Findings", story.findings()), ("What to do next", story.next())] {
        if !items.is_empty() {
            let _ = writeln!(out, "\n## {title}\n");
        }
        for item in items {
            let _ = writeln!(out, "- {}", plain(&sentence(&item)));
        }
    }
    out.push_str(
        "\n<details>\n<summary>For programs: handle, digests, names inside the daemon</summary>\n\n",
    );
    table(&mut out, &["what", "value"], &identifiers(recorded));
    out.push_str("\n</details>\n");
    out
}

fn happened(out: &mut String, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    out.push_str("\n## What happened\n\n");
    let rows = steps.iter().take(MOST_STEPS).map(|Step { at, clock, what, detail, .. }| {
        vec![format!("{at:.2} s"), clock.clone(), what.clone(), detail.clone()]
    });
    table(out, &["after", "UTC", "what", "detail"], &rows.collect::<Vec<_>>());
    if steps.len() > MOST_STEPS {
        let _ = writeln!(out, "\nAnd {} more rows.", steps.len() - MOST_STEPS);
    }
}

/// A table of texts.
pub(super) fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let length = |cell: &str| cell.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell));
        let widest = cells.chain([length(head[column]), 3]).max().unwrap_or_default();
        if widest > WIDEST { 0 } else { widest }
    };
    // As wide as each other, so that it is a table in a terminal, too.
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut row = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} "));
        let _ = writeln!(out, "|{}|", cells.collect::<Vec<_>>().join("|"));
    };
    row(head.to_vec());
    let lines: Vec<String> = widths.iter().map(|width| "-".repeat((*width).max(3))).collect();
    row(lines.iter().map(String::as_str).collect());
    for cells in &rows {
        row(cells.iter().map(String::as_str).collect());
    }
}

/// Text that means nothing in Markdown, on one line. What means nothing where it stands is left as it is, so that it can be read, too.
/// That is an underscore within a word, or an ampersand that begins nothing.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let one_line = |c: char| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c };
    // Before anything is judged by what is beside it.
    let letters: Vec<char> = text.chars().map(one_line).filter(|c| !c.is_control()).collect();
    for (at, c) in letters.iter().copied().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at)).copied();
        let after = letters.get(at + 1).copied();
        let in_word = |side: Option<char>| side.is_some_and(char::is_alphanumeric);
        match c {
            '&' if in_word(after) || after == Some('#') => out.push_str("&amp;"),
            '<' if after.is_none_or(|after| after == ' ' || after.is_ascii_digit()) => out.push(c),
            '<' => out.push_str("&lt;"),
            '_' if in_word(before) && in_word(after) => out.push(c),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '>' | '#' | '+' | '-' | '=' if at == 0 => {
                out.push('\\');
                out.push(c);
            }
            // A number at the beginning of a line would begin a list.
            '.' | ')' if at > 0 && letters[..at].iter().all(char::is_ascii_digit) && after == Some(' ') => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
