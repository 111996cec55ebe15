//! What every page of HTML has: it stands for itself, and asks for nothing outside of it.

use std::fmt::Write as _;

use chaos_search::picture::escaped;

/// How a page looks on a screen, narrow or wide, light or dark, and on paper.
const STYLE: &str = include_str!("style.css");

/// A page with this title. What is in `body` is mark-up, in which everything that others have written is escaped.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escaped(title)
    )
}

/// A table of texts; nothing without rows.
pub(super) fn table(out: &mut String, head: &[String], rows: &[Vec<String>]) {
    let cells = |tag: &str, row: &[String]| -> String {
        row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
    };
    if rows.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<div class=\"wide\"><table>\n<tr>{}</tr>", cells("th", head));
    for row in rows {
        let _ = writeln!(out, "<tr>{}</tr>", cells("td", row));
    }
    out.push_str("</table></div>\n");
}
