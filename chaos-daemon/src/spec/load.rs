//! How `resource_exhaustion` burns CPU time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::process::Whose;
use super::settings::{ExhaustionParams, within};
use super::units::SpecError;

/// How much of each core is burned when nobody says.
const DEFAULT_PERCENT: f64 = 80.0;
/// The most processors that Linux knows (`CONFIG_NR_CPUS` of what distributions ship, at most).
const MOST_PROCESSORS: u32 = 8192;

/// CPU time to be burned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Percentage of each core, or of the quota of the control group if it has one; 1 to 100.
    pub percent: f64,
    /// Number of cores; `None` is all that are online.
    pub cores: Option<u32>,
    /// Which processors, ascending; empty is whichever.
    pub processors: Vec<u32>,
    /// How long it takes until all of it is burned.
    pub ramp: Duration,
    /// In whose control group; `None` is the daemon's own.
    pub whose: Option<Whose>,
}

impl ExhaustionParams {
    /// The load that is asked for.
    pub(super) fn cpu(&self, whose: Option<Whose>) -> Result<CpuLoad, SpecError> {
        let percent = self.cpu_percent.unwrap_or(DEFAULT_PERCENT);
        let percent = within("params.cpu_percent", percent, 1.0, 100.0)?;
        if self.cores.is_some_and(|cores| !(1..=4096).contains(&cores)) {
            return Err(SpecError::new("params.cores", "give 1 to 4096 cores"));
        }
        let processors = self.processors.as_deref().map(processor_list).transpose()?.unwrap_or_default();
        if self.cores.is_some() && !processors.is_empty() {
            return Err(SpecError::new("params.processors", "give cores or processors, not both"));
        }
        Ok(CpuLoad { percent, cores: self.cores, processors, ramp: self.ramp()?, whose })
    }
}

/// A list as the kernel writes one: "0-1,3" (cpuset(7)).
fn processor_list(text: &str) -> Result<Vec<u32>, SpecError> {
    let wrong = || {
        let problem = format!("{text:?} is not a list of processors: give e.g. \"0-1,3\"");
        SpecError::new("params.processors", problem)
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { return Err(wrong()) };
        if first > last || last >= MOST_PROCESSORS {
            return Err(wrong());
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_as_the_kernel_writes_one() {
        assert_eq!(processor_list("3,0-1,1").unwrap(), [0, 1, 3]);
        for bad in ["", "a", "1-", "2-1", "0,,1", "-1", "0-9999"] {
            assert!(processor_list(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
