//! `packet_corrupt`: packets arrive with a wrong bit.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::packets;
use super::table::{OF_CGROUP, Table, inwards, netem};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
    netem(
        "packet_corrupt",
        "a bit of some packets",
        &["impairments::a_corrupted_packet_fails_its_checksum_or_is_lost"],
    ),
    inwards("packet_corrupt"),
    netem("packet_corrupt", OF_CGROUP, &["services::a_corruption_of_one_service_is_its_own"]),
]),
    needs: Needs::Netem(&[("packet_corrupt", || json!({"corrupt_percent": 10}))]),
    struck: &[packets(Sign::Echoes, |aims| (aims.packets(), json!({"corrupt_percent": 100})))],
    ended: // A wrong bit in the sender's address of the link is nothing that anybody minds.
    &[ended(Sign::SomeEchoes, |aims| (aims.packets(), json!({"corrupt_percent": 100})))],
    harmless: |aims| (aims.packets(), json!({"corrupt_percent": 1})),
    planned: at_device,
};
