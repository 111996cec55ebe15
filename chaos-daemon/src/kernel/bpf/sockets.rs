//! Programs that fail what the processes of a control group ask of sockets: what they are told.
//!
//! Each hook is for one operation, so that what is attached says which of them are met.

use chaos_common::name;

use super::sys::{self, ProgramKind};
use super::{BpfError, CallPrograms};
use crate::host::KernelSockets;
use crate::spec::sockets::Operation;

/// The programs of [`super::Family::Sockets`].
pub(super) fn members(kernel: KernelSockets) -> Vec<(&'static str, ProgramKind)> {
    let hooks = [
        (name::SOCKET_BIND, kernel.socket_bind),
        (name::SOCKET_LISTEN, kernel.socket_listen),
        (name::SOCKET_ACCEPT, kernel.socket_accept),
        (name::SOCKET_SENDMSG, kernel.socket_sendmsg),
        (name::SOCKET_RECVMSG, kernel.socket_recvmsg),
    ];
    hooks.map(|(name, hook)| (name, ProgramKind::security(sys::BPF_LSM_CGROUP, hook))).to_vec()
}

/// The hooks at which these operations are met.
pub fn hooks(operations: &[Operation]) -> Vec<(&'static str, u32)> {
    let program = |operation: &Operation| match operation {
        Operation::Bind => name::SOCKET_BIND,
        Operation::Listen => name::SOCKET_LISTEN,
        Operation::Accept => name::SOCKET_ACCEPT,
        Operation::Send => name::SOCKET_SENDMSG,
        Operation::Receive => name::SOCKET_RECVMSG,
    };
    operations.iter().map(|operation| (program(operation), sys::BPF_LSM_CGROUP)).collect()
}

impl CallPrograms {
    /// Tells the programs where this kernel keeps what they look at. What they match is up to [`CallPrograms::set_rule`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_sockets(&mut self, kernel: &KernelSockets) -> Result<(), BpfError> {
        self.programs.set_one(name::SOCKET, kernel.layout())
    }
}
