//! What callers talk to, and what talks to the world, can do nothing else: neither as it is nor if its code were taken over.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use crate::Daemon;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::sandbox::{Around, Role, prove, prove_architecture};

tests![
    the_server_is_refused_all_that_its_reference_unit_forbids,
    the_prober_is_refused_all_but_connections_and_names,
    the_server_has_a_network_namespace_in_which_there_is_nothing,
    a_probe_by_name_works_from_within_the_sandbox,
    a_prober_that_dies_is_replaced_alone_and_ends_no_fault,
    every_process_of_the_daemon_has_given_up_more_rights_and_inherited_nothing,
];

fn children(daemon: &Daemon) -> Result<(Process, Process), Box<dyn std::error::Error>> {
    // Answered: both have entered their sandboxes before the server says its first word.
    daemon.mcp()?.call_tool("chaos_status", json!({}))?.ok()?;
    Ok((daemon.server().ok_or("no server")?, daemon.prober().ok_or("no prober")?))
}

fn the_server_is_refused_all_that_its_reference_unit_forbids(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let (server, _) = children(&daemon)?;
    let refused = prove(&server, Role::Server, Around::Nothing)?;
    println!("{refused} tries refused");
    // It was not harmed, and goes on, until it makes a call that no program of this architecture makes.
    assert!(server.runs());
    daemon.mcp()?.call_tool("chaos_status", json!({}))?.ok()?;
    println!("a call of i386 ends it: {}", prove_architecture(&server)?);
    assert!(wait_until(HANG, || daemon.mcp().is_ok() && !server.runs()), "{}", daemon.log());
    Ok(Outcome::Pass)
}

fn the_prober_is_refused_all_but_connections_and_names(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let (_, prober) = children(&daemon)?;
    println!("{} tries refused", prove(&prober, Role::Prober, Around::Nothing)?);
    assert!(prober.runs());
    Ok(Outcome::Pass)
}

/// What a kernel with tunnels puts into every new namespace (Linux `Documentation/admin-guide/sysctl/net.rst`,
/// `fb_tunnels_only_for_init_net`).
const FALLBACK_TUNNELS: [&str; 9] =
    ["tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"];

fn the_server_has_a_network_namespace_in_which_there_is_nothing(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let (server, prober) = children(&daemon)?;
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/net"));
    assert_ne!(namespace(server.pid)?, namespace(daemon.injector_pid())?);
    assert_eq!(namespace(prober.pid)?, namespace(daemon.injector_pid())?);
    // Seen from within: the file shows the reader's own namespace, and the server may not read it.
    let devices = fs::read_to_string(format!("/proc/{}/net/dev", server.pid))?;
    let names: Vec<_> =
        devices.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect();
    let foreign: Vec<_> =
        names.iter().filter(|name| **name != "lo" && !FALLBACK_TUNNELS.contains(name)).collect();
    assert!(names.contains(&"lo") && foreign.is_empty(), "{names:?}");
    let routes = fs::read_to_string(format!("/proc/{}/net/route", server.pid))?;
    // The heading, at most.
    assert!(routes.lines().count() <= 1, "{routes}");
    Ok(Outcome::Pass)
}

fn a_probe_by_name_works_from_within_the_sandbox(_: &Context) -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2).flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let probe = json!({"type": "probe", "name": "answers", "tolerance": 200,
        "provider": {"type": "http", "url": format!("http://localhost:{port}/"), "timeout": 3}});
    let action = json!({"type": "action", "name": "burn", "provider": {"type": "process", "path": "chaosctl",
        "arguments": {"inject": "resource_exhaustion", "--cpu-percent": 5, "--for": "300ms"}}});
    let document = json!({"title": "named", "description": "a probe by name", "method": [action], "rollbacks": [],
        "steady-state-hypothesis": {"title": "up", "probes": [probe]}});
    mcp.call_tool("chaos_register_experiment", document)?.ok()?;
    let result = mcp.call_tool("chaos_run_experiment", json!({"experiment_name": "named"}))?.ok()?;
    assert_eq!(result["success"], json!(true), "{result}");
    Ok(Outcome::Pass)
}

fn a_prober_that_dies_is_replaced_alone_and_ends_no_fault(_: &Context) -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = Fault::new("resource_exhaustion").with(json!({"cpu_percent": 1, "cores": 1}));
    fault.inject(&mcp)?;
    let answers = || -> Result<bool, Box<dyn std::error::Error>> {
        let words = json!({"arguments": ["tcp", address]});
        Ok(mcp.call_tool("chaos_probe", words)?.ok()?["ok"] == true)
    };
    // Again and again, since the second must be handed over as the first was.
    for _ in 0..3 {
        assert!(answers()?);
        let (server, prober) = children(&daemon)?;
        prober.signal(Signal::SIGKILL);
        let replaced = || daemon.prober().is_some_and(|now| now.pid != prober.pid);
        assert!(wait_until(HANG, replaced), "{}", daemon.log());
        assert!(wait_until(HANG, || answers().is_ok_and(|answers| answers)), "{}", daemon.log());
        assert_eq!(daemon.server().map(|now| now.pid), Some(server.pid), "{}", daemon.log());
        assert_eq!(fault.status(&mcp)?["active"], true, "{}", daemon.log());
    }
    fault.remove(&mcp)?;
    Ok(Outcome::Pass)
}

/// A field of `/proc/PID/status`.
fn field(process: &Process, name: &str) -> std::io::Result<String> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid))?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(value.unwrap_or_default().trim().to_owned())
}

fn every_process_of_the_daemon_has_given_up_more_rights_and_inherited_nothing(_: &Context) -> TestResult {
    // What a launcher may leave open by mistake, and what it has in its environment.
    let left = fs::File::open("/dev/null")?;
    let number = nix::fcntl::fcntl(&left, nix::fcntl::FcntlArg::F_DUPFD(251))?;
    let daemon = Daemon::start_with(|command| {
        command.env("SECRET_OF_THE_LAUNCHER", "x");
    });
    let closed = nix::unistd::close(number);
    let daemon = daemon?;
    closed?;
    let (server, prober) = children(&daemon)?;
    let guard = Guard::start(&daemon)?;
    daemon.wait_until_warm()?;
    let mut problems = Vec::new();
    for process in daemon.processes().into_iter().chain(Process::read(guard.pid())) {
        let name = fs::read_to_string(format!("/proc/{}/comm", process.pid))?;
        let mut differs = |what: String| problems.push(format!("{}: {what}", name.trim()));
        for (status, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
            let is = field(&process, status)?;
            if is != wanted {
                differs(format!("{status} is {is}"));
            }
        }
        if fs::read_link(format!("/proc/{}/fd/{number}", process.pid)).is_ok() {
            differs(format!("descriptor {number} of the launcher is open"));
        }
        // The injector has its own environment, and gives its children none of it that they do not need.
        let environment = fs::read(format!("/proc/{}/environ", process.pid))?;
        if process.pid != daemon.injector_pid() && String::from_utf8_lossy(&environment).contains("SECRET_OF")
        {
            differs("it has the launcher's environment".to_owned());
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let users = [field(&server, "Uid")?, field(&prober, "Uid")?];
    assert!(users[0] != users[1] && users.iter().all(|user| !user.contains("65534")), "{users:?}");
    Ok(Outcome::Pass)
}
