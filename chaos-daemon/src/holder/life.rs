//! The holder's loop: wait for work, carry it out, live from heartbeat to heartbeat, undo, end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::arm::{ArmError, Armed, Means, kind_of};
use super::packets::spare;
use super::protocol::{Lease, Order, Preload, Report, receive, send};
use super::{deadline, memory};
use crate::fail_point::{self, Point, Role};
use crate::fault::Work;
use crate::host::privilege::{LimitError, NETWORK_HOLDER, OTHER_HOLDER, limit_to};
use crate::host::{NetNs, NetNsError, boot_time_ns};
use crate::kernel::bpf::{BpfError, Programs};
use crate::request::chain;
use crate::sabotage;

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

/// Lives one holder's life on `socket`. One for `packets` is told to load its programs before any work is known,
/// so that the work, when it comes, takes effect within a fraction of a millisecond.
///
/// # Errors
/// When the injector's socket fails or programs cannot be loaded. The fault is gone either way.
pub fn run(socket: OwnedFd, packets: bool) -> Result<(), HolderError> {
    limit_to(if packets { NETWORK_HOLDER } else { OTHER_HOLDER })?;
    let mut socket = UnixStream::from(socket);
    let mut warm = None;
    if packets {
        match receive(&mut socket)? {
            Some((Order::Load(preload), _)) => warm = Some(load(&preload)?),
            Some(_) => return Err(HolderError::Unexpected("work before load")),
            None => return Ok(()),
        }
    }
    send(&mut socket, &Report::Ready)?;
    let Some((order, netns)) = receive(&mut socket)? else { return Ok(()) };
    match order {
        Order::Arm { work, lease } => {
            limit_to(kind_of(&work).needed())?;
            hold(&mut socket, &work, lease, warm, netns.map(NetNs::of_fd).transpose()?)
        }
        Order::Disarm => Ok(()),
        Order::Renew | Order::Aim { .. } | Order::Spare { .. } => {
            Err(HolderError::Unexpected("renew, aim or spare before arm"))
        }
        Order::Load(_) => Err(HolderError::Unexpected("load twice")),
    }
}

/// Everything that work would otherwise have to wait for.
fn load(preload: &Preload) -> Result<Programs, BpfError> {
    let mut programs = Programs::load(preload.family, preload.capacity)?;
    spare(&mut programs, &preload.protected_peers, &preload.protected_tcp_ports)?;
    memory::populate_code();
    Ok(programs)
}

fn hold(
    socket: &mut UnixStream,
    work: &Work,
    lease: Lease,
    warm: Option<Programs>,
    netns: Option<NetNs>,
) -> Result<(), HolderError> {
    fail_point::enter(Role::Holder);
    fail_point::pass(Point::BeforeArming)?;
    // Before the fault is armed: whatever happens from here on, the kernel ends this process.
    let _timer = deadline::arm(lease.end_ns, work.longest_stay()).map_err(io::Error::from)?;
    let means = Means { warm, netns, deadline_ns: lease.renewed_at(boot_time_ns()) };
    let armed = kind_of(work).arm(means).and_then(|armed| armed.evidence().map(|evidence| (armed, evidence)));
    let mut armed = match armed {
        Ok((armed, evidence)) => {
            fail_point::pass(Point::AfterArming)?;
            sabotage::fork();
            send(socket, &Report::Armed(evidence))?;
            armed
        }
        Err(error) => return Ok(send(socket, &failed(&error))?),
    };
    while let Some((order, _)) = receive(socket)? {
        match order {
            Order::Renew => {
                fail_point::pass(Point::BeforeRenewal)?;
                let renewed = armed
                    .renew(lease.renewed_at(boot_time_ns()))
                    .and_then(|()| armed.check())
                    .and_then(|()| armed.evidence());
                fail_point::pass(Point::AfterRenewal)?;
                match renewed {
                    Ok(evidence) => send(socket, &Report::Beat(evidence))?,
                    // The injector hears why and ends the holder; the fault ends at its deadline at the latest.
                    Err(error) => send(socket, &failed(&error))?,
                }
            }
            Order::Aim { peers } => match armed.aim(&peers) {
                Ok(()) => send(socket, &Report::Aimed)?,
                Err(error) => send(socket, &failed(&error))?,
            },
            Order::Spare { peers, tcp_ports } => match armed.spare(&peers, &tcp_ports) {
                Ok(()) => send(socket, &Report::Spared)?,
                Err(error) => send(socket, &failed(&error))?,
            },
            Order::Disarm => return disarm(socket, armed),
            Order::Arm { .. } | Order::Load(_) => return Err(HolderError::Unexpected("arm or load twice")),
        }
    }
    Ok(())
}

/// What is told of what failed.
fn failed(error: &ArmError) -> Report {
    Report::Failed { message: chain(error), unreached: error.unreached() }
}

/// Disarm, drain, remove; each is tried whatever became of the one before.
fn disarm(socket: &mut UnixStream, mut armed: Box<dyn Armed>) -> Result<(), HolderError> {
    fail_point::pass(Point::BeforeDisarm)?;
    let disarmed = armed.disarm();
    let drained = armed.drain();
    fail_point::pass(Point::AfterDisarm)?;
    let evidence = armed.evidence().unwrap_or_default();
    drop(armed);
    match disarmed.and(drained) {
        Ok(()) => send(socket, &Report::Disarmed(evidence))?,
        Err(error) => send(socket, &failed(&error))?,
    }
    Ok(())
}
