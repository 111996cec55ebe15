//! How busy the processors are: the first line of `/proc/stat` (proc_stat(5)), read twice.

use std::time::Duration;

use tokio::time::sleep;

use super::{Seen, blocking, percent, read, unsaid};

const PATH: &str = "/proc/stat";
/// user, nice, system, idle, iowait, irq, softirq, steal. What guests take is in user and nice already.
const COLUMNS: usize = 8;
const IDLE: usize = 3;
const IOWAIT: usize = 4;

/// What all processors have done since the start of the host, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times([u64; COLUMNS]);

impl Times {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().find_map(|line| line.strip_prefix("cpu "))?.split_ascii_whitespace();
        let mut times = [0; COLUMNS];
        for time in &mut times {
            *time = words.next()?.parse().ok()?;
        }
        Some(Self(times))
    }

    /// How much of the time since `before` they were neither idle nor idle while something waited for a disk, in percent; `None` when
    /// no time has passed. iowait may go back.
    pub(super) fn busy_since(&self, before: &Self) -> Option<f64> {
        let passed: Vec<_> =
            self.0.iter().zip(before.0).map(|(now, before)| now.saturating_sub(before)).collect();
        let all: u64 = passed.iter().sum();
        percent(all - passed[IDLE] - passed[IOWAIT], all)
    }
}

fn now() -> Result<Times, String> {
    let text = read(PATH)?;
    Times::parse(&text).ok_or_else(|| unsaid(PATH, &text))
}

pub(super) async fn watch(window: Duration, limit: Duration) -> Result<Seen, String> {
    let before = blocking(limit, now).await??;
    sleep(window).await;
    let after = blocking(limit, now).await??;
    let busy = after.busy_since(&before).ok_or("the kernel has counted nothing meanwhile")?;
    Ok(Seen::measured(busy, format!("{busy:.1} % within {window:?}")))
}
