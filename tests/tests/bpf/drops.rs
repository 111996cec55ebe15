//! Dropping: what is selected, what is exempt, and how it ends.

use std::time::{Duration, Instant};

use chaos_common::PacketRule;
use chaos_common::rule::{EVERY_PEER, ICMP, PortRange, TCP, UDP, threshold};
use chaos_daemon::host::boot_time_ns;
use chaos_daemon::kernel::bpf::{BpfError, Capacity, Family, Hook, Programs, kernel_has_tcx};
use chaos_daemon::spec::Direction;
use chaos_tests::late::assert_within;
use chaos_tests::skip::{Reason, kernel_version, skip};

use super::arm::{Fault, armed, everything, index, load, renew, set_rule};
use super::net::{
    DEVICE, NODE_V4, NODE_V6, OTHER_V4, OTHER_V6, PEER_V4, PEER_V6, answers, arrivals, arrives, at, connect,
    echo, on_a_node, on_a_node_each_way, ping, round_trip, udp,
};

const PORT: u16 = 7000;
const OTHER_PORT: u16 = 7001;

/// Rule, peers, what is hit, what is spared: destinations of UDP packets.
type Selection =
    (PacketRule, &'static [&'static str], &'static [(&'static str, u16)], &'static [(&'static str, u16)]);

fn selections() -> Vec<Selection> {
    let udp_only = PacketRule { protocol: u16::from(UDP), ..everything() };
    vec![
        (everything(), &["10.9.0.2/32"], &[(PEER_V4, PORT)], &[(OTHER_V4, PORT), (PEER_V6, PORT)]),
        (everything(), &["fd09::2/128"], &[(PEER_V6, PORT)], &[(OTHER_V6, PORT), (PEER_V4, PORT)]),
        (everything(), &["10.9.7.0/24"], &[(OTHER_V4, PORT)], &[(PEER_V4, PORT), (OTHER_V6, PORT)]),
        (everything(), &["fd09::7:0/112"], &[(OTHER_V6, PORT)], &[(PEER_V6, PORT), (OTHER_V4, PORT)]),
        (everything(), &["0.0.0.0/0"], &[(PEER_V4, PORT), (OTHER_V4, PORT)], &[(PEER_V6, PORT)]),
        (
            everything(),
            &["10.9.0.2/32", "fd09::7:0/112"],
            &[(PEER_V4, PORT), (OTHER_V6, PORT)],
            &[(OTHER_V4, PORT), (PEER_V6, PORT)],
        ),
        (everything(), &[], &[(PEER_V4, PORT), (OTHER_V6, OTHER_PORT)], &[]),
        (udp_only, &[], &[(PEER_V4, PORT), (PEER_V6, PORT)], &[]),
        (
            PacketRule { protocol: u16::from(TCP), ..everything() },
            &[],
            &[],
            &[(PEER_V4, PORT), (PEER_V6, PORT)],
        ),
        (
            PacketRule { ports: PortRange::one(PORT), ..udp_only },
            &[],
            &[(PEER_V4, PORT), (PEER_V6, PORT)],
            &[(PEER_V4, OTHER_PORT), (PEER_V6, OTHER_PORT)],
        ),
        (
            PacketRule { remote_ports: PortRange::one(PORT), ..everything() },
            &["10.9.0.2/32"],
            &[(PEER_V4, PORT)],
            &[(PEER_V4, OTHER_PORT), (OTHER_V4, PORT)],
        ),
        (
            PacketRule { remote_ports: PortRange { first: 1, last: PORT }, ..everything() },
            &[],
            &[(PEER_V4, PORT), (PEER_V6, PORT)],
            &[(PEER_V4, OTHER_PORT), (PEER_V6, OTHER_PORT)],
        ),
        (
            PacketRule { ports: PortRange { first: OTHER_PORT, last: u16::MAX }, ..udp_only },
            &[],
            &[(PEER_V4, OTHER_PORT)],
            &[],
        ),
        (
            PacketRule { local_ports: PortRange::one(PORT), ..everything() },
            &[],
            &[],
            &[(PEER_V4, PORT), (PEER_V6, PORT)],
        ),
    ]
}

