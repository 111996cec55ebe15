//! `network_partition`: peers are cut off, in both directions.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::{calls, packets};
use super::table::{OF_CGROUP, SCOPED, Table, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part(
            "of a peer, both ways",
            &["effects::a_partition_cuts_the_named_peer_off_both_ways_and_no_other"],
        ),
        part("of TCP", &["effects::a_partition_is_silent_so_that_tcp_keeps_trying"]),
        part(
            "of a range of ports",
            &["effects::a_partition_of_a_range_of_ports_meets_both_its_ends_and_spares_what_is_next_to_it"],
        ),
        part(
            "out or in alone, IPv4 and IPv6",
            &["effects::a_partition_of_one_direction_lets_the_other_through_on_both_families"],
        ),
        part(
            "of a host by its name",
            &["names::a_fault_of_a_host_goes_where_its_name_goes_and_spares_what_is_protected"],
        ),
        part(
            OF_CGROUP,
            &["services::a_timeout_and_a_partition_of_one_service_meet_its_packets_and_nobody_elses"],
        ),
        part(
            "of a process with a namespace",
            &[
                "scopes::a_partition_of_a_process_with_a_namespace_of_its_own_is_of_all_that_namespace_both_ways",
            ],
        ),
        part("of a container", &["scopes::a_fault_of_a_container_is_of_its_namespace_or_its_group"]),
        part(
            "of a cgroup without an interface, both ways, IPv4 and IPv6",
            &[
                "severed::a_partition_of_a_service_cuts_it_off_both_ways_on_both_families_and_nobody_beside_it",
                "severed::a_partition_of_a_service_in_one_direction_lets_the_other_through",
            ],
        ),
        part(
            "of a cgroup without an interface, and of a host by its name",
            &["names::packets_of_a_service_to_a_host_are_lost_where_its_name_goes_and_nobody_elses_are"],
        ),
        part(
            "of a process without an interface",
            &["severed::a_partition_of_a_process_without_an_interface_is_of_its_group"],
        ),
        SCOPED,
    ]),
    needs: Needs::Nothing,
    struck: &[
        packets(Sign::Echoes, |aims| (aims.packets(), json!({}))),
        calls(Sign::Trips, |aims| (aims.group(), json!({}))).called("network_partition_of_a_cgroup"),
    ],
    ended: &[
        ended(Sign::Echoes, |aims| (aims.packets(), json!({}))).called("partition (tcx)").by_tcx(),
        ended(Sign::Echoes, |aims| (aims.packets(), json!({}))).called("partition (stub)").by_stub(),
        ended(Sign::Trips, |aims| (aims.group(), json!({}))).called("partition (cgroup)"),
    ],
    harmless: |aims| (aims.packets(), json!({})),
    planned: at_device,
};
