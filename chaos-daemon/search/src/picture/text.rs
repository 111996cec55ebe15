//! A picture as text for a terminal.

use super::{Panel, Picture, height, share};

const COLUMNS: usize = 60;
const LINES: usize = 15;

/// The picture in lines of at most 70 characters: `·` has held, `×` has failed, `◆` is the best failure, and `░` is where the failures
/// may begin.
pub fn text(picture: &Picture) -> String {
    let mut out = format!("{}\n", printable(&picture.title));
    for panel in &picture.panels {
        out.push_str(&draw(panel));
    }
    if picture.left_out > 0 {
        out.push_str(&format!("{} more parameters\n", picture.left_out));
    }
    out
}

fn draw(panel: &Panel) -> String {
    let column = |rungs: &[u32]| (share(&panel.axes[0], rungs[0]) * (COLUMNS - 1) as f64).round() as usize;
    let upwards = |share: f64| LINES - 1 - (share * (LINES - 1) as f64).round() as usize;
    let line = |rungs: &[u32]| panel.axes.get(1).map(|axis| upwards(share(axis, rungs[1])));
    let mut cells = vec![[' '; COLUMNS]; LINES];
    if panel.axes.len() == 1 {
        cells[upwards(height(0.0))] = ['─'; COLUMNS];
    }
    if let Some((low, high)) = &panel.begins {
        let (top, bottom) = (line(high).unwrap_or(0), line(low).unwrap_or(LINES - 1));
        for row in &mut cells[top..=bottom.max(top)] {
            let (left, right) = (column(low), column(high));
            row[left..=right.max(left)].fill('░');
        }
    }
    let mut dots: Vec<_> = panel.dots.iter().collect();
    // The best is drawn last, and what failed after what held.
    dots.sort_by_key(|dot| (dot.best, dot.margin > 0.0));
    for dot in dots {
        let row = line(&dot.at).unwrap_or_else(|| upwards(height(dot.margin)));
        cells[row][column(&dot.at)] = match (dot.best, dot.margin > 0.0) {
            (true, _) => '◆',
            (false, true) => '×',
            (false, false) => '·',
        };
    }
    let up = panel
        .axes
        .get(1)
        .map_or("margin".to_owned(), |axis| format!("{}, {} up to {}", axis.name, axis.ends.0, axis.ends.1));
    let mut out = format!("{}\n", printable(&up));
    for row in &cells {
        out.push_str(&format!("  │{}\n", row.iter().collect::<String>().trim_end()));
    }
    let across = &panel.axes[0];
    let legend = format!("{}, {} to {}", across.name, across.ends.0, across.ends.1);
    out.push_str(&format!("  └{}\n   {}\n", "─".repeat(COLUMNS), printable(&legend)));
    out
}

/// Text that a terminal prints and does not obey, on one line.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(200).collect()
}
