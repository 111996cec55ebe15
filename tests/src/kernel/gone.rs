//! A target that goes, and another that comes in its place: no fault is said to act on what is no longer there.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use nix::libc::ECONNREFUSED;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::audit::records;
use super::{Context, Outcome, TestResult, tests};
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::guard::Guard;
use crate::late::HANG;
use crate::measure::Echo;
use crate::netns::NetNs;
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::victim::{Victim, has_controllers};
use crate::{Daemon, Error, Mcp, Pair, Reason, Residue, Result};

tests![
    a_fault_ends_when_its_cgroup_was_made_anew_and_says_so,
    a_fault_that_follows_its_cgroup_waits_and_acts_on_the_one_in_its_place,
    a_fault_of_a_container_follows_it_unless_it_is_to_end,
    a_limit_that_follows_its_cgroup_is_set_in_the_new_one_and_taken_back_there,
    a_fault_of_an_interface_that_was_made_anew_ends_or_follows,
    what_its_holder_sees_to_first_follows_an_interface_all_the_same,
    a_fault_of_a_namespace_that_was_made_anew_ends_or_follows,
    a_namespace_that_has_lost_its_name_has_not_gone_while_somebody_is_in_it,
    a_fault_that_waits_ends_when_it_is_removed_and_leaves_nothing,
    a_fault_that_waits_ends_at_its_time,
    a_fault_that_waits_ends_with_the_server,
    what_becomes_of_a_fault_without_its_target_is_asked_only_where_it_can_be,
];

/// A daemon, and how its faults are.
struct Scene {
    daemon: Daemon,
    mcp: Mcp,
}

impl Scene {
    fn new() -> Result<Self> {
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        Ok(Self { daemon, mcp })
    }

    /// The status of a fault, once this holds of it.
    fn wait(&self, fault: &Fault, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let held = wait_until(HANG, || {
            last = fault.status(&self.mcp).unwrap_or_default();
            holds(&last)
        });
        match held {
            true => Ok(last),
            false => Err(Error::Different(format!("not {what}: {last}; {}", self.daemon.log()))),
        }
    }

    /// Fails unless the fault ends because this of its target has gone.
    fn assert_lost(&self, fault: &Fault, gone: &str) -> Result<()> {
        let ended = self.wait(fault, "ended", |status| status["active"] == false)?;
        assert_note(&ended, &["its target has gone: ", gone]);
        Ok(())
    }

    /// Waits until the fault acts on another target than before.
    fn wait_followed(&self, fault: &Fault) -> Result<Value> {
        let followed =
            |status: &Value| status["note"].as_str().is_some_and(|note| note.contains("was there again"));
        self.wait(fault, "applied anew", followed)
    }
}

fn assert_note(status: &Value, words: &[&str]) {
    let note = status["note"].as_str().unwrap_or_default();
    assert!(words.iter().all(|words| note.contains(words)), "{words:?}: {status}");
}

fn following(fault: Fault) -> Fault {
    fault.narrowed(json!({"on_target_gone": "follow"}))
}

fn refusing(cgroup: &Cgroup) -> Fault {
    Fault::new("connect_error").aimed(json!({"cgroup": cgroup.name()}))
}

fn a_fault_ends_when_its_cgroup_was_made_anew_and_says_so(_: &Context) -> TestResult {
    let (scene, cgroup, pair) = (Scene::new()?, Cgroup::new()?, Pair::new()?);
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let call = Ask::Connect(echo.address());
    let mut service = Caller::start(&pair.near, Some(&cgroup))?;
    let fault = refusing(&cgroup);
    fault.inject(&scene.mcp)?;
    assert_eq!(service.ask(call)?, ECONNREFUSED);
    drop(service);
    let cgroup = cgroup.anew()?;
    scene.assert_lost(&fault, &cgroup.name())?;
    let mut again = Caller::start(&pair.near, Some(&cgroup))?;
    assert_eq!(again.ask(call)?, 0);
    Ok(Outcome::Pass)
}

