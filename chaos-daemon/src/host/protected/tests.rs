//! Who may be hit under which policy, as a table; and that what opens less never permits more.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;

use super::places::{Selected, host_wide};
use super::*;
use crate::host::nearness::Nearness;
use crate::host::process::ProcessId;
use crate::spec::{ProcessSelector, TargetRequest};

/// The uids of who asks, of another user, and of a service.
const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const SERVICE: u32 = 33;

fn asked_by(uid: u32) -> Spared {
    Spared { asker: Asker { uid: Some(uid), terminal: 0, login: None }, ..Spared::default() }
}

/// A process of this user's in this control group.
fn process(name: &str, uid: u32, cgroup: &str) -> Running {
    Running {
        id: ProcessId { pid: 4711, start_time: 1 },
        parent: 1,
        // As the kernel cuts it.
        name: name.chars().take(15).collect(),
        exe: None,
        program: None,
        program_is_roots: true,
        command: name.to_owned(),
        cgroup: Some(PathBuf::from(cgroup)),
        managed: None,
        of_kernel: false,
        nearness: Nearness { of_this_host: true, in_this_network: true },
        owner: Owner { uid, ..Owner::default() },
        listens: false,
        tracer: 0,
    }
}

/// Whether the process is refused to a user who names it, and whether the policy's line opens it.
fn verdict(process: &Running, aim: Aim, spared: &Spared) -> (bool, bool) {
    let Some(protected) = process.protected(aim, spared) else { return (false, true) };
    let open = Open { programs: [process.name.clone()].into(), ..Open::default() };
    let opened = process.protected(aim, &Spared { open, ..spared.clone() }).is_none();
    assert_eq!(opened, protected.opens_with.is_some(), "{} {protected:?}", process.name);
    (true, opened)
}

/// Rows of the table of targets: programs, and whether an operator can open them.
const ROWS: &[(&[&str], bool)] = &[
    (
        &[
            "systemd",
            "systemd-journald",
            "systemd-networkd",
            "systemd-udevd",
            "systemd-logind",
            "systemd-resolved",
            "dbus-daemon",
            "dbus-broker",
            "sshd",
            "sshd-session",
            "dhclient",
            "NetworkManager",
            "chaos-daemon",
            "chaos-server",
            "chaos-prober",
            "chaos-runner",
            "chaos-holder",
            "chaos-guard",
        ],
        false,
    ),
    (
        &[
            "bash",
            "sh",
            "zsh",
            "login",
            "agetty",
            "sudo",
            "su",
            "tmux: server",
            "gdm-session-worker",
            "dropbear",
            "tinysshd",
            "chaosctl",
        ],
        true,
    ),
    (
        &[
            "auditd",
            "rsyslogd",
            "falco",
            "osqueryd",
            "wazuh-agentd",
            "fail2ban-server",
            "polkitd",
            "sssd",
            "sssd_nss",
            "nscd",
            "winbindd",
        ],
        true,
    ),
    (
        &[
            "containerd",
            "containerd-shim-runc-v2",
            "dockerd",
            "kubelet",
            "runc",
            "kube-apiserver",
            "etcd",
            "corosync",
            "pacemakerd",
            "keepalived",
        ],
        true,
    ),
    (
        &[
            "udevd",
            "runit",
            "runsvdir",
            "s6-svscan",
            "openrc",
            "mdadm",
            "mdmon",
            "multipathd",
            "iscsid",
            "fsck.ext4",
            "dpkg",
            "apt",
            "apt-get",
            "qemu-ga",
            "amazon-ssm-agent",
            "google_guest_agent",
            "waagent",
            "openvpn",
            "charon",
            "tailscaled",
            "rpcbind",
        ],
        true,
    ),
    (&["postgres", "mysqld", "mariadbd", "mongod", "redis-server"], true),
];

#[test]
fn each_program_of_the_table_is_refused_to_everybody_and_opened_as_it_says() {
    for (programs, can_open) in ROWS {
        for name in *programs {
            let cgroup = format!("system.slice/{name}.service");
            for asker in [ALICE, 0] {
                let process = process(name, if asker == 0 { SERVICE } else { 0 }, &cgroup);
                let found = verdict(&process, Aim::AtProcess, &asked_by(asker));
                assert_eq!(found, (true, *can_open), "{name} by {asker}");
            }
        }
    }
}

