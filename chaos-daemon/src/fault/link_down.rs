//! Link down: a network interface is administratively down.
//!
//! - **Mechanism**: `RTM_NEWLINK` without `IFF_UP`, on a device pinned by network namespace and index. In a rhythm, a thread of the
//!   holder sets it down and undoes that by turns; when the lease is over it leaves the device up.
//! - **Kernel requirement**: none.
//! - **Lifetime class**: supervised. The device stays down when everybody of ours is dead; a reboot ends it.
//! - **Undo**: set up again, then given back what the kernel takes away for good: IPv6 addresses, routes that neither the
//!   kernel nor a router has made, permanent neighbours, proxies; all journalled before. A router's routes and temporary
//!   addresses come back with its next announcement. A device that others stand on (VLAN, bridge, bond) or that nexthop objects or
//!   multipath routes use is refused, because those would not come back.
//! - **Blast radius**: everything that goes through the device. `lo` is refused, and in the daemon's own namespace so are the
//!   device of the default route and one with established connections to a protected port, unless the policy names it.
//! - **Reference**: rtnetlink(7), Linux `net/core/dev.c` (`dev_close_many`).

use super::Ready;
use super::lifeline::{Lifeline, is_here, lifeline};
use super::look::{Eyes, invalid};
use super::{FlapWork, Plan, Work, give_or_take, settings};
use crate::host::connections::reached_at;
use crate::host::{Interface, NetNs};
use crate::kernel::netlink::belongings::Inventory;
use crate::kernel::node::Kernel;
use crate::kernel::setting::link;
use crate::kernel::setting::{LinkSetting, Setting};
use crate::kernel::step::NetNsRef;
use crate::policy::Permit;
use crate::request::{ApiError, ErrorCode};
use crate::spec::LinkRhythm;
use crate::target;
use std::net::IpAddr;

/// Looks at the interface, which is up, and plans it.
///
/// # Errors
/// Names what is in the way.
pub(super) fn prepare(
    name: &str,
    netns: Option<&String>,
    rhythm: Option<LinkRhythm>,
    eyes: &Eyes<'_>,
) -> Result<Ready, ApiError> {
    let Eyes { permit, home, entrance, .. } = eyes;
    let (open, interface) = target::resolve_interface(name, netns.map(String::as_str), home, entrance)?;
    let failed = |error: &dyn std::error::Error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("look at what interface {name:?} has: {error}"))
    };
    let netns = NetNsRef::new(netns.cloned(), &open).map_err(|error| failed(&error))?;
    let (up, inventory) = link::inventory(&Kernel, &netns, interface.index)
        .map_err(|error| failed(&error))?
        .ok_or_else(|| ApiError::new(ErrorCode::TargetNotFound, format!("interface {name:?} has gone")))?;
    if !up {
        return Err(invalid(format!("target.interface: {name:?} is down already")));
    }
    if !inventory.unrestorable.is_empty() {
        let what = inventory.unrestorable.join(", ");
        return Err(invalid(format!("target.interface: going down would cost {name:?} for good: {what}")));
    }
    refuse_lifeline(&interface, &open, &inventory, (permit, home))?;
    let Interface { name, index, .. } = interface;
    let setting = LinkSetting { netns, ifindex: index, name, had: inventory.belongings };
    Ok(plan(&setting, rhythm).into())
}

/// Refuses loopback, and in the daemon's own namespace the interface through which the host reaches others, or is reached.
fn refuse_lifeline(
    interface: &Interface,
    netns: &NetNs,
    inventory: &Inventory,
    (permit, home): (&Permit, &NetNs),
) -> Result<(), ApiError> {
    let name = &interface.name;
    let protected = |why: &str| {
        Err(ApiError::new(ErrorCode::TargetProtected, format!("interface {name:?} is protected: {why}")))
    };
    if name == "lo" {
        return protected(Lifeline::Loopback.why());
    }
    if permit.spares_not(name) {
        return Ok(());
    }
    if !is_here(netns, home, name)? {
        return Ok(());
    }
    let hint = |refusal: Result<(), ApiError>| {
        let line = format!("`critical_interfaces = [{name:?}]` of the daemon's policy file opens it");
        refusal.map_err(|error| error.hint(line))
    };
    if inventory.default_route || lifeline(interface)?.is_some() {
        return hint(protected(Lifeline::DefaultRoute.why()));
    }
    // What cannot be read might be the operator's own session.
    let reached = reached_at(&permit.protected().tcp_ports).unwrap_or_else(|_| inventory.addresses.clone());
    let session = |address: &IpAddr| inventory.addresses.contains(address);
    if reached.iter().any(session) {
        return hint(protected("somebody is connected to a protected port of this host through it"));
    }
    Ok(())
}

/// Plans it.
pub fn plan(setting: &LinkSetting, rhythm: Option<LinkRhythm>) -> Plan {
    let place = setting.netns.name.as_ref().map_or(String::new(), |name| format!(" in namespace {name}"));
    let description = format!("link_down: sets {} (device {}) down{place}", setting.name, setting.ifindex);
    let mut plan = settings(description, Setting::Link(setting.clone()));
    if let Some(rhythm) = rhythm {
        let LinkRhythm { down, up, jitter, seed } = rhythm;
        let vary = give_or_take(jitter);
        plan.description
            .push_str(&format!(", for {down:?}{vary}, and up for {up:?}{vary}, by turns, seed {seed}"));
        plan.work = Work::Flap(FlapWork { setting: Setting::Link(setting.clone()), rhythm });
    }
    plan
}
