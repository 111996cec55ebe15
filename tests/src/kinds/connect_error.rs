//! `connect_error`: calls that connect fail.

use serde_json::json;

use super::Kind;
use super::aims::at_group;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::calls;
use super::table::{SCOPED, Table, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part(
            "of a cgroup, IPv4 and IPv6, TCP and UDP",
            &["calls::a_connect_error_fails_the_calls_of_one_group_on_both_families_and_nobody_elses"],
        ),
        part("every errno", &["calls::a_connect_error_is_each_of_those_that_it_can_be"]),
        part(
            "of a prefix, port and protocol",
            &["calls::a_connect_error_is_narrowed_by_prefix_port_and_protocol_and_spares_what_is_protected"],
        ),
        part(
            "of a share, after some, so many times",
            &["calls::a_connect_error_fails_its_share_of_the_calls_after_those_that_pass_first"],
        ),
        part("of a process", &["scopes::a_connect_error_of_a_process_is_of_its_group_alone"]),
        part(
            "to a host by its name",
            &["names::calls_to_a_host_fail_where_its_name_goes_and_nobody_elses_do"],
        ),
        SCOPED,
    ]),
    needs: Needs::Nothing,
    struck: &[calls(Sign::Calls, |aims| (aims.group(), json!({})))],
    ended: &[ended(Sign::Calls, |aims| (aims.group(), json!({})))],
    harmless: |aims| (aims.group(), json!({})),
    planned: at_group,
};