#[test]
fn each_unit_of_the_table_is_refused_and_opened_as_it_says() {
    let spared = asked_by(0);
    for (name, can_open) in [
        ("ssh.service", false),
        ("systemd-networkd.service", false),
        ("dbus.service", false),
        ("networking.service", false),
        ("ifup@eth0.service", false),
        ("dhcpcd@eth0.service", false),
        ("wickedd-nanny.service", false),
        ("getty@tty1.service", false),
        ("serial-getty@ttyS0.service", false),
        ("user@1000.service", false),
        ("chaos-daemon-guard.service", false),
        ("nftables.service", true),
        ("firewalld.service", true),
        ("ufw.service", true),
        ("apparmor.service", true),
        ("docker.service", true),
        ("containerd.service", true),
        ("kubelet.service", true),
        ("auditd.service", true),
        ("rsyslog.service", true),
        ("iptables.service", true),
        ("netfilter-persistent.service", true),
        ("fail2ban.service", true),
        ("qemu-guest-agent.service", true),
        ("wg-quick@wg0.service", true),
        ("openvpn-server@a.service", true),
        ("postgresql@16-main.service", true),
        ("mariadb.service", true),
        ("open-iscsi.service", true),
        ("lvm2-monitor.service", true),
        ("unattended-upgrades.service", true),
        ("display-manager.service", true),
        ("polkit.service", true),
        ("chrony.service", true),
    ] {
        let protected = unit(name, &spared);
        let protected = protected.unwrap_or_else(|| panic!("{name} is free"));
        assert_eq!(protected.opens_with.is_some(), can_open, "{name}: {protected:?}");
        let open = Open { units: [name.to_owned()].into(), ..Open::default() };
        assert_eq!(unit(name, &Spared { open, ..spared.clone() }).is_none(), can_open, "{name}");
    }
    for name in ["nginx.service", "shop@1.service", "network-api.service", "payment.service"] {
        assert_eq!(unit(name, &spared), None, "{name}");
    }
}

/// What is in no list, and protected all the same: twelve processes called like anything.
fn unlisted() -> Vec<(&'static str, Running, u32)> {
    let worker = |uid, cgroup: &str| process("worker", uid, cgroup);
    let owned = |owner: Owner, cgroup: &str| Running { owner, ..worker(owner.uid, cgroup) };
    let on_terminal = |uid| Owner { uid, terminal: 34_816, login: None };
    let logged_in = |uid, login| Owner { uid, terminal: 0, login: Some(login) };
    vec![
        ("root's outside a unit, by a user", worker(0, ""), ALICE),
        ("root's in a group that is no unit, by a user", worker(0, "tools/backup"), ALICE),
        ("another user's outside a unit, by a user", worker(BOB, ""), ALICE),
        ("a service's whose unit the boot needs", worker(0, "system.slice/disks.service"), ALICE),
        ("the same, by root", worker(0, "system.slice/disks.service"), 0),
        (
            "who listens at a way in",
            Running { listens: true, ..worker(0, "system.slice/door.service") },
            ALICE,
        ),
        ("the same, by root", Running { listens: true, ..worker(0, "system.slice/door.service") }, 0),
        (
            "in another's session",
            owned(logged_in(BOB, BOB), "user.slice/user-1002.slice/session-3.scope"),
            ALICE,
        ),
        ("the same, by root", owned(logged_in(BOB, BOB), "user.slice/user-1002.slice/session-3.scope"), 0),
        (
            "of another's service manager",
            owned(logged_in(BOB, BOB), "user.slice/user-1002.slice/user@1002.service/app.slice/a.service"),
            ALICE,
        ),
        ("at another's terminal, by root", owned(on_terminal(BOB), ""), 0),
        ("root's at another terminal than root's who asks", owned(on_terminal(0), ""), 0),
    ]
}

#[test]
fn what_no_list_has_is_protected_by_rule_twelve_of_twelve() {
    let needed: BTreeSet<_> = ["disks.service".to_owned()].into();
    let all = unlisted();
    assert_eq!(all.len(), 12);
    for (what, process, asker) in all {
        let spared = Spared { needed: needed.clone(), ..asked_by(asker) };
        let protected =
            process.protected(Aim::AtProcess, &spared).unwrap_or_else(|| panic!("{what} is free"));
        assert!(!matches!(protected.rule, Rule::Table(_) | Rule::Core), "{what}: {protected:?}");
        verdict(&process, Aim::AtProcess, &spared);
    }
}

