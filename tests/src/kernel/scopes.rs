//! Faults of packets and of calls that name processes: what is theirs alone is hit, and what others share with them is refused.

use std::time::{Duration, Instant};

use nix::libc::{EAGAIN, ECONNREFUSED, ENOENT};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::effects::inject_netem;
use super::served::{AT_ONCE, lack};
use super::{Attach, Context, Outcome, TestResult, Tried, assert_lasted, on_every_attachment, tests};
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, icmp_rtt};
use crate::name_server::NameServer;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_partition_of_a_process_with_a_namespace_of_its_own_is_of_all_that_namespace_both_ways,
    a_fault_of_a_process_that_shares_its_namespace_is_of_its_group_alone,
    a_fault_of_a_container_is_of_its_namespace_or_its_group,
    a_dns_error_of_a_process_that_shares_its_namespace_is_of_its_group_alone,
    a_dns_error_of_a_container_is_of_its_namespace_or_its_group,
    a_loss_of_a_process_that_shares_its_namespace_is_of_its_group_alone,
    a_loss_of_a_container_is_of_its_namespace_or_its_group,
    a_connect_error_of_a_process_is_of_its_group_alone,
    a_fault_of_a_process_ends_at_its_time_and_with_the_daemon_and_outlives_the_process,
    processes_whose_packets_cannot_be_told_from_others_are_refused_by_name,
];

const PATIENCE: Duration = Duration::from_millis(300);
/// Long enough for a slow machine to see a fault before it ends.
const PROMPT: Duration = Duration::from_secs(4);

struct Scene {
    pair: Pair,
    echo: Echo,
    names: NameServer,
    daemon: Daemon,
    mcp: Mcp,
    before: Residue,
}

impl Scene {
    fn new(attach: Attach) -> Result<Self> {
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let names = NameServer::start(&pair.far, Pair::FAR_V4, 53)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        Ok(Self { pair, echo, names, daemon, mcp, before })
    }

    fn trip(&self, caller: &mut Caller) -> Result<i32> {
        caller.ask(Ask::Trip(self.echo.address()))
    }

    fn assert_no_residue(&self) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.pair.near], HANG)
    }
}

/// A fault of the interface that the processes see.
fn fault(kind: &'static str, whose: &Value) -> Fault {
    let mut target = json!({"interface": INTERFACE});
    if let (Value::Object(target), Value::Object(whose)) = (&mut target, whose) {
        target.extend(whose.clone());
    }
    Fault::new(kind).aimed(target)
}

fn a_partition_of_a_process_with_a_namespace_of_its_own_is_of_all_that_namespace_both_ways(
    context: &Context,
) -> TestResult {
    on_every_attachment(context, |attach| {
        let scene = Scene::new(attach)?;
        let mut caller = Caller::start(&scene.pair.near, None)?;
        let reached = || icmp_rtt(&scene.pair.far, Pair::NEAR_V4, PATIENCE).is_ok_and(|trip| trip.is_some());
        assert!(scene.trip(&mut caller)? == 0 && reached(), "not normal before");
        // Twice, one beside the other: a holder that is in the namespace is nobody.
        let whose = json!({"pid": caller.pid()});
        let first = fault("network_partition", &whose);
        let second = fault("timeout", &whose).named("second");
        let answer = first.inject(&scene.mcp)?;
        let description = answer["description"].as_str().unwrap_or_default();
        assert!(description.contains(&format!("in the namespace of pid {}", caller.pid())), "{answer}");
        assert!(!description.contains("cgroup"), "{answer}");
        second.inject(&scene.mcp)?;
        assert!(scene.trip(&mut caller)? == EAGAIN && !reached(), "it has no effect");
        first.remove(&scene.mcp)?;
        assert!(scene.trip(&mut caller)? == EAGAIN && !reached(), "the second went with the first");
        second.remove(&scene.mcp)?;
        assert!(scene.trip(&mut caller)? == 0 && reached(), "not normal after");
        scene.assert_no_residue()?;
        Ok(())
    })
}

