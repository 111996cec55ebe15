//! The host's own life: what no fault may cut, whatever it was told to match.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

use super::oracle::Fake;
use super::scene::Scene;
use super::{Context, Outcome, TestResult, tests, with_netem};
use crate::daemon::policy_file;
use crate::fault::Fault;
use crate::late::{HANG, within};
use crate::measure::{Echo, Tcp, any, icmp_rtt, receive, tcp_rtt, udp_rtt};
use crate::pair::INTERFACE;
use crate::process::wait_until;
use crate::{Daemon, Error, NetNs, Pair, Result};

tests![
    the_daemon_answers_and_stops_while_everything_on_every_device_is_cut,
    loopback_is_left_alone_unless_it_is_named,
    ssh_sessions_go_on_and_begin_under_every_fault_on_everything,
    ssh_sessions_go_on_and_begin_under_every_queue_for_everything,
    an_ssh_session_goes_on_wherever_sshd_listens_and_where_it_did_so_does_none,
    an_ssh_session_goes_on_wherever_sshd_listens_under_a_queue_for_everything,
    arp_and_neighbour_discovery_pass_every_fault_on_everything,
    arp_and_neighbour_discovery_pass_every_queue_for_everything,
    dhcp_passes_every_fault_on_everything,
    dhcp_passes_every_queue_for_everything,
];

const PATIENCE: Duration = Duration::from_millis(400);
/// Half of what a queue of these tests holds a packet up for.
const PROMPT: Duration = Duration::from_secs(1);
/// The answer that only TCP has.
const RESET: &str = "reset";
const V4_LO: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6_LO: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// All of both versions, by prefix: what a caller writes who means everything.
fn everything() -> Value {
    json!({"cidrs": ["0.0.0.0/0", "::/0"], "direction": "both"})
}

/// Every fault of packets that drops or answers them, on everything; of the answers by ICMP, which differ by a number, one.
fn plain(near: &NetNs) -> Vec<Fault> {
    let error = |answer: &str| {
        Fault::new("error").named(answer).on(near, everything()).with(json!({"answer": answer}))
    };
    let cut = |kind| Fault::new(kind).on(near, everything());
    vec![error(RESET), error("host_unreachable"), cut("network_partition"), cut("timeout")]
}

/// Every fault of packets that has them queued, on everything, and as badly as it can; but for copies, which keep nothing from
/// arriving.
fn queues(near: &NetNs) -> Vec<Fault> {
    let faults = [
        ("latency", json!({"delay_ms": 2000})),
        ("packet_loss", json!({"loss_percent": 100})),
        ("packet_corrupt", json!({"corrupt_percent": 100})),
        ("packet_reorder", json!({"reorder_percent": 1, "delay_ms": 2000})),
        ("bandwidth", json!({"rate_kbit": 16})),
    ];
    faults.map(|(kind, params)| Fault::new(kind).on(near, everything()).with(params)).into()
}

/// Whether a stranger's packets get through both ways, in time: a connection, and a datagram that takes most of a second at
/// 16 kbit/s.
fn passes(from: &NetNs, to: SocketAddr) -> bool {
    let connects = matches!(tcp_rtt(from, to, PATIENCE), Ok(Tcp::Answered { .. }));
    let large = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind(any(to))?;
        socket.connect(to)?;
        socket.send(&[7; 1400])?;
        Ok(receive(&socket, &mut [0; 1500], PATIENCE)? == 1400)
    };
    connects && from.run(large).unwrap_or(false)
}

/// Whether a fault meets a stranger: of what has one wrong bit some gets through, and a busy machine is late by itself.
fn acts(from: &NetNs, to: SocketAddr) -> bool {
    (0..3).filter(|_| !passes(from, to)).count() >= 2
}

