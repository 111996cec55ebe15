//! The runtime directory: one daemon at a time, its socket, its journal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, VsockAddr, bind, listen, socket};

use serde::{Deserialize, Serialize};

use super::watch::Heartbeat;
use crate::host::accounts;
use crate::kernel::process::ProcessId;
use crate::policy::Role;

/// How many callers may wait to be let in.
const VSOCK_BACKLOG: i32 = 128;

/// How long one that recovers (the guard, `recover`, a daemon that starts) is waited for by the next.
const HANDOVER: Duration = Duration::from_secs(10);
/// How long one that was killed may take to let go of its lock by ending. Longer than that it hangs in the kernel.
const DEATH: Duration = Duration::from_millis(200);
/// Bytes of the locked file; more than any claimant takes.
const CLAIM_LENGTH: usize = 96;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Who has claimed a runtime directory, as it says in the locked file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessId,
    /// Whether it undoes what another has left, which comes to an end by itself, rather than serving.
    #[serde(default)]
    pub recovers: bool,
}

/// A claimed runtime directory. While the value lives, no other daemon runs in it.
#[derive(Debug)]
pub struct Runtime {
    directory: PathBuf,
    /// The sockets in it that are ours.
    bound: Vec<PathBuf>,
    lock: Flock<File>,
}

/// The socket for everybody.
const SOCKET: &str = "mcp.sock";

/// One more socket, by which nobody is more than of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOfRole {
    /// The role.
    pub role: Role,
    /// The name of its file in the runtime directory.
    pub name: String,
    /// Group that may use it, beside root.
    pub group: Option<String>,
}

impl FromStr for SocketOfRole {
    type Err = String;

    /// `ROLE=NAME` or `ROLE=NAME:GROUP`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (role, socket) = text.split_once('=').ok_or("give ROLE=NAME, or ROLE=NAME:GROUP")?;
        let known = Role::ALL.into_iter().find(|known| known.name() == role);
        let role =
            known.ok_or_else(|| format!("{role:?} is no role: observer, approver, operator or admin"))?;
        let (name, group) =
            socket.split_once(':').map_or((socket, None), |(name, group)| (name, Some(group)));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = name.len() <= 64 && name.ends_with(".sock") && name.bytes().all(is_plain);
        if !is_name || name == SOCKET || name.starts_with('.') {
            return Err(format!(
                "{name:?} is no name of a socket in the runtime directory: letters, digits, -, _ and ., with .sock at its end, and not \
                 {SOCKET}"
            ));
        }
        Ok(Self { role, name: name.to_owned(), group: group.map(str::to_owned) })
    }
}

/// Why a runtime directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// Another daemon runs in it.
    #[error(
        "a daemon (process {pid}) is running in {directory}: `chaosctl stop --all` ends its faults; stop it, or \
         use another --runtime-dir"
    )]
    InUse {
        /// Its process.
        pid: i32,
        /// The directory.
        directory: String,
    },
    /// The group for the socket does not exist.
    #[error("no group {0:?} for the socket: create it, or leave --socket-group out")]
    NoGroup(String),
    /// The path of a socket does not fit (unix(7)).
    #[error(
        "the socket {path} would have a path of {length} bytes, and {LONGEST_PATH} are the most: use a shorter --runtime-dir"
    )]
    TooLong {
        /// Of the socket.
        path: String,
        /// In bytes.
        length: usize,
    },
    /// The operating system refused something.
    #[error("{operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Of a unix socket's path, without the zero at its end (unix(7)).
const LONGEST_PATH: usize = 107;

