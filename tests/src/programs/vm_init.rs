//! PID 1 of the test VM: mounts what a host has mounted, runs the jobs in `/chaos/jobs`, whose results go to the second serial
//! line, and powers off. It loads no module: the kernel asks modprobe, as on a real host.
//!
//! Anywhere else, `vm-init LIST RESULTS` runs such jobs and does nothing else, for the tests of them (`tests/tests/runner.rs`).

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::libc::O_NONBLOCK;
use nix::mount::{MsFlags, mount};
use nix::sys::prctl;
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::resource::{Resource, setrlimit};
use serde_json::json;

use crate::jobs;

const JOBS: &str = "/chaos/jobs";
const RESULTS: &str = "/dev/ttyS1";
/// How long a job that is told to end has for taking away what it has made, and what it leaves for ending: where nothing is
/// emulated, and in a VM.
const CLEANING: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];

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
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let said = match (std::process::id(), arguments.as_slice()) {
        (1, _) => set_up_and_run(),
        (_, [list, results]) => {
            prctl::set_child_subreaper(true).map_err(|errno| errno.to_string()).and_then(|()| {
                jobs::run_all(Path::new(list), Path::new(results), CLEANING[0])
                    .map_err(|error| error.to_string())
            })
        }
        _ => Err("needs a list of jobs, and a file for the results".to_owned()),
    };
    if let Err(error) = &said {
        eprintln!("vm-init: {error}");
    }
    if std::process::id() == 1 {
        nix::unistd::sync();
        // Only returns when it fails; then the kernel panics for want of PID 1, which QEMU and the host notice.
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
    if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn set_up_and_run() -> Result<(), String> {
    let started = Instant::now();
    set_up()?;
    let said = |error: crate::Error| error.to_string();
    let mut results =
        OpenOptions::new().append(true).open(RESULTS).map_err(|error| format!("open {RESULTS}: {error}"))?;
    let (unpacking, set_up) = (unpacking().as_secs_f64(), started.elapsed().as_secs_f64());
    jobs::write(&mut results, &json!({"unpacking": unpacking, "set_up": set_up})).map_err(said)?;
    let run = jobs::run_all(Path::new(JOBS), Path::new(RESULTS), CLEANING[1]).map_err(said);
    // The last bytes have to leave the serial port before the power does.
    nix::sys::termios::tcdrain(&results).map_err(|errno| format!("wait for {RESULTS}: {errno}"))?;
    run
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

/// How long the kernel took to unpack the image, with what else it did meanwhile, by its log; none, if the log does not say.
fn unpacking() -> Duration {
    let mut log = String::new();
    if let Ok(mut device) = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open("/dev/kmsg") {
        // Each read(2) returns a record.
        let mut record = [0; 8192];
        loop {
            match device.read(&mut record) {
                Ok(length @ 1..) => log.push_str(&String::from_utf8_lossy(&record[..length])),
                // Records that were overwritten meanwhile.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                _ => break,
            }
        }
    }
    unpacking_by(&log).unwrap_or_default()
}

/// The same, of records `priority,sequence,microseconds,flags;text`.
fn unpacking_by(log: &str) -> Option<Duration> {
    let at = |text: &str| {
        let (stamp, _) = log
            .lines()
            .find_map(|record| record.split_once(';').filter(|(_, said)| said.starts_with(text)))?;
        stamp.split(',').nth(2)?.parse().ok().map(Duration::from_micros)
    };
    at("Freeing initrd memory")?.checked_sub(at("Trying to unpack rootfs image")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_log_says_how_long_unpacking_took() {
        let log = "6,1,500000,-;Linux version\n5,200,2507378,-;Trying to unpack rootfs image as initramfs...\n\
            6,210,2519944,-;Asymmetric key parser 'x509' registered\n SUBSYSTEM=x\n6,220,4959094,-;Freeing initrd memory: 284928K\n";
        assert_eq!(unpacking_by(log), Some(Duration::from_micros(4_959_094 - 2_507_378)));
        assert_eq!(unpacking_by("6,1,500000,-;Linux version\n"), None);
    }
}
