//! A set of tests as a list of cells, and which of them are run. Names of cells stay, and so do their places in the list: a share of
//! the list is the same cells on every machine, whatever that machine can do of them.

use crate::uptime::uptime;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Every so manieth cell, written `1/2`. Neighbours, which are alike and take alike long, are in different ones, so that each
/// partition takes about as long as the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// From 1.
    number: usize,
    of: usize,
}

impl Partition {
    /// Every cell.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    fn has(self, index: usize) -> bool {
        index % self.of == self.index()
    }

    /// Its number, from 0.
    pub fn index(self) -> usize {
        self.number - 1
    }

    /// How many there are.
    pub fn of(self) -> usize {
        self.of
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number @ 1.., of)) if number <= of => Ok(Self { number, of }),
            _ => Err("must be one of how many, such as 1/2".to_owned()),
        }
    }
}

/// Which cells are run, and whether they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Of the list.
    partition: Partition,
    /// Instead, the cells of these names.
    names: Vec<String>,
    /// Only their names are asked for.
    pub is_list: bool,
    until: Until,
}

/// How long the machine has been up when no further cell is begun, in seconds. Without a limit that is never.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Until(Option<f64>);

impl Until {
    /// The time left; `None` without a limit, or where `/proc/uptime` cannot be read.
    pub fn left(self) -> Option<Duration> {
        let [up, _] = uptime().ok()?;
        Some(Duration::from_secs_f64((self.0? - up).max(0.0)))
    }

    fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse().ok().filter(|seconds| (0.0..1e12).contains(seconds));
        seconds.map(|seconds| Self(Some(seconds))).ok_or_else(|| "must be a number of seconds".to_owned())
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self { partition: Partition::WHOLE, names: Vec::new(), is_list: false, until: Until::default() }
    }
}

impl Choice {
    /// Takes an argument: `--partition=K/N`, `--cell=NAME`, which may be repeated, `--until=SECONDS`, or `--list`. `None` for any
    /// other.
    pub fn take(&mut self, argument: &str) -> Option<()> {
        match argument.split_once('=') {
            Some(("--partition", text)) => self.partition = text.parse().ok()?,
            Some(("--cell", name)) => self.names.push(name.to_owned()),
            Some(("--until", text)) => self.until = text.parse().ok()?,
            None if argument == "--list" => self.is_list = true,
            _ => return None,
        }
        Some(())
    }

    /// Of the whole list, what is asked for.
    ///
    /// # Errors
    /// With a name that no cell has.
    pub fn of<T>(&self, list: Vec<T>, name: impl Fn(&T) -> &str) -> Result<Vec<T>, String> {
        if let Some(unknown) = self.names.iter().find(|wanted| !list.iter().any(|cell| name(cell) == *wanted))
        {
            return Err(format!("no cell is called {unknown:?}"));
        }
        let is_chosen = |(index, cell): &(usize, T)| match self.names.is_empty() {
            true => self.partition.has(*index),
            false => self.names.iter().any(|wanted| wanted == name(cell)),
        };
        Ok(list.into_iter().enumerate().filter(is_chosen).map(|(_, cell)| cell).collect())
    }

    /// Does this with each cell, until the time is over. Returns how many were not begun.
    pub fn each<T>(&self, cells: &[T], mut run: impl FnMut(&T)) -> usize {
        let begun = cells.iter().take_while(|_| !self.until.is_over()).map(&mut run).count();
        cells.len() - begun
    }
}

/// Says the names of cells, one a line.
pub fn print(names: &[impl AsRef<str>]) -> ExitCode {
    names.iter().for_each(|name| println!("{}", name.as_ref()));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_one_partition() {
        let partitions = ["1/3", "2/3", "3/3"].map(|text| text.parse::<Partition>().unwrap());
        for index in 0..10 {
            assert_eq!(partitions.iter().filter(|partition| partition.has(index)).count(), 1, "{index}");
        }
        assert!((0..10).all(|index| Partition::WHOLE.has(index)));
        for wrong in ["", "1", "0/2", "3/2", "1/0", "-1/2", "a/b"] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }

    fn chosen(arguments: &[&str]) -> Result<Vec<&'static str>, String> {
        let mut choice = Choice::default();
        arguments.iter().for_each(|argument| choice.take(argument).unwrap());
        choice.of(vec!["a", "a b", "b", "c"], |name| name)
    }

    #[test]
    fn a_cell_is_chosen_by_its_whole_name_or_with_its_partition() {
        assert_eq!(chosen(&[]), Ok(vec!["a", "a b", "b", "c"]));
        assert_eq!(chosen(&["--partition=2/3"]), Ok(vec!["a b"]));
        assert_eq!(chosen(&["--cell=b", "--cell=a"]), Ok(vec!["a", "b"]));
        assert_eq!(chosen(&["--cell=a", "--partition=2/2", "--list"]), Ok(vec!["a"]));
        assert!(chosen(&["--cell=a", "--cell="]).is_err());
    }

    #[test]
    fn no_cell_is_begun_when_the_time_is_over() {
        let begun = |arguments: &[&str]| {
            let (mut choice, mut begun) = (Choice::default(), Vec::new());
            arguments.iter().for_each(|argument| choice.take(argument).unwrap());
            let left = choice.each(&["a", "b", "c"], |cell| begun.push(*cell));
            (begun, left)
        };
        let all = (vec!["a", "b", "c"], 0);
        assert_eq!(begun(&[]), all);
        assert_eq!(begun(&[&format!("--until={}", u32::MAX)]), all);
        assert_eq!(begun(&["--until=0"]), (vec![], 3));
    }

    #[test]
    fn what_is_none_of_its_arguments_is_left_to_others() {
        for argument in ["--partition=0/2", "--cells=a", "--list=a", "--until=soon", "--until=-1", "a"] {
            assert_eq!(Choice::default().take(argument), None, "{argument}");
        }
    }
}
