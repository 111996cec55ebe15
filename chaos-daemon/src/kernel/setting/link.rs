//! A network device that is set down, and what that costs it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::kernel::netlink::belongings::{Belongings, Inventory};
use crate::kernel::netlink::{Netlink, NetlinkError};
use crate::kernel::node::{Node, StepError, Undone};
use crate::kernel::step::{NetNsRef, within};

/// A device that is set down, with what it had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSetting {
    /// Where it is.
    pub netns: NetNsRef,
    /// Its number there.
    pub ifindex: u32,
    /// Its name at that moment, for people.
    pub name: String,
    /// What it loses by going down.
    pub had: Belongings,
}

/// Whether a device is up, and what it has; `None` when there is none.
///
/// # Errors
/// When that cannot be known.
pub fn inventory(
    node: &impl Node,
    netns: &NetNsRef,
    ifindex: u32,
) -> Result<Option<(bool, Inventory)>, StepError> {
    within(node, netns, None, async |netlink| {
        let Some(device) = netlink.link_by_index(ifindex).await? else { return Ok(None) };
        Ok(Some((device.up, netlink.inventory(ifindex).await?)))
    })
}

impl LinkSetting {
    /// See [`super::Setting::apply`].
    pub(super) fn apply(&self, node: &impl Node) -> Result<(), StepError> {
        let set = within(node, &self.netns, Err("gone".to_owned()), async |netlink| {
            let more = netlink.inventory(self.ifindex).await?.beyond(&self.had);
            if !more.is_empty() {
                return Ok(Err(format!(
                    "what it has got since, and would lose for good: {}",
                    more.join(", ")
                )));
            }
            netlink.set_down(self.ifindex).await?;
            Ok(match netlink.link_by_index(self.ifindex).await? {
                Some(device) if !device.up => Ok(()),
                Some(_) => Err("up".to_owned()),
                None => Err("gone".to_owned()),
            })
        })?;
        set.map_err(|found| StepError::Changed { what: self.to_string(), expected: "down".to_owned(), found })
    }

    /// See [`super::Setting::undo`]. Also when the device is up already: an undo that was cut short has done that, and not
    /// the rest.
    pub(super) fn undo(&self, node: &impl Node) -> Result<Undone, StepError> {
        within(node, &self.netns, Undone::Absent, async |netlink| self.bring_back(netlink).await)
    }

    async fn bring_back(&self, netlink: &Netlink) -> Result<Undone, NetlinkError> {
        let Some(device) = netlink.link_by_index(self.ifindex).await? else { return Ok(Undone::Absent) };
        if !device.up {
            netlink.set_up(self.ifindex).await?;
        }
        let lacked = netlink.restore(self.ifindex, &self.had).await?;
        Ok(if lacked || !device.up { Undone::Removed } else { Undone::Absent })
    }

    /// See [`super::Setting::present`].
    pub(super) fn present(&self, node: &impl Node) -> Result<bool, StepError> {
        within(node, &self.netns, false, async |netlink| {
            Ok(netlink.link_by_index(self.ifindex).await?.is_some_and(|device| !device.up))
        })
    }
}

impl fmt::Display for LinkSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ({}) down", self.name, self.ifindex)?;
        if let Some(name) = &self.netns.name {
            write!(f, " in {name}")?;
        }
        let Belongings { addresses, routes, neighbours, proxies } = &self.had;
        write!(
            f,
            ", with {} addresses, {} routes, {} neighbours",
            addresses.len(),
            routes.len(),
            neighbours.len() + proxies.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::NetNs;
    use crate::kernel::fake::{FakeLink, FakeNode};
    use crate::kernel::netlink::fake::{address, route, sourced};

    #[test]
    fn a_route_comes_back_whose_source_is_checked_for_duplicates_and_so_does_one_that_needs_it() {
        let on_link = route(2, "2001:db8:f::/48".parse().unwrap(), None);
        let on_link = sourced(&on_link, "2001:db8::1".parse().unwrap());
        let gateway = "2001:db8:f::9".parse().unwrap();
        let through = route(2, "2001:db8:a::/48".parse().unwrap(), Some(gateway));
        let addresses = vec![address(2, "2001:db8::1/64".parse().unwrap())];
        let had = Belongings { addresses, routes: vec![on_link, through], ..Belongings::default() };
        let netns = NetNsRef::new(None, &NetNs::current().unwrap()).unwrap();
        let setting = LinkSetting { netns, ifindex: 2, name: "eth0".into(), had };
        let node = FakeNode::default();
        let link = FakeLink { name: "eth0".into(), ..FakeLink::default() };
        node.0.change(|objects| _ = objects.links.insert(2, link));
        node.0.check_addresses(3);
        assert_eq!(setting.undo(&node).unwrap(), Undone::Removed);
        let link = node.0.objects().links.remove(&2).unwrap();
        let mut has = setting.had.clone();
        has.routes.sort();
        assert!(link.up);
        assert_eq!(link.has, has);
        assert_eq!(setting.undo(&node).unwrap(), Undone::Absent);
    }
}
