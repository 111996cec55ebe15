//! `memory_limit`: memory of a control group.

use serde_json::json;

use super::limit;
use crate::kernel::supervised::stage;
use crate::kinds::limited::{self, Limited};
use crate::kinds::struck::{Struck, guarded};
use crate::kinds::table::{Part, of_unit};

pub(super) const PARTS: &[Part] = &[
    limit(
        "memory_limit",
        "of a cgroup",
        &[
            "supervised::removing_lifts_a_limit_of_memory",
            "supervised::a_limit_of_memory_counts_who_meets_it",
        ],
    ),
    of_unit(&[
        "second_boot_guard::a_service_that_is_killed_has_its_memory_limit_undone_within_three_seconds",
    ]),
];

pub(super) const STRUCK: Struck = guarded(stage::memory).with(stage::CONTROLLERS).called("memory_limit");

pub(super) const LIMITED: Limited = limited::limit(
    "memory_limit",
    "memory",
    || json!({"resource": "memory_limit", "memory_mb": 64}),
    "has no memory.high",
);
