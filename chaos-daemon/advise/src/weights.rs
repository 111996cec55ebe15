//! What each reason is worth: the one table of it.

/// What a reason is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A level rises towards its limit: seconds until it is there.
    Forecast,
    /// A level is near its limit: the share of it that is used.
    Saturation,
    /// It was started anew: how often.
    Restarts,
    /// Processes of it were killed for want of memory: how many.
    OomKills,
    /// Its log tells of more errors than before: how many more.
    Errors,
    /// It stands still for want of a processor: the share of the time.
    CpuPressure,
    /// It stands still for want of memory: the share of the time.
    MemoryPressure,
    /// It waits for block devices: the share of the time.
    IoPressure,
    /// Connections wait to be accepted: how many.
    Waiting,
    /// It broke, and has not held since: in how many experiments.
    Broke,
    /// It broke, and no alert fired: how often.
    NoAlert,
    /// Whom it needs was never failed: how many of them.
    Dependency,
    /// It is like what broke: how alike, from 0 to 1.
    Likeness,
    /// A larger stage was not tried: the percentage that is left.
    Stage,
    /// It held again and again: how often in a row.
    Greens,
    /// Kinds of faults were never tried on it: how many.
    Untested,
    /// Nothing was tried on it for long: days.
    Idle,
}

/// What a reason is worth at most, and at which number it is worth half of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    /// About what.
    pub what: What,
    /// Its name, for programs.
    pub name: &'static str,
    /// The most points.
    pub points: f64,
    /// The number at which it has half of them.
    pub half: f64,
    /// Whether a smaller number is worth more.
    pub falls: bool,
    /// The unit of the number.
    pub unit: &'static str,
}

const fn rising(what: What, name: &'static str, points: f64, half: f64, unit: &'static str) -> Weight {
    Weight { what, name, points, half, falls: false, unit }
}

/// What goes wrong now comes before what went wrong, and that before what was never tried.
pub const WEIGHTS: &[Weight] = &[
    Weight { what: What::Forecast, name: "forecast", points: 40.0, half: 3600.0, falls: true, unit: "s" },
    rising(What::Saturation, "saturation", 20.0, 0.9, "of its limit"),
    rising(What::Restarts, "restarts", 30.0, 3.0, "restarts"),
    rising(What::OomKills, "oom_kills", 30.0, 1.0, "kills"),
    rising(What::Errors, "errors", 30.0, 5.0, "lines"),
    rising(What::CpuPressure, "cpu_pressure", 25.0, 0.25, "of the time"),
    rising(What::MemoryPressure, "memory_pressure", 30.0, 0.1, "of the time"),
    rising(What::IoPressure, "io_pressure", 15.0, 0.25, "of the time"),
    rising(What::Waiting, "waiting", 25.0, 4.0, "connections"),
    rising(What::Broke, "broke", 25.0, 1.0, "experiments"),
    rising(What::NoAlert, "no_alert", 15.0, 1.0, "runs"),
    rising(What::Dependency, "dependency", 20.0, 1.0, "dependencies"),
    rising(What::Likeness, "likeness", 15.0, 0.3, "of 1"),
    rising(What::Stage, "stage", 15.0, 50.0, "%"),
    rising(What::Greens, "greens", 6.0, 3.0, "in a row"),
    rising(What::Untested, "untested", 8.0, 4.0, "kinds"),
    rising(What::Idle, "idle", 8.0, 30.0, "days"),
];

impl What {
    /// What it is worth.
    pub fn weight(self) -> &'static Weight {
        WEIGHTS.iter().find(|weight| weight.what == self).unwrap_or(&WEIGHTS[0])
    }

    /// The points for a number: they come closer and closer to the most there are.
    pub(crate) fn points(self, number: f64) -> f64 {
        let Weight { points, half, falls, .. } = *self.weight();
        let number = number.max(0.0);
        let share = if falls { half / (number + half) } else { number / (number + half) };
        // So that the last digits of an earlier number decide nothing.
        (points * share * 100.0).round() / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_weight_and_half_of_its_points_at_half() {
        for weight in WEIGHTS {
            let same = WEIGHTS.iter().filter(|other| other.what == weight.what || other.name == weight.name);
            assert_eq!(same.count(), 1, "{weight:?}");
            assert_eq!(weight.what.weight(), weight);
            assert!((weight.what.points(weight.half) - weight.points / 2.0).abs() < 0.01, "{weight:?}");
        }
    }

    #[test]
    fn more_of_it_is_worth_more_but_of_the_time_that_is_left_less() {
        assert!(What::Restarts.points(9.0) > What::Restarts.points(3.0));
        assert!(What::Forecast.points(60.0) > What::Forecast.points(7200.0));
        assert!(What::Restarts.points(0.0) == 0.0 && What::Restarts.points(-1.0) == 0.0);
    }
}
