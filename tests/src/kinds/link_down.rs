//! `link_down`: an interface is administratively down.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::BY_ITS_GUARD;
use super::needs::Needs;
use super::struck::guarded;
use super::table::{Table, part};
use crate::kernel::supervised::stage;

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part(
            "all the time, with all that going down costs",
            &[
                "supervised::removing_ends_a_pause_and_brings_a_link_back_with_all_it_had",
                "supervised::a_pause_and_a_link_down_end_at_their_time",
            ],
        ),
        part(
            "in a rhythm",
            &[
                "supervised::flaps::in_a_rhythm_a_link_is_down_and_up_by_turns",
                "supervised::removing_ends_a_rhythm_with_the_link_up_and_all_it_had",
            ],
        ),
    ]),
    needs: Needs::Nothing,
    struck: &[guarded(stage::link), guarded(stage::flaps).called("link_down_in_a_rhythm")],
    ended: BY_ITS_GUARD,
    harmless: |aims| (aims.device(), json!({})),
    planned: at_device,
};
