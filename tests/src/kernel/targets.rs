//! What can be aimed at, listed for root and for a user without rights.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::daemon::run_as_nobody;
use crate::pair::INTERFACE;
use crate::{Daemon, Pair};

tests![
    interfaces_namespaces_ports_and_groups_are_listed_for_root_and_found_by_a_text,
    a_user_without_rights_is_told_neither_whose_ports_of_others_are_nor_namespaces_that_are_closed,
];

fn has(list: &Value, is_it: impl Fn(&Value) -> bool) -> bool {
    list.as_array().is_some_and(|entries| entries.iter().any(is_it))
}

fn interfaces_namespaces_ports_and_groups_are_listed_for_root_and_found_by_a_text(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let all = mcp.call_tool("chaos_targets", json!({"limit": 500}))?.ok()?;
    let near = pair.near.name();
    assert!(has(&all["netns"], |name| *name == near), "{near} in {}", all["netns"]);
    let is_near = |it: &Value| it["netns"] == near && it["interface"] == INTERFACE;
    let interface = all["interfaces"].as_array().and_then(|all| all.iter().find(|it| is_near(it)));
    let interface = interface.unwrap_or(&Value::Null);
    assert!(has(&interface["addresses"], |address| address == "10.77.0.1/24"), "{interface}");
    assert!(has(&interface["addresses"], |address| address == "fd77::1/64"), "{interface}");
    assert!(has(&interface["routes"], |route| route == "10.77.0.0/24"), "{interface}");
    assert_eq!(interface["up"], true, "{interface}");
    let me = std::process::id();
    assert!(has(&all["ports"], |it| it["port"] == port && it["owner"]["pid"] == me), "{}", all["ports"]);
    // The daemon is protected, wherever it is.
    let is_ours = |it: &Value| has(&it["programs"], |name| name == "chaos-daemon");
    assert!(!has(&all["cgroups"], |it| is_ours(it) && it["protected"].is_null()), "{}", all["cgroups"]);
    let found = mcp.call_tool("chaos_targets", json!({"text": near, "limit": 500}))?.ok()?;
    assert!(has(&found["interfaces"], is_near) && !has(&found["interfaces"], |it| it["interface"] == "sit0"));
    assert!(
        found["interfaces"].as_array().is_some_and(|all| all.iter().all(|it| it["netns"] == near)),
        "{found}"
    );
    assert!(!has(&found["ports"], |_| true), "{found}");
    Ok(Outcome::Pass)
}

fn a_user_without_rights_is_told_neither_whose_ports_of_others_are_nor_namespaces_that_are_closed(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start_with(|command| {
        command.args(["--socket-group", "nogroup"]);
    })?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let socket = format!("--socket={}", daemon.socket().display());
    let output = run_as_nobody("chaosctl", &[&socket, "--json", "targets"])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let told: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {output:?}"))?;
    assert!(!has(&told["netns"], |name| *name == pair.near.name()), "{}", told["netns"]);
    assert!(!has(&told["interfaces"], |it| it["netns"] == pair.near.name()), "{}", told["interfaces"]);
    let is_mine = |it: &Value| it["port"] == port && it["protocol"] == "tcp";
    assert!(has(&told["ports"], |it| is_mine(it) && it["owner"].is_null()), "{}", told["ports"]);
    // For people it is a table.
    let output = run_as_nobody("chaosctl", &[&socket, "targets", "--text", &format!("127.0.0.1:{port}")])?;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("who listens") && table.contains("a process of user 0"), "{table}");
    assert!(output.status.success() && !table.contains("interfaces ("), "{table}");
    Ok(Outcome::Pass)
}
