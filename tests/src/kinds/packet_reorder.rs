//! `packet_reorder`: packets overtake each other.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::{DELAY_MS, ended};
use super::needs::Needs;
use super::sign::Sign;
use super::struck::packets;
use super::table::{OF_CGROUP, Table, inwards, netem};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        netem(
            "packet_reorder",
            "any packet, and every fifth",
            &["impairments::reordered_packets_overtake_and_none_is_lost"],
        ),
        inwards("packet_reorder"),
        netem("packet_reorder", OF_CGROUP, &["services::a_reordering_of_one_service_is_its_own"]),
    ]),
    needs: Needs::Netem(&[("packet_reorder", || json!({"reorder_percent": 10}))]),
    struck: &[packets(Sign::Echoes, |aims| (aims.packets(), json!({"reorder_percent": 1, "delay_ms": 300})))],
    ended: &[ended(Sign::SomeEchoes, |aims| {
        (aims.packets(), json!({"reorder_percent": 1, "delay_ms": DELAY_MS}))
    })],
    harmless: |aims| (aims.packets(), json!({"reorder_percent": 1})),
    planned: at_device,
};
