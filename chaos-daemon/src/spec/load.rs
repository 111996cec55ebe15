//! How `resource_exhaustion` burns CPU time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::parameter::part;
use super::parts::Ramp;
use super::process::Whose;
use super::settings;
use super::target::TargetRequest;
use super::units::SpecError;

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

/// What `resource_exhaustion` takes of processor time.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CpuParams {
    /// Share of each core, or of the quota of the unit or cgroup.
    #[serde(default = "most_of_it")]
    #[schemars(range(min = 1.0, max = 100.0))]
    cpu_percent: f64,
    /// How many cores; all unless it is given.
    #[schemars(range(min = 1, max = 4096))]
    cores: Option<u32>,
    /// In place of how many cores: which processors, e.g. 0-1,3.
    processors: Option<String>,
}

fn most_of_it() -> f64 {
    80.0
}

/// CPU time, burned.
pub(super) fn cpu(params: &Map<String, Value>, target: &TargetRequest) -> Result<CpuLoad, SpecError> {
    let CpuParams { cpu_percent: percent, cores, processors } = part(params)?;
    let processors = processors.as_deref().map(processor_list).transpose()?.unwrap_or_default();
    if cores.is_some() && !processors.is_empty() {
        return Err(SpecError::new("params.processors", "give cores or processors, not both"));
    }
    let (ramp, whose) = (part(params).map(Ramp::duration)?, settings::group_if_any(target)?);
    Ok(CpuLoad { percent, cores, processors, ramp, whose })
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
