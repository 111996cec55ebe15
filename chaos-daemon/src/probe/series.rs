//! A series of samples of an address, a port, an MCP server or a program: what share fails, how long the answers take, how many are
//! answered in a second. One after the other, or at a rate, whatever becomes of those before: then it is a steady load as well, by which
//! a service without traffic can be judged. Bounded in rate, in connections and in time.

use std::fmt;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::credential::Credential;
use super::latency::{MOST_SAMPLES, PERCENTILES, SAMPLES};
use super::program::Program;
use super::span::Span;
use super::{Bounds, Check, Probe, Sample, Sampler, Seen, late};
use crate::spec::SpecError;

/// The most requests a second.
const MOST_RATE: u32 = 200;
/// How many there are when a window alone is given.
const RATE: u32 = 10;
/// For how long when a rate alone is given, if a sample may take twice that.
const WINDOW: Duration = Duration::from_secs(1);
/// The most requests of one series that wait for an answer.
const MOST_AT_ONCE: usize = 16;
/// The most series of this process at once; others wait for their turn, within their time.
const MOST_SERIES: usize = 16;

static TURNS: Semaphore = Semaphore::const_new(MOST_SERIES);

/// What is measured of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// How many of 100 failed.
    #[default]
    FailedPercent,
    /// Milliseconds within which so many of 100 were answered.
    Percentile(u32),
    /// How many were answered in a second.
    PerSecond,
}

/// What can be measured, by name.
pub const MEASURES: &[(&str, Measure)] = &[
    ("failed_percent", Measure::FailedPercent),
    ("per_second", Measure::PerSecond),
    (PERCENTILES[0].0, Measure::Percentile(PERCENTILES[0].1)),
    (PERCENTILES[1].0, Measure::Percentile(PERCENTILES[1].1)),
    (PERCENTILES[2].0, Measure::Percentile(PERCENTILES[2].1)),
    (PERCENTILES[3].0, Measure::Percentile(PERCENTILES[3].1)),
    (PERCENTILES[4].0, Measure::Percentile(PERCENTILES[4].1)),
];

impl Measure {
    fn name(self) -> &'static str {
        MEASURES.iter().find(|(_, measure)| *measure == self).map_or("", |(name, _)| name)
    }
}

/// When the requests are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Pace {
    /// So many, each when the one before was answered.
    InTurn(u32),
    /// So many a second, for so long; without that, [`WINDOW`].
    Steady(u32, Option<Duration>),
}

/// What is said of a series.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'a> {
    /// The name of what is measured.
    pub measure: Option<&'a str>,
    /// How many, one after the other.
    pub samples: Option<u32>,
    /// How many a second.
    pub rate: Option<u32>,
    /// For how long.
    pub window: Option<Duration>,
    /// How long each may take.
    pub each: Option<Duration>,
}

/// A series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    check: Box<Check>,
    pace: Pace,
    each: Option<Duration>,
    measure: Measure,
}

/// What has come of one.
#[derive(Debug, Default)]
struct Tally {
    /// How many were to be asked.
    asked: u64,
    /// Milliseconds until each answer that was right.
    times: Vec<f64>,
    /// Why the latest of the others failed.
    why: Option<String>,
    /// How long they were asked.
    lasted: Duration,
}

impl Tally {
    fn take(&mut self, sample: Sample) {
        match sample.value.filter(|_| sample.ok) {
            Some(milliseconds) => self.times.push(milliseconds),
            None => self.why = Some(sample.detail),
        }
    }
}

impl Series {
    /// A series of `check`.
    ///
    /// # Errors
    /// Names what there is not, or is out of bounds.
    pub fn new(check: Check, terms: Terms<'_>) -> Result<Self, SpecError> {
        let wrong = |option: &str, problem: String| Err(SpecError::new(option, problem));
        let pace = match (terms.samples, terms.rate, terms.window) {
            (samples, None, None) => Pace::InTurn(samples.unwrap_or(SAMPLES)),
            (None, rate, window) => Pace::Steady(rate.unwrap_or(RATE), window),
            _ => return wrong("--samples", "one after the other, without --rate and --window".to_owned()),
        };
        match pace {
            Pace::InTurn(samples) if !(1..=MOST_SAMPLES).contains(&samples) => {
                return wrong("--samples", format!("give 1 to {MOST_SAMPLES}"));
            }
            Pace::Steady(rate, _) if !(1..=MOST_RATE).contains(&rate) => {
                return wrong("--rate", format!("give 1 to {MOST_RATE} a second"));
            }
            Pace::Steady(..) if check.program().is_some() => {
                return wrong(
                    "--rate",
                    "of addresses: a program runs again when it has ended, by --samples".to_owned(),
                );
            }
            Pace::Steady(rate, Some(window)) if window * rate < Duration::from_secs(1) => {
                return wrong("--window", format!("nothing is asked within {window:?} at {rate} a second"));
            }
            _ => {}
        }
        if terms.each.is_some_and(|each| each.is_zero()) {
            return wrong("--each", "give how long each may take".to_owned());
        }
        let measure = super::named("--measure", MEASURES, terms.measure)?;
        Ok(Self { check: Box::new(check), pace, each: terms.each, measure })
    }

    /// One of them, which has to be answered before `end`.
    async fn one(&self, end: Instant) -> Sample {
        let left = end.saturating_duration_since(Instant::now());
        let limit = self.each.map_or(left, |each| each.min(left));
        let probe = Probe { check: (*self.check).clone(), timeout: limit, bounds: Bounds::default() };
        // Who takes the sample keeps to its time, about.
        match timeout(limit, probe.sample()).await {
            Ok(sample) => sample,
            Err(_) => Sample::failed(format!("{}: {}", self.check, late(limit))),
        }
    }

