//! A link that changes while it is looked at: rates, delays and losses with their times, as a text.
//!
//! A text is one of two things, and its first line tells which.
//!
//! - CSV: a line with the names of the columns, then rows, each of which holds until the next.
//! - A packet-delivery trace of Mahimahi: each line is the millisecond at which one full packet may leave. The trace begins anew after
//!   its last line. Source: mm-link(1) of Mahimahi, <https://github.com/ravinet/mahimahi>.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::impairment::RATE_KBIT;
use super::link::{MOST_DELAY_MS, OneWay};
use super::units::{Probability, SpecError, time};

/// The longest text, in bytes.
pub(crate) const LONGEST_TEXT: u64 = 64 << 10;
/// The most steps, after those that are alike have become one.
const MOST_STEPS: usize = 4096;
/// The shortest step: a queue is not changed more often.
const SHORTEST_STEP: Duration = Duration::from_millis(100);
/// The longest period.
pub(super) const LONGEST_PERIOD: Duration = Duration::from_secs(3600);
/// Bits of a full Ethernet frame, which carries the 1500 bytes of one line of Mahimahi's.
const FRAME_BITS: u128 = 1514 * 8;
/// The columns of a CSV.
const COLUMNS: [&str; 4] = ["time_s", "rate_kbit", "delay_ms", "loss_percent"];

/// One way over a link that changes. It begins anew after its last step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// At least one, of which no two neighbours are alike.
    pub steps: Vec<Step>,
}

/// What is so for a while.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// How long it is so.
    pub lasts: Duration,
    /// What is so. A rate of 0 lets nothing through.
    pub way: OneWay,
}

impl Trace {
    /// How long it takes until it begins anew.
    pub fn period(&self) -> Duration {
        self.steps.iter().map(|step| step.lasts).sum()
    }

    /// Whether it says how much gets through.
    pub fn has_rates(&self) -> bool {
        self.steps.iter().any(|step| step.way.kbit.is_some())
    }

    /// Whether for a second or more nothing at all gets through.
    pub fn cuts_off(&self) -> bool {
        let lost = |step: &Step| step.way.loss == Probability::CERTAIN;
        let mut held = Duration::ZERO;
        // Twice, since the first comes after the last.
        let mut stands_still = self.steps.iter().chain(&self.steps).map(|step| {
            held = if step.way.kbit == Some(0) { held + step.lasts } else { Duration::ZERO };
            held >= Duration::from_secs(1)
        });
        stands_still.any(|stands_still| stands_still) || self.steps.iter().any(lost)
    }
}

/// What a text says from a moment on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    at: Duration,
    kbit: Option<u64>,
    delay: Option<Duration>,
    loss: Option<Probability>,
}

/// A text that was read: rows in the order of their times, of which all say the same quantities.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    rows: Vec<Row>,
    end: Duration,
}

impl Told {
    /// Reads a text, which `field` has. It begins anew after `period`, or where it ends itself.
    ///
    /// # Errors
    /// Names the line, and what it should be.
    pub(super) fn read(field: &str, text: &str, period: Option<Duration>) -> Result<Self, SpecError> {
        let mut lines = lines(text).peekable();
        let told = match lines.peek() {
            None => Err("is empty: give a CSV, or a packet-delivery trace of Mahimahi".to_owned()),
            Some((_, first)) if is_number(first) => deliveries(lines).and_then(|all| windows(&all, period)),
            Some(_) => table(lines, period),
        };
        told.map_err(|problem| SpecError::new(field, problem))
    }

    /// Which quantities it says, each with the end of its parameter's name.
    pub(super) fn quantities(&self) -> impl Iterator<Item = &'static str> {
        let first = self.rows.first();
        let told =
            first.map_or([false; 3], |row| [row.kbit.is_some(), row.delay.is_some(), row.loss.is_some()]);
        COLUMNS.into_iter().skip(1).zip(told).filter(|(_, told)| *told).map(|(name, _)| name)
    }

    /// The longest delay that it says.
    pub(super) fn longest_delay(&self) -> Option<Duration> {
        self.rows.iter().filter_map(|row| row.delay).max()
    }

    /// The trace. What the text does not say is as in `way`.
    ///
    /// # Errors
    /// When it has too many steps.
    pub(super) fn over(&self, field: &str, way: OneWay) -> Result<Trace, SpecError> {
        let ends = self.rows.iter().skip(1).map(|row| row.at).chain([self.end]);
        let mut steps: Vec<Step> = Vec::new();
        for (row, end) in self.rows.iter().zip(ends) {
            let delay = row.delay.unwrap_or(way.delay);
            let way = OneWay {
                delay,
                jitter: way.jitter.min(delay),
                loss: row.loss.unwrap_or(way.loss),
                kbit: row.kbit.or(way.kbit),
            };
            let lasts = end.saturating_sub(row.at);
            match steps.last_mut().filter(|last| last.way == way) {
                Some(last) => last.lasts += lasts,
                None => steps.push(Step { lasts, way }),
            }
        }
        if steps.len() > MOST_STEPS {
            let problem = format!("{} steps are too many: give {MOST_STEPS} at most", steps.len());
            return Err(SpecError::new(field, problem));
        }
        Ok(Trace { steps })
    }
}