#[test]
fn ones_own_and_what_is_in_a_unit_may_be_hit() {
    let own = process("worker", ALICE, "");
    let at_own_terminal =
        Running { owner: Owner { uid: ALICE, terminal: 7, login: Some(ALICE) }, ..own.clone() };
    let in_container = format!("docker/{}", "0123456789abcdef".repeat(4));
    let with_terminal = Owner { uid: 0, terminal: 34_817, login: None };
    for (what, process, asker) in [
        ("one's own", own.clone(), ALICE),
        ("one's own at a terminal", at_own_terminal, ALICE),
        ("one's own shell", process("bash", ALICE, ""), ALICE),
        ("root's, by root", process("worker", 0, ""), 0),
        ("a user's, by root", own, 0),
        ("a service's", process("nginx", SERVICE, "system.slice/nginx.service"), ALICE),
        ("root's in a service", process("nginx", 0, "system.slice/nginx.service"), ALICE),
        (
            "of a container with a terminal",
            Running { owner: with_terminal, ..process("app", 0, &in_container) },
            0,
        ),
    ] {
        assert_eq!(process.protected(Aim::AtProcess, &asked_by(asker)), None, "{what}");
    }
    let proxy = Running { command: "chaosctl mcp-proxy -- server".into(), ..process("chaosctl", BOB, "") };
    assert_eq!(proxy.protected(Aim::AtProcess, &asked_by(0)), None);
    assert_eq!(proxy.protected(Aim::AtProcess, &asked_by(ALICE)).unwrap().rule, Rule::NoUnit);
    // A shell is hit with the unit in which it is, and not by itself.
    let shell = process("sh", 0, "system.slice/shop.service");
    assert_eq!(shell.protected(Aim::AtPlace, &asked_by(ALICE)), None);
    assert_eq!(shell.protected(Aim::AtProcess, &asked_by(ALICE)).unwrap().rule, Rule::Shell);
    // Nobody on a vsock has a process here.
    let vsock = Spared { asker: Asker { uid: None, terminal: 0, login: None }, ..Spared::default() };
    assert!(process("worker", 0, "").protected(Aim::AtProcess, &vsock).is_some());
}

#[test]
fn who_only_looks_is_told_of_whatever_something_opens() {
    let database = process("postgres", 0, "system.slice/postgresql.service");
    let (alice, looking) = (asked_by(ALICE), asked_by(ALICE).for_looks());
    assert!(
        database.protected(Aim::AtPlace, &alice).is_some() && unit("postgresql.service", &alice).is_some()
    );
    assert!(
        database.protected(Aim::AtPlace, &looking).is_none()
            && unit("postgresql.service", &looking).is_none()
    );
    assert!(process("sshd", 0, "").protected(Aim::AtPlace, &looking).is_some());
    assert!(unit("ssh.service", &looking).is_some());
}

#[test]
fn pid_1_threads_of_the_kernel_the_daemon_and_the_callers_session_are_opened_by_nothing() {
    let any = process("worker", 0, "system.slice/a.service");
    let open = Open {
        programs: ["worker".to_owned()].into(),
        units: ["a.service".to_owned()].into(),
        ..Open::default()
    };
    let spared = Spared {
        open,
        program: Some((1, 2)),
        session: vec![ProcessId { pid: 77, start_time: 1 }],
        ..asked_by(0)
    };
    let with_id = |pid| Running { id: ProcessId { pid, start_time: 1 }, ..any.clone() };
    for (process, rule) in [
        (with_id(1), Rule::First),
        (Running { of_kernel: true, ..any.clone() }, Rule::Kernel),
        (Running { program: Some((1, 2)), ..any.clone() }, Rule::Ourselves),
        (with_id(77), Rule::Session),
    ] {
        let protected = process.protected(Aim::AtPlace, &spared).unwrap();
        assert_eq!((protected.rule, protected.opens_with), (rule, None));
    }
    assert_eq!(any.protected(Aim::AtPlace, &spared), None);
}

/// A program of this path that calls itself so.
fn running(exe: &str, name: &str, uid: u32) -> Running {
    Running { exe: Some(exe.to_owned()), ..process(name, uid, "system.slice/shop.service") }
}

