//! `port_in_use`: a port cannot be bound.

use serde_json::json;

use super::Kind;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::plain;
use super::table::{Table, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part("of TCP", &["hoards::port::a_port_cannot_be_bound_while_the_fault_lasts"]),
        part("of UDP", &["hoards::port::a_port_of_udp_cannot_be_bound_while_the_fault_lasts"]),
        part(
            "of one address",
            &["hoards::port::a_port_of_one_address_and_namespace_is_free_everywhere_else"],
        ),
    ]),
    needs: Needs::Nothing,
    struck: &[plain(Sign::Port, |aims| (aims.port(), json!({})))],
    ended: &[ended(Sign::Port, |aims| (aims.port(), json!({})))],
    harmless: |aims| (aims.port(), json!({})),
    planned: |aims, params| {
        let mut target = aims.netns();
        target["local_port"] = json!(aims.port);
        (target, params)
    },
};
