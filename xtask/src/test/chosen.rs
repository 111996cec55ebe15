//! What of a step is run, and the command that runs something of it again.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Every so manieth cell of a set, written `3/8`: the programs' `--partition` (`tests/src/cells.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Share {
    /// From 1.
    number: u32,
    of: u32,
}

impl Share {
    /// All cells at once.
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    /// The one whose turn it is at a landing, of so many.
    pub(crate) fn at(landing: u64, of: u32) -> Self {
        let turn = u32::try_from(landing % u64::from(of.max(1))).unwrap_or_default();
        Self { number: turn + 1, of: of.max(1) }
    }

    /// All of so many.
    pub(crate) fn all(of: u32) -> impl Iterator<Item = Self> {
        (1..=of).map(move |number| Self { number, of })
    }

    pub(crate) fn of(self) -> u32 {
        self.of
    }

    pub(crate) fn number(self) -> u32 {
        self.number
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(one, of)| Some((one.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number @ 1.., of)) if number <= of => Ok(Self { number, of }),
            _ => Err(format!("{text:?} is no share, such as 3/8")),
        }
    }
}

/// By what a part of a step can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Takes {
    /// The whole names of cells, or tests.
    pub(crate) cells: bool,
    /// Texts that are in their names.
    pub(crate) filters: bool,
    /// Which calls and events are struck of those that a stride leaves out.
    pub(crate) offset: bool,
}

impl Takes {
    pub(crate) const NOTHING: Self = Self { cells: false, filters: false, offset: false };
    pub(crate) const FILTERS: Self = Self { filters: true, ..Self::NOTHING };
    pub(crate) const NAMES: Self = Self { cells: true, ..Self::FILTERS };
    pub(crate) const POINTS: Self = Self { offset: true, ..Self::NAMES };
}

/// What of a step is run.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    /// The step.
    pub(crate) step: &'static str,
    /// By what a part of it can be asked for.
    pub(crate) takes: Takes,
    /// How many shares it has.
    pub(crate) shares: u32,
    /// The share of its cells; `None`: all that has one of the names below.
    pub(crate) share: Option<Share>,
    /// The number of the landing, from which share, offset and seed follow.
    pub(crate) landing: u64,
    /// Another offset than follows.
    pub(crate) offset: Option<u64>,
    /// Only cells, or tests, of these names.
    pub(crate) cells: Vec<String>,
    /// Only those in whose name one of these is.
    pub(crate) filters: Vec<String>,
    /// How long the whole run may take, if it is this step's alone.
    pub(crate) minutes: Option<u64>,
    /// When no further cell of it is begun, if there is a limit.
    pub(crate) until: Option<Instant>,
}

impl Chosen {
    /// Has each round of landings strike other calls than the one before.
    pub(crate) fn offset(&self) -> u64 {
        self.offset.unwrap_or(self.landing / u64::from(self.shares.max(1)))
    }

    /// For what is left to chance: another number for each share of each landing.
    pub(crate) fn seed(&self) -> u64 {
        let number = self.share.map_or(1, Share::number);
        self.landing * u64::from(self.shares.max(1)) + u64::from(number - 1)
    }

