//! The processes of this host as procfs shows them, and which of them are never a target.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::{Process, StatFlags};
use serde::{Deserialize, Serialize};

use super::budget;
use super::nearness::Nearness;

/// How much of a command line counts, in bytes: whoever runs a process can make it as long as he likes (prctl(2),
/// `PR_SET_MM_MAP`). What else is read of a process here the kernel bounds.
pub const LONGEST_COMMAND: usize = 64 << 10;

/// The digits of a container's id, at least, and so many of them are shown.
const CONTAINER_ID: (usize, usize) = (32, 12);

/// A process that cannot be mistaken for a later one of the same number: the pid and the time it started, in
/// clock ticks since boot (`/proc/PID/stat`, field 22; proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Number.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
}

impl ProcessId {
    /// The identity of the process that has this number now.
    ///
    /// # Errors
    /// When there is none, or procfs cannot be read.
    pub fn of(pid: i32) -> Result<Self, procfs::ProcError> {
        Ok(Self { pid, start_time: Process::new(pid)?.stat()?.starttime })
    }

    /// Whether it is there and no zombie. What is read for it waits neither for the memory of the process nor for what it does.
    pub fn runs(self) -> bool {
        let stat = Process::new(self.pid).and_then(|process| process.stat());
        stat.is_ok_and(|stat| stat.starttime == self.start_time && !matches!(stat.state, 'Z' | 'X'))
    }
}

/// A process that runs, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Identity.
    pub id: ProcessId,
    /// Number of its parent.
    pub parent: i32,
    /// Name, at most 15 bytes.
    pub name: String,
    /// Path of its program, without the mark of one that was replaced meanwhile; `None` when it has none or hides it.
    pub exe: Option<String>,
    /// The file that it runs, by device and inode.
    pub program: Option<(u64, u64)>,
    /// Whether nobody but root can have made that file, as far as is seen: anybody can have one of any name.
    pub program_is_roots: bool,
    /// Words of its command line, joined by blanks; of a long one the first [`LONGEST_COMMAND`] bytes.
    pub command: String,
    /// Path of its control group (version 2) below the mount.
    pub cgroup: Option<PathBuf>,
    /// Path of its group in the hierarchy in which systemd keeps its units, where that is one of version 1 (cgroups(7)).
    pub managed: Option<PathBuf>,
    /// Whether it is a thread of the kernel.
    pub of_kernel: bool,
    /// Whether it is of this host, and in its network.
    pub nearness: Nearness,
    /// Whose it is.
    pub owner: Owner,
    /// Whether it listens where operators come in; known only where it was looked at (`protected::ways_in`).
    pub listens: bool,
    /// Number of the process that traces its first thread; 0 when nobody does.
    pub tracer: i32,
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user; of one that changes whose rights it has, root.
    pub uid: u32,
    /// Number of its controlling terminal (`/proc/PID/stat`, field 7; proc(5)); 0 is none.
    pub terminal: i32,
    /// The user who has logged in for it: by the slice of that user's logins, or where it is in no unit, by the mark that a login
    /// leaves (`/proc/PID/loginuid`).
    pub login: Option<u32>,
}

impl Owner {
    fn read(process: &Process, terminal: i32, cgroup: Option<&Path>) -> Self {
        let uid = process.status().map_or(0, |status| match status.ruid == status.euid {
            true => status.ruid,
            false => 0,
        });
        let in_unit = cgroup.and_then(unit_of).is_some();
        let marked = || process.loginuid().ok().filter(|uid| *uid != NOBODY_LOGGED_IN && !in_unit);
        Self { uid, terminal, login: cgroup.and_then(login_of).or_else(marked) }
    }
}

/// What `loginuid` says where nobody has logged in.
const NOBODY_LOGGED_IN: u32 = u32::MAX;

/// The user to whose logins a control group belongs: systemd has them in a slice of each user (pam_systemd(8)).
pub fn login_of(cgroup: &Path) -> Option<u32> {
    let parts = cgroup.iter().filter_map(|part| part.to_str());
    parts.filter_map(|part| part.strip_prefix("user-")?.strip_suffix(".slice")?.parse().ok()).next()
}

/// The host's systemd units of a control group, the outermost first. What a container has in its group are its own.
pub fn units_of(cgroup: &Path) -> Vec<&str> {
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    let mut within = false;
    let parts = cgroup.iter().filter_map(|part| part.to_str());
    let of_host = parts.take_while(|part| {
        let is_inside = within;
        within |= is_container(part);
        !is_inside
    });
    of_host.filter(is_unit).collect()
}

/// The innermost of them.
fn unit_of(cgroup: &Path) -> Option<&str> {
    units_of(cgroup).pop()
}

/// Whether a group of this name has all of a container, or of a machine that systemd keeps (systemd-nspawn(1), machinectl(1)).
fn is_container(part: &str) -> bool {
    let of_machine = part.starts_with("machine-") && part.ends_with(".scope");
    container_id(part).is_some()
        || of_machine
        || part.starts_with("systemd-nspawn@")
        || part.starts_with("lxc.payload.")
}

