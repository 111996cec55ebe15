//! Who is selected, in which order, and who is left out.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use nix::unistd::geteuid;
use proptest::prelude::*;

use super::*;
use crate::request::Caller;
use crate::spec::{CgroupSelector, Share};
use crate::waits::HANG;

fn anybody() -> ProcessSelector {
    ProcessSelector {
        pid: None,
        cgroup: None,
        exe: None,
        command: None,
        below: None,
        container: None,
        share: Share::ALL,
        seed: 0,
    }
}

fn running(pid: i32, exe: &str, command: &str, group: &str) -> Running {
    Running {
        exe: Some(exe.to_owned()),
        command: command.to_owned(),
        cgroup: Some(group.into()),
        ..Running::plain(pid, exe.rsplit('/').next().unwrap_or_default())
    }
}

fn node() -> Vec<Running> {
    vec![
        running(10, "/opt/a", "/opt/a --shard=1", "system.slice/a.service"),
        running(11, "/opt/a", "/opt/a --shard=2", "system.slice/a.service/worker"),
        running(12, "/opt/b", "/opt/b --shard=1", "system.slice/docker-0123456789abcdef.scope"),
        running(13, "/usr/sbin/sshd", "sshd: x [priv] --shard=1", "system.slice/ssh.service"),
    ]
}

fn pattern(text: &str) -> CommandPattern {
    CommandPattern::parse("target.command", text).unwrap()
}

fn pids(processes: &[Running]) -> BTreeSet<i32> {
    processes.iter().map(|process| process.id.pid).collect()
}

#[test]
fn every_field_narrows_and_who_is_vital_is_left_out_with_why() {
    let nobody = Spared::default();
    let select = |selector: &ProcessSelector| {
        Matcher::new(selector, &Identity::ROOT, &Spared::default()).unwrap().select(node(), &nobody).unwrap()
    };
    let program = ProcessSelector { exe: Some("/opt/a".into()), ..anybody() };
    assert_eq!(pids(&select(&program).hit), [10, 11].into());
    let shard = pattern("--shard=1$");
    let command = ProcessSelector { command: Some(shard.clone()), ..anybody() };
    let selection = select(&command);
    assert_eq!(pids(&selection.hit), [10, 12].into());
    assert_eq!(selection.left_out[0].0.id.pid, 13);
    let both = ProcessSelector { command: Some(shard), ..program };
    assert_eq!(pids(&select(&both).hit), [10].into());
    let container = ProcessSelector { container: Some("0123456789ab".into()), ..anybody() };
    assert_eq!(pids(&select(&container).hit), [12].into());
    let group = Matcher {
        group: Some("system.slice/a.service".into()),
        ..Matcher::new(&anybody(), &Identity::ROOT, &Spared::default()).unwrap()
    };
    assert_eq!(pids(&group.select(node(), &nobody).unwrap().hit), [10, 11].into());
}

#[test]
fn the_path_of_a_program_leads_where_it_leads_for_the_caller() {
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str, mode: u32| fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    mode("", 0o755);
    for (name, is) in [("roots", 0o700), ("open", 0o755)] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("program"), "").unwrap();
        symlink("program", at(name).join("link")).unwrap();
        symlink(at("roots/program"), at(name).join("into")).unwrap();
        mode(name, is);
    }
    let alice = Identity::of(Caller::Unix { uid: 47_110, gid: 47_110, pid: 0 });
    let leads = |identity: &Identity, path: &str| {
        let exe = at(path).into_os_string().into_string().ok();
        let matcher =
            Matcher::new(&ProcessSelector { exe, ..anybody() }, identity, &Spared::default()).unwrap();
        matcher.programs().len() == 2
    };
    // Where it leads nowhere else, that is known twice.
    for (path, hers) in [
        ("open/program", true),
        ("open/link", true),
        ("open/into", false),
        ("roots/program", false),
        ("roots/link", false),
        ("roots/../open/link", false),
    ] {
        assert!(leads(&Identity::ROOT, path), "{path}");
        assert_eq!(leads(&alice, path), hers, "{path}");
    }
    // Links of procfs lead to what is this process's own.
    assert!(leads(&Identity::ROOT, "/proc/self/exe"));
    for path in ["/proc/self/exe", "/proc/thread-self/exe"] {
        assert!(!leads(&alice, path), "{path}");
    }
    for path in ["open/none", "roots/none"] {
        assert!(!leads(&Identity::ROOT, path) && !leads(&alice, path), "{path}");
    }
}

/// An agent (20) with a shell (21) that has started a server (22), which has a child (23); and a server of somebody else's (30).
fn agents() -> Vec<Running> {
    let server = "/opt/mcp-server --stdio";
    let processes = [
        (1, 0, "/sbin/init"),
        (20, 1, "/opt/agent --chat"),
        (21, 20, "sh -c mcp-server"),
        (22, 21, server),
        (23, 22, "cat"),
        (30, 1, server),
    ];
    let child = |(pid, parent, command)| Running { parent, ..running(pid, "/opt/a", command, "") };
    processes.map(child).into()
}

fn below_of(text: &str, command: Option<&str>, all: Vec<Running>) -> BTreeSet<i32> {
    let (below, command) = (Some(pattern(text)), command.map(pattern));
    let matcher =
        Matcher::new(&ProcessSelector { below, command, ..anybody() }, &Identity::ROOT, &Spared::default())
            .unwrap();
    pids(&matcher.matching(all).unwrap())
}