#[test]
fn whoever_only_takes_a_name_of_the_core_may_be_hit_and_a_file_of_roots_is_what_it_is_called() {
    let root = asked_by(0);
    for process in [
        // A service of a user's, or root's, that calls itself sshd.
        running("/opt/shop/worker", "sshd", SERVICE),
        running("/opt/shop/worker", "sshd", 0),
        running("/usr/bin/python3.11", "systemd-helper", SERVICE),
        running("/opt/shop/worker", "chaos-holder", SERVICE),
        // A file of root's that is none of systemd's.
        running("/opt/prometheus/systemd-exporter", "systemd-exporter", SERVICE),
        // A file of a user's.
        Running { program_is_roots: false, ..running("/opt/mine/sshd", "sshd", SERVICE) },
    ] {
        assert_eq!(process.protected(Aim::AtPlace, &root), None, "{process:?}");
    }
    for (process, rule) in [
        (running("/usr/sbin/sshd", "sshd", 0), Rule::Core),
        (running("/usr/sbin/sshd", "anything", SERVICE), Rule::Core),
        (running("/usr/bin/udevadm", "(udev-worker)", 0), Rule::Core),
        (running("/usr/bin/udevadm", "systemd-udevd", 0), Rule::Core),
        (running("/bin/busybox", "udhcpc", 0), Rule::Core),
        (running("/bin/dash", "dhclient-script", 0), Rule::Core),
        (running("/usr/lib/systemd/systemd-journald", "systemd-journal", 0), Rule::Core),
        (running("/nix/store/1-systemd-256/lib/systemd/systemd-logind", "systemd-logind", 0), Rule::Core),
        (running("/usr/bin/chaos-daemon", "chaos-guard", SERVICE), Rule::Ourselves),
    ] {
        assert_eq!(process.protected(Aim::AtPlace, &root).map(|found| found.rule), Some(rule), "{process:?}");
    }
}

#[test]
fn what_runs_this_host_from_a_container_is_known_by_its_network() {
    let group = format!("kubepods.slice/cri-containerd-{}.scope", "0123456789abcdef".repeat(4));
    let in_network = |in_this_network| Nearness { of_this_host: false, in_this_network };
    for name in ["kube-apiserver", "etcd", "cilium-agent", "kube-proxy", "node-cache"] {
        let contained = |near| Running { nearness: in_network(near), ..process(name, 0, &group) };
        let known = name != "node-cache";
        assert_eq!(contained(true).protected(Aim::AtPlace, &asked_by(0)).is_some(), known, "{name}");
        assert_eq!(contained(false).protected(Aim::AtPlace, &asked_by(0)), None, "{name}");
    }
    // Whatever it calls itself: the program counts.
    let renamed =
        Running { nearness: in_network(true), ..running("/usr/local/bin/kube-apiserver", "main", 0) };
    assert!(renamed.protected(Aim::AtPlace, &asked_by(0)).is_some());
}

#[test]
fn a_database_that_another_program_runs_is_one_and_its_unit_opens_it() {
    let command = "java -Xmx1g org.apache.cassandra.service.CassandraDaemon".to_owned();
    let base = Running { command, ..running("/usr/lib/jvm/bin/java", "java", SERVICE) };
    let found = base.protected(Aim::AtPlace, &asked_by(0)).unwrap();
    assert_eq!(found.rule, Rule::Table(Category::Database));
    assert!(found.opens_with.unwrap().contains("units = [\"shop.service\"]"));
    let open = Open { units: ["shop.service".to_owned()].into(), ..Open::default() };
    assert_eq!(base.protected(Aim::AtPlace, &Spared { open, ..asked_by(0) }), None);
    let loose = Running { cgroup: None, ..base };
    assert!(loose.protected(Aim::AtPlace, &asked_by(0)).unwrap().opens_with.unwrap().contains("[\"java\"]"));
}

#[test]
fn a_container_with_a_service_manager_of_its_own_has_its_own_units_and_terminals() {
    let spared = Spared { needed: ["dbus.service".to_owned()].into(), ..asked_by(0) };
    let contained = Nearness { of_this_host: false, in_this_network: false };
    let scope = format!("system.slice/docker-{}.scope", "0123456789abcdef".repeat(4));
    let within = process("worker", 0, &format!("{scope}/system.slice/dbus.service"));
    assert_eq!(Running { nearness: contained, ..within }.protected(Aim::AtPlace, &spared), None);
    let terminal = Owner { uid: 0, terminal: 34_816, login: None };
    let devbox = Running { owner: terminal, nearness: contained, ..process("worker", 0, "devbox") };
    assert_eq!(devbox.protected(Aim::AtPlace, &spared), None);
    let login = Owner { login: Some(BOB), ..terminal };
    assert!(Running { owner: login, ..devbox }.protected(Aim::AtPlace, &spared).is_some());
}

