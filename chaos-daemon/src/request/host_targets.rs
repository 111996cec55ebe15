//! What can be aimed at on this host, as far as a caller may see it.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many entries of each list the injector tells at most.
pub const MOST_TOLD: usize = 500;

/// What can be aimed at on this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default)]
pub struct HostTargets {
    /// Network interfaces, of this host and of the network namespaces below.
    pub interfaces: Vec<InterfaceTarget>,
    /// Other network namespaces that the caller may name, for `netns`.
    pub netns: Vec<String>,
    /// Systemd units with processes, for `unit`.
    pub units: Vec<GroupTarget>,
    /// Containers, for `container`.
    pub containers: Vec<GroupTarget>,
    /// Control groups with processes, for `cgroup`.
    pub cgroups: Vec<GroupTarget>,
    /// Ports at which somebody listens in this host's own network namespace.
    pub ports: Vec<PortTarget>,
    /// What could not be looked at, and why.
    pub not_seen: Vec<String>,
    /// How many entries more there are, of all lists together: give a text, or a larger limit.
    pub more: usize,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceTarget {
    /// Its name, for `interface`.
    pub interface: String,
    /// The network namespace that it is in, for `netns`; absent in this host's own.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Whether it is up.
    pub up: bool,
    /// Its addresses, each with the length of its prefix.
    pub addresses: Vec<String>,
    /// Where packets go that leave by it: prefixes, or "default".
    pub routes: Vec<String>,
}

/// Processes that have a place in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupTarget {
    /// What a target calls it: a unit, the path of a control group, or the id of a container.
    pub name: String,
    /// How many processes are in it.
    pub processes: usize,
    /// The names of some of them.
    pub programs: Vec<String>,
    /// Why no fault may go to all of it, if so.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<String>,
}

/// A port at which somebody listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortTarget {
    /// "tcp" or "udp".
    pub protocol: String,
    /// The address.
    #[schemars(with = "String")]
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The user whose socket it is.
    pub uid: u32,
    /// Whose it is, if the caller may see that.
    #[schemars(with = "Listener")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Listener>,
}

/// The process that listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// Number.
    pub pid: i32,
    /// Name.
    pub name: String,
    /// Its systemd unit; empty when it is in none.
    pub unit: String,
}

/// How much of it a caller wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Only what has this text in it, in whatever case.
    pub text: Option<String>,
    /// The most entries of each list.
    pub limit: usize,
}

impl HostTargets {
    /// What is wanted of it.
    #[must_use]
    pub fn only(mut self, wanted: &Wanted) -> Self {
        let text = wanted.text.as_ref().map(|text| text.to_lowercase());
        let limit = wanted.limit.min(MOST_TOLD);
        let mut more = 0;
        keep(&mut self.interfaces, &text, limit, &mut more, |it| {
            [it.interface.as_str(), it.netns.as_deref().unwrap_or_default()]
                .into_iter()
                .chain(it.addresses.iter().map(String::as_str))
                .map(str::to_owned)
                .collect()
        });
        keep(&mut self.netns, &text, limit, &mut more, |name| vec![name.clone()]);
        for groups in [&mut self.units, &mut self.containers, &mut self.cgroups] {
            keep(groups, &text, limit, &mut more, |it| {
                std::iter::once(&it.name).chain(&it.programs).cloned().collect()
            });
        }
        keep(&mut self.ports, &text, limit, &mut more, |it| {
            let owner = it.owner.iter().flat_map(|owner| [owner.name.clone(), owner.unit.clone()]);
            std::iter::once(SocketAddr::new(it.address, it.port).to_string()).chain(owner).collect()
        });
        self.more += more;
        self
    }
}

/// Keeps so many entries that have the text in one of their words, and counts those beyond.
fn keep<T>(
    list: &mut Vec<T>,
    text: &Option<String>,
    limit: usize,
    more: &mut usize,
    words: impl Fn(&T) -> Vec<String>,
) {
    list.retain(|entry| {
        text.as_ref().is_none_or(|text| words(entry).iter().any(|word| word.to_lowercase().contains(text)))
    });
    *more += list.len().saturating_sub(limit);
    list.truncate(limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, program: &str) -> GroupTarget {
        GroupTarget { name: name.into(), processes: 1, programs: vec![program.into()], protected: None }
    }

    fn all() -> HostTargets {
        let interface = |name: &str, address: &str| InterfaceTarget {
            interface: name.into(),
            netns: None,
            up: true,
            addresses: vec![address.into()],
            routes: Vec::new(),
        };
        let owner = Some(Listener { pid: 7, name: "postgres".into(), unit: "postgresql.service".into() });
        let port = |port, owner| PortTarget {
            protocol: "tcp".into(),
            address: IpAddr::from([127, 0, 0, 1]),
            port,
            uid: 0,
            owner,
        };
        HostTargets {
            interfaces: vec![interface("eth0", "10.0.0.5/24"), interface("eth1", "192.0.2.1/24")],
            netns: vec!["web".into()],
            units: vec![group("postgresql.service", "postgres"), group("shop.service", "python3")],
            cgroups: vec![group("system.slice/postgresql.service", "postgres")],
            ports: vec![port(5432, owner), port(8080, None)],
            ..HostTargets::default()
        }
    }

    #[test]
    fn a_text_is_looked_for_in_names_addresses_programs_and_owners() {
        let found = |text: &str| {
            let wanted = Wanted { text: Some(text.to_owned()), limit: 10 };
            let found = all().only(&wanted);
            assert_eq!(found.more, 0);
            [
                found.interfaces.len(),
                found.netns.len(),
                found.units.len(),
                found.cgroups.len(),
                found.ports.len(),
            ]
        };
        assert_eq!(found("POSTGRES"), [0, 0, 1, 1, 1]);
        assert_eq!(found("192.0.2"), [1, 0, 0, 0, 0]);
        assert_eq!(found("127.0.0.1:8080"), [0, 0, 0, 0, 1]);
        assert_eq!(found("web"), [0, 1, 0, 0, 0]);
        assert_eq!(found(""), [2, 1, 2, 1, 2]);
    }

    #[test]
    fn of_each_list_no_more_are_told_than_are_wanted_and_how_many_more_there_are() {
        let found = all().only(&Wanted { text: None, limit: 1 });
        assert_eq!((found.interfaces.len(), found.units.len(), found.ports.len()), (1, 1, 1));
        assert_eq!(found.more, 3);
    }
}