#[test]
fn leaving_packets_are_selected_by_host_prefix_protocol_and_port() {
    on_a_node_each_way(|net| {
        let sender = udp(0);
        let receivers = net.on_peer(|| [udp(PORT), udp(OTHER_PORT)]);
        let mut programs = armed(net, Hook::Drop, &[Direction::Egress], &everything(), &[]);
        for (rule, peers, hit, spared) in selections() {
            set_rule(&mut programs, &rule, peers);
            for (targets, expected) in [(hit, false), (spared, true)] {
                for &(address, port) in targets {
                    let receiver = &receivers[usize::from(port - PORT)];
                    let seen = arrives(&sender, at(address, port), receiver);
                    assert_eq!(seen, expected, "{rule:?} {peers:?} to {address} port {port}");
                }
            }
        }
    });
}

#[test]
fn arriving_packets_are_selected_by_their_source() {
    on_a_node_each_way(|net| {
        let receiver = udp(PORT);
        let local =
            PacketRule { local_ports: PortRange::one(PORT), protocol: u16::from(UDP), ..everything() };
        let remote = PacketRule { remote_ports: PortRange::one(PORT), ..everything() };
        let mut programs = armed(net, Hook::Drop, &[Direction::Ingress], &local, &[]);
        for (rule, peers, node, expected) in [
            (local, &[][..], NODE_V4, false),
            (local, &[], NODE_V6, false),
            (local, &["10.9.0.2/32"], NODE_V4, false),
            (local, &["10.9.7.3/32"], NODE_V4, true),
            (local, &["fd09::/120"], NODE_V6, false),
            (local, &["fd09::1/128"], NODE_V6, true),
            (remote, &[], NODE_V4, true),
            (remote, &[], NODE_V6, true),
        ] {
            set_rule(&mut programs, &rule, peers);
            let seen = net.on_peer(|| arrives(&udp(0), at(node, PORT), &receiver));
            assert_eq!(seen, expected, "{rule:?} {peers:?} to {node}");
        }
    });
}

#[test]
fn icmp_means_the_icmp_of_both_versions() {
    on_a_node(|net| {
        let rule = PacketRule { protocol: u16::from(ICMP), ..everything() };
        let programs = armed(net, Hook::Drop, &[Direction::Egress], &rule, &["10.9.0.2/32", "fd09::2/128"]);
        assert!(!ping(PEER_V4) && !ping(PEER_V6));
        assert!(answers(OTHER_V4) && answers(OTHER_V6));
        drop(programs);
        assert!(answers(PEER_V4) && answers(PEER_V6));
    });
}

#[test]
fn neighbours_are_found_while_everything_is_dropped() {
    on_a_node(|net| {
        super::net::ip("neigh flush dev node0");
        let sender = udp(0);
        let receiver = net.on_peer(|| udp(PORT));
        let programs = armed(
            net,
            Hook::Drop,
            Direction::BOTH,
            &PacketRule { ports: PortRange::one(PORT), ..everything() },
            &[],
        );
        assert!(arrives(&sender, at(PEER_V6, OTHER_PORT), &net.on_peer(|| udp(OTHER_PORT))));
        assert!(!arrives(&sender, at(PEER_V6, PORT), &receiver));
        drop(programs);
        super::net::ip("neigh flush dev node0");
        // Everything: the neighbour is asked for and found, though what was to be sent to it is lost.
        let programs = armed(net, Hook::Drop, Direction::BOTH, &everything(), &[]);
        assert!(!arrives(&sender, at(PEER_V6, PORT), &receiver));
        drop(programs);
        assert!(arrives(&sender, at(PEER_V6, PORT), &receiver));
    });
}