impl Runtime {
    /// Claims `directory` for this process, to recover in it and perhaps to serve in it afterwards; it is made if it is
    /// not there. Waits for somebody else who recovers. Takes the place of one that was killed and hangs in the kernel with the
    /// lock: it does nothing more, and may hang for as long as a file system does.
    ///
    /// # Errors
    /// [`RuntimeError::InUse`] when another daemon has it.
    pub fn claim(directory: &Path) -> Result<Self, RuntimeError> {
        let begun = Instant::now();
        loop {
            let waited = begun.elapsed();
            match Self::try_claim(directory, waited >= DEATH) {
                Err(RuntimeError::InUse { .. }) if waited < HANDOVER && !Self::serves(directory) => {
                    thread::sleep(LOOK_AGAIN);
                }
                claimed => return claimed,
            }
        }
    }

    /// Whether whoever is named in the lock serves. One that has ended, or was killed, does not: somebody else is about to take
    /// its place.
    fn serves(directory: &Path) -> bool {
        let lives = |claimant: Claimant| match claimant.process.open() {
            Ok(process) => process.is_some_and(|process| !process.dying),
            Err(_) => true,
        };
        Self::named(directory).is_some_and(|claimant| !claimant.recovers && lives(claimant))
    }

    fn try_claim(directory: &Path, supplant: bool) -> Result<Self, RuntimeError> {
        let io = |operation, path: &Path| {
            let path = path.display().to_string();
            move |source| RuntimeError::Io { operation, path, source }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(io("create the runtime directory", directory))?;
        let lock = |path: &Path, file| {
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
                Errno::EWOULDBLOCK => RuntimeError::InUse {
                    pid: Self::named(directory).map_or(0, |claimant| claimant.process.pid),
                    directory: directory.display().to_string(),
                },
                errno => io("lock", path)(errno.into()),
            })
        };
        // Only root can open these: a lock needs no more than an open file (flock(2)), and keeps whoever recovers waiting.
        // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let open = |path: &Path| options.open(path).map_err(io("open", path));
        // One after the other: nobody else claims until whoever has the lock is named, or while it is taken from one that hangs.
        let turn = directory.join("turn");
        let _turn = lock(&turn, open(&turn)?)?;
        let path = directory.join("lock");
        let mut lock = match lock(&path, open(&path)?) {
            Err(RuntimeError::InUse { .. }) if supplant && Self::named(directory).is_some_and(hangs) => {
                // That process keeps the lock on the file that was there, and nobody else will look at it.
                fs::remove_file(&path).map_err(io("replace", &path))?;
                lock(&path, open(&path)?)?
            }
            locked => locked?,
        };
        // Before the name: the guard takes whoever is named, and does not beat, for one that hangs.
        Heartbeat::of_injector(directory).map_err(io("open the heartbeat in", directory))?.beat();
        write_claimant(&mut lock, true).map_err(io("write", &path))?;
        Ok(Self { directory: directory.to_owned(), bound: Vec::new(), lock })
    }

    /// Says that recovery is over and serving begins; returns the heartbeat to keep.
    ///
    /// # Errors
    /// When the runtime directory cannot be written.
    pub fn serve(&mut self) -> Result<Heartbeat, RuntimeError> {
        let path = self.directory.display().to_string();
        let io = |source| RuntimeError::Io { operation: "say who serves in", path, source };
        let mut begin = || {
            let heartbeat = Heartbeat::of_injector(&self.directory)?;
            heartbeat.beat();
            write_claimant(&mut self.lock, false)?;
            Ok(heartbeat)
        };
        begin().map_err(io)
    }

    /// Who is named as claimant of `directory`, alive or not.
    pub fn named(directory: &Path) -> Option<Claimant> {
        // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
        let mut file = File::open(directory.join("lock")).ok()?;
        read_claimant(&mut file)
    }

    /// The daemon that has claimed `directory`, if one has: to end it when it hangs.
    pub fn claimant(directory: &Path) -> Option<ProcessId> {
        // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
        let mut file = File::open(directory.join("lock")).ok()?;
        let id = read_claimant(&mut file).map(|claimant| claimant.process);
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => None,
            Err(_) => id,
        }
    }

    /// Where the journal of kernel steps is.
    pub fn journal_dir(&self) -> PathBuf {
        self.directory.join("journal")
    }

    /// Opens the sockets that callers connect to: the one for everybody, for root and for `group`, and `more`. That one comes last: once
    /// it is there, all are.
    ///
    /// # Errors
    /// When a group does not exist or a socket cannot be made.
    pub fn listen(
        &mut self,
        group: Option<&str>,
        more: &[SocketOfRole],
    ) -> Result<Vec<(OwnedFd, Role)>, RuntimeError> {
        let more = more.iter().map(|more| (more.name.as_str(), more.group.as_deref(), more.role));
        let all = more.chain([(SOCKET, group, Role::Admin)]);
        all.map(|(name, group, role)| Ok((self.listen_at(name, group)?.into(), role))).collect()
    }

    fn listen_at(&mut self, name: &str, group: Option<&str>) -> Result<UnixListener, RuntimeError> {
        let path = self.directory.join(name);
        let io = |operation| {
            let path = path.display().to_string();
            move |source| RuntimeError::Io { operation, path, source }
        };
        let gid = match group {
            None => None,
            Some(name) => {
                let found = accounts::group(name).map_err(io("look up the group for"))?;
                Some(found.ok_or_else(|| RuntimeError::NoGroup(name.to_owned()))?)
            }
        };
        // Ours alone by the lock: what is there was left by a daemon that died.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io("remove the old socket")(error));
            }
            _ => {}
        }
        // Made under another name and then moved, so that nobody meets it before its owner and mode are set.
        let fresh = self.directory.join(format!("{name}.new"));
        drop(fs::remove_file(&fresh));
        let length = fresh.as_os_str().len();
        if length > LONGEST_PATH {
            return Err(RuntimeError::TooLong { path: path.display().to_string(), length });
        }
        let listener = UnixListener::bind(&fresh).map_err(io("create the socket"))?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o660)).map_err(io("set the mode of"))?;
        chown(&fresh, Some(0), Some(gid.unwrap_or(0))).map_err(io("set the owner of"))?;
        fs::rename(&fresh, &path).map_err(io("put in place"))?;
        self.bound.push(path);
        Ok(listener)
    }
}

