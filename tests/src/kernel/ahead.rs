//! Programs of others at the hooks that faults use: a program that lets packets pass keeps them from all behind it.

use std::os::fd::{AsFd, OwnedFd};

use serde_json::json;

use super::oracle::packets::filter_at;
use super::{Attach, Context, Outcome, TestResult, tests};
use crate::bpf::{TCX_EGRESS, TCX_INGRESS, attach, load_passing, tcx_programs};
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt};
use crate::netns::NetNs;
use crate::pair::INTERFACE;
use crate::{Daemon, Pair, Reason, Residue, Result};

tests![
    a_fault_acts_ahead_of_programs_that_let_packets_pass_and_behind_faults_that_were_there,
    filters_of_others_that_run_before_a_fault_are_named_by_plan_injection_and_status,
    delays_that_are_injected_at_once_add_up,
];

const PATIENCE: std::time::Duration = std::time::Duration::from_millis(300);

fn index_of(namespace: &NetNs) -> Result<u32> {
    let index = namespace.run(|| nix::net::if_::if_nametoindex(INTERFACE));
    index.map_err(crate::Error::sys("find the index of", INTERFACE))
}

/// What is on a hook, in order.
fn on_hook(namespace: &NetNs, index: u32, hook: u32) -> Result<Vec<u32>> {
    namespace.run(|| tcx_programs(index, hook)).map_err(crate::Error::io("query the programs of", INTERFACE))
}

fn a_fault_acts_ahead_of_programs_that_let_packets_pass_and_behind_faults_that_were_there(
    context: &Context,
) -> TestResult {
    if context.kernel < (6, 6) {
        return Ok(Outcome::Skip(Reason::NoTcx, "the programs of others are attached by it".into()));
    }
    let pair = Pair::new()?;
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let index = index_of(&pair.near)?;
    // As the network plug-in of a container host does it.
    let passing = load_passing("cni")?;
    let hooks = [TCX_INGRESS, TCX_EGRESS];
    let links: Result<Vec<OwnedFd>> =
        hooks.iter().map(|hook| pair.near.run(|| attach(passing.as_fd(), index, *hook))).collect();
    let links = links?;
    let theirs = on_hook(&pair.near, index, TCX_EGRESS)?;
    let answered = || udp_rtt(&pair.near, echo.address(), PATIENCE).map(|time| time.is_some());
    assert!(answered()?, "not normal before");
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let before = Residue::take(&[&pair.near])?;
    let first = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}));
    let second = Fault::new("network_partition").named("second").on(&pair.near, json!({"cidr": "fd77::2"}));
    first.inject(&mcp)?;
    assert!(!answered()?, "the fault meets nothing; {}", daemon.log());
    let mut order = on_hook(&pair.near, index, TCX_EGRESS)?;
    second.inject(&mcp)?;
    // Whoever was before the others still is, and the new one is between the fault that was there and them.
    let both = on_hook(&pair.near, index, TCX_EGRESS)?;
    order.insert(1, *both.get(1).ok_or("no second program")?);
    assert_eq!((both.len(), &both, &both[2..]), (3, &order, &theirs[..]));
    first.remove(&mcp)?;
    assert!(answered()?, "the second fault is of others");
    second.remove(&mcp)?;
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    drop(links);
    Ok(Outcome::Pass)
}

fn filters_of_others_that_run_before_a_fault_are_named_by_plan_injection_and_status(
    _: &Context,
) -> TestResult {
    let pair = Pair::new()?;
    filter_at(&pair.near, load_passing("cni")?.as_fd(), "cni", 1)?;
    let daemon = Daemon::start_with(|command| Attach::Clsact.configure(command))?;
    let mcp = daemon.mcp()?;
    let named = "bpf filter \"cni\" (preference 1, egress)";
    let fault = Fault::new("network_partition").on(&pair.near, json!({"direction": "egress"}));
    let target = json!({"netns": pair.near.name(), "interface": INTERFACE, "direction": "egress"});
    let plan = json!({"fault_name": "planned", "fault_type": "network_partition", "target": target});
    let planned = mcp.call_tool("chaos_plan", plan)?.ok()?;
    assert!(planned["warnings"].to_string().contains("preference 1, egress"), "{planned}");
    let answer = fault.inject(&mcp)?;
    assert!(answer["note"].as_str().is_some_and(|note| note.contains(named)), "{answer}");
    let status = fault.status(&mcp)?;
    assert!(status["note"].as_str().is_some_and(|note| note.contains(named)), "{status}");
    fault.remove(&mcp)?;
    // Of the other direction there is nothing to say.
    let inward = Fault::new("network_partition").on(&pair.near, json!({"direction": "ingress"}));
    let answer = inward.inject(&mcp)?;
    assert_eq!(answer["note"], serde_json::Value::Null, "{answer}");
    inward.remove(&mcp)?;
    Ok(Outcome::Pass)
}

/// The first needs a holder of its own, and the second finds one that waits: it would be attached sooner.
fn delays_that_are_injected_at_once_add_up(context: &Context) -> TestResult {
    super::with_netem(context, || {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start()?;
        let faults: Vec<_> = (0..3)
            .map(|number| {
                let fault = Fault::new("latency").named(&format!("late-{number}"));
                fault.on(&pair.near, json!({"direction": "egress"})).with(json!({"delay_ms": 20}))
            })
            .collect();
        for round in 0..4 {
            std::thread::scope(|scope| {
                let all: Vec<_> =
                    faults.iter().map(|fault| scope.spawn(|| fault.inject(&daemon.mcp()?))).collect();
                all.into_iter().try_for_each(|one| match one.join() {
                    Ok(injected) => injected.map(drop),
                    Err(panic) => std::panic::resume_unwind(panic),
                })
            })?;
            let took = udp_rtt(&pair.near, echo.address(), HANG)?;
            let took = took.ok_or_else(|| format!("round {round}: packets go round; {}", daemon.log()))?;
            assert!(took.as_millis() >= 60, "round {round}: {took:?}");
            let mcp = daemon.mcp()?;
            faults.iter().try_for_each(|fault| fault.remove(&mcp).map(drop))?;
        }
        Ok(Outcome::Pass)
    })
}