/// The beginning of the id of the container that has a group of this name.
fn container_id(part: &str) -> Option<&str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit(['-', ':']).next().unwrap_or(name);
    let is_id = id.len() >= CONTAINER_ID.0 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| &id[..CONTAINER_ID.1])
}

/// The control group of version 2, and that of systemd's own hierarchy, if that is another, by `/proc/PID/cgroup`.
fn memberships(text: &str) -> (Option<PathBuf>, Option<PathBuf>) {
    let path = |of: &str| text.lines().find_map(|line| Some(line.split_once(of)?.1)).map(PathBuf::from);
    (path("0::/"), path(":name=systemd:/"))
}

#[cfg(test)]
impl Running {
    /// One of this host, root's, with nothing special about it.
    pub(crate) fn plain(pid: i32, name: &str) -> Self {
        Self {
            id: ProcessId { pid, start_time: 1 },
            parent: 1,
            name: name.to_owned(),
            exe: None,
            program: None,
            program_is_roots: true,
            command: name.to_owned(),
            cgroup: None,
            managed: None,
            of_kernel: false,
            nearness: Nearness { of_this_host: true, in_this_network: true },
            owner: Owner::default(),
            listens: false,
            tracer: 0,
        }
    }
}

impl Running {
    /// The process of this number; `None` when there is none that runs.
    pub fn read(pid: i32) -> Option<Self> {
        let folder = Path::new("/proc").join(pid.to_string());
        let process = Process::new(pid).ok()?;
        let stat = process.stat().ok()?;
        if matches!(stat.state, 'Z' | 'X') {
            return None;
        }
        let of_kernel = StatFlags::from_bits_truncate(stat.flags).contains(StatFlags::PF_KTHREAD);
        let membership = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        let (cgroup, managed) = memberships(&membership);
        let file = fs::metadata(folder.join("exe")).ok();
        let exe = process.exe().ok().and_then(|path| path.into_os_string().into_string().ok());
        Some(Self {
            id: ProcessId { pid, start_time: stat.starttime },
            parent: stat.ppid,
            name: stat.comm,
            exe: exe.map(|exe| exe.strip_suffix(" (deleted)").map_or(exe.clone(), str::to_owned)),
            program: file.as_ref().map(|file| (file.dev(), file.ino())),
            program_is_roots: file.is_none_or(|file| file.uid() == 0 && file.mode() & 0o022 == 0),
            // Who has ended meanwhile has none.
            command: words(&command_line(&folder).unwrap_or_default()),
            owner: Owner::read(&process, stat.tty_nr, managed.as_deref().or(cgroup.as_deref())),
            cgroup,
            managed,
            of_kernel,
            nearness: Nearness::read(&folder),
            listens: false,
            tracer: process.status().map_or(0, |status| process_of(status.tracerpid)),
        })
    }

    /// Every process that runs.
    ///
    /// # Errors
    /// When procfs cannot be read, or the thread's [budget](super::budget) is spent.
    pub fn all() -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for number in numbers()? {
            budget::check()?;
            // Who has ended meanwhile is not there.
            all.extend(Self::read(number));
        }
        Ok(all)
    }

    /// Those of these numbers that run, and everybody above them.
    pub fn with_those_above(numbers: impl IntoIterator<Item = i32>) -> Vec<Self> {
        let mut found: BTreeMap<i32, Self> = BTreeMap::new();
        let mut next: Vec<i32> = numbers.into_iter().collect();
        while let Some(pid) = next.pop() {
            if !found.contains_key(&pid)
                && let Some(process) = Self::read(pid)
            {
                next.push(process.parent);
                found.insert(pid, process);
            }
        }
        found.into_values().collect()
    }

    /// The host's systemd unit whose control group it is in, the innermost one. Of who is in a pid namespace of its own, and in no
    /// container that is known by its group, it is the outermost one.
    pub fn unit(&self) -> Option<&str> {
        let mut all = self.groups().map(units_of).find(|units| !units.is_empty())?;
        let is_hosts = self.nearness.of_this_host || self.container().is_some();
        if is_hosts { all.pop() } else { all.first().copied() }
    }

    /// The groups by which it is known whose it is.
    fn groups(&self) -> impl Iterator<Item = &Path> {
        self.cgroup.iter().chain(&self.managed).map(PathBuf::as_path)
    }
}

/// The command line of the process whose folder of procfs this is, as far as it counts: a NUL ends each word.
///
/// # Errors
/// When it cannot be read.
pub fn command_line(folder: &Path) -> io::Result<Vec<u8>> {
    // OPENS: whoever runs the process | root | a text of procfs, of which 64 KiB are read
    beginning(File::open(folder.join("cmdline"))?)
}

