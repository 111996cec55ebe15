//! `io_limit`: what a control group may read and write.

use serde_json::json;

use super::limit;
use crate::kernel::supervised::stage;
use crate::kinds::limited::{self, Limited};
use crate::kinds::struck::{Struck, guarded};
use crate::kinds::table::{Part, of_unit};

pub(super) const PARTS: &[Part] = &[
    limit("io_limit", "of a cgroup", &["supervised::removing_lifts_a_limit_of_a_disk"]),
    limit(
        "io_limit",
        "read_iops alone, write_bps alone",
        &["supervised::removing_lifts_a_limit_of_one_way_of_a_disk"],
    ),
    of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_io_limit_undone_within_three_seconds"]),
];

pub(super) const STRUCK: Struck = guarded(stage::disk).with(&["io"]).called("io_limit");

pub(super) const LIMITED: Limited = limited::limit(
    "io_limit",
    "io",
    || json!({"resource": "io_limit", "device": "7:0", "bytes_per_second": 1 << 20}),
    "has no io.max",
);
