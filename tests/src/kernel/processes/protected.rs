//! Who is protected by a rule, and is called like anybody: real processes, of root and of another user.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::libc;
use nix::pty::openpty;
use nix::unistd::setsid;

use super::*;
use crate::Pair;
use crate::cgroup::Cgroup;
use crate::daemon::{NOBODY, policy_file, run_as_nobody};
use crate::kernel::oracle::Fake;
use crate::netns::NetNs;
use crate::pair::INTERFACE;
use crate::process::{Killed, Process, wait_for};

tests![
    roots_process_in_no_unit_is_refused_to_a_user_and_not_to_root,
    who_listens_where_operators_come_in_is_refused_to_everybody,
    who_is_at_the_terminal_of_another_is_refused_to_root_too,
    what_the_table_names_is_refused_until_the_policy_opens_it,
    an_expression_that_means_the_whole_host_is_refused_and_so_are_hasty_volleys,
    a_load_of_a_database_is_refused_until_the_policy_opens_it,
    a_load_of_a_database_is_refused_by_whatever_path_its_unix_socket_is_named,
    what_cuts_everybody_off_is_refused_on_the_default_route_and_the_loopback_unless_it_is_narrowed,
    system_folders_low_ports_and_small_reserves_are_refused_with_the_line_that_opens_them,
];

/// A port of remote desktops.
const DESKTOP: u16 = 3389;

/// A process that does nothing, in a session of its own.
fn sleeper(configure: impl FnOnce(&mut Command)) -> Result<Killed> {
    let mut command = Command::new("sleep");
    command.arg("3600").stdin(Stdio::null());
    // SAFETY: between fork and exec only setsid(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| setsid().map(drop).map_err(Into::into));
    }
    configure(&mut command);
    let sleeper = command.spawn().map(Killed).map_err(Error::io("start", "sleep"))?;
    let pid = sleeper.0.id().cast_signed();
    wait_for("start of sleep", || Process::read(pid).is_some_and(|it| it.arguments.len() == 2))?;
    Ok(sleeper)
}

/// What a user without rights is told who has a signal sent to a process that takes no notice of it.
fn sent_by_nobody(daemon: &Daemon, target: &[&str]) -> Result<(bool, String)> {
    let socket = format!("--socket={}", daemon.socket().display());
    let kill = ["inject", "process_kill", "--signal=SIGCONT", "--name=n", "--for=1s"];
    let output = run_as_nobody("chaosctl", &[&[&*socket], &kill[..], target].concat())?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn roots_process_in_no_unit_is_refused_to_a_user_and_not_to_root(_: &Context) -> TestResult {
    // Of no unit, also where the test is in one.
    let group = Cgroup::new()?;
    let roots = sleeper(|_| {})?;
    let own = sleeper(|command| {
        command.uid(NOBODY).gid(NOBODY);
    })?;
    group.set("cgroup.procs", &roots.0.id().to_string())?;
    let open = |rule: &str| -> Result<Daemon> {
        let policy = policy_file(rule)?;
        Daemon::start_with(|command| {
            command.args(["--socket-group", "nogroup", "--policy"]).arg(policy.path());
        })
    };
    let pid = |process: &Killed| format!("--pid={}", process.0.id());
    {
        let daemon = open("")?;
        let roots_path = std::fs::read_link(format!("/proc/{}/exe", roots.0.id()))?;
        let exe = format!("--exe={}", roots_path.display());
        for target in [&[&*pid(&roots)][..], &[&*pid(&roots), "--command=sleep"], &[&*exe, &*pid(&roots)]] {
            let (sent, words) = sent_by_nobody(&daemon, target)?;
            assert!(!sent && words.contains("it is in no unit, and not the caller's"), "{target:?}: {words}");
            assert!(words.contains("`programs = [\"sleep\"]` in the table `[open]`"), "{words}");
        }
        let (sent, words) = sent_by_nobody(&daemon, &[&*pid(&own)])?;
        assert!(sent, "one's own: {words}");
        daemon.mcp()?.call_tool("chaos_stop", json!({}))?.ok()?;
        let fault =
            Fault::new("process_kill").aimed(json!({"pid": roots.0.id()})).with(json!({"signal": "SIGCONT"}));
        fault.inject(&daemon.mcp()?)?;
        fault.remove(&daemon.mcp()?)?;
    }
    let (sent, words) = sent_by_nobody(&open("[open]\nprograms = [\"sleep\"]\n")?, &[&*pid(&roots)])?;
    assert!(sent, "opened: {words}");
    Ok(Outcome::Pass)
}

fn who_listens_where_operators_come_in_is_refused_to_everybody(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let bind = |port| namespace.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)));
    let listening = |port| -> Result<Killed> {
        let socket = bind(port).map_err(Error::io("bind", "a port"))?;
        sleeper(|command| {
            command.stdin(Stdio::from(OwnedFd::from(socket)));
        })
    };
    let (door, shop) = (listening(DESKTOP)?, listening(8080)?);
    let daemon = Daemon::start_with(|command| namespace.place(command))?;
    let mcp = daemon.mcp()?;
    for kind in ["process_kill", "process_pause"] {
        let (code, words) = refused(&mcp, kind, &json!({"pid": door.0.id()}), &json!({}))?;
        assert!(code == "TARGET_PROTECTED" && words.contains("listens where operators come in"), "{words}");
    }
    let free = json!({"fault_name": "p", "fault_type": "process_kill", "target": {"pid": shop.0.id()}});
    mcp.call_tool("chaos_plan", free)?.ok()?;
    Ok(Outcome::Pass)
}

