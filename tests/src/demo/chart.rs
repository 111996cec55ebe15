//! Round trips as they come, one line each, and the table at the end.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{millis, say};
use crate::Result;
use crate::measure::udp_rtt;
use crate::netns::NetNs;

/// How often to measure, how many times, and when a packet counts as lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rhythm {
    pub(super) samples: usize,
    pub(super) every: Duration,
    pub(super) limit: Duration,
}

/// What was measured in one phase.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    /// `None` is a packet that got no answer.
    pub(super) samples: Vec<Option<Duration>>,
    pub(super) root_qdisc: String,
}

impl Phase {
    /// Packets without an answer.
    pub(super) fn lost(&self) -> usize {
        self.samples.iter().filter(|sample| sample.is_none()).count()
    }

    /// The median of the answers there were.
    pub(super) fn median(&self) -> Option<Duration> {
        let mut times: Vec<_> = self.samples.iter().flatten().copied().collect();
        times.sort();
        times.get(times.len() / 2).copied()
    }

    fn median_words(&self) -> String {
        self.median().map_or("-".to_owned(), |median| format!("{:.2} ms", millis(median)))
    }
}

/// Measures, and draws each sample at once.
pub(super) fn draw(
    out: &mut impl Write,
    from: &NetNs,
    to: SocketAddr,
    rhythm: Rhythm,
    epoch: Instant,
) -> Result<Vec<Option<Duration>>> {
    let colours = colours();
    let mut samples = Vec::with_capacity(rhythm.samples);
    let mut next = Instant::now();
    for _ in 0..rhythm.samples {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = Instant::now() + rhythm.every;
        let at = epoch.elapsed();
        let sample = udp_rtt(from, to, rhythm.limit)?;
        say(out, &line(at, sample, colours));
        samples.push(sample);
    }
    Ok(samples)
}

/// Whether the reader of our output understands colours.
fn colours() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stdout().is_terminal() && !dumb && std::env::var_os("NO_COLOR").is_none()
}

fn line(at: Duration, sample: Option<Duration>, colours: bool) -> String {
    let (colour, text) = match sample {
        Some(rtt) => ("\x1b[32m", format!("{} {:.2} ms", "▇".repeat(blocks(rtt)), millis(rtt))),
        None => ("\x1b[31m", "✗ lost".to_owned()),
    };
    let text = if colours { format!("{colour}{text}\x1b[0m") } else { text };
    format!("{:6.1}s  {text}", at.as_secs_f64())
}

/// Eight blocks for each factor of ten above 10 µs: 0.05 ms and 100 ms both fit on a line.
fn blocks(rtt: Duration) -> usize {
    let decades = (millis(rtt) / 0.01).max(1.0).log10();
    (1.0 + 8.0 * decades).min(48.0) as usize
}

/// Prints the phases side by side.
pub(super) fn table(out: &mut impl Write, phases: &[&Phase]) {
    say(out, "");
    let cells = |values: Vec<String>| values.iter().map(|value| format!("{value:>14}")).collect::<String>();
    let row = |what: &str, cell: &dyn Fn(&Phase) -> String| {
        format!("  {what:<20}{}", cells(phases.iter().map(|phase| cell(phase)).collect()))
    };
    say(out, &row("", &|phase| phase.name.to_owned()));
    say(out, &row("median round trip", &Phase::median_words));
    say(out, &row("packets lost", &|phase| format!("{} of {}", phase.lost(), phase.samples.len())));
    for phase in phases {
        say(out, &format!("  root qdisc {:<9}{}", phase.name, phase.root_qdisc));
    }
    say(out, "");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_one_line_and_a_lost_one_says_so() {
        let quick = line(Duration::from_millis(3200), Some(Duration::from_micros(50)), false);
        assert_eq!(quick, "   3.2s  ▇▇▇▇▇▇ 0.05 ms");
        assert_eq!(line(Duration::ZERO, None, false), "   0.0s  ✗ lost");
        assert!(line(Duration::ZERO, None, true).contains("\x1b[31m"));
        assert!(blocks(Duration::from_millis(100)) > blocks(Duration::from_millis(1)));
        assert!(blocks(Duration::from_secs(3600)) <= 48);
    }

    #[test]
    fn the_median_leaves_lost_packets_out() {
        let ms = |n| Some(Duration::from_millis(n));
        let phase = Phase { name: "x", samples: vec![ms(9), None, ms(1), ms(2)], root_qdisc: String::new() };
        assert_eq!((phase.lost(), phase.median()), (1, ms(2)));
    }
}
