//! How long answers take: several samples, one after the other, of an address, a port or an MCP server, each with a connection of its own,
//! and a percentile of them.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::credential::Credential;
use super::program::Program;
use super::span::Span;
use super::{Check, Probe, Sampler, Seen};
use crate::spec::SpecError;

/// The most samples.
pub const MOST_SAMPLES: u32 = 1000;
/// How many are taken when nobody says.
pub const SAMPLES: u32 = 20;

/// Names of percentiles, and how many of 100 are at most as slow.
pub const PERCENTILES: &[(&str, u32)] = &[("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99), ("max", 100)];

/// Several samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    check: Box<Check>,
    samples: u32,
    /// Of 100.
    share: u32,
}

impl Latency {
    /// `samples` of `check`, and the percentile of this name.
    ///
    /// # Errors
    /// Names what there is not.
    pub fn new(check: Check, samples: Option<u32>, percentile: Option<&str>) -> Result<Self, SpecError> {
        let samples = samples.unwrap_or(SAMPLES);
        if !(1..=MOST_SAMPLES).contains(&samples) {
            return Err(SpecError::new("--samples", format!("give 1 to {MOST_SAMPLES}")));
        }
        let wanted = percentile.unwrap_or("p95");
        let names: Vec<_> = PERCENTILES.iter().map(|(name, _)| *name).collect();
        let share = PERCENTILES.iter().find(|(name, _)| *name == wanted).map(|(_, share)| *share);
        let share = share.ok_or_else(|| {
            SpecError::new("--percentile", format!("{wanted:?} is not one of {}", names.join(", ")))
        })?;
        Ok(Self { check: Box::new(check), samples, share })
    }

    fn name(&self) -> &'static str {
        PERCENTILES.iter().find(|(_, share)| *share == self.share).map_or("", |(name, _)| name)
    }

    /// What has no answer is slower than all that has one; the times are in milliseconds.
    fn judge(&self, mut times: Vec<f64>, why: Option<String>) -> Result<Seen, String> {
        times.sort_unstable_by(f64::total_cmp);
        let (answered, samples) = (times.len(), self.samples);
        let failed = u64::from(samples) - answered as u64;
        match times.get(rank(samples, self.share)) {
            Some(value) => {
                let name = self.name();
                Ok(Seen::measured(
                    *value,
                    format!("{name} {value:.1} ms of {samples}, {failed} without an answer"),
                ))
            }
            None => Err(format!(
                "{failed} of {samples} without an answer, so that there is no {}: {}",
                self.name(),
                why.unwrap_or_default()
            )),
        }
    }
}

/// Which of `samples` in order is the percentile, by the nearest rank.
fn rank(samples: u32, share: u32) -> usize {
    let rank = (u64::from(samples) * u64::from(share)).div_ceil(100);
    usize::try_from(rank.saturating_sub(1)).unwrap_or(usize::MAX)
}

impl Sampler for Latency {
    /// All samples share the time limit; what has no answer by then has none.
    async fn take(&self, limit: Duration) -> Seen {
        let end = Instant::now() + limit;
        let mut times = Vec::new();
        let mut why = None;
        for _ in 0..self.samples {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                why.get_or_insert_with(|| format!("the time of {limit:?} was over"));
                break;
            }
            let probe =
                Probe { check: (*self.check).clone(), timeout: left, bounds: super::Bounds::default() };
            let sample = probe.sample().await;
            match sample.value.filter(|_| sample.ok) {
                Some(milliseconds) => times.push(milliseconds),
                None => why = Some(sample.detail),
            }
        }
        self.judge(times, why).into()
    }

    fn may_change(&self) -> bool {
        self.check.may_change()
    }

    fn unit(&self) -> &'static str {
        "ms"
    }

    fn span(&self, limit: Duration) -> Span {
        Span::until(limit)
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

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} times {}", self.samples, self.check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::HANG;

    fn latency(samples: u32, percentile: &str) -> Latency {
        Latency::new(Check::tcp("", "127.0.0.1:1").unwrap(), Some(samples), Some(percentile)).unwrap()
    }

    fn judged(percentile: &str, answered: u64) -> Option<f64> {
        // The slowest first: order is the judge's business.
        let times = (1..=answered).rev().map(|time| time as f64).collect();
        latency(100, percentile).judge(times, None).ok()?.value
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        for (percentile, value) in
            [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("max", 100.0)]
        {
            assert_eq!(judged(percentile, 100), Some(value), "{percentile}");
        }
        for (samples, share, expected) in
            [(1, 50, 0), (1, 100, 0), (2, 50, 0), (3, 50, 1), (20, 95, 18), (20, 99, 19)]
        {
            assert_eq!(rank(samples, share), expected, "{samples} {share}");
        }
    }

    #[test]
    fn what_has_no_answer_is_slower_than_everything() {
        assert_eq!(judged("p90", 90), Some(90.0));
        assert_eq!(judged("p95", 90), None);
        assert_eq!(judged("p50", 0), None);
        let none = latency(10, "p50").judge(Vec::new(), Some("connection refused".to_owned())).err().unwrap();
        assert!(none.contains("10 of 10") && none.contains("refused"), "{none}");
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        let check = || Check::tcp("", "127.0.0.1:1").unwrap();
        for samples in [0, MOST_SAMPLES + 1] {
            assert_eq!(Latency::new(check(), Some(samples), None).unwrap_err().field, "--samples");
        }
        assert_eq!(Latency::new(check(), None, Some("p42")).unwrap_err().field, "--percentile");
    }

    #[tokio::test]
    async fn samples_are_taken_of_what_answers_and_all_share_the_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let check = Check::tcp("", &address).unwrap();
        let open = Latency::new(check, Some(50), Some("p99")).unwrap().take(HANG).await;
        assert!(open.verdict.unwrap().contains("of 50, 0 without"));
        // Accepted by the kernel, and never answered: the first one takes all of the time.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let silent = Latency::new(Check::http("", &url, vec![]).unwrap(), Some(50), None).unwrap();
        assert!(silent.take(Duration::from_millis(300)).await.verdict.is_err());
        assert!(std::iter::from_fn(|| listener.accept().ok()).count() <= 1);
    }
}