    /// The arguments by which every program of the tests runs some of its cells, but for filters, which each calls otherwise.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let share = self.share.map(|share| format!("--partition={share}"));
        let cells = self.cells.iter().map(|cell| format!("--cell={cell}"));
        let offset = self.takes.offset.then(|| format!("--offset={}", self.offset()));
        share.into_iter().chain(cells).chain(offset).collect()
    }

    /// How long its cells are begun from now on, if there is a limit.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// What is run, for people.
    pub(crate) fn title(&self) -> String {
        let share = self.share.map(|share| format!(", share {share}"));
        let names = self.cells.iter().chain(&self.filters).map(|name| format!(", {name}"));
        let offset = self.takes.offset.then(|| format!(", offset {}", self.offset()));
        std::iter::once(self.step.to_owned()).chain(share).chain(names).chain(offset).collect()
    }

    /// The command that runs one cell again, or one test.
    pub(crate) fn replay(&self, cell: &str) -> String {
        match self.takes.cells {
            true => format!("{} --cell {}{}", self.only(), quoted(cell), self.offset_option()),
            false => self.replay_all(),
        }
    }

    /// The command that runs all of it again.
    pub(crate) fn replay_all(&self) -> String {
        let share = self.share.map(|share| format!(" --share {}", share.number));
        let cells = self.cells.iter().map(|cell| format!(" --cell {}", quoted(cell)));
        let filters = self.filters.iter().map(|filter| format!(" --filter {}", quoted(filter)));
        let parts: String = share.into_iter().chain(cells).chain(filters).collect();
        format!("{}{parts}{}", self.only(), self.offset_option())
    }

    fn only(&self) -> String {
        format!("cargo xtask test --only {}", self.step)
    }

    fn offset_option(&self) -> String {
        if self.takes.offset { format!(" --offset {}", self.offset()) } else { String::new() }
    }
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(takes: Takes, share: Option<Share>) -> Chosen {
        let (cells, filters) = (Vec::new(), Vec::new());
        let (step, offset, minutes, until) = ("matrix", None, None, None);
        Chosen { step, takes, shares: 8, share, landing: 614, offset, cells, filters, minutes, until }
    }

    #[test]
    fn within_as_many_landings_as_there_are_shares_each_has_its_turn_and_then_strikes_other_calls() {
        for first in [0, 5, 614] {
            let mut met: Vec<_> = (first..first + 8).map(|landing| Share::at(landing, 8)).collect();
            met.sort_unstable();
            assert_eq!(met, Share::all(8).collect::<Vec<_>>());
        }
        let offset = |landing| Chosen { landing, ..chosen(Takes::POINTS, None) }.offset();
        let turns = (0..80).map(|landing| (Share::at(landing, 8).number(), offset(landing)));
        let mut turns: Vec<_> = turns.collect();
        turns.sort_unstable();
        turns.dedup();
        assert_eq!(turns.len(), 80);
    }

    #[test]
    fn each_share_of_each_landing_has_a_seed_of_its_own() {
        let seed = |landing, share| Chosen { landing, ..chosen(Takes::NOTHING, Some(share)) }.seed();
        let mut seeds: Vec<_> =
            (600..620).flat_map(|landing| Share::all(8).map(move |share| seed(landing, share))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 20 * 8);
    }

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for share in Share::all(12) {
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        for wrong in ["", "3", "0/8", "9/8", "1/0", "a/b"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cell_is_run_again_by_its_name_at_the_offset_at_which_it_failed() {
        let matrix = chosen(Takes::POINTS, Some(Share::at(614, 8)));
        assert_eq!(
            matrix.replay("latency by Auto, every event"),
            "cargo xtask test --only matrix --cell 'latency by Auto, every event' --offset 76"
        );
        assert_eq!(matrix.replay_all(), "cargo xtask test --only matrix --share 7 --offset 76");
        let by_hand = Chosen { offset: Some(123), share: None, cells: vec!["a b".into()], ..matrix };
        assert_eq!(by_hand.replay_all(), "cargo xtask test --only matrix --cell 'a b' --offset 123");
        assert_eq!(by_hand.arguments(), ["--cell=a b", "--offset=123"]);
    }

    #[test]
    fn what_has_no_cells_is_run_again_whole() {
        let whole = Chosen { step: "report", ..chosen(Takes::NOTHING, None) };
        assert_eq!(whole.replay("a page"), "cargo xtask test --only report");
        let some = Chosen { filters: vec!["dns::".into()], ..chosen(Takes::FILTERS, None) };
        assert_eq!(some.replay_all(), "cargo xtask test --only matrix --filter dns::");
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_take_it_apart() {
        assert_eq!(["a::b", "", "it's a", "$x"].map(quoted), ["a::b", "''", r"'it'\''s a'", "'$x'"]);
    }
}
