//! `pause`: the processes of a cgroup stand still.

use serde_json::json;

use super::Kind;
use super::aims::at_group;
use super::ended::BY_ITS_GUARD;
use super::needs::Needs;
use super::struck::guarded;
use super::table::{Table, of_unit, part};
use crate::kernel::supervised::stage;

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part(
            "of a cgroup",
            &[
                "supervised::removing_ends_a_pause_and_brings_a_link_back_with_all_it_had",
                "supervised::a_pause_and_a_link_down_end_at_their_time",
            ],
        ),
        part(
            "of a process, and of a container",
            &["supervised::groups::a_pause_of_a_process_or_a_container_is_of_its_cgroup_alone"],
        ),
        of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_pause_undone_within_three_seconds"]),
    ]),
    needs: Needs::Nothing,
    struck: &[guarded(stage::pause)],
    ended: BY_ITS_GUARD,
    harmless: |aims| (aims.group(), json!({})),
    planned: at_group,
};
