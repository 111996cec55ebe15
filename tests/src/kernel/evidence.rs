//! What a run says of whether its fault met somebody, for every kind of fault that is tried on this host.

use serde_json::{Value, json};

use super::{Attach, Context, Outcome, TestResult, tests};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::kinds::sign::Sign;
use crate::late::HANG;
use crate::process::wait_until;
use crate::sweep::bench::Bench;
use crate::sweep::{Kind, list};
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, Mcp, Reason, Result};

tests![
    a_run_of_every_kind_of_fault_is_held_when_somebody_met_it_and_keeps_what_it_met,
    a_run_of_a_fault_that_met_nobody_is_unverified_whatever_its_kind,
    a_run_of_every_supervised_fault_is_held_when_it_was_seen_to_act,
    a_run_of_a_limit_that_nobody_meets_is_unverified_unless_its_document_allows_that,
];

/// How long the method goes on once the fault is there, in seconds.
const GOES_ON: f64 = 2.0;

/// A run of one fault for so many seconds, under a steady state that is always met.
pub(super) fn begin(mcp: &Mcp, fault: &Fault, seconds: f64, may_be_idle: bool) -> Result<String> {
    let probe =
        json!({"type": "process", "path": "chaosctl", "arguments": ["probe", "sockets", "all", "--min", 0]});
    let mut action = fault.action()?;
    action["pauses"] = json!({"after": seconds});
    action["may_be_idle"] = may_be_idle.into();
    let document = json!({
        "title": fault.name(),
        "description": "A fault.",
        "steady-state-hypothesis": {"title": "there are sockets", "probes": [
            {"type": "probe", "name": "sockets", "tolerance": 0, "provider": probe}]},
        "method": [action],
        "rollbacks": [],
    });
    mcp.call_tool("chaos_register_experiment", document)?.ok()?;
    let run = json!({"experiment_name": fault.name(), "wait_seconds": 0});
    let begun = mcp.call_tool("chaos_run_experiment", run)?.ok()?;
    let id = begun["run_id"].as_str().filter(|id| !id.is_empty());
    id.map(str::to_owned).ok_or_else(|| Error::Different(format!("{}: no run: {begun}", fault.name())))
}

/// Waits until its fault is active, or the run is over.
fn wait_active(mcp: &Mcp, fault: &Fault) -> Result<()> {
    let active =
        || fault.status(mcp).is_ok_and(|status| status["state"] != "starting" && status["active"] == true);
    match wait_until(HANG, active) {
        true => Ok(()),
        false => Err(Error::Hung { what: format!("{} active", fault.name()) }),
    }
}

/// All that is known of the run when it has ended.
pub(super) fn end(mcp: &Mcp, run: &str) -> Result<Value> {
    let mut told = Value::Null;
    let ended = wait_until(HANG, || {
        let asked = mcp.call_tool("chaos_get_run", json!({"run_id": run, "wait_seconds": 30}));
        told = asked.and_then(|answer| answer.ok()).unwrap_or_default();
        told["ended"] == true
    });
    if ended { Ok(told) } else { Err(Error::Hung { what: format!("end of run {run}: {told}") }) }
}

/// What of a run is not as it should be.
fn wrong(told: &Value, verdict: &str) -> Option<String> {
    let (run, fault) = (&told["run"], &told["faults"][0]);
    let error = run["error"].as_str().unwrap_or_default();
    let is_effective = verdict == "held";
    let right = run["verdict"] == verdict
        && run["success"] == is_effective
        && error.starts_with("unverified: ") != is_effective
        && (run["steady_state_before"] == true && run["steady_state_after"] == true)
        && fault["effective"] == is_effective
        && fault["evidence"].as_object().is_some_and(|evidence| !evidence.is_empty());
    (!right).then(|| format!("not {verdict}: {run}, {fault}"))
}

/// Every kind that the bench has a fault of.
fn on_the_bench(context: &Context) -> impl Iterator<Item = &'static Kind> {
    list::here(context).filter(|kind| kind.sign().is_some())
}

/// Whether a fault that shows so acts on what others do, and else on nothing.
fn needs_somebody(sign: Sign) -> bool {
    match sign {
        Sign::Echoes
        | Sign::SomeEchoes
        | Sign::Twins
        | Sign::Resets
        | Sign::Questions
        | Sign::Calls
        | Sign::Trips
        | Sign::Files
        | Sign::Proxy => true,
        Sign::Traced | Sign::Continued | Sign::Port | Sign::Clients(_) | Sign::Holder | Sign::Holds(..) => {
            false
        }
    }
}

