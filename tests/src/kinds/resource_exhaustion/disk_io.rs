//! `disk_io`: what a disk can read and write.

use serde_json::json;

use crate::kinds::aims::{Aims, Request};
use crate::kinds::ended::{Ended, held};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] = &[
    part(
        "of a file system, and of the disk below it",
        &[
            "hoards::disk::a_disk_is_read_and_written_as_fast_as_asked_for",
            "hoards::disk::what_is_read_and_written_reaches_the_disk_and_stops_with_the_fault",
        ],
    ),
    // That it is in the group's own books is seen where the controller is, which the fault does not need.
    part(
        "in a cgroup, and in a container",
        &[
            "hoards::disk::a_file_system_is_read_and_written_from_within_the_cgroup_or_the_container_that_is_named",
        ],
    ),
];

pub(super) const STRUCK: Struck = holds(Thing::Transfer, 1 << 16, transfer).called("disk_io");

pub(super) const ENDED: Ended = held(transfer).called("disk_io");

fn transfer(aims: &Aims) -> Request {
    let much = json!({"resource": "disk_io", "path": aims.folder, "bytes_per_second": 1 << 20, "size_mb": 1});
    (json!({}), much)
}