#[test]
fn where_groups_are_of_version_1_a_unit_is_a_unit_too() {
    let old = Running { managed: Some("system.slice/shop.service".into()), ..process("shop", SERVICE, "") };
    assert_eq!(old.protected(Aim::AtProcess, &asked_by(ALICE)), None);
    let loose = Running { managed: None, ..old };
    assert_eq!(loose.protected(Aim::AtProcess, &asked_by(ALICE)).unwrap().rule, Rule::NoUnit);
}

#[test]
fn the_line_of_a_name_that_the_policy_cannot_have_is_that_of_its_path_or_its_unit() {
    let odd = Running { name: "etcd/main".into(), listens: true, ..running("/opt/etcd", "x", SERVICE) };
    let lines = |process: &Running| process.protected(Aim::AtPlace, &asked_by(0)).unwrap().opens_with;
    assert!(lines(&odd).unwrap().contains("programs = [\"/opt/etcd\"]"));
    assert!(lines(&Running { exe: None, ..odd }).unwrap().contains("units = [\"shop.service\"]"));
}

#[test]
fn what_runs_in_a_container_is_its_own_and_what_configures_the_network_is_the_hosts_by_its_network() {
    let contained = Nearness { of_this_host: false, in_this_network: false };
    for name in ["systemd", "sshd", "dbus-daemon", "dhclient", "postgres", "containerd"] {
        let within = Running { nearness: contained, ..process(name, 0, "system.slice/docker-0.scope") };
        assert_eq!(within.protected(Aim::AtPlace, &asked_by(0)), None, "{name}");
    }
    let client = process("dhclient", 0, "");
    let nearness = Nearness { of_this_host: false, in_this_network: true };
    assert_eq!(
        Running { nearness, ..client }.protected(Aim::AtPlace, &asked_by(0)).unwrap().rule,
        Rule::Core
    );
}

fn selector(target: TargetRequest) -> ProcessSelector {
    ProcessSelector::parse(&target).unwrap()
}

/// Whether a selection of these is too wide, and of whom are left out.
fn wide(target: TargetRequest, matching: &[Running], left_out: &[Rule], spared: &Spared) -> bool {
    let (selector, left_out) = (selector(target), left_out.iter().copied().collect());
    let matching: Vec<_> = matching.iter().collect();
    host_wide(&Selected { selector: &selector, matching: &matching, left_out: &left_out }, spared).is_some()
}

#[test]
fn a_selector_of_the_whole_host_is_refused_and_one_of_few_units_is_not() {
    let units = |count: u32| -> Vec<_> {
        (0..count)
            .map(|number| process("worker", SERVICE, &format!("system.slice/a{number}.service")))
            .collect()
    };
    let by_words = || TargetRequest { command: Some(".".into()), ..TargetRequest::default() };
    let by_program = || TargetRequest { exe: Some("/opt/worker".into()), ..TargetRequest::default() };
    let root = asked_by(0);
    assert!(wide(by_words(), &units(1), &[Rule::First], &root), "PID 1 is met as well");
    assert!(!wide(by_words(), &units(1), &[Rule::Session], &root));
    assert!(wide(by_words(), &units(1), &[], &asked_by(ALICE)), "of others");
    assert!(!wide(by_words(), &[process("own", ALICE, "")], &[], &asked_by(ALICE)));
    for target in [by_words, by_program] {
        assert!(!wide(target(), &units(4), &[], &root) && wide(target(), &units(5), &[], &root));
    }
    // Outside of units each program counts.
    let loose: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| process(name, 0, "")).into();
    assert!(wide(by_words(), &loose, &[], &root) && !wide(by_words(), &loose[..4], &[], &root));
    let open = Open { host_wide_selectors: true, units_at_once: 5, ..Open::default() };
    let opened = Spared { open, ..root };
    assert!(!wide(by_words(), &units(5), &[Rule::First], &opened));
}

#[test]
fn a_refusal_names_the_line_that_opens_it_which_is_one_of_the_policy() {
    let database = process("postgres", 0, "system.slice/postgresql.service");
    let protected = database.protected(Aim::AtPlace, &asked_by(0)).unwrap();
    let text = protected.remedy();
    assert!(text.contains("`programs = [\"postgres\"]` in the table `[open]`"), "{text}");
    let line = text.split('`').nth(1).unwrap();
    let open: Open = toml::from_str(line).unwrap();
    assert_eq!(database.protected(Aim::AtPlace, &Spared { open, ..asked_by(0) }), None);
    assert!(
        process("sshd", 0, "")
            .protected(Aim::AtPlace, &asked_by(0))
            .unwrap()
            .remedy()
            .contains("nothing opens it")
    );
}

