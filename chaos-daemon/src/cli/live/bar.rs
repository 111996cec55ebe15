//! The verdict of a run, large.

use ratatui::style::Modifier;

use super::canvas::{Canvas, Tone, columns};
use crate::cli::show;
use crate::experiment::Verdict;
use crate::mcp::results::RunOutput;

/// How many lines it has.
pub(in crate::cli) const HEIGHT: u16 = 3;

/// Draws it over all columns: ` H E L D   slow      after 42s `
pub(in crate::cli) fn draw(canvas: &mut Canvas<'_>, run: &RunOutput) {
    let area = canvas.cells.area;
    let style = canvas.ink.style(tone(run.verdict)).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let word = run.verdict.map_or("no verdict", Verdict::name).to_uppercase();
    let spaced: Vec<_> = word.chars().map(String::from).collect();
    let after = format!("after {}", show::seconds(run.duration_seconds));
    let (y, inner) = (area.y + 1, area.width.saturating_sub(4));
    let taken = canvas.put((area.x + 2, y), inner, &spaced.join(" "), Tone::Plain);
    let room = inner.saturating_sub(taken + 3 + columns(&after) + 2);
    canvas.put((area.x + 2 + taken + 3, y), room, &run.experiment_name, Tone::Plain);
    if inner > taken + 3 + columns(&after) {
        canvas.put_right((area.x + 2, y), inner, &after, Tone::Plain);
    }
    canvas.cells.set_style(area, style);
}

/// What a verdict is good for.
pub(in crate::cli) fn tone(verdict: Option<Verdict>) -> Tone {
    match verdict {
        Some(Verdict::Held) => Tone::Good,
        Some(Verdict::Deviated | Verdict::Tripped | Verdict::Failed) => Tone::Bad,
        _ => Tone::Doubt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::live::canvas::{Ink, text};

    #[test]
    fn a_verdict_fills_the_columns_of_any_terminal() {
        let run = |name: &str, verdict| RunOutput {
            experiment_name: name.to_owned(),
            verdict: Some(verdict),
            duration_seconds: 42.0,
            ..RunOutput::default()
        };
        for width in [1, 12, 40, 60, 80, 120] {
            for run in [run("slow", Verdict::Held), run(&"x".repeat(200), Verdict::Interrupted)] {
                let lines = text((width, HEIGHT), Ink { colours: true }, false, |canvas| draw(canvas, &run));
                assert!(lines.iter().all(|line| columns(line) <= width), "{width}: {lines:?}");
                if width >= 40 {
                    let word =
                        if run.verdict == Some(Verdict::Held) { "H E L D" } else { "I N T E R R U P T E D" };
                    assert!(lines[1].contains(word), "{lines:?}");
                }
                if width >= 60 {
                    assert!(lines[1].ends_with("after 42s"), "{lines:?}");
                }
            }
        }
        let styled = text((40, HEIGHT), Ink { colours: false }, true, |canvas| {
            draw(canvas, &run("slow", Verdict::Held));
        });
        assert!(styled[0].contains("\u{1b}[7m"), "it is large by what is around it: {styled:?}");
    }
}
