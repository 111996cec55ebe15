//! What is used up, taken, or limited.

use super::{Part, of_unit, part};

/// Who sees refused what needs a controller of cgroup version 2.
const NO_CONTROLLER: &str = "lacks::without_its_controller_a_limit_and_a_share_of_one_are_refused_by_name";

const fn limit(of: &'static str, what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests).unless(NO_CONTROLLER, of)
}

/// What there is of a resource; nothing of one that nobody has heard of, which a test finds.
pub(super) fn parts(resource: &str) -> &'static [Part] {
    match resource {
        "cpu" => CPU,
        "memory" => MEMORY,
        "disk_fill" => DISK,
        "file_descriptors" => DESCRIPTORS,
        "pids" => PIDS,
        "inodes" => INODES,
        "ports" => PORTS,
        "disk_io" => DISK_IO,
        "cpu_limit" => CPU_LIMIT,
        "memory_limit" => MEMORY_LIMIT,
        "pids_limit" => PIDS_LIMIT,
        "io_limit" => IO_LIMIT,
        _ => &[],
    }
}

/// Processor time and memory of a unit.
const USED_UP: Part = of_unit(&[
    "first_boot::scopes::processor_time_and_memory_are_used_up_in_the_group_of_a_unit_and_given_back",
]);

const CPU: &[Part] = &[
    // That the host's processors are busier for it is seen where others leave them idle, which is no matter of the kernel.
    part("of the host", &["effects::burning_cpu_takes_the_share_asked_for"]),
    part(
        "of a named processor, along a ramp",
        &["hoards::cpu::cpu_time_is_burned_on_the_processor_that_is_named_and_more_and_more_of_it"],
    ),
    part(
        "in a cgroup",
        &["hoards::cpu::a_holder_joins_the_cgroup_that_is_named_and_leaves_it_with_the_fault"],
    ),
    limit(
        "cpu_limit",
        "of a cgroup's quota",
        &["hoards::cpu::cpu_time_of_a_cgroup_is_a_share_of_its_quota_and_counts_there"],
    ),
    part("of a container", &["supervised::groups::processor_time_is_used_up_in_the_cgroup_of_a_container"]),
    USED_UP,
];

const MEMORY: &[Part] = &[
    part(
        "of the host",
        &[
            "hoards::memory::memory_is_resident_while_the_fault_lasts_and_free_when_it_ends",
            "hoards::memory::the_host_has_less_memory_available_while_the_fault_lasts",
        ],
    ),
    part(
        "a percentage of the host's",
        &["hoards::memory::a_percentage_of_the_host_s_memory_is_missing_there_while_the_fault_lasts"],
    ),
    part(
        "along a ramp",
        &["hoards::memory::memory_grows_along_its_ramp_and_its_holder_is_the_first_to_be_killed"],
    ),
    limit(
        "memory of a limit",
        "of a cgroup's limit",
        &["hoards::memory::memory_of_a_cgroup_is_a_share_of_its_limit_and_counts_there"],
    ),
    limit(
        "oom",
        "oom",
        &[
            "hoards::memory::memory_of_a_cgroup_runs_out_when_asked_and_the_kernel_kills_there_and_nobody_else",
        ],
    ),
    USED_UP,
];

const DISK: &[Part] = &[
    part(
        "megabytes",
        &[
            "hoards::disk::room_of_a_file_system_is_missing_while_the_fault_lasts_and_there_again_when_it_ends",
        ],
    ),
    part(
        "percent, and to the brim",
        &["hoards::disk::a_file_system_filled_to_the_brim_takes_no_more_and_no_file_is_seen"],
    ),
];

/// What is counted one by one.
const COUNTED: Part = part("along a ramp", &["hoards::things::what_is_counted_grows_along_its_ramp"]);

const DESCRIPTORS: &[Part] = &[
    part("of the host", &["hoards::things::open_files_of_the_host_are_taken_while_the_fault_lasts"]),
    COUNTED,
];

const PIDS: &[Part] = &[
    part(
        "of the host",
        &[
            "hoards::things::threads_are_there_while_the_fault_lasts",
            "hoards::things::the_host_has_more_tasks_while_the_fault_lasts",
        ],
    ),
    limit(
        "pids_limit",
        "of a cgroup's limit",
        &["hoards::things::a_cgroup_full_of_threads_starts_no_process"],
    ),
    COUNTED,
];

