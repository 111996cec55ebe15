//! Memory.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use super::{ENDS, LEASE_ENDS, Taking, evidence, holder, shows_on_the_host};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, Reason, Result};

tests![
    memory_is_resident_while_the_fault_lasts_and_free_when_it_ends,
    memory_is_given_back_when_the_lease_runs_out,
    the_host_has_less_memory_available_while_the_fault_lasts,
    a_percentage_of_the_host_s_memory_is_missing_there_while_the_fault_lasts,
    memory_grows_along_its_ramp_and_its_holder_is_the_first_to_be_killed,
    memory_of_a_cgroup_is_a_share_of_its_limit_and_counts_there,
    memory_of_the_reserve_is_refused_and_nothing_is_taken,
    memory_of_a_cgroup_runs_out_when_asked_and_the_kernel_kills_there_and_nobody_else,
    memory_that_runs_out_in_a_cgroup_that_dies_together_takes_the_holder_along_and_says_so,
    memory_runs_out_neither_on_the_host_nor_where_the_kernel_would_kill_nobody_else,
];

const MIB: u64 = 1 << 20;
const TAKEN: u64 = 64;

fn fault() -> Fault {
    Fault::new("resource_exhaustion")
        .with(json!({"resource": "memory", "memory_mb": TAKEN, "reserve_mb": 256}))
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

/// More than others take and give back within a moment, on most hosts.
const MUCH: u64 = 256;

/// The memory of the host, and what of it is available, in bytes (proc_meminfo(5)).
fn of_the_host() -> Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(Error::io("read", "/proc/meminfo"))?;
    let number = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    let both = number("MemTotal:").zip(number("MemAvailable:"));
    let (total, available) = both.ok_or_else(|| Error::Different(format!("/proc/meminfo: {text}")))?;
    Ok((total << 10, available << 10))
}

fn used_on_the_host() -> Result<u64> {
    of_the_host().map(|(total, available)| total - available)
}

fn the_host_has_less_memory_available_while_the_fault_lasts(_: &Context) -> TestResult {
    let fault = fault().with(json!({"resource": "memory", "memory_mb": MUCH, "reserve_mb": 256}));
    Ok(shows_on_the_host(&fault, MUCH * MIB, used_on_the_host)?)
}

/// Of what the host has, and beside what is in use. As much as above; on a host of more than 25 GiB the least that can be asked for.
fn a_percentage_of_the_host_s_memory_is_missing_there_while_the_fault_lasts(_: &Context) -> TestResult {
    let (total, _) = of_the_host()?;
    let percent = (100.0 * (MUCH * MIB) as f64 / total as f64).max(1.0);
    let asked = (percent / 100.0 * total as f64) as u64;
    let fault = fault().with(json!({"resource": "memory", "memory_percent": percent, "reserve_mb": 256}));
    Ok(shows_on_the_host(&fault, asked, used_on_the_host)?)
}

fn memory_grows_along_its_ramp_and_its_holder_is_the_first_to_be_killed(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let params = json!({"resource": "memory", "memory_mb": TAKEN, "reserve_mb": 256, "ramp_seconds": 2});
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
    assert!(wait_until(HANG, all), "{}", evidence(&fault, &mcp)?);
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
    let share = json!({"resource": "memory", "memory_percent": 50, "reserve_mb": 256});
    let fault = fault().aimed(json!({"cgroup": victim.name()})).with(share);
    let refused = fault.inject(&mcp);
    assert!(
        matches!(&refused, Err(Error::Mcp { problem, .. }) if problem.contains("has no limit")),
        "{refused:?}"
    );
    victim.write("memory.max", &(2 * TAKEN * MIB).to_string())?;
    // One below it has no limit of its own: what is above limits it.
    let below = Cgroup::of_others(victim.path())?.below()?;
    for (path, procs) in [
        (victim.name(), victim.path().to_owned()),
        (format!("{}/below", victim.name()), below.path().to_owned()),
    ] {
        counts_there(&daemon, &victim, &fault.clone().aimed(json!({"cgroup": path})), &procs)?;
    }
    assert!(victim.read("memory.events")?.contains("oom_kill 0"));
    Ok(Outcome::Pass)
}

