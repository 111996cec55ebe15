//! `pids_limit`: processes of a control group.

use serde_json::json;

use super::limit;
use crate::kernel::supervised::stage;
use crate::kinds::limited::{self, Limited};
use crate::kinds::struck::{Struck, guarded};
use crate::kinds::table::{Part, of_unit};

pub(super) const PARTS: &[Part] = &[
    limit(
        "pids_limit",
        "of a cgroup",
        &["supervised::removing_lifts_a_limit", "supervised::a_limit_counts_who_meets_it"],
    ),
    limit("pids_limit", "of a process", &["supervised::groups::a_limit_of_a_process_is_of_its_cgroup_alone"]),
    of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_limit_undone_within_three_seconds"]),
];

pub(super) const STRUCK: Struck = guarded(stage::pids).with(stage::CONTROLLERS).called("pids_limit");

pub(super) const LIMITED: Limited =
    limited::limit("pids_limit", "pids", || json!({"resource": "pids_limit", "pids": 5}), "has no pids.max");