fn verdict_of_all(problems: Vec<String>, tried: usize) -> TestResult {
    assert!(problems.is_empty(), "of {tried} kinds: {}", problems.join("\n"));
    assert!(tried > 0, "no kind was tried");
    Ok(Outcome::Pass)
}

fn a_run_of_every_kind_of_fault_is_held_when_somebody_met_it_and_keeps_what_it_met(
    context: &Context,
) -> TestResult {
    let mut bench = Bench::new(Attach::Auto)?;
    let (mut problems, mut tried) = (Vec::new(), 0);
    for kind in on_the_bench(context) {
        let fault = bench.fault(kind.name)?.named(&kind.name.replace(' ', "-"));
        bench.ready()?;
        bench.prepare(kind);
        let (_, mcp) = bench.daemon()?;
        let run = begin(mcp, &fault, GOES_ON, false)?;
        wait_active(mcp, &fault)?;
        bench
            .assert_acts(kind, || false)
            .map_err(|error| Error::Different(format!("{}: {error}", kind.name)))?;
        let told = end(bench.daemon()?.1, &run)?;
        problems.extend(wrong(&told, "held").map(|wrong| format!("{}: {wrong}", kind.name)));
        tried += 1;
    }
    verdict_of_all(problems, tried)
}

fn a_run_of_a_fault_that_met_nobody_is_unverified_whatever_its_kind(context: &Context) -> TestResult {
    let mut bench = Bench::new(Attach::Auto)?;
    let (mut problems, mut tried) = (Vec::new(), 0);
    for kind in on_the_bench(context).filter(|kind| kind.sign().is_some_and(needs_somebody)) {
        let fault = bench.fault(kind.name)?.named(&kind.name.replace(' ', "-"));
        let (_, mcp) = bench.ready()?;
        let run = begin(mcp, &fault, 0.3, false)?;
        let told = end(mcp, &run)?;
        problems.extend(wrong(&told, "unverified").map(|wrong| format!("{}: {wrong}", kind.name)));
        tried += 1;
    }
    verdict_of_all(problems, tried)
}

fn a_run_of_every_supervised_fault_is_held_when_it_was_seen_to_act(context: &Context) -> TestResult {
    let policy = tempfile::NamedTempFile::new()?;
    std::fs::write(policy.path(), "clock_skew = true\n")?;
    let here: Vec<_> = list::here(context).map(|kind| kind.name).collect();
    let (mut problems, mut tried) = (Vec::new(), 0);
    for (_, kind, make) in list::guarded().filter(|(_, kind, _)| here.contains(&kind.name)) {
        let mut stage = make()?;
        let daemon = Daemon::start_with(|command| {
            command.arg("--policy").arg(policy.path());
        })?;
        let _guard = Guard::start(&daemon)?;
        let (mcp, fault) = (daemon.mcp()?, stage.fault());
        let run = begin(&mcp, &fault, GOES_ON, false)?;
        wait_active(&mcp, &fault)?;
        if !wait_until(HANG, || stage.acts().unwrap_or(false)) {
            return Err(format!("{} does not act; {}", kind.name, daemon.log()).into());
        }
        problems.extend(wrong(&end(&mcp, &run)?, "held").map(|wrong| format!("{}: {wrong}", kind.name)));
        tried += 1;
    }
    verdict_of_all(problems, tried)
}

fn a_run_of_a_limit_that_nobody_meets_is_unverified_unless_its_document_allows_that(
    _: &Context,
) -> TestResult {
    if !has_controllers(&["pids"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "pids is not there".into()));
    }
    // It has the controller enabled, where that may be done.
    let _victim = Victim::new(&["pids"])?;
    let (cgroup, daemon) = (Cgroup::new()?, Daemon::start()?);
    let _guard = Guard::start(&daemon)?;
    let mcp = daemon.mcp()?;
    let limit = json!({"resource": "pids_limit", "pids": 50});
    let fault = Fault::new("resource_exhaustion").aimed(json!({"cgroup": cgroup.name()})).with(limit);
    let told = end(&mcp, &begin(&mcp, &fault, 0.3, false)?)?;
    assert_eq!(wrong(&told, "unverified"), None);
    let error = told["run"]["error"].as_str().unwrap_or_default();
    assert!(error.contains("nobody met its limit"), "{error}");
    let told = end(&mcp, &begin(&mcp, &fault, 0.3, true)?)?;
    assert_eq!((&told["run"]["verdict"], &told["run"]["error"]), (&json!("held"), &Value::Null), "{told}");
    Ok(Outcome::Pass)
}
