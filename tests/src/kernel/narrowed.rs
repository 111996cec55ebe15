//! Faults of some ports, protocols, peers and connections, and of all but some: who is meant is met, and nobody beside.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{Context, Outcome, TestResult, tests};
use crate::caller::{Ask, Caller};
use crate::cgroup::Cgroup;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, Tcp, any, icmp_rtt, tcp_rtt, udp_rtt};
use crate::netns::NetNs;
use crate::{Daemon, Error, Mcp, Pair, Residue, Result};

tests![
    a_list_of_ports_meets_each_of_them_and_no_other,
    all_but_some_ports_and_peers_are_met,
    a_protocol_is_met_by_its_name_and_number,
    a_share_of_the_connections_is_all_of_some_and_nothing_of_the_others_both_ways,
    connections_are_met_while_they_open_or_when_they_are_open,
];

const PATIENCE: Duration = Duration::from_millis(300);

/// Ports at which somebody answers.
const PORTS: [u16; 5] = [7, 80, 8000, 8005, 9000];

struct Scene {
    echoes: Vec<Echo>,
    daemon: Daemon,
    mcp: Mcp,
    before: Residue,
    pair: Pair,
}

impl Scene {
    fn new() -> Result<Self> {
        let pair = Pair::new()?;
        let start = |port: &u16| Echo::start(&pair.far, Pair::FAR_V4, *port);
        let mut echoes = PORTS.iter().map(start).collect::<Result<Vec<_>>>()?;
        echoes.push(Echo::start(&pair.far, Pair::FAR_V6, 7)?);
        let daemon = Daemon::start()?;
        let mcp = daemon.mcp()?;
        let before = Residue::take(&[&pair.near])?;
        Ok(Self { echoes, daemon, mcp, before, pair })
    }

    /// The ports at which an answer of IPv4 comes.
    fn answered(&self) -> Result<Vec<u16>> {
        let mut found = Vec::new();
        for echo in self.echoes.iter().take(PORTS.len()) {
            if udp_rtt(&self.pair.near, echo.address(), PATIENCE)?.is_some() {
                found.push(echo.address().port());
            }
        }
        Ok(found)
    }

    fn v6_is_answered(&self) -> Result<bool> {
        udp_rtt(&self.pair.near, self.echoes[PORTS.len()].address(), PATIENCE).map(|time| time.is_some())
    }

    fn done(self) -> TestResult {
        self.before.assert_unchanged_within(&[&self.pair.near], HANG)?;
        Ok(Outcome::Pass)
    }
}

fn a_list_of_ports_meets_each_of_them_and_no_other(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    for (narrow, left) in [
        (json!({"remote_port": "7,8000-8004"}), vec![80, 8005, 9000]),
        (json!({"port": "80, 8001-8999,9000"}), vec![7, 8000]),
        (json!({"remote_port": "7,80,8000,8005,9000"}), vec![]),
        (json!({"local_port": "7,80"}), PORTS.to_vec()),
        (json!({"port": "79,81"}), PORTS.to_vec()),
    ] {
        let fault = Fault::new("network_partition").on(&scene.pair.near, narrow.clone());
        fault.inject(&scene.mcp)?;
        assert_eq!(scene.answered()?, left, "{narrow}: {}", scene.daemon.log());
        fault.remove(&scene.mcp)?;
        assert_eq!(scene.answered()?, PORTS, "after {narrow}");
    }
    // Calls and packets of a group are told by the same lists.
    let cgroup = Cgroup::new()?;
    let mut caller = Caller::start(&scene.pair.near, Some(&cgroup))?;
    for kind in ["connect_error", "network_partition"] {
        let target = json!({"cgroup": cgroup.name(), "remote_port": "80,8000-8004"});
        let fault = Fault::new(kind).aimed(target);
        fault.inject(&scene.mcp)?;
        for echo in scene.echoes.iter().take(PORTS.len()) {
            let is_met = [80, 8000].contains(&echo.address().port());
            let errno = caller.ask(Ask::Reach(echo.address()))?;
            assert_eq!(errno != 0, is_met, "{kind} {}: {errno}", echo.address());
        }
        fault.remove(&scene.mcp)?;
    }
    scene.done()
}

