//! Where a process is, as seen from this one: a container's programs are not the host's.

use std::fs;
use std::path::Path;

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_of_this_host_and_network_and_one_that_is_not_there_may_be_of_the_network() {
        let here = Nearness { of_this_host: true, in_this_network: true };
        assert_eq!(Nearness::read(Path::new("/proc/self")), here);
        let nobody = Nearness { of_this_host: false, in_this_network: true };
        assert_eq!(Nearness::read(Path::new("/proc/0")), nobody);
    }
}
