//! The holder's loop: wait for work, carry it out, live from heartbeat to heartbeat, undo, end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use caps::Capability;

use super::arm::Armed;
use super::deadline;
use super::protocol::{Lease, Order, Report, receive, send};
use crate::fault::Work;
use crate::host::privilege::{CLOCK, LimitError, NETWORK_HOLDER, OTHER_HOLDER, limit_to};
use crate::host::{NetNs, NetNsError, boot_time_ns};
use crate::kernel::bpf::{BpfError, Capacity, Programs};
use crate::kernel::setting::Setting;

/// Why a holder ended other than by its orders.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// The socket to the injector.
    #[error("talk to the injector")]
    Socket(#[from] io::Error),
    /// Capabilities.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The packet programs.
    #[error(transparent)]
    Programs(#[from] BpfError),
    /// The descriptor that came with the work.
    #[error(transparent)]
    Namespace(#[from] NetNsError),
    /// An order that does not fit the state.
    #[error("unexpected order {0}")]
    Unexpected(&'static str),
}

/// Lives one holder's life on `socket`. With `preload`, the packet programs are loaded before any work is known,
/// so that the work, when it comes, takes effect within a fraction of a millisecond.
///
/// # Errors
/// When the injector's socket fails or programs cannot be loaded. The fault is gone either way.
pub fn run(socket: OwnedFd, preload: Option<Capacity>) -> Result<(), HolderError> {
    limit_to(if preload.is_some() { NETWORK_HOLDER } else { OTHER_HOLDER })?;
    let mut socket = UnixStream::from(socket);
    let warm = preload.map(Programs::load).transpose()?;
    send(&mut socket, &Report::Ready)?;
    let Some((order, netns)) = receive(&mut socket)? else { return Ok(()) };
    match order {
        Order::Arm { work, lease } => {
            limit_to(needed(&work))?;
            hold(&mut socket, &work, lease, warm, netns.map(NetNs::of_fd).transpose()?)
        }
        Order::Disarm => Ok(()),
        Order::Renew => Err(HolderError::Unexpected("renew before arm")),
    }
}

/// The capabilities that this work needs, and no other fault's.
fn needed(work: &Work) -> &'static [Capability] {
    match work {
        Work::Packets(_) | Work::Loop(_) => NETWORK_HOLDER,
        Work::Cpu(_) => &[],
        Work::Settings(settings) => match settings.first() {
            // Root owns these files.
            Some(Setting::Cgroup(_)) | None => &[],
            Some(Setting::Link(_)) => &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN],
            Some(Setting::Clock(_)) => &[CLOCK],
        },
    }
}

fn hold(
    socket: &mut UnixStream,
    work: &Work,
    lease: Lease,
    warm: Option<Programs>,
    netns: Option<NetNs>,
) -> Result<(), HolderError> {
    // Before the fault is armed: whatever happens from here on, the kernel ends this process.
    let _timer = deadline::arm(lease.end_ns, work.longest_stay()).map_err(io::Error::from)?;
    let armed = Armed::new(work, warm, netns, lease.renewed_at(boot_time_ns()))
        .and_then(|armed| armed.evidence().map(|evidence| (armed, evidence)));
    let mut armed = match armed {
        Ok((armed, evidence)) => {
            send(socket, &Report::Armed(evidence))?;
            armed
        }
        Err(error) => return Ok(send(socket, &Report::Failed { message: chain(&error) })?),
    };
    while let Some((order, _)) = receive(socket)? {
        match order {
            Order::Renew => {
                let renewed = armed.renew(lease.renewed_at(boot_time_ns())).and_then(|()| armed.evidence());
                match renewed {
                    Ok(evidence) => send(socket, &Report::Beat(evidence))?,
                    // Not renewed: the fault ends at its deadline; the injector hears why and ends the holder.
                    Err(error) => send(socket, &Report::Failed { message: chain(&error) })?,
                }
            }
            Order::Disarm => return disarm(socket, armed),
            Order::Arm { .. } => return Err(HolderError::Unexpected("arm twice")),
        }
    }
    Ok(())
}

/// Disarm, drain, remove; each is tried whatever became of the one before.
fn disarm(socket: &mut UnixStream, mut armed: Armed) -> Result<(), HolderError> {
    let disarmed = armed.disarm();
    let drained = armed.drain();
    let evidence = armed.evidence().unwrap_or_default();
    drop(armed);
    match disarmed.and(drained) {
        Ok(()) => send(socket, &Report::Disarmed(evidence))?,
        Err(error) => send(socket, &Report::Failed { message: chain(&error) })?,
    }
    Ok(())
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
