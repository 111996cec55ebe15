//! The judge, without a kernel: what is in use, what is left, and at which level.

use super::census::{BpfIds, Process, Role};
use super::holdings::Holdings;
use super::judge::{Mark, judge};
use super::network::{Hook, Network};
use super::{JournalSeen, Seen};
use crate::journal;
use crate::kernel::bpf::inventory::{Attached, Link, Map, Program};
use crate::kernel::netlink::marks::{End, near_name};
use crate::kernel::netlink::residue::Residue;
use crate::request::Level;
use crate::spec::Direction;

const DAEMON: i32 = 10;
const HOLDER: i32 = 11;
const NOW: u64 = 1_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn process(pid: i32, parent: i32, role: Role, state: char) -> Process {
    Process {
        pid,
        parent,
        start_time: 1,
        name: "name".into(),
        role,
        state,
        dying: false,
        bpf: BpfIds::default(),
        nameless: Vec::new(),
        traces: Vec::new(),
        holds: Holdings::default(),
        runtime_dir: None,
    }
}

/// A daemon and the holder of a fault on eth0, in these states, with a lease for so long.
fn partition(daemon: char, holder: char, lease: u64) -> Seen {
    let mut seen = Seen { now_ns: NOW, ..Seen::default() };
    let mut process_of_fault = process(HOLDER, DAEMON, Role::Holder, holder);
    process_of_fault.bpf = BpfIds { programs: [1].into(), maps: [2].into(), links: [3].into() };
    seen.census.processes = vec![process(DAEMON, 1, Role::Injector, daemon), process_of_fault];
    seen.inventory.programs = vec![Program { id: 1, name: "chaos_drop_egre".into(), maps: vec![2] }];
    seen.inventory.maps = vec![Map { id: 2, name: "chaos_LEASE".into(), deadline_ns: Some(NOW + lease) }];
    seen.inventory.links = vec![Link { id: 3, kind: 11, program: 1, cgroup: None }];
    let attached = Attached { program: 1, link: 3, direction: Direction::Egress };
    let hooks = vec![Hook { device: "eth0".into(), attached }];
    seen.networks = vec![Some(Network { label: "blue".into(), marked: Vec::new(), hooks })];
    seen
}

fn levels(seen: &Seen) -> Vec<(String, Level)> {
    judge(seen).0.into_iter().map(|found| (found.leftover.kind, found.leftover.level)).collect()
}

#[test]
fn what_the_holder_of_a_running_daemon_has_open_is_in_use() {
    assert_eq!(judge(&partition('S', 'S', 3 * SECOND)), (Vec::new(), 1));
}

#[test]
fn a_stopped_holder_is_an_effect_for_as_long_as_its_lease_runs_and_is_killed_by_a_sweep() {
    let (found, _) = judge(&partition('S', 'T', 2 * SECOND));
    assert_eq!(found.len(), 1, "what it holds is told with it: {found:?}");
    assert_eq!(found[0].leftover.level, Level::Effect);
    assert!(
        found[0].leftover.what.ends_with("its fault acts on eth0 egress in blue for 2.0 s more"),
        "{found:?}"
    );
    assert!(matches!(&found[0].mark, Some(Mark::Process(id)) if id.pid == HOLDER));
    assert_eq!(levels(&partition('S', 'T', 0)), [("holder".to_owned(), Level::Inert)]);
}

#[test]
fn who_was_killed_and_hangs_in_the_kernel_is_told_with_what_it_holds_and_is_no_zombie() {
    let mut seen = partition('S', 'D', 2 * SECOND);
    seen.census.processes[1].dying = true;
    seen.census.processes[1].holds = Holdings { memory_kib: 64 << 10, ..Holdings::default() };
    let (found, _) = judge(&seen);
    assert_eq!(found.len(), 1, "{found:?}");
    let left = &found[0].leftover;
    assert!(left.what.starts_with("process 11 is killed, and hangs in the kernel"), "{left:?}");
    assert!(
        left.what.contains("it holds 64 MiB of memory") && left.goes.contains("lets go of it"),
        "{left:?}"
    );
    assert_eq!(left.level, Level::Effect);
    assert!(matches!(&found[0].mark, Some(Mark::Process(id)) if id.pid == HOLDER));
}