fn who_is_at_the_terminal_of_another_is_refused_to_root_too(_: &Context) -> TestResult {
    let terminal = openpty(None, None).map_err(Error::sys("open", "a terminal"))?;
    let at_terminal = sleeper(|command| {
        command.uid(NOBODY).gid(NOBODY).stdin(Stdio::from(terminal.slave));
        // SAFETY: between fork and exec only ioctl(2) is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
    })?;
    let daemon = Daemon::start_under("[open]\nprograms = [\"sleep\"]\n")?;
    let mcp = daemon.mcp()?;
    for kind in ["process_kill", "process_pause"] {
        let (code, words) = refused(&mcp, kind, &json!({"pid": at_terminal.0.id()}), &json!({}))?;
        assert!(code == "TARGET_PROTECTED" && words.contains("has it at a terminal"), "{words}");
        assert!(words.contains("nothing opens it"), "{words}");
    }
    Ok(Outcome::Pass)
}

fn what_the_table_names_is_refused_until_the_policy_opens_it(_: &Context) -> TestResult {
    let group = Cgroup::new()?;
    let runtime = Fake::start_as("containerd", "sleep", &["600"], Stdio::null())?;
    group.set("cgroup.procs", &runtime.pid().to_string())?;
    let target = json!({"pid": runtime.pid()});
    {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        for target in [&target, &json!({"cgroup": group.name()})] {
            let (code, words) = refused(&mcp, "process_kill", target, &json!({}))?;
            assert!(code == "TARGET_PROTECTED" && words.contains("`programs = [\"containerd\"]`"), "{words}");
        }
    }
    let daemon = Daemon::start_under("[open]\nprograms = [\"containerd\"]\n")?;
    let fault = Fault::new("process_kill").aimed(target);
    fault.inject(&daemon.mcp()?)?;
    assert!(wait_until(HANG, || !runtime.runs()));
    Ok(Outcome::Pass)
}

