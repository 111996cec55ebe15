//! A run that goes on, as the lines that are drawn again and again.

use std::time::Duration;

use ratatui::layout::Rect;

use super::canvas::{Canvas, Tone, columns};
use super::gauges::Gauges;
use crate::cli::duration;
use crate::mcp::results::RunningView;

/// How many lines are above the gauges.
const HEAD: u16 = 2;

/// What is drawn of a run.
#[derive(Debug)]
pub(in crate::cli) struct Frame<'a> {
    /// What the daemon says.
    pub(in crate::cli) running: &'a RunningView,
    /// Its samples.
    pub(in crate::cli) gauges: &'a Gauges,
    /// What is wrong with looking at it, if anything is.
    pub(in crate::cli) trouble: Option<&'a str>,
}

impl Frame<'_> {
    /// How many lines it would have.
    pub(in crate::cli) fn height(&self) -> u16 {
        HEAD + self.gauges.len()
    }

    /// Draws it, as far as there is room.
    pub(in crate::cli) fn draw(&self, canvas: &mut Canvas<'_>) {
        let area = canvas.cells.area;
        heading(canvas, area, self.running);
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        if below.height == 0 {
            return;
        }
        match self.trouble {
            Some(trouble) => canvas.put((area.x, below.y), area.width, trouble, Tone::Bad),
            None => {
                let handle = format!("run {}", self.running.run_id);
                canvas.put((area.x, below.y), area.width, &handle, Tone::Dim)
            }
        };
        let rest = Rect { y: area.y + HEAD, height: area.height.saturating_sub(HEAD), ..area };
        self.gauges.draw(canvas, rest);
    }
}

/// Which run, in what phase, and since when: `slow · method (cut)      12s, 48s left`
pub(in crate::cli) fn heading(canvas: &mut Canvas<'_>, area: Rect, running: &RunningView) {
    let times = times(running);
    let room = area.width.saturating_sub(columns(&times) + 2);
    let taken = canvas.put((area.x, area.y), room, &running.experiment_name, Tone::Strong);
    let doing = match running.phase.as_str() {
        // Another user's, of which no more is told.
        "" => String::new(),
        phase => format!(" · {}", doing(phase, &running.activities)),
    };
    canvas.put((area.x + taken, area.y), room - taken, &doing, Tone::Plain);
    canvas.put_right((area.x, area.y), area.width, &times, Tone::Plain);
}

/// `method (cut, slow)`
pub(in crate::cli) fn doing(phase: &str, activities: &[String]) -> String {
    match activities {
        [] => phase.to_owned(),
        activities => format!("{phase} ({})", activities.join(", ")),
    }
}

/// For how long it goes on, and how long it will: `12s, 48s left`
pub(in crate::cli) fn times(running: &RunningView) -> String {
    let left = running.remaining_seconds.map(|left| format!(", {} left", whole(left)));
    whole(running.elapsed_seconds) + &left.unwrap_or_default()
}

/// Whole seconds: the rest is gone before anybody has read it.
pub(in crate::cli) fn whole(seconds: f64) -> String {
    duration::show(Duration::from_secs(seconds.max(0.0).round() as u64))
}
