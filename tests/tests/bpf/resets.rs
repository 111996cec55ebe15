//! Resets: local callers and remote ones, both IP versions, new and established connections.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use chaos_common::PacketRule;
use chaos_common::rule::PortRange;
use chaos_common::rule::TCP;
use chaos_daemon::kernel::bpf::Hook;
use chaos_daemon::spec::Direction;
use chaos_tests::late::assert_within;

use super::arm::{armed, everything, load, renew, set_rule};
use super::net::{
    DEVICE, NODE_V4, NODE_V6, OTHER_V4, PEER_V4, PEER_V6, at, connect, echo, offloads_off, on_a_node,
    on_a_node_each_way, round_trip,
};

const PORT: u16 = 7000;
/// Far below the second after which a SYN is sent again of itself.
const AT_ONCE: Duration = Duration::from_millis(500);

fn rule() -> PacketRule {
    PacketRule { protocol: u16::from(TCP), ports: PortRange::one(PORT), ..everything() }
}

fn assert_refused(to: SocketAddr) {
    let start = Instant::now();
    let error = connect(to).expect_err("connected");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to}: {error}");
    assert_within(AT_ONCE, start.elapsed(), &format!("the refusal of {to}"));
}

/// Sends until the reset is noticed, which is at the first or second try.
fn assert_reset(stream: &mut TcpStream, length: usize) {
    let start = Instant::now();
    let data = vec![1u8; length];
    let error =
        stream.write_all(&data).and_then(|()| stream.read_exact(&mut [0u8; 1])).expect_err("no reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    assert_within(Duration::from_secs(1), start.elapsed(), "the reset");
}

#[test]
fn a_local_caller_is_refused_at_once() {
    on_a_node(|net| {
        net.on_peer(|| echo(PORT));
        let programs =
            armed(net, Hook::Reset, &[Direction::Egress], &rule(), &["10.9.0.2/32", "fd09::2/128"]);
        assert_refused(at(PEER_V4, PORT));
        assert_refused(at(PEER_V6, PORT));
        connect(at(OTHER_V4, PORT)).expect("a bystander was refused");
        assert_eq!(programs.counters().unwrap().affected, 2);
        drop(programs);
        connect(at(PEER_V4, PORT)).unwrap();
    });
}

#[test]
fn a_remote_caller_is_refused_at_once() {
    on_a_node(|net| {
        echo(PORT);
        let programs = armed(net, Hook::Reset, &[Direction::Ingress], &rule(), &[]);
        net.on_peer(|| {
            assert_refused(at(NODE_V4, PORT));
            assert_refused(at(NODE_V6, PORT));
        });
        drop(programs);
        net.on_peer(|| connect(at(NODE_V4, PORT)).unwrap());
    });
}

#[test]
fn established_connections_of_local_callers_are_reset() {
    on_a_node_each_way(|net| {
        net.on_peer(|| echo(PORT));
        for length in [1, 500_000] {
            for address in [PEER_V4, PEER_V6] {
                let mut stream = connect(at(address, PORT)).unwrap();
                round_trip(&mut stream, 1000).unwrap();
                let _programs = armed(net, Hook::Reset, &[Direction::Egress], &rule(), &[]);
                assert_reset(&mut stream, length);
            }
        }
    });
}

#[test]
fn established_connections_of_remote_callers_are_reset() {
    on_a_node_each_way(|net| {
        echo(PORT);
        for length in [1, 500_000] {
            for address in [NODE_V4, NODE_V6] {
                let mut stream = net.on_peer(|| connect(at(address, PORT)).unwrap());
                round_trip(&mut stream, 1000).unwrap();
                let _programs = armed(net, Hook::Reset, &[Direction::Ingress], &rule(), &[]);
                assert_reset(&mut stream, length);
            }
        }
    });
}

#[test]
fn a_fault_in_both_directions_does_not_swallow_its_own_answers() {
    on_a_node_each_way(|net| {
        net.on_peer(|| echo(PORT));
        echo(PORT);
        let _programs = armed(net, Hook::Reset, Direction::BOTH, &rule(), &[]);
        for address in [PEER_V4, PEER_V6] {
            assert_refused(at(address, PORT));
        }
        net.on_peer(|| {
            for address in [NODE_V4, NODE_V6] {
                assert_refused(at(address, PORT));
            }
        });
    });
}

/// Between veths nobody looks at a checksum unless one side computes it.
fn checksummed(on_the_node: bool) {
    on_a_node(|net| {
        if on_the_node {
            offloads_off(DEVICE);
        } else {
            net.on_peer(|| offloads_off("peer0"));
        }
        net.on_peer(|| echo(PORT));
        echo(PORT);
        let mut streams: Vec<_> =
            [PEER_V4, PEER_V6].iter().map(|&to| connect(at(to, PORT)).unwrap()).collect();
        streams.extend(net.on_peer(|| [NODE_V4, NODE_V6].map(|to| connect(at(to, PORT)).unwrap())));
        for stream in &mut streams {
            round_trip(stream, 100_000).unwrap();
        }
        let _programs = armed(net, Hook::Reset, Direction::BOTH, &rule(), &[]);
        for stream in &mut streams {
            assert_reset(stream, 3000);
        }
        for address in [PEER_V4, PEER_V6] {
            assert_refused(at(address, PORT));
        }
        net.on_peer(|| {
            for address in [NODE_V4, NODE_V6] {
                assert_refused(at(address, PORT));
            }
        });
    });
}

#[test]
fn answers_to_checksummed_segments_are_checksummed() {
    checksummed(false);
}

#[test]
fn answers_that_the_device_is_to_checksum_come_out_right() {
    checksummed(true);
}

#[test]
fn callers_over_the_loopback_are_refused_and_reset() {
    on_a_node_each_way(|net| {
        echo(PORT);
        for directions in [&[Direction::Egress][..], &[Direction::Ingress], Direction::BOTH] {
            for address in ["127.0.0.1", "::1", NODE_V4] {
                let mut stream = connect(at(address, PORT)).unwrap();
                round_trip(&mut stream, 10).unwrap();
                let mut programs = load(net);
                set_rule(&mut programs, &rule(), &[]);
                for direction in directions {
                    programs.attach(Hook::Reset, *direction, "lo");
                }
                renew(&mut programs, Duration::from_secs(9));
                assert_refused(at(address, PORT));
                assert_reset(&mut stream, 100);
            }
        }
    });
}
