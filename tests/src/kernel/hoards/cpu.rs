//! CPU time: on named processors, along a ramp, within a cgroup and of its quota.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, holder, tests};
use crate::fault::Fault;
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::rate::{burned, burning, burns};
use crate::runner::FIGURE;
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, Reason, Result};

tests![
    cpu_time_is_burned_on_the_processor_that_is_named_and_more_and_more_of_it,
    the_host_is_busy_while_cpu_time_is_burned_and_nobody_burns_after_it,
    both_processors_that_are_named_are_busy_while_the_fault_lasts,
    a_holder_joins_the_cgroup_that_is_named_and_leaves_it_with_the_fault,
    cpu_time_of_a_cgroup_is_a_share_of_its_quota_and_counts_there,
];

fn fault(params: Value) -> Fault {
    Fault::new("resource_exhaustion").with(params)
}

/// The last processors, so many at most, that this process, and so its daemons, may use.
fn last_processors(count: usize) -> Result<Vec<usize>> {
    let usable = sched_getaffinity(Pid::from_raw(0)).map_err(Error::sys("read", "the affinity"))?;
    let usable = (0..CpuSet::count()).rev().filter(|processor| usable.is_set(*processor).unwrap_or(false));
    let last: Vec<_> = usable.take(count).collect();
    if last.is_empty() { Err(Error::Different("no processor".into())) } else { Ok(last) }
}

/// How long it is looked how busy processors are: a tick of the kernel's books is half a percent.
const LOOK: Duration = Duration::from_secs(2);
/// What is asked for, in percent of each processor, and how much less of it there may be while others have their turns.
const SHARE: u32 = 50;
const OTHERS: f64 = 0.3;

/// The time that a processor was not idle, or all of them (`cpu`), and all the time, since boot (proc_stat(5)).
pub(in crate::kernel) fn busy_and_all(whose: &str) -> Result<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").map_err(Error::io("read", "/proc/stat"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(whose)?.strip_prefix(' '));
    // Up to what is stolen: what guests use is in the first two.
    let times: Vec<f64> =
        line.unwrap_or_default().split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    match times[..] {
        [_, _, _, idle, waiting, ..] => {
            let all = times.iter().sum::<f64>();
            Ok((all - idle - waiting, all))
        }
        _ => Err(Error::Different(format!("no {whose} in /proc/stat: {text}"))),
    }
}

/// Which share of the time each of these is busy.
fn busy(whose: &[String]) -> Result<Vec<f64>> {
    let look = || whose.iter().map(|whose| busy_and_all(whose)).collect::<Result<Vec<_>>>();
    let before = look()?;
    std::thread::sleep(LOOK);
    let both = look()?.into_iter().zip(before);
    Ok(both.map(|((busy, all), (was_busy, were))| (busy - was_busy) / (all - were).max(1.0)).collect())
}

/// Sees it in the kernel's books: the holder uses as much of `processors` as is asked for while the fault lasts, each of `whose` is
/// busy for at least this share of the time, and with the fault the holder ends. Others can only make them busier.
fn makes_busy(fault: &Fault, processors: f64, whose: &[String], by: f64) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    fault.inject(&mcp)?;
    let burner = holder(&daemon)?;
    burns(processors * f64::from(SHARE) / 100.0, burner.pid, || Ok(burned(burner.pid)))?;
    let seen = busy(whose)?;
    assert!(seen.iter().all(|busy| *busy >= by * (1.0 - OTHERS)), "{whose:?} not busy by {by}: {seen:.2?}");
    fault.remove(&mcp)?;
    assert!(!burner.runs(), "it still burns");
    Ok(Outcome::Pass)
}

fn the_host_is_busy_while_cpu_time_is_burned_and_nobody_burns_after_it(_: &Context) -> TestResult {
    let usable = last_processors(CpuSet::count())?.len() as f64;
    let all = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    let all = all.map_err(Error::sys("count", "the processors"))?.unwrap_or(1) as f64;
    let fault = fault(json!({"cpu_percent": SHARE}));
    makes_busy(&fault, usable, &["cpu".to_owned()], f64::from(SHARE) / 100.0 * usable / all)
}

/// One, where there is no second one.
fn both_processors_that_are_named_are_busy_while_the_fault_lasts(_: &Context) -> TestResult {
    let named = last_processors(2)?;
    let list: Vec<_> = named.iter().map(usize::to_string).collect();
    println!("{FIGURE}of {} processors", list.len());
    let fault = fault(json!({"cpu_percent": SHARE, "processors": list.join(",")}));
    let whose: Vec<_> = named.iter().map(|processor| format!("cpu{processor}")).collect();
    makes_busy(&fault, named.len() as f64, &whose, f64::from(SHARE) / 100.0)
}

