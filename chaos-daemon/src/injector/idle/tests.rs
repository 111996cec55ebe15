//! Each reason from what was seen, and none from what was not.

use std::net::IpAddr;

use chaos_common::PacketRule;
use chaos_common::rule::{ENABLED, EVERY_PEER, TCP, UDP};
use ipnet::IpNet;

use super::packet::{What, read};
use super::reason::{Seen, Sought, likely};
use crate::holder::packets::transport;
use crate::host::translation::{Ends, Translation};
use crate::kernel::bpf::sample::Frame;
use crate::request::evidence::Met;
use crate::spec::{Direction, PortMatch, Protocol};

const HERE: [u8; 4] = [10, 77, 0, 1];
const PEER: [u8; 4] = [10, 77, 0, 2];
const OTHER: [u8; 4] = [10, 77, 0, 9];

/// An IPv4 packet of TCP or UDP, with a SYN where it is TCP.
fn ip(protocol: u8, (source, from): ([u8; 4], u16), (destination, to): ([u8; 4], u16)) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 60, 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend(source.iter().chain(&destination));
    bytes.extend(from.to_be_bytes().iter().chain(&to.to_be_bytes()));
    bytes.extend([0; 8]);
    bytes.extend([0x50, 2, 0, 0, 0, 0, 0, 0]);
    bytes
}

fn ethernet(kind: u16, payload: Vec<u8>) -> Vec<u8> {
    [vec![2; 12], kind.to_be_bytes().to_vec(), payload].concat()
}

fn frame(direction: Direction, protocol: u16, payload: Vec<u8>) -> Frame {
    Frame { direction, interface: 2, protocol, tag: None, linked: true, bytes: ethernet(protocol, payload) }
}

/// A packet of TCP to this port of the peer.
fn leaving(port: u16) -> Frame {
    frame(Direction::Egress, 0x0800, ip(TCP, (HERE, 40000), (PEER, port)))
}

fn arriving(port: u16) -> Frame {
    frame(Direction::Ingress, 0x0800, ip(TCP, (PEER, port), (HERE, 40000)))
}

/// About TCP to port 80 of the peer, that leaves.
fn sought() -> Sought {
    let ports = PortMatch {
        remote: Some(serde_json::from_value(serde_json::json!(80)).unwrap()),
        ..PortMatch::default()
    };
    Sought {
        place: "eth0".into(),
        rule: PacketRule { flags: ENABLED | EVERY_PEER, ..transport(Protocol::Tcp, &ports) },
        words: "tcp remote port 80".into(),
        peers: vec!["10.77.0.2/32".parse().unwrap()],
        directions: vec![Direction::Egress],
        interface: None,
        connects: false,
    }
}

fn seen(frames: &[Frame]) -> Seen {
    Seen { moved: [true; 2], sights: frames.iter().map(read).collect(), ..Seen::default() }
}

#[track_caller]
fn assert_reason(sought: &Sought, seen: &Seen, words: &[&str]) {
    let reason = likely(sought, seen).unwrap_or_else(|| panic!("no reason, and not {words:?}"));
    assert!(words.iter().all(|words| reason.contains(words)), "{words:?}: {reason}");
}

#[test]
fn without_traffic_no_reason_is_invented() {
    assert_eq!(likely(&sought(), &Seen::default()), None);
    let moved = Seen { moved: [true; 2], ..Seen::default() };
    assert_eq!(likely(&sought(), &moved), None, "what moved was not seen");
    // What would be met is no reason, nor is what the link lives by.
    assert_eq!(likely(&sought(), &seen(&[leaving(80)])), None);
    let discovery = [&[0x60, 0, 0, 0, 0, 8, 58, 255][..], &[0; 32], &[135, 0, 0, 0, 0, 0, 0, 0]].concat();
    let life = frame(Direction::Egress, 0x86dd, discovery);
    assert_eq!(read(&life).what, What::Life);
    assert_eq!(likely(&sought(), &seen(&[life])), None);
    let met = Seen { met: Met { matched: 3, affected: 1, protected: 0 }, ..seen(&[leaving(81)]) };
    assert_eq!(likely(&sought(), &met), None, "it acts");
}

#[test]
fn its_own_figures_say_first_what_is_protected_and_what_had_no_turn() {
    let met = |matched, protected| Seen { met: Met { matched, affected: 0, protected }, ..Seen::default() };
    assert_reason(&sought(), &met(4, 4), &["all 4 that matched are protected"]);
    assert_reason(&sought(), &met(4, 1), &["4 have matched", "a share"]);
    let nobody = Seen { nobody: true, ..Seen::default() };
    let of_group = Sought { place: "cgroup /a".into(), ..sought() };
    assert_reason(&of_group, &nobody, &["nobody is in cgroup /a"]);
}

#[test]
fn what_is_not_as_the_fault_would_have_it_is_named_with_what_is_there() {
    let udp = frame(Direction::Egress, 0x0800, ip(UDP, (HERE, 40000), (PEER, 80)));
    for (frame, words) in [
        (leaving(8080), ["tcp, remote port 8080", "about tcp remote port 80"]),
        (udp, ["udp, remote port 80", "about tcp remote port 80"]),
        (arriving(80), ["what passes arrives", "give direction \"ingress\" or \"both\""]),
        (
            frame(Direction::Egress, 0x0800, ip(TCP, (HERE, 40000), (OTHER, 80))),
            ["is of peer 10.77.0.9", "none that the fault names"],
        ),
        (
            frame(Direction::Egress, 0x0800, ip(TCP, (PEER, 40000), (OTHER, 80))),
            ["10.77.0.2 is the near end", "peer is 10.77.0.9"],
        ),
    ] {
        assert_reason(&sought(), &seen(&[frame]), &words);
    }
    let both = [arriving(8080), leaving(81), leaving(81)];
    // What comes nearest, and of two as near the more frequent.
    assert_reason(&sought(), &seen(&both), &["remote port 81", "2 of 3 packets looked at on eth0"]);
}

