//! The terminal while `chaosctl top` has it: another screen, and keys that come one by one. Both end with it, however it ends.

use std::io::{self, stdout};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{LeaveAlternateScreen, disable_raw_mode};
use tokio::sync::mpsc;

use super::model::Model;
use super::page;
use crate::cli::live::canvas::{Canvas, Ink};

/// How often it is seen to that somebody still wants the keys.
const LOOK: Duration = Duration::from_millis(200);

/// A terminal that is given back as it was, also when this process panics.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    /// # Errors
    /// When the terminal does not let itself be changed.
    pub(super) fn open() -> io::Result<Self> {
        // With it comes a hook that gives the terminal back before a panic is told.
        ratatui::try_init().map(Self).inspect_err(|_| give_back())
    }

    /// Draws a page.
    pub(super) fn draw(&mut self, model: &Model, ink: Ink) -> io::Result<()> {
        self.0.draw(|frame| page::draw(model, &mut Canvas { cells: frame.buffer_mut(), ink })).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// A terminal that has gone needs neither.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen);
}

/// What is typed, and changes of the size, until nobody wants them or there will be no more.
pub(super) fn keys() -> mpsc::Receiver<io::Result<Event>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(LOOK) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let is_last = event.is_err();
            if sender.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
