//! Processes, what they ask for, services, the clock, and the host as a whole.

use super::packets::SCOPED;
use super::{Part, of_unit, part};

pub(super) const PAUSE: &[Part] = &[
    part(
        "of a cgroup",
        &[
            "supervised::removing_ends_a_pause_and_brings_a_link_back_with_all_it_had",
            "supervised::a_pause_and_a_link_down_end_at_their_time",
        ],
    ),
    part(
        "of a process, and of a container",
        &["supervised::groups::a_pause_of_a_process_or_a_container_is_of_its_cgroup_alone"],
    ),
    of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_pause_undone_within_three_seconds"]),
];

pub(super) const KILL: &[Part] = &[
    part(
        "SIGKILL, once",
        &["processes::kills::a_killed_service_is_seen_to_end_and_to_come_back_and_others_run_on"],
    ),
    part("SIGTERM", &["processes::kills::without_a_supervisor_the_status_says_so"]),
    part("a signal that is survived", &["processes::kills::a_signal_that_a_process_survives_ends_nobody"]),
    part(
        "again and again, with jitter",
        &[
            "processes::kills::a_repeat_hits_whoever_has_come_and_a_removal_prevents_the_next",
            "processes::kills::repeats_end_with_the_time_of_the_fault",
        ],
    ),
    part(
        "of a pid, a cgroup, a container, a command line",
        &["processes::targets::a_kill_by_each_selector_ends_whom_it_selects_and_nobody_else"],
    ),
    part(
        "below another process",
        &["processes::targets::below_another_process_are_its_children_and_theirs_and_nobody_elses"],
    ),
    part(
        "of a share",
        &[
            "processes::targets::a_preview_names_who_would_be_hit_and_a_kill_of_the_same_seed_hits_exactly_those",
        ],
    ),
    of_unit(&[
        "first_boot::processes::a_service_that_the_installed_daemon_kills_is_seen_to_be_started_again",
    ]),
];

pub(super) const PROCESS_PAUSE: &[Part] = &[
    part(
        "all the time",
        &["processes::pauses::every_thread_of_who_is_paused_stands_still_and_nobody_else_does"],
    ),
    part(
        "in a rhythm, with jitter",
        &["processes::pauses::in_a_rhythm_processes_stand_still_and_run_by_turns"],
    ),
    part("of a share", &["processes::pauses::a_share_of_a_service_stands_still_and_the_rest_runs"]),
    of_unit(&[
        "first_boot::processes::the_installed_daemon_pauses_a_service_which_goes_on_when_the_daemon_is_killed",
    ]),
];

pub(super) const CONNECT: &[Part] = &[
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
    part("to a host by its name", &["names::calls_to_a_host_fail_where_its_name_goes_and_nobody_elses_do"]),
    SCOPED,
];

const fn file(what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests)
        .unless("file_calls::a_kernel_that_cannot_fail_calls_about_files_says_what_it_lacks", "file_error")
}

pub(super) const FILES: &[Part] = &[
    file(
        "below a folder, all operations",
        &["file_calls::a_file_error_fails_what_one_group_asks_below_a_folder_and_nothing_else"],
    ),
    file(
        "of a process, and of a container",
        &["file_calls::a_file_error_of_a_process_or_a_container_is_of_its_group_alone"],
    ),
    file("open, create, read, write, mmap", &["file_calls::a_file_error_is_narrowed_to_operations"]),
    file("every errno", &["file_calls::a_file_error_is_each_of_those_that_it_can_be"]),
    file(
        "of a share, after some, so many times",
        &["file_calls::a_file_error_fails_its_share_of_the_calls_from_the_nth_on_and_so_many_at_most"],
    ),
    file(
        "the n-th call ends who makes it",
        &["file_calls::the_nth_call_ends_who_makes_it_and_who_comes_in_its_place_goes_on"],
    ),
    file(
        "on an overlay",
        &["file_calls::a_file_error_is_met_on_an_overlay_and_not_on_what_is_mounted_below"],
    ),
    SCOPED,
];

const fn socket(what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests).unless(
        "socket_calls::a_kernel_that_cannot_fail_calls_about_sockets_says_what_it_lacks",
        "socket_error",
    )
}

pub(super) const SOCKETS: &[Part] = &[
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
];

pub(super) const MCP: &[Part] = &[
    part(
        "fail",
        &[
            "processes::proxies::calls_behind_a_proxy_fail_while_the_fault_is_active_and_neither_before_nor_after",
        ],
    ),
    part(
        "delay, drop, truncate, corrupt, a share",
        &["processes::proxies::calls_are_delayed_dropped_truncated_and_corrupted_as_the_fault_says"],
    ),
    part("of methods", &["processes::proxies::only_the_methods_that_are_named_meet_the_fault"]),
    part(
        "of a share of the calls",
        &["processes::proxies::a_share_of_the_matching_calls_meets_the_fault_and_of_those_a_share_is_late"],
    ),
    of_unit(&[
        "first_boot::drop_ins::calls_to_an_mcp_server_fail_with_the_drop_in_for_them_and_neither_without_it_nor_after",
    ]),
];

const fn service(of: &'static str, tests: &'static [&'static str]) -> Part {
    of_unit(tests).unless("supervised::refusals::services_that_nobody_can_stop_are_refused_by_name", of)
}

pub(super) const STOP: &[Part] = &[service(
    "service_stop",
    &["first_boot::services::a_service_is_stopped_while_the_fault_lasts_and_started_again"],
)];

pub(super) const RESTART: &[Part] = &[service(
    "service_restart",
    &[
        "first_boot::services::a_restart_says_how_long_the_service_was_gone_and_warns_if_it_does_not_come_back",
    ],
)];

const fn clock(what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests)
        .unless("supervised::refusals::the_clock_is_refused_unless_the_policy_allows_it", "clock_skew")
}

pub(super) const CLOCK: &[Part] = &[
    clock("an hour and a half back", &["supervised::removing_sets_the_clock_right"]),
    clock("an hour and a half ahead", &["supervised::removing_sets_a_clock_right_that_is_ahead"]),
];

const fn down(of: &'static str, what: &'static str, tests: &'static [&'static str]) -> Part {
    Part { what, ..of_unit(tests) }
        .unless("policy::taking_the_host_down_is_refused_by_the_default_policy_and_leaves_nothing_behind", of)
}

pub(super) const REBOOT: &[Part] = &[
    down(
        "host_reboot",
        "in order",
        &[
            "going_down::reboot_in_order_by_an_experiment_begins",
            "going_down::forced_after_a_reboot_in_order_everything_is_told",
        ],
    ),
    down(
        "host_reboot",
        "forced",
        &["going_down::forced_reboot_begins", "going_down::panic_after_a_forced_reboot_everything_is_told"],
    ),
];

pub(super) const PANIC: &[Part] = &[down(
    "host_panic",
    "and up again",
    &["going_down::panic_by_an_experiment_begins", "going_down::up_again_after_a_panic_everything_is_told"],
)];
