//! What this host and its operator cannot do without, by name: processes, which must neither end, stand still nor be starved,
//! and units of the service manager, which must not be stopped.

use std::fs;
use std::path::Path;

use super::part::Part;
use super::sshd::is_sshd;

/// Programs by which the host lives or its operator reaches it, beside our own. Those of containers are not meant: they have
/// pid namespaces of their own.
const PROGRAMS: &[&str] = &["systemd", "init", "dbus-daemon", "dbus-broker"];
/// Whole families of them; the kernel cuts names to 15 bytes.
const FAMILIES: &[&str] = &["systemd-", "(sd-", "dbus-broker-"];
/// What gives this host its addresses and keeps its links up, by the beginnings of the names of programs, and of units that run
/// one of them. Of programs only those in the host's network: in another, a container's or a test's, they are anybody's. The one
/// of systemd is of its family.
const NETWORK: &[&str] = &[
    "NetworkManager",
    "connman",
    "dhclient",
    "dhcp6c",
    "dhcpcd",
    "iwd",
    "netifd",
    "pppd",
    "udhcpc",
    "wickedd",
    "wpa_supplicant",
];
/// Beginnings of the names of other units that must not be stopped, ourselves among them.
const UNITS: &[&str] = &[
    "systemd-",
    "dbus",
    "ssh",
    "networking",
    "network.service",
    "netctl",
    "ifup@",
    "wicked.service",
    "getty@",
    "serial-getty@",
    "console-getty",
    "user@",
    "chaos-daemon",
];

/// Where a process is, as seen from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nearness {
    /// In the same pid namespace: a container's `systemd` is not the host's. One that cannot be looked at is not.
    pub of_this_host: bool,
    /// In the same network namespace. One that cannot be looked at may be.
    pub in_this_network: bool,
}

impl Nearness {
    /// Of the process whose folder of procfs this is.
    pub fn read(folder: &Path) -> Self {
        let shares = |kind: &str| {
            let ours = fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()?;
            Some(fs::read_link(folder.join("ns").join(kind)).ok()? == ours)
        };
        Self { of_this_host: shares("pid") == Some(true), in_this_network: shares("net") != Some(false) }
    }

    /// Whether a process here that has this name is one by which the host lives or its operator reaches it.
    pub fn is_vital(self, name: &str) -> bool {
        let begins = |with: &&str| name.starts_with(with);
        let keeps_host = Part::named(name).is_some()
            || is_sshd(name)
            || PROGRAMS.contains(&name)
            || FAMILIES.iter().any(begins);
        self.of_this_host && keeps_host || self.in_this_network && NETWORK.iter().any(begins)
    }
}

/// Whether a unit of this name is one by which the host lives or its operator reaches it, or of our own.
pub fn is_vital_unit(name: &str) -> bool {
    [UNITS, NETWORK].concat().iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Nearness = Nearness { of_this_host: true, in_this_network: true };

    #[test]
    fn what_runs_the_host_is_vital_unless_it_is_a_containers_own() {
        let parts = Part::ALL.iter().map(|part| part.name());
        for name in
            ["systemd", "systemd-journal", "systemd-network", "sshd", "dbus-daemon"].into_iter().chain(parts)
        {
            assert!(HERE.is_vital(name), "{name}");
            assert!(!Nearness { of_this_host: false, ..HERE }.is_vital(name), "{name}");
            // Whatever network it is in.
            assert!(Nearness { in_this_network: false, ..HERE }.is_vital(name), "{name}");
        }
        assert!(!HERE.is_vital("postgres") && !HERE.is_vital("systemdx"));
    }

    #[test]
    fn what_configures_the_network_of_the_host_is_vital_also_from_a_container_and_what_does_another_is_not() {
        let names = ["dhclient", "dhclient-script", "dhcpcd", "udhcpc6", "NetworkManager", "connmand", "iwd"];
        for name in names.into_iter().chain(["wpa_supplicant", "wickedd-dhcp4"]) {
            assert!(name.len() <= 15, "{name}: the kernel cuts it");
            assert!(HERE.is_vital(name), "{name}");
            assert!(Nearness { of_this_host: false, ..HERE }.is_vital(name), "{name}");
            assert!(!Nearness { in_this_network: false, ..HERE }.is_vital(name), "{name}");
        }
    }

    #[test]
    fn this_process_is_of_this_host_and_network_and_one_that_is_not_there_may_be_of_the_network() {
        assert_eq!(Nearness::read(Path::new("/proc/self")), HERE);
        let nobody = Nearness { of_this_host: false, in_this_network: true };
        assert_eq!(Nearness::read(Path::new("/proc/0")), nobody);
    }

    #[test]
    fn a_unit_that_runs_the_host_or_its_network_is_vital() {
        for name in [
            "systemd-networkd.service",
            "ssh.service",
            "networking.service",
            "ifup@eth0.service",
            "NetworkManager.service",
            "dhcpcd@eth0.service",
            "connman.service",
            "wicked.service",
            "wickedd-nanny.service",
            "chaos-daemon-guard.service",
        ] {
            assert!(is_vital_unit(name), "{name}");
        }
        for name in ["postgres.service", "network-api.service", "wickedly-good.service"] {
            assert!(!is_vital_unit(name), "{name}");
        }
    }
}
