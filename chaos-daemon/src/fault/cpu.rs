//! Resource exhaustion, CPU: a share of some processors is burned.
//!
//! - **Mechanism**: one thread per processor, pinned, in a holder of its own, which joins a cgroup first if one is named. Each
//!   period it burns until its own CPU clock has reached the share asked for, then sleeps; periods are dithered (3.7 to 16.3
//!   ms), for a fixed period beats with the 4 ms scheduler tick and misleads monitoring.
//! - **Kernel requirement**: none.
//! - **Lifetime class**: kernel: the load is the process. Stopped, it burns nothing.
//! - **Undo**: end the holder.
//! - **Blast radius**: the named number of processors; other processes keep their fair share. In a cgroup with a quota, whoever
//!   else is in it: the quota is shared.
//! - **Reference**: sched_setaffinity(2), clock_gettime(2) (`CLOCK_THREAD_CPUTIME_ID`).

use super::Ready;
use super::hoard::{failed, joined};
use super::look::Eyes;
use super::{CpuWork, Plan, Work};
use crate::host::CgroupRef;
use crate::host::protected::line;
use crate::host::supply;
use crate::request::{ApiError, ErrorCode};
use crate::spec::CpuLoad;
use crate::spec::LifetimeClass;

/// What is there to burn on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorGround {
    /// The processors that the daemon may use.
    pub usable: Vec<u32>,
    /// The control group to join.
    pub cgroup: Option<CgroupRef>,
    /// Its quota, if it has one: microseconds, and the period in which they may be used.
    pub quota: Option<(u64, u64)>,
}

/// Looks at the processors, and plans it.
///
/// # Errors
/// When there are fewer than asked for, or the group cannot be joined.
pub(super) fn prepare(load: &CpuLoad, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let cgroup = load.whose.as_ref().map(|whose| joined(whose, eyes)).transpose()?;
    let usable = supply::usable_processors().map_err(|error| failed("the processors", &error))?;
    refuse_too_much(load, cgroup.is_some(), &usable, eyes)?;
    let quota = cgroup.as_ref().and_then(|group| supply::cpu_quota(&group.path));
    Ok(plan(load, &ProcessorGround { usable, cgroup, quota })?.into())
}

/// The share of all processors that may be burned where no control group bounds it.
fn refuse_too_much(load: &CpuLoad, in_group: bool, usable: &[u32], eyes: &Eyes<'_>) -> Result<(), ApiError> {
    let most = eyes.permit.open().most_cpu_percent;
    let all = u32::try_from(usable.len()).unwrap_or(u32::MAX).max(1);
    let named = u32::try_from(load.processors.len()).unwrap_or(u32::MAX);
    let cores = if named > 0 { named } else { load.cores.unwrap_or(all).min(all) };
    let share = load.percent * f64::from(cores) / f64::from(all);
    if in_group || share <= f64::from(most) {
        return Ok(());
    }
    let text = format!(
        "params.cpu_percent: {share:.0} % of all processors is more than the {most} % that may be burned"
    );
    let line = line("most_cpu_percent", &format!("{:.0}", share.ceil()));
    let hint =
        format!("ask for less; {line} of the daemon's policy file opens it; only the operator changes it");
    Err(ApiError::new(ErrorCode::PolicyDenied, text).hint(hint))
}

/// Plans it. A quota of more processors than there are means all of them.
///
/// # Errors
/// [`ErrorCode::InvalidParameter`] when a processor that is named cannot be used, there are fewer than asked for, or fewer are named than the share of the quota
/// takes.
pub fn plan(load: &CpuLoad, ground: &ProcessorGround) -> Result<Plan, ApiError> {
    let ProcessorGround { usable, cgroup, quota } = ground;
    let all = u32::try_from(usable.len()).unwrap_or(u32::MAX);
    if let Some(cores) = load.cores.filter(|cores| *cores > all) {
        let message =
            format!("params.cores: {cores} are more than the {all} processors that the daemon may use");
        return Err(
            ApiError::new(ErrorCode::InvalidParameter, message).hint("leave it out, which means all of them")
        );
    }
    if let Some(missing) = load.processors.iter().find(|processor| !usable.contains(processor)) {
        let message = format!("params.processors: processor {missing} cannot be used");
        return Err(ApiError::new(ErrorCode::InvalidParameter, message)
            .hint(format!("the daemon may use {usable:?}")));
    }
    let named = u32::try_from(load.processors.len()).unwrap_or(u32::MAX);
    let cores = if named > 0 { named } else { load.cores.unwrap_or(all).min(all) };
    let (percent, of) = match quota {
        None => (load.percent, format!("{cores} of {all} processors")),
        Some((time, period)) => of_quota(load, ratio(*time, *period), cores, all)?,
    };
    let mut description = format!("resource_exhaustion: burns {} % of {of}", load.percent);
    if let Some(cgroup) = cgroup {
        description.push_str(&format!(", in cgroup {}", cgroup.path.display()));
    }
    if !load.ramp.is_zero() {
        description.push_str(&format!(", all of it after {:?}", load.ramp));
    }
    let (processors, ramp, cgroup) = (load.processors.clone(), load.ramp, cgroup.clone());
    Ok(Plan {
        work: Work::Cpu(CpuWork { percent, cores, processors, ramp, cgroup }),
        steps: Vec::new(),
        lifetime: LifetimeClass::Kernel,
        description,
    })
}

