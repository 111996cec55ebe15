//! Programs that fail what the sockets of a control group ask for, or what its processes ask of files or sockets, and those that lose
//! its packets: attached by links that die with their holder.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use chaos_common::rule::TCP;
use chaos_common::{CallRule, Counters, PacketRule, name};
use ipnet::IpNet;

use super::{BpfError, Programs, sys};
use crate::sabotage;

/// Every program for sockets, and where it is attached.
pub(super) const HOOKS: [(&str, u32); 4] = [
    (name::CONNECT_V4, sys::BPF_CGROUP_INET4_CONNECT),
    (name::CONNECT_V6, sys::BPF_CGROUP_INET6_CONNECT),
    (name::SENDMSG_V4, sys::BPF_CGROUP_UDP4_SENDMSG),
    (name::SENDMSG_V6, sys::BPF_CGROUP_UDP6_SENDMSG),
];

/// The hooks at which calls of this protocol are met; 0 is any.
pub fn hooks(protocol: u16) -> Vec<(&'static str, u32)> {
    // Only datagrams are sent without a connection.
    let met = |(program, _): &(&str, u32)| {
        protocol != u16::from(TCP) || ![name::SENDMSG_V4, name::SENDMSG_V6].contains(program)
    };
    HOOKS.into_iter().filter(met).collect()
}

/// A link and what it was made for.
struct Link {
    fd: OwnedFd,
    program: &'static str,
    attach_type: u32,
}

/// The programs of [`super::Family::Calls`], [`super::Family::Files`], [`super::Family::Sockets`] or [`super::Family::Severance`] on one
/// control group.
pub struct CallPrograms {
    // Dropped in this order: links before the programs they hold, and the place last, whose inode the programs know.
    links: Vec<Link>,
    pub(super) programs: Programs,
    pub(super) place: Option<File>,
}

impl CallPrograms {
    /// Around programs of one of these families that are loaded.
    pub fn new(programs: Programs) -> Self {
        Self { links: Vec::new(), programs, place: None }
    }

    /// Sets which calls match (by protocol and ports; no peers are every peer), and what they fail with.
    ///
    /// # Errors
    /// When there are more peers than there is room for, or the kernel refuses.
    pub fn set_rule(
        &mut self,
        rule: &PacketRule,
        peers: &[IpNet],
        failure: CallRule,
    ) -> Result<(), BpfError> {
        self.programs.set_one(name::CALL, failure)?;
        self.set_packets(rule, peers)
    }

    /// Attaches programs to a control group: from here on they meet calls, or packets. `path` is what messages call it.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn attach(
        &mut self,
        hooks: &[(&'static str, u32)],
        cgroup: BorrowedFd<'_>,
        path: &str,
    ) -> Result<(), BpfError> {
        for &(program, attach_type) in hooks {
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

    /// As [`Programs::protect`].
    ///
    /// # Errors
    /// As [`Programs::protect`].
    pub fn protect(&mut self, nets: &[IpNet], ports: &[(u8, u16)]) -> Result<(), BpfError> {
        self.programs.protect(nets, ports)
    }

    /// As [`Programs::renew`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn renew(&mut self, deadline_boot_ns: u64) -> Result<(), BpfError> {
        self.programs.renew(deadline_boot_ns)
    }

    /// Calls, or packets, counted since the programs were loaded.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counters(&self) -> Result<Counters, BpfError> {
        self.programs.counters()
    }
}
