//! The ports by which an operator comes in to this node: for a fault that costs a connection no more than a moment, as they were when
//! it was last looked, and as they are once it acts. Looking at every process of a node is nothing that it should wait for.

use std::collections::BTreeSet;

use super::aside::on_a_thread;
use super::holders::{Holder, HolderFailure};
use super::state::Injector;
use crate::holder::{Order, Report};
use crate::host::sshd;
use crate::policy::Permit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::effect::WaysIn;

/// The same leave, but for the ports at which sshd is; for one that is needed soon, at which it `was`. And the ports, if they were
/// looked at, which blocks.
///
/// # Errors
/// When they cannot be.
pub(super) fn sparing(
    permit: Permit,
    needed: WaysIn,
    was: &[u16],
) -> Result<(Permit, Option<Vec<u16>>), ApiError> {
    match needed {
        WaysIn::Never => Ok((permit, None)),
        WaysIn::Soon => Ok((permit.sparing(was), None)),
        WaysIn::Before => {
            let ports = sshd::ports().map_err(|error| {
                let text = format!("look at which ports sshd listens: {error}");
                ApiError::new(ErrorCode::InjectionFailed, text)
            })?;
            Ok((permit.sparing(&ports), Some(ports)))
        }
    }
}

/// Looks again, and has a fault that acts already spare the ports at which sshd is now, if they are not those that it spares.
pub(super) async fn spare_now(
    injector: &Injector,
    holder: &mut Holder,
    permit: &Permit,
) -> Result<(), HolderFailure> {
    // A fault acts already: as urgently as the loop, and not after those who only look.
    let ports = on_a_thread(sshd::ports)
        .await
        .and_then(|looked| looked)
        .map_err(|error| HolderFailure::Refused(format!("look at which ports sshd listens: {error}")))?;
    let now = permit.protected_with(&ports);
    injector.ways_in.replace(ports);
    let set = |ports: &[u16]| ports.iter().copied().collect::<BTreeSet<_>>();
    if set(&now.tcp_ports) == set(&permit.protected().tcp_ports) {
        return Ok(());
    }
    holder.order(&Order::Spare { peers: now.cidrs, tcp_ports: now.tcp_ports }).await?;
    match holder.answer().await? {
        Report::Spared => Ok(()),
        other => Err(HolderFailure::Refused(format!("expected spared, got {other:?}"))),
    }
}
