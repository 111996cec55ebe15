//! `inodes`: inodes.

use serde_json::json;

use crate::kinds::aims::{Aims, Request};
use crate::kinds::ended::{Ended, held};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] =
    &[part("of a file system", &["hoards::disk::inodes_of_a_file_system_are_missing_while_the_fault_lasts"])];

pub(super) const STRUCK: Struck = holds(Thing::Files, 20, |aims| so_many(aims, 20)).called("inodes");

pub(super) const ENDED: Ended = held(|aims| so_many(aims, 100)).called("inodes");

fn so_many(aims: &Aims, count: u32) -> Request {
    (json!({}), json!({"resource": "inodes", "path": aims.folder, "count": count}))
}