fn beginning(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LONGEST_COMMAND as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Words that end with a NUL each, joined by blanks. What is no UTF-8 is read as U+FFFD.
fn words(bytes: &[u8]) -> String {
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}

/// The process that a thread belongs to; 0 is nobody's.
fn process_of(thread: i32) -> i32 {
    match thread {
        0 => 0,
        // One that has ended meanwhile traces nobody any more.
        tid => Process::new(tid).and_then(|process| process.status()).map_or(0, |status| status.tgid),
    }
}

/// The numbers of all processes.
///
/// # Errors
/// When procfs cannot be read.
pub fn numbers() -> io::Result<Vec<i32>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(fs::read_dir("/proc")?.flatten().filter_map(number).collect())
}

impl Running {
    /// The beginning of the id of its container, if it is in one. The name of a control group has the id with Docker, Podman, containerd
    /// and CRI-O.
    pub fn container(&self) -> Option<String> {
        let parts = self.groups().flat_map(Path::iter).filter_map(|part| part.to_str());
        parts.filter_map(container_id).last().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Running {
        Running::read(std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn this_process_is_seen_with_its_program_and_its_command_line() {
        let me = me();
        assert_eq!(me.exe, std::env::current_exe().unwrap().to_str().map(str::to_owned));
        assert!(me.command.starts_with(&std::env::args().next().unwrap()), "{me:?}");
        assert!(me.nearness.of_this_host && !me.of_kernel && me.tracer == 0, "{me:?}");
        assert!(Running::all().unwrap().iter().any(|process| process.id == me.id));
        assert!(me.id.runs() && !ProcessId { start_time: me.id.start_time + 1, ..me.id }.runs());
    }

    #[test]
    fn of_a_command_line_without_an_end_only_the_beginning_is_read() {
        assert_eq!(beginning(io::repeat(b'x')).unwrap().len(), LONGEST_COMMAND);
        assert_eq!(words(b"/opt/a\0--name\0\0b c\xff\0"), "/opt/a --name b c\u{fffd}");
        assert_eq!(words(b""), "");
    }

    #[test]
    fn above_this_process_is_its_parent_and_so_on() {
        let me = me();
        let found = Running::with_those_above([me.id.pid, i32::MAX]);
        let has = |pid: i32| found.iter().any(|process| process.id.pid == pid);
        assert!(has(me.id.pid) && has(me.parent), "{found:?}");
    }

    #[test]
    fn the_unit_is_the_innermost_one_of_the_host() {
        let within = |path: &str| Running { cgroup: Some(path.into()), managed: None, ..me() };
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(within("system.slice/a.service/worker").unit(), Some("a.service"));
        assert_eq!(within("user.slice/user@1.service/app.slice/b.scope").unit(), Some("b.scope"));
        assert_eq!(within("").unit(), None);
        let scope = format!("docker-{id}.scope");
        for contained in [
            format!("system.slice/{scope}/system.slice/dbus.service"),
            format!("system.slice/{scope}/init.scope"),
        ] {
            assert_eq!(within(&contained).unit(), Some(&*scope), "{contained}");
        }
        let machine = "machine.slice/machine-a.scope/payload/system.slice/postgresql.service";
        assert_eq!(within(machine).unit(), Some("machine-a.scope"));
        let elsewhere = Nearness { of_this_host: false, in_this_network: true };
        let of_a_user =
            format!("user.slice/user-5.slice/user@5.service/user.slice/libpod-{id}.scope/x.service");
        let rootless = Running { nearness: elsewhere, ..within(&of_a_user) };
        assert_eq!(rootless.unit(), Some(&*format!("libpod-{id}.scope")));
        let nested = Running { nearness: elsewhere, ..within("a.service/lxc/b/system.slice/dbus.service") };
        assert_eq!(nested.unit(), Some("a.service"));
    }

    #[test]
    fn a_unit_is_found_in_systemds_own_hierarchy_where_version_2_has_none() {
        let (cgroup, managed) = memberships("5:cpu:/\n1:name=systemd:/system.slice/a.service\n0::/\n");
        assert_eq!(
            (cgroup.as_deref(), managed.as_deref()),
            (Some(Path::new("")), Some(Path::new("system.slice/a.service")))
        );
        assert_eq!(Running { cgroup, managed, ..me() }.unit(), Some("a.service"));
        let (cgroup, managed) = memberships("1:name=systemd:/user.slice/user-5.slice/session-1.scope\n");
        assert_eq!(
            Running { cgroup: cgroup.clone(), managed: managed.clone(), ..me() }.unit(),
            Some("session-1.scope")
        );
        assert_eq!((cgroup, managed.as_deref().and_then(login_of)), (None, Some(5)));
        assert_eq!(memberships("0::/a.service\n"), (Some("a.service".into()), None));
    }

    #[test]
    fn a_login_is_known_by_its_slice_and_a_unit_of_the_host_has_none() {
        for (path, login) in [
            ("user.slice/user-1002.slice/session-3.scope", Some(1002)),
            ("user.slice/user-1002.slice/user@1002.service/app.slice/a.service", Some(1002)),
            ("user.slice", None),
            ("user.slice/user-.slice/a.scope", None),
            ("system.slice/user-1002.service", None),
            ("", None),
        ] {
            assert_eq!(login_of(Path::new(path)), login, "{path}");
        }
        assert_eq!(me().owner.uid, nix::unistd::getuid().as_raw());
    }
}
