//! `file_descriptors`: open files.

use serde_json::json;

use super::COUNTED;
use crate::kinds::aims::Request;
use crate::kinds::ended::{Ended, held};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] = &[
    part("of the host", &["hoards::things::open_files_of_the_host_are_taken_while_the_fault_lasts"]),
    COUNTED,
];

pub(super) const STRUCK: Struck = holds(Thing::Descriptors, 20, |_| so_many(20)).called("file_descriptors");

pub(super) const ENDED: Ended = held(|_| so_many(100)).called("file_descriptors");

fn so_many(count: u32) -> Request {
    (json!({}), json!({"resource": "file_descriptors", "count": count}))
}
