//! `latency`: packets arrive late.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::{DELAY_MS, ended};
use super::needs::Needs;
use super::sign::Sign;
use super::struck::packets;
use super::table::{OF_CGROUP, Part, SCOPED, Table, netem};

const fn late(what: &'static str, tests: &'static [&'static str]) -> Part {
    netem("latency", what, tests)
}

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        late(
            "on the way out",
            &["effects::a_delay_of_100_ms_is_100_ms_on_the_way_out_and_the_root_qdisc_stays"],
        ),
        late("on the way in", &["effects::a_delay_of_100_ms_is_100_ms_on_the_way_in"]),
        late("both ways", &["effects::a_delay_both_ways_counts_twice"]),
        late("two on one interface", &["effects::two_delays_add_up_and_ending_one_leaves_the_other"]),
        late(
            "uniform, normal, pareto, paretonormal",
            &["impairments::a_delay_is_spread_as_its_distribution_says"],
        ),
        late("correlated", &["impairments::a_correlated_delay_resembles_the_one_before"]),
        late(
            "on lo, IPv4 and IPv6",
            &["impairments::what_is_sent_on_the_loopback_is_late_and_none_of_it_is_lost"],
        ),
        late(OF_CGROUP, &["services::a_delay_of_one_service_is_its_own"]),
        SCOPED,
        netem(
            "latency of names",
            "of answers about names",
            &["dns::answers_about_names_that_are_meant_come_late_and_all_others_at_once"],
        ),
    ]),
    needs: Needs::Netem(&[
        ("latency", || json!({"delay_ms": 100})),
        ("latency of names", || json!({"delay_ms": 100, "names": ["db.example.org"]})),
    ]),
    struck: &[packets(Sign::Echoes, |aims| (aims.packets(), json!({"delay_ms": 300}))).in_matrix(|aims| {
        let mut target = aims.packets();
        target["direction"] = json!("both");
        (target, json!({"delay_ms": 200}))
    })],
    ended: &[ended(Sign::Echoes, |aims| (aims.packets(), json!({"delay_ms": DELAY_MS})))],
    harmless: |aims| (aims.packets(), json!({"delay_ms": 1})),
    planned: at_device,
};
