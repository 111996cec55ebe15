//! What becomes of the packets of one service without an interface: measured by a process in a control group of the test's, by one
//! beside it on the same interface, and from the other side of the cable.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc::{EAGAIN, ETIMEDOUT};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::guardian::listen_as;
use super::impairments::udp_counter;
use super::served::{self, AT_ONCE, LEASE, Served};
use super::{Context, Outcome, STANDSTILL, TestResult, tests};
use crate::caller::{Ask, Caller, mapped};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, is_silence, receive};
use crate::netns::NetNs;
use crate::plug::Plug;
use crate::process::{linger, wait_until};
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_partition_of_a_service_cuts_it_off_both_ways_on_both_families_and_nobody_beside_it,
    a_partition_of_a_service_in_one_direction_lets_the_other_through,
    a_timeout_of_a_service_loses_what_it_sends_and_spares_the_loopback,
    a_partition_of_a_service_is_narrowed_by_peer_protocol_and_port_and_of_the_loopback_when_that_is_named,
    a_partition_of_a_service_spares_protected_peers_and_ports_and_those_of_sshd,
    a_partition_of_a_service_loses_its_share_of_the_packets,
    a_partition_of_a_service_is_silent_so_that_its_connections_outlive_it,
    two_partitions_of_one_service_are_two_and_ending_one_leaves_the_other,
    a_partition_of_a_process_without_an_interface_is_of_its_group,
    a_partition_of_a_service_ends_at_its_time,
    killing_every_process_at_once_ends_a_partition_of_a_service_at_once,
    stopping_every_process_ends_a_partition_of_a_service_with_the_lease,
    a_holder_that_dies_takes_its_partition_of_a_service_with_it,
    what_cannot_be_cut_off_without_an_interface_is_refused_by_name,
];

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Where the service listens for datagrams.
const HEARS: u16 = 9;

/// A service in a group of its own, one beside it, a peer of both, and a neighbour on the service's loopback.
struct Scene {
    service: Caller,
    beside: Caller,
    echo: Echo,
    echo_v6: Echo,
    neighbour: Echo,
    daemon: Daemon,
    mcp: Mcp,
    before: Residue,
    cgroup: Cgroup,
    pair: Pair,
}

impl Scene {
    fn new() -> Result<Self> {
        Self::with(|_| {})
    }

    fn with(configure: impl FnOnce(&mut Command)) -> Result<Self> {
        let (pair, cgroup) = (Pair::new()?, Cgroup::new()?);
        pair.near.ip(&["link", "set", "lo", "up"])?;
        let service = Caller::start(&pair.near, Some(&cgroup))?;
        let beside = Caller::start(&pair.near, None)?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let echo_v6 = Echo::start(&pair.far, Pair::FAR_V6, 7)?;
        let neighbour = Echo::start(&pair.near, LOOPBACK, 7)?;
        let daemon = Daemon::start_with(configure)?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        Ok(Self { service, beside, echo, echo_v6, neighbour, daemon, mcp, before, cgroup, pair })
    }

    fn fault(&self, narrow: Value) -> Fault {
        Fault::new("network_partition").aimed(json!({"cgroup": self.cgroup.name()})).narrowed(narrow)
    }

    fn trip(&mut self) -> Result<i32> {
        self.service.ask(Ask::Trip(self.echo.address()))
    }

    /// Fails unless datagrams there and back, and connections, of the service get this and all beside it succeed.
    fn assert_service_gets(&mut self, datagram: i32, connection: i32) -> Result<()> {
        let v4 = self.echo.address();
        for to in [v4, self.echo_v6.address(), mapped(v4)] {
            for (call, errno) in [(Ask::Trip(to), datagram), (Ask::Reach(to), connection)] {
                assert_eq!(self.service.ask(call)?, errno, "{call:?} of the service");
                assert_eq!(self.beside.ask(call)?, 0, "{call:?} beside the service");
            }
        }
        let neighbour = self.neighbour.address();
        for call in [Ask::Trip(neighbour), Ask::Reach(neighbour)] {
            assert_eq!(self.service.ask(call)?, 0, "{call:?} over the loopback");
        }
        Ok(())
    }

    /// Whether a datagram from the peer reaches the service.
    fn hears(&mut self) -> Result<bool> {
        let (far, service) = (&self.pair.far, &mut self.service);
        let to = SocketAddr::new(Pair::NEAR_V4, HEARS);
        while_sending(far, to, || match service.ask(Ask::Hear(to))? {
            0 => Ok(true),
            EAGAIN => Ok(false),
            errno => Err(Error::Different(format!("the service hears errno {errno}"))),
        })
    }

