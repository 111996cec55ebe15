//! Numbers about this host: memory, processors, load, room in file systems, open files, threads. Where a number is read and what
//! becomes of it is in a file for each.

mod count;
mod cpu;
mod disk;
mod memory;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use self::count::Count;
use self::disk::Disk;
use self::memory::Memory;
use super::span::Span;
use super::{Sampler, Seen, blocking, instruments, late};
use crate::spec::SpecError;

/// Over how long processors are watched when nobody says and the time limit allows it.
const WINDOW: Duration = Duration::from_secs(1);
/// The kernel counts in hundredths of a second: below this a number would be too coarse.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);
/// Half of the longest time limit.
const LONGEST_WINDOW: Duration = Duration::from_secs(15);
/// The longest path of Linux.
const LONGEST_PATH: usize = 4096;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metric {
    /// Memory, or swap.
    Memory(Memory),
    /// How busy the processors are, in percent of all of them.
    Cpu,
    /// What the kernel counts by itself.
    Count(Count),
    /// The file system of a path.
    Disk(Disk),
}

/// Names of what is measured.
pub const METRICS: &[(&str, Metric)] = &[
    ("memory_used_percent", Metric::Memory(Memory::UsedPercent)),
    ("memory_available_bytes", Metric::Memory(Memory::AvailableBytes)),
    ("swap_used_percent", Metric::Memory(Memory::SwapUsedPercent)),
    ("cpu_busy_percent", Metric::Cpu),
    ("load1", Metric::Count(Count::Load1)),
    ("load5", Metric::Count(Count::Load5)),
    ("load15", Metric::Count(Count::Load15)),
    ("disk_used_percent", Metric::Disk(Disk::UsedPercent)),
    ("disk_available_bytes", Metric::Disk(Disk::AvailableBytes)),
    ("inodes_used_percent", Metric::Disk(Disk::InodesUsedPercent)),
    ("open_files_percent", Metric::Count(Count::OpenFilesPercent)),
    ("tasks_percent", Metric::Count(Count::TasksPercent)),
];

impl Metric {
    fn parse(name: &str) -> Result<Self, SpecError> {
        let found = METRICS.iter().find(|(known, _)| *known == name).map(|(_, metric)| *metric);
        found.ok_or_else(|| {
            let names: Vec<_> = METRICS.iter().map(|(name, _)| *name).collect();
            SpecError::new("METRIC", format!("{name:?} is not one of {}", names.join(", ")))
        })
    }

    fn name(self) -> &'static str {
        METRICS.iter().find(|(_, metric)| *metric == self).map_or("", |(name, _)| name)
    }
}

/// One number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Number {
    metric: Metric,
    /// Of a metric of a file system, and of no other: where.
    path: Option<String>,
    /// Of processors, and of nothing else: over how long, if that is said.
    window: Option<Duration>,
}

impl Number {
    /// Understands the name of a metric, with the path and the window that it is given.
    ///
    /// # Errors
    /// Names what is missing, there is not, or does not go together.
    pub fn parse(metric: &str, path: Option<&str>, window: Option<Duration>) -> Result<Self, SpecError> {
        let metric = Metric::parse(metric)?;
        match (metric, path) {
            (Metric::Disk(_), None) => {
                let problem =
                    format!("missing: {} is of a file system, give e.g. --path /var", metric.name());
                return Err(SpecError::new("--path", problem));
            }
            (Metric::Disk(_), Some(path)) => check_path(path)?,
            (_, Some(_)) => {
                let problem = format!("{} is of the whole host: leave it out", metric.name());
                return Err(SpecError::new("--path", problem));
            }
            (_, None) => {}
        }
        check_window(metric, window)?;
        Ok(Self { metric, path: path.map(str::to_owned), window })
    }
}

/// Who asks has another directory than the daemon.
fn check_path(path: &str) -> Result<(), SpecError> {
    match path.starts_with('/') && path.len() < LONGEST_PATH && !path.contains(char::is_control) {
        true => Ok(()),
        false => {
            Err(SpecError::new("--path", format!("{path:?} is not an absolute path: give e.g. \"/var\"")))
        }
    }
}

fn check_window(metric: Metric, window: Option<Duration>) -> Result<(), SpecError> {
    match window {
        None => Ok(()),
        Some(_) if metric != Metric::Cpu => {
            let problem = format!("{} is of one moment: leave it out", metric.name());
            Err(SpecError::new("--window", problem))
        }
        Some(window) if (SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&window) => Ok(()),
        Some(window) => {
            let problem =
                format!("{window:?} is out of bounds: give {SHORTEST_WINDOW:?} to {LONGEST_WINDOW:?}");
            Err(SpecError::new("--window", problem))
        }
    }
}

impl Sampler for Number {
    async fn take(&self, limit: Duration) -> Seen {
        let read = async {
            match (self.metric, &self.path) {
                (Metric::Memory(memory), _) => blocking(limit, move || memory.read()).await?,
                (Metric::Count(count), _) => blocking(limit, move || count.read()).await?,
                (Metric::Cpu, _) => cpu::watch(self.window.unwrap_or(WINDOW.min(limit / 2)), limit).await,
                (Metric::Disk(disk), Some(path)) => disk.take(path, limit).await,
                (Metric::Disk(_), None) => Err("the question names no path".to_owned()),
            }
        };
        timeout(limit, read).await.unwrap_or_else(|_| Err(late(limit))).into()
    }

    /// Sees that a sample may take long enough for the window, where `field` says how long it may take.
    ///
    /// # Errors
    /// Says how long it has to be.
    fn unit(&self) -> &'static str {
        let endings = [("_percent", "%"), ("_bytes", "bytes")];
        let name = self.metric.name();
        endings
            .into_iter()
            .find_map(|(ending, unit)| name.ends_with(ending).then_some(unit))
            .unwrap_or_default()
    }

    fn span(&self, _: Duration) -> Span {
        // Of counts root may go beyond what is said to be all.
        let is_share = self.metric.name().ends_with("_percent") && !matches!(self.metric, Metric::Count(_));
        if is_share { Span::PERCENT } else { Span::AMOUNT }
    }

    fn fits(&self, field: &str, limit: Duration) -> Result<(), SpecError> {
        let least = self.window.unwrap_or(SHORTEST_WINDOW) * 2;
        if self.metric != Metric::Cpu || limit >= least {
            return Ok(());
        }
        let problem =
            format!("{limit:?} for a sample of {self}: give {least:?} at least, twice the --window");
        Err(SpecError::new(field, problem))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.metric.name())?;
        match (&self.path, self.window) {
            (Some(path), _) => write!(f, " of {path}"),
            (None, Some(window)) => write!(f, " over {window:?}"),
            (None, None) => Ok(()),
        }
    }
}

/// What the file at `path`, an instrument, says.
fn read(path: &'static str) -> Result<String, String> {
    instruments::read(path).map_err(|error| format!("reading {path}: {error}"))
}

/// What an instrument that cannot be understood said.
fn unsaid(path: &str, text: &str) -> String {
    format!("this kernel does not say so in {path}: {:?}", text.lines().next().unwrap_or_default())
}

/// How many percent of `whole` are `part`; `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| number(part) * 100.0 / number(whole))
}

#[expect(clippy::cast_precision_loss, reason = "nobody has 8 PiB of which one byte counts")]
fn number(value: u64) -> f64 {
    value as f64
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests;
