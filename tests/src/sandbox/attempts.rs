//! What a process without rights is refused, one line for each way that an item of `systemd-analyze security` stands for.

use nix::libc;

use super::puppet::Argument::{self, Memory, Number, Path};

/// One try.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The directive of the reference unit that it proves.
    pub(super) directive: &'static str,
    /// What is tried.
    pub(super) words: &'static str,
    /// System call.
    pub(super) call: i64,
    /// Its arguments; those left out are 0.
    pub(super) arguments: &'static [Argument],
    /// What the kernel has to say.
    pub(super) errno: i32,
}

const fn refused(
    directive: &'static str,
    words: &'static str,
    call: i64,
    arguments: &'static [Argument],
) -> Attempt {
    Attempt { directive, words, call, arguments, errno: libc::EPERM }
}

/// Opening is allowed as a call, and refused by path.
const fn hidden(directive: &'static str, words: &'static str, arguments: &'static [Argument]) -> Attempt {
    Attempt { directive, words, call: libc::SYS_openat, arguments, errno: libc::EACCES }
}

const HERE: Argument = Number(libc::AT_FDCWD as u64);
const READ: Argument = Number((libc::O_RDONLY | libc::O_CLOEXEC) as u64);
const WRITE: Argument = Number((libc::O_WRONLY | libc::O_CLOEXEC) as u64);
const FOLDER: Argument = Number((libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64);
const CREATE: Argument = Number((libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC) as u64);
const PAGE: Argument = Number(4096);
const STREAM: Argument = Number(libc::SOCK_STREAM as u64);
const RAW: Argument = Number(libc::SOCK_RAW as u64);
const PRIVATE: Argument = Number((libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64);
const WRITE_EXECUTE: Argument = Number((libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64);
const EXECUTE: Argument = Number((libc::PROT_READ | libc::PROT_EXEC) as u64);
const ZERO: Argument = Number(0);
const ONE: Argument = Number(1);

const fn family(family: i32) -> Argument {
    Number(family as u64)
}

/// Refused to the server and to the prober.
pub(super) const BOTH: &[Attempt] = &[
    refused("User", "become root", libc::SYS_setuid, &[ZERO]),
    refused("User", "become root's group", libc::SYS_setgid, &[ZERO]),
    refused("User", "join groups", libc::SYS_setgroups, &[ONE, Memory]),
    refused("User", "signal every process", libc::SYS_kill, &[Number(u64::MAX), ZERO]),
    refused("User", "signal the injector's init", libc::SYS_kill, &[ONE, ZERO]),
    refused("User", "signal by pidfd", libc::SYS_pidfd_send_signal, &[ZERO]),
    refused("CapabilityBoundingSet", "set capabilities", libc::SYS_capset, &[Memory, Memory]),
    refused("CapabilityBoundingSet", "own a file", libc::SYS_fchown, &[ZERO]),
    refused("CapabilityBoundingSet", "change the root", libc::SYS_chroot, &[Path("/")]),
    refused("NoNewPrivileges", "execute a program", libc::SYS_execve, &[Path("/bin/sh"), ZERO, ZERO]),
    refused("NoNewPrivileges", "execute by descriptor", libc::SYS_execveat, &[ZERO]),
    refused("NoNewPrivileges", "fork", libc::SYS_fork, &[]),
    refused("NoNewPrivileges", "vfork", libc::SYS_vfork, &[]),
    refused("NoNewPrivileges", "fork by clone", libc::SYS_clone, &[Number(libc::SIGCHLD as u64)]),
    refused("RestrictNamespaces", "unshare users", libc::SYS_unshare, &[Number(libc::CLONE_NEWUSER as u64)]),
    refused("RestrictNamespaces", "unshare mounts", libc::SYS_unshare, &[Number(libc::CLONE_NEWNS as u64)]),
    refused("RestrictNamespaces", "unshare network", libc::SYS_unshare, &[Number(libc::CLONE_NEWNET as u64)]),
    refused("RestrictNamespaces", "enter a namespace", libc::SYS_setns, &[ZERO, ZERO]),
    refused(
        "RestrictNamespaces",
        "a thread with users of its own",
        libc::SYS_clone,
        &[Number((libc::CLONE_NEWUSER | libc::CLONE_THREAD) as u64)],
    ),
    Attempt {
        directive: "RestrictNamespaces",
        words: "clone3, whose flags no filter can see",
        call: libc::SYS_clone3,
        arguments: &[Memory, Number(88)],
        errno: libc::ENOSYS,
    },
    refused("RestrictAddressFamilies", "a unix socket", libc::SYS_socket, &[family(libc::AF_UNIX), STREAM]),
    refused(
        "RestrictAddressFamilies",
        "a netlink socket",
        libc::SYS_socket,
        &[family(libc::AF_NETLINK), RAW],
    ),
    refused("RestrictAddressFamilies", "a packet socket", libc::SYS_socket, &[family(libc::AF_PACKET), RAW]),
    refused("RestrictAddressFamilies", "a vsock", libc::SYS_socket, &[family(libc::AF_VSOCK), STREAM]),
    refused("RestrictAddressFamilies", "a crypto socket", libc::SYS_socket, &[family(libc::AF_ALG), STREAM]),
    refused("RestrictAddressFamilies", "a CAN socket", libc::SYS_socket, &[family(libc::AF_CAN), RAW]),
    refused("RestrictAddressFamilies", "Bluetooth", libc::SYS_socket, &[family(libc::AF_BLUETOOTH), RAW]),
    refused("IPAddressDeny", "name a socket", libc::SYS_bind, &[ZERO, Memory, Number(16)]),
    refused("IPAddressDeny", "listen", libc::SYS_listen, &[ZERO, ONE]),
    refused("SystemCallFilter", "bpf", libc::SYS_bpf, &[ZERO, Memory, Number(64)]),
    refused("SystemCallFilter", "trace a process", libc::SYS_ptrace, &[Number(16), ONE]),
    refused("SystemCallFilter", "read another's memory", libc::SYS_process_vm_readv, &[ONE]),
    refused("SystemCallFilter", "write another's memory", libc::SYS_process_vm_writev, &[ONE]),
    refused("SystemCallFilter", "take another's descriptor", libc::SYS_pidfd_getfd, &[ZERO]),
    refused("SystemCallFilter", "compare processes", libc::SYS_kcmp, &[ONE, ONE]),
    refused("SystemCallFilter", "count events", libc::SYS_perf_event_open, &[Memory]),
    refused("SystemCallFilter", "handle page faults", libc::SYS_userfaultfd, &[]),
    refused("SystemCallFilter", "io_uring", libc::SYS_io_uring_setup, &[ONE, Memory]),
    refused("SystemCallFilter", "open by handle", libc::SYS_open_by_handle_at, &[HERE, Memory]),
    refused(
        "SystemCallFilter",
        "name to handle",
        libc::SYS_name_to_handle_at,
        &[HERE, Path("/"), Memory, Memory],
    ),
    refused("SystemCallFilter", "watch the file system", libc::SYS_fanotify_init, &[ZERO]),
    refused("SystemCallFilter", "ports", libc::SYS_iopl, &[Number(3)]),
    refused("SystemCallFilter", "some ports", libc::SYS_ioperm, &[ZERO, ONE, ONE]),
    refused("SystemCallFilter", "segments of 16 bits", libc::SYS_modify_ldt, &[ZERO, Memory, Number(16)]),
    refused("SystemCallFilter", "reboot", libc::SYS_reboot, &[ZERO]),
    refused("SystemCallFilter", "another kernel", libc::SYS_kexec_load, &[ZERO]),
    refused("SystemCallFilter", "swap", libc::SYS_swapoff, &[Path("/none")]),
    refused("SystemCallFilter", "account", libc::SYS_acct, &[ZERO]),
    refused("SystemCallFilter", "quota", libc::SYS_quotactl, &[ZERO]),
    refused("SystemCallFilter", "limits", libc::SYS_prlimit64, &[ONE]),
    refused("SystemCallFilter", "priority", libc::SYS_setpriority, &[ZERO]),
    refused("SystemCallFilter", "processors", libc::SYS_sched_setaffinity, &[ZERO, Number(8), Memory]),
    refused("SystemCallFilter", "hang up", libc::SYS_vhangup, &[]),
    refused("SystemCallFilter", "another seccomp filter", libc::SYS_seccomp, &[ONE]),
    refused(
        "SystemCallFilter",
        "undo by prctl",
        libc::SYS_prctl,
        &[Number(libc::PR_SET_DUMPABLE as u64), ONE],
    ),
    refused("PrivateMounts", "mount", libc::SYS_mount, &[Path("none"), Path("/"), Path("tmpfs")]),
    refused("PrivateMounts", "mount anew", libc::SYS_fsopen, &[Path("tmpfs")]),
    refused("PrivateMounts", "move a mount", libc::SYS_move_mount, &[HERE]),
    refused("PrivateMounts", "take a mount away", libc::SYS_umount2, &[Path("/proc")]),
    refused("PrivateMounts", "another root", libc::SYS_pivot_root, &[Path("/"), Path("/")]),
    refused("ProtectClock", "set the clock", libc::SYS_clock_settime, &[ZERO, Memory]),
    refused("ProtectClock", "set the time of day", libc::SYS_settimeofday, &[Memory]),
    refused("ProtectClock", "slew the clock", libc::SYS_adjtimex, &[Memory]),
    refused("ProtectHostname", "name the host", libc::SYS_sethostname, &[Path("x"), ONE]),
    refused("ProtectHostname", "name its domain", libc::SYS_setdomainname, &[Path("x"), ONE]),
    refused("ProtectKernelLogs", "read the kernel's log", libc::SYS_syslog, &[Number(3), Memory, Number(8)]),
    hidden("ProtectKernelLogs", "open the kernel's log", &[HERE, Path("/proc/kmsg"), READ]),
    refused("ProtectKernelModules", "load a module", libc::SYS_init_module, &[Memory, Number(8), Memory]),
    refused("ProtectKernelModules", "load a module's file", libc::SYS_finit_module, &[ZERO, Memory]),
    refused("ProtectKernelModules", "unload a module", libc::SYS_delete_module, &[Path("x")]),
    hidden(
        "ProtectKernelTunables",
        "a setting of the kernel",
        &[HERE, Path("/proc/sys/kernel/hostname"), WRITE],
    ),
    hidden("ProtectKernelTunables", "a setting of a device", &[HERE, Path("/sys/kernel"), FOLDER]),
    hidden("ProtectControlGroups", "control groups", &[HERE, Path("/sys/fs/cgroup"), FOLDER]),
    hidden("ProtectSystem", "write the host's file", &[HERE, Path("/etc/passwd"), WRITE]),
    hidden("ProtectSystem", "make a file", &[HERE, Path("/var/chaos-was-here"), CREATE, Number(0o600)]),
    hidden("ProtectHome", "root's home", &[HERE, Path("/root"), FOLDER]),
    hidden("PrivateTmp", "what others have for a while", &[HERE, Path("/tmp"), FOLDER]),
    hidden("PrivateTmp", "make something there", &[HERE, Path("/tmp/chaos-was-here"), CREATE, Number(0o600)]),
    hidden("PrivateDevices", "memory that is shared", &[HERE, Path("/dev/shm"), FOLDER]),
    hidden("DevicePolicy", "a device", &[HERE, Path("/dev/null"), READ]),
    refused("DevicePolicy", "make a device", libc::SYS_mknodat, &[HERE, Path("/tmp/x")]),
    hidden("ProtectProc", "another process", &[HERE, Path("/proc/1/status"), READ]),
    hidden("ProcSubset", "facts of the kernel", &[HERE, Path("/proc/version"), READ]),
    hidden("ProcSubset", "itself", &[HERE, Path("/proc/self/status"), READ]),
    refused("LockPersonality", "another personality", libc::SYS_personality, &[Number(0x0040_0000)]),
    refused(
        "MemoryDenyWriteExecute",
        "write and execute",
        libc::SYS_mmap,
        &[ZERO, PAGE, WRITE_EXECUTE, PRIVATE],
    ),
    refused("MemoryDenyWriteExecute", "execute what is there", libc::SYS_mprotect, &[ZERO, PAGE, EXECUTE]),
    refused("MemoryDenyWriteExecute", "a file of memory", libc::SYS_memfd_create, &[Path("x"), ZERO]),
    refused("MemoryDenyWriteExecute", "attach shared memory", libc::SYS_shmat, &[ZERO]),
    refused("RestrictRealtime", "real time", libc::SYS_sched_setscheduler, &[ZERO, ONE, Memory]),
    refused("RestrictSUIDSGID", "mark a file", libc::SYS_fchmodat, &[HERE, Path("/tmp/x"), Number(0o4755)]),
    refused(
        "RestrictSUIDSGID",
        "make a marked file",
        libc::SYS_openat,
        &[HERE, Path("x"), CREATE, Number(0o4755)],
    ),
    refused("KeyringMode", "add a key", libc::SYS_add_key, &[Memory, Memory]),
    refused("KeyringMode", "read keys", libc::SYS_keyctl, &[ZERO]),
    refused("RemoveIPC", "shared memory", libc::SYS_shmget, &[ZERO, PAGE, Number(0o1600)]),
    refused("RemoveIPC", "semaphores", libc::SYS_semget, &[ZERO, ONE, Number(0o1600)]),
    refused("RemoveIPC", "messages", libc::SYS_msgget, &[ZERO, Number(0o1600)]),
];

/// Refused to the server only.
pub(super) const SERVER: &[Attempt] = &[
    refused(
        "RestrictAddressFamilies",
        "a socket for IPv4",
        libc::SYS_socket,
        &[family(libc::AF_INET), STREAM],
    ),
    refused(
        "RestrictAddressFamilies",
        "a socket for IPv6",
        libc::SYS_socket,
        &[family(libc::AF_INET6), STREAM],
    ),
    refused("IPAddressDeny", "connect", libc::SYS_connect, &[ZERO, Memory, Number(16)]),
    refused("IPAddressDeny", "many messages", libc::SYS_sendmmsg, &[ZERO]),
    refused("MemoryDenyWriteExecute", "execute", libc::SYS_mmap, &[ZERO, PAGE, EXECUTE, PRIVATE]),
    hidden("ProtectSystem", "read the host's users", &[HERE, Path("/etc/passwd"), READ]),
    hidden("ProtectSystem", "read the host's programs", &[HERE, Path("/lib"), FOLDER]),
    hidden("ProtectSystem", "look around", &[HERE, Path("/"), FOLDER]),
];

/// As programs for x32 call. A unit's SystemCallArchitectures= ends the process for it, so that it is tried without one.
pub(super) const X32: Attempt =
    refused("SystemCallArchitectures", "getpid of x32", libc::SYS_getpid | 0x4000_0000, &[]);

/// Allowed to the prober: what it is for, and what its answers are read with. Returns a descriptor.
pub(super) const PROBER_MAY: &[Attempt] = &[
    refused("", "a socket for IPv4", libc::SYS_socket, &[family(libc::AF_INET), STREAM]),
    refused("", "a socket for IPv6", libc::SYS_socket, &[family(libc::AF_INET6), STREAM]),
    refused("", "the host's own names", libc::SYS_openat, &[HERE, Path("/etc/hosts"), READ]),
];