#[test]
fn protected_peers_and_ports_are_not_touched() {
    on_a_node(|net| {
        let receivers = net.on_peer(|| [udp(PORT), udp(OTHER_PORT)]);
        // Not the node's own neighbour discovery, which counts as protected too.
        let rule = PacketRule { protocol: u16::from(UDP), ..everything() };
        let mut programs = armed(net, Hook::Drop, &[Direction::Egress], &rule, &[]);
        let free = udp(0);
        let guarded = udp(22);
        let reaches = |from, address| arrives(from, at(address, PORT), &receivers[0]);
        assert!(!reaches(&guarded, PEER_V4));
        programs
            .protect(&["10.9.7.0/24".parse().unwrap(), "fd09::2/128".parse().unwrap()], &[(UDP, 22)])
            .unwrap();
        for (from, address, expected) in [
            (&free, PEER_V4, false),
            (&free, OTHER_V6, false),
            (&free, OTHER_V4, true),
            (&free, PEER_V6, true),
            (&guarded, PEER_V4, true),
            (&guarded, OTHER_V6, true),
        ] {
            assert_eq!(reaches(from, address), expected, "{from:?} to {address}");
        }
        assert_eq!(programs.counters().unwrap().protected, 4);
        // A new rule keeps the protection; taking the protection back keeps the rule.
        set_rule(&mut programs, &rule, &["0.0.0.0/0"]);
        assert!(reaches(&guarded, PEER_V4) && !reaches(&free, PEER_V4));
        programs.protect(&[], &[(TCP, 22)]).unwrap();
        assert!(!reaches(&guarded, PEER_V4) && !reaches(&free, OTHER_V4));
    });
}

#[test]
fn traffic_flows_again_when_the_lease_runs_out_and_nobody_acts() {
    on_a_node_each_way(|net| {
        net.on_peer(|| echo(PORT));
        let mut stream = connect(at(PEER_V4, PORT)).unwrap();
        let mut programs = armed(net, Hook::Drop, &[Direction::Egress], &everything(), &[]);
        renew(&mut programs, Duration::from_millis(500));
        let start = Instant::now();
        // TCP sends again what was lost, as it would had the network lost it.
        round_trip(&mut stream, 100).unwrap();
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(500), "{took:?}");
        assert_within(Duration::from_secs(3), took, "the end of the lease");
        assert!(programs.counters().unwrap().expired > 0);
    });
}

#[test]
fn disarming_and_dropping_end_the_fault_at_once() {
    on_a_node_each_way(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let flows = || arrives(&sender, at(PEER_V4, PORT), &receiver);
        let mut programs = armed(net, Hook::Drop, &[Direction::Egress], &everything(), &[]);
        assert!(!flows());
        programs.disarm().unwrap();
        assert_eq!(programs.lease().unwrap(), 0);
        assert!(flows());
        renew(&mut programs, Duration::from_secs(9));
        assert!(!flows());
        assert!(programs.read_back().unwrap().iter().all(|attachment| attachment.present));
        programs.detach().unwrap();
        assert!(programs.read_back().unwrap().is_empty());
        assert!(flows());
        programs.attach(Hook::Drop, Direction::Egress, DEVICE);
        assert!(!flows());
        drop(programs);
        assert!(flows());
    });
}

#[test]
fn reading_a_tcx_link_back_notices_that_the_interface_is_gone() {
    if !kernel_has_tcx().unwrap() {
        return skip(Reason::NoTcx, "a stub has no link to be read back");
    }
    on_a_node(|net| {
        let programs = armed(net, Hook::Drop, Direction::BOTH, &everything(), &[]);
        assert_eq!(programs.read_back().unwrap().len(), 2);
        super::net::ip("link del node0");
        assert!(programs.read_back().unwrap().iter().all(|attachment| !attachment.present));
    });
}

