//! Whatever comes over a netlink socket, it is read as one thing, or not at all; and a netem is told again as it was read.

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};

use super::clsact::parse_filter;
use super::error::Refusal;
use super::link::parse_device;
use super::qdisc::Entry;
use super::wire::Wire;
use super::{belongings, marks, netem};

/// A datagram: messages one after the other.
pub(crate) fn read(mut bytes: &[u8]) {
    while let Ok(message) = NetlinkBuffer::new_checked(bytes) {
        let length = message.length() as usize;
        let Some((whole, rest)) = bytes.split_at_checked(length) else { return };
        if let Ok(message) = NetlinkMessage::<Wire>::deserialize(whole) {
            take(message.payload);
        }
        bytes = rest;
    }
}

fn take(payload: NetlinkPayload<Wire>) {
    match payload {
        NetlinkPayload::InnerMessage(Wire::Answer(bytes)) => entry(&bytes),
        NetlinkPayload::Error(error) => drop(Refusal::from_message(&error).to_string()),
        NetlinkPayload::Done(done) => drop(Refusal::new(done.code, &done.extended_ack).to_string()),
        _ => {}
    }
}

/// One of a list, which each list reads by itself.
fn entry(bytes: &[u8]) {
    belongings::fuzzed::read(bytes);
    if let Ok(device) = parse_device(bytes) {
        let _fault = (marks::recognise_device(&device.name), marks::recognise_folder(&device.name));
    }
    if let Ok(filter) = parse_filter(bytes) {
        assert!(!filter.is_ours() || filter.bpf_name.is_some(), "{filter:?}");
    }
    if let Ok(entry) = Entry::parse(bytes) {
        netem::fuzzed::read(&entry);
    }
}
