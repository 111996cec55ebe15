//! MCP over vsock: for the contexts that are listed, and for nobody else.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr, bind, connect, socket};
use serde_json::json;

use super::abilities::connect_to_self_over_vsock;
use super::{Context, Outcome, TestResult, tests};
use crate::{Daemon, Error, Reason, Result, Wire};

tests![
    a_listed_context_lists_and_calls_tools_over_vsock,
    a_context_that_is_not_listed_is_told_so_and_cut_off,
    a_vsock_port_that_is_taken_is_refused_at_the_start,
];

/// This machine, to itself (vsock(7)).
const LOCAL: u32 = 1;

/// A port above those that only root may have, and no other test's.
fn port() -> u32 {
    5000 + std::process::id() % 50_000
}

/// A daemon that listens on vsock for one context; `None` where there is no loopback to reach it by.
fn daemon(cid: u32) -> Result<std::result::Result<Daemon, Outcome>> {
    if let Err(errno) = connect_to_self_over_vsock() {
        return Ok(Err(Outcome::Skip(Reason::NoVsockLoopback, errno.to_string())));
    }
    let options = [format!("--vsock-port={}", port()), format!("--vsock-cid={cid}")];
    Daemon::start_with(|command| {
        command.args(options);
    })
    .map(Ok)
}

fn connected() -> Result<Wire> {
    Wire::over(dial().map_err(Error::sys("connect to", format!("vsock port {}", port())))?)
}

fn dial() -> nix::Result<OwnedFd> {
    let socket = socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    connect(socket.as_raw_fd(), &VsockAddr::new(LOCAL, port()))?;
    Ok(socket)
}

fn a_listed_context_lists_and_calls_tools_over_vsock(_: &Context) -> TestResult {
    let daemon = match daemon(LOCAL)? {
        Ok(daemon) => daemon,
        Err(skip) => return Ok(skip),
    };
    let mut wire = connected()?;
    assert_eq!(wire.open()?["serverInfo"]["name"], "chaos-daemon");
    let answer = wire.request("tools/list", json!({}))?;
    let tools = answer["result"]["tools"].as_array().ok_or("no tools")?;
    assert!(tools.iter().any(|tool| tool["name"] == "chaos_inject_fault"), "{answer}");
    assert_eq!(wire.call("chaos_status", json!({}))?["active_faults"], json!([]));
    // It can inject, and the log says where from.
    let fault = json!({"fault_type": "resource_exhaustion", "probability": 1.0, "duration_seconds": 10,
        "params": {"cpu_percent": 1, "cores": 1}});
    let mut register = json!({"fault_name": "f", "action": "register"});
    for (field, value) in fault.as_object().into_iter().flatten() {
        register[field] = value.clone();
    }
    wire.call("chaos_inject_fault", register)?;
    let injected = wire.call("chaos_inject_fault", json!({"fault_name": "f", "action": "inject"}))?;
    assert_eq!(injected["was_triggered"], true, "{injected}");
    let removed = wire.call("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?;
    assert_eq!(removed["residue"], json!([]), "{removed}");
    assert!(daemon.log().contains("vsock context 1"), "{}", daemon.log());
    Ok(Outcome::Pass)
}

fn a_context_that_is_not_listed_is_told_so_and_cut_off(_: &Context) -> TestResult {
    let daemon = match daemon(77)? {
        Ok(daemon) => daemon,
        Err(skip) => return Ok(skip),
    };
    let mut wire = connected()?;
    // A client shows no answer but to what it has asked.
    let answer = wire.request("initialize", json!({}))?;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("vsock context 1 is not allowed"), "{answer}");
    assert_eq!(wire.answer()?, None, "the connection stays open");
    assert!(daemon.log().contains("not on the list"), "{}", daemon.log());
    // The others are served as before.
    assert!(daemon.mcp()?.tools()?.contains(&"chaos_status".to_owned()));
    Ok(Outcome::Pass)
}

fn a_vsock_port_that_is_taken_is_refused_at_the_start(_: &Context) -> TestResult {
    let taken = socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let taken = match taken {
        Ok(taken) => taken,
        Err(errno) => return Ok(Outcome::Skip(Reason::NoVsockLoopback, errno.to_string())),
    };
    // At any context, for which no transport is needed.
    bind(taken.as_raw_fd(), &VsockAddr::new(u32::MAX, port()))?;
    let options = [format!("--vsock-port={}", port()), "--vsock-cid=1".to_owned()];
    let started = Daemon::start_with(|command| {
        command.args(options);
    });
    let Err(error) = started else { return Err("started without its vsock".into()) };
    let text = error.to_string();
    assert!(text.contains("exit status: 1"), "{text}");
    assert!(text.contains(&format!("listen on vsock port {}: Address already in use", port())), "{text}");
    Ok(Outcome::Pass)
}
