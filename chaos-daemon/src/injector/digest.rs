//! By what a plan is known to who injects it later: the fault as it was asked for, and what its target was found to be.
//!
//! Of the target it has what is pinned: network namespace, device, control group. Of processes that were chosen one by one it has how
//! many there are, how many would be hit, and the programs and units of those. Their numbers change with every restart. What a host's
//! name stands for is no part of it: the fault follows that.

use std::collections::BTreeSet;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::host::NetNsIdentity;
use crate::request::{ApiError, ErrorCode, TargetsReport};
use crate::spec::FaultRequest;

/// The digest of a fault with such a target.
pub(super) fn digest(
    request: &FaultRequest,
    (device, group): (Option<(NetNsIdentity, u32)>, Option<u64>),
    targets: Option<&TargetsReport>,
) -> String {
    let processes = targets.map(|TargetsReport { matching, hit, processes, .. }| {
        let programs: BTreeSet<_> = processes
            .iter()
            .filter(|process| process.hit)
            .map(|process| (&process.exe, &process.unit))
            .collect();
        json!({"matching": matching, "hit": hit, "programs": programs})
    });
    // The keys of objects are sorted.
    let all = json!({"fault": request, "device": device, "group": group, "processes": processes});
    Sha256::digest(all.to_string().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Refuses what would be done now if it is not what was planned.
///
/// # Errors
/// [`ErrorCode::PlanChanged`].
pub(super) fn require(planned: Option<&str>, now: &str) -> Result<(), ApiError> {
    match planned {
        Some(planned) if planned != now => {
            let text = format!(
                "plan_digest: what would be done now has {now:?}, and not {planned:?}: fault or target are others by now"
            );
            Err(ApiError::new(ErrorCode::PlanChanged, text)
                .hint("plan it again, and look at what it would do"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::targets::TargetProcess;

    fn request(json: serde_json::Value) -> FaultRequest {
        serde_json::from_value(json).unwrap()
    }

    fn targets(all: &[(i32, &str, bool)]) -> TargetsReport {
        let process = |(pid, exe, hit): &(i32, &str, bool)| TargetProcess {
            pid: *pid,
            start_time: 7,
            name: "x".into(),
            exe: (*exe).into(),
            cgroup: String::new(),
            unit: String::new(),
            hit: *hit,
        };
        let processes: Vec<_> = all.iter().map(process).collect();
        let hit = processes.iter().filter(|process| process.hit).count();
        TargetsReport { matching: all.len(), hit, processes, ..TargetsReport::default() }
    }

    #[test]
    fn a_plan_is_another_one_when_its_fault_its_target_or_who_is_hit_is_another() {
        let kill = |params| {
            request(
                json!({"fault_type": "process_kill", "probability": 1, "target": {"exe": "/a"}, "params": params}),
            )
        };
        let namespace = |inode| NetNsIdentity { dev: 1, inode, cookie: inode };
        let base = || {
            digest(
                &kill(json!({"times": 2, "interval_seconds": 1})),
                (Some((namespace(4), 2)), Some(9)),
                Some(&targets(&[(1, "/a", true), (2, "/a", false)])),
            )
        };
        let one = kill(json!({"interval_seconds": 1, "times": 2}));
        let place = (Some((namespace(4), 2)), Some(9));
        // The order of keys, numbers of processes, and who is not hit make no difference.
        assert_eq!(digest(&one, place, Some(&targets(&[(71, "/a", true), (72, "/b", false)]))), base());
        let other = kill(json!({"times": 3, "interval_seconds": 1}));
        let found = [(1, "/a", true), (2, "/a", false)];
        for (words, digest) in [
            ("fault", digest(&other, place, Some(&targets(&found)))),
            ("namespace", digest(&one, (Some((namespace(5), 2)), Some(9)), Some(&targets(&found)))),
            ("device", digest(&one, (Some((namespace(4), 3)), Some(9)), Some(&targets(&found)))),
            ("group", digest(&one, (Some((namespace(4), 2)), None), Some(&targets(&found)))),
            ("hit", digest(&one, place, Some(&targets(&[(1, "/a", true), (2, "/a", true)])))),
            ("matching", digest(&one, place, Some(&targets(&found[..1])))),
            ("program", digest(&one, place, Some(&targets(&[(1, "/b", true), (2, "/a", false)])))),
            ("no processes", digest(&one, place, None)),
        ] {
            assert_ne!(digest, base(), "{words}");
            assert_eq!(require(Some(&base()), &digest).unwrap_err().code, ErrorCode::PlanChanged);
            assert_eq!(require(Some(&digest), &digest), Ok(()));
            assert_eq!(require(None, &digest), Ok(()));
        }
    }
}
