//! Packets, and the interface that they go through.

use super::{Part, of_unit, part};

/// Packets, calls and files of a unit.
pub(super) const SCOPED: Part = of_unit(&[
    "first_boot::scopes::packets_calls_and_files_of_a_unit_meet_faults_of_its_own_and_nobody_elses_do",
]);

/// Who sees what needs netem refused.
const NO_NETEM: &str = "lacks::without_netem_whatever_needs_it_is_refused_by_name_and_nothing_is_changed";

const fn netem(of: &'static str, what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests).unless(NO_NETEM, of)
}

const fn late(what: &'static str, tests: &'static [&'static str]) -> Part {
    netem("latency", what, tests)
}

pub(super) const LATENCY: &[Part] = &[
    late("on the way out", &["effects::a_delay_of_100_ms_is_100_ms_on_the_way_out_and_the_root_qdisc_stays"]),
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
];

pub(super) const ERROR: &[Part] = &[
    part("reset, IPv4 and IPv6", &["effects::an_error_refuses_connections_at_once_on_both_families"]),
    part(
        "reset of connections that are there, both ways",
        &["answers::an_error_both_ways_resets_either_end_of_a_connection_at_its_next_segment_and_not_before"],
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
];

pub(super) const TIMEOUT: &[Part] = &[
    part("of a port and protocol", &["effects::a_timeout_makes_callers_of_one_port_wait_and_no_others"]),
    part(
        OF_CGROUP,
        &["services::a_timeout_and_a_partition_of_one_service_meet_its_packets_and_nobody_elses"],
    ),
    part("of a process", &["scopes::a_fault_of_a_process_that_shares_its_namespace_is_of_its_group_alone"]),
    part("of a container", &["scopes::a_fault_of_a_container_is_of_its_namespace_or_its_group"]),
    part(
        "of a cgroup without an interface",
        &["severed::a_timeout_of_a_service_loses_what_it_sends_and_spares_the_loopback"],
    ),
    SCOPED,
];

pub(super) const PARTITION: &[Part] = &[
    part("of a peer, both ways", &["effects::a_partition_cuts_the_named_peer_off_both_ways_and_no_other"]),
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
        &["scopes::a_partition_of_a_process_with_a_namespace_of_its_own_is_of_all_that_namespace_both_ways"],
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
];

const INWARDS: &str = "on the way in, IPv4 and IPv6";
const INWARDS_TESTS: &[&str] =
    &["impairments::what_arrives_is_lost_corrupted_and_reordered_on_both_families_and_what_leaves_is_not"];

const OF_CGROUP: &str = "of a cgroup";

pub(super) const LOSS: &[Part] = &[
    netem(
        "packet_loss",
        "by chance",
        &["impairments::a_loss_of_10_percent_loses_10_percent_and_no_sender_is_told"],
    ),
    netem("packet_loss", "correlated", &["impairments::a_correlated_loss_comes_in_rows"]),
    netem("packet_loss", INWARDS, INWARDS_TESTS),
    netem(
        "packet_loss",
        "gilbert_elliott and four_state",
        &["impairments::losses_by_a_model_with_states_come_in_bursts"],
    ),
    netem(
        "packet_loss",
        "beside a delay",
        &["impairments::loss_and_delay_add_up_in_either_order_and_ending_one_leaves_the_other"],
    ),
    netem("packet_loss", OF_CGROUP, &["services::a_loss_of_one_service_is_its_own"]),
    netem(
        "packet_loss",
        "of a process",
        &["scopes::a_loss_of_a_process_that_shares_its_namespace_is_of_its_group_alone"],
    ),
    netem(
        "packet_loss",
        "of a container",
        &["scopes::a_loss_of_a_container_is_of_its_namespace_or_its_group"],
    ),
    SCOPED,
];

pub(super) const DUPLICATE: &[Part] = &[
    netem(
        "packet_duplicate",
        "out and in",
        &["impairments::a_duplicate_arrives_once_more_and_no_more_both_ways"],
    ),
    netem("packet_duplicate", OF_CGROUP, &["services::a_duplication_of_one_service_is_its_own"]),
];

pub(super) const CORRUPT: &[Part] = &[
    netem(
        "packet_corrupt",
        "a bit of some packets",
        &["impairments::a_corrupted_packet_fails_its_checksum_or_is_lost"],
    ),
    netem("packet_corrupt", INWARDS, INWARDS_TESTS),
    netem("packet_corrupt", OF_CGROUP, &["services::a_corruption_of_one_service_is_its_own"]),
];

pub(super) const REORDER: &[Part] = &[
    netem(
        "packet_reorder",
        "any packet, and every fifth",
        &["impairments::reordered_packets_overtake_and_none_is_lost"],
    ),
    netem("packet_reorder", INWARDS, INWARDS_TESTS),
    netem("packet_reorder", OF_CGROUP, &["services::a_reordering_of_one_service_is_its_own"]),
];

pub(super) const BANDWIDTH: &[Part] = &[
    netem("bandwidth", "out and in", &["impairments::a_bandwidth_is_what_gets_through_both_ways"]),
    netem("bandwidth", OF_CGROUP, &["services::a_rate_of_one_service_is_its_own"]),
];

pub(super) const LINK_PROFILE: &[Part] = &[netem(
    "link_profile",
    "out and in, each for itself",
    &[
        "link_profiles::a_link_has_delay_loss_and_rate_of_its_own_each_way",
        "link_profiles::a_preset_is_the_link_of_its_name",
    ],
)];

pub(super) const DNS: &[Part] = &[
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
];

pub(super) const LINK: &[Part] = &[
    part(
        "all the time, with all that going down costs",
        &[
            "supervised::removing_ends_a_pause_and_brings_a_link_back_with_all_it_had",
            "supervised::a_pause_and_a_link_down_end_at_their_time",
        ],
    ),
    part(
        "in a rhythm",
        &[
            "supervised::flaps::in_a_rhythm_a_link_is_down_and_up_by_turns",
            "supervised::removing_ends_a_rhythm_with_the_link_up_and_all_it_had",
        ],
    ),
];
