//! `cpu_limit`: processor time of a control group.

use serde_json::json;

use super::limit;
use crate::kernel::supervised::stage;
use crate::kinds::limited::{self, Limited};
use crate::kinds::struck::{Struck, guarded};
use crate::kinds::table::{Part, of_unit};

pub(super) const PARTS: &[Part] = &[
    limit(
        "cpu_limit",
        "of a cgroup",
        &["supervised::removing_lifts_a_limit", "supervised::a_limit_counts_who_meets_it"],
    ),
    of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_cpu_limit_undone_within_three_seconds"]),
];

pub(super) const STRUCK: Struck = guarded(stage::cpu).with(stage::CONTROLLERS).called("cpu_limit");

pub(super) const LIMITED: Limited = limited::limit(
    "cpu_limit",
    "cpu",
    || json!({"resource": "cpu_limit", "cpu_percent": 5}),
    "has no cpu.max",
);
