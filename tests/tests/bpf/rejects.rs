//! Messages that a destination cannot be reached: local callers and remote ones, both IP versions, TCP and UDP, and with
//! checksums that somebody looks at.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use chaos_common::rule::PortRange;
use chaos_common::{PacketRule, unreachable};
use chaos_daemon::kernel::bpf::Hook;
use chaos_daemon::spec::Direction;
use chaos_tests::HANG;
use chaos_tests::late::assert_within;
use chaos_tests::process::wait_until;
use nix::libc;

use super::arm::{armed, everything, load_for, renew, set_rule};
use super::net::{
    DEVICE, NODE_V4, NODE_V6, OTHER_V4, PEER_V4, PEER_V6, answers, at, connect, echo, offloads_off,
    on_a_node, on_a_node_each_way, ping, round_trip,
};

const PORT: u16 = 7000;
/// Far below the second after which a SYN is sent again of itself.
const AT_ONCE: Duration = Duration::from_millis(500);

fn rule(answer: u32) -> PacketRule {
    PacketRule { ports: PortRange::one(PORT), answer, ..everything() }
}

/// What connect(2) says, at once.
fn assert_told(to: SocketAddr, errno: i32) {
    let start = Instant::now();
    let error = connect(to).expect_err("connected");
    assert_eq!(error.raw_os_error(), Some(errno), "{to}: {error}");
    assert_within(AT_ONCE, start.elapsed(), &format!("what connect(2) to {to} says"));
}

/// What a UDP socket hears of a message that nobody listens.
fn assert_datagram_refused(to: SocketAddr) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(HANG)).unwrap();
    socket.connect(to).unwrap();
    socket.send(&[1; 100]).unwrap();
    let error = socket.recv(&mut [0; 10]).expect_err("an answer");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to}: {error}");
}

#[test]
fn local_callers_are_told_what_the_answer_says_at_once() {
    on_a_node_each_way(|net| {
        net.on_peer(|| echo(PORT));
        for (answer, v4, v6) in [
            (unreachable::HOST, libc::EHOSTUNREACH, libc::EHOSTUNREACH),
            (unreachable::NETWORK, libc::ENETUNREACH, libc::ENETUNREACH),
            (unreachable::PORT, libc::ECONNREFUSED, libc::ECONNREFUSED),
            (unreachable::ADMIN_PROHIBITED, libc::EHOSTUNREACH, libc::EACCES),
        ] {
            let peers = ["10.9.0.2/32", "fd09::2/128"];
            let fault = armed(net, Hook::Reject, &[Direction::Egress], &rule(answer), &peers);
            assert_told(at(PEER_V4, PORT), v4);
            assert_told(at(PEER_V6, PORT), v6);
            connect(at(OTHER_V4, PORT)).expect("a bystander was told");
            drop(fault);
            connect(at(PEER_V4, PORT)).unwrap();
        }
    });
}

#[test]
fn remote_callers_are_told_at_once() {
    on_a_node_each_way(|net| {
        echo(PORT);
        let fault = armed(net, Hook::Reject, &[Direction::Ingress], &rule(unreachable::HOST), &[]);
        net.on_peer(|| {
            assert_told(at(NODE_V4, PORT), libc::EHOSTUNREACH);
            assert_told(at(NODE_V6, PORT), libc::EHOSTUNREACH);
        });
        drop(fault);
        net.on_peer(|| connect(at(NODE_V4, PORT)).unwrap());
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
        let _fault = armed(net, Hook::Reject, Direction::BOTH, &rule(unreachable::PORT), &[]);
        for address in [PEER_V4, PEER_V6] {
            assert_told(at(address, PORT), libc::ECONNREFUSED);
            assert_datagram_refused(at(address, PORT));
        }
        net.on_peer(|| {
            for address in [NODE_V4, NODE_V6] {
                assert_told(at(address, PORT), libc::ECONNREFUSED);
                assert_datagram_refused(at(address, PORT));
            }
        });
    });
}

#[test]
fn messages_about_checksummed_packets_are_checksummed() {
    checksummed(false);
}

#[test]
fn messages_about_packets_that_the_device_is_to_checksum_come_out_right() {
    checksummed(true);
}

#[test]
fn a_connection_outlives_messages_and_goes_on() {
    on_a_node_each_way(|net| {
        net.on_peer(|| echo(PORT));
        for address in [PEER_V4, PEER_V6] {
            let mut stream = connect(at(address, PORT)).unwrap();
            round_trip(&mut stream, 1000).unwrap();
            let fault = armed(net, Hook::Reject, &[Direction::Egress], &rule(unreachable::HOST), &[]);
            std::thread::scope(|scope| {
                let trip = scope.spawn(|| round_trip(&mut stream, 100_000));
                assert!(wait_until(HANG, || fault.counters().unwrap().affected > 0));
                drop(fault);
                trip.join().unwrap().unwrap();
            });
        }
    });
}

#[test]
fn a_ping_is_told_and_a_message_is_not_answered() {
    on_a_node_each_way(|net| {
        let fault = armed(
            net,
            Hook::Reject,
            Direction::BOTH,
            &PacketRule { ports: PortRange::default(), ..rule(unreachable::HOST) },
            &[],
        );
        for address in [PEER_V4, PEER_V6] {
            assert!(!ping(address));
        }
        // The requests only: what they were answered with is not.
        assert_eq!(fault.counters().unwrap().affected, 2);
        drop(fault);
        assert!(answers(PEER_V4) && answers(PEER_V6));
    });
}

#[test]
fn callers_over_the_loopback_are_told() {
    on_a_node_each_way(|net| {
        echo(PORT);
        for directions in [&[Direction::Egress][..], &[Direction::Ingress], Direction::BOTH] {
            for address in ["127.0.0.1", "::1", NODE_V4] {
                let mut fault = load_for(net, Hook::Reject);
                set_rule(&mut fault, &rule(unreachable::PORT), &[]);
                for direction in directions {
                    fault.attach(Hook::Reject, *direction, "lo");
                }
                renew(&mut fault, Duration::from_secs(9));
                assert_datagram_refused(at(address, PORT));
                // On its way in there a SYN has lost its socket: nothing says that it is the first, and IPv6 callers wait
                // for the second.
                if *directions != [Direction::Ingress] {
                    assert_told(at(address, PORT), libc::ECONNREFUSED);
                }
            }
        }
    });
}