fn an_expression_that_means_the_whole_host_is_refused_and_so_are_hasty_volleys(_: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(0, "plain")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let often = json!({"times": 5, "interval_seconds": 1, "jitter_ms": 100});
    for (target, params, code, line) in [
        (json!({"command": "."}), json!({}), "TARGET_PROTECTED", "`host_wide_selectors = true`"),
        (
            json!({"command": ".", "share": 0.01}),
            json!({}),
            "TARGET_PROTECTED",
            "`host_wide_selectors = true`",
        ),
        (
            json!({"command": "plain$"}),
            json!({"times": 2}),
            "TARGET_PROTECTED",
            "`host_wide_selectors = true`",
        ),
        (json!({"exe": program.path()}), often, "POLICY_DENIED", "`least_interval_ms = 900`"),
    ] {
        let (found, words) = refused(&mcp, "process_kill", &target, &params)?;
        assert!(found == code && words.contains(line), "{target} {params}: {found} {words}");
    }
    assert!(worker.runs());
    Ok(Outcome::Pass)
}

fn a_load_of_a_database_is_refused_until_the_policy_opens_it(_: &Context) -> TestResult {
    let namespace = NetNs::new()?;
    let serving = |name: &str, port: u16| -> Result<Fake> {
        let socket = namespace.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        let socket = socket.map_err(Error::io("bind", "a port"))?;
        Fake::start_as(name, "sleep", &["600"], Stdio::from(OwnedFd::from(socket)))
    };
    namespace.ip(&["link", "set", "lo", "up"])?;
    let (_database, _shop) = (serving("postgres", 5432)?, serving("shop", 8080)?);
    let load = |port: u16| json!({"url": format!("tcp://127.0.0.1:{port}"), "sessions": 1});
    let target = json!({"netns": namespace.name()});
    let plan = |daemon: &Daemon, port: u16| refused(&daemon.mcp()?, "connection_load", &target, &load(port));
    {
        let daemon = Daemon::start()?;
        let (code, words) = plan(&daemon, 5432)?;
        assert!(
            code == "TARGET_PROTECTED" && words.contains("`programs = [\"postgres\"]`"),
            "{code} {words}"
        );
        assert!(plan(&daemon, 8080).is_err(), "of a shop");
    }
    let opened = Daemon::start_under("[open]\nprograms = [\"postgres\"]\n")?;
    assert!(plan(&opened, 5432).is_err(), "opened");
    Ok(Outcome::Pass)
}

fn a_load_of_a_database_is_refused_by_whatever_path_its_unix_socket_is_named(_: &Context) -> TestResult {
    let folder = tempfile::TempDir::new().map_err(Error::io("create", "a folder"))?;
    let path = |name: &str| folder.path().join(name);
    let serving = |program: &str, name: &str| -> Result<Fake> {
        let socket = UnixListener::bind(path(name)).map_err(Error::io("bind", name.to_owned()))?;
        Fake::start_as(program, "sleep", &["600"], Stdio::from(OwnedFd::from(socket)))
    };
    let (_database, _shop) = (serving("mysqld", "database")?, serving("shop", "shop")?);
    std::fs::hard_link(path("database"), path("other"))?;
    let daemon = Daemon::start()?;
    let plan = |name: &str| {
        let load = json!({"url": format!("unix:{}", path(name).display()), "sessions": 1});
        refused(&daemon.mcp()?, "connection_load", &json!({}), &load)
    };
    for name in ["database", "other"] {
        let (code, words) = plan(name)?;
        assert!(code == "TARGET_PROTECTED" && words.contains("`programs = [\"mysqld\"]`"), "{code} {words}");
    }
    assert!(plan("shop").is_err(), "of a shop");
    Ok(Outcome::Pass)
}

