//! Words of somebody else, shown so that they neither steer a terminal nor look like a line of this program.
//!
//! Names of processes, arguments, paths and answers of servers are chosen by whoever a fault or a probe meets. A terminal obeys
//! control characters (ECMA-48), and a line end in them would begin a line that this program has not written.

use std::borrow::Cow;
use std::io::{self, Write};

/// A text whose line ends and tabs are this program's own: everything else that a terminal would obey is written out, such as
/// `\u{1b}`.
pub fn plain(text: &str) -> Cow<'_, str> {
    written_out(text, |c| matches!(c, '\n' | '\t'))
}

/// One line, in which line ends are written out as well.
pub fn line(text: &str) -> Cow<'_, str> {
    written_out(text, |_| false)
}

fn written_out(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_plain = |c: char| is_kept(c) || !is_obeyed(c);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) { shown.push(c) } else { shown.extend(c.escape_debug()) }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that change the direction or the lines of what is around them (Unicode Standard Annex 9, 14).
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes each event of the log as one line, whatever is in it. An event comes as one piece, with its line end. So the log has no
/// colours: those of an event could not be told from those in it.
#[derive(Debug)]
pub struct LogLines<W>(pub W);

impl<W: Write> Write for LogLines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let shown = line(text.strip_suffix('\n').unwrap_or(&text));
        self.0.write_all(format!("{shown}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out_and_everything_else_is_as_it_was() {
        for (text, shown) in [
            ("shop: 5 µs, \"C:\\x\", e\u{301}, 日本", None),
            ("\u{1b}[2J", Some("\\u{1b}[2J")),
            ("a\rb\u{8}\u{7f}\0", Some("a\\rb\\u{8}\\u{7f}\\0")),
            ("\u{9b}31m", Some("\\u{9b}31m")),
            ("\u{202e}gpj.exe\u{2069}", Some("\\u{202e}gpj.exe\\u{2069}")),
            ("one\u{2028}two", Some("one\\u{2028}two")),
        ] {
            let expected = shown.unwrap_or(text);
            assert_eq!((plain(text).as_ref(), line(text).as_ref()), (expected, expected));
        }
        assert_eq!(plain("a\n\tb"), "a\n\tb");
        assert_eq!(line("a\n\tb"), "a\\n\\tb");
    }

    /// What is logged, as a whole.
    #[derive(Debug, Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = LogLines<Self>;

        fn make_writer(&'a self) -> Self::Writer {
            LogLines(self.clone())
        }
    }

    #[test]
    fn each_event_is_one_line_of_the_log_whatever_a_caller_has_put_into_it() {
        let forged = "x\n2026-01-01T00:00:00Z  INFO injected name=evil\r\n\u{1b}[2J\u{2028}\u{85}y";
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(name = %forged, other = ?forged, "refused: {forged}");
            tracing::info!("second");
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.ends_with('\n') && !text.contains(['\r', '\u{1b}', '\u{2028}', '\u{85}']), "{text:?}");
    }
}
