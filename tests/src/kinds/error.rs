//! `error`: packets are answered with an error.

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
        part("reset, IPv4 and IPv6", &["effects::an_error_refuses_connections_at_once_on_both_families"]),
        part(
            "reset of connections that are there, both ways",
            &[
                "answers::an_error_both_ways_resets_either_end_of_a_connection_at_its_next_segment_and_not_before",
            ],
        ),
        part(
            "host unreachable, IPv4 and IPv6",
            &["answers::callers_hear_at_once_that_a_host_cannot_be_reached_and_of_no_other"],
        ),
        part("every answer", &["answers::each_answer_is_the_error_that_it_says"]),
        part("host unreachable, on the way in", &["answers::remote_callers_and_pings_hear_it_too"]),
        part(
            "reset of remote callers, new and there, IPv4 and IPv6",
            &["answers::a_peer_is_refused_at_one_port_and_its_connections_there_are_reset"],
        ),
        part(OF_CGROUP, &["services::an_error_of_one_service_fails_its_connections_and_nobody_elses"]),
        SCOPED,
    ]),
    needs: Needs::Nothing,
    struck: &[packets(Sign::Resets, |aims| (aims.packets(), json!({})))],
    ended: &[ended(Sign::Resets, |aims| (aims.packets(), json!({})))],
    harmless: |aims| (aims.packets(), json!({})),
    planned: at_device,
};
