//! `clock_skew`: the wall clock is wrong.

use serde_json::json;

use super::Kind;
use super::aims::at_host;
use super::ended::BY_ITS_GUARD;
use super::needs::Needs;
use super::struck::guarded;
use super::table::{Part, Table, part};
use crate::kernel::supervised::stage;

const fn clock(what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests)
        .unless("supervised::refusals::the_clock_is_refused_unless_the_policy_allows_it", "clock_skew")
}

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        clock("an hour and a half back", &["supervised::removing_sets_the_clock_right"]),
        clock("an hour and a half ahead", &["supervised::removing_sets_a_clock_right_that_is_ahead"]),
    ]),
    needs: Needs::OwnClock,
    struck: &[guarded(stage::clock)],
    ended: BY_ITS_GUARD,
    harmless: |_| (json!({}), json!({"offset_seconds": 1})),
    planned: at_host,
};
