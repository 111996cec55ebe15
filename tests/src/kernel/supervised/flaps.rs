//! A link that goes down and up by turns: how long it is either, what it keeps, and what is refused.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::{Context, Outcome, TestResult, tests};
use super::stage::is_up;
use crate::daemon::NOBODY;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::late::HANG;
use crate::pair::INTERFACE;
use crate::process::Killed;
use crate::{Daemon, Error, Pair};

tests![
    in_a_rhythm_a_link_is_down_and_up_by_turns,
    a_link_in_the_namespace_of_a_process_of_another_user_goes_down_and_up,
    a_rhythm_that_makes_no_sense_is_refused_by_name,
];

const WATCHED: Duration = Duration::from_secs(3);
/// So many changes are three turns.
const ENOUGH: u64 = 6;
const LOOK: Duration = Duration::from_millis(5);

fn flapping(pair: &Pair, params: Value) -> Fault {
    Fault::new("link_down").on(&pair.near, json!({"seed": 7})).with(params)
}

/// What shows of a link while it is watched.
struct Watched {
    /// Share of the time that it is up.
    up: f64,
    changes: u64,
    took: Duration,
}

/// Watches until it has changed so often, and for a while at least.
fn watch(pair: &Pair, enough: u64) -> Watched {
    let start = Instant::now();
    let (mut looks, mut up, mut changes, mut last) = (0_u32, 0_u32, 0, None);
    while start.elapsed() < WATCHED || (changes < enough && start.elapsed() < HANG) {
        let now = is_up(&pair.near);
        looks += 1;
        up += u32::from(now);
        changes += u64::from(last.is_some_and(|last| last != now));
        last = Some(now);
        std::thread::sleep(LOOK);
    }
    Watched { up: f64::from(up) / f64::from(looks), changes, took: start.elapsed() }
}

/// Fails unless it is up all the time.
fn assert_stays_up(pair: &Pair, when: &str) {
    let Watched { up, changes, .. } = watch(pair, 0);
    assert_eq!((up, changes), (1.0, 0), "{when}");
}

fn in_a_rhythm_a_link_is_down_and_up_by_turns(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    assert_stays_up(&pair, "it is not up before");
    let fault = flapping(&pair, json!({"down_ms": 100, "up_ms": 300, "jitter_ms": 50}));
    let answer = fault.inject(&mcp)?;
    assert_eq!((&answer["lifetime"], &answer["evidence"]["link_downs"]), (&json!("supervised"), &json!(1)));
    let Watched { up, changes, took } = watch(&pair, ENOUGH);
    // One down and one up take 300 ms at least, and on a busy machine more.
    let most = took.as_secs_f64() / 0.15 + 2.0;
    assert!(changes >= ENOUGH && (changes as f64) < most, "{changes} changes in {took:?}");
    if !(0.45..0.9).contains(&up) {
        let what = format!("being up some 0.75 of the time, which was {up:.2}");
        return Err(Error::Late { what, after: took }.into());
    }
    let status = fault.status(&mcp)?;
    let downs = status["evidence"]["link_downs"].as_u64().unwrap_or_default();
    assert!(downs >= changes / 2 && status["state"] == "effective", "{changes} changes, {status}");
    fault.remove(&mcp)?;
    assert_stays_up(&pair, "it does not stay up");
    assert!(pair.near.ip(&["-6", "address", "show", "dev", "eth0"])?.contains("fd77::1/64"));
    Ok(Outcome::Pass)
}

/// By whom the namespace is reached, as that of a container without root.
fn a_link_in_the_namespace_of_a_process_of_another_user_goes_down_and_up(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let user = pair.near.run(|| Command::new("sleep").arg("600").uid(NOBODY).gid(NOBODY).spawn())?;
    let user = Killed(user);
    let path = format!("/proc/{}/ns/net", user.0.id());
    pair.near.lose_name()?;
    let fault = Fault::new("link_down").aimed(json!({"netns": path, "interface": INTERFACE}));
    fault.inject(&mcp)?;
    assert!(!is_up(&pair.near));
    fault.remove(&mcp)?;
    assert!(is_up(&pair.near));
    Ok(Outcome::Pass)
}

fn a_rhythm_that_makes_no_sense_is_refused_by_name(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start()?;
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    for (params, words) in [
        (json!({"down_ms": 100}), "params.up_ms"),
        (json!({"up_ms": 100}), "params.down_ms"),
        (json!({"down_ms": 10, "up_ms": 100}), "params.down_ms: 10 ms is out of bounds"),
        (json!({"down_ms": 100, "up_ms": 100, "jitter_ms": 51}), "params.jitter_ms"),
        (json!({"jitter_ms": 5}), "params.jitter_ms: belongs to down_ms and up_ms"),
        (json!({}), "target.seed: belongs to down_ms and up_ms"),
    ] {
        let answer = flapping(&pair, params).inject(&mcp);
        let named = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words));
        assert!(named, "expected {words}, got {answer:?}");
    }
    assert!(is_up(&pair.near));
    Ok(Outcome::Pass)
}
