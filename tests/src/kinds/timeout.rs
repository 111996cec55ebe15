//! `timeout`: packets vanish, so that callers wait until their own time-out.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::packets;
use super::table::{OF_CGROUP, SCOPED, Table, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part("of a port and protocol", &["effects::a_timeout_makes_callers_of_one_port_wait_and_no_others"]),
        part(
            OF_CGROUP,
            &["services::a_timeout_and_a_partition_of_one_service_meet_its_packets_and_nobody_elses"],
        ),
        part(
            "of a process",
            &["scopes::a_fault_of_a_process_that_shares_its_namespace_is_of_its_group_alone"],
        ),
        part("of a container", &["scopes::a_fault_of_a_container_is_of_its_namespace_or_its_group"]),
        part(
            "of a cgroup without an interface",
            &["severed::a_timeout_of_a_service_loses_what_it_sends_and_spares_the_loopback"],
        ),
        SCOPED,
    ]),
    needs: Needs::Nothing,
    struck: &[packets(Sign::Echoes, |aims| (aims.packets(), json!({})))],
    ended: &[ended(Sign::Echoes, |aims| (aims.packets(), json!({})))],
    harmless: |aims| (aims.packets(), json!({})),
    planned: at_device,
};