fn a_fault_of_a_process_that_shares_its_namespace_is_of_its_group_alone(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let (cgroup, scene) = (Cgroup::new()?, Scene::new(attach)?);
        let mut service = Caller::start(&scene.pair.near, Some(&cgroup))?;
        let mut beside = Caller::start(&scene.pair.near, None)?;
        assert_eq!((scene.trip(&mut service)?, scene.trip(&mut beside)?), (0, 0));
        let fault = fault("timeout", &json!({"pid": service.pid()}));
        let answer = fault.inject(&scene.mcp)?;
        let description = answer["description"].as_str().unwrap_or_default();
        assert!(description.contains(&cgroup.name()), "{answer}");
        assert_eq!((scene.trip(&mut service)?, scene.trip(&mut beside)?), (EAGAIN, 0));
        fault.remove(&scene.mcp)?;
        assert_eq!((scene.trip(&mut service)?, scene.trip(&mut beside)?), (0, 0));
        scene.assert_no_residue()?;
        Ok(())
    })
}

fn a_fault_of_a_container_is_of_its_namespace_or_its_group(_: &Context) -> TestResult {
    let ((cgroup, id), scene) = (Cgroup::of_container()?, Scene::new(Attach::Auto)?);
    let mut both = [0, 1].map(|_| Caller::start(&scene.pair.near, Some(&cgroup))).into_iter();
    let (Some(first), Some(second)) = (both.next(), both.next()) else { return Err("no callers".into()) };
    let (mut first, mut second) = (first?, second?);
    let whose = json!({"container": &id[..40]});
    assert_eq!((scene.trip(&mut first)?, scene.trip(&mut second)?), (0, 0));
    let whole = fault("network_partition", &whose);
    whole.inject(&scene.mcp)?;
    assert_eq!((scene.trip(&mut first)?, scene.trip(&mut second)?), (EAGAIN, EAGAIN));
    assert!(icmp_rtt(&scene.pair.far, Pair::NEAR_V4, PATIENCE)?.is_none(), "what arrives is not met");
    whole.remove(&scene.mcp)?;
    assert_eq!((scene.trip(&mut first)?, scene.trip(&mut second)?), (0, 0));
    // Another container of the same pod.
    let mut beside = Caller::start(&scene.pair.near, None)?;
    let part = fault("timeout", &whose);
    part.inject(&scene.mcp)?;
    assert_eq!((scene.trip(&mut first)?, scene.trip(&mut beside)?), (EAGAIN, 0));
    part.remove(&scene.mcp)?;
    assert_eq!(scene.trip(&mut first)?, 0);
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

/// A kind of fault, and how it shows: what is asked for, and what comes of it meanwhile.
struct Sign {
    kind: &'static str,
    params: Value,
    ask: fn(&Scene) -> Ask,
    errno: i32,
}

impl Sign {
    fn dns_error() -> Self {
        Self {
            kind: "dns_error",
            params: json!({"names": ["db.example.org"]}),
            ask: |scene| Ask::Resolve(scene.names.address()),
            errno: ENOENT,
        }
    }

    fn loss() -> Self {
        Self {
            kind: "packet_loss",
            params: json!({"loss_percent": 100}),
            ask: |scene| Ask::Trip(scene.echo.address()),
            errno: EAGAIN,
        }
    }

    /// Has these callers ask before a fault of the one whose it is, while it is there, and after it: each is met or not.
    fn meets(
        &self,
        scene: &Scene,
        whose: &Value,
        callers: &mut [(&mut Caller, bool)],
    ) -> Tried<Option<Outcome>> {
        let fault = fault(self.kind, whose).with(self.params.clone());
        let ask = (self.ask)(scene);
        let mut assert_get = |when: &str, errno: i32| -> Result<()> {
            for (number, (caller, is_met)) in callers.iter_mut().enumerate() {
                let expected = if *is_met { errno } else { 0 };
                assert_eq!(caller.ask(ask)?, expected, "{} of {whose}, {when}: caller {number}", self.kind);
            }
            Ok(())
        };
        assert_get("before", 0)?;
        if let Some(skip) = inject_netem(&fault, &scene.mcp)? {
            return Ok(Some(skip));
        }
        assert_get("during", self.errno)?;
        fault.remove(&scene.mcp)?;
        assert_get("after", 0)?;
        Ok(None)
    }

    fn of_a_process(&self, context: &Context) -> TestResult {
        let mut skipped = None;
        let passed = on_every_attachment(context, |attach| {
            let (cgroup, scene) = (Cgroup::new()?, Scene::new(attach)?);
            let mut service = Caller::start(&scene.pair.near, Some(&cgroup))?;
            let mut beside = Caller::start(&scene.pair.near, None)?;
            let whose = json!({"pid": service.pid()});
            let callers = &mut [(&mut service, true), (&mut beside, false)];
            skipped = self.meets(&scene, &whose, callers)?;
            scene.assert_no_residue()?;
            Ok(())
        })?;
        Ok(skipped.unwrap_or(passed))
    }

    fn of_a_container(&self) -> TestResult {
        let ((cgroup, id), scene) = (Cgroup::of_container()?, Scene::new(Attach::Auto)?);
        let mut first = Caller::start(&scene.pair.near, Some(&cgroup))?;
        let mut second = Caller::start(&scene.pair.near, Some(&cgroup))?;
        let whose = json!({"container": &id[..40]});
        let whole = &mut [(&mut first, true), (&mut second, true)];
        if let Some(skip) = self.meets(&scene, &whose, whole)? {
            return Ok(skip);
        }
        // Another container of the same pod.
        let mut beside = Caller::start(&scene.pair.near, None)?;
        let part = &mut [(&mut first, true), (&mut second, true), (&mut beside, false)];
        self.meets(&scene, &whose, part)?;
        scene.assert_no_residue()?;
        Ok(Outcome::Pass)
    }
}

fn a_dns_error_of_a_process_that_shares_its_namespace_is_of_its_group_alone(context: &Context) -> TestResult {
    Sign::dns_error().of_a_process(context)
}

fn a_dns_error_of_a_container_is_of_its_namespace_or_its_group(_: &Context) -> TestResult {
    Sign::dns_error().of_a_container()
}

fn a_loss_of_a_process_that_shares_its_namespace_is_of_its_group_alone(context: &Context) -> TestResult {
    Sign::loss().of_a_process(context)
}

fn a_loss_of_a_container_is_of_its_namespace_or_its_group(_: &Context) -> TestResult {
    Sign::loss().of_a_container()
}

fn a_connect_error_of_a_process_is_of_its_group_alone(_: &Context) -> TestResult {
    let (cgroup, scene) = (Cgroup::new()?, Scene::new(Attach::Auto)?);
    let mut service = Caller::start(&scene.pair.near, Some(&cgroup))?;
    let mut beside = Caller::start(&scene.pair.near, None)?;
    let call = Ask::Connect(scene.echo.address());
    assert_eq!((service.ask(call)?, beside.ask(call)?), (0, 0));
    let fault = Fault::new("connect_error").aimed(json!({"pid": service.pid()}));
    fault.inject(&scene.mcp)?;
    assert_eq!((service.ask(call)?, beside.ask(call)?), (ECONNREFUSED, 0));
    fault.remove(&scene.mcp)?;
    assert_eq!((service.ask(call)?, beside.ask(call)?), (0, 0));
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_fault_of_a_process_ends_at_its_time_and_with_the_daemon_and_outlives_the_process(
    context: &Context,
) -> TestResult {
    on_every_attachment(context, |attach| {
        let scene = Scene::new(attach)?;
        let mut caller = Caller::start(&scene.pair.near, None)?;
        let short = fault("network_partition", &json!({"pid": caller.pid()})).lasting(PROMPT);
        let asked = Instant::now();
        short.inject(&scene.mcp)?;
        assert_eq!(scene.trip(&mut caller)?, EAGAIN);
        assert!(wait_until(HANG, || scene.trip(&mut caller).is_ok_and(|errno| errno == 0)));
        assert_lasted(asked, PROMPT);
        // The namespace is found again without the process by which it was found.
        let orphaned = fault("network_partition", &json!({"pid": caller.pid()})).named("orphaned");
        orphaned.inject(&scene.mcp)?;
        drop(caller);
        let mut caller = Caller::start(&scene.pair.near, None)?;
        assert_eq!(scene.trip(&mut caller)?, EAGAIN, "another process in the same namespace");
        orphaned.remove(&scene.mcp)?;
        assert_eq!(scene.trip(&mut caller)?, 0);
        scene.assert_no_residue()?;

        drop(scene);
        ends_with_the_daemon(attach)
    })
}

fn ends_with_the_daemon(attach: Attach) -> Tried<()> {
    let mut scene = Scene::new(attach)?;
    let mut caller = Caller::start(&scene.pair.near, None)?;
    fault("network_partition", &json!({"pid": caller.pid()})).named("killed").inject(&scene.mcp)?;
    assert_eq!(scene.trip(&mut caller)?, EAGAIN);
    scene.daemon.processes().iter().for_each(|process| process.signal(Signal::SIGKILL));
    // The trip that is under way waits for its answer in vain.
    match wait_until(AT_ONCE, || scene.trip(&mut caller).is_ok_and(|errno| errno == 0)) {
        true => scene.daemon.kill_everything(),
        false => return Err(Error::in_vain("traffic normal", AT_ONCE).into()),
    }
    Ok(())
}

fn processes_whose_packets_cannot_be_told_from_others_are_refused_by_name(_: &Context) -> TestResult {
    let (cgroup, scene) = (Cgroup::new()?, Scene::new(Attach::Auto)?);
    let service = Caller::start(&scene.pair.near, Some(&cgroup))?;
    let other = Caller::start(&scene.pair.near, Some(&cgroup))?;
    let alone = Caller::start(&scene.pair.near, None)?;
    let program = std::env::current_exe()?;
    let (pid, neighbour) = (service.pid(), format!("process {} (", other.pid()));
    for (kind, whose, words) in [
        ("timeout", json!({"pid": pid}), neighbour.as_str()),
        ("timeout", json!({"exe": program}), "are in different network namespaces"),
        ("timeout", json!({"pid": 1}), "TARGET_PROTECTED"),
        ("timeout", json!({"pid": 4_194_303}), "TARGET_NOT_FOUND"),
        ("timeout", json!({"container": "0123456789abcdef0123"}), "TARGET_NOT_FOUND"),
        ("timeout", json!({"pid": pid, "netns": scene.pair.near.name()}), "target.netns"),
        ("timeout", json!({"pid": pid, "share": "50%"}), "target.share"),
        (
            "network_partition",
            json!({"exe": program, "cgroup": cgroup.name()}),
            "namespace of their own, give",
        ),
    ] {
        let answer = fault(kind, &whose).inject(&scene.mcp);
        let named = matches!(&answer, Err(Error::Mcp { problem, .. }) if problem.contains(words));
        assert!(named, "{whose}: expected {words}, got {answer:?}");
    }
    for (kind, params) in
        [("connect_error", json!({})), ("file_error", json!({"path": "/etc"})), ("socket_error", json!({}))]
    {
        // What the kernel lacks is said first.
        let words = lack(&scene.mcp, kind)?.unwrap_or_else(|| neighbour.clone());
        let calls = Fault::new(kind).aimed(json!({"pid": pid})).with(params).inject(&scene.mcp);
        assert!(calls.as_ref().is_err_and(|error| error.to_string().contains(&words)), "{kind}: {calls:?}");
    }
    drop(alone);
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}
