//! Whether something goes as fast as was asked for, also where others want what it needs.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How long is measured at a time: long enough for what a load makes up for to be little of it.
const WINDOW: Duration = Duration::from_secs(2);
/// How often, before the best of it counts as too little: others may take most of a machine for a while, and hardly all the time.
const WINDOWS: u32 = 10;
/// The least and the most of what was asked for. More is nobody's doing but the load's own.
const SHARE: (f64, f64) = (0.7, 1.15);

/// Measures how much `counter` grows in a second, again and again until it is as much as was asked for; what share of it that was.
///
/// # Errors
/// When it never is, or once is more, or cannot be counted.
pub fn reaches(asked: f64, counter: impl FnMut() -> Result<f64>) -> Result<f64> {
    best(asked, counter, WINDOW, WINDOWS)
}

fn best(asked: f64, mut counter: impl FnMut() -> Result<f64>, window: Duration, windows: u32) -> Result<f64> {
    let mut seen = Vec::new();
    for _ in 0..windows {
        // The clock is read outside of the count, so that a pause between the two never makes it more.
        let (start, before) = (Instant::now(), counter()?);
        std::thread::sleep(window);
        let share = (counter()? - before) / start.elapsed().as_secs_f64() / asked;
        if share > SHARE.1 {
            return Err(Error::Different(format!("{share:.3} times what was asked for, {asked} a second")));
        }
        if share >= SHARE.0 {
            return Ok(share);
        }
        seen.push(format!("{share:.3}"));
    }
    Err(Error::Different(format!("asked for {asked} a second, and seen of it: {}", seen.join(", "))))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Asked for 1000 a second, by a counter that grows at these rates, one window after the other.
    fn seen(rates: &[f64]) -> Result<f64> {
        let window = Duration::from_millis(20);
        let (mut rates, mut start, mut count) = (VecDeque::from(rates.to_vec()), None::<Instant>, 0.0);
        let counter = || {
            count += match start.take() {
                Some(start) => start.elapsed().as_secs_f64() * rates.pop_front().unwrap_or(0.0),
                None => {
                    start = Some(Instant::now());
                    0.0
                }
            };
            Ok(count)
        };
        best(1000.0, counter, window, 3)
    }

    #[test]
    fn one_window_with_enough_is_enough_and_one_with_too_much_is_too_much() {
        assert!((0.9..1.1).contains(&seen(&[100.0, 690.0, 1000.0]).unwrap()));
        let never = seen(&[100.0, 300.0, 600.0, 1000.0]).unwrap_err().to_string();
        assert!(never.contains("0.1") && never.contains("0.6"), "{never}");
        assert!(seen(&[100.0, 2000.0]).unwrap_err().to_string().contains("times what was asked for"));
    }
}
