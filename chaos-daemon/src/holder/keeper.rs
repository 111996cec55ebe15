//! The keeper has the kernel's packet hooks switched on before a fault needs them.
//!
//! Every packet passes tcx behind a static key, which is on while any program is attached anywhere. The link that switches
//! it on waits for a grace period of RCU first, some 10 ms; every further one takes effect at once (Linux
//! `kernel/bpf/tcx.c`, `tcx_link_prog_attach`: `tcx_skeys_inc` comes after `tcx_entry_sync`). So the keeper has a link for
//! each direction, on the loopback of a network namespace of its own, where no packet comes by. It is a process of its own
//! because a holder lets go of its links one after the other, each with such a wait, when it dies.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::life::HolderError;
use super::protocol::{Order, Report, receive, send};
use crate::host::NetNs;
use crate::host::privilege::{NETWORK_HOLDER, limit_to};
use crate::kernel::bpf::{Capacity, Family, Programs};
use crate::spec::Direction;

/// Index of the loopback device, which is the first in every namespace.
const LOOPBACK: u32 = 1;

/// Keeps the hooks switched on until the injector closes `socket`, or ends.
///
/// # Errors
/// When the injector's socket fails, or the kernel refuses the namespace or a program. Nothing is left then.
pub fn keep(socket: OwnedFd) -> Result<(), HolderError> {
    limit_to(NETWORK_HOLDER)?;
    let _private = NetNs::unshare()?;
    let mut programs = Programs::load(Family::Stubs, Capacity { hosts: 1, prefixes: 1 })?;
    for direction in Direction::BOTH {
        programs.attach_stub_tcx(*direction, LOOPBACK, "lo")?;
    }
    limit_to(&[])?;
    let mut socket = UnixStream::from(socket);
    send(&mut socket, &Report::Ready)?;
    match receive::<Order>(&mut socket)? {
        Some(_) => Err(HolderError::Unexpected("work for the keeper")),
        None => Ok(()),
    }
}