    /// Whether a datagram of the service reaches the peer; the service is never told that it does not.
    fn is_heard(&mut self) -> Result<bool> {
        let to = SocketAddr::new(Pair::FAR_V4, HEARS);
        let socket =
            self.pair.far.run(|| UdpSocket::bind(to)).map_err(Error::io("listen on", "the far side"))?;
        let failed = Error::io("hear on", "the far side");
        assert_eq!(self.service.ask(Ask::Send(to))?, 0, "the service is told");
        // Over a cable it is there at once.
        match receive(&socket, &mut [0; 8], Duration::from_millis(300)) {
            Ok(_) => Ok(true),
            Err(error) if is_silence(&error) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Served for Scene {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn mcp(&self) -> &Mcp {
        &self.mcp
    }

    fn is_normal(&mut self) -> Result<bool> {
        // Not waited for long, so that there are many of them.
        Ok(self.service.ask(Ask::TripSoon(self.echo.address()))? == 0)
    }

    fn assert_all_is_normal(&mut self) -> Result<()> {
        self.assert_service_gets(0, 0)
    }

    fn assert_no_residue(&self) -> Result<()> {
        self.before.assert_unchanged_within(&[&self.pair.near], HANG)
    }
}

/// Does something while somebody in a namespace sends datagrams there.
fn while_sending<T>(from: &NetNs, to: SocketAddr, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let socket = from.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let socket = socket.map_err(Error::io("bind", "a sender"))?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // Refused while nobody listens yet.
                let _ = socket.send_to(b"x", to);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let done = act();
        over.store(true, Ordering::Relaxed);
        done
    })
}

fn evidence(fault: &Fault, mcp: &Mcp) -> Result<[u64; 3]> {
    let status = fault.status(mcp)?;
    let of = |what: &str| status["evidence"][format!("packets_{what}")].as_u64().unwrap_or_default();
    Ok([of("matched"), of("affected"), of("protected")])
}

fn a_partition_of_a_service_cuts_it_off_both_ways_on_both_families_and_nobody_beside_it(
    _: &Context,
) -> TestResult {
    let mut scene = Scene::new()?;
    scene.assert_service_gets(0, 0)?;
    assert!(scene.hears()? && scene.is_heard()?, "not normal before");
    let fault = scene.fault(json!({}));
    let answer = fault.inject(&scene.mcp)?;
    assert_eq!((&answer["lifetime"], &answer["state"]), (&json!("kernel"), &json!("no_traffic")), "{answer}");
    let description = answer["description"].as_str().unwrap_or_default();
    assert!(description.ends_with("on every interface but lo, both ways"), "{answer}");
    // Nobody is told: who waits, waits in vain.
    scene.assert_service_gets(EAGAIN, ETIMEDOUT)?;
    assert!(!scene.hears()? && !scene.is_heard()?, "it is not cut off");
    let status = fault.status(&scene.mcp)?;
    assert_eq!(status["state"], "effective", "{status}");
    let [matched, affected, protected] = evidence(&fault, &scene.mcp)?;
    assert!(matched >= 6 && matched == affected && protected == 0, "{status}");
    fault.remove(&scene.mcp)?;
    scene.assert_service_gets(0, 0)?;
    assert!(scene.hears()? && scene.is_heard()?, "not normal after");
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_partition_of_a_service_in_one_direction_lets_the_other_through(_: &Context) -> TestResult {
    let mut scene = Scene::new()?;
    for (direction, hears, is_heard) in
        [("egress", true, false), ("ingress", false, true), ("both", false, false)]
    {
        assert_eq!((scene.hears()?, scene.is_heard()?), (true, true), "before {direction}");
        let fault = scene.fault(json!({"direction": direction}));
        fault.inject(&scene.mcp)?;
        assert_eq!((scene.hears()?, scene.is_heard()?), (hears, is_heard), "{direction}");
        // The answer does not come whichever of them is lost.
        scene.assert_service_gets(EAGAIN, ETIMEDOUT)?;
        fault.remove(&scene.mcp)?;
        scene.assert_service_gets(0, 0)?;
    }
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_timeout_of_a_service_loses_what_it_sends_and_spares_the_loopback(_: &Context) -> TestResult {
    let mut scene = Scene::new()?;
    scene.assert_service_gets(0, 0)?;
    let fault = Fault::new("timeout").aimed(json!({"cgroup": scene.cgroup.name()}));
    let answer = fault.inject(&scene.mcp)?;
    let description = answer["description"].as_str().unwrap_or_default();
    assert!(description.starts_with("timeout: ") && description.ends_with(", egress"), "{answer}");
    scene.assert_service_gets(EAGAIN, ETIMEDOUT)?;
    assert_eq!((scene.hears()?, scene.is_heard()?), (true, false));
    // What this host says to itself by another of its addresses goes over the loopback, too.
    scene.service.plug(Plug::Take, SocketAddr::new(Pair::NEAR_V4, 4000))?;
    assert_eq!(scene.service.ask(Ask::Reach((Pair::NEAR_V4, 4000).into()))?, 0);
    fault.remove(&scene.mcp)?;
    scene.assert_service_gets(0, 0)?;
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_partition_of_a_service_is_narrowed_by_peer_protocol_and_port_and_of_the_loopback_when_that_is_named(
    _: &Context,
) -> TestResult {
    let mut scene = Scene::new()?;
    let other = Echo::start(&scene.pair.far, Pair::FAR_V4, 8)?;
    let (peer, peer_v6, other, local) =
        (scene.echo.address(), scene.echo_v6.address(), other.address(), scene.neighbour.address());
    for (narrow, failing, passing) in [
        (
            json!({"cidr": "10.77.0.2", "protocol": "tcp"}),
            vec![Ask::Reach(peer), Ask::Reach(other)],
            vec![Ask::Trip(peer), Ask::Reach(peer_v6), Ask::Reach(local)],
        ),
        (
            json!({"cidr": "fd77::/64", "protocol": "udp"}),
            vec![Ask::Trip(peer_v6)],
            vec![Ask::Reach(peer_v6), Ask::Trip(peer), Ask::Trip(local)],
        ),
        (
            json!({"remote_port": "8-9"}),
            vec![Ask::Trip(other), Ask::Reach(other)],
            vec![Ask::Trip(peer), Ask::Reach(peer_v6)],
        ),
        (json!({"local_port": 8}), vec![], vec![Ask::Trip(other), Ask::Trip(peer), Ask::Reach(other)]),
        (
            json!({"cidr": "127.0.0.0/8", "port": 7}),
            vec![Ask::Trip(local), Ask::Reach(local)],
            vec![Ask::Trip(peer), Ask::Reach(peer_v6)],
        ),
        (json!({"host": "127.0.0.1"}), vec![Ask::Trip(local)], vec![Ask::Trip(peer), Ask::Trip(other)]),
    ] {
        for call in failing.iter().chain(&passing) {
            assert_eq!(scene.service.ask(*call)?, 0, "before {narrow}: {call:?}");
        }
        let fault = scene.fault(narrow.clone());
        fault.inject(&scene.mcp)?;
        for call in failing {
            let errno = if matches!(call, Ask::Trip(_)) { EAGAIN } else { ETIMEDOUT };
            assert_eq!(scene.service.ask(call)?, errno, "{narrow}: {call:?}");
            assert_eq!(scene.beside.ask(call)?, 0, "{narrow}: {call:?} beside");
        }
        for call in passing {
            assert_eq!(scene.service.ask(call)?, 0, "{narrow}: {call:?}");
        }
        fault.remove(&scene.mcp)?;
    }
    scene.assert_service_gets(0, 0)?;
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_partition_of_a_service_spares_protected_peers_and_ports_and_those_of_sshd(_: &Context) -> TestResult {
    let policy = tempfile::NamedTempFile::new()?;
    std::fs::write(policy.path(), "[protect]\ncidrs = [\"fd77::2/128\"]\ntcp_ports = [2222]\n")?;
    let mut scene = Scene::with(|command| {
        command.arg("--policy").arg(policy.path());
    })?;
    // Where the service listens; who asks is on the other side of the cable.
    let mut peer = Caller::start(&scene.pair.far, None)?;
    let (spared, other) = (SocketAddr::new(Pair::NEAR_V4, 2222), SocketAddr::new(Pair::NEAR_V4, 2224));
    let at_home = SocketAddr::new(LOOPBACK, 2222);
    let _at_home = Echo::start(&scene.pair.near, LOOPBACK, 2222)?;
    for address in [spared, other] {
        assert_eq!(scene.service.plug(Plug::Take, address)?, 0);
        assert_eq!(peer.ask(Ask::Reach(address))?, 0, "before: {address}");
    }
    let fault = scene.fault(json!({}));
    fault.inject(&scene.mcp)?;
    assert_eq!((peer.ask(Ask::Reach(spared))?, peer.ask(Ask::Reach(other))?), (0, ETIMEDOUT));
    let (v4, v6) = (scene.echo.address(), scene.echo_v6.address());
    assert_eq!((scene.trip()?, scene.service.ask(Ask::Reach(v4))?), (EAGAIN, ETIMEDOUT));
    assert_eq!((scene.service.ask(Ask::Trip(v6))?, scene.service.ask(Ask::Reach(v6))?), (0, 0));
    let [matched, affected, protected] = evidence(&fault, &scene.mcp)?;
    assert!(
        protected >= 6 && affected >= 2 && matched >= protected + affected,
        "{matched} {affected} {protected}"
    );
    fault.remove(&scene.mcp)?;
    // The host's sshd listens at that other port by now, somewhere.
    let elsewhere = Pair::new()?;
    let sshd = listen_as("sshd", &elsewhere.near, other.port())?;
    fault.inject(&scene.mcp)?;
    assert_eq!((peer.ask(Ask::Reach(other))?, scene.service.ask(Ask::Reach(v4))?), (0, ETIMEDOUT));
    fault.remove(&scene.mcp)?;
    drop((sshd, elsewhere));
    // Of the loopback, by its name: a port of this host is spared, whoever asks for it.
    let named = scene.fault(json!({"cidr": "127.0.0.1"})).named("named");
    named.inject(&scene.mcp)?;
    let neighbour = scene.neighbour.address();
    assert_eq!(
        (scene.service.ask(Ask::Reach(at_home))?, scene.service.ask(Ask::Reach(neighbour))?),
        (0, ETIMEDOUT)
    );
    named.remove(&scene.mcp)?;
    assert_eq!((peer.ask(Ask::Reach(other))?, scene.service.ask(Ask::Reach(neighbour))?), (0, 0));
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_partition_of_a_service_loses_its_share_of_the_packets(_: &Context) -> TestResult {
    const SENT: u32 = 400;
    let (mut scene, sent) = (Scene::new()?, u64::from(SENT));
    // What found its receiver's buffer full has arrived, too.
    let arrived = || -> Result<u64> {
        let far = &scene.pair.far;
        Ok(udp_counter(far, "InDatagrams")? + udp_counter(far, "RcvbufErrors")?)
    };
    let fault = scene
        .fault(json!({"direction": "egress", "protocol": "udp"}))
        .with(json!({"packet_probability": 0.5}));
    fault.inject(&scene.mcp)?;
    let before = arrived()?;
    assert_eq!(scene.service.failures(SENT, Ask::Send(scene.echo.address()))?, 0, "the service is told");
    let [matched, affected, _] = evidence(&fault, &scene.mcp)?;
    // Whatever is under way is there by then, also what the fault has only counted.
    linger(Duration::from_millis(300));
    wait_until(HANG, || arrived().is_ok_and(|now| now - before + affected >= sent));
    let lost = sent.saturating_sub(arrived()? - before);
    assert_eq!((matched, affected), (sent, lost), "packets that were met, and that have not arrived");
    // Outside of this once in some 10^9 runs.
    assert!((140..=260).contains(&lost), "{lost} of {sent} packets were lost");
    fault.remove(&scene.mcp)?;
    scene.assert_service_gets(0, 0)?;
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

/// Longer than TCP goes on about a congestion of its own host's.
fn a_partition_of_a_service_is_silent_so_that_its_connections_outlive_it(_: &Context) -> TestResult {
    const LONG: Duration = Duration::from_secs(9);
    let mut scene = Scene::new()?;
    let to = scene.echo.address();
    assert_eq!((scene.service.ask(Ask::Keep(to))?, scene.service.ask(Ask::Say(to))?), (0, 0));
    let fault = scene.fault(json!({}));
    fault.inject(&scene.mcp)?;
    let started = Instant::now();
    while started.elapsed() < LONG {
        assert_eq!(scene.service.ask(Ask::Say(to))?, EAGAIN, "after {:?}", started.elapsed());
    }
    fault.remove(&scene.mcp)?;
    // It is sent again when the timer says so, which has doubled each time.
    let goes_on = wait_until(HANG, || matches!(scene.service.ask(Ask::Say(to)), Ok(0)));
    assert!(goes_on, "the connection has not gone on");
    scene.assert_service_gets(0, 0)?;
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn two_partitions_of_one_service_are_two_and_ending_one_leaves_the_other(_: &Context) -> TestResult {
    let mut scene = Scene::new()?;
    let (trip, reach) = (Ask::Trip(scene.echo.address()), Ask::Reach(scene.echo.address()));
    let tcp = scene.fault(json!({"protocol": "tcp"})).named("tcp");
    let udp = scene.fault(json!({"protocol": "udp"})).named("udp");
    tcp.inject(&scene.mcp)?;
    udp.inject(&scene.mcp)?;
    assert_eq!((scene.service.ask(trip)?, scene.service.ask(reach)?), (EAGAIN, ETIMEDOUT));
    tcp.remove(&scene.mcp)?;
    assert_eq!((scene.service.ask(trip)?, scene.service.ask(reach)?), (EAGAIN, 0));
    udp.remove(&scene.mcp)?;
    scene.assert_service_gets(0, 0)?;
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_partition_of_a_process_without_an_interface_is_of_its_group(_: &Context) -> TestResult {
    let mut scene = Scene::new()?;
    let fault = Fault::new("network_partition").aimed(json!({"pid": scene.service.pid()}));
    let answer = fault.inject(&scene.mcp)?;
    let description = answer["description"].as_str().unwrap_or_default();
    assert!(description.contains(&scene.cgroup.name()), "{answer}");
    scene.assert_service_gets(EAGAIN, ETIMEDOUT)?;
    fault.remove(&scene.mcp)?;
    scene.assert_service_gets(0, 0)?;
    scene.assert_no_residue()?;
    Ok(Outcome::Pass)
}

fn a_partition_of_a_service_ends_at_its_time(_: &Context) -> TestResult {
    let mut scene = Scene::new()?;
    let fault = scene.fault(json!({}));
    served::ends_at_its_time(&mut scene, &fault)?;
    Ok(Outcome::Pass)
}

fn survives(blow: Signal, limit: Duration) -> TestResult {
    let mut scene = Scene::new()?;
    let fault = scene.fault(json!({}));
    served::survives(&mut scene, &fault, blow, limit)?;
    Ok(Outcome::Pass)
}

fn killing_every_process_at_once_ends_a_partition_of_a_service_at_once(_: &Context) -> TestResult {
    survives(Signal::SIGKILL, AT_ONCE)
}

fn stopping_every_process_ends_a_partition_of_a_service_with_the_lease(_: &Context) -> TestResult {
    survives(Signal::SIGSTOP, LEASE + STANDSTILL)
}

fn a_holder_that_dies_takes_its_partition_of_a_service_with_it(_: &Context) -> TestResult {
    let mut scene = Scene::new()?;
    let fault = scene.fault(json!({}));
    served::ends_with_its_holder(&mut scene, &fault)?;
    Ok(Outcome::Pass)
}

fn what_cannot_be_cut_off_without_an_interface_is_refused_by_name(_: &Context) -> TestResult {
    let (cgroup, other) = (Cgroup::new()?, Cgroup::new()?);
    let daemon = Daemon::start_with(|command| cgroup.place(command))?;
    let mcp = daemon.mcp()?;
    for (kind, target, code, words) in [
        ("network_partition", json!({"cgroup": cgroup.name()}), "TARGET_PROTECTED", "cgroup"),
        ("network_partition", json!({"cgroup": "/"}), "INVALID_PARAMETER", "target.cgroup"),
        ("timeout", json!({"cgroup": "no/such"}), "TARGET_NOT_FOUND", "no/such"),
        ("timeout", json!({"cgroup": other.name(), "netns": "a"}), "INVALID_PARAMETER", "target.netns"),
        ("network_partition", json!({}), "MISSING_PARAMETER", "target.interface"),
    ] {
        let fault = json!({"fault_name": "f", "fault_type": kind, "probability": 1, "target": target});
        let answer = mcp.call_tool("chaos_plan", fault)?;
        let error = &answer.json["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert!(answer.is_error && error["code"] == code, "{kind} {target}: {}", answer.json);
        assert!(message.contains(words), "{kind} {target}: {message}");
    }
    drop(daemon);
    Ok(Outcome::Pass)
}
