//! `ports`: ports.

use serde_json::json;

use crate::kinds::aims::{Aims, Request};
use crate::kinds::ended::{Ended, held};
use crate::kinds::sign::Thing;
use crate::kinds::struck::{Struck, holds};
use crate::kinds::table::{Part, part};

pub(super) const PARTS: &[Part] = &[
    part(
        "of TCP, of a network namespace",
        &["hoards::things::ports_can_be_neither_bound_nor_connected_from_while_the_fault_lasts"],
    ),
    part("of a range", &["hoards::things::ports_of_a_range_are_taken_and_none_beside_it"]),
    part("of UDP", &["hoards::things::no_datagram_socket_finds_a_port_while_those_of_udp_are_taken"]),
];

pub(super) const STRUCK: Struck = holds(Thing::Sockets, 20, |aims| so_many(aims, 20)).called("ports");

pub(super) const ENDED: Ended = held(|aims| so_many(aims, 100)).called("ports");

fn so_many(aims: &Aims, count: u32) -> Request {
    (aims.netns(), json!({"resource": "ports", "count": count}))
}