#[test]
fn a_daemon_that_was_killed_and_hangs_in_the_kernel_keeps_nothing_in_use() {
    let mut seen = partition('D', 'S', SECOND);
    seen.census.processes[0].dying = true;
    let both = [("daemon".to_owned(), Level::Inert), ("holder".to_owned(), Level::Effect)];
    assert_eq!(levels(&seen), both);
    let (found, _) = judge(&seen);
    assert!(found[0].leftover.goes.contains("what it has left goes by `chaos-daemon recover`"), "{found:?}");
}

#[test]
fn a_stopped_holder_of_a_fault_of_calls_acts_on_a_control_group() {
    let mut seen = partition('S', 'T', 2 * SECOND);
    seen.networks.clear();
    seen.inventory.links = vec![Link { id: 3, kind: 3, program: 1, cgroup: Some(77) }];
    let (found, _) = judge(&seen);
    assert_eq!(found[0].leftover.level, Level::Effect);
    assert!(
        found[0].leftover.what.ends_with("its fault acts on the calls of cgroup id 77 for 2.0 s more"),
        "{found:?}"
    );
}

#[test]
fn a_stopped_holder_of_a_partition_of_a_service_acts_on_the_packets_of_a_control_group() {
    let mut seen = partition('S', 'T', 2 * SECOND);
    seen.networks.clear();
    // As the kernel cuts it.
    seen.inventory.programs[0].name = "chaos_sever_egr".to_owned();
    seen.inventory.links = vec![Link { id: 3, kind: 3, program: 1, cgroup: Some(77) }];
    let (found, _) = judge(&seen);
    assert!(
        found[0].leftover.what.ends_with("its fault acts on the packets of cgroup id 77 for 2.0 s more"),
        "{found:?}"
    );
}

#[test]
fn a_holder_that_runs_under_a_stopped_daemon_is_not_in_use() {
    let both = [("daemon".to_owned(), Level::Inert), ("holder".to_owned(), Level::Effect)];
    assert_eq!(levels(&partition('T', 'S', SECOND)), both);
}

#[test]
fn a_holder_that_is_left_is_an_effect_for_as_long_as_it_holds_what_is_missing_elsewhere() {
    let with = |parent, holds: Holdings| {
        let mut seen = Seen::default();
        let holder = Process { holds, ..process(HOLDER, parent, Role::Holder, 'T') };
        seen.census.processes = vec![process(DAEMON, 1, Role::Injector, 'S'), holder];
        seen
    };
    assert_eq!(levels(&with(1, Holdings::default())), [("holder".to_owned(), Level::Inert)]);
    for (holds, what) in [
        (Holdings { memory_kib: 64 << 10, ..Holdings::default() }, "it holds 64 MiB of memory"),
        (Holdings { descriptors: 5, ..Holdings::default() }, "it holds 5 open files"),
        (Holdings { files: 5, ..Holdings::default() }, "it holds 5 files without a name"),
        (Holdings { threads: 5, ..Holdings::default() }, "it holds 5 threads"),
        (Holdings { sockets: 5, ..Holdings::default() }, "it holds 5 sockets"),
    ] {
        let (found, _) = judge(&with(1, holds));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].leftover.level, Level::Effect);
        assert!(found[0].leftover.what.contains(what), "{found:?}");
    }
}