/// Injects it and removes it: half of what the victim's group may have is used there meanwhile, by a holder in this group.
fn counts_there(daemon: &Daemon, victim: &Victim, fault: &Fault, group: &Path) -> Result<()> {
    let mcp = daemon.mcp()?;
    let used = || -> Result<u64> {
        let text = victim.read("memory.current")?;
        text.parse().map_err(|error| Error::Different(format!("memory.current: {text}: {error}")))
    };
    let before = used()?;
    fault.inject(&mcp)?;
    let taken = used()?.saturating_sub(before);
    assert!((TAKEN * MIB..(TAKEN + 8) * MIB).contains(&taken), "{taken} bytes");
    let procs = std::fs::read_to_string(group.join("cgroup.procs"))
        .map_err(Error::io("read cgroup.procs of", group.display().to_string()))?;
    assert!(
        procs.lines().any(|pid| pid == holder(daemon).map_or(0, |holder| holder.pid).to_string()),
        "{procs}"
    );
    fault.remove(&mcp)?;
    let back = wait_until(HANG, || used().is_ok_and(|now| now < before + 8 * MIB));
    assert!(back, "{} bytes before, {} after", before, used()?);
    Ok(())
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

/// A limit in MiB, within it a process of this size, and a fault that uses up the rest.
const LIMIT: u64 = 192;
const LARGE: usize = 50;
/// So often it is tried until the kernel has killed one alone.
const STRIKES: u32 = 4;

fn oom(victim: &Victim) -> Fault {
    let params = json!({"resource": "memory", "oom": true, "reserve_mb": 256});
    Fault::new("resource_exhaustion").with(params).aimed(json!({"cgroup": victim.name()}))
}

fn large(controllers: &[&str]) -> Result<Victim> {
    let mut victim = Victim::new(controllers)?;
    victim.write("memory.max", &(LIMIT * MIB).to_string())?;
    // Of a part that is copied: all of it through a pipe would take a shell long, in small reads.
    let parts = "$part".repeat(LARGE);
    let grow = format!("part=$(printf %{MIB}s); large={parts}");
    assert_eq!(victim.ask(&grow, HANG)?, Some(0));
    Ok(victim)
}

fn memory_of_a_cgroup_runs_out_when_asked_and_the_kernel_kills_there_and_nobody_else(
    _: &Context,
) -> TestResult {
    if !has_controllers(&["memory"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "memory is not there".into()));
    }
    let mut bystander = large(&["memory"])?;
    let daemon = Daemon::start()?;
    for _ in 0..STRIKES {
        let mut victim = large(&["memory"])?;
        takes_all_that_it_can(&daemon, &mut victim)?;
        let survived = runs_out(&daemon, &mut victim)?;
        // Nobody else: whoever has as much in another group, and the daemon, which is asked.
        assert_eq!(bystander.ask("true", HANG)?, Some(0));
        assert!(bystander.read("memory.events")?.contains("oom_kill 0"));
        if survived {
            return Ok(Outcome::Pass);
        }
    }
    panic!("the kernel killed the holder too, {STRIKES} times of {STRIKES}");
}

/// Without being asked to kill, and everybody lives.
fn takes_all_that_it_can(daemon: &Daemon, victim: &mut Victim) -> Result<()> {
    let mcp = daemon.mcp()?;
    let all = json!({"resource": "memory", "memory_percent": 100, "reserve_mb": 256});
    let harmless = Fault::new("resource_exhaustion").with(all).aimed(json!({"cgroup": victim.name()}));
    let answer = harmless.inject(&mcp)?;
    assert_eq!(answer["evidence"]["shortfall"], "reserve", "{answer}");
    harmless.remove(&mcp)?;
    assert_eq!(victim.ask("true", HANG)?, Some(0));
    assert!(victim.read("memory.events")?.contains("oom_kill 0"));
    Ok(())
}

