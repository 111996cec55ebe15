//! Tests of the packet reader on hand-made and on arbitrary packets.

use super::*;
use crate::rule::ICMP;
use proptest::prelude::*;

struct Slice<'a>(&'a [u8]);

impl Bytes for Slice<'_> {
    fn u8(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }
    fn raw16(&self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(self.0.get(at..at + 2)?.try_into().unwrap()))
    }
    fn raw32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().unwrap()))
    }
}

const PORTS: [u8; 4] = [0x12, 0x34, 0x00, 0x50];

fn v4(protocol: u8, options: usize, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; LINK_HEADER];
    packet.push(0x45 + (options / 4) as u8);
    packet.extend([0; 5]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(vec![1; options]);
    packet.extend(payload);
    packet
}

/// `extensions`: (protocol number, whole header without its first byte).
fn v6(protocol: u8, extensions: &[(u8, Vec<u8>)], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; LINK_HEADER];
    let first = extensions.first().map_or(protocol, |(number, _)| *number);
    packet.extend([0x60, 0, 0, 0, 0, 0, first, 64]);
    packet.extend([1; 16]);
    packet.extend([2; 16]);
    for (index, (_, rest)) in extensions.iter().enumerate() {
        packet.push(extensions.get(index + 1).map_or(protocol, |(number, _)| *number));
        packet.extend(rest);
    }
    packet.extend(payload);
    packet
}

fn fragment(offset: u16, more: bool) -> (u8, Vec<u8>) {
    let field = (offset << 3 | u16::from(more)).to_be_bytes();
    (FRAGMENT, vec![0, field[0], field[1], 0, 0, 0, 7])
}

fn options(number: u8, units: u8) -> (u8, Vec<u8>) {
    let mut header = vec![0; (units as usize + 1) * 8 - 1];
    header[0] = units;
    (number, header)
}

fn read(packet: &[u8], version: Version) -> Result<Packet, Unread> {
    Packet::read(&Slice(packet), version)
}

#[test]
fn ports_are_found_behind_ipv4_options() {
    for options in [0, 4, 40] {
        let packet = read(&v4(TCP, options, 0, &PORTS), Version::V4).unwrap();
        assert_eq!((packet.source, packet.destination), (0x1234, 80));
        assert_eq!(packet.transport, LINK_HEADER + 20 + options);
        assert!(packet.has_ports && packet.fragment == 0);
    }
}

#[test]
fn a_first_fragment_has_ports_and_a_later_one_has_none() {
    let first = read(&v4(UDP, 0, 0x2000, &PORTS), Version::V4).unwrap();
    assert!(first.has_ports && first.fragment != 0);
    let later = read(&v4(UDP, 0, 0x2003, &PORTS), Version::V4).unwrap();
    assert!(!later.has_ports && later.fragment != 0);
    let whole = read(&v4(UDP, 0, 0x4000, &PORTS), Version::V4).unwrap();
    assert!(whole.has_ports && whole.fragment == 0, "don't-fragment is no fragment");
}

#[test]
fn ports_are_found_behind_up_to_four_ipv6_extensions() {
    let extensions =
        [options(HOP_BY_HOP, 0), options(ROUTING, 2), options(DESTINATION, 5), fragment(0, false)];
    for count in 0..=extensions.len() {
        let packet = read(&v6(UDP, &extensions[..count], &PORTS), Version::V6).unwrap();
        assert_eq!((packet.protocol, packet.source, packet.destination), (UDP, 0x1234, 80), "{count}");
        assert!(packet.has_ports && packet.fragment == 0);
    }
}

#[test]
fn behind_a_fifth_extension_there_are_no_ports() {
    let extensions = vec![options(DESTINATION, 0); 5];
    let packet = read(&v6(TCP, &extensions, &PORTS), Version::V6).unwrap();
    assert_eq!((packet.protocol, packet.has_ports), (DESTINATION, false));
}

#[test]
fn ipv6_fragments_are_told_apart() {
    let first = read(&v6(TCP, &[fragment(0, true)], &PORTS), Version::V6).unwrap();
    assert!(first.fragment != 0 && first.has_ports);
    let later = read(&v6(TCP, &[fragment(9, false)], &PORTS), Version::V6).unwrap();
    assert!(later.fragment != 0 && !later.has_ports && later.protocol == TCP);
}

