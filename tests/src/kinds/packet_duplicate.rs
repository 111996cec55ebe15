//! `packet_duplicate`: packets arrive twice.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::packets;
use super::table::{OF_CGROUP, Table, netem};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        netem(
            "packet_duplicate",
            "out and in",
            &["impairments::a_duplicate_arrives_once_more_and_no_more_both_ways"],
        ),
        netem("packet_duplicate", OF_CGROUP, &["services::a_duplication_of_one_service_is_its_own"]),
    ]),
    needs: Needs::Netem(&[("packet_duplicate", || json!({"duplicate_percent": 10}))]),
    struck: &[packets(Sign::Twins, |aims| (aims.packets(), json!({"duplicate_percent": 100})))],
    ended: &[ended(Sign::Twins, |aims| (aims.packets(), json!({"duplicate_percent": 100})))],
    harmless: |aims| (aims.packets(), json!({"duplicate_percent": 1})),
    planned: at_device,
};
