//! Cells of a terminal, the tones they are drawn in, and the same as text.

use std::ffi::OsString;

use ratatui::backend::IntoCrossterm;
use ratatui::buffer::Buffer;
use ratatui::crossterm::style::ContentStyle;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use crate::host::words;

/// What something is drawn as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Tone {
    /// Like any text.
    Plain,
    /// What the eye looks for first.
    Strong,
    /// What is there for who looks for it.
    Dim,
    /// It is as it should be.
    Good,
    /// It is not.
    Bad,
    /// Nobody knows.
    Doubt,
}

/// How tones are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct Ink {
    /// In colours, or else in weights alone.
    pub(in crate::cli) colours: bool,
}

impl Ink {
    /// As the environment of this process wants it.
    pub(in crate::cli) fn here() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    /// In colours unless `NO_COLOR` has something in it, see <https://no-color.org>.
    fn of(environment: impl Fn(&str) -> Option<OsString>) -> Self {
        Self { colours: environment("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    /// The style of a tone.
    pub(in crate::cli) fn style(self, tone: Tone) -> Style {
        let coloured = |colour| if self.colours { Style::new().fg(colour) } else { Style::new() };
        match tone {
            Tone::Plain => Style::new(),
            Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tone::Dim => Style::new().add_modifier(Modifier::DIM),
            Tone::Good => coloured(Color::Green),
            Tone::Bad => coloured(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Doubt => coloured(Color::Yellow),
        }
    }
}

/// Whether a terminal of this `TERM` moves its cursor.
pub(in crate::cli) fn can_be_drawn_on(term: Option<OsString>) -> bool {
    term.is_none_or(|term| term != "dumb")
}

/// How many columns a text takes.
pub(in crate::cli) fn columns(text: &str) -> u16 {
    u16::try_from(Span::raw(words::line(text)).width()).unwrap_or(u16::MAX)
}

/// Where something is drawn. All words get in by it, so that those of others do not steer the terminal.
pub(in crate::cli) struct Canvas<'a> {
    /// The cells.
    pub(in crate::cli) cells: &'a mut Buffer,
    /// How tones are shown.
    pub(in crate::cli) ink: Ink,
}

impl Canvas<'_> {
    /// Puts a text into so many columns of a line, and what does not fit is cut off. Says how many columns it has taken.
    pub(in crate::cli) fn put(&mut self, (x, y): (u16, u16), width: u16, text: &str, tone: Tone) -> u16 {
        let area = self.cells.area;
        let width = width.min(area.right().saturating_sub(x));
        if width == 0 || !(area.top()..area.bottom()).contains(&y) || x < area.left() {
            return 0;
        }
        let (text, style) = (words::line(text), self.ink.style(tone));
        let fits = columns(&text) <= width;
        let room = if fits { width } else { width - 1 };
        let (end, _) = self.cells.set_stringn(x, y, text, usize::from(room), style);
        if fits {
            return end - x;
        }
        self.cells.set_stringn(end, y, "…", 1, style);
        end + 1 - x
    }

    /// The same at the right end of these columns.
    pub(in crate::cli) fn put_right(
        &mut self,
        (x, y): (u16, u16),
        width: u16,
        text: &str,
        tone: Tone,
    ) -> u16 {
        let taken = columns(text).min(width);
        self.put((x + width - taken, y), taken, text, tone)
    }
}

/// Draws into cells of this size, and makes lines of text of them. `styled`: with what a terminal takes for tones.
pub(in crate::cli) fn text(
    (width, height): (u16, u16),
    ink: Ink,
    styled: bool,
    draw: impl FnOnce(&mut Canvas<'_>),
) -> Vec<String> {
    let mut cells = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&mut Canvas { cells: &mut cells, ink });
    (0..height).map(|y| line(&cells, y, styled)).collect()
}

/// One line of cells, without the empty ones at its end.
fn line(cells: &Buffer, y: u16, styled: bool) -> String {
    let area = cells.area;
    let mut parts: Vec<(Style, String)> = Vec::new();
    let mut x = area.left();
    while x < area.right() {
        let cell = &cells[(x, y)];
        let (symbol, style) = (cell.symbol(), if styled { cell.style() } else { Style::new() });
        match parts.last_mut() {
            Some((last, text)) if *last == style => text.push_str(symbol),
            _ => parts.push((style, symbol.to_owned())),
        }
        // A wide one hides the cell after it.
        x += u16::try_from(Span::raw(symbol).width()).unwrap_or(1).max(1);
    }
    let empty = if styled { cell_style() } else { Style::new() };
    if let Some((_, text)) = parts.last_mut().filter(|(style, _)| *style == empty) {
        text.truncate(text.trim_end().len());
    }
    let written = |(style, text): (Style, String)| match style == empty {
        true => text,
        false => IntoCrossterm::<ContentStyle>::into_crossterm(style).apply(text).to_string(),
    };
    parts.into_iter().map(written).collect()
}

/// That of a cell into which nothing was drawn.
fn cell_style() -> Style {
    ratatui::buffer::Cell::EMPTY.style()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: u16, styled: bool, colours: bool, draw: impl FnOnce(&mut Canvas<'_>)) -> String {
        text((width, 1), Ink { colours }, styled, draw).remove(0)
    }

    #[test]
    fn what_is_too_long_is_cut_by_the_columns_that_it_takes() {
        for (width, shown) in [(10, "abcdefghij"), (9, "abcdefgh…"), (1, "…"), (0, "")] {
            let line = drawn(20, false, false, |canvas| {
                let taken = canvas.put((0, 0), width, "abcdefghij", Tone::Plain);
                assert_eq!(taken, width);
            });
            assert_eq!(line, shown, "{width}");
        }
        // Each of these takes two columns.
        for (width, shown) in [(6, "日本語"), (5, "日本…"), (4, "日…"), (2, "…")] {
            let put = |canvas: &mut Canvas<'_>| _ = canvas.put((0, 0), width, "日本語", Tone::Plain);
            assert_eq!(drawn(20, false, false, put), shown, "{width}");
        }
        let right = |canvas: &mut Canvas<'_>| _ = canvas.put_right((2, 0), 6, "abc", Tone::Plain);
        assert_eq!(drawn(20, false, false, right), "     abc");
        let beyond = |canvas: &mut Canvas<'_>| _ = canvas.put((30, 0), 5, "abc", Tone::Plain);
        assert_eq!(drawn(20, false, false, beyond), "");
    }

    #[test]
    fn words_of_others_do_not_steer_the_terminal() {
        let put =
            |canvas: &mut Canvas<'_>| _ = canvas.put((0, 0), 40, "a\u{1b}[2J\r\n\u{202e}b", Tone::Plain);
        assert_eq!(drawn(60, true, true, put), "a\\u{1b}[2J\\r\\n\\u{202e}b");
    }

    #[test]
    fn tones_are_colours_weights_or_nothing() {
        let put = |canvas: &mut Canvas<'_>| {
            canvas.put((0, 0), 3, "bad", Tone::Bad);
            canvas.put((4, 0), 4, "good", Tone::Good);
        };
        assert_eq!(drawn(20, false, true, put), "bad good");
        let weighed = drawn(20, true, false, put);
        assert!(weighed.contains("\u{1b}[1m") && !weighed.contains("38;5"), "{weighed:?}");
        assert!(weighed.ends_with(" good"), "{weighed:?}");
    }

    #[test]
    fn no_color_is_obeyed_unless_it_is_empty() {
        for (value, colours) in [(None, true), (Some(""), true), (Some("1"), false), (Some("0"), false)] {
            let ink = Ink::of(|name| (name == "NO_COLOR").then(|| value.map(OsString::from)).flatten());
            assert_eq!(ink.colours, colours, "{value:?}");
        }
        for (term, can) in [(None, true), (Some("xterm"), true), (Some("dumb"), false)] {
            assert_eq!(can_be_drawn_on(term.map(OsString::from)), can, "{term:?}");
        }
    }
}
