//! Faults that name no interface: the kernel's routes say which one it is, and no other is touched.

use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::cgroup::Cgroup;
use crate::daemon::policy_file;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt};
use crate::pair::INTERFACE;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_fault_without_an_interface_is_on_the_one_by_which_packets_to_its_peers_leave,
    what_has_no_way_or_several_is_refused_with_what_to_name,
    an_interface_by_the_route_is_allowed_and_protected_as_one_that_is_named,
];

const PATIENCE: std::time::Duration = std::time::Duration::from_millis(300);

/// A pair whose near side has a second interface, to 10.99.0.0/24 and fd99::/64.
fn with_another_way() -> Result<Pair> {
    let pair = Pair::new()?;
    pair.near.ip_batch(
        "link add eth1 type veth peer name eth1p\n\
         address add 10.99.0.1/24 dev eth1\n\
         address add fd99::1/64 dev eth1 nodad\n\
         link set eth1p up\n\
         link set eth1 up\n\
         link set lo up\n",
    )?;
    Ok(pair)
}

/// What a fault of these targets would do.
fn planned(mcp: &Mcp, kind: &str, target: Value) -> Result<Value> {
    let arguments = json!({"fault_name": "planned", "fault_type": kind, "target": target});
    mcp.call_tool("chaos_plan", arguments)?.ok()
}

/// The code and the words of a refusal to plan it.
fn refused(mcp: &Mcp, kind: &str, target: Value) -> Result<(String, String)> {
    let arguments = json!({"fault_name": "planned", "fault_type": kind, "target": target});
    let answer = mcp.call_tool("chaos_plan", arguments)?;
    let error = &answer.json["error"];
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    match answer.is_error {
        true => Ok((text("code"), format!("{} {}", text("message"), text("hint")))),
        false => Err(Error::Different(format!("{kind} of {target} is planned: {}", answer.json))),
    }
}

fn a_fault_without_an_interface_is_on_the_one_by_which_packets_to_its_peers_leave(_: &Context) -> TestResult {
    let pair = with_another_way()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let echo_v6 = Echo::start(&pair.far, Pair::FAR_V6, 7)?;
    let answered = |echo: &Echo| udp_rtt(&pair.near, echo.address(), PATIENCE).map(|time| time.is_some());
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let before = Residue::take(&[&pair.near])?;
    let near = pair.near.name();
    for (peer, met, spared) in
        [(json!({"cidr": "10.77.0.2"}), &echo, &echo_v6), (json!({"host": "fd77::2"}), &echo_v6, &echo)]
    {
        assert!(answered(met)? && answered(spared)?, "not normal before {peer}");
        let fault = Fault::new("network_partition").aimed(json!({"netns": near})).narrowed(peer.clone());
        let answer = fault.inject(&mcp)?;
        let words = answer.to_string();
        assert!(words.contains(&format!("on {INTERFACE} in namespace {near}")), "{answer}");
        assert!(words.contains("by the route"), "{answer}");
        assert!(!answered(met)?, "{peer} is not met: {}", daemon.log());
        assert!(answered(spared)?, "a bystander of {peer} is met");
        fault.remove(&mcp)?;
        assert!(answered(met)?, "not normal after {peer}");
    }
    let cgroup = Cgroup::new()?;
    for (kind, more, device) in [
        ("timeout", json!({"cidr": "10.99.0.9"}), "eth1"),
        ("error", json!({"cidrs": ["10.99.0.0/24", "fd99::/64"]}), "eth1"),
        ("error", json!({"cidr": "10.77.0.2", "cgroup": cgroup.name(), "direction": "egress"}), INTERFACE),
        ("timeout", json!({"cidr": "127.0.0.1"}), "lo"),
    ] {
        let mut target = more.clone();
        target["netns"] = json!(near);
        let plan = planned(&mcp, kind, target)?;
        assert!(plan.to_string().contains(&format!("on {device} in namespace")), "{kind} {more}: {plan}");
    }
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn what_has_no_way_or_several_is_refused_with_what_to_name(_: &Context) -> TestResult {
    let pair = with_another_way()?;
    pair.near.ip(&["route", "add", "unreachable", "10.98.0.0/24"])?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let near = pair.near.name();
    let several = format!("{INTERFACE} (to 10.77.0.");
    let of_service = json!({"netns": near, "cgroup": Cgroup::new()?.name(), "direction": "egress"});
    for (kind, target, code, words) in [
        (
            "timeout",
            json!({"netns": near, "cidrs": ["10.77.0.2", "10.99.0.2"]}),
            "INVALID_PARAMETER",
            &*several,
        ),
        (
            "timeout",
            json!({"netns": near, "cidrs": ["10.77.0.1", "10.77.0.0/24"]}),
            "INVALID_PARAMETER",
            "lo (to 10.77.0.1)",
        ),
        ("timeout", json!({"netns": near, "cidr": "10.0.0.0/8"}), "INVALID_PARAMETER", "eth1 (to 10.99.0."),
        ("timeout", json!({"netns": near, "cidr": "10.98.0.7"}), "TARGET_NOT_FOUND", "such as 10.98.0.7"),
        ("timeout", json!({"netns": near, "cidr": "192.0.2.7"}), "TARGET_NOT_FOUND", "no route leads"),
        ("error", of_service, "TARGET_NOT_FOUND", "no route leads"),
        (
            "timeout",
            json!({"netns": near, "interface": "eth7"}),
            "TARGET_NOT_FOUND",
            "there are eth0, eth1, eth1p, lo",
        ),
        ("timeout", json!({"netns": near, "port": 80}), "MISSING_PARAMETER", "by whose route it is found"),
    ] {
        let (found, text) = refused(&mcp, kind, target.clone())?;
        assert!(found == code && text.contains(words), "{kind} {target}: {found} {text}");
    }
    Ok(Outcome::Pass)
}

fn an_interface_by_the_route_is_allowed_and_protected_as_one_that_is_named(_: &Context) -> TestResult {
    let pair = with_another_way()?;
    pair.near.ip(&["route", "add", "default", "via", "10.77.0.2"])?;
    let start = |rules: &str| -> Result<Daemon> {
        let policy = policy_file(rules)?;
        Daemon::start_with(|command| {
            pair.near.place(command);
            command.arg("--policy").arg(policy.path());
        })
    };
    let everybody = json!({"cidr": "0.0.0.0/1", "direction": "egress"});
    {
        let daemon = start("interfaces = [\"eth1\"]\n")?;
        let mcp = daemon.mcp()?;
        let (code, words) = refused(&mcp, "timeout", json!({"cidr": "10.77.0.2"}))?;
        assert!(code == "POLICY_DENIED" && words.contains(INTERFACE), "{code} {words}");
        assert!(planned(&mcp, "timeout", json!({"cidr": "10.99.0.2"})).is_ok(), "the one that is allowed");
        // What is refused when it is planned is refused when it is injected.
        let fault = Fault::new("timeout").aimed(json!({"cidr": "10.77.0.2"}));
        assert!(fault.inject(&mcp).is_err(), "injected");
    }
    pair.near.ip(&["link", "set", "eth1", "down"])?;
    let daemon = start("")?;
    let mcp = daemon.mcp()?;
    let (code, words) = refused(&mcp, "timeout", everybody)?;
    assert!(code == "TARGET_PROTECTED" && words.contains("critical_interfaces"), "{code} {words}");
    assert!(planned(&mcp, "timeout", json!({"cidr": "198.51.100.7"})).is_ok(), "one of them");
    Ok(Outcome::Pass)
}