    async fn in_turn(&self, samples: u32, end: Instant) -> Tally {
        let (began, mut tally) = (Instant::now(), Tally { asked: u64::from(samples), ..Tally::default() });
        for _ in 0..samples {
            if Instant::now() >= end {
                tally.why.get_or_insert_with(|| "the time was over".to_owned());
                break;
            }
            tally.take(self.one(end).await);
        }
        tally.lasted = began.elapsed();
        tally
    }

    async fn at_rate(&self, rate: u32, window: Duration, end: Instant) -> Tally {
        let (began, mut tally) = (Instant::now(), Tally::default());
        let last = (began + window).min(end);
        let mut waiting = FuturesUnordered::new();
        let mut next = began;
        while next < last || !waiting.is_empty() {
            tokio::select! {
                // What was answered makes room for what is asked.
                biased;
                Some(sample) = waiting.next() => tally.take(sample),
                () = sleep_until(next), if next < last => {
                    tally.asked += 1;
                    match waiting.len() < MOST_AT_ONCE {
                        true => waiting.push(self.one(end)),
                        false => tally.why = Some(format!("{MOST_AT_ONCE} wait for an answer already")),
                    }
                    next += Duration::from_secs(1) / rate;
                }
            }
        }
        tally.lasted = last.saturating_duration_since(began);
        tally
    }

    fn window(window: Option<Duration>, limit: Duration) -> Duration {
        window.unwrap_or_else(|| WINDOW.min(limit / 2))
    }

    fn judge(&self, mut tally: Tally) -> Result<Seen, String> {
        tally.times.sort_unstable_by(f64::total_cmp);
        let asked = tally.asked.max(1);
        let failed = tally.asked.saturating_sub(tally.times.len() as u64);
        let share = real(failed) / real(asked) * 100.0;
        let rate = real(tally.times.len() as u64) / tally.lasted.as_secs_f64().max(1e-3);
        let percentile = |share: u32| {
            let rank = (asked * u64::from(share)).div_ceil(100).saturating_sub(1);
            tally.times.get(usize::try_from(rank).unwrap_or(usize::MAX)).copied()
        };
        let mut said = vec![format!("{failed} of {} failed ({share:.1} %)", tally.asked)];
        said.extend([("p50", 50), ("p99", 99)].map(|(name, share)| match percentile(share) {
            Some(value) => format!("{name} {value:.1} ms"),
            None => format!("no {name}"),
        }));
        said.push(format!("{rate:.1} answered a second"));
        said.extend(tally.why.map(|why| format!("the latest that failed: {why}")));
        let said = said.join(", ");
        let value = match self.measure {
            _ if tally.asked == 0 => None,
            Measure::FailedPercent => Some(share),
            Measure::PerSecond => Some(rate).filter(|_| !tally.times.is_empty()),
            // What failed is slower than all that was answered.
            Measure::Percentile(share) => percentile(share),
        };
        value.map(|value| Seen::measured(value, said.clone())).ok_or(said)
    }
}

impl Sampler for Series {
    async fn take(&self, limit: Duration) -> Seen {
        let end = Instant::now() + limit;
        let Ok(Ok(_turn)) = timeout(limit, TURNS.acquire()).await else {
            return Seen::nothing(format!("{MOST_SERIES} series go on already: {}", late(limit)));
        };
        let tally = match self.pace {
            Pace::InTurn(samples) => self.in_turn(samples, end).await,
            Pace::Steady(rate, window) => self.at_rate(rate, Self::window(window, limit), end).await,
        };
        self.judge(tally).into()
    }

    fn may_change(&self) -> bool {
        self.check.may_change()
    }

    fn unit(&self) -> &'static str {
        match self.measure {
            Measure::FailedPercent => "%",
            Measure::Percentile(_) => "ms",
            Measure::PerSecond => "/s",
        }
    }

    fn span(&self, limit: Duration) -> Span {
        match (self.measure, self.pace) {
            (Measure::FailedPercent, _) => Span::PERCENT,
            (Measure::Percentile(_), _) => Span::until(self.each.map_or(limit, |each| each.min(limit))),
            // One more than in a whole second may fall into a window.
            (Measure::PerSecond, Pace::Steady(rate, window)) => {
                let most = f64::from(rate) + 1.0 / Self::window(window, limit).as_secs_f64().max(1e-3);
                Span { least: 0.0, most, reached: true }
            }
            (Measure::PerSecond, Pace::InTurn(_)) => Span::AMOUNT,
        }
    }

    /// That nothing fails, where that is what is measured.
    fn usual_bounds(&self) -> Bounds {
        let max = (self.measure == Measure::FailedPercent).then_some(0.0);
        Bounds { max, min: None }
    }

    fn fits(&self, field: &str, limit: Duration) -> Result<(), SpecError> {
        match self.pace {
            Pace::Steady(_, Some(window)) if window >= limit => {
                let problem = format!(
                    "{limit:?} for a series that asks for {window:?}: give more, so that the last of it can be answered"
                );
                Err(SpecError::new(field, problem))
            }
            _ => Ok(()),
        }
    }

    fn program(&self) -> Option<&Program> {
        self.check.program()
    }

    fn program_mut(&mut self) -> Option<&mut Program> {
        self.check.program_mut()
    }

    fn host(&self) -> Option<String> {
        self.check.host()
    }

    fn credential(&self) -> Option<(&Credential, &str)> {
        self.check.credential()
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are not 2^52 requests in a series")]
fn real(count: u64) -> f64 {
    count as f64
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (measure, check) = (self.measure.name(), &self.check);
        match self.pace {
            Pace::InTurn(samples) => write!(f, "{measure} of {samples} times {check}"),
            Pace::Steady(rate, _) => write!(f, "{measure} of {rate} times a second {check}"),
        }
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
