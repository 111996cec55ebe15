//! Faults of the packets of one service: measured by a process in a control group of the test's, by one in a group below it,
//! and by one beside it.

use std::time::{Duration, Instant};

use nix::libc::{EAGAIN, ECONNREFUSED, EHOSTUNREACH};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::effects::inject_netem;
use super::impairments::udp_counter;
use super::served::AT_ONCE;
use super::{Attach, Context, Outcome, TestResult, Tried, on_every_attachment, tests};
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::Echo;
use crate::process::wait_until;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_timeout_and_a_partition_of_one_service_meet_its_packets_and_nobody_elses,
    a_fault_of_a_group_leaves_the_group_above_alone,
    an_error_of_one_service_fails_its_connections_and_nobody_elses,
    a_delay_of_one_service_is_its_own,
    a_rate_of_one_service_is_its_own,
    a_reordering_of_one_service_is_its_own,
    a_loss_of_one_service_is_its_own,
    a_corruption_of_one_service_is_its_own,
    a_duplication_of_one_service_is_its_own,
    killing_every_process_at_once_ends_a_timeout_of_one_service_at_once,
    what_arrives_and_the_daemon_s_own_group_are_refused,
];

struct Scene {
    /// In the group, and in one below it.
    service: [Caller; 2],
    beside: Caller,
    echo: Echo,
    daemon: Daemon,
    mcp: Mcp,
    before: Residue,
    below: Cgroup,
    cgroup: Cgroup,
    pair: Pair,
}

impl Scene {
    fn new(attach: Attach) -> Result<Self> {
        let (pair, cgroup) = (Pair::new()?, Cgroup::new()?);
        let below = cgroup.below()?;
        let service = [Caller::start(&pair.near, Some(&cgroup))?, Caller::start(&pair.near, Some(&below))?];
        let beside = Caller::start(&pair.near, None)?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        Ok(Self { service, beside, echo, daemon, mcp, before, below, cgroup, pair })
    }

    fn fault(&self, kind: &'static str) -> Fault {
        Fault::new(kind).on(&self.pair.near, json!({"cgroup": self.cgroup.name(), "direction": "egress"}))
    }

    /// A round trip of a datagram.
    fn trip(&self) -> Ask {
        Ask::Trip(self.echo.address())
    }

    /// Fails unless this call of the service gets this, and that of who is beside it succeeds.
    fn assert_service_gets(&mut self, call: Ask, errno: i32) -> Result<()> {
        for member in &mut self.service {
            assert_eq!(member.ask(call)?, errno, "{call:?} of the service");
        }
        assert_eq!(self.beside.ask(call)?, 0, "{call:?} beside the service");
        Ok(())
    }

    fn assert_over(&mut self) -> Result<()> {
        self.assert_service_gets(self.trip(), 0)?;
        self.before.assert_unchanged_within(&[&self.pair.near], HANG)
    }
}

fn a_timeout_and_a_partition_of_one_service_meet_its_packets_and_nobody_elses(
    context: &Context,
) -> TestResult {
    on_every_attachment(context, |attach| {
        let mut scene = Scene::new(attach)?;
        scene.assert_service_gets(scene.trip(), 0)?;
        for kind in ["timeout", "network_partition"] {
            let fault = scene.fault(kind);
            fault.inject(&scene.mcp)?;
            scene.assert_service_gets(scene.trip(), EAGAIN)?;
            let evidence = &fault.status(&scene.mcp)?["evidence"];
            assert_eq!(evidence["packets_affected"], 2, "{evidence}");
            fault.remove(&scene.mcp)?;
            scene.assert_over()?;
        }
        Ok(())
    })
}

fn a_fault_of_a_group_leaves_the_group_above_alone(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let mut scene = Scene::new(attach)?;
        let group = format!("{}/{}", scene.cgroup.name(), scene.below.name());
        let fault =
            Fault::new("timeout").on(&scene.pair.near, json!({"cgroup": group, "direction": "egress"}));
        fault.inject(&scene.mcp)?;
        let trip = scene.trip();
        let [above, below] = &mut scene.service;
        assert_eq!((above.ask(trip)?, below.ask(trip)?), (0, EAGAIN));
        fault.remove(&scene.mcp)?;
        scene.assert_over()?;
        Ok(())
    })
}