#[test]
fn a_server_a_prober_and_a_runner_are_left_without_their_daemon_and_a_guard_only_when_it_does_not_run() {
    let kinds = |daemon, state| {
        let roles = [Role::Server, Role::Prober, Role::Runner, Role::Runner, Role::Guard];
        let mut seen = Seen::default();
        seen.census.processes = vec![process(DAEMON, 1, Role::Injector, daemon)];
        seen.census.processes.extend((20..).zip(roles).map(|(pid, role)| {
            let parent = match (pid, role) {
                (_, Role::Guard) => 1,
                // One that the runner has started.
                (23, _) => 22,
                _ => DAEMON,
            };
            process(pid, parent, role, state)
        }));
        let found = levels(&seen);
        assert!(found.iter().all(|(_, level)| *level == Level::Inert), "{found:?}");
        found.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert!(kinds('S', 'S').is_empty());
    assert_eq!(kinds('S', 'T'), ["server", "prober", "runner", "runner", "guard"]);
    assert_eq!(kinds('T', 'S'), ["daemon", "server", "prober", "runner", "runner"]);
}

#[test]
fn a_link_that_nobody_holds_acts_while_the_lease_of_its_program_runs() {
    for (lease, level) in [(SECOND, Level::Effect), (0, Level::Inert)] {
        let mut seen = partition('S', 'S', lease);
        seen.census.processes.pop();
        assert_eq!(levels(&seen), [("link".to_owned(), level)]);
    }
}

#[test]
fn a_program_or_a_map_that_nothing_keeps_is_named() {
    let mut seen = Seen::default();
    seen.inventory.programs = vec![Program { id: 1, name: "chaos_hairpin".into(), maps: Vec::new() }];
    seen.inventory.maps = vec![Map { id: 2, name: "chaos_RULE".into(), deadline_ns: None }];
    assert_eq!(levels(&seen), [("program".to_owned(), Level::Inert), ("map".to_owned(), Level::Inert)]);
}

fn device(fault: u32) -> Residue {
    Residue::Device { ifindex: 7, name: near_name(fault), fault, end: End::Near }
}

fn journal(fault: u32, keeper: Option<i32>, ending: bool) -> JournalSeen {
    let path = format!("/run/x/journal/{fault:08x}.jsonl").into();
    let found = journal::Found { path, ending, ..journal::Found::default() };
    JournalSeen { found, keeper, present: Vec::new() }
}

#[test]
fn a_device_is_in_use_by_the_journal_of_a_running_daemon_until_it_is_being_undone() {
    let with = |journals: Vec<JournalSeen>| {
        let mut seen = Seen { journals, ..Seen::default() };
        // Of the second loop of the fault.
        let network = Network { marked: vec![device(0x21)], ..Network::default() };
        seen.networks.push(Some(network));
        levels(&seen).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert!(with(vec![journal(0x20, Some(DAEMON), false)]).is_empty());
    assert_eq!(with(vec![journal(0x20, Some(DAEMON), true)]), ["device", "journal"]);
    assert_eq!(with(vec![journal(0x20, None, false)]), ["device", "journal"]);
    assert_eq!(with(vec![journal(0x22, Some(DAEMON), false)]), ["device"]);
}

#[test]
fn a_journal_that_is_not_understood_is_unknown_whoever_keeps_it_and_acts_if_something_of_it_is_there() {
    let unclear = journal::Unclear { line: 3, cause: "unknown variant `Teapot`".into() };
    for (keeper, present, level) in [
        (None, vec![], Level::Unknown),
        (Some(DAEMON), vec![], Level::Unknown),
        (None, vec!["device x".to_owned()], Level::Effect),
    ] {
        let mut journal = journal(0x20, keeper, false);
        journal.found.unclear.push(unclear.clone());
        journal.present = present;
        let seen = Seen { journals: vec![journal], ..Seen::default() };
        let (found, in_use) = judge(&seen);
        let leftover = &found[0].leftover;
        assert_eq!((found.len(), leftover.level, in_use), (1, level, 0), "{leftover}");
        assert!(leftover.what.contains("line 3 (unknown variant `Teapot`) not understood"), "{leftover}");
        assert!(leftover.goes.contains("of the version that wrote it"), "{leftover}");
    }
}

#[test]
fn what_could_not_be_read_is_unknown() {
    let mut seen = Seen { unknown: vec!["eBPF objects: denied".into()], ..Seen::default() };
    seen.places.unknown.push("/sys/fs/bpf: denied".into());
    assert_eq!(levels(&seen), [("look".to_owned(), Level::Unknown), ("look".to_owned(), Level::Unknown)]);
}