/// Opens the vsock that callers in other contexts connect to, here rather than in the server: what is wrong with it
/// ends the daemon before it has begun.
///
/// # Errors
/// When this kernel has no vsock, or the port is taken.
pub fn listen_vsock(port: u32) -> Result<OwnedFd, RuntimeError> {
    let open = || {
        let listener = socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        bind(listener.as_raw_fd(), &VsockAddr::new(libc::VMADDR_CID_ANY, port))?;
        listen(&listener, Backlog::new(VSOCK_BACKLOG)?)?;
        Ok(listener)
    };
    open().map_err(|errno: Errno| RuntimeError::Io {
        operation: "listen on vsock port",
        path: port.to_string(),
        source: errno.into(),
    })
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // One that a service manager has opened stays, and so does one that a daemon which died has left: the next
        // start replaces it.
        for path in &self.bound {
            drop(fs::remove_file(path));
        }
    }
}

/// Whether who has claimed is dead but for a thread that hangs in the kernel.
fn hangs(claimant: Claimant) -> bool {
    let Ok(Some(process)) = claimant.process.open() else { return false };
    // Of one whose first thread alone has ended the others might go on: so they are killed.
    process.dying && process.signal(libc::SIGKILL).is_ok()
}

fn read_claimant(file: &mut File) -> Option<Claimant> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_claimant(file: &mut File, recovers: bool) -> io::Result<()> {
    let process = ProcessId::of(std::process::id().cast_signed()).map_err(io::Error::other)?;
    let text = serde_json::to_string(&Claimant { process, recovers })?;
    file.rewind()?;
    // One write of always the same length: who reads it meanwhile reads a claimant, the last one or this one.
    file.write_all(format!("{text:<CLAIM_LENGTH$}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::process::end_child;
    use crate::kernel::process::tests::child_without_its_first_thread;

    #[test]
    fn a_place_is_taken_from_one_that_is_dead_but_for_a_thread_and_from_nobody_who_lives() {
        let folder = tempfile::tempdir().unwrap();
        let dead = child_without_its_first_thread(|| {
            let mut runtime = Runtime::claim(folder.path()).unwrap();
            drop(runtime.serve());
            runtime
        });
        assert_eq!(Runtime::claimant(folder.path()), Some(dead));
        let mut runtime = Runtime::claim(folder.path()).unwrap();
        runtime.serve().unwrap();
        let me = std::process::id().cast_signed();
        assert_eq!(Runtime::claimant(folder.path()).map(|claimant| claimant.pid), Some(me));
        let refused = Runtime::claim(folder.path());
        assert!(matches!(refused, Err(RuntimeError::InUse { pid, .. }) if pid == me), "{refused:?}");
        end_child(dead.pid).unwrap();
        assert!(Runtime::claim(folder.path()).is_err(), "it took the lock along");
        drop(runtime);
        assert!(Runtime::claim(folder.path()).is_ok());
    }

    #[test]
    fn a_directory_whose_socket_has_no_room_for_its_path_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut runtime = Runtime::claim(&folder.path().join("x".repeat(120))).unwrap();
        let refused = runtime.listen_at(SOCKET, None).unwrap_err();
        assert!(matches!(refused, RuntimeError::TooLong { .. }), "{refused:?}");
        assert!(refused.to_string().ends_with("use a shorter --runtime-dir"), "{refused}");
    }

    #[test]
    fn a_further_socket_is_in_the_runtime_directory_and_for_a_role() {
        let socket: SocketOfRole = "observer=watch.sock:monitoring".parse().unwrap();
        let monitoring = Some("monitoring".to_owned());
        assert_eq!(
            socket,
            SocketOfRole { role: Role::Observer, name: "watch.sock".into(), group: monitoring }
        );
        for bad in [
            "watch.sock",
            "owner=w.sock",
            "observer=../w.sock",
            "observer=mcp.sock",
            "observer=.sock",
            "observer=lock",
        ] {
            assert!(bad.parse::<SocketOfRole>().is_err(), "{bad}");
        }
        let folder = tempfile::tempdir().unwrap();
        let mut runtime = Runtime::claim(folder.path()).unwrap();
        let more = ["observer=watch.sock".parse().unwrap()];
        let roles: Vec<_> = runtime.listen(None, &more).unwrap().into_iter().map(|(_, role)| role).collect();
        assert_eq!(roles, [Role::Observer, Role::Admin]);
        assert!(folder.path().join("watch.sock").exists());
        drop(runtime);
        assert!(!folder.path().join("watch.sock").exists() && !folder.path().join(SOCKET).exists());
    }

    #[test]
    fn who_may_only_look_keeps_nobody_from_recovering() {
        let folder = tempfile::tempdir().unwrap();
        drop(Runtime::claim(folder.path()).unwrap());
        // What everybody can open, everybody can lock.
        let look = |path: &Path| Flock::lock(File::open(path).unwrap(), FlockArg::LockExclusive).unwrap();
        let mut held = vec![look(folder.path())];
        for entry in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            let mode = entry.metadata().unwrap().permissions().mode();
            if mode & 0o077 != 0 {
                held.push(look(&entry.path()));
            }
        }
        let claimed = Runtime::try_claim(folder.path(), false);
        assert!(claimed.is_ok(), "{claimed:?} beside {} locks", held.len());
    }

    #[test]
    fn one_that_recovers_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let recovers = Runtime::claim(folder.path()).unwrap();
        let begun = Instant::now();
        thread::scope(|scope| {
            let next = scope.spawn(|| Runtime::claim(folder.path()).map(|_| begun.elapsed()));
            thread::sleep(2 * DEATH);
            drop(recovers);
            assert!(next.join().unwrap().unwrap() >= 2 * DEATH);
        });
    }
}
