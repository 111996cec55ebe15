//! PID 1 of the test VM: mounts what a host has mounted, runs the command in `/chaos/argv`, says how it ended on the
//! second serial line, and powers off. It loads no module: the kernel asks modprobe, as on a real host.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, ExitCode};

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Open files, soft and hard, that systemd allows (`DefaultLimitNOFILE=`, systemd-system.conf(5)). The kernel's own are fewer
/// than tests take.
const OPEN_FILES: (u64, u64) = (1024, 524_288);
/// Source, folder, type, options.
const MOUNTS: &[(&str, &str, &str, &str)] = &[
    ("proc", "/proc", "proc", ""),
    ("sysfs", "/sys", "sysfs", ""),
    ("devtmpfs", "/dev", "devtmpfs", ""),
    ("tmpfs", "/run", "tmpfs", "mode=0755"),
    ("tmpfs", "/tmp", "tmpfs", "mode=1777"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2", ""),
    ("bpf", "/sys/fs/bpf", "bpf", "mode=0700"),
    ("securityfs", "/sys/kernel/security", "securityfs", ""),
    ("tmpfs", "/dev/shm", "tmpfs", "mode=1777"),
    ("devpts", "/dev/pts", "devpts", ""),
];

pub(super) fn main() -> ExitCode {
    let status = set_up().and_then(|()| run()).unwrap_or_else(|error| {
        eprintln!("vm-init: {error}");
        255
    });
    let line = format!("{{\"exit\":{status}}}\n");
    let sent = fs::OpenOptions::new().write(true).open("/dev/ttyS1").and_then(|mut tty| {
        tty.write_all(line.as_bytes())?;
        // The last bytes have to leave the serial port before the power does.
        nix::sys::termios::tcdrain(&tty).map_err(Into::into)
    });
    if let Err(error) = sent {
        eprintln!("vm-init: write to ttyS1: {error}");
    }
    nix::unistd::sync();
    // Only returns when it fails; then the kernel panics for want of PID 1, which QEMU and the host notice.
    let _ = reboot(RebootMode::RB_POWER_OFF);
    ExitCode::FAILURE
}

fn set_up() -> Result<(), String> {
    // The kernel makes it as /tmp is, and whoever may write to / may change what is below it.
    fs::set_permissions("/", fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("chmod /: {error}"))?;
    setrlimit(Resource::RLIMIT_NOFILE, OPEN_FILES.0, OPEN_FILES.1)
        .map_err(|error| format!("raise the limit of open files: {error}"))?;
    for (source, folder, kind, options) in MOUNTS {
        fs::create_dir_all(folder).map_err(|error| format!("create {folder}: {error}"))?;
        mount(Some(*source), *folder, Some(*kind), MsFlags::empty(), Some(*options))
            .map_err(|error| format!("mount {folder}: {error}"))?;
    }
    for (target, link) in [("/proc/self/fd", "/dev/fd"), ("/proc/self/fd/1", "/dev/stdout")] {
        symlink(target, link).map_err(|error| format!("link {link}: {error}"))?;
    }
    for (key, value) in [("PATH", "/usr/bin:/sbin:/bin"), ("HOME", "/root"), ("TERM", "dumb")] {
        set(key, value);
    }
    set("CHAOS_BIN_DIR", "/chaos/bin");
    set("CHAOS_ENVIRONMENT", "vm");
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    match up {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("set lo up: {other:?}")),
    }
}

fn set(key: &str, value: &str) {
    // SAFETY: PID 1 has one thread.
    unsafe { std::env::set_var(key, value) };
}

/// Runs the command and, being PID 1, collects whatever else ends meanwhile.
fn run() -> Result<i32, String> {
    let text = fs::read_to_string("/chaos/argv").map_err(|error| format!("read /chaos/argv: {error}"))?;
    let mut words = text.split('\0');
    let program = words.next().unwrap_or_default();
    let child =
        Command::new(program).args(words).spawn().map_err(|error| format!("start {program}: {error}"))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(|error| error.to_string())?);
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(ended, status)) if ended == pid => return Ok(status),
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == pid => return Ok(128 + signal as i32),
            Ok(_) => {}
            Err(error) => return Err(format!("wait for {program}: {error}")),
        }
    }
}
