//! Resource exhaustion, ports: TCP or UDP ports of an address are taken and held.
//!
//! - **Mechanism**: sockets that are bound and do nothing else, to the ports of a range one after the other; those that are in use
//!   are passed over. Without a range, it is the one from which the kernel chooses for connections (`ip_local_port_range`).
//! - **Kernel requirement**: none.
//! - **Lifetime class**: kernel: the sockets are closed with the process. A stopped one is killed by its timer when the lease
//!   runs out.
//! - **Undo**: end the holder.
//! - **Blast radius**: whoever binds to such a port of this address (`EADDRINUSE`), and, of the kernel's own range, whoever
//!   connects, from any address (`EADDRNOTAVAIL` when none is left). What is bound or connected already goes on.
//! - **Reference**: bind(2), ip(7) (`ip_local_port_range`).

use std::net::IpAddr;
use std::time::Duration;

use super::{Goal, Plan, descriptors, held};
use crate::request::ApiError;

/// Plans it; the process may have `most` descriptors. In which network namespace is not known here.
///
/// # Errors
/// [`crate::request::ErrorCode::LimitReached`] when one process cannot have so many.
pub fn plan(
    udp: bool,
    address: IpAddr,
    range: Option<(u16, u16)>,
    count: u64,
    ramp: Duration,
    most: u64,
) -> Result<Plan, ApiError> {
    descriptors::fits_process(count, most)?;
    let of = match range {
        Some((first, last)) => format!("{first} to {last}"),
        None => "the range for connections".to_owned(),
    };
    let protocol = if udp { "UDP" } else { "TCP" };
    let what = format!("{count} {protocol} ports of {address}, of {of}");
    Ok(held(&what, Goal::Ports { udp, address, range, count }, ramp, None))
}
