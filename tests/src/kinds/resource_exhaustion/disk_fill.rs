//! `disk_fill`: room of a file system.

use serde_json::json;

use crate::kinds::aims::{Aims, Request};
use crate::kinds::ended::{Ended, held};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] = &[
    part(
        "megabytes",
        &[
            "hoards::disk::room_of_a_file_system_is_missing_while_the_fault_lasts_and_there_again_when_it_ends",
        ],
    ),
    part(
        "percent, and to the brim",
        &["hoards::disk::a_file_system_filled_to_the_brim_takes_no_more_and_no_file_is_seen"],
    ),
];

pub(super) const STRUCK: Struck = holds(Thing::Room, 4 << 20, |aims| megabytes(aims, 4)).called("disk_fill");

pub(super) const ENDED: Ended = held(|aims| megabytes(aims, 16)).called("disk_fill");

fn megabytes(aims: &Aims, megabytes: u32) -> Request {
    (json!({}), json!({"resource": "disk_fill", "path": aims.folder, "megabytes": megabytes}))
}
