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

use super::{FlapWork, Plan, Work, give_or_take, settings};
use crate::kernel::setting::{LinkSetting, Setting};
use crate::spec::LinkRhythm;

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
