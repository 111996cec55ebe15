//! Programs that fail what the processes of a control group ask of files: what they are told, and how they learn which file is
//! meant.
//!
//! A file is meant by the address of its inode in the kernel, which stays its own as long as somebody has it open. No number that
//! user space sees would do: on Btrfs and overlay file systems stat(2) shows others than the kernel itself has.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use aya::maps::{Array, MapData};
use chaos_common::rule::EVERY_PEER;
use chaos_common::{CallRule, FileRule, PacketRule, Pin, name};
use nix::sys::stat::{major, minor};
use nix::unistd::gettid;

use super::sys::{self, ProgramKind};
use super::{BpfError, CallPrograms, Programs};
use crate::host::KernelFiles;
use crate::spec::files::Operation;

/// Every program that fails calls, and which of them.
const HOOKS: [(&str, &[Operation]); 4] = [
    (name::FILE_OPEN, &[Operation::Open]),
    (name::FILE_PERMISSION, &[Operation::Read, Operation::Write]),
    (name::INODE_CREATE, &[Operation::Create]),
    (name::MMAP_FILE, &[Operation::Mmap]),
];

/// The programs of [`super::Family::Files`].
pub(super) fn members(kernel: KernelFiles) -> Vec<(&'static str, ProgramKind)> {
    let of_group = |name, hook| (name, ProgramKind::security(sys::BPF_LSM_CGROUP, hook));
    vec![
        of_group(name::FILE_OPEN, kernel.file_open),
        of_group(name::FILE_PERMISSION, kernel.file_permission),
        of_group(name::INODE_CREATE, kernel.inode_create),
        of_group(name::MMAP_FILE, kernel.mmap_file),
        (name::INODE_GETATTR, ProgramKind::security(sys::BPF_LSM_MAC, kernel.inode_getattr)),
    ]
}

/// The hooks at which these operations are met.
pub fn hooks(operations: &[Operation]) -> Vec<(&'static str, u32)> {
    let met = |(_, meets): &&(&str, &[Operation])| meets.iter().any(|each| operations.contains(each));
    HOOKS.iter().filter(met).map(|(program, _)| (*program, sys::BPF_LSM_CGROUP)).collect()
}

impl Programs {
    /// The address of an open file's inode in the kernel, found by asking for the file's attributes under the eyes of a program.
    /// `None` when the kernel asked no program: `bpf` is not among its security modules.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn inode_of(&mut self, place: &File, kernel: &KernelFiles) -> Result<Option<u64>, BpfError> {
        let failed = |source| BpfError::AttachSecurity { program: name::INODE_GETATTR, source };
        let namespace = fs::metadata("/proc/self/ns/pid").map_err(failed)?;
        let asked = Pin {
            // As the kernel numbers devices within itself (`MKDEV`, include/linux/kdev_t.h).
            namespace_device: major(namespace.dev()) << 20 | minor(namespace.dev()),
            namespace_inode: namespace.ino(),
            thread: u64::from(gettid().as_raw().unsigned_abs()),
            inode: 0,
            layout: kernel.layout(),
        };
        let link = sys::security_attach(self.loaded.program(name::INODE_GETATTR)?).map_err(failed)?;
        // Only now: the first file that this thread asks about is the answer.
        self.set_one(name::PIN, asked)?;
        let looked = place.metadata();
        drop(link);
        looked.map_err(failed)?;
        let pins: Array<&MapData, Pin> = Array::try_from(self.loaded.map(name::PIN)?)
            .map_err(|source| BpfError::map(name::PIN, source))?;
        let found = pins.get(&0, 0).map_err(|source| BpfError::map(name::PIN, source))?;
        Ok(Some(found.inode).filter(|inode| *inode != 0))
    }
}

impl CallPrograms {
    /// Sets which calls about files match, how likely they fail, and with what. `place` stays open as long as this lives.
    ///
    /// # Errors
    /// When the kernel refuses, or asks none of its security programs.
    pub fn set_place(
        &mut self,
        place: File,
        operations: &[Operation],
        kernel: &KernelFiles,
        probability: u32,
        failure: CallRule,
    ) -> Result<(), BpfError> {
        let inode = self.programs.inode_of(&place, kernel)?.ok_or(BpfError::NotAsked)?;
        self.place = Some(place);
        self.programs.set_one(name::CALL, failure)?;
        let operations = operations.iter().fold(0, |all, operation| all | operation.bit());
        let rule = FileRule { inode, operations, layout: kernel.layout(), ..FileRule::default() };
        self.programs.set_one(name::FILE, rule)?;
        // Files know no level and no peers; the rule wants both said.
        let rule = PacketRule { probability, level: 1, flags: EVERY_PEER, ..PacketRule::default() };
        self.programs.set_rule(&rule, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::files::OPERATIONS;

    #[test]
    fn every_operation_has_a_hook_and_no_hook_is_there_in_vain() {
        assert_eq!(hooks(OPERATIONS).len(), HOOKS.len());
        for operation in OPERATIONS {
            assert_eq!(hooks(&[*operation]).len(), 1, "{}", operation.name());
        }
        assert_eq!(
            hooks(&[Operation::Write, Operation::Read]),
            [(name::FILE_PERMISSION, sys::BPF_LSM_CGROUP)]
        );
    }
}
