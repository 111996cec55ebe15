//! `pids`: threads.

use serde_json::json;

use super::{COUNTED, limit};
use crate::kinds::aims::Request;
use crate::kinds::ended::{Ended, held};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] = &[
    part(
        "of the host",
        &[
            "hoards::things::threads_are_there_while_the_fault_lasts",
            "hoards::things::the_host_has_more_tasks_while_the_fault_lasts",
        ],
    ),
    limit(
        "pids_limit",
        "of a cgroup's limit",
        &["hoards::things::a_cgroup_full_of_threads_starts_no_process"],
    ),
    COUNTED,
];

pub(super) const STRUCK: Struck = holds(Thing::Threads, 20, |_| so_many(20)).called("pids");

pub(super) const ENDED: Ended = held(|_| so_many(50)).called("pids");

fn so_many(count: u32) -> Request {
    (json!({}), json!({"resource": "pids", "count": count}))
}
