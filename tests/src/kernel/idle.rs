//! A fault that meets nothing says why: each reason where it holds, in namespaces of the test's own, and none where nothing passes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use serde_json::{Value, json};

use super::evidence::{begin, end};
use super::oracle::packets::filter_at;
use super::{Attach, Context, Outcome, TestResult, tests};
use crate::bpf::load_passing;
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::Echo;
use crate::netns::NetNs;
use crate::pair::INTERFACE;
use crate::process::{Killed, wait_until};
use crate::{Daemon, Error, Mcp, Pair, Reason, Residue, Result};

tests![
    a_fault_where_nothing_passes_invents_no_reason,
    a_fault_of_another_port_protocol_peer_or_direction_says_what_passes,
    a_fault_whose_traffic_is_protected_says_so,
    a_fault_of_frames_that_hide_their_addresses_says_so,
    a_fault_behind_a_program_of_others_names_it,
    a_fault_on_another_interface_than_the_route_takes_names_that_one,
    a_fault_of_a_group_with_nobody_or_other_ports_in_it_says_so,
    a_fault_of_connecting_says_that_connections_are_there_already,
    a_run_whose_fault_met_nothing_tells_the_reason,
    a_signal_of_which_nobody_takes_notice_is_no_effect_and_plan_and_status_say_so,
];

/// Nothing is said before the first look is over, which begins after 3 s.
const SILENCE: Duration = Duration::from_secs(8);
const WORDS: &str = "the likely reason: ";

struct Scene {
    daemon: Daemon,
    mcp: Mcp,
    pair: Pair,
}

impl Scene {
    fn new() -> Result<Self> {
        let pair = Pair::new()?;
        pair.near.ip(&["link", "set", "lo", "up"])?;
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        Ok(Self { daemon, mcp, pair })
    }

    fn partition(&self, narrow: Value) -> Fault {
        Fault::new("network_partition").on(&self.pair.near, narrow)
    }

    /// Fails unless the status of a fault tells a reason with these words while `traffic` goes on, and its removal as well.
    fn assert_reason(&self, fault: &Fault, words: &[&str], traffic: impl Fn() + Send + Sync) -> TestResult {
        fault.inject(&self.mcp)?;
        let over = AtomicBool::new(false);
        let note = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    traffic();
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let mut last = Value::Null;
            wait_until(HANG, || {
                last = fault.status(&self.mcp).unwrap_or_default();
                last["note"].as_str().is_some_and(|note| note.contains(WORDS))
            });
            over.store(true, Ordering::Relaxed);
            last
        });
        let told = note["note"].as_str().unwrap_or_default();
        if !words.iter().all(|words| told.contains(words)) {
            return Err(Error::Different(format!("{words:?}: {note}; {}", self.daemon.log())).into());
        }
        let removed = self
            .mcp
            .call_tool("chaos_inject_fault", json!({"fault_name": fault.name(), "action": "remove"}))?;
        let removed = removed.ok()?;
        assert!(
            removed["note"].as_str().is_some_and(|note| words.iter().all(|words| note.contains(words))),
            "{removed}"
        );
        Ok(Outcome::Pass)
    }
}

/// A datagram from one namespace to an address; nobody has to take it.
fn send(from: &NetNs, to: SocketAddr) -> impl Fn() + Send + Sync + '_ {
    let socket = from.run(|| UdpSocket::bind((unspecified(to), 0)));
    move || {
        // What is refused was sent.
        let _ = socket.as_ref().map(|socket| socket.send_to(b"anybody?", to));
    }
}