fn all_but_some_ports_and_peers_are_met(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let near = &scene.pair.near;
    let cut = |narrow: &serde_json::Value| Fault::new("network_partition").on(near, narrow.clone());
    for (narrow, left, v6, ping) in [
        (json!({"except_port": "80,8000-8005"}), vec![80, 8000, 8005], false, false),
        (json!({"except_port": 7}), vec![7], true, false),
        (json!({"remote_port": "1-9000", "except_port": 7}), vec![7], true, true),
        (json!({"except_cidrs": ["10.77.0.2"]}), PORTS.to_vec(), false, true),
        (json!({"except_cidrs": ["fd00::/8"]}), vec![], true, false),
        (
            json!({"cidr": "10.77.0.0/24,fd77::/64", "except_cidrs": ["10.77.0.2/31"]}),
            PORTS.to_vec(),
            false,
            true,
        ),
    ] {
        let fault = cut(&narrow);
        fault.inject(&scene.mcp)?;
        let pinged = icmp_rtt(near, Pair::FAR_V4, PATIENCE)?.is_some();
        assert_eq!(
            (scene.answered()?, scene.v6_is_answered()?, pinged),
            (left, v6, ping),
            "{narrow}: {}",
            scene.daemon.log()
        );
        fault.remove(&scene.mcp)?;
    }
    assert_eq!((scene.answered()?, scene.v6_is_answered()?), (PORTS.to_vec(), true));
    scene.done()
}

fn a_protocol_is_met_by_its_name_and_number(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let near = &scene.pair.near;
    for (protocol, v4, v6, datagrams) in [
        ("ICMP", false, false, true),
        ("icmpv6", true, false, true),
        ("58", true, false, true),
        ("17", true, true, false),
        ("vrrp", true, true, true),
    ] {
        let fault = Fault::new("network_partition").on(near, json!({"protocol": protocol}));
        fault.inject(&scene.mcp)?;
        let pinged = |address| icmp_rtt(near, address, PATIENCE).map(|time| time.is_some());
        let found = (pinged(Pair::FAR_V4)?, pinged(Pair::FAR_V6)?, scene.v6_is_answered()?);
        assert_eq!(found, (v4, v6, datagrams), "{protocol}: {}", scene.daemon.log());
        fault.remove(&scene.mcp)?;
    }
    scene.done()
}

/// How many connections are looked at, and how many datagrams of each.
const FLOWS: usize = 300;
const ROUNDS: u32 = 3;

/// Sockets that are connected to a peer.
fn flows(from: &NetNs, to: SocketAddr) -> Result<Vec<UdpSocket>> {
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(any(to))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let opened = from.run(|| (0..FLOWS).map(|_| open()).collect::<io::Result<Vec<_>>>());
    opened.map_err(Error::io("open connections to", to.to_string()))
}

/// How many of [`ROUNDS`] datagrams of each come back, by the port it comes from.
fn echoed(sockets: &[UdpSocket]) -> Result<BTreeMap<u16, u32>> {
    let failed = |error| Error::io("echo", "datagrams")(error);
    for _ in 0..ROUNDS {
        // As many as fit into a buffer of the other side.
        for some in sockets.chunks(50) {
            some.iter().try_for_each(|socket| socket.send(b"x").map(drop)).map_err(failed)?;
            thread::sleep(Duration::from_millis(20));
        }
    }
    thread::sleep(PATIENCE);
    let count = |socket: &UdpSocket| {
        let mut heard = 0;
        while socket.recv(&mut [0; 8]).is_ok() {
            heard += 1;
        }
        Ok((socket.local_addr()?.port(), heard))
    };
    sockets.iter().map(count).collect::<io::Result<_>>().map_err(failed)
}

