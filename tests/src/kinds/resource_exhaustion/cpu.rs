//! `cpu`: processor time.

use serde_json::json;

use super::{USED_UP, limit};
use crate::kinds::ended::{Ended, held};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] = &[
    // That the host's processors are busier for it is seen where others leave them idle, which is no matter of the kernel.
    part("of the host", &["effects::burning_cpu_takes_the_share_asked_for"]),
    part(
        "of a named processor, along a ramp",
        &["hoards::cpu::cpu_time_is_burned_on_the_processor_that_is_named_and_more_and_more_of_it"],
    ),
    part(
        "in a cgroup",
        &["hoards::cpu::a_holder_joins_the_cgroup_that_is_named_and_leaves_it_with_the_fault"],
    ),
    limit(
        "cpu_limit",
        "of a cgroup's quota",
        &["hoards::cpu::cpu_time_of_a_cgroup_is_a_share_of_its_quota_and_counts_there"],
    ),
    part("of a container", &["supervised::groups::processor_time_is_used_up_in_the_cgroup_of_a_container"]),
    USED_UP,
];

pub(super) const STRUCK: Struck =
    holds(Thing::Time, 5_000_000, |_| (json!({}), json!({"cpu_percent": 5, "cores": 1})));

pub(super) const ENDED: Ended = held(|_| (json!({}), json!({"cpu_percent": 20, "cores": 1}))).called("cpu");