#[test]
fn below_is_whoever_has_such_a_process_anywhere_above_and_not_that_process() {
    assert_eq!(below_of("agent", None, agents()), [21, 22, 23].into());
    assert_eq!(below_of("agent", Some("mcp-server"), agents()), [21, 22].into());
    assert_eq!(below_of("agent", Some("mcp-server --stdio"), agents()), [22].into());
    // One's own command line does not count, and that of PID 1 does.
    assert_eq!(below_of("mcp-server", Some("mcp-server"), agents()), [22].into());
    assert_eq!(below_of("init", Some("--stdio"), agents()), [22, 30].into());
    assert_eq!(below_of("nobody", None, agents()), [].into());
}

#[test]
fn what_the_shell_that_is_pid_1_was_given_means_nobody_and_its_program_means_everybody() {
    let first = |command: &str| {
        let mut all = agents();
        all[0].command = command.to_owned();
        all
    };
    let matching = |text: &str, all| {
        let selector = ProcessSelector { command: Some(pattern(text)), ..anybody() };
        pids(&Matcher::new(&selector, &Identity::ROOT, &Spared::default()).unwrap().matching(all).unwrap())
    };
    assert_eq!(matching("--stdio", first("sh -c mcp-server --stdio & wait")), [22, 30].into());
    assert_eq!(below_of("--stdio", None, first("sh -c mcp-server --stdio & wait")), [23].into());
    assert_eq!(matching(".", first("tini -- mcp-server")), [1, 20, 21, 22, 23, 30].into());
}

#[test]
fn command_lines_are_searched_for_a_limited_time_whoever_has_written_them() {
    let pattern = pattern("agent").compile("target.below").unwrap();
    let in_time = Instant::now() + HANG;
    assert_eq!(below(&pattern, &agents(), in_time).unwrap(), [21, 22, 23].into());
    assert_eq!(found_in(&pattern, &agents(), in_time).unwrap().len(), 1);
    let late = Instant::now();
    assert_eq!(below(&pattern, &agents(), late).unwrap_err().code, ErrorCode::LimitReached);
    assert_eq!(found_in(&pattern, &agents(), late).unwrap_err().code, ErrorCode::LimitReached);
}

#[test]
fn a_number_that_was_given_to_another_is_nobodys_parent_and_a_circle_has_an_end() {
    let mut later = agents();
    later[1].id.start_time = 2000;
    assert_eq!(below_of("agent", None, later), [].into());
    let mut circle = agents();
    circle[1].parent = 23;
    assert_eq!(below_of("agent", Some("mcp-server"), circle), [21, 22].into());
}

#[test]
fn who_is_vital_is_left_out_below_anybody() {
    let mut all = agents();
    all[3].exe = Some("/usr/sbin/sshd".into());
    let selector = ProcessSelector { below: Some(pattern("agent")), ..anybody() };
    let selection = resolve(&selector, &Identity::ROOT, all, &Spared::default()).unwrap();
    assert_eq!(pids(&selection.hit), [21, 23].into());
    assert_eq!(selection.left_out[0].0.id.pid, 22);
}

#[test]
fn whoever_asks_for_a_command_line_has_it_in_its_own_and_is_nobody() {
    let all = vec![running(77, "/opt/shell", "shell -c inject --command nosuch", "/user.slice")];
    let session = all.iter().map(|process| process.id).collect();
    let spared = Spared { session, ..Spared::default() };
    let refused = |selector| resolve(&selector, &Identity::ROOT, all.clone(), &spared).unwrap_err();
    let by_word = refused(ProcessSelector { command: Some(pattern("nosuch")), ..anybody() });
    assert!(
        by_word.code == ErrorCode::TargetNotFound && by_word.message.contains("but the caller"),
        "{by_word}"
    );
    let by_number = refused(ProcessSelector { pid: Some(77), ..anybody() });
    assert_eq!(by_number.code, ErrorCode::TargetProtected);
}

#[test]
fn nobody_and_only_vital_ones_are_told_apart() {
    let refused = |selector| resolve(&selector, &Identity::ROOT, node(), &Spared::default()).unwrap_err();
    let none = refused(ProcessSelector { pid: Some(99), ..anybody() });
    assert_eq!(none.code, ErrorCode::TargetNotFound);
    let sshd = refused(ProcessSelector { pid: Some(13), ..anybody() });
    assert!(sshd.code == ErrorCode::TargetProtected && sshd.message.contains("13 (sshd)"), "{sshd}");
    let path = ProcessSelector { cgroup: Some(CgroupSelector::Path("no/such".into())), ..anybody() };
    assert!(Matcher::new(&path, &Identity::ROOT, &Spared::default()).is_err());
}

proptest! {
    #[test]
    fn of_one_seed_a_larger_share_has_a_smaller_one_among_it(
        seed: u64, starts in prop::collection::vec(0u64..1_000_000, 1..200), small in 1u32..=100, large in 1u32..=100,
    ) {
        let (small, large) = (small.min(large), small.max(large));
        let node: Vec<Running> = (100..).zip(&starts).map(|(pid, start)| Running {
            id: ProcessId { pid, start_time: *start },
            ..running(pid, "/opt/a", "a", "")
        }).collect();
        let select = |percent: u32, all: Vec<Running>| {
            let share = Share::new(f64::from(percent) / 100.0).unwrap();
            let selector = ProcessSelector { share, seed, ..anybody() };
            Matcher::new(&selector, &Identity::ROOT, &Spared::default()).unwrap().select(all, &Spared::default()).unwrap()
        };
        let few = select(small, node.clone());
        let mut backwards = node.clone();
        backwards.reverse();
        let many = select(large, backwards);
        prop_assert!(!few.hit.is_empty());
        prop_assert!(pids(&few.hit).is_subset(&pids(&many.hit)));
        prop_assert_eq!(many.hit.len() + many.spared.len(), node.len());
    }
}