/// After what time a fault with these parameters begins its traces anew, if it says so.
pub(crate) fn period(params: &Map<String, Value>) -> Option<Duration> {
    let seconds = params.get("trace_period_seconds")?.as_f64()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The same trace as a shorter CSV, where that says as much as is replayed: of deliveries how many there are in each step. It begins
/// anew after `period`, or where it ends itself.
pub(crate) fn shortened(text: &str, period: Option<Duration>) -> Option<String> {
    lines(text).next().filter(|(_, first)| is_number(first))?;
    let told = deliveries(lines(text)).and_then(|all| windows(&all, period)).ok()?;
    let mut csv = "time_s,rate_kbit\n".to_owned();
    for Row { at, kbit, .. } in told.rows {
        let _ = writeln!(csv, "{:.3},{}", at.as_secs_f64(), kbit.unwrap_or_default());
    }
    Some(csv)
}

/// The lines that say something, with their numbers from 1 on. What follows a # at the beginning of one is for people.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn is_number(line: &str) -> bool {
    line.bytes().all(|byte| byte.is_ascii_digit())
}

/// A value, cut short where it is long, as an error shows it.
fn shown(value: &str) -> String {
    format!("{:?}", value.chars().take(40).collect::<String>())
}

/// The milliseconds of Mahimahi's lines.
fn deliveries<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Vec<u64>, String> {
    let mut all: Vec<u64> = Vec::new();
    for (number, line) in lines {
        let millisecond =
            line.parse::<u64>().ok().filter(|_| is_number(line)).ok_or_else(|| {
                format!("line {number}: {} is no whole number of milliseconds", shown(line))
            })?;
        let last = all.last().copied().unwrap_or_default();
        if millisecond < last {
            return Err(format!("line {number}: time goes back, from {last} to {millisecond} ms"));
        }
        if Duration::from_millis(millisecond) > LONGEST_PERIOD {
            return Err(format!(
                "line {number}: {millisecond} ms is more than {} s",
                LONGEST_PERIOD.as_secs()
            ));
        }
        all.push(millisecond);
    }
    Ok(all)
}

/// Counts deliveries in equal windows, of which none is shorter than a step, and there are no more than there may be steps. A delivery
/// at the end of a window counts for it, so that the last one, which is the end, counts too.
fn windows(deliveries: &[u64], period: Option<Duration>) -> Result<Told, String> {
    let last = Duration::from_millis(deliveries.last().copied().unwrap_or_default());
    let end = period.unwrap_or(last);
    if end < last {
        return Err(format!("its last line is at {last:?}, after the period of {end:?}"));
    }
    if end.is_zero() {
        return Err("its last line is at 0 ms: give at least 1".to_owned());
    }
    let most = u128::try_from(MOST_STEPS).unwrap_or(u128::MAX);
    let count = (end.as_nanos() / SHORTEST_STEP.as_nanos()).clamp(1, most);
    let mut counts = vec![0_u128; usize::try_from(count).unwrap_or(1)];
    for delivery in deliveries {
        let at = Duration::from_millis(*delivery).as_nanos();
        let window = (at * count).div_ceil(end.as_nanos()).saturating_sub(1);
        if let Some(counted) = usize::try_from(window).ok().and_then(|window| counts.get_mut(window)) {
            *counted += 1;
        }
    }
    let begins = |window: u128| {
        Duration::from_nanos(u64::try_from(end.as_nanos() * window / count).unwrap_or(u64::MAX))
    };
    let row = |(window, counted): (u128, u128)| {
        // Bits in nanoseconds, as thousands of bits in a second; rounded.
        let (bits, nanos) = (counted * FRAME_BITS * count * 1_000_000, end.as_nanos());
        let kbit = u64::try_from((bits + nanos / 2) / nanos).unwrap_or(u64::MAX);
        if kbit > RATE_KBIT.1 {
            return Err(format!("{kbit} kbit/s is out of bounds: give up to {}", RATE_KBIT.1));
        }
        Ok(Row { at: begins(window), kbit: Some(kbit), delay: None, loss: None })
    };
    let rows = (0..).zip(counts).map(row).collect::<Result<_, _>>()?;
    Ok(Told { rows, end })
}