#[test]
fn the_data_of_a_later_fragment_is_not_taken_for_a_header() {
    let data = [UDP, 0, 0, 0, 0, 0, 0, 0, 0, 67, 0, 68];
    let later = read(&v6(DESTINATION, &[fragment(9, true)], &data), Version::V6).unwrap();
    assert_eq!((later.protocol, later.has_ports), (DESTINATION, false));
}

#[test]
fn what_only_claims_to_be_ip_is_not_read() {
    assert_eq!(read(&v4(TCP, 0, 0, &PORTS), Version::V6), Err(Unread::NotIp));
    assert_eq!(read(&v6(TCP, &[], &PORTS), Version::V4), Err(Unread::NotIp));
    let mut lame = v4(TCP, 0, 0, &PORTS);
    lame[LINK_HEADER] = 0x44;
    assert_eq!(read(&lame, Version::V4), Err(Unread::NotIp));
}

#[test]
fn the_life_of_the_link_is_exempt_and_pings_are_not() {
    for kind in 0..=255u8 {
        let packet = read(&v6(ICMP_V6, &[], &[kind, 0, 0, 0]), Version::V6).unwrap();
        let life = (130..=137).contains(&kind) || kind == 143;
        assert_eq!(packet.is_link_life(), life, "ICMPv6 type {kind}");
        let packet = read(&v4(ICMP, 0, 0, &[kind, 0, 0, 0]), Version::V4).unwrap();
        assert!(!packet.is_link_life());
    }
    // A listener report carries a router-alert option in front.
    let report = v6(ICMP_V6, &[options(HOP_BY_HOP, 0)], &[143, 0, 0, 0]);
    assert!(read(&report, Version::V6).unwrap().is_link_life());
}

#[test]
fn dhcp_is_exempt_in_its_own_version_only() {
    for (version, port, exempt) in [
        (Version::V4, 67, true),
        (Version::V4, 68, true),
        (Version::V4, 546, false),
        (Version::V6, 546, true),
        (Version::V6, 547, true),
        (Version::V6, 68, false),
    ] {
        for ports in [[0, 99, (port >> 8) as u8, port as u8], [(port >> 8) as u8, port as u8, 0, 99]] {
            let bytes = if version == Version::V4 { v4(UDP, 0, 0, &ports) } else { v6(UDP, &[], &ports) };
            assert_eq!(read(&bytes, version).unwrap().is_link_life(), exempt, "{version:?} {port}");
        }
        let tcp = v4(TCP, 0, 0, &[0, 67, 0, 68]);
        assert!(!read(&tcp, Version::V4).unwrap().is_link_life());
    }
}

#[test]
fn the_peer_is_the_destination_on_egress_and_the_source_on_ingress() {
    let packet = v4(TCP, 0, 0, &PORTS);
    assert_eq!(packet[peer_at(Version::V4, Way::Egress)..][..4], [10, 0, 0, 2]);
    assert_eq!(packet[peer_at(Version::V4, Way::Ingress)..][..4], [10, 0, 0, 1]);
    let packet = v6(TCP, &[], &PORTS);
    assert_eq!(packet[peer_at(Version::V6, Way::Egress)..][..16], [2; 16]);
    assert_eq!(packet[peer_at(Version::V6, Way::Ingress)..][..16], [1; 16]);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_or_invent_ports(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for version in [Version::V4, Version::V6] {
            if let Ok(packet) = read(&bytes, version) {
                prop_assert!(!packet.has_ports || packet.transport + 4 <= bytes.len());
            }
        }
    }

    #[test]
    fn a_cut_packet_is_short_and_a_whole_one_is_read(cut in 0usize..100, units in 0u8..4) {
        let whole = v6(TCP, &[options(DESTINATION, units)], &PORTS);
        let cut = cut.min(whole.len());
        let seen = read(&whole[..cut], Version::V6);
        prop_assert_eq!(seen.is_ok(), cut == whole.len(), "{:?}", seen);
        prop_assert!(seen.is_ok() || seen == Err(Unread::Short));
    }
}
