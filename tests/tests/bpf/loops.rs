//! Detours, and several faults on one device. Without netem in the detour: only the way counts here.

use std::time::Duration;

use chaos_common::PacketRule;
use chaos_common::rule::{PortRange, RETURN_INGRESS, UDP, threshold};
use chaos_daemon::kernel::bpf::{Hook, LoopEnd};
use chaos_daemon::spec::Direction;
use chaos_tests::HANG;
use chaos_tests::process::wait_until;
use nix::net::if_::if_nametoindex;

use super::arm::{Fault, everything, load, renew, set_rule};
use super::net::{
    DEVICE, NODE_V4, NODE_V6, Net, PEER_V4, PEER_V6, STRANGE, answers, arrivals, arrives, at, connect, echo,
    frames_from, ip, on_a_node_each_way, round_trip, sniff, udp,
};

const PORT: u16 = 7000;

/// A detour of its own pair for this level, in one direction.
fn detour(net: &Net, level: u32, direction: Direction, rule: PacketRule) -> Fault {
    let (near, far) = (format!("near{level}"), format!("far{level}"));
    net.detour(&near, &far);
    let mut programs = load(net);
    let back = if direction == Direction::Ingress { RETURN_INGRESS } else { 0 };
    let rule = PacketRule {
        level,
        divert_to: if_nametoindex(near.as_str()).unwrap(),
        return_to: if_nametoindex(DEVICE).unwrap(),
        flags: rule.flags | back,
        ..rule
    };
    set_rule(&mut programs, &rule, &[]);
    net.on_far_end(|| programs.attach_end(LoopEnd::Far, &far));
    programs.attach_end(LoopEnd::Near, &near);
    programs.attach(Hook::Divert, direction, DEVICE);
    renew(&mut programs, Duration::from_secs(60));
    programs
}

#[test]
fn diverted_packets_arrive_in_both_directions_and_both_versions() {
    on_a_node_each_way(|net| {
        net.on_peer(|| echo(PORT));
        for (level, direction) in [(1, Direction::Egress), (2, Direction::Ingress)] {
            let programs = detour(net, level, direction, everything());
            for address in [PEER_V4, PEER_V6] {
                assert!(answers(address), "{direction:?} {address}");
                let mut stream = connect(at(address, PORT)).unwrap();
                round_trip(&mut stream, 2_000_000).unwrap();
            }
            assert!(programs.counters().unwrap().affected > 4);
            assert!(programs.read_back().unwrap().iter().all(|attachment| attachment.present));
        }
    });
}

#[test]
fn two_detours_and_a_loss_on_one_device_each_see_a_packet_once() {
    on_a_node_each_way(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let rule = PacketRule { protocol: u16::from(UDP), ports: PortRange::one(PORT), ..everything() };
        let first = detour(net, 1, Direction::Egress, rule);
        let mut loss = load(net);
        set_rule(&mut loss, &PacketRule { level: 2, probability: threshold(0.5), ..rule }, &[]);
        loss.attach(Hook::Drop, Direction::Egress, DEVICE);
        renew(&mut loss, Duration::from_secs(60));
        let last = detour(net, 3, Direction::Egress, rule);

        let arrived = arrivals(&sender, at(PEER_V4, PORT), &receiver, 400);
        let affected = |fault: &Fault| fault.counters().unwrap().affected as usize;
        assert_eq!(affected(&first), 400);
        assert_eq!(loss.counters().unwrap().matched, 400, "a packet was rolled for more than once");
        assert_eq!(affected(&loss), 400 - arrived);
        assert_eq!(affected(&last), arrived);
        assert!((100..300).contains(&arrived), "{arrived}");

        // Ending one leaves the others as they were.
        drop(loss);
        assert_eq!(arrivals(&sender, at(PEER_V4, PORT), &receiver, 100), 100);
        assert_eq!((affected(&first), affected(&last)), (500, arrived + 100));
        drop(first);
        assert_eq!(arrivals(&sender, at(PEER_V4, PORT), &receiver, 100), 100);
        assert_eq!(affected(&last), arrived + 200);
    });
}

#[test]
fn two_detours_compose_for_arriving_packets() {
    on_a_node_each_way(|net| {
        let receiver = udp(PORT);
        let rule = PacketRule { protocol: u16::from(UDP), ports: PortRange::one(PORT), ..everything() };
        let faults = [1, 2].map(|level| detour(net, level, Direction::Ingress, rule));
        for node in [NODE_V4, NODE_V6] {
            assert_eq!(net.on_peer(|| arrivals(&udp(0), at(node, PORT), &receiver, 50)), 50);
        }
        for fault in &faults {
            assert_eq!(fault.counters().unwrap().affected, 100);
        }
    });
}

#[test]
fn an_expired_detour_diverts_nothing_and_lets_nothing_strange_out() {
    on_a_node_each_way(|net| {
        let (sender, receiver) = (udp(0), net.on_peer(|| udp(PORT)));
        let mut programs = detour(net, 1, Direction::Egress, everything());
        programs.disarm().unwrap();
        assert!(arrives(&sender, at(PEER_V4, PORT), &receiver));
        assert_eq!(programs.counters().unwrap().affected, 0);
        // What either end's own stack says must not get out. It says a lot when its device comes up.
        let (inside, outside) = (sniff("near1"), net.on_peer(|| sniff("peer0")));
        for state in ["down", "up"] {
            net.on_far_end(|| ip(&format!("link set far1 {state}")));
            ip(&format!("link set near1 {state}"));
        }
        std::thread::sleep(Duration::from_millis(2500));
        let said = || frames_from(&inside, STRANGE) > 0;
        assert!(wait_until(HANG, said), "the ends said nothing, so this shows nothing");
        assert_eq!(frames_from(&outside, STRANGE), 0, "something strange left through the device");
    });
}
