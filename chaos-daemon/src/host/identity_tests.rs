//! What is opened as a caller is what a process of the caller could open.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use nix::sys::signal::kill;
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, geteuid, mkfifo, setresgid, setresuid};

use super::*;
use crate::host::directory::DirectoryRef;
use crate::host::socket_file::SocketFile;
use crate::host::{NetNs, PlaceRef};

/// A user that this host does not have, with groups that it does not have either.
const ALICE: u32 = 47_110;
const BOB: u32 = 47_111;
const GROUP: u32 = 47_112;
const SECOND: u32 = 47_113;

fn alice() -> Identity {
    Identity { uid: ALICE, gid: GROUP, groups: vec![SECOND] }
}

/// What a child says that does this: its exit code.
fn child(work: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child does this and ends, and has one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let code = work();
            // SAFETY: ends the child, without anything of the test's.
            unsafe { libc::_exit(code.into()) }
        }
        ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
            WaitStatus::Exited(_, code) => code,
            other => panic!("{other:?}"),
        },
    }
}

/// Has this process, which is a child, be a user for good.
fn become_user(uid: u32) {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(GROUP));
    setgroups(&[Gid::from_raw(SECOND)]).unwrap();
    setresgid(group, group, group).unwrap();
    setresuid(user, user, user).unwrap();
}

/// Everything that is opened as a caller, by the name of the place where it is.
type Door = (&'static str, fn(&Path) -> io::Result<()>);

const DOORS: &[Door] = &[
    ("place", |path| PlaceRef::find(path)?.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())),
    ("directory", |path| {
        let found = DirectoryRef::find(path)?.ok_or(io::ErrorKind::NotFound)?;
        found.open().map(drop)
    }),
    ("file without a name", |path| {
        let found = DirectoryRef::find(path)?.ok_or(io::ErrorKind::NotFound)?;
        let flags = libc::O_TMPFILE | libc::O_EXCL;
        let file = OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(found.path);
        file.map(drop)
    }),
    ("socket", |path| UnixStream::connect(SocketFile::find(path)?.path()).map(drop)),
    ("network namespace", |path| {
        NetNs::open(&path.display().to_string())
            .map(drop)
            .map_err(|error| io::Error::other(error.to_string()))
    }),
];

/// Paths that lead to what is root's or another user's, and some that lead to what is everybody's.
struct Scene {
    _folder: tempfile::TempDir,
    _sockets: Vec<UnixListener>,
    _held: File,
    /// Of root's and of Bob's: whether only the way is closed, so that it is there to be seen.
    closed: Vec<PathBuf>,
    open: Vec<PathBuf>,
    /// Of this process, whose threads are shown them.
    own: Vec<PathBuf>,
}

fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut sockets = Vec::new();
    let mut make = |owner: u32, mode: u32, name: &str| {
        let place = at(name);
        DirBuilder::new().mode(0o755).create(&place).unwrap();
        std::fs::write(place.join("file"), "x").unwrap();
        mkfifo(&place.join("pipe"), Mode::S_IRWXU).unwrap();
        DirBuilder::new().create(place.join("folder")).unwrap();
        sockets.push(UnixListener::bind(place.join("socket")).unwrap());
        for file in ["", "file", "pipe", "folder", "socket"] {
            let file = place.join(file);
            let folder = file.is_dir();
            chown(&file, Some(owner), Some(owner)).unwrap();
            let mode = if folder { mode } else { mode & 0o666 };
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        }
        place
    };
    let roots = make(0, 0o700, "roots");
    let bobs = make(BOB, 0o700, "bobs");
    let hers = make(ALICE, 0o700, "hers");
    let groups = make(0, 0o755, "all");
    let names = ["file", "pipe", "folder", "socket"];
    let mut closed: Vec<_> =
        [&roots, &bobs].iter().flat_map(|place| names.map(|name| place.join(name))).collect();
    // Her own folder has links, and ways round.
    for (number, target) in closed.clone().iter().enumerate() {
        symlink(target, hers.join(number.to_string())).unwrap();
        closed.push(hers.join(number.to_string()));
    }
    closed.push(hers.join("../roots/file"));
    closed.push(hers.join("folder/../../bobs/folder"));
    let held = File::open(roots.join("folder")).unwrap();
    let shown = format!("self/fd/{}", held.as_raw_fd());
    symlink(format!("/proc/{shown}"), hers.join("shown")).unwrap();
    let own = vec![
        format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd()).into(),
        format!("/proc/{shown}").into(),
        hers.join("shown"),
        "/proc/self/root/tmp".into(),
        "/proc/thread-self/cwd".into(),
    ];
    closed.push("/proc/1/ns/net".into());
    closed.push("/proc/1/root/tmp".into());
    closed.push("/proc/1/cwd".into());
    let open_to_her = [&hers, &groups].iter().flat_map(|place| names.map(|name| place.join(name))).collect();
    Scene { _folder: folder, _sockets: sockets, _held: held, closed, open: open_to_her, own }
}