/// A CSV.
fn table<'a>(
    mut lines: impl Iterator<Item = (usize, &'a str)>,
    period: Option<Duration>,
) -> Result<Told, String> {
    let (number, names) = lines.next().unwrap_or_default();
    let columns = columns(names).map_err(|problem| format!("line {number}: {problem}"))?;
    let mut rows: Vec<Row> = Vec::new();
    for (number, line) in lines {
        let row = row(&columns, line).and_then(|row| follows(rows.last(), row));
        rows.push(row.map_err(|problem| format!("line {number}: {problem}"))?);
    }
    let Some(last) = rows.last().map(|row| row.at) else {
        return Err("has no row below its columns".to_owned());
    };
    let end = match (period, rows.iter().rev().nth(1)) {
        (Some(period), _) => period,
        // As long as the one before.
        (None, Some(before)) => (last + (last - before.at)).min(LONGEST_PERIOD),
        (None, None) => Duration::from_secs(1),
    };
    if end < last + SHORTEST_STEP {
        return Err(format!(
            "its last row is at {last:?}: the period of {end:?} has to be {SHORTEST_STEP:?} more, or longer"
        ));
    }
    Ok(Told { rows, end })
}

/// Which columns there are, by their place in [`COLUMNS`].
fn columns(line: &str) -> Result<Vec<usize>, String> {
    let (first, others) = (COLUMNS[0], COLUMNS[1..].join(", "));
    let mut found = Vec::new();
    for name in line.split(',').map(str::trim) {
        let known = COLUMNS.iter().position(|known| *known == name).ok_or_else(|| {
            let hint = if name.starts_with('@') {
                "; only `chaosctl inject` and `chaosctl targets` read a @FILE"
            } else {
                ""
            };
            format!("{} is no column: give {first}, and of {others} those that change{hint}", shown(name))
        })?;
        if found.contains(&known) {
            return Err(format!("the column {name} is there twice"));
        }
        found.push(known);
    }
    match (found.contains(&0), found.len()) {
        (false, _) => Err(format!("the column {first} is missing")),
        (true, 1) => Err(format!("no column beside {first}: give at least one of {others}")),
        (true, _) => Ok(found),
    }
}

fn row(columns: &[usize], line: &str) -> Result<Row, String> {
    let values: Vec<_> = line.split(',').map(str::trim).collect();
    if values.len() != columns.len() {
        return Err(format!("{} values for {} columns", values.len(), columns.len()));
    }
    let mut row = Row { at: Duration::ZERO, kbit: None, delay: None, loss: None };
    for (column, value) in columns.iter().zip(values) {
        let name = COLUMNS.get(*column).copied().unwrap_or_default();
        let number = value.parse().ok().ok_or_else(|| format!("{name}: {} is no number", shown(value)))?;
        match name {
            "time_s" => row.at = time(within(name, number, 0.0, LONGEST_PERIOD.as_secs_f64())? * 1e3),
            "rate_kbit" => row.kbit = Some(rate(name, number)?),
            "delay_ms" => row.delay = Some(time(within(name, number, 0.0, MOST_DELAY_MS)?)),
            _ => {
                let percent = within(name, number, 0.0, 100.0)?;
                row.loss = Some(Probability::new(name, percent / 100.0).map_err(|error| error.to_string())?);
            }
        }
    }
    Ok(row)
}

/// What is not a number is in no bounds.
fn within(name: &str, number: f64, least: f64, most: f64) -> Result<f64, String> {
    let problem = || format!("{name}: {number} is out of bounds: give {least} to {most}");
    (least..=most).contains(&number).then_some(number).ok_or_else(problem)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the bounds of a rate, which are far below 2^53"
)]
fn rate(name: &str, number: f64) -> Result<u64, String> {
    let (least, most) = (RATE_KBIT.0 as f64, RATE_KBIT.1 as f64);
    if number == 0.0 {
        return Ok(0);
    }
    let number = within(name, number, least, most).map_err(|problem| format!("{problem}, or 0"))?;
    Ok(number.round() as u64)
}

/// The row, if it may come after the other.
fn follows(before: Option<&Row>, row: Row) -> Result<Row, String> {
    let at = row.at;
    match before.map(|before| before.at) {
        None if at.is_zero() => Ok(row),
        None => Err(format!("the first row is at {at:?}: let it be at 0")),
        Some(before) if at <= before => Err(format!("time does not go on, from {before:?} to {at:?}")),
        // A time is a fraction of seconds, which no float has exactly.
        Some(before) if at + Duration::from_micros(1) < before + SHORTEST_STEP => {
            Err(format!("{:?} after the row before: {SHORTEST_STEP:?} is the least", at - before))
        }
        Some(_) => Ok(row),
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