fn an_error_of_one_service_fails_its_connections_and_nobody_elses(context: &Context) -> TestResult {
    on_every_attachment(context, |attach| {
        let mut scene = Scene::new(attach)?;
        let call = Ask::Connect(scene.echo.address());
        scene.assert_service_gets(call, 0)?;
        for (answer, errno) in [("reset", ECONNREFUSED), ("host_unreachable", EHOSTUNREACH)] {
            let fault = scene.fault("error").with(json!({"answer": answer}));
            fault.inject(&scene.mcp)?;
            scene.assert_service_gets(call, errno)?;
            fault.remove(&scene.mcp)?;
            scene.assert_service_gets(call, 0)?;
        }
        scene.assert_over()?;
        Ok(())
    })
}

fn a_delay_of_one_service_is_its_own(context: &Context) -> TestResult {
    holds_up_one_service(context, "latency", &json!({"delay_ms": 200}), 0)
}

fn a_rate_of_one_service_is_its_own(context: &Context) -> TestResult {
    // A datagram of one byte is 344 bits with its headers (Ethernet, IPv4, UDP): the seventh waits for 258 ms.
    holds_up_one_service(context, "bandwidth", &json!({"rate_kbit": 8}), 6)
}

fn a_reordering_of_one_service_is_its_own(context: &Context) -> TestResult {
    // Of a thousand one overtakes: what each member sends does not.
    holds_up_one_service(context, "packet_reorder", &json!({"reorder_percent": 0.1, "delay_ms": 200}), 0)
}

/// What a fault holds up for at least this long comes back late.
const DELAY: Duration = Duration::from_millis(200);

/// Behind so many datagrams, round trips of the service take longer while this fault is there, and those of who is beside it do
/// not.
fn holds_up_one_service(context: &Context, kind: &'static str, params: &Value, ahead: u32) -> TestResult {
    meets_one_service(context, kind, params, |scene| {
        let (trip, send) = (scene.trip(), Ask::Send(scene.echo.address()));
        let behind = |caller: &mut Caller| {
            assert_eq!(caller.failures(ahead, send)?, 0);
            timed(caller, trip)
        };
        for member in &mut scene.service {
            let (errno, took) = behind(member)?;
            assert!(errno == 0 && took >= DELAY, "the service: {errno}, {took:?}");
        }
        let mut seen = (0, DELAY);
        let prompt = wait_until(HANG, || {
            seen = behind(&mut scene.beside).unwrap_or((-1, DELAY));
            seen.0 == 0 && seen.1 < DELAY
        });
        assert!(prompt, "beside it: {seen:?}");
        Ok(())
    })
}

fn timed(caller: &mut Caller, call: Ask) -> Result<(i32, Duration)> {
    let start = Instant::now();
    caller.ask(call).map(|errno| (errno, start.elapsed()))
}

/// A busy machine is late once, and a delay each time.
fn assert_prompt(scene: &mut Scene, when: &str) -> Result<()> {
    let trip = scene.trip();
    for member in &mut scene.service {
        let prompt = || timed(member, trip).is_ok_and(|(errno, took)| errno == 0 && took < DELAY);
        assert!(wait_until(HANG, prompt), "the service {when}: each time it takes {DELAY:?}");
    }
    Ok(())
}

/// Looks at a service before a fault of its packets that needs netem, while it is there, and after it, on every attachment.
fn meets_one_service(
    context: &Context,
    kind: &'static str,
    params: &Value,
    during: impl Fn(&mut Scene) -> Result<()>,
) -> TestResult {
    let mut skipped = None;
    let passed = on_every_attachment(context, |attach| {
        let mut scene = Scene::new(attach)?;
        let fault = scene.fault(kind).with(params.clone());
        assert_prompt(&mut scene, "before")?;
        skipped = inject_netem(&fault, &scene.mcp)?;
        if skipped.is_some() {
            return Ok(());
        }
        during(&mut scene)?;
        assert_eq!(fault.status(&scene.mcp)?["state"], "effective");
        fault.remove(&scene.mcp)?;
        assert_prompt(&mut scene, "after")?;
        scene.assert_over()?;
        Ok(())
    })?;
    Ok(skipped.unwrap_or(passed))
}

