//! `bandwidth`: only so much gets through.

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
    netem("bandwidth", "out and in", &["impairments::a_bandwidth_is_what_gets_through_both_ways"]),
    netem("bandwidth", OF_CGROUP, &["services::a_rate_of_one_service_is_its_own"]),
]),
    needs: Needs::Netem(&[("bandwidth", || json!({"rate_kbit": 1000}))]),
    struck: &[packets(Sign::Echoes, |aims| (aims.packets(), json!({"rate_kbit": 8})))],
    ended: // One datagram takes as long as is prompt.
    &[ended(Sign::SomeEchoes, |aims| (aims.packets(), json!({"rate_kbit": 8})))],
    harmless: |aims| (aims.packets(), json!({"rate_kbit": 8000})),
    planned: at_device,
};
