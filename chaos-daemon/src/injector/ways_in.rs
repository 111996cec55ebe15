//! The ports by which an operator comes in to this node: for a fault that costs a connection no more than a moment, as they were when
//! it was last looked, and as they are once it acts. Looking at every process of a node is nothing that it should wait for.

use std::collections::BTreeSet;

use super::holders::{Holder, HolderFailure};
use super::state::Injector;
use crate::holder::{Order, Report};
use crate::host::sshd;
use crate::policy::Permit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::fault::WaysIn;

/// The same leave, but for the ports at which sshd is; for one that is needed soon, at which it was.
pub(super) fn sparing(injector: &Injector, permit: Permit, needed: WaysIn) -> Result<Permit, ApiError> {
    match needed {
        WaysIn::Never => Ok(permit),
        WaysIn::Soon => Ok(permit.sparing(&injector.ways_in.borrow())),
        WaysIn::Before => {
            let ports = sshd::ports().map_err(|error| {
                let text = format!("look at which ports sshd listens: {error}");
                ApiError::new(ErrorCode::InjectionFailed, text)
            })?;
            let permit = permit.sparing(&ports);
            injector.ways_in.replace(ports);
            Ok(permit)
        }
    }
}

/// Looks again, and has a fault that acts already spare the ports at which sshd is now, if they are not those that it spares.
pub(super) async fn spare_now(
    injector: &Injector,
    holder: &mut Holder,
    permit: &Permit,
) -> Result<(), HolderFailure> {
    let ports = sshd::ports()
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
