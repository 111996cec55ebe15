//! Arming what is about one control group: rule and peers first, the attachment last.

use std::os::fd::AsFd as _;

use chaos_common::{CallRule, PacketRule};

use super::arm::{ArmError, capacity, loaded, number, range, roomy, spare};
use crate::fault::{CallWork, FileWork, SeverWork, SocketWork};
use crate::host::CgroupRef;
use crate::kernel::bpf::{CallPrograms, Family, Programs, calls, files, sever, sockets};
use crate::spec::Failure;

pub(super) fn arm_calls(
    work: &CallWork,
    warm: Option<Programs>,
    deadline_ns: u64,
) -> Result<CallPrograms, ArmError> {
    let callers = &work.callers;
    let mut programs = loaded(warm, Family::Calls, roomy(&callers.peers))?;
    spare(&mut programs, &callers.protected_peers, &callers.protected_tcp_ports)?;
    let mut programs = CallPrograms::new(programs);
    let rule = PacketRule {
        protocol: number(work.protocol),
        remote_ports: range(work.ports),
        probability: work.failure.probability.threshold(),
        ..PacketRule::default()
    };
    programs.set_rule(&rule, &callers.peers, call_rule(&work.failure))?;
    meet(programs, &calls::hooks(rule.protocol), &callers.cgroup, deadline_ns)
}

pub(super) fn arm_severance(
    work: &SeverWork,
    warm: Option<Programs>,
    deadline_ns: u64,
) -> Result<CallPrograms, ArmError> {
    let callers = &work.callers;
    let mut programs = loaded(warm, Family::Severance, roomy(&callers.peers))?;
    spare(&mut programs, &callers.protected_peers, &callers.protected_tcp_ports)?;
    let mut programs = CallPrograms::new(programs);
    let rule = PacketRule {
        protocol: number(work.protocol),
        ports: range(work.ports.either),
        local_ports: range(work.ports.local),
        remote_ports: range(work.ports.remote),
        probability: work.packet_probability.threshold(),
        ..PacketRule::default()
    };
    programs.set_packets(&rule, &callers.peers)?;
    meet(programs, &sever::hooks(&work.directions), &callers.cgroup, deadline_ns)
}

pub(super) fn arm_files(
    work: &FileWork,
    warm: Option<Programs>,
    deadline_ns: u64,
) -> Result<CallPrograms, ArmError> {
    let programs = loaded(warm, Family::Files(work.kernel), capacity(&[]))?;
    let place = work
        .place
        .open()
        .map_err(|source| ArmError::Place { path: work.place.path.display().to_string(), source })?;
    let (operations, failure) = (&work.operations, &work.failure);
    let mut programs = CallPrograms::new(programs);
    programs.set_place(
        place,
        operations,
        &work.kernel,
        failure.probability.threshold(),
        call_rule(failure),
    )?;
    meet(programs, &files::hooks(operations), &work.cgroup, deadline_ns)
}

pub(super) fn arm_sockets(
    work: &SocketWork,
    warm: Option<Programs>,
    deadline_ns: u64,
) -> Result<CallPrograms, ArmError> {
    let mut programs = loaded(warm, Family::Sockets(work.kernel), capacity(&[]))?;
    let callers = &work.callers;
    spare(&mut programs, &callers.protected_peers, &callers.protected_tcp_ports)?;
    let mut programs = CallPrograms::new(programs);
    programs.set_sockets(&work.kernel)?;
    let rule = PacketRule {
        protocol: number(work.protocol),
        ports: range(work.ports.either),
        local_ports: range(work.ports.local),
        remote_ports: range(work.ports.remote),
        probability: work.failure.probability.threshold(),
        ..PacketRule::default()
    };
    programs.set_rule(&rule, &[], call_rule(&work.failure))?;
    meet(programs, &sockets::hooks(&work.operations), &callers.cgroup, deadline_ns)
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
) -> Result<CallPrograms, ArmError> {
    let path = cgroup.path.display().to_string();
    let group = cgroup.open().map_err(|source| ArmError::Cgroup { path: path.clone(), source })?;
    let group = group.ok_or_else(|| ArmError::NoCgroup(path.clone()))?;
    // Nothing is attached yet, so that this arms nothing; the attachment that follows does.
    programs.renew(deadline_ns)?;
    programs.attach(hooks, group.as_fd(), &path)?;
    match programs.missing(cgroup.id, &path)? {
        None => Ok(programs),
        Some(program) => Err(ArmError::ReadBack {
            subject: format!("program {program} on cgroup {path}"),
            asked: "attached".to_owned(),
            found: "not attached".to_owned(),
        }),
    }
}
