//! `resource_exhaustion`: something is used up, or limited. Each resource has a file of its own.

mod cpu;
mod cpu_limit;
mod disk_fill;
mod disk_io;
mod file_descriptors;
mod inodes;
mod io_limit;
mod memory;
mod memory_limit;
mod pids;
mod pids_limit;
mod ports;

use serde_json::json;

use super::Kind;
use super::aims::at_host;
use super::limited::Limited;
use super::needs::Needs;
use super::table::{Part, Table, of_unit, part};

pub(super) const KIND: Kind = Kind {
    table: Table::OfResources(&[
        ("cpu", cpu::PARTS),
        ("memory", memory::PARTS),
        ("disk_fill", disk_fill::PARTS),
        ("file_descriptors", file_descriptors::PARTS),
        ("pids", pids::PARTS),
        ("inodes", inodes::PARTS),
        ("ports", ports::PARTS),
        ("disk_io", disk_io::PARTS),
        ("cpu_limit", cpu_limit::PARTS),
        ("memory_limit", memory_limit::PARTS),
        ("pids_limit", pids_limit::PARTS),
        ("io_limit", io_limit::PARTS),
    ]),
    needs: Needs::Nothing,
    // Processors are called by the fault type, whatever else is used up by itself.
    struck: &[
        cpu::STRUCK,
        memory::STRUCK,
        disk_fill::STRUCK,
        file_descriptors::STRUCK,
        pids::STRUCK,
        inodes::STRUCK,
        ports::STRUCK,
        disk_io::STRUCK,
        cpu_limit::STRUCK,
        memory_limit::STRUCK,
        pids_limit::STRUCK,
        io_limit::STRUCK,
    ],
    // Everything that a process uses up; limits are supervised.
    ended: &[
        cpu::ENDED,
        memory::ENDED,
        file_descriptors::ENDED,
        pids::ENDED,
        ports::ENDED,
        disk_fill::ENDED,
        inodes::ENDED,
        disk_io::ENDED,
    ],
    harmless: |aims| {
        (json!({}), json!({"resource": "disk_fill", "path": aims.folder, "megabytes": 1, "leave_free_mb": 0}))
    },
    planned: at_host,
};

/// What needs a controller.
pub(crate) const LIMITED: &[Limited] = &[
    cpu_limit::LIMITED,
    memory_limit::LIMITED,
    pids_limit::LIMITED,
    io_limit::LIMITED,
    memory::SHARE,
    memory::OOM,
];

/// Who sees refused what needs a controller of cgroup version 2.
const NO_CONTROLLER: &str = "lacks::without_its_controller_a_limit_and_a_share_of_one_are_refused_by_name";

const fn limit(of: &'static str, what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests).unless(NO_CONTROLLER, of)
}

/// Processor time and memory of a unit.
const USED_UP: Part = of_unit(&[
    "first_boot::scopes::processor_time_and_memory_are_used_up_in_the_group_of_a_unit_and_given_back",
]);

/// What is counted one by one.
const COUNTED: Part = part("along a ramp", &["hoards::things::what_is_counted_grows_along_its_ramp"]);

#[cfg(test)]
mod tests {
    use chaos_daemon::spec::resource;

    use super::*;

    #[test]
    fn everything_that_can_be_used_up_is_measured() {
        let missing = resource::names().filter(|resource| {
            !resource.ends_with("_limit") && !KIND.ended.iter().any(|ended| ended.name == Some(*resource))
        });
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
