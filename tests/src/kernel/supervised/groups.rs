//! A pause, a limit and what is used up in a cgroup may be aimed at a process or a container that has one of its own.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Context, Outcome, TestResult, tests};
use super::stage::cannot_fork;
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::late::HANG;
use crate::process::wait_until;
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, Reason};

tests![
    a_pause_of_a_process_or_a_container_is_of_its_cgroup_alone,
    a_limit_of_a_process_is_of_its_cgroup_alone,
    processor_time_is_used_up_in_the_cgroup_of_a_container,
    a_process_whose_cgroup_others_share_is_refused_by_their_name,
];

const SILENCE: Duration = Duration::from_millis(500);

fn answers(victim: &mut Victim, limit: Duration) -> crate::Result<bool> {
    Ok(victim.ask("true", limit)?.is_some())
}

fn a_pause_of_a_process_or_a_container_is_of_its_cgroup_alone(_: &Context) -> TestResult {
    let ((container, id), daemon) = (Cgroup::of_container()?, Daemon::start()?);
    let mut victims = [Victim::new(&[])?, Victim::new(&[])?, Victim::new(&[])?];
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    container.set("cgroup.procs", &victims[1].pid().to_string())?;
    for (number, target) in
        [json!({"pid": victims[0].pid()}), json!({"container": &id[..40]})].into_iter().enumerate()
    {
        let fault = Fault::new("pause").aimed(target.clone());
        fault.inject(&mcp)?;
        for (other, victim) in victims.iter_mut().enumerate() {
            let limit = if other == number { SILENCE } else { HANG };
            assert_eq!(answers(victim, limit)?, other != number, "victim {other} under {target}");
        }
        fault.remove(&mcp)?;
        assert!(answers(&mut victims[number], HANG)?, "after {target}");
    }
    Ok(Outcome::Pass)
}

fn a_limit_of_a_process_is_of_its_cgroup_alone(_: &Context) -> TestResult {
    if !has_controllers(&["pids"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "pids is not there".into()));
    }
    let (mut victim, mut other, daemon) =
        (Victim::new(&["pids"])?, Victim::new(&["pids"])?, Daemon::start()?);
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let fault = Fault::new("resource_exhaustion").aimed(json!({"pid": victim.pid()}));
    let fault = fault.with(json!({"resource": "pids_limit", "pids": 1}));
    assert!(!cannot_fork(&mut victim)?, "before");
    fault.inject(&mcp)?;
    assert!(cannot_fork(&mut victim)? && !cannot_fork(&mut other)?, "{}", fault.status(&mcp)?);
    fault.remove(&mcp)?;
    assert!(!cannot_fork(&mut victim)?, "after");
    Ok(Outcome::Pass)
}

fn processor_time_is_used_up_in_the_cgroup_of_a_container(_: &Context) -> TestResult {
    let ((container, id), daemon) = (Cgroup::of_container()?, Daemon::start()?);
    let victim = Victim::new(&[])?;
    let mcp = daemon.mcp()?;
    container.set("cgroup.procs", &victim.pid().to_string())?;
    let used = || -> crate::Result<u64> {
        let text = container.get("cpu.stat")?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
        used.ok_or_else(|| Error::Different(format!("no usage_usec: {text}")))
    };
    let fault = Fault::new("resource_exhaustion").aimed(json!({"container": &id[..40]}));
    let fault = fault.with(json!({"resource": "cpu", "cores": 1, "cpu_percent": 20}));
    let before = used()?;
    fault.inject(&mcp)?;
    let burns = wait_until(HANG, || used().is_ok_and(|now| now > before + 100_000));
    assert!(burns, "{} µs used there; {}", used()? - before, fault.status(&mcp)?);
    fault.remove(&mcp)?;
    let after = used()?;
    std::thread::sleep(SILENCE);
    assert!(used()? < after + 20_000, "{} µs are used there after it", used()? - after);
    Ok(Outcome::Pass)
}

fn a_process_whose_cgroup_others_share_is_refused_by_their_name(_: &Context) -> TestResult {
    let (mut victim, neighbour, daemon) = (Victim::new(&[])?, Victim::new(&[])?, Daemon::start()?);
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    victim.write("cgroup.procs", &neighbour.pid().to_string())?;
    let target = json!({"pid": victim.pid()});
    let words = format!("process {} (", neighbour.pid());
    let refused = |kind: &'static str, params: Value, target: &Value, words: &str| {
        let answer = Fault::new(kind).aimed(target.clone()).with(params).inject(&mcp);
        let named = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words));
        assert!(named, "{kind} of {target}: expected {words}, got {answer:?}");
    };
    refused("pause", json!({}), &target, &words);
    for resource in [json!({"resource": "cpu"}), json!({"resource": "pids", "count": 1})] {
        refused("resource_exhaustion", resource, &target, &words);
    }
    refused("pause", json!({}), &json!({"pid": 1}), "TARGET_PROTECTED");
    refused("pause", json!({}), &json!({"pid": victim.pid(), "share": "50%"}), "target.share");
    assert!(answers(&mut victim, HANG)? && victim.read("cgroup.freeze")? == "0");
    Ok(Outcome::Pass)
}
