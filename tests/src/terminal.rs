//! A terminal of the test's own (pty(7)), and a screen that shows what a program draws on it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{Killed, wait_until};

/// More lines than any test draws, so that nothing goes out of sight.
const LINES: u16 = 60;

/// A program that has a terminal.
#[derive(Debug)]
pub struct Terminal {
    keys: File,
    /// Kept open, so that what the program has left can be looked at.
    program_end: OwnedFd,
    program: Killed,
    screen: Screen,
    before: Termios,
}

/// What is seen.
struct Screen(vt100::Parser);

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.screen().contents())
    }
}

impl Terminal {
    /// Starts a program on a terminal with so many columns.
    ///
    /// # Errors
    /// When there is no terminal, or no such program.
    pub fn start(command: &mut Command, columns: u16) -> Result<Self> {
        let size = Winsize { ws_row: LINES, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).map_err(Error::sys("open", "a terminal"))?;
        let before = tcgetattr(&pty.slave).map_err(Error::sys("read", "a terminal's settings"))?;
        let end = || pty.slave.try_clone().map(Stdio::from).map_err(Error::io("share", "a terminal"));
        command.stdin(end()?).stdout(end()?).stderr(end()?).env("TERM", "xterm-256color");
        // SAFETY: between fork and exec only setsid(2) and ioctl(2) are called, which are async-signal-safe.
        unsafe {
            command.pre_exec(|| match (libc::setsid(), libc::ioctl(0, libc::TIOCSCTTY, 0)) {
                (-1, _) | (_, -1) => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let program = command.spawn().map_err(Error::io("start", format!("{command:?}")))?;
        let (lines, columns) = (NonZeroU16::new(LINES), NonZeroU16::new(columns));
        let lines_and_columns = lines.zip(columns).ok_or_else(|| Error::Different("no columns".into()))?;
        let screen = Screen(vt100::Parser::new(lines_and_columns.0, lines_and_columns.1, 0));
        Ok(Self {
            keys: File::from(pty.master),
            program_end: pty.slave,
            program: Killed(program),
            screen,
            before,
        })
    }

    /// What is on the screen now.
    pub fn text(&mut self) -> String {
        let mut bytes = [0; 4096];
        while self.has_more() {
            let Ok(length @ 1..) = self.keys.read(&mut bytes) else { break };
            self.screen.0.process(&bytes[..length]);
        }
        self.screen.0.screen().contents()
    }

    fn has_more(&self) -> bool {
        let mut waits = [PollFd::new(self.keys.as_fd(), PollFlags::POLLIN)];
        poll(&mut waits, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Waits until the screen shows all of this, and returns what it shows.
    ///
    /// # Errors
    /// With the screen, when it does not.
    pub fn until_it_shows(&mut self, words: &[&str]) -> Result<String> {
        let mut text = String::new();
        let is_there = wait_until(HANG, || {
            text = self.text();
            words.iter().all(|word| text.contains(word))
        });
        match is_there {
            true => Ok(text),
            false => Err(Error::Hung { what: format!("{words:?} on a screen that shows:\n{text}\n") }),
        }
    }

    /// The same until it shows this no more.
    ///
    /// # Errors
    /// With the screen, when it goes on showing it.
    pub fn until_it_does_not_show(&mut self, word: &str) -> Result<()> {
        match wait_until(HANG, || !self.text().contains(word)) {
            true => Ok(()),
            false => Err(Error::Hung { what: format!("no {word:?} on the screen {:?}", self.screen) }),
        }
    }

    /// Whether anything on the screen has a colour.
    pub fn has_colours(&self) -> bool {
        let screen = self.screen.0.screen();
        let (lines, columns) = screen.size();
        let cells = (0..lines.get()).flat_map(|line| (0..columns.get()).map(move |column| (line, column)));
        cells
            .filter_map(|(line, column)| screen.cell(line, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default)
    }

    /// Types.
    ///
    /// # Errors
    /// When the terminal takes nothing.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes()).map_err(Error::io("write to", "a terminal"))
    }

    /// Sends the program a signal.
    ///
    /// # Errors
    /// When there is no such program any more.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal).map_err(Error::sys("signal", "a program"))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.program.0.id().cast_signed())
    }

    /// Waits for the end of the program: its exit code, and what it has left on the screen.
    ///
    /// # Errors
    /// When it does not end.
    pub fn ended(&mut self) -> Result<(Option<i32>, String)> {
        let mut status = None;
        wait_until(HANG, || {
            self.text();
            status = self.program.0.try_wait().ok().flatten();
            status.is_some()
        });
        let status =
            status.ok_or_else(|| Error::Hung { what: format!("end of a program: {:?}", self.screen) })?;
        Ok((status.code(), self.text()))
    }

    /// Sees that the terminal is as it was before the program: its settings, its screen and its cursor.
    ///
    /// # Errors
    /// Says what is not.
    pub fn assert_given_back(&self) -> Result<()> {
        let now = tcgetattr(&self.program_end).map_err(Error::sys("read", "a terminal's settings"))?;
        let screen = self.screen.0.screen();
        let left = (now != self.before, screen.alternate_screen(), screen.hide_cursor());
        match left {
            (false, false, false) => Ok(()),
            _ => Err(Error::Different(format!("left: other settings, other screen, no cursor: {left:?}"))),
        }
    }
}