fn what_cuts_everybody_off_is_refused_on_the_default_route_and_the_loopback_unless_it_is_narrowed(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    pair.near.ip(&["link", "set", "lo", "up"])?;
    pair.near.ip(&["route", "add", "default", "via", "10.77.0.2"])?;
    let start = |rules: &str| -> Result<Daemon> {
        let policy = policy_file(rules)?;
        Daemon::start_with(|command| {
            pair.near.place(command);
            command.arg("--policy").arg(policy.path());
        })
    };
    let on = |interface: &str, more: &Value| {
        let mut target = more.clone();
        target["interface"] = json!(interface);
        target
    };
    let cuts = [
        ("network_partition", json!({})),
        ("timeout", json!({})),
        ("error", json!({})),
        ("dns_error", json!({"answer": "nxdomain"})),
    ];
    {
        let daemon = start("")?;
        let mcp = daemon.mcp()?;
        for (kind, params) in &cuts {
            for device in [INTERFACE, "lo"] {
                let (code, words) = refused(&mcp, kind, &on(device, &json!({})), params)?;
                let line = format!("`critical_interfaces = [\"{device}\"]`");
                assert!(
                    code == "TARGET_PROTECTED" && words.contains(&line),
                    "{kind} {device}: {code} {words}"
                );
                let narrow = on(device, &json!({"cidr": "10.77.0.9"}));
                assert!(refused(&mcp, kind, &narrow, params).is_err(), "{kind} {device}, narrowed");
            }
        }
        // Another network namespace is not this host's.
        let elsewhere = on(INTERFACE, &json!({"netns": pair.far.name()}));
        assert!(refused(&mcp, "timeout", &elsewhere, &json!({})).is_err(), "in another namespace");
    }
    let opened = start(&format!("critical_interfaces = [\"{INTERFACE}\", \"lo\"]\n"))?;
    for device in [INTERFACE, "lo"] {
        let plan = refused(&opened.mcp()?, "timeout", &on(device, &json!({})), &json!({}));
        assert!(plan.is_err(), "{device}, opened");
    }
    Ok(Outcome::Pass)
}

fn system_folders_low_ports_and_small_reserves_are_refused_with_the_line_that_opens_them(
    _: &Context,
) -> TestResult {
    let exhausts = "resource_exhaustion";
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fill = |path: &str| json!({"resource": "disk_fill", "path": path, "megabytes": 1});
    let port = |port: u16, protocol: &str| json!({"local_port": port, "protocol": protocol});
    for (kind, target, params, code, line) in [
        (exhausts, json!({}), fill("/"), "TARGET_PROTECTED", "`file_systems = [\"/\"]`"),
        (exhausts, json!({}), fill("/etc"), "TARGET_PROTECTED", "`file_systems = [\"/etc\"]`"),
        (
            exhausts,
            json!({}),
            json!({"resource": "inodes", "path": "/", "count": 1}),
            "TARGET_PROTECTED",
            "`file_systems",
        ),
        (
            exhausts,
            json!({}),
            json!({"resource": "memory", "memory_mb": 1, "reserve_mb": 64}),
            "POLICY_DENIED",
            "`least_memory_mb = 64`",
        ),
        (
            exhausts,
            json!({}),
            json!({"resource": "file_descriptors", "count": 1, "leave_free": 256}),
            "POLICY_DENIED",
            "`least_files = 256`",
        ),
        ("port_in_use", port(80, "tcp"), json!({}), "TARGET_PROTECTED", "`ports = [80]`"),
        ("port_in_use", port(123, "udp"), json!({}), "TARGET_PROTECTED", "`ports = [123]`"),
        ("port_in_use", port(6443, "tcp"), json!({}), "TARGET_PROTECTED", "`ports = [6443]`"),
    ] {
        let (found, words) = refused(&mcp, kind, &target, &params)?;
        assert!(found == code && words.contains(line), "{kind} {target} {params}: {found} {words}");
    }
    let opened = Daemon::start_under("[open]\nports = [123]\nleast_memory_mb = 64\n")?;
    let mcp = opened.mcp()?;
    assert!(refused(&mcp, "port_in_use", &port(123, "udp"), &json!({})).is_err(), "a port that is opened");
    let memory = json!({"resource": "memory", "memory_mb": 1, "reserve_mb": 64});
    assert!(refused(&mcp, exhausts, &json!({}), &memory).is_err(), "a floor that is lowered");
    Ok(Outcome::Pass)
}