#[test]
fn nothing_is_opened_as_a_caller_that_a_process_of_the_caller_could_not_open() {
    if !geteuid().is_root() {
        return;
    }
    let scene = scene();
    for (name, door) in DOORS {
        let mut opened = 0;
        for path in scene.closed.iter().chain(&scene.open) {
            let ours = alice().act(|| door(path)).is_ok();
            let hers = child(|| {
                become_user(ALICE);
                u8::from(door(path).is_ok())
            });
            assert_eq!(i32::from(ours), hers, "{name}: {}", path.display());
            assert!(!ours || !scene.closed.contains(path), "{name} was opened: {}", path.display());
            opened += i32::from(ours);
        }
        for path in &scene.own {
            assert!(alice().act(|| door(path)).is_err(), "{name} was opened: {}", path.display());
        }
        // It is not that nothing works: her own are opened.
        assert!(opened > 0 || *name == "network namespace", "{name}");
        // And root still opens what is root's.
        let work =
            || door(&scene.closed[2]).or_else(|_| door(&scene.closed[3])).or_else(|_| door(&scene.closed[0]));
        assert!(*name == "network namespace" || Identity::ROOT.act(work).is_ok(), "{name}");
    }
}

#[test]
fn this_process_stays_who_it_is_while_a_thread_is_a_caller() {
    if !geteuid().is_root() {
        return;
    }
    let before = Process::myself().unwrap().status().unwrap();
    let inside =
        alice().act(|| Process::new(gettid()).map_err(io::Error::other)?.status().map_err(io::Error::other));
    let (inside, after) = (inside.unwrap(), Process::myself().unwrap().status().unwrap());
    assert_eq!(
        (inside.fuid, inside.fgid, inside.groups, inside.capeff, inside.capprm),
        (ALICE, GROUP, vec![SECOND], 0, 0)
    );
    assert_eq!((before.fuid, before.fgid, before.groups), (after.fuid, after.fgid, after.groups));
}

fn gettid() -> i32 {
    nix::unistd::gettid().as_raw()
}

#[test]
fn who_is_connected_to_is_told_the_caller_who_can_neither_signal_nor_trace_the_process() {
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name);
    let listener = UnixListener::bind(at("open")).unwrap();
    let _closed = UnixListener::bind(at("closed")).unwrap();
    std::fs::set_permissions(at("open"), Permissions::from_mode(0o666)).unwrap();
    std::fs::set_permissions(at("closed"), Permissions::from_mode(0o600)).unwrap();
    // SAFETY: the child makes system calls, and ends.
    let ForkResult::Parent { child: holder } = unsafe { fork() }.unwrap() else {
        alice().assume().unwrap();
        let refused = UnixStream::connect(at("closed")).is_err();
        let _connected = UnixStream::connect(at("open"));
        // SAFETY: system calls without pointers. Whatever becomes of the test, the child ends.
        unsafe {
            libc::alarm(600);
            if refused {
                libc::pause();
            }
            libc::_exit(1);
        }
    };
    let (stream, _) = listener.accept().unwrap();
    let peer = getsockopt(&stream, sockopt::PeerCredentials).unwrap();
    assert_eq!((peer.uid(), peer.gid(), peer.pid()), (ALICE, GROUP, holder.as_raw()));
    let status = Process::new(holder.as_raw()).unwrap().status().unwrap();
    assert_eq!((status.ruid, status.euid, status.suid, status.groups), (0, ALICE, 0, vec![SECOND]));
    let refused = child(|| {
        become_user(ALICE);
        let signalled = kill(holder, Signal::SIGTERM).is_ok();
        let traced = nix::sys::ptrace::seize(holder, nix::sys::ptrace::Options::empty()).is_ok();
        let seen = File::open(format!("/proc/{holder}/environ")).is_ok();
        u8::from(signalled || traced || seen)
    });
    assert_eq!(refused, 0);
    kill(holder, Signal::SIGKILL).unwrap();
    waitpid(holder, None).unwrap();
}

#[test]
fn the_groups_are_those_of_a_process_that_is_all_the_callers_and_else_there_are_none() {
    assert_eq!(Identity::of(Caller::Unix { uid: 0, gid: 5, pid: 1 }), Identity::ROOT);
    let nobody = Identity::of(Caller::Vsock { cid: 3 });
    assert_eq!((nobody.uid, nobody.gid, nobody.groups.len()), (NOBODY, NOBODY, 0));
    if !geteuid().is_root() {
        return;
    }
    let of = |uid: u32, gid: u32, pid: i32| groups_of(uid, gid, pid);
    let found = |real: u32| {
        // SAFETY: the child makes system calls, and ends.
        let ForkResult::Parent { child } = unsafe { fork() }.unwrap() else {
            become_user(real);
            // Who has changed his user may be traced again when he runs a program.
            set_dumpable(true).unwrap();
            // SAFETY: system calls without pointers. Whatever becomes of the test, the child ends.
            unsafe {
                libc::alarm(600);
                libc::pause();
                libc::_exit(1)
            }
        };
        let folder = Path::new("/proc").join(child.to_string());
        crate::waits::wait_for(|| std::fs::metadata(&folder).is_ok_and(|folder| folder.uid() == real));
        let all = [
            of(ALICE, GROUP, child.as_raw()),
            of(ALICE, SECOND, child.as_raw()),
            of(BOB, GROUP, child.as_raw()),
        ];
        end(child);
        all
    };
    assert_eq!(found(ALICE), [vec![SECOND], vec![], vec![]]);
    assert_eq!(found(BOB), [vec![], vec![], vec![SECOND]]);
    assert_eq!(of(ALICE, GROUP, 0), Vec::<u32>::new());
}

fn end(child: Pid) {
    kill(child, Signal::SIGKILL).unwrap();
    waitpid(child, None).unwrap();
}
