//! Tables by which netem spreads a delay: quantiles in units of the standard deviation, computed from the
//! distributions' own formulas.
//!
//! The kernel multiplies an entry, taken at random, with the jitter and divides by [`SCALE`] (`tabledist` in
//! net/sched/sch_netem.c). Reference: NETEM_DIST_SCALE and NETEM_DIST_MAX in linux/pkt_sched.h.

use crate::spec::Distribution;

/// One standard deviation (NETEM_DIST_SCALE).
const SCALE: f64 = 8192.0;
/// Entries of a table: as many as tc sends; the kernel takes up to 16,384.
const ENTRIES: u16 = 4096;
/// The largest entry there can be, in standard deviations.
const FARTHEST: f64 = i16::MAX as f64 / SCALE;
/// Exponent of the Pareto distribution: the least whole one with which it has a standard deviation.
const PARETO_SHAPE: f64 = 3.0;

/// The table of a distribution; `None` for the one that the kernel has by itself.
pub(super) fn table(distribution: Distribution) -> Option<Vec<i16>> {
    let shape = match distribution {
        Distribution::Uniform => return None,
        Distribution::Normal => normal(),
        Distribution::Pareto => pareto(),
        Distribution::ParetoNormal => {
            normal().iter().zip(pareto()).map(|(normal, pareto)| (normal + 3.0 * pareto) / 4.0).collect()
        }
    };
    Some(standard(shape).into_iter().map(entry).collect())
}

/// The middle of each of the slices into which the table cuts the probability.
fn middles() -> impl Iterator<Item = f64> {
    (0..ENTRIES).map(|index| (f64::from(index) + 0.5) / f64::from(ENTRIES))
}

/// Quantiles of the normal distribution: the density, summed up in small steps until each is reached.
fn normal() -> Vec<f64> {
    const STEP: f64 = 1.0 / 8192.0;
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let (mut x, mut reached) = (-6.0, 0.0);
    middles()
        .map(|wanted| {
            while reached < wanted && x < 6.0 {
                reached += density(x + STEP / 2.0) * STEP;
                x += STEP;
            }
            x
        })
        .collect()
}

/// Quantiles of the Pareto distribution from 1 up.
fn pareto() -> Vec<f64> {
    middles().map(|wanted| (1.0 - wanted).powf(-1.0 / PARETO_SHAPE)).collect()
}

/// Shifts and stretches to a mean of 0 and a standard deviation of 1. What lies too far out to be written is cut off,
/// which takes from both, so that it is done until nothing is left to cut.
fn standard(mut values: Vec<f64>) -> Vec<f64> {
    for _ in 0..24 {
        let count = f64::from(ENTRIES);
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        values.iter_mut().for_each(|value| *value = ((*value - mean) / deviation).min(FARTHEST));
    }
    values
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to i16's range just before")]
fn entry(value: f64) -> i16 {
    (value * SCALE).round().clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entry at a share of the table, in standard deviations.
    fn at(table: &[i16], share: f64) -> f64 {
        f64::from(table[(share * table.len() as f64) as usize]) / SCALE
    }

    #[test]
    fn every_table_has_mean_0_and_deviation_1_so_that_jitter_is_what_it_says() {
        for distribution in [Distribution::Normal, Distribution::Pareto, Distribution::ParetoNormal] {
            let table = table(distribution).unwrap();
            let values: Vec<f64> = table.iter().map(|entry| f64::from(*entry) / SCALE).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            assert!(mean.abs() < 0.002 && (square - 1.0).abs() < 0.005, "{distribution:?}: {mean} {square}");
            assert!(table.is_sorted() && table.len() <= 16_384, "{distribution:?}");
        }
        assert_eq!(table(Distribution::Uniform), None);
    }

    #[test]
    fn the_shapes_are_those_of_the_textbook() {
        let normal = table(Distribution::Normal).unwrap();
        for (share, quantile) in [(0.5, 0.0), (0.841_345, 1.0), (0.977_25, 2.0), (0.158_655, -1.0)] {
            assert!((at(&normal, share) - quantile).abs() < 0.01, "{share}: {}", at(&normal, share));
        }
        // Most of it is a little early, and never by much; the rest is late.
        let pareto = table(Distribution::Pareto).unwrap();
        assert!(at(&pareto, 0.5) < -0.2 && at(&pareto, 0.0) > -0.9 && at(&pareto, 0.999) > 3.9);
        let mixed = table(Distribution::ParetoNormal).unwrap();
        assert!(at(&mixed, 0.0) < at(&pareto, 0.0) && at(&mixed, 0.0) > at(&normal, 0.0));
    }
}