fn a_fault_that_follows_its_cgroup_waits_and_acts_on_the_one_in_its_place(_: &Context) -> TestResult {
    let (scene, pair) = (Scene::new()?, Pair::new()?);
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let call = Ask::Connect(echo.address());
    let before = Residue::take(&[&pair.near])?;
    let mut cgroup = Cgroup::new()?;
    let fault = following(refusing(&cgroup));
    fault.inject(&scene.mcp)?;
    // More than once: it follows for as long as it lasts.
    for _ in 0..2 {
        let mut service = Caller::start(&pair.near, Some(&cgroup))?;
        assert_eq!(service.ask(call)?, ECONNREFUSED);
        scene.wait(&fault, "effective", |status| status["state"] == "effective")?;
        drop(service);
        let name = cgroup.name();
        cgroup.kill()?;
        let path = cgroup.path().to_owned();
        drop(cgroup);
        let waiting = scene.wait(&fault, "waiting", |status| status["state"] == "waiting")?;
        assert_note(&waiting, &["its target has gone: ", &name, "the fault waits for it"]);
        assert_eq!(waiting["active"], true);
        // Nothing of it is there meanwhile.
        before.assert_unchanged_within(&[&pair.near], HANG)?;
        cgroup = Cgroup::at(path)?;
        let followed = scene.wait_followed(&fault)?;
        assert_eq!(followed["state"], "no_traffic", "{followed}");
    }
    let mut service = Caller::start(&pair.near, Some(&cgroup))?;
    assert_eq!(service.ask(call)?, ECONNREFUSED);
    fault.remove(&scene.mcp)?;
    assert_eq!(service.ask(call)?, 0);
    // The audit has each gap, and one end.
    let expected = ["fault_waits", "fault_follows", "fault_waits", "fault_follows", "fault_ended"];
    let mut acts = Vec::new();
    wait_until(HANG, || {
        acts = records(&scene.daemon).into_iter().map(|record| record.act).collect();
        acts.retain(|act| act.starts_with("fault_"));
        acts.len() >= expected.len()
    });
    assert_eq!(acts, expected);
    drop(service);
    drop(cgroup);
    before.assert_unchanged_within(&[&pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_fault_of_a_container_follows_it_unless_it_is_to_end(_: &Context) -> TestResult {
    let (scene, (cgroup, id), pair) = (Scene::new()?, Cgroup::of_container()?, Pair::new()?);
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let call = Ask::Connect(echo.address());
    let mut service = Caller::start(&pair.near, Some(&cgroup))?;
    let follows = Fault::new("connect_error").aimed(json!({"container": id}));
    let ends = follows.clone().named("ends").narrowed(json!({"on_target_gone": "end"}));
    follows.inject(&scene.mcp)?;
    ends.inject(&scene.mcp)?;
    assert_eq!(service.ask(call)?, ECONNREFUSED);
    drop(service);
    let cgroup = cgroup.anew()?;
    scene.assert_lost(&ends, &cgroup.name())?;
    // There is a container only once somebody is in it.
    scene.wait(&follows, "waiting", |status| status["state"] == "waiting")?;
    let mut again = Caller::start(&pair.near, Some(&cgroup))?;
    scene.wait_followed(&follows)?;
    assert_eq!(again.ask(call)?, ECONNREFUSED);
    follows.remove(&scene.mcp)?;
    assert_eq!(again.ask(call)?, 0);
    Ok(Outcome::Pass)
}

fn a_limit_that_follows_its_cgroup_is_set_in_the_new_one_and_taken_back_there(_: &Context) -> TestResult {
    if !has_controllers(&["pids"]) {
        return Ok(Outcome::Skip(Reason::NoCgroupControllers, "pids is not there".into()));
    }
    // It has the controller enabled, where that may be done.
    let _victim = Victim::new(&["pids"])?;
    let (scene, cgroup) = (Scene::new()?, Cgroup::new()?);
    let _guard = Guard::start(&scene.daemon)?;
    let limit = json!({"resource": "pids_limit", "pids": 50});
    let fault =
        following(Fault::new("resource_exhaustion").aimed(json!({"cgroup": cgroup.name()})).with(limit));
    fault.inject(&scene.mcp)?;
    assert_eq!(cgroup.get("pids.max")?.trim(), "50");
    let cgroup = cgroup.anew()?;
    scene.wait_followed(&fault)?;
    assert_eq!(cgroup.get("pids.max")?.trim(), "50");
    fault.remove(&scene.mcp)?;
    assert_eq!(cgroup.get("pids.max")?.trim(), "max");
    Ok(Outcome::Pass)
}

/// Makes the interface of a namespace.
fn make(near: &NetNs) -> Result<()> {
    near.ip(&["link", "add", INTERFACE, "up", "type", "veth", "peer", "name", "eth1"])?;
    near.ip(&["link", "set", "eth1", "up"]).map(drop)
}

fn a_fault_of_an_interface_that_was_made_anew_ends_or_follows(context: &Context) -> TestResult {
    super::on_every_attachment(context, |attach| {
        let near = NetNs::new()?;
        make(&near)?;
        let daemon = Daemon::start_with(|command| attach.configure(command))?;
        let mcp = daemon.mcp()?;
        let scene = Scene { daemon, mcp };
        let ends = Fault::new("network_partition").on(&near, json!({}));
        let follows = following(ends.clone().named("follows"));
        ends.inject(&scene.mcp)?;
        follows.inject(&scene.mcp)?;
        near.ip(&["link", "del", INTERFACE])?;
        scene.assert_lost(&ends, &format!("interface {INTERFACE}"))?;
        scene.wait(&follows, "waiting", |status| status["state"] == "waiting")?;
        make(&near)?;
        scene.wait_followed(&follows)?;
        // Nobody has to answer.
        near.ip(&["address", "add", "10.77.0.1/24", "dev", INTERFACE])?;
        near.ip(&["neigh", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:09", "dev", INTERFACE])?;
        let socket = near.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        socket.send_to(b"anybody?", (Ipv4Addr::new(10, 77, 0, 2), 9))?;
        scene.wait(&follows, "effective", |status| status["state"] == "effective")?;
        follows.remove(&scene.mcp)?;
        Ok(())
    })
}

/// A queue that has lost its device, and a link that is to go down again: their holders may notice before anybody looks.
fn what_its_holder_sees_to_first_follows_an_interface_all_the_same(context: &Context) -> TestResult {
    super::with_netem(context, || {
        let scene = Scene::new()?;
        let _guard = Guard::start(&scene.daemon)?;
        for (kind, params) in
            [("latency", json!({"delay_ms": 20})), ("link_down", json!({"down_ms": 300, "up_ms": 300}))]
        {
            let near = NetNs::new()?;
            make(&near)?;
            let fault = following(Fault::new(kind).on(&near, json!({})).with(params));
            fault.inject(&scene.mcp)?;
            near.ip(&["link", "del", INTERFACE])?;
            scene.wait(&fault, "waiting", |status| status["state"] == "waiting")?;
            make(&near)?;
            scene.wait_followed(&fault)?;
            fault.remove(&scene.mcp)?;
        }
        Ok(Outcome::Pass)
    })
}

fn a_fault_of_a_namespace_that_was_made_anew_ends_or_follows(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let near = NetNs::new()?;
    make(&near)?;
    let ends = Fault::new("network_partition").on(&near, json!({}));
    let follows = following(ends.clone().named("follows"));
    ends.inject(&scene.mcp)?;
    follows.inject(&scene.mcp)?;
    let near = near.anew()?;
    scene.assert_lost(&ends, near.name())?;
    let waiting = scene.wait(&follows, "waiting", |status| status["state"] == "waiting")?;
    assert_note(&waiting, &["network namespace"]);
    make(&near)?;
    scene.wait_followed(&follows)?;
    follows.remove(&scene.mcp)?;
    Ok(Outcome::Pass)
}

fn a_namespace_that_has_lost_its_name_has_not_gone_while_somebody_is_in_it(_: &Context) -> TestResult {
    let (scene, pair) = (Scene::new()?, Pair::new()?);
    let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let mut service = Caller::start(&pair.near, None)?;
    let fault = Fault::new("network_partition").on(&pair.near, json!({}));
    fault.inject(&scene.mcp)?;
    pair.near.lose_name()?;
    // Several looks.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(fault.status(&scene.mcp)?["active"], true);
    assert_ne!(service.ask(Ask::Trip(echo.address()))?, 0);
    drop(service);
    scene.assert_lost(&fault, pair.near.name())?;
    Ok(Outcome::Pass)
}

/// A fault that waits for a group that has gone.
fn waiting(scene: &Scene, lasting: Duration) -> Result<Fault> {
    let cgroup = Cgroup::new()?;
    let fault = following(refusing(&cgroup)).lasting(lasting);
    fault.inject(&scene.mcp)?;
    drop(cgroup);
    scene.wait(&fault, "waiting", |status| status["state"] == "waiting")?;
    Ok(fault)
}

fn a_fault_that_waits_ends_when_it_is_removed_and_leaves_nothing(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let before = Residue::take(&[])?;
    let fault = waiting(&scene, crate::fault::LONG)?;
    fault.remove(&scene.mcp)?;
    assert!(fault.status(&scene.mcp).is_err(), "it is neither active nor registered any more");
    before.assert_unchanged_within(&[], HANG)?;
    // And by whoever ends all.
    waiting(&scene, crate::fault::LONG)?;
    scene.mcp.call_tool("chaos_stop", json!({}))?.ok()?;
    let status = scene.mcp.call_tool("chaos_status", json!({}))?.ok()?;
    let active =
        status["active_faults"].as_array().is_some_and(|all| all.iter().any(|fault| fault["active"] == true));
    assert!(!active, "{status}");
    Ok(Outcome::Pass)
}

fn a_fault_that_waits_ends_at_its_time(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let fault = waiting(&scene, Duration::from_secs(5))?;
    let ended = scene.wait(&fault, "ended", |status| status["active"] == false)?;
    assert_note(&ended, &["its time was up"]);
    Ok(Outcome::Pass)
}

fn a_fault_that_waits_ends_with_the_server(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let fault = waiting(&scene, crate::fault::LONG)?;
    let server = scene.daemon.server().ok_or("no server")?;
    server.signal(Signal::SIGKILL);
    assert!(
        wait_until(HANG, || scene.daemon.server().is_some_and(|now| now.pid != server.pid)),
        "no new server"
    );
    let mcp = scene.daemon.mcp()?;
    assert!(wait_until(HANG, || fault.status(&mcp).is_ok_and(|status| status["active"] == false)));
    Ok(Outcome::Pass)
}

fn what_becomes_of_a_fault_without_its_target_is_asked_only_where_it_can_be(_: &Context) -> TestResult {
    let (scene, cgroup) = (Scene::new()?, Cgroup::new()?);
    let gone = |word: &str| json!({"cgroup": cgroup.name(), "on_target_gone": word});
    let memory = json!({"resource": "memory", "memory_mb": 1});
    for (fault, words) in [
        (Fault::new("connect_error").aimed(gone("stay")), "is not known: give"),
        (
            Fault::new("resource_exhaustion").with(memory).aimed(gone("follow")),
            "target.on_target_gone: belongs to",
        ),
        (Fault::new("process_kill").aimed(gone("end")), "target.on_target_gone: belongs to"),
        (
            Fault::new("connect_error").aimed(json!({"pid": std::process::id(), "on_target_gone": "follow"})),
            "target.on_target_gone: a number of a process",
        ),
    ] {
        let refused = fault.inject(&scene.mcp).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains(words), "{words}: {refused}");
    }
    Ok(Outcome::Pass)
}