fn unspecified(like: SocketAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn far(port: u16) -> SocketAddr {
    (Pair::FAR_V4, port).into()
}

fn a_fault_where_nothing_passes_invents_no_reason(_: &Context) -> TestResult {
    let (scene, cgroup) = (Scene::new()?, Cgroup::new()?);
    let before = Residue::take(&[&scene.pair.near])?;
    let mut service = Caller::start(&scene.pair.near, Some(&cgroup))?;
    let device = scene.partition(json!({"cidr": "10.77.0.2", "protocol": "tcp", "port": 80}));
    let group = Fault::new("connect_error").aimed(json!({"cgroup": cgroup.name(), "port": 80}));
    device.inject(&scene.mcp)?;
    group.inject(&scene.mcp)?;
    let began = Instant::now();
    while began.elapsed() < SILENCE {
        for fault in [&device, &group] {
            let status = fault.status(&scene.mcp)?;
            assert_eq!((&status["state"], status.get("note")), (&json!("no_traffic"), None), "{status}");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    // And once they act there is none to be told.
    let echo = Echo::start(&scene.pair.far, Pair::FAR_V4, 80)?;
    assert_ne!(service.ask(Ask::Connect(echo.address()))?, 0);
    let acts = wait_until(HANG, || group.status(&scene.mcp).is_ok_and(|now| now["state"] == "effective"));
    assert!(acts, "{}", group.status(&scene.mcp)?);
    assert_eq!(group.status(&scene.mcp)?.get("note"), None);
    device.remove(&scene.mcp)?;
    group.remove(&scene.mcp)?;
    before.assert_unchanged_within(&[&scene.pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_fault_of_another_port_protocol_peer_or_direction_says_what_passes(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let before = Residue::take(&[&scene.pair.near])?;
    let near: SocketAddr = (Pair::NEAR_V4, 5353).into();
    for (narrow, from, to, words) in [
        (
            json!({"protocol": "udp", "port": 80}),
            &scene.pair.near,
            far(5353),
            ["udp, remote port 5353", "about udp port 80"],
        ),
        (json!({"protocol": "tcp"}), &scene.pair.near, far(5353), ["udp, remote port 5353", "about tcp"]),
        (
            json!({"cidr": "10.77.0.9"}),
            &scene.pair.near,
            far(5353),
            ["of peer 10.77.0.2", "none that the fault names"],
        ),
        (
            json!({"cidr": "10.77.0.1"}),
            &scene.pair.near,
            far(5353),
            ["10.77.0.1 is the near end", "peer is 10.77.0.2"],
        ),
        (
            json!({"direction": "egress", "remote_port": 5353, "protocol": "udp"}),
            &scene.pair.far,
            near,
            ["udp", "about udp"],
        ),
    ] {
        scene.assert_reason(&scene.partition(narrow), &words, send(from, to))?;
    }
    // Of one that could answer, the answers are what leaves: the fault is about what arrives.
    let way = scene.partition(json!({"direction": "ingress", "cidr": "10.77.0.2", "protocol": "udp"}));
    scene.pair.far.ip(&["neigh", "replace", "10.77.0.1", "lladdr", "02:00:00:00:00:09", "dev", INTERFACE])?;
    scene.assert_reason(
        &way,
        &["what passes leaves", "give direction \"egress\""],
        send(&scene.pair.near, far(5353)),
    )?;
    before.assert_unchanged_within(&[&scene.pair.near], HANG)?;
    Ok(Outcome::Pass)
}

fn a_fault_whose_traffic_is_protected_says_so(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    let daemon = Daemon::start_under("[protect]\ncidrs = [\"10.77.0.2/32\"]\n")?;
    let mcp = daemon.mcp()?;
    let scene = Scene { daemon, mcp, pair };
    let fault = scene.partition(json!({"direction": "egress", "protocol": "udp"}));
    scene.assert_reason(&fault, &["that matched are protected"], send(&scene.pair.near, far(9)))
}

/// Sends a frame of this type, from the near side's interface.
fn send_frame(from: &NetNs, kind: u16, payload: &[u8]) -> Result<impl Fn() + Send + Sync + use<>> {
    let frame = [&[2_u8; 12][..], &kind.to_be_bytes(), payload].concat();
    let index = from
        .run(|| if_nametoindex(INTERFACE))
        .map_err(std::io::Error::from)
        .map_err(Error::io("look up", INTERFACE))?;
    let socket = from.run(|| socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None));
    let socket = socket.map_err(std::io::Error::from).map_err(Error::io("open", "a packet socket"))?;
    // SAFETY: sockaddr_ll is plain old data; all zeroes is a valid value.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_protocol = kind.to_be();
    to.sll_ifindex = index.cast_signed();
    Ok(move || {
        // SAFETY: the frame is read as long as it is, and the address as long as its type is; both live through the call.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        assert!(sent > 0, "{}", std::io::Error::last_os_error());
    })
}

/// An IPv4 packet with this transport from the near side to the far one.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap_or_default().to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
    [&head, payload].concat()
}

fn a_fault_of_frames_that_hide_their_addresses_says_so(context: &Context) -> TestResult {
    if context.kernel < (6, 6) {
        return Ok(Outcome::Skip(Reason::NoTcx, "frames are looked at by tcx".into()));
    }
    let scene = Scene::new()?;
    // A datagram to port 9, behind two tags, and in a tunnel.
    let datagram = packet(17, &[0x9c, 0x40, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
    let tags = [&[0, 5, 0x81, 0, 0, 7, 8, 0][..], &datagram].concat();
    let gre = packet(47, &[&[0, 0, 8, 0][..], &packet(17, &datagram[20..])].concat());
    for (kind, payload, words) in [
        (0x88a8, tags, ["802.1ad (0x88a8), 802.1Q (0x8100)", "aim at the interface of the VLAN"]),
        (0x8847, vec![0; 40], ["is no IP", "MPLS (0x8847)"]),
        (0x0800, gre, ["is within GRE", "the tunnel's own interface"]),
    ] {
        let fault = scene.partition(json!({"protocol": "udp", "port": 9, "direction": "egress"}));
        scene.assert_reason(&fault, &words, send_frame(&scene.pair.near, kind, &payload)?)?;
    }
    Ok(Outcome::Pass)
}

fn a_fault_behind_a_program_of_others_names_it(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    filter_at(&pair.near, load_passing("cni")?.as_fd(), "cni", 1)?;
    let daemon = Daemon::start_with(|command| Attach::Clsact.configure(command))?;
    let mcp = daemon.mcp()?;
    let scene = Scene { daemon, mcp, pair };
    let fault = scene.partition(json!({"direction": "egress"}));
    let words = ["bpf filter \"cni\" (preference 1, egress) runs before the fault"];
    scene.assert_reason(&fault, &words, send(&scene.pair.near, far(9)))
}

fn a_fault_on_another_interface_than_the_route_takes_names_that_one(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let near = &scene.pair.near;
    near.ip_batch(
        "link add eth1 type veth peer name eth2\n\
         address add 10.88.0.1/24 dev eth1\n\
         link set eth1 up\n\
         link set eth2 up\n\
         neigh add 10.88.0.2 lladdr 02:00:00:00:00:09 dev eth1\n",
    )?;
    let fault = scene.partition(json!({"cidr": "10.88.0.2"}));
    let words = ["packets to 10.88.0.2 leave by eth1, and not by eth0"];
    scene.assert_reason(&fault, &words, send(near, (Ipv4Addr::new(10, 88, 0, 2), 9).into()))
}

fn a_fault_of_a_group_with_nobody_or_other_ports_in_it_says_so(_: &Context) -> TestResult {
    let (scene, cgroup) = (Scene::new()?, Cgroup::new()?);
    let severed = |narrow: Value| {
        Fault::new("network_partition").aimed(json!({"cgroup": cgroup.name()})).narrowed(narrow)
    };
    scene.assert_reason(&severed(json!({})), &["nobody is in cgroup", &cgroup.name()], || ())?;
    let service = Mutex::new(Caller::start(&scene.pair.near, Some(&cgroup))?);
    let asks = || {
        let sent = service.lock().map(|mut service| service.ask(Ask::Send(far(5353))));
        assert!(matches!(sent, Ok(Ok(_))), "{sent:?}");
    };
    let words = ["udp, remote port 5353", "about udp port 80"];
    scene.assert_reason(&severed(json!({"protocol": "udp", "port": 80})), &words, asks)?;
    let connecting = Fault::new("connect_error").aimed(json!({"cgroup": cgroup.name(), "protocol": "tcp"}));
    scene.assert_reason(&connecting, &["udp, remote port 5353", "about tcp"], asks)
}

fn a_fault_of_connecting_says_that_connections_are_there_already(_: &Context) -> TestResult {
    let (scene, cgroup) = (Scene::new()?, Cgroup::new()?);
    let echo = Echo::start(&scene.pair.far, Pair::FAR_V4, 7)?;
    let mut service = Caller::start(&scene.pair.near, Some(&cgroup))?;
    assert_eq!(service.ask(Ask::Keep(echo.address()))?, 0);
    let service = Mutex::new(service);
    let asks = || {
        let said = service.lock().map(|mut service| service.ask(Ask::Say(echo.address())));
        assert!(matches!(said, Ok(Ok(0))), "{said:?}");
    };
    let fault = Fault::new("connect_error").aimed(json!({"cgroup": cgroup.name(), "port": 7}));
    scene.assert_reason(&fault, &["connections are there already", "meets new ones"], asks)
}

fn a_run_whose_fault_met_nothing_tells_the_reason(_: &Context) -> TestResult {
    let (scene, cgroup) = (Scene::new()?, Cgroup::new()?);
    let fault = Fault::new("network_partition").aimed(json!({"cgroup": cgroup.name()}));
    let run = begin(&scene.mcp, &fault, 7.0, false)?;
    let told = end(&scene.mcp, &run)?;
    let error = told["run"]["error"].as_str().unwrap_or_default();
    assert_eq!(told["run"]["verdict"], "unverified", "{told}");
    assert!(error.contains(WORDS) && error.contains("nobody is in cgroup"), "{told}");
    Ok(Outcome::Pass)
}

/// A child that ignores SIGTERM.
fn deaf_child() -> Result<Killed> {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM; read -r line"]).stdin(Stdio::piped());
    let child = Killed(command.spawn().map_err(Error::io("start", "a child"))?);
    let status = format!("/proc/{}/status", child.0.id());
    let ignores = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & 1 << 14 != 0)
    };
    match wait_until(HANG, ignores) {
        true => Ok(child),
        false => Err(Error::Hung { what: "a child that ignores SIGTERM".into() }),
    }
}

fn a_signal_of_which_nobody_takes_notice_is_no_effect_and_plan_and_status_say_so(_: &Context) -> TestResult {
    let (scene, child) = (Scene::new()?, deaf_child()?);
    let target = json!({"pid": child.0.id()});
    let params = json!({"signal": "15"});
    let asked = json!({"fault_name": "p", "fault_type": "process_kill", "probability": 1, "target": target, "params": params});
    let planned = scene.mcp.call_tool("chaos_plan", asked)?.ok()?;
    let said = planned["warnings"].to_string();
    assert!(said.contains("1 of 1 take no notice of SIGTERM") && said.contains("ignores it"), "{planned}");
    let fault = Fault::new("process_kill").aimed(target).with(params);
    scene.assert_reason(&fault, &["take no notice of SIGTERM", "SIGKILL"], || ())
}
