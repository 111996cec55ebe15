//! `socket_error`: calls about sockets fail.

use serde_json::json;

use super::Kind;
use super::aims::at_group;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::calls;
use super::table::{Part, SCOPED, Table, part};

const fn socket(what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests).unless(
        "socket_calls::a_kernel_that_cannot_fail_calls_about_sockets_says_what_it_lacks",
        "socket_error",
    )
}

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
    socket(
        "of a cgroup, IPv4 and IPv6, all operations",
        &["socket_calls::a_socket_error_fails_what_one_group_asks_on_both_families_and_nothing_else"],
    ),
    socket(
        "of a process, and of a container",
        &["socket_calls::a_socket_error_of_a_process_or_a_container_is_of_its_group_alone"],
    ),
    socket(
        "bind, listen, accept, send, receive",
        &["socket_calls::a_socket_error_is_narrowed_to_operations"],
    ),
    socket(
        "of a protocol, of ports on either end",
        &["socket_calls::a_socket_error_is_narrowed_by_protocol_and_ports_and_spares_what_is_protected"],
    ),
    socket("every errno", &["socket_calls::a_socket_error_is_each_of_those_that_it_can_be"]),
    socket(
        "a call ends who makes it",
        &["socket_calls::a_call_about_a_socket_ends_who_makes_it_and_nobody_else"],
    ),
    socket(
        "of a share, after some, so many times",
        &["socket_calls::a_socket_error_fails_its_share_of_the_calls_from_the_nth_on_and_so_many_at_most"],
    ),
    SCOPED,
]),
    needs: Needs::Lsm,
    struck: // Who associates a socket binds it first.
    &[calls(Sign::Calls, |aims| (aims.group(), json!({})))],
    ended: &[ended(Sign::Calls, |aims| (aims.group(), json!({"operations": ["bind"]})))],
    harmless: |aims| (aims.group(), json!({})),
    planned: at_group,
};