/// Has the kernel kill once, and looks at all that is said of it. `false` when the kernel killed the holder as well, in the moment
/// between no longer counting on a dead process and having its memory, and the fault has ended by that and said so.
fn runs_out(daemon: &Daemon, victim: &mut Victim) -> Result<bool> {
    let (mcp, fault) = (daemon.mcp()?, oom(victim));
    let answer = fault.inject(&mcp)?;
    assert_eq!((&answer["lifetime"], &answer["evidence"]["oom_kills"]), (&"irreversible".into(), &0.into()));
    let holder = holder(daemon)?;
    let struck = || evidence(&fault, &mcp).is_ok_and(|now| now["shortfall"] == "struck");
    assert!(wait_until(HANG, || struck() || !holder.runs()), "{}", fault.status(&mcp)?);
    assert!(victim.ask("true", HANG).is_err(), "the process is still there");
    let kills = if holder.runs() { 1 } else { 2 };
    let events = victim.read("memory.events")?;
    assert!(events.contains(&format!("oom_kill {kills}\n")), "{events}");
    let named = || {
        let note = fault.status(&mcp).map(|status| status["note"].to_string()).unwrap_or_default();
        note.contains(&format!("rose by {kills}")) && note.contains(&format!("{} (", victim.pid()))
    };
    assert!(wait_until(HANG, named), "{}", fault.status(&mcp)?);
    let status = fault.status(&mcp)?;
    if !holder.runs() {
        let note = status["note"].as_str().unwrap_or_default();
        assert!(status["state"] == "ended" && note.contains("its holder died"), "{status}");
        fault.remove(&mcp)?;
        return Ok(false);
    }
    let evidence_of = |field: &str| &status["evidence"][field];
    assert_eq!((evidence_of("oom_kills"), evidence_of("bytes_held")), (&1.into(), &0.into()), "{status}");
    // Who comes in its place is seen, and lives.
    let mut next = victim.join(Command::new("sleep").arg("600"))?;
    let back = || evidence(&fault, &mcp).is_ok_and(|now| now["back_after_seconds"].is_number());
    assert!(wait_until(HANG, back), "{}", fault.status(&mcp)?);
    fault.remove(&mcp)?;
    assert!(!holder.runs());
    assert!(next.try_wait().is_ok_and(|ended| ended.is_none()), "it was killed as well");
    next.kill().and_then(|()| next.wait()).map_err(Error::io("end", "a process"))?;
    Ok(true)
}

fn memory_that_runs_out_in_a_cgroup_that_dies_together_takes_the_holder_along_and_says_so(
    _: &Context,
) -> TestResult {
    if !has_controllers(&["memory"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "memory is not there".into()));
    }
    let mut victim = large(&["memory"])?;
    victim.write("memory.oom.group", "1")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let fault = oom(&victim);
    let answer = fault.inject(&mcp)?;
    let description = answer["description"].as_str().unwrap_or_default();
    assert!(description.contains("memory.oom.group is set"), "{answer}");
    let ended = || fault.status(&mcp).is_ok_and(|status| status["active"] == false);
    assert!(wait_until(HANG, ended), "{}", fault.status(&mcp)?);
    assert!(victim.ask("true", HANG).is_err(), "the process is still there");
    let status = fault.status(&mcp)?;
    assert!(status["evidence"]["oom_kills"].as_u64().is_some_and(|kills| kills >= 2), "{status}");
    let note = status["note"].as_str().unwrap_or_default();
    assert!(note.contains("its holder died") && note.contains(&format!("{} (", victim.pid())), "{status}");
    Ok(Outcome::Pass)
}

fn memory_runs_out_neither_on_the_host_nor_where_the_kernel_would_kill_nobody_else(
    _: &Context,
) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let refused = |fault: &Fault, words: &str| {
        let answer = fault.inject(&mcp);
        assert!(matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words)), "{answer:?}");
        assert!(holder(&daemon).is_err(), "a holder was started");
    };
    let host = Fault::new("resource_exhaustion").with(json!({"resource": "memory", "oom": true}));
    refused(&host, "never of the whole host");
    if !has_controllers(&["memory"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "memory is not there".into()));
    }
    let victim = Victim::new(&["memory"])?;
    refused(&oom(&victim), "has no limit (memory.max)");
    // A shell that has nothing is smaller than the holder.
    victim.write("memory.max", &(LIMIT * MIB).to_string())?;
    refused(&oom(&victim), "rather kill than the fault's holder");
    victim.write("memory.high", &(LIMIT * MIB / 2).to_string())?;
    refused(&oom(&victim), "memory.high");
    assert!(victim.read("memory.events")?.contains("oom_kill 0"));
    Ok(Outcome::Pass)
}
