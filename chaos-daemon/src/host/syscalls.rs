//! The system calls that a process without rights may make, and those that no process of the daemon may (seccomp(2)). All others
//! fail with EPERM; one of another architecture than the program's ends the process.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    Error, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Memory, threads, waiting, time, and the sockets and files that are open already.
const COMMON: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getpeername,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
];

/// To keep the registry, and the history, whose database reads and writes at places, syncs, asks whether it is root's, and
/// removes the journal of a server that was killed while it wrote; to be handed streams; and to name the host.
const SERVER: &[i64] = &[
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_geteuid,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvmsg,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_uname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_unlinkat,
];

/// To look names up, to connect, and to see what file systems have left.
const PROBER: &[i64] = &[
    libc::SYS_connect,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getuid,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_statfs,
    libc::SYS_uname,
];

/// What none of the daemon's processes makes, root's or not: the kernel's code and mounts, keys, memory of others, devices, the
/// clock but by its steps.
const NEVER: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Older names of calls above, which the C library still uses where they exist.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[i64] =
    &[libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_readlink, libc::SYS_rename, libc::SYS_stat];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[i64] = &[];

/// A thread, and no namespace.
const CLONE_FLAGS: i32 = libc::CLONE_THREAD
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// Restricts the calling thread and those that it starts later; `network` for the prober.
pub(super) fn restrict(network: bool) -> Result<(), Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // Its flags are behind a pointer, where no filter can look. The C library falls back to clone(2) on ENOSYS.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let clone3 = SeccompFilter::new(clone3, SeccompAction::Allow, absent, arch)?;
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let listed = SeccompFilter::new(rules(network)?, denied, SeccompAction::Allow, arch)?;
    // The strictest filter wins, and of two that name an errno the newest: so `listed` has to let clone3 pass.
    for filter in [clone3, listed] {
        let program: seccompiler::BpfProgram = filter.try_into()?;
        apply_filter(&program)?;
    }
    Ok(())
}

/// Has the kernel refuse what no process of the daemon makes to the calling thread, to those that it starts later, and to what they
/// execute.
pub(super) fn withhold() -> Result<(), Error> {
    let never = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(never, SeccompAction::Allow, denied, arch)?;
    let program: seccompiler::BpfProgram = filter.try_into()?;
    apply_filter(&program)
}

fn rules(network: bool) -> Result<BTreeMap<i64, Vec<SeccompRule>>, Error> {
    let own = if network { PROBER } else { SERVER };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        COMMON.iter().chain(own).chain(LEGACY).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_clone3, Vec::new());
    let write_and_execute = (libc::PROT_WRITE | libc::PROT_EXEC).unsigned_abs();
    let execute = libc::PROT_EXEC.unsigned_abs();
    let mut only = |call, alternatives: &[(u8, Is, u32)]| -> Result<(), Error> {
        let alternatives = alternatives.iter().map(|(argument, is, value)| {
            let condition = SeccompCondition::new(*argument, Width::Dword, is.clone(), u64::from(*value))?;
            SeccompRule::new(vec![condition])
        });
        rules.insert(call, alternatives.collect::<Result<_, _>>()?);
        Ok(())
    };
    only(libc::SYS_clone, &[masked(0, CLONE_FLAGS.unsigned_abs(), libc::CLONE_THREAD.unsigned_abs())])?;
    // Nothing is executed that could be written. The server executes nothing that was not there at its start; the prober
    // loads the plug-ins of the name service.
    match network {
        false => only(libc::SYS_mmap, &[masked(2, execute, 0)])?,
        true => only(libc::SYS_mmap, &[masked(2, execute, 0), masked(2, write_and_execute, execute)])?,
    }
    only(libc::SYS_mprotect, &[masked(2, execute, 0)])?;
    // No set-user-id, no set-group-id file.
    only(libc::SYS_openat, &[masked(3, libc::S_ISUID | libc::S_ISGID, 0)])?;
    only(libc::SYS_ioctl, &[equal(1, libc::FIONBIO), equal(1, libc::FIONREAD)])?;
    only(libc::SYS_prctl, &[(0, Is::Eq, libc::PR_SET_NAME.unsigned_abs())])?;
    only(libc::SYS_socketpair, &[(0, Is::Eq, libc::AF_UNIX.unsigned_abs())])?;
    // To abort itself; nobody else can be signalled.
    only(libc::SYS_tgkill, &[(0, Is::Eq, std::process::id())])?;
    if network {
        let families = [libc::AF_INET, libc::AF_INET6].map(|family| (0, Is::Eq, family.unsigned_abs()));
        only(libc::SYS_socket, &families)?;
    }
    Ok(rules)
}

fn masked(argument: u8, mask: u32, value: u32) -> (u8, Is, u32) {
    (argument, Is::MaskedEq(u64::from(mask)), value)
}

/// ioctl(2) requests fit into 32 bits.
fn equal(argument: u8, request: libc::Ioctl) -> (u8, Is, u32) {
    (argument, Is::Eq, request as u32)
}

/// Has the kernel refuse one call to the calling thread, and to those that it starts later.
#[cfg(test)]
pub(crate) fn refuse(call: i64, errno: i32) {
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let calls = BTreeMap::from([(call, Vec::new())]);
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refused, arch).unwrap();
    apply_filter(&seccompiler::BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_made_is_refused_and_everything_else_goes_on() {
        let on_a_thread = || {
            withhold().unwrap();
            // SAFETY: calls that the kernel refuses before it looks at what they are given.
            let results = NEVER.iter().map(|call| unsafe { libc::syscall(*call, 0, 0, 0, 0, 0, 0) });
            let refused = results.filter(|result| {
                *result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
            });
            assert_eq!(refused.count(), NEVER.len());
            assert!(std::fs::read("/proc/self/status").is_ok());
        };
        std::thread::spawn(on_a_thread).join().unwrap();
    }

    #[test]
    fn both_lists_compile_and_only_the_probers_has_sockets() {
        for network in [false, true] {
            let rules = rules(network).unwrap();
            assert_eq!(rules.contains_key(&libc::SYS_socket), network);
            assert_eq!(rules.contains_key(&libc::SYS_connect), network);
            assert_eq!(rules.contains_key(&libc::SYS_statfs), network);
            for never in [libc::SYS_execve, libc::SYS_ptrace, libc::SYS_bpf, libc::SYS_setuid, libc::SYS_kill]
            {
                assert!(!rules.contains_key(&never), "{never}");
            }
        }
    }
}
