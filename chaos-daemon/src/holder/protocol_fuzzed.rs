//! Whatever comes over the socket between injector and holder, what is an order or a report is written as it was read.

use std::io::Write;
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Order, Report, frame, receive};
use crate::fuzzing::is_written_as_it_is;

/// More than this might not fit into a socket that nobody reads meanwhile.
const MOST: usize = 64 << 10;

pub(crate) fn read(bytes: &[u8]) {
    for order in all::<Order>(bytes) {
        if let Order::Arm { lease, .. } = order {
            assert!(lease.renewed_at(1) <= lease.end_ns, "a lease outlives its fault");
        }
    }
    all::<Report>(bytes);
}

fn all<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Vec<T> {
    let Ok((mut near, mut far)) = UnixStream::pair() else { return Vec::new() };
    if bytes.len() > MOST || near.write_all(bytes).is_err() {
        return Vec::new();
    }
    drop(near);
    let mut all = Vec::new();
    while let Ok(Some((message, descriptor))) = receive::<T>(&mut far) {
        assert!(descriptor.is_none(), "a descriptor that nobody has sent");
        assert!(frame(&message).is_ok());
        is_written_as_it_is(&message);
        all.push(message);
    }
    all
}
