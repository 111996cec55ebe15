//! What the processes of a control group ask of files: programs at the kernel's security hooks, which the kernel runs for that
//! group only. A file is known by the inode of the place it is at or below, never by a path, which can be another's by now.

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::bpf_get_ns_current_pid_tgid;
use aya_ebpf::macros::{lsm, lsm_cgroup};
use aya_ebpf::programs::LsmContext;
use chaos_common::FileRule;
use chaos_common::file::{CREATE, MAP, MOST_DEPTH, OPEN, permission};
use chaos_common::rule::ENABLED;

use crate::failure::{PASS, count, fail, strike_hard};
use crate::maps;
use crate::memory::{argument, pointer};

/// Whether the name at this address is the place, or lies below it in its file system.
#[inline(always)]
fn is_below(mut dentry: u64, rule: &FileRule) -> bool {
    for _ in 0..MOST_DEPTH {
        // A file that is being made has a name, and no inode yet.
        if pointer(dentry, rule.layout.dentry_inode) == Some(rule.inode) {
            return true;
        }
        match pointer(dentry, rule.layout.dentry_parent) {
            // The root of a file system is its own parent.
            Some(parent) if parent != dentry => dentry = parent,
            _ => return false,
        }
    }
    false
}

/// What the call returns, if the fault acts on it. Counts either way.
#[inline(always)]
fn hit(operation: u32, dentry: impl FnOnce(&FileRule) -> Option<u64>) -> Option<i32> {
    let rule = maps::RULE.get(0)?;
    let file = maps::FILE.get(0)?;
    if !rule.has(ENABLED) || !file.selects(operation) || !is_below(dentry(file)?, file) {
        return None;
    }
    // SAFETY: the slot of a map.
    unsafe { count(&raw mut (*maps::COUNTERS.get_ptr_mut(0)?).matched) };
    strike_hard(rule)
}

#[inline(always)]
fn decide(operation: u32, dentry: impl FnOnce(&FileRule) -> Option<u64>) -> i32 {
    match hit(operation, dentry) {
        None => PASS,
        Some(verdict) => fail(verdict),
    }
}

#[inline(always)]
fn decide_on_file(ctx: &LsmContext, operation: u32) -> i32 {
    let file = argument(ctx, 0);
    decide(operation, |rule| pointer(file, rule.layout.file_dentry))
}

/// Fails opening a file.
#[lsm_cgroup(hook = "file_open")]
pub fn file_open(ctx: LsmContext) -> i32 {
    decide_on_file(&ctx, OPEN)
}

/// Fails reading from an open file, and writing to it.
#[lsm_cgroup(hook = "file_permission")]
pub fn file_permission(ctx: LsmContext) -> i32 {
    decide_on_file(&ctx, permission(argument(&ctx, 1) as u32))
}

/// Fails making a file.
#[lsm_cgroup(hook = "inode_create")]
pub fn inode_create(ctx: LsmContext) -> i32 {
    let dentry = argument(&ctx, 1);
    decide(CREATE, |_| Some(dentry))
}

/// Fails mapping a file into memory. What is mapped without a file is at no place.
#[lsm_cgroup(hook = "mmap_file")]
pub fn mmap_file(ctx: LsmContext) -> i32 {
    decide_on_file(&ctx, MAP)
}

/// Notes the inode that one thread asks for, and lets everything pass.
#[lsm(hook = "inode_getattr")]
pub fn inode_getattr(ctx: LsmContext) -> i32 {
    let path = argument(&ctx, 0);
    note(path);
    0
}

#[inline(always)]
fn note(path: u64) -> Option<()> {
    let pin = maps::PIN.get_ptr_mut(0)?;
    // SAFETY: the slot of a map, which nobody else writes while its owner waits for the answer.
    let pin = unsafe { &mut *pin };
    let mut who = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the helper writes as many bytes as it is told that there are.
    let failed = unsafe {
        bpf_get_ns_current_pid_tgid(
            pin.namespace_device,
            pin.namespace_inode,
            &raw mut who,
            size_of::<bpf_pidns_info>() as u32,
        )
    };
    // The first answer holds: an overlay file system asks on, within the same call, for the file that lies under its own.
    if failed != 0 || u64::from(who.pid) != pin.thread || pin.inode != 0 {
        return None;
    }
    let dentry = pointer(path, pin.layout.path_dentry)?;
    pin.inode = pointer(dentry, pin.layout.dentry_inode)?;
    Some(())
}