fn a_loss_of_one_service_is_its_own(context: &Context) -> TestResult {
    meets_one_service(context, "packet_loss", &json!({"loss_percent": 100}), |scene| {
        scene.assert_service_gets(scene.trip(), EAGAIN)
    })
}

fn a_corruption_of_one_service_is_its_own(context: &Context) -> TestResult {
    /// Nobody looks at the sender's Ethernet address, so that what has its bit turned over there arrives.
    const TRIPS: u32 = 10;
    meets_one_service(context, "packet_corrupt", &json!({"corrupt_percent": 100}), |scene| {
        let trip = scene.trip();
        for member in &mut scene.service {
            let lost = member.failures(TRIPS, trip)?;
            assert!(lost > 1, "{lost} of {TRIPS} of the service's");
        }
        assert_eq!(scene.beside.failures(TRIPS, trip)?, 0, "beside it");
        Ok(())
    })
}

fn a_duplication_of_one_service_is_its_own(context: &Context) -> TestResult {
    meets_one_service(context, "packet_duplicate", &json!({"duplicate_percent": 100}), |scene| {
        let (trip, before) = (scene.trip(), received(scene)?);
        // Whose copy could come late goes first.
        for caller in [&mut scene.beside].into_iter().chain(&mut scene.service) {
            assert_eq!(caller.ask(trip)?, 0);
        }
        // One of who is beside it, and two of each member.
        let count = || received(scene).map_or(0, |count| count - before);
        assert!(wait_until(HANG, || count() >= 5), "{} arrived", count());
        assert_eq!(count(), 5, "of three sent");
        Ok(())
    })
}

/// Datagrams that the server has received.
fn received(scene: &Scene) -> Result<u64> {
    udp_counter(&scene.pair.far, "InDatagrams")
}

fn killing_every_process_at_once_ends_a_timeout_of_one_service_at_once(context: &Context) -> TestResult {
    on_every_attachment(context, ends_at_once_with_its_daemon)
}

fn ends_at_once_with_its_daemon(attach: Attach) -> Tried<()> {
    let mut scene = Scene::new(attach)?;
    scene.fault("timeout").inject(&scene.mcp)?;
    scene.assert_service_gets(scene.trip(), EAGAIN)?;
    let (trip, start) = (scene.trip(), Instant::now());
    scene.daemon.processes().iter().for_each(|process| process.signal(Signal::SIGKILL));
    let mut is_normal = false;
    // What was asked for in time may be answered later.
    while !is_normal && start.elapsed() < AT_ONCE {
        is_normal = scene.service[0].ask(trip)? == 0;
    }
    if !is_normal {
        return Err(Error::in_vain("the service normal", AT_ONCE).into());
    }
    scene.daemon.kill_everything();
    scene.assert_service_gets(trip, 0)?;
    Ok(())
}

fn what_arrives_and_the_daemon_s_own_group_are_refused(_: &Context) -> TestResult {
    let (pair, cgroup) = (Pair::new()?, Cgroup::new()?);
    let daemon = Daemon::start_with(|command| cgroup.place(command))?;
    let mcp = daemon.mcp()?;
    let refused = |kind: &'static str, narrow: Value| -> Result<(String, String)> {
        let fault = Fault::new(kind).on(&pair.near, narrow.clone());
        let registered = fault.register(&mcp);
        let answer = mcp.call_tool("chaos_inject_fault", json!({"fault_name": kind, "action": "inject"}))?;
        let text = |field: &str| answer.json["error"][field].as_str().unwrap_or_default().to_owned();
        match registered {
            Err(error) => Ok(("register".into(), error.to_string())),
            Ok(_) => Ok((text("code"), text("message"))),
        }
    };
    for (kind, direction) in [("network_partition", Value::Null), ("timeout", json!("ingress"))] {
        let mut narrow = json!({"cgroup": cgroup.name()});
        if !direction.is_null() {
            narrow["direction"] = direction;
        }
        let (_, words) = refused(kind, narrow)?;
        assert!(words.contains("target.direction") && words.contains("egress"), "{kind}: {words}");
    }
    let own = json!({"cgroup": cgroup.name(), "direction": "egress"});
    let (code, words) = refused("error", own)?;
    assert_eq!(code, "TARGET_PROTECTED", "{words}");
    drop(daemon);
    Ok(Outcome::Pass)
}
