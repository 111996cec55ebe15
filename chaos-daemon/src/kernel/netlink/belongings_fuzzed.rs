//! Whatever the kernel lists, and whatever a journal keeps of it: what a device has is the same thing as itself, and nothing that
//! it has is beyond what it had.

use nix::errno::Errno;

use super::{
    Attributes, Identity, Inventory, OF_ADDRESS, OF_NEIGHBOUR, OF_NEIGHBOUR_AS_IT_IS, OF_ROUTE, address,
    index, is_neighbour, lasting, link, may_lack_source, neighbour, nexthop, route, same, through_gateway,
};
use crate::fuzzing::agree;
use crate::kernel::netlink::NetlinkError;
use crate::kernel::netlink::error::Refusal;

/// Where the messages of links, addresses and neighbours have the number of the device.
const PLACE: usize = 4;

/// The payload of a message in any list.
pub(in crate::kernel::netlink) fn read(bytes: &[u8]) {
    let mut found = Inventory::default();
    for ifindex in [index(bytes, PLACE), 2] {
        let _lists = [
            link(bytes, ifindex, &mut found),
            address(bytes, ifindex, &mut found),
            route(bytes, ifindex, &mut found),
            nexthop(bytes, ifindex, &mut found),
        ];
        neighbour(bytes.to_vec(), ifindex, &mut found);
        if is_neighbour(bytes, ifindex) {
            found.belongings.proxies.push(lasting(bytes.to_vec()));
        }
    }
    for identity in [OF_ADDRESS, OF_ROUTE, OF_NEIGHBOUR, OF_NEIGHBOUR_AS_IT_IS] {
        agree(&same(identity, bytes, bytes), &is_readable(identity, bytes));
    }
    let refusal = Refusal { errno: Errno::EINVAL, words: None };
    let refused = NetlinkError::refused("restore".to_owned(), refusal);
    let _order = (through_gateway(bytes), may_lack_source(bytes, &refused));
    // What of a neighbour cannot be read counts as another one.
    let had = &found.belongings;
    if had.neighbours.iter().chain(&had.proxies).all(|bytes| is_readable(OF_NEIGHBOUR, bytes)) {
        agree(&found.beyond(had), &found.unrestorable);
    }
}

fn is_readable((header, counted, _): Identity, bytes: &[u8]) -> bool {
    Attributes::behind(bytes, header).is_ok() && bytes.len() >= counted
}
