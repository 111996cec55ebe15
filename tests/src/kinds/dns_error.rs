//! `dns_error`: questions about names are answered with an error.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::answers;
use super::table::{OF_CGROUP, SCOPED, Table, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
    part(
        "some names, UDP, IPv4 and IPv6",
        &["dns::names_that_are_meant_get_the_error_at_once_and_all_others_the_truth"],
    ),
    part("nxdomain, servfail, refused", &["dns::each_answer_is_the_code_that_it_says"]),
    part("wrong_address", &["dns::a_wrong_address_is_told_for_no_longer_than_the_moment"]),
    part("timeout", &["dns::a_timeout_leaves_questions_without_an_answer"]),
    part("over TCP", &["dns::a_question_over_tcp_has_its_connection_reset"]),
    part("on lo", &["dns::questions_over_the_loopback_are_answered"]),
    part("on the way in", &["dns::questions_that_arrive_are_answered"]),
    part("of one server", &["dns::one_server_is_met_and_another_is_not"]),
    part(OF_CGROUP, &["dns::only_the_service_that_is_meant_hears_it"]),
    part(
        "of a process",
        &["scopes::a_dns_error_of_a_process_that_shares_its_namespace_is_of_its_group_alone"],
    ),
    part("of a container", &["scopes::a_dns_error_of_a_container_is_of_its_namespace_or_its_group"]),
    SCOPED,
]),
    needs: Needs::Nothing,
    struck: // The port of the echo, which sends questions back, too.
    &[answers(Sign::Questions, |aims| {
        let mut target = aims.packets();
        target["port"] = json!(aims.server.port());
        (target, json!({}))
    })],
    ended: &[ended(Sign::Questions, |aims| {
        let mut target = aims.device();
        target["remote_port"] = json!(aims.server.port());
        (target, json!({}))
    })],
    harmless: |aims| (aims.packets(), json!({})),
    planned: at_device,
};
