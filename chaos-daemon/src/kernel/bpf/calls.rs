//! Programs that fail what the sockets of a control group ask for: attached by links that die with their holder.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aya::maps::{Array, MapData};
use chaos_common::rule::{EVERY_PEER, TCP};
use chaos_common::{CallRule, Counters, PacketRule, name};
use ipnet::IpNet;

use super::{BpfError, Programs, sys};
use crate::sabotage;

/// Every program, and where it is attached.
pub(super) const HOOKS: [(&str, u32); 4] = [
    (name::CONNECT_V4, sys::BPF_CGROUP_INET4_CONNECT),
    (name::CONNECT_V6, sys::BPF_CGROUP_INET6_CONNECT),
    (name::SENDMSG_V4, sys::BPF_CGROUP_UDP4_SENDMSG),
    (name::SENDMSG_V6, sys::BPF_CGROUP_UDP6_SENDMSG),
];

/// A link and what it was made for.
struct Link {
    fd: OwnedFd,
    program: &'static str,
    attach_type: u32,
}

/// The programs of [`super::Family::Calls`] on one control group.
pub struct CallPrograms {
    // Dropped in this order: links before the programs they hold.
    links: Vec<Link>,
    programs: Programs,
}

impl CallPrograms {
    /// Around programs of this family that are loaded.
    pub fn new(programs: Programs) -> Self {
        Self { links: Vec::new(), programs }
    }

    /// Sets which calls match (by protocol and remote port; no peers are every peer), and what they fail with.
    ///
    /// # Errors
    /// When there are more peers than there is room for, or the kernel refuses.
    pub fn set_rule(
        &mut self,
        rule: &PacketRule,
        peers: &[IpNet],
        failure: CallRule,
    ) -> Result<(), BpfError> {
        let mut map: Array<&mut MapData, CallRule> =
            Array::try_from(self.programs.loaded.map_mut(name::CALL)?)
                .map_err(|source| BpfError::map(name::CALL, source))?;
        map.set(0, failure, 0).map_err(|source| BpfError::map(name::CALL, source))?;
        let flags = if peers.is_empty() { EVERY_PEER } else { 0 };
        // Calls know no level; the rule wants one.
        self.programs.set_rule(&PacketRule { level: 1, flags, ..*rule }, peers)
    }

    /// Attaches the programs to a control group: from here on they meet calls. `path` is what messages call it.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn attach(&mut self, cgroup: BorrowedFd<'_>, path: &str) -> Result<(), BpfError> {
        let protocol = self.programs.rule()?.protocol;
        for (program, attach_type) in HOOKS {
            // Only datagrams are sent without a connection.
            if protocol == u16::from(TCP) && [name::SENDMSG_V4, name::SENDMSG_V6].contains(&program) {
                continue;
            }
            let fd = sys::cgroup_attach(self.programs.loaded.program(program)?, cgroup, attach_type)
                .map_err(|source| BpfError::AttachCgroup { program, cgroup: path.to_owned(), source })?;
            sabotage::pin(fd.as_fd());
            self.links.push(Link { fd, program, attach_type });
        }
        Ok(())
    }

    /// The first program that is not on the control group with this id any more; `None` when all are.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn missing(&self, cgroup: u64, path: &str) -> Result<Option<&'static str>, BpfError> {
        for link in &self.links {
            let program = link.program;
            let failed = |source| BpfError::ReadBackCgroup { program, cgroup: path.to_owned(), source };
            let id = sys::program_id(self.programs.loaded.program(program)?).map_err(failed)?;
            let seen = sys::cgroup_link(link.fd.as_fd()).map_err(failed)?;
            if (seen.program, seen.cgroup, seen.attach_type) != (id, cgroup, link.attach_type) {
                return Ok(Some(program));
            }
        }
        Ok(None)
    }

    /// As [`Programs::change_hosts`].
    ///
    /// # Errors
    /// As [`Programs::change_hosts`].
    pub fn change_hosts(&mut self, peers: &[IpNet]) -> Result<(), BpfError> {
        self.programs.change_hosts(peers)
    }

    /// As [`Programs::renew`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn renew(&mut self, deadline_boot_ns: u64) -> Result<(), BpfError> {
        self.programs.renew(deadline_boot_ns)
    }

    /// Calls counted since the programs were loaded.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counters(&self) -> Result<Counters, BpfError> {
        self.programs.counters()
    }
}
