//! Memory.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, LEASE_ENDS, Taking, evidence, holder};
use crate::fault::Fault;
use crate::process::{Process, wait_until};
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, Reason, Result};

tests![
    memory_is_resident_while_the_fault_lasts_and_free_when_it_ends,
    memory_is_given_back_when_the_lease_runs_out,
    memory_grows_along_its_ramp_and_its_holder_is_the_first_to_be_killed,
    memory_of_a_cgroup_is_a_share_of_its_limit_and_counts_there,
    memory_of_the_reserve_is_refused_and_nothing_is_taken,
];

const MIB: u64 = 1 << 20;
const TAKEN: u64 = 64;

fn fault() -> Fault {
    Fault::new("resource_exhaustion")
        .with(json!({"resource": "memory", "memory_mb": TAKEN, "reserve_mb": 64}))
}

fn resident(holder: Option<&Process>) -> Result<u64> {
    Ok(holder.map_or(0, |holder| holder.status("RssAnon")))
}

fn taking() -> Taking<'static> {
    // Beside what is taken, the holder has a heap and stacks.
    Taking { fault: fault(), used: &resident, asked: TAKEN * MIB, give: 8 * MIB }
}

fn memory_is_resident_while_the_fault_lasts_and_free_when_it_ends(_: &Context) -> TestResult {
    Ok(taking().ends(ENDS)?)
}

fn memory_is_given_back_when_the_lease_runs_out(_: &Context) -> TestResult {
    Ok(taking().ends(LEASE_ENDS)?)
}

fn memory_grows_along_its_ramp_and_its_holder_is_the_first_to_be_killed(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let params = json!({"resource": "memory", "memory_mb": TAKEN, "reserve_mb": 64, "ramp_seconds": 2});
    let fault = fault().with(params);
    let start = Instant::now();
    let answer = fault.inject(&mcp)?;
    assert_eq!(answer["evidence"]["shortfall"], "growing", "{answer}");
    let holder = holder(&daemon)?;
    let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", holder.pid))?;
    assert_eq!(score.trim(), "1000");
    // Wherever on the ramp it is by now, it must not be above.
    for _ in 0..5 {
        let held = holder.status("RssAnon");
        let most =
            (start.elapsed().as_secs_f64() / 2.0 + 0.1).min(1.0) * (TAKEN * MIB) as f64 + (8 * MIB) as f64;
        assert!((held as f64) < most, "{held} bytes after {:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(200));
    }
    let all = || {
        let evidence = evidence(&fault, &mcp);
        evidence.is_ok_and(|now| now["bytes_held"] == TAKEN * MIB && now["shortfall"].is_null())
    };
    assert!(wait_until(Duration::from_secs(3), all), "{}", evidence(&fault, &mcp)?);
    assert!(start.elapsed() > Duration::from_millis(1700), "all of it after {:?}", start.elapsed());
    fault.remove(&mcp)?;
    assert!(!holder.runs());
    Ok(Outcome::Pass)
}

fn memory_of_a_cgroup_is_a_share_of_its_limit_and_counts_there(_: &Context) -> TestResult {
    if !has_controllers(&["memory"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "memory is not there".into()));
    }
    let victim = Victim::new(&["memory"])?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let share = json!({"resource": "memory", "memory_percent": 50, "reserve_mb": 64});
    let fault = fault().aimed(json!({"cgroup": victim.name()})).with(share);
    let refused = fault.inject(&mcp);
    assert!(
        matches!(&refused, Err(Error::Mcp { problem, .. }) if problem.contains("has no limit")),
        "{refused:?}"
    );
    victim.write("memory.max", &(2 * TAKEN * MIB).to_string())?;
    let used = || -> Result<u64> {
        let text = victim.read("memory.current")?;
        text.parse().map_err(|error| Error::Different(format!("memory.current: {text}: {error}")))
    };
    let before = used()?;
    fault.inject(&mcp)?;
    let taken = used()?.saturating_sub(before);
    assert!((TAKEN * MIB..(TAKEN + 8) * MIB).contains(&taken), "{taken} bytes");
    let procs = victim.read("cgroup.procs")?;
    assert!(
        procs.lines().any(|pid| pid == holder(&daemon).map_or(0, |holder| holder.pid).to_string()),
        "{procs}"
    );
    fault.remove(&mcp)?;
    let back = wait_until(Duration::from_secs(1), || used().is_ok_and(|now| now < before + 8 * MIB));
    assert!(back, "{} bytes before, {} after", before, used()?);
    assert!(victim.read("memory.events")?.contains("oom_kill 0"));
    Ok(Outcome::Pass)
}

fn memory_of_the_reserve_is_refused_and_nothing_is_taken(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let everything = fault().with(json!({"resource": "memory", "memory_percent": 100}));
    let refused = everything.inject(&mcp);
    let named = |problem: &str| problem.contains("LIMIT_REACHED") && problem.contains("its reserve");
    assert!(matches!(&refused, Err(Error::Mcp { problem, .. }) if named(problem)), "{refused:?}");
    assert!(holder(&daemon).is_err(), "a holder was started");
    Ok(Outcome::Pass)
}