const INODES: &[Part] =
    &[part("of a file system", &["hoards::disk::inodes_of_a_file_system_are_missing_while_the_fault_lasts"])];

const PORTS: &[Part] = &[
    part(
        "of TCP, of a network namespace",
        &["hoards::things::ports_can_be_neither_bound_nor_connected_from_while_the_fault_lasts"],
    ),
    part("of a range", &["hoards::things::ports_of_a_range_are_taken_and_none_beside_it"]),
    part("of UDP", &["hoards::things::no_datagram_socket_finds_a_port_while_those_of_udp_are_taken"]),
];

const DISK_IO: &[Part] = &[
    part(
        "of a file system, and of the disk below it",
        &[
            "hoards::disk::a_disk_is_read_and_written_as_fast_as_asked_for",
            "hoards::disk::what_is_read_and_written_reaches_the_disk_and_stops_with_the_fault",
        ],
    ),
    // That it is in the group's own books is seen where the controller is, which the fault does not need.
    part(
        "in a cgroup, and in a container",
        &[
            "hoards::disk::a_file_system_is_read_and_written_from_within_the_cgroup_or_the_container_that_is_named",
        ],
    ),
];

const CPU_LIMIT: &[Part] = &[
    limit(
        "cpu_limit",
        "of a cgroup",
        &["supervised::removing_lifts_a_limit", "supervised::a_limit_counts_who_meets_it"],
    ),
    of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_cpu_limit_undone_within_three_seconds"]),
];

const MEMORY_LIMIT: &[Part] = &[
    limit(
        "memory_limit",
        "of a cgroup",
        &[
            "supervised::removing_lifts_a_limit_of_memory",
            "supervised::a_limit_of_memory_counts_who_meets_it",
        ],
    ),
    of_unit(&[
        "second_boot_guard::a_service_that_is_killed_has_its_memory_limit_undone_within_three_seconds",
    ]),
];

const PIDS_LIMIT: &[Part] = &[
    limit(
        "pids_limit",
        "of a cgroup",
        &["supervised::removing_lifts_a_limit", "supervised::a_limit_counts_who_meets_it"],
    ),
    limit("pids_limit", "of a process", &["supervised::groups::a_limit_of_a_process_is_of_its_cgroup_alone"]),
    of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_limit_undone_within_three_seconds"]),
];

const IO_LIMIT: &[Part] = &[
    limit("io_limit", "of a cgroup", &["supervised::removing_lifts_a_limit_of_a_disk"]),
    limit(
        "io_limit",
        "read_iops alone, write_bps alone",
        &["supervised::removing_lifts_a_limit_of_one_way_of_a_disk"],
    ),
    of_unit(&["second_boot_guard::a_service_that_is_killed_has_its_io_limit_undone_within_three_seconds"]),
];

pub(super) const PORT: &[Part] = &[
    part("of TCP", &["hoards::port::a_port_cannot_be_bound_while_the_fault_lasts"]),
    part("of UDP", &["hoards::port::a_port_of_udp_cannot_be_bound_while_the_fault_lasts"]),
    part("of one address", &["hoards::port::a_port_of_one_address_and_namespace_is_free_everywhere_else"]),
];

pub(super) const CONNECTIONS: &[Part] = &[
    part(
        "http, a pool",
        &[
            "hoards::connections::a_pool_of_workers_serves_nobody_else_while_the_fault_lasts_and_everybody_after_it",
        ],
    ),
    part(
        "http, at a rate",
        &["hoards::connections::connections_are_opened_and_closed_at_the_rate_and_none_lingers"],
    ),
    part("tcp", &["hoards::protocols::plain_connections_are_open_while_the_fault_lasts_and_closed_after_it"]),
    part(
        "unix",
        &[
            "hoards::protocols::connections_to_a_socket_of_the_file_system_are_open_while_the_fault_lasts_and_closed_after_it",
        ],
    ),
    part(
        "mcp+http",
        &[
            "hoards::protocols::sessions_of_mcp_over_http_are_begun_and_open_while_the_fault_lasts_and_closed_after_it",
        ],
    ),
    part(
        "mcp+unix, a daemon of sixteen",
        &["hoards::connections::a_daemon_of_sixteen_connections_serves_nobody_else_while_they_are_held"],
    ),
];
