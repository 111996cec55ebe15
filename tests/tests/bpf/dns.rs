//! Questions about names that are answered where they are: from the node and from its peer, both IP versions, with names in
//! the map and without, and with checksums that somebody looks at.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use chaos_common::dns::{MOST_NAMES, NAME_ERROR, SILENT, V4, V6};
use chaos_common::rule::PortRange;
use chaos_common::{DnsRule, PacketRule};
use chaos_daemon::kernel::bpf::{BpfError, Hook};
use chaos_daemon::spec::Direction;
use chaos_tests::measure::receive;
use chaos_tests::name_server::{Heard, Kind, question, understand};

use super::arm::{Fault, everything, load_for, renew, set_rule};
use super::net::{
    DEVICE, NODE_V4, NODE_V6, Net, PEER_V4, PEER_V6, at, offloads_off, on_a_node, on_a_node_each_way,
};

const PORT: u16 = 53;
const PATIENCE: Duration = Duration::from_millis(300);
const WRONG: DnsRule = DnsRule {
    flags: V4 | V6,
    code: 0,
    v4: [192, 0, 2, 1],
    v6: [0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
};
const NO_SUCH_NAME: DnsRule = DnsRule { flags: 0, code: NAME_ERROR, v4: [0; 4], v6: [0; 16] };

/// What somebody hears in the calling thread's namespace who asks where nobody listens.
fn hear(server: SocketAddr, name: &str, kind: Kind) -> Heard {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(server).unwrap();
    let asked = question(77, name, kind);
    socket.send(&asked).unwrap();
    let mut buffer = [0; 1500];
    match receive(&socket, &mut buffer, PATIENCE) {
        Ok(length) => understand(&asked, &buffer[..length]).unwrap(),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Heard::Silence,
        // The question went through.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Heard::Reset,
        Err(error) => panic!("{error}"),
    }
}

fn names(of: &[&str]) -> Vec<(String, bool)> {
    let read = |name: &&str| match name.strip_prefix("*.") {
        Some(name) => (name.to_owned(), true),
        None => ((*name).to_owned(), false),
    };
    of.iter().map(read).collect()
}

fn armed(net: &Net, directions: &[Direction], said: &DnsRule, about: &[&str]) -> Fault {
    let mut fault = load_for(net, Hook::Dns);
    fault.set_names(said, &names(about)).unwrap();
    set_rule(&mut fault, &PacketRule { ports: PortRange::one(PORT), ..everything() }, &[]);
    for direction in directions {
        fault.attach(Hook::Dns, *direction, DEVICE);
    }
    renew(&mut fault, Duration::from_secs(60));
    fault
}

/// An answer with the wrong address of this kind.
fn wrong(kind: Kind) -> Heard {
    let address = if kind == Kind::A { WRONG.v4.into() } else { WRONG.v6.into() };
    Heard::Said(0, vec![address], vec![0])
}

#[test]
fn a_question_is_answered_by_its_name_and_another_goes_through() {
    on_a_node_each_way(|net| {
        let about = ["db.example.org", "*.cut.example.org"];
        let fault = armed(net, &[Direction::Egress], &NO_SUCH_NAME, &about);
        for server in [at(PEER_V4, PORT), at(PEER_V6, PORT)] {
            for name in ["db.example.org", "DB.EXAMPLE.ORG", "a.cut.example.org", "a.b.cut.example.org"] {
                assert_eq!(hear(server, name, Kind::A), Heard::code(3), "{name} from {server}");
            }
            for name in ["example.org", "cut.example.org", "adb.example.org", "db.example.org.x", ""] {
                assert_eq!(hear(server, name, Kind::A), Heard::Reset, "{name:?} from {server}");
            }
        }
        assert_eq!(fault.counters().unwrap().matched, 8, "what is not meant is not counted");
        drop(fault);
        assert_eq!(hear(at(PEER_V4, PORT), "db.example.org", Kind::A), Heard::Reset);
    });
}

#[test]
fn names_of_every_length_are_met() {
    on_a_node(|net| {
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
        let many = ["x.".repeat(126), "x".to_owned()].concat();
        let fault = armed(net, &[Direction::Egress], &WRONG, &[&longest, &many, "o", "*.n"]);
        for name in [longest.as_str(), &many, "o", "m.n"] {
            for kind in [Kind::A, Kind::Aaaa] {
                assert_eq!(hear(at(PEER_V6, PORT), name, kind), wrong(kind), "{name}");
            }
        }
        assert_eq!(hear(at(PEER_V6, PORT), &many[2..], Kind::A), Heard::Reset);
        drop(fault);
    });
}

#[test]
fn a_question_that_arrives_is_answered_to_the_peer() {
    on_a_node_each_way(|net| {
        let _fault = armed(net, &[Direction::Ingress], &WRONG, &[]);
        net.on_peer(|| {
            for server in [at(NODE_V4, PORT), at(NODE_V6, PORT)] {
                for kind in [Kind::A, Kind::Aaaa] {
                    assert_eq!(hear(server, "db.example.org", kind), wrong(kind), "{server}");
                }
                assert_eq!(hear(server, "db.example.org", Kind::Mail), Heard::code(0), "{server}");
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
        for said in [WRONG, NO_SUCH_NAME] {
            let _fault = armed(net, Direction::BOTH, &said, &[]);
            // Of odd and even length.
            for name in ["a", "ab", "abc", "abcd"] {
                let expected = if said == WRONG { wrong(Kind::A) } else { Heard::code(3) };
                for server in [PEER_V4, PEER_V6] {
                    assert_eq!(hear(at(server, PORT), name, Kind::A), expected, "{name} from {server}");
                }
                net.on_peer(|| {
                    for server in [NODE_V4, NODE_V6] {
                        assert_eq!(hear(at(server, PORT), name, Kind::A), expected, "{name} from {server}");
                    }
                });
            }
        }
    });
}

#[test]
fn answers_to_checksummed_questions_are_checksummed() {
    checksummed(false);
}

#[test]
fn answers_to_questions_that_the_device_is_to_checksum_come_out_right() {
    checksummed(true);
}

#[test]
fn a_question_that_gets_no_answer_vanishes() {
    on_a_node_each_way(|net| {
        let silent = DnsRule { flags: SILENT, ..DnsRule::default() };
        let fault = armed(net, &[Direction::Egress], &silent, &["db.example.org"]);
        assert_eq!(hear(at(PEER_V4, PORT), "db.example.org", Kind::A), Heard::Silence);
        assert_eq!(hear(at(PEER_V6, PORT), "db.example.org", Kind::Aaaa), Heard::Silence);
        assert_eq!(hear(at(PEER_V6, PORT), "example.org", Kind::Aaaa), Heard::Reset);
        assert_eq!(fault.counters().unwrap().affected, 2);
    });
}

#[test]
fn there_is_room_for_so_many_names_and_no_more() {
    on_a_node(|net| {
        let mut fault = load_for(net, Hook::Dns);
        let mut many: Vec<_> =
            (0..MOST_NAMES).map(|number| (format!("n{number}.example.org"), true)).collect();
        many.push(many[0].clone());
        fault.set_names(&NO_SUCH_NAME, &many).unwrap();
        fault.set_names(&NO_SUCH_NAME, &many).unwrap();
        many.push(("one.more".to_owned(), false));
        assert!(matches!(fault.set_names(&NO_SUCH_NAME, &many), Err(BpfError::TooMany { .. })));
        assert!(matches!(
            fault.set_names(&NO_SUCH_NAME, &[("a".repeat(254), false)]),
            Err(BpfError::Name(_))
        ));
    });
}
