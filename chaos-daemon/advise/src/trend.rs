//! Where a level goes: the median of the slopes between any two looks (Theil-Sen), which one odd look does not bend.

use crate::{Gauge, Level, Look};

/// How many looks it takes to speak of a trend.
const FEWEST: usize = 4;
/// How much more often than not a level has to rise from one look to a later one, of -1 to 1 (Kendall's tau).
const STEADY: f64 = 0.6;
/// How far back the short view goes, in seconds: what began lately does not show in all that came before.
pub(crate) const LATELY: f64 = 60.0;
/// What is further away is no forecast, in seconds.
const FURTHEST: f64 = 7.0 * 86400.0;

/// When a level reaches its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The level at the last look.
    pub level: Level,
    /// By how much it rises in a second.
    pub per_second: f64,
    /// In how many seconds it is at the limit.
    pub seconds: f64,
}

/// When this gauge is at its limit, by the looks of lately or by all of them, whichever is sooner; none if it does not rise steadily.
pub fn forecast(looks: &[Look], gauge: Gauge) -> Option<Forecast> {
    let all: Vec<_> = looks.iter().filter_map(|look| Some((look.at, *look.gauges.get(&gauge)?))).collect();
    let last = all.last()?.0;
    let lately: Vec<_> = all.iter().copied().filter(|(at, _)| *at >= last - LATELY).collect();
    let of = |points: &[(f64, Level)]| of_points(points);
    [of(&lately), of(&all)].into_iter().flatten().min_by(|one, other| one.seconds.total_cmp(&other.seconds))
}

fn of_points(points: &[(f64, Level)]) -> Option<Forecast> {
    if points.len() < FEWEST {
        return None;
    }
    let (mut slopes, mut rises, mut falls) = (Vec::new(), 0.0, 0.0);
    for (index, (at, level)) in points.iter().enumerate() {
        for (later, then) in &points[index + 1..] {
            let (time, more) = (later - at, then.used - level.used);
            if time <= 0.0 {
                continue;
            }
            slopes.push(more / time);
            rises += f64::from(u8::from(more > 0.0));
            falls += f64::from(u8::from(more < 0.0));
        }
    }
    if slopes.is_empty() || (rises - falls) / (slopes.len() as f64) < STEADY {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    let per_second = slopes[slopes.len() / 2];
    let level = points.last()?.1;
    let left = (level.limit - level.used).max(0.0);
    let seconds = left / per_second;
    (per_second > 0.0 && seconds <= FURTHEST).then_some(Forecast { level, per_second, seconds })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn looks(levels: &[(f64, f64)]) -> Vec<Look> {
        let look = |(at, used): &(f64, f64)| Look {
            at: *at,
            gauges: BTreeMap::from([(Gauge::Memory, Level { used: *used, limit: 1000.0 })]),
            ..Look::default()
        };
        levels.iter().map(look).collect()
    }

    fn seconds(levels: &[(f64, f64)]) -> Option<f64> {
        forecast(&looks(levels), Gauge::Memory).map(|found| found.seconds)
    }

    #[test]
    fn a_level_that_rises_steadily_is_at_its_limit_when_the_slope_says_so_whatever_one_odd_look_says() {
        let steady = [(0.0, 100.0), (1.0, 110.0), (2.0, 120.0), (3.0, 130.0), (4.0, 140.0)];
        assert_eq!(seconds(&steady), Some(86.0));
        let mut odd = steady;
        odd[2].1 = 900.0;
        let found = seconds(&odd).unwrap_or_default();
        assert!((80.0..100.0).contains(&found), "{found}");
    }

    #[test]
    fn what_swings_falls_stands_or_was_hardly_seen_has_no_forecast() {
        assert_eq!(seconds(&[(0.0, 100.0), (1.0, 200.0), (2.0, 100.0), (3.0, 200.0), (4.0, 100.0)]), None);
        assert_eq!(seconds(&[(0.0, 400.0), (1.0, 300.0), (2.0, 200.0), (3.0, 100.0)]), None);
        assert_eq!(seconds(&[(0.0, 100.0), (1.0, 100.0), (2.0, 100.0), (3.0, 100.0)]), None);
        assert_eq!(seconds(&[(0.0, 100.0), (1.0, 200.0), (2.0, 300.0)]), None);
        // All at one moment, as by a clock that stands still.
        assert_eq!(seconds(&[(1.0, 100.0), (1.0, 200.0), (1.0, 300.0), (1.0, 400.0)]), None);
    }

    #[test]
    fn what_began_lately_shows_though_it_was_flat_for_hours() {
        let mut levels: Vec<_> = (0..40).map(|look| (f64::from(look) * 600.0, 100.0)).collect();
        levels.extend((0..6).map(|look| (30000.0 + f64::from(look), 100.0 + 50.0 * f64::from(look))));
        assert_eq!(seconds(&levels), Some(13.0));
    }

    #[test]
    fn what_is_over_its_limit_is_there_now_and_what_takes_weeks_is_not_told() {
        assert_eq!(seconds(&[(0.0, 980.0), (1.0, 990.0), (2.0, 1000.0), (3.0, 1010.0)]), Some(0.0));
        assert_eq!(seconds(&[(0.0, 1.0), (1e6, 2.0), (2e6, 3.0), (3e6, 4.0)]), None);
    }
}