/// Percent of each of so many cores, and of what that is a share, where `quota` is a number of processors, of `all` that there are.
/// It is spread evenly: one processor may be less than the quota, and no thread can burn more than one.
fn of_quota(load: &CpuLoad, quota: f64, cores: u32, all: u32) -> Result<(f64, String), ApiError> {
    let processors = quota.min(f64::from(all));
    let burned = load.percent * processors / 100.0;
    // A share that takes a core to the brim may come out a little above it.
    let least = (burned - 1e-9).ceil();
    let words = match quota > processors {
        false => format!("its quota of {} processors", rounded(quota)),
        true => format!("all {all} processors (its quota of {} is more)", rounded(quota)),
    };
    if least > f64::from(cores) {
        let field = if load.processors.is_empty() { "cores" } else { "processors" };
        let (percent, burned) = (load.percent, rounded(burned));
        let message = format!(
            "params.{field}: {percent} % of {words} is {burned} processors, more than the {cores} that are named can burn"
        );
        return Err(ApiError::new(ErrorCode::InvalidParameter, message)
            .hint(format!("name at least {least} {field}, or none, which means all; or a smaller share")));
    }
    let each = (burned * 100.0 / f64::from(cores.max(1))).min(100.0);
    Ok((each, format!("{words}, on {cores}")))
}

/// To two digits, for people.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of some periods")]
fn ratio(time: u64, period: u64) -> f64 {
    time as f64 / period.max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn planned(
        percent: f64,
        cores: Option<u32>,
        processors: &[u32],
        quota: Option<(u64, u64)>,
    ) -> Result<(f64, u32, String), ApiError> {
        let (ramp, processors) = (Duration::ZERO, processors.to_vec());
        let load = CpuLoad { percent, cores, processors, ramp, whose: None };
        let plan = plan(&load, &ProcessorGround { usable: vec![0, 1, 2, 3], cgroup: None, quota })?;
        match plan.work {
            Work::Cpu(work) => Ok((work.percent, work.cores, plan.description)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_share_is_of_each_core_or_of_the_quota() {
        let of = |cores, processors: &[u32], quota| {
            planned(50.0, cores, processors, quota).map(|(percent, cores, _)| (percent, cores)).unwrap()
        };
        assert_eq!(of(None, &[], None), (50.0, 4));
        assert_eq!(of(Some(4), &[], None), (50.0, 4));
        let too_many = planned(50.0, Some(5), &[], None).unwrap_err();
        assert_eq!(
            too_many.message,
            "params.cores: 5 are more than the 4 processors that the daemon may use"
        );
        assert_eq!(of(None, &[1, 3], None), (50.0, 2));
        assert_eq!(of(Some(2), &[], Some((40_000, 100_000))), (10.0, 2));
        let unusable = planned(50.0, None, &[4], None).unwrap_err();
        assert_eq!(unusable.code, ErrorCode::InvalidParameter);
    }

    #[test]
    fn a_share_of_a_quota_that_the_cores_cannot_burn_is_refused_with_how_many_could() {
        let quota = Some((400_000, 100_000));
        for (cores, processors, field) in [(Some(1), &[][..], "cores"), (None, &[1, 2, 3], "processors")] {
            let error = planned(80.0, cores, processors, quota).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParameter, "{error}");
            let words = format!("params.{field}: 80 % of its quota of 4 processors is 3.2 processors");
            assert!(error.message.starts_with(&words), "{error}");
            assert!(error.hint.is_some_and(|hint| hint.contains(&format!("at least 4 {field}"))));
        }
        let (percent, cores, description) = planned(80.0, Some(4), &[], quota).unwrap();
        assert_eq!((percent, cores), (80.0, 4));
        assert!(description.contains("burns 80 % of its quota of 4 processors, on 4"), "{description}");
        // To the brim is not above it, whatever the fractions are.
        assert_eq!(planned(50.0, Some(2), &[], quota).unwrap().0, 100.0);
        assert_eq!(planned(70.0, Some(1), &[], Some((10, 7))).unwrap().0, 100.0);
        assert!(planned(70.0, Some(1), &[], Some((143, 100))).is_err());
    }

    #[test]
    fn a_quota_of_more_processors_than_there_are_counts_as_all_of_them() {
        let quota = Some((800_000, 100_000));
        let (percent, cores, description) = planned(50.0, None, &[], quota).unwrap();
        assert_eq!((percent, cores), (50.0, 4));
        let words = "burns 50 % of all 4 processors (its quota of 8 is more), on 4";
        assert!(description.contains(words), "{description}");
        assert_eq!(planned(50.0, Some(2), &[], quota).unwrap().0, 100.0);
        assert!(planned(50.0, Some(1), &[], quota).is_err());
    }
}