/// Where the burning threads of a process may run, as the kernel says.
fn places(process: &Process) -> Vec<String> {
    let place = |path: &PathBuf| {
        let status = fs::read_to_string(path.join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(list.trim().to_owned())
    };
    burning(process.pid).iter().filter_map(place).collect()
}

fn cpu_time_is_burned_on_the_processor_that_is_named_and_more_and_more_of_it(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let processor = last_processors(1)?[0].to_string();
    let load =
        |processors: &str| fault(json!({"cpu_percent": 40, "processors": processors, "ramp_seconds": 2}));
    let refused = load("8000").inject(&mcp);
    let named = matches!(&refused, Err(Error::Mcp { problem, .. }) if problem.contains("processor 8000 cannot be used"));
    assert!(named, "{refused:?}");
    let start = Instant::now();
    load(&processor).inject(&mcp)?;
    let burner = holder(&daemon)?;
    assert_eq!(places(&burner), [processor]);
    // Half-way up, half of what the height would be so far; on a busy machine less, and never more.
    std::thread::sleep(Duration::from_secs(1).saturating_sub(start.elapsed()));
    let (used, age) = (burned(burner.pid), start.elapsed().as_secs_f64());
    let climbed = age.min(2.0);
    let most = 0.4 * (climbed * climbed / 4.0 + (age - climbed)) + 0.06;
    assert!(used < most, "{used:.3} s burned after {age:.2} s, and {most:.3} is the most");
    std::thread::sleep(Duration::from_millis(1200));
    burns(0.4, burner.pid, || Ok(burned(burner.pid)))?;
    load("0").remove(&mcp)?;
    assert!(!burner.runs(), "it still burns");
    Ok(Outcome::Pass)
}

fn a_holder_joins_the_cgroup_that_is_named_and_leaves_it_with_the_fault(_: &Context) -> TestResult {
    let victim = Victim::new(&[])?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let target = json!({"cgroup": victim.name()});
    let members = || victim.read("cgroup.procs").map(|text| text.lines().count());
    assert_eq!(members()?, 1);
    let cpu = fault(json!({"cpu_percent": 5, "cores": 1})).aimed(target.clone());
    cpu.inject(&mcp)?;
    let procs = victim.read("cgroup.procs")?;
    assert!(procs.lines().any(|pid| holder(&daemon).is_ok_and(|own| own.pid.to_string() == pid)), "{procs}");
    // A second one may join, and what would stop the first one's heartbeat may not.
    let memory = fault(json!({"resource": "memory", "memory_mb": 8, "reserve_mb": 256})).named("memory");
    memory.clone().aimed(target.clone()).inject(&mcp)?;
    assert_eq!(members()?, 3);
    let pause = Fault::new("pause").aimed(target.clone()).inject(&mcp);
    let protected = matches!(&pause, Err(Error::Mcp { problem, .. }) if problem.contains("TARGET_PROTECTED"));
    assert!(protected, "{pause:?}");
    cpu.remove(&mcp)?;
    memory.remove(&mcp)?;
    assert!(wait_until(HANG, || members().is_ok_and(|count| count == 1)));
    victim.write("cgroup.freeze", "1")?;
    let frozen = || victim.read("cgroup.events").is_ok_and(|events| events.contains("frozen 1"));
    assert!(wait_until(HANG, frozen));
    let refused = cpu.inject(&mcp);
    assert!(matches!(&refused, Err(Error::Mcp { problem, .. }) if problem.contains("frozen")), "{refused:?}");
    Ok(Outcome::Pass)
}

fn cpu_time_of_a_cgroup_is_a_share_of_its_quota_and_counts_there(_: &Context) -> TestResult {
    if !has_controllers(&["cpu"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "cpu is not there".into()));
    }
    let victim = Victim::new(&["cpu"])?;
    victim.write("cpu.max", "40000 100000")?;
    let daemon = Daemon::start()?;
    let mcp = daemon.mcp()?;
    let used = || -> Result<f64> {
        let text = victim.read("cpu.stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<f64>().ok());
        line.map(|used| used / 1e6).ok_or_else(|| Error::Different(format!("cpu.stat: {text}")))
    };
    let fault = fault(json!({"cpu_percent": 50})).aimed(json!({"cgroup": victim.name()}));
    let idle = used()?;
    std::thread::sleep(Duration::from_millis(300));
    assert!(used()? - idle < 0.01, "it burns before");
    fault.inject(&mcp)?;
    // Half of 0.4 processors. What the holder's heartbeats take is in it, and little.
    burns(0.2, holder(&daemon)?.pid, used)?;
    fault.remove(&mcp)?;
    let after = used()?;
    std::thread::sleep(Duration::from_millis(300));
    assert!(used()? - after < 0.01, "it still burns");
    Ok(Outcome::Pass)
}