/// Injects one fault after the other, sees it act on a stranger, and looks whether what is protected gets through.
fn under_each(faults: fn(&NetNs) -> Vec<Fault>, protected: fn(&Scene, &Fault) -> Result<()>) -> TestResult {
    let scene = Scene::new()?;
    let near = &scene.pair.near;
    let stranger = Echo::start(&scene.pair.far, Pair::FAR_V6, 7)?;
    for fault in faults(near) {
        let normal = wait_until(HANG, || passes(near, stranger.address()));
        assert!(normal, "nothing passes before {fault:?}");
        fault.inject(&scene.mcp)?;
        assert!(acts(near, stranger.address()), "{fault:?} does nothing");
        protected(&scene, &fault)?;
        fault.remove(&scene.mcp)?;
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn the_daemon_answers_and_stops_while_everything_on_every_device_is_cut(_: &Context) -> TestResult {
    let pair = Pair::new()?;
    // The daemon's own network is the one that is cut.
    let policy = policy_file("critical_interfaces = [\"lo\"]\n")?;
    let daemon = Daemon::start_with(|command| {
        command.arg("--policy").arg(policy.path());
        pair.near.place(command);
    })?;
    let far = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
    let own = Echo::start(&pair.near, V4_LO, 7)?;
    let mcp = daemon.mcp()?;
    for device in [INTERFACE, "lo"] {
        let target = json!({"interface": device, "direction": "both"});
        Fault::new("network_partition").named(device).here(target).inject(&mcp)?;
    }
    for echo in [&far, &own] {
        assert_eq!(udp_rtt(&pair.near, echo.address(), PATIENCE)?, None, "{} answers", echo.address());
    }
    // A caller that is there already, and a new one.
    let started = Instant::now();
    let status = mcp.call_tool("chaos_status", json!({}))?.ok()?;
    assert_eq!(status["active_faults"].as_array().map(Vec::len), Some(2), "{status}");
    daemon.mcp()?.call_tool("chaos_stop", json!({}))?.ok()?;
    println!("status and stop took {:?}", started.elapsed());
    for echo in [&far, &own] {
        assert!(udp_rtt(&pair.near, echo.address(), HANG)?.is_some(), "{} is silent", echo.address());
    }
    Ok(Outcome::Pass)
}

fn loopback_is_left_alone_unless_it_is_named(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let near = &scene.pair.near;
    let far = Echo::start(&scene.pair.far, Pair::FAR_V4, 7)?;
    let fault = Fault::new("network_partition").on(near, everything());
    fault.inject(&scene.mcp)?;
    assert_eq!(udp_rtt(near, far.address(), PATIENCE)?, None, "the partition has no effect");
    // Packets to an address of one's own go through lo, too.
    for address in [V4_LO, V6_LO, Pair::NEAR_V4, Pair::NEAR_V6] {
        let own = Echo::start(near, address, 7)?;
        assert!(udp_rtt(near, own.address(), HANG)?.is_some(), "{address} is cut");
    }
    fault.remove(&scene.mcp)?;
    // There is no way to mean every device.
    for interface in [json!(null), json!(""), json!("*"), json!("any")] {
        let arguments = scene.registration(json!({"target": {"interface": interface, "cidr": null}}));
        let answer = scene.mcp.call_tool("chaos_inject_fault", arguments)?;
        if !answer.is_error {
            let [code, message, _] = scene.refused(json!({"fault_name": "f", "action": "inject"}))?;
            assert!(message.contains("target.interface"), "{interface}: {code}: {message}");
            scene
                .mcp
                .call_tool("chaos_inject_fault", json!({"fault_name": "f", "action": "remove"}))?
                .ok()?;
        }
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// A session as ssh has one: established before the fault, a few bytes to and fro.
struct Session(TcpStream);

impl Session {
    fn open(from: &NetNs, to: SocketAddr) -> Result<Self> {
        let open = || {
            let stream = TcpStream::connect_timeout(&to, HANG)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(HANG))?;
            Ok(Self(stream))
        };
        from.run(open).map_err(Error::io("connect to", to.to_string()))
    }

    /// The median of nine exchanges: a machine that stands still has one of them late, and a fault has all.
    fn exchange(&mut self) -> Result<Duration> {
        let mut took = [Duration::ZERO; 9];
        for took in &mut took {
            let started = Instant::now();
            let said = self.0.write_all(b"x").and_then(|()| self.0.read_exact(&mut [0]));
            said.map_err(Error::io("exchange a byte on", "port 22"))?;
            *took = started.elapsed();
        }
        took.sort_unstable();
        Ok(took[4])
    }
}

fn ssh_sessions_go_on_and_begin_under_every_fault_on_everything(_: &Context) -> TestResult {
    ssh_goes_on_under(plain)
}

fn ssh_sessions_go_on_and_begin_under_every_queue_for_everything(context: &Context) -> TestResult {
    with_netem(context, || ssh_goes_on_under(queues))
}

fn ssh_goes_on_under(faults: fn(&NetNs) -> Vec<Fault>) -> TestResult {
    let scene = Scene::new()?;
    let (near, far) = (&scene.pair.near, &scene.pair.far);
    let mut doors = Vec::new();
    for address in [Pair::NEAR_V4, Pair::NEAR_V6] {
        let (ssh, web) = (Echo::start(near, address, 22)?, Echo::start(near, address, 80)?);
        let session = Session::open(far, ssh.address())?;
        assert!(wait_until(HANG, || passes(far, web.address())), "nothing passes before, at {address}");
        doors.push((ssh, web, session));
    }
    for fault in faults(near) {
        fault.inject(&scene.mcp)?;
        for (ssh, web, session) in &mut doors {
            let usual = session.exchange()?;
            within(PROMPT, usual, &format!("{fault:?}: a byte"))?;
            let new = tcp_rtt(far, ssh.address(), HANG)?;
            assert!(matches!(new, Tcp::Answered { .. }), "{fault:?}: a new session: {new:?}");
            assert!(acts(far, web.address()), "{fault:?} does nothing");
        }
        fault.remove(&scene.mcp)?;
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

/// An echo server at a port that a process called `name` has open as well.
pub(super) fn listen_as(name: &str, namespace: &NetNs, port: u16) -> Result<Fake> {
    let listen = || {
        let listener = TcpListener::bind((Pair::NEAR_V4, port))?;
        let shared = OwnedFd::from(listener.try_clone()?);
        Ok((listener, shared))
    };
    let (listener, shared) = namespace.run(listen).map_err(Error::io("listen on", port.to_string()))?;
    std::thread::spawn(move || {
        let accepted = listener.accept();
        // From here on it is that process alone that listens.
        drop(listener);
        if let Ok((mut stream, _)) = accepted {
            let mut echo = [0];
            while stream.read_exact(&mut echo).and_then(|()| stream.write_all(&echo)).is_ok() {}
        }
    });
    // In the namespace of its socket, as a server is.
    namespace.run(|| Fake::start_as(name, "sleep", &["600"], shared.into()))
}

fn an_ssh_session_goes_on_wherever_sshd_listens_and_where_it_did_so_does_none(_: &Context) -> TestResult {
    wherever_sshd_listens(plain)
}

fn an_ssh_session_goes_on_wherever_sshd_listens_under_a_queue_for_everything(
    context: &Context,
) -> TestResult {
    with_netem(context, || wherever_sshd_listens(|near| queues(near).into_iter().take(2).collect()))
}

/// With sshd at another port for each of these faults, and somebody else where it was before.
fn wherever_sshd_listens(faults: fn(&NetNs) -> Vec<Fault>) -> TestResult {
    let scene = Scene::new()?;
    let (near, far) = (&scene.pair.near, &scene.pair.far);
    for (fault, ssh_port) in faults(near).into_iter().zip(2222..) {
        let web_port = ssh_port - 1;
        let _sshd = listen_as("sshd", near, ssh_port)?;
        let _web = listen_as("web", near, web_port)?;
        let mut ssh = Session::open(far, (Pair::NEAR_V4, ssh_port).into())?;
        let mut web = Session::open(far, (Pair::NEAR_V4, web_port).into())?;
        web.exchange()?;
        fault.inject(&scene.mcp)?;
        let usual = ssh.exchange()?;
        within(PROMPT, usual, &format!("{fault:?}: a byte"))?;
        web.0.set_read_timeout(Some(PATIENCE))?;
        assert!(web.exchange().is_err(), "{fault:?} has no effect");
        fault.remove(&scene.mcp)?;
    }
    scene.assert_untouched()?;
    Ok(Outcome::Pass)
}

fn arp_and_neighbour_discovery_pass_every_fault_on_everything(_: &Context) -> TestResult {
    under_each(plain, neighbours_are_found)
}

fn arp_and_neighbour_discovery_pass_every_queue_for_everything(context: &Context) -> TestResult {
    with_netem(context, || under_each(queues, neighbours_are_found))
}

fn neighbours_are_found(scene: &Scene, fault: &Fault) -> Result<()> {
    let (near, far) = (&scene.pair.near, &scene.pair.far);
    for (from, to) in [(near, [Pair::FAR_V4, Pair::FAR_V6]), (far, [Pair::NEAR_V4, Pair::NEAR_V6])] {
        for address in to {
            near.ip(&["neigh", "flush", "dev", INTERFACE])?;
            far.ip(&["neigh", "flush", "dev", INTERFACE])?;
            // Whether or not it is answered, the neighbour is asked for first.
            let heard = icmp_rtt(from, address, PATIENCE);
            let known = || {
                let shown = from.ip(&["neigh", "show", "to", &address.to_string(), "dev", INTERFACE]);
                shown.is_ok_and(|text| text.contains("lladdr"))
            };
            let found = wait_until(HANG, known);
            assert!(found, "{fault:?}: {address} was not found ({heard:?}): {}", from.ip(&["neigh"])?);
        }
    }
    // Neighbour discovery is IP, and so is matched, and spared; but by what is about TCP.
    let status = fault.status(&scene.mcp)?;
    let protected = status["evidence"]["packets_protected"].as_u64();
    assert!(fault.name() == RESET || protected.is_some_and(|packets| packets > 0), "{status}");
    Ok(())
}

/// A socket on this port of every address, in a namespace, for its `eth0` only; and the number of that device.
fn dhcp_socket(namespace: &NetNs, address: IpAddr, port: u16) -> Result<(UdpSocket, u32)> {
    let open = || -> std::io::Result<_> {
        let socket = UdpSocket::bind((address, port))?;
        setsockopt(&socket, sockopt::BindToDevice, &INTERFACE.into())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        match address {
            IpAddr::V4(_) => socket.set_broadcast(true)?,
            IpAddr::V6(_) => {}
        }
        Ok((socket, if_nametoindex(INTERFACE)?))
    };
    namespace.run(open).map_err(Error::io("bind", format!("port {port}")))
}

/// All DHCP relay agents and servers (RFC 8415, 7.1).
const DHCP_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// One question of a client without an address, and the answer; tried again as clients do.
fn ask(client: &UdpSocket, to: SocketAddr, server: &UdpSocket, back: Option<SocketAddr>) -> Result<()> {
    let mut buffer = [0; 64];
    let mut asked = || -> std::io::Result<bool> {
        client.send_to(b"discover", to)?;
        let Ok((_, from)) = server.recv_from(&mut buffer) else { return Ok(false) };
        server.send_to(b"offer", back.unwrap_or(from))?;
        Ok(client.recv_from(&mut buffer).is_ok_and(|(length, _)| &buffer[..length] == b"offer"))
    };
    let until = Instant::now() + HANG;
    while Instant::now() < until {
        if asked().map_err(Error::io("ask", to.to_string()))? {
            return Ok(());
        }
    }
    Err(Error::Hung { what: format!("answer from {to}") })
}

fn dhcp_passes_every_fault_on_everything(_: &Context) -> TestResult {
    under_each(plain, addresses_are_leased)
}

fn dhcp_passes_every_queue_for_everything(context: &Context) -> TestResult {
    with_netem(context, || under_each(queues, addresses_are_leased))
}

fn addresses_are_leased(scene: &Scene, fault: &Fault) -> Result<()> {
    let (near, far) = (&scene.pair.near, &scene.pair.far);
    let named = |error: Error| Error::Different(format!("{fault:?}: {error}"));
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let ((client, _), (server, _)) = (dhcp_socket(near, any, 68)?, dhcp_socket(far, any, 67)?);
    let everybody = |port| SocketAddr::from((Ipv4Addr::BROADCAST, port));
    ask(&client, everybody(67), &server, Some(everybody(68))).map_err(named)?;

    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let ((client, device), (server, far_device)) =
        (dhcp_socket(near, any, 546)?, dhcp_socket(far, any, 547)?);
    server.join_multicast_v6(&DHCP_SERVERS, far_device).map_err(Error::io("join", "ff02::1:2"))?;
    ask(&client, SocketAddrV6::new(DHCP_SERVERS, 547, 0, device).into(), &server, None).map_err(named)
}
