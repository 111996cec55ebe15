//! `memory`: memory.

use serde_json::json;

use super::{USED_UP, limit};
use crate::kinds::ended::{Ended, held};
use crate::kinds::limited::{Limited, of_memory};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] = &[
    part(
        "of the host",
        &[
            "hoards::memory::memory_is_resident_while_the_fault_lasts_and_free_when_it_ends",
            "hoards::memory::the_host_has_less_memory_available_while_the_fault_lasts",
        ],
    ),
    part(
        "a percentage of the host's",
        &["hoards::memory::a_percentage_of_the_host_s_memory_is_missing_there_while_the_fault_lasts"],
    ),
    part(
        "along a ramp",
        &["hoards::memory::memory_grows_along_its_ramp_and_its_holder_is_the_first_to_be_killed"],
    ),
    limit(
        "memory of a limit",
        "of a cgroup's limit",
        &["hoards::memory::memory_of_a_cgroup_is_a_share_of_its_limit_and_counts_there"],
    ),
    limit(
        "oom",
        "oom",
        &[
            "hoards::memory::memory_of_a_cgroup_runs_out_when_asked_and_the_kernel_kills_there_and_nobody_else",
        ],
    ),
    USED_UP,
];

pub(super) const STRUCK: Struck =
    holds(Thing::Memory, 16 << 20, |_| (json!({}), json!({"resource": "memory", "memory_mb": 16})))
        .called("memory");

pub(super) const ENDED: Ended =
    held(|_| (json!({}), json!({"resource": "memory", "memory_mb": 64}))).called("memory");

pub(super) const SHARE: Limited = of_memory(
    "memory of a limit",
    None,
    || json!({"resource": "memory", "memory_percent": 50, "reserve_mb": 256}),
    "has no limit of memory",
);

pub(super) const OOM: Limited = of_memory(
    "oom",
    Some("memory with oom"),
    || json!({"resource": "memory", "oom": true}),
    "has no limit (memory.max)",
);