const NAMES: [&str; 9] =
    ["worker", "bash", "postgres", "auditd", "systemd", "sshd", "containerd", "nginx", "dhclient"];
const UNITS: [&str; 5] = ["", "a.service", "disks.service", "docker.service", "session-3.scope"];

fn some_process() -> impl Strategy<Value = Running> {
    let login = prop::option::of(prop::sample::select(vec![ALICE, BOB]));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let uid = prop::sample::select(vec![0, ALICE, BOB]);
    (0..NAMES.len(), 0..UNITS.len(), uid, 0..3_i32, login, flags).prop_map(
        |(name, unit, uid, terminal, login, (listens, of_this_host, in_this_network))| Running {
            owner: Owner { uid, terminal, login },
            listens,
            nearness: Nearness { of_this_host, in_this_network },
            ..process(NAMES[name], uid, &format!("system.slice/{}", UNITS[unit]))
        },
    )
}

fn some_open() -> impl Strategy<Value = Open> {
    let programs = prop::collection::btree_set(prop::sample::select(NAMES.to_vec()), 0..4);
    let units = prop::collection::btree_set(prop::sample::select(UNITS[1..].to_vec()), 0..3);
    let ports = prop::collection::btree_set(prop::sample::select(vec![22_u16, 80, 443, 6443]), 0..4);
    let numbers = (1..9_usize, 100..3000_u64, prop::option::of(0..4096_u64), prop::option::of(0..4096_u64));
    (programs, units, ports, any::<bool>(), numbers).prop_map(
        |(programs, units, ports, host_wide_selectors, (units_at_once, least_interval_ms, memory, disk))| {
            Open {
                programs: programs.into_iter().map(str::to_owned).collect(),
                units: units.into_iter().map(str::to_owned).collect(),
                ports,
                host_wide_selectors,
                units_at_once,
                least_interval_ms,
                least_memory_mb: memory,
                least_disk_mb: disk,
                ..Open::default()
            }
        },
    )
}

/// What both of them open, and no more.
fn less(one: &Open, other: &Open) -> Open {
    let most = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one.max(other));
    Open {
        programs: &one.programs & &other.programs,
        units: &one.units & &other.units,
        ports: &one.ports & &other.ports,
        host_wide_selectors: one.host_wide_selectors && other.host_wide_selectors,
        units_at_once: one.units_at_once.min(other.units_at_once),
        least_interval_ms: one.least_interval_ms.max(other.least_interval_ms),
        least_memory_mb: most(one.least_memory_mb, other.least_memory_mb),
        least_disk_mb: most(one.least_disk_mb, other.least_disk_mb),
        ..Open::default()
    }
}

proptest! {
    #[test]
    fn a_policy_that_opens_less_never_permits_more(
        process in some_process(), others in prop::collection::vec(some_process(), 0..6),
        one in some_open(), other in some_open(), uid in prop::sample::select(vec![0, ALICE]), place: bool,
        port in prop::sample::select(vec![22_u16, 80, 443, 6443, 8080]),
    ) {
        let less = less(&one, &other);
        let by = |open: &Open| Spared {
            open: open.clone(), needed: ["disks.service".to_owned()].into(), ..asked_by(uid)
        };
        let aim = if place { Aim::AtPlace } else { Aim::AtProcess };
        let free = |open: &Open| process.protected(aim, &by(open)).is_none();
        prop_assert!(!free(&less) || free(&one));
        for name in &UNITS[1..] {
            prop_assert!(unit(name, &by(&less)).is_some() || unit(name, &by(&one)).is_none());
        }
        let words = || TargetRequest { command: Some("x".into()), ..TargetRequest::default() };
        prop_assert!(wide(words(), &others, &[Rule::First], &by(&less)) || !wide(words(), &others, &[Rule::First], &by(&one)));
        prop_assert!(!less.has_port(port) || one.has_port(port));
        prop_assert!(less.between_volleys() >= one.between_volleys());
        if one.least_memory_mb.is_some() && other.least_memory_mb.is_some() {
            prop_assert!(less.least_memory(1 << 40) >= one.least_memory(1 << 40));
        }
        // Without any line, nothing more is open.
        prop_assert!(!free(&Open::default()) || free(&one));
    }
}