#[test]
fn half_the_packets_are_dropped_at_a_probability_of_a_half() {
    on_a_node(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let rule = PacketRule { probability: threshold(0.5), ports: PortRange::one(PORT), ..everything() };
        let programs = armed(net, Hook::Drop, &[Direction::Egress], &rule, &[]);
        let arrived = arrivals(&sender, at(PEER_V4, PORT), &receiver, 2000);
        let counters = programs.counters().unwrap();
        assert_eq!((counters.matched, counters.affected), (2000, 2000 - arrived as u64));
        // Four standard errors of a binomial with n = 2000, p = 1/2.
        assert!(arrived.abs_diff(1000) <= 90, "{arrived} of 2000 arrived");
    });
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_and_changes_nothing() {
    on_a_node(|_| {
        let mut programs = Programs::load(Family::Packets, Capacity { hosts: 2, prefixes: 1 }).unwrap();
        set_rule(&mut programs, &everything(), &["10.9.0.2/32"]);
        let before = programs.rule().unwrap();
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let selective = PacketRule { flags: 0, ..everything() };
        let many = nets(&["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"]);
        assert!(matches!(
            programs.set_rule(&selective, &many),
            Err(BpfError::TooMany { wanted: 3, room: 2, .. })
        ));
        let many = nets(&["10.0.0.0/8", "11.0.0.0/8"]);
        assert!(matches!(
            programs.set_rule(&selective, &many),
            Err(BpfError::TooMany { wanted: 2, room: 1, .. })
        ));
        assert!(matches!(programs.set_rule(&selective, &[]), Err(BpfError::Peers)));
        assert!(matches!(programs.set_rule(&everything(), &nets(&["::1/128"])), Err(BpfError::Peers)));
        for level in [0, 256] {
            let rule = PacketRule { level, ..everything() };
            assert!(matches!(programs.set_rule(&rule, &[]), Err(BpfError::Level(_))));
        }
        let rule = PacketRule { flags: EVERY_PEER | 1, ..everything() };
        assert!(matches!(programs.set_rule(&rule, &[]), Err(BpfError::Flags(1))));
        assert_eq!(programs.rule().unwrap(), before);
        assert!(matches!(
            programs.attach_tcx(Hook::Drop, Direction::Egress, 4_000_000, "nowhere0"),
            Err(BpfError::Attach { .. })
        ));
    });
}

#[test]
fn the_answer_whether_the_kernel_has_tcx_is_true() {
    on_a_node(|_| {
        let answer = kernel_has_tcx().unwrap();
        let mut programs = Programs::load(Family::Packets, Capacity { hosts: 1, prefixes: 1 }).unwrap();
        let attached = programs.attach_tcx(Hook::Drop, Direction::Egress, index(DEVICE), DEVICE);
        assert_eq!(answer, attached.is_ok(), "{attached:?}");
        // It came with 6.6; a distribution may have brought it to an older kernel.
        assert!(answer || kernel_version() < (6, 6));
    });
}

#[test]
fn a_loaded_program_is_renewed_until_a_time_to_come() {
    on_a_node(|net| {
        let start = Instant::now();
        let mut programs = load(net);
        println!("load: {:?}", start.elapsed());
        let start = Instant::now();
        renew(&mut programs, Duration::from_secs(1));
        println!("renew: {:?}", start.elapsed());
        assert!(programs.lease().unwrap() > boot_time_ns());
    });
}

#[test]
fn a_hundred_thousand_peers_are_set_and_replaced_in_a_batch() {
    on_a_node(|net| {
        let mut programs = Fault::load(net, Capacity { hosts: 100_000, prefixes: 2_000 });
        let selective = PacketRule { flags: 0, ..everything() };
        for count in [1_000u32, 100_000, 1_000] {
            let mut peers: Vec<_> = (0..count).map(|index| host(index, 32)).collect();
            peers[0] = "10.9.0.2/32".parse().unwrap();
            let start = Instant::now();
            programs.set_rule(&selective, &peers).unwrap();
            println!("{count} hosts: {:?}", start.elapsed());
        }
        let peers: Vec<_> = (0..1_000).map(|index| host(index << 8, 24)).collect();
        let start = Instant::now();
        programs.set_rule(&selective, &peers).unwrap();
        println!("1000 prefixes: {:?}", start.elapsed());
        let peers: Vec<_> =
            (0..999).map(|index| host(index, 32)).chain(["10.9.0.2/32".parse().unwrap()]).collect();
        programs.set_rule(&selective, &peers).unwrap();
        programs.attach(Hook::Drop, Direction::Egress, DEVICE);
        renew(&mut programs, Duration::from_secs(9));
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        assert!(!arrives(&sender, at(PEER_V4, PORT), &receiver));
        assert!(arrives(&sender, at(OTHER_V4, PORT), &receiver));
    });
}

fn host(index: u32, length: u8) -> ipnet::IpNet {
    let address = std::net::Ipv4Addr::from(0x6440_0000 + index);
    ipnet::Ipv4Net::new(address, length).unwrap().into()
}