#[test]
fn what_hides_a_packet_is_named() {
    let inner = || ip(TCP, (HERE, 40000), (PEER, 80));
    let tagged = [vec![0, 5], 0x8100_u16.to_be_bytes().to_vec(), vec![0, 7], vec![8, 0], inner()].concat();
    assert_reason(
        &sought(),
        &seen(&[frame(Direction::Egress, 0x88a8, tagged)]),
        &["802.1ad (0x88a8), 802.1Q (0x8100)", "the interface of the VLAN"],
    );
    let mpls = frame(Direction::Egress, 0x8847, vec![0; 40]);
    assert_reason(&sought(), &seen(&[mpls]), &["no IP, but MPLS (0x8847)"]);
    let outer = |protocol, payload: Vec<u8>| {
        let mut bytes = ip(protocol, (HERE, 40000), (OTHER, 4789));
        bytes.truncate(if protocol == UDP { 28 } else { 20 });
        bytes.extend(payload);
        frame(Direction::Egress, 0x0800, bytes)
    };
    let gre = |inner: Vec<u8>| [vec![0x20, 0, 8, 0, 0, 0, 0, 9], inner].concat();
    for (frame, kind) in [
        (outer(UDP, [vec![8, 0, 0, 0, 0, 0, 7, 0], ethernet(0x0800, inner())].concat()), "VXLAN"),
        (outer(47, gre(inner())), "GRE"),
        (outer(4, inner()), "IP in IP"),
    ] {
        assert_reason(&sought(), &seen(&[frame]), &["is within", kind, "the tunnel's own interface"]);
    }
    // Of a tunnel with something else in it nothing is said but what passes.
    let elsewhere = outer(4, ip(TCP, (HERE, 1), (OTHER, 2)));
    assert_reason(&sought(), &seen(&[elsewhere]), &["IP protocol 4"]);
}

#[test]
fn a_translated_address_is_told_with_the_one_to_name() {
    let end = |address: [u8; 4], port| (IpAddr::from(address), port);
    let translation = Translation {
        protocol: TCP,
        before: Ends { source: end(HERE, 40000), destination: end([10, 96, 0, 10], 80) },
        behind: Ends { source: end(HERE, 40000), destination: end(PEER, 8080) },
    };
    let service = Sought { peers: vec!["10.96.0.10/32".parse::<IpNet>().unwrap()], ..sought() };
    let found = Seen { translations: vec![translation.clone()], ..seen(&[leaving(8080)]) };
    let words = ["10.96.0.10 port 80 is translated to 10.77.0.2 port 8080", "name 10.77.0.2 port 8080"];
    assert_reason(&service, &found, &words);
    // A call names the service, and its packets go to who is behind it.
    let calls = Sought {
        rule: PacketRule { remote_ports: chaos_common::rule::PortRange::one(8080), ..sought().rule },
        connects: true,
        ..sought()
    };
    assert_reason(&calls, &found, &["is translated", "name 10.96.0.10 port 80"]);
    // Somebody else's translation is no reason.
    assert_reason(&Sought { words: "x".into(), ..sought() }, &found, &["remote port 8080"]);
}

#[test]
fn a_connection_that_is_there_makes_no_call() {
    let mut going_on = leaving(80);
    going_on.bytes[14 + 33] = 0x10;
    let calls = Sought { connects: true, ..sought() };
    // Not by the answers, though they are more.
    let mut answer = arriving(80);
    answer.bytes[14 + 33] = 0x10;
    let both = [answer.clone(), answer, going_on];
    assert_reason(&calls, &seen(&both), &["connections are there already", "1 of 3"]);
    assert_reason(&calls, &seen(&[arriving(80)]), &["others connect to it"]);
}

#[test]
fn a_program_before_and_another_way_are_told_only_where_they_are() {
    let ahead = Seen { ahead: vec!["program \"cni\" (egress)".into()], ..seen(&[leaving(80)]) };
    assert_reason(&sought(), &ahead, &["program \"cni\" (egress) runs before the fault"]);
    let unseen = Seen { sights: Vec::new(), ..ahead };
    assert_reason(&sought(), &unseen, &["program \"cni\""]);
    let xdp = Seen { xdp: true, moved: [true, false], ..Seen::default() };
    let arrives = Sought { directions: vec![Direction::Ingress], ..sought() };
    assert_reason(&arrives, &xdp, &["an XDP program on eth0 may take"]);
    // It sees nothing of what leaves.
    assert!(!likely(&sought(), &xdp).is_some_and(|reason| reason.contains("XDP")));
    let way = Seen { elsewhere: vec![(PEER.into(), "eth1".into())], ..Seen::default() };
    assert_reason(&sought(), &way, &["packets to 10.77.0.2 leave by eth1, and not by eth0"]);
    let one_way = Seen { moved: [true, false], ..Seen::default() };
    assert_reason(&sought(), &one_way, &["what passes arrives"]);
    let other = Sought { interface: Some((3, "eth3".into())), ..sought() };
    assert_reason(&other, &seen(&[leaving(80)]), &["another interface (index 2), and not eth3"]);
}
