//! Arming what is about one control group: rule and peers first, the attachment last.

use std::os::fd::AsFd as _;

use caps::Capability;
use chaos_common::{CallRule, PacketRule};
use ipnet::IpNet;

use super::arm::{Arm, ArmError, Armed, Means};
use super::packets::{capacity, counted, loaded, number, ports, range, roomy, spare, transport};
use crate::fault::{CallWork, FileWork, SeverWork, SocketWork};
use crate::host::CgroupRef;
use crate::host::privilege::{CALL_HOLDER, SECURITY_HOLDER};
use crate::kernel::bpf::{CallPrograms, Family, calls, files, sever, sockets};
use crate::request::Evidence;
use crate::spec::Failure;

impl Arm for CallWork {
    fn needed(&self) -> &'static [Capability] {
        CALL_HOLDER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        let callers = &self.callers;
        let mut programs = loaded(means.warm, Family::Calls, roomy(&callers.peers))?;
        spare(&mut programs, &callers.protected_peers, &callers.protected_tcp_ports)?;
        let mut programs = CallPrograms::new(programs);
        let rule = PacketRule {
            protocol: number(self.protocol),
            remote_ports: range(self.ports),
            probability: self.failure.probability.threshold(),
            ..PacketRule::default()
        };
        programs.set_rule(&rule, &callers.peers, call_rule(&self.failure))?;
        meet(programs, &calls::hooks(rule.protocol), &callers.cgroup, means.deadline_ns)
    }
}

impl Arm for SeverWork {
    fn needed(&self) -> &'static [Capability] {
        CALL_HOLDER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        let callers = &self.callers;
        let mut programs = loaded(means.warm, Family::Severance, roomy(&callers.peers))?;
        spare(&mut programs, &callers.protected_peers, &callers.protected_tcp_ports)?;
        let mut programs = CallPrograms::new(programs);
        let rule = PacketRule {
            probability: self.packet_probability.threshold(),
            ..transport(self.protocol, &self.ports)
        };
        programs.set_packets(&rule, &callers.peers)?;
        meet(programs, &sever::hooks(&self.directions), &callers.cgroup, means.deadline_ns)
    }
}

impl Arm for FileWork {
    fn needed(&self) -> &'static [Capability] {
        SECURITY_HOLDER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        let programs = loaded(means.warm, Family::Files(self.kernel), capacity(&[]))?;
        let place = self
            .place
            .open()
            .map_err(|source| ArmError::Place { path: self.place.path.display().to_string(), source })?;
        let (operations, failure) = (&self.operations, &self.failure);
        let mut programs = CallPrograms::new(programs);
        programs.set_place(
            place,
            operations,
            &self.kernel,
            failure.probability.threshold(),
            call_rule(failure),
        )?;
        meet(programs, &files::hooks(operations), &self.cgroup, means.deadline_ns)
    }
}

impl Arm for SocketWork {
    fn needed(&self) -> &'static [Capability] {
        SECURITY_HOLDER
    }

    fn arm(&self, means: Means) -> Result<Box<dyn Armed>, ArmError> {
        let mut programs = loaded(means.warm, Family::Sockets(self.kernel), capacity(&[]))?;
        let callers = &self.callers;
        spare(&mut programs, &callers.protected_peers, &callers.protected_tcp_ports)?;
        let mut programs = CallPrograms::new(programs);
        programs.set_sockets(&self.kernel)?;
        let rule = PacketRule {
            probability: self.failure.probability.threshold(),
            ..transport(self.protocol, &self.ports)
        };
        programs.set_rule(&rule, &[], call_rule(&self.failure))?;
        meet(programs, &sockets::hooks(&self.operations), &callers.cgroup, means.deadline_ns)
    }
}

/// Programs on a control group.
impl Armed for CallPrograms {
    fn renew(&mut self, deadline_ns: u64) -> Result<(), ArmError> {
        Ok(Self::renew(self, deadline_ns)?)
    }

    fn aim(&mut self, peers: &[IpNet]) -> Result<(), ArmError> {
        Ok(self.change_hosts(peers)?)
    }

    fn spare(&mut self, peers: &[IpNet], tcp_ports: &[u16]) -> Result<(), ArmError> {
        Ok(self.protect(peers, &ports(tcp_ports))?)
    }

    fn evidence(&self) -> Result<Evidence, ArmError> {
        Ok(Evidence::Met(counted(self.counters()?)))
    }
}

/// What becomes of calls that match, as the programs read it.
fn call_rule(failure: &Failure) -> CallRule {
    CallRule {
        after: failure.after_calls,
        times: failure.times.unwrap_or(0),
        errno: failure.errno.number(),
        signal: failure.signal.map_or(0, i32::unsigned_abs),
    }
}

/// Has programs that know their rule meet the calls, or packets, of a control group, and reads back that they do.
fn meet(
    mut programs: CallPrograms,
    hooks: &[(&'static str, u32)],
    cgroup: &CgroupRef,
    deadline_ns: u64,
) -> Result<Box<dyn Armed>, ArmError> {
    let path = cgroup.path.display().to_string();
    let group = cgroup.open().map_err(|source| ArmError::Cgroup { path: path.clone(), source })?;
    let group = group.ok_or_else(|| ArmError::NoCgroup(path.clone()))?;
    // Nothing is attached yet, so that this arms nothing; the attachment that follows does.
    programs.renew(deadline_ns)?;
    programs.attach(hooks, group.as_fd(), &path)?;
    match programs.missing(cgroup.id, &path)? {
        None => Ok(Box::new(programs)),
        Some(program) => Err(ArmError::ReadBack {
            subject: format!("program {program} on cgroup {path}"),
            asked: "attached".to_owned(),
            found: "not attached".to_owned(),
        }),
    }
}