fn a_share_of_the_connections_is_all_of_some_and_nothing_of_the_others_both_ways(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    for echo in [&scene.echoes[0], &scene.echoes[PORTS.len()]] {
        let sockets = flows(&scene.pair.near, echo.address())?;
        let lost = |narrow: serde_json::Value| -> Result<Vec<u16>> {
            let fault = Fault::new("network_partition").on(&scene.pair.near, narrow.clone());
            fault.inject(&scene.mcp)?;
            let echoed = echoed(&sockets)?;
            fault.remove(&scene.mcp)?;
            let halves: Vec<_> = echoed.iter().filter(|(_, heard)| ![0, ROUNDS].contains(*heard)).collect();
            assert!(halves.is_empty(), "{narrow}: in part {halves:?}");
            Ok(echoed.into_iter().filter(|(_, heard)| *heard == 0).map(|(port, _)| port).collect())
        };
        let quarter = lost(json!({"connections": "25%", "seed": 7}))?;
        // Five standard deviations about 75.
        assert!((37..=113).contains(&quarter.len()), "{} of {FLOWS}", quarter.len());
        for direction in ["egress", "ingress"] {
            let one_way = json!({"connections": 0.25, "seed": 7, "direction": direction});
            assert_eq!(lost(one_way)?, quarter, "{direction}");
        }
        let more = lost(json!({"connections": "60%", "seed": 7}))?;
        assert!((137..=223).contains(&more.len()), "{} of {FLOWS}", more.len());
        assert!(quarter.iter().all(|port| more.contains(port)), "a larger share has others");
        let others = lost(json!({"connections": "25%", "seed": 8}))?;
        assert!((37..=113).contains(&others.len()) && others != quarter, "{others:?}");
        assert_eq!(lost(json!({"connections": "100%"}))?.len(), FLOWS);
    }
    scene.done()
}

fn connections_are_met_while_they_open_or_when_they_are_open(_: &Context) -> TestResult {
    let scene = Scene::new()?;
    let (near, to) = (&scene.pair.near, scene.echoes[0].address());
    let connect = || near.run(|| TcpStream::connect_timeout(&to, PATIENCE));
    let failed = |what: &'static str| Error::io(what, to.to_string());
    let mut old = connect().map_err(failed("connect to"))?;
    old.set_read_timeout(Some(PATIENCE)).map_err(failed("wait for"))?;
    let speaks =
        |stream: &mut TcpStream| stream.write_all(b"x").is_ok() && stream.read_exact(&mut [0]).is_ok();
    assert!(speaks(&mut old), "not normal before");
    let opening = Fault::new("network_partition").on(near, json!({"tcp_state": "new"}));
    opening.inject(&scene.mcp)?;
    assert!(speaks(&mut old), "who is connected is met: {}", scene.daemon.log());
    assert!(matches!(tcp_rtt(near, to, PATIENCE)?, Tcp::Silent), "who connects is not met");
    assert!(scene.v6_is_answered()?, "datagrams are met");
    opening.remove(&scene.mcp)?;
    let open =
        Fault::new("network_partition").on(near, json!({"tcp_state": "established", "protocol": "tcp"}));
    open.inject(&scene.mcp)?;
    let mut new = connect().map_err(failed("connect, while open connections are cut, to"))?;
    new.set_read_timeout(Some(PATIENCE)).map_err(failed("wait for"))?;
    assert!(!speaks(&mut new), "who has connected is not met: {}", scene.daemon.log());
    assert!(!speaks(&mut old), "who is connected is not met");
    open.remove(&scene.mcp)?;
    assert!(matches!(tcp_rtt(near, to, HANG)?, Tcp::Answered { .. }), "not normal after");
    scene.done()
}
