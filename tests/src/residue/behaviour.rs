//! How a pair of namespaces behaves, whatever is or is not on its links: what its user notices.

use std::fs::File;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::measure::{Echo, Tcp, tcp_rtt, udp_rtt};
use crate::pair::Pair;

/// Datagrams sent.
const DATAGRAMS: usize = 8;
/// Longest that one may take: more than any delay that tests inject, and a busy machine's hiccup.
const PATIENCE: Duration = Duration::from_millis(500);
/// The quickest round trip may differ by so much. Load does not slow the quickest of several by more; every delay that tests
/// inject does.
const SLOWER: Duration = Duration::from_millis(10);

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// Datagrams, of eight, that were not answered.
    pub lost: usize,
    /// The quickest answer.
    pub round_trip: Option<Duration>,
    /// How connecting went: "answered", or what the error was.
    pub connect: String,
    /// How opening a file went: "opened", or what the error was.
    pub open: String,
}

impl Behaviour {
    /// Measures, from the near side to an echo on the far one. Some milliseconds, if nothing is wrong.
    ///
    /// # Errors
    /// When it cannot be measured at all.
    pub fn measure(pair: &Pair, echo: &Echo) -> Result<Self> {
        let mut answers = Vec::new();
        for _ in 0..DATAGRAMS {
            answers.extend(udp_rtt(&pair.near, echo.address(), PATIENCE)?);
        }
        let connect = match tcp_rtt(&pair.near, echo.address(), PATIENCE)? {
            Tcp::Answered { .. } => "answered".to_owned(),
            Tcp::Reset(_) => "refused or reset".to_owned(),
            Tcp::Silent => "silent".to_owned(),
        };
        let open =
            File::open("/proc/self/exe").map_or_else(|error| error.to_string(), |_| "opened".to_owned());
        let round_trip = answers.iter().min().copied();
        Ok(Self { lost: DATAGRAMS - answers.len(), round_trip, connect, open })
    }

    /// Whether it behaves as it did then.
    ///
    /// # Errors
    /// Says what differs.
    pub fn assert_like(&self, before: &Self) -> Result<()> {
        let slower = match (self.round_trip, before.round_trip) {
            (Some(now), Some(then)) => now > then + SLOWER,
            (now, then) => now.is_some() != then.is_some(),
        };
        let same = (self.lost, &self.connect, &self.open) == (before.lost, &before.connect, &before.open);
        match same && !slower {
            true => Ok(()),
            false => Err(Error::Different(format!("behaves otherwise: {self:?}, before: {before:?}"))),
        }
    }
}
