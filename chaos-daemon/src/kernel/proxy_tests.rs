//! Who is a proxy and who only looks like one, and what a proxy is told.

use std::fs::{self, OpenOptions, create_dir};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{OFlag, SealFlag, open};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, geteuid, pipe, pivot_root, setresgid, setresuid};

use super::*;
use crate::host::boot_time_ns;
use crate::host::proxy::{create, in_force, is_claimed};
use crate::kernel::process::end_child;
use crate::spec::mcp::Spoiling;
use crate::spec::mcp::page::{LENGTH, LINK, NAME};

fn order() -> Vec<u8> {
    let spoiling = Spoiling::parse(serde_json::json!({"fail": 1}).as_object().unwrap()).unwrap();
    bytes(&Order { spoiling, seed: 7 }).unwrap()
}

#[test]
fn who_has_no_page_is_no_proxy() {
    let parent = ProcessId::of(nix::unistd::getppid().as_raw()).unwrap();
    let stranger = ProcessId { start_time: parent.start_time + 1, ..parent };
    assert!(find(stranger).unwrap().is_none());
}

#[test]
fn a_fault_is_in_force_from_its_order_until_its_deadline_or_its_death() {
    let page = create().unwrap();
    let claim = |fault| Proxy::of(page.try_clone().unwrap(), 71, fault);
    let soon = || boot_time_ns() + 60_000_000_000;
    // Another fault is another process, whose locks are not this one's: as those of another open file are not.
    let again = format!("/proc/self/fd/{}", page.as_raw_fd());
    let others = OpenOptions::new().read(true).write(true).open(again).unwrap();
    fcntl(&others, FcntlArg::F_OFD_SETLK(&lock_of(CLAIM))).unwrap();
    let refused = claim(6).unwrap_err();
    assert!(refused.to_string().contains("another fault has proxy"), "{refused}");
    drop(others);
    let fault = claim(5).unwrap();
    assert!(is_claimed(&page).unwrap() && in_force(&page).unwrap().is_none());
    fault.order(&order(), soon()).unwrap();
    assert_eq!((in_force(&page).unwrap(), fault.tally().unwrap()), (Some(5), (0, 0)));
    page.write_all_at(&page::seal(&[5, 3, 2]), TALLY).unwrap();
    assert_eq!(fault.tally().unwrap(), (3, 2));
    fault.renew(boot_time_ns()).unwrap();
    assert_eq!(in_force(&page).unwrap(), None);
    fault.renew(soon()).unwrap();
    assert_eq!(in_force(&page).unwrap(), Some(5));
    // The term is still there, and nobody keeps it: as after SIGKILL.
    drop(fault);
    assert!(!is_claimed(&page).unwrap() && in_force(&page).unwrap().is_none());
    let next = claim(6).unwrap();
    assert_eq!((in_force(&page).unwrap(), next.tally().unwrap()), (None, (0, 0)));
}

/// A child that has something open under the number of a page; killed when dropped.
struct Child {
    id: ProcessId,
    /// Whether it could open it.
    has_it: bool,
}

impl Child {
    fn with(open: impl FnOnce() -> io::Result<OwnedFd>) -> Self {
        let (told, tell) = pipe().unwrap();
        // SAFETY: the child makes system calls, and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let opened = open().map(|fd| {
                // SAFETY: a system call on numbers of descriptors.
                unsafe { libc::dup2(fd.as_raw_fd(), NUMBER) }
            });
            let _ = File::from(tell).write_all(&[u8::from(opened.is_ok_and(|number| number == NUMBER))]);
            // SAFETY: system calls without pointers. Whatever becomes of the test, the child ends.
            unsafe {
                libc::alarm(600);
                loop {
                    libc::pause();
                }
            }
        }
        drop(tell);
        let mut has_it = [0];
        File::from(told).read_exact(&mut has_it).unwrap();
        Self { id: ProcessId::of(pid).unwrap(), has_it: has_it == [1] }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        end_child(self.id.pid).unwrap();
    }
}

fn sealed(flags: SealFlag, length: u64, name: &str) -> OwnedFd {
    let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap());
    file.set_len(length).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(flags)).unwrap();
    file.into()
}

/// In namespaces of its own, where it may do what it likes, the child binds the file on the name that a page has, and opens it
/// as a mere place, for which it needs no right to it.
fn bound(victim: &Path) -> io::Result<OwnedFd> {
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {user} 1")),
        ("gid_map", format!("0 {group} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text)?;
    }
    let nothing: Option<&str> = None;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    let folder = victim.parent().ok_or(io::ErrorKind::NotFound)?;
    // The victim is seen below the new root by a descriptor from before.
    let held = open(victim, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    mount(Some("none"), folder, Some("tmpfs"), MsFlags::empty(), nothing)?;
    let name = folder.join(LINK.trim_start_matches('/'));
    File::create(&name)?;
    mount(
        Some(format!("/proc/self/fd/{}", held.as_raw_fd()).as_str()),
        &name,
        nothing,
        MsFlags::MS_BIND,
        nothing,
    )?;
    create_dir(folder.join("old"))?;
    pivot_root(folder, &folder.join("old"))?;
    Ok(open(LINK, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}

#[test]
fn an_impostor_is_no_proxy_and_nothing_is_written_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    let text = vec![b'v'; usize::try_from(LENGTH).unwrap()];
    fs::write(&victim, &text).unwrap();
    let in_memory = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    fs::write(in_memory.path(), &text).unwrap();
    let named = folder.path().join("memfd:chaos-mcp-proxy-1 (deleted)");
    fs::write(&named, &text).unwrap();
    let with = |path: &Path, flags: i32| {
        let file =
            OpenOptions::new().read(true).write(flags & libc::O_PATH == 0).custom_flags(flags).open(path);
        OwnedFd::from(file.unwrap())
    };
    let page = || OwnedFd::from(create().unwrap());
    let page_as = |flags: i32, writes: bool| {
        let page = page();
        let path = format!("/proc/self/fd/{}", page.as_raw_fd());
        OwnedFd::from(OpenOptions::new().read(true).write(writes).custom_flags(flags).open(path).unwrap())
    };
    let (all, length) = (SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW, LENGTH);
    let (read_end, write_end) = pipe().unwrap();
    let table: Vec<(&str, OwnedFd)> = vec![
        ("a page as a mere place", page_as(libc::O_PATH, false)),
        ("a page to be read", page_as(0, false)),
        ("a regular file", with(&victim, 0)),
        ("a regular file as a mere place", with(&victim, libc::O_PATH)),
        ("a file of a tmpfs", with(in_memory.path(), 0)),
        ("a file with the name of a page", with(&named, 0)),
        ("a folder", with(folder.path(), libc::O_PATH)),
        ("a pipe to be read", read_end),
        ("a pipe to be written", write_end),
        ("a memfd without seals", sealed(SealFlag::empty(), length, NAME)),
        ("a memfd that can be sealed further", sealed(all, length, NAME)),
        ("a memfd that may grow", sealed(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL, length, NAME)),
        (
            "a memfd that cannot be written",
            sealed(all | SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SEAL, length, NAME),
        ),
        ("a shorter memfd", sealed(all | SealFlag::F_SEAL_SEAL, length - 1, NAME)),
        ("a longer memfd", sealed(all | SealFlag::F_SEAL_SEAL, length + 1, NAME)),
        ("a memfd of another name", sealed(all | SealFlag::F_SEAL_SEAL, length, "another")),
    ];
    for (what, open) in table {
        let child = Child::with(|| open.try_clone());
        assert!(child.has_it, "{what}");
        assert!(find(child.id).unwrap().is_none(), "{what} was found");
        assert!(Proxy::claim(child.id, 5).unwrap().is_none(), "{what} was claimed");
    }
    let child = Child::with(|| bound(&victim));
    // Without user namespaces nobody can have this.
    if child.has_it {
        let taken = child.id.open().unwrap().unwrap().descriptor(NUMBER).unwrap().unwrap();
        let shown = fs::read_link(format!("/proc/self/fd/{}", taken.as_raw_fd())).unwrap();
        assert_eq!(shown, Path::new(LINK), "to who goes by the text of a link it is a page");
        assert!(Proxy::claim(child.id, 5).unwrap().is_none(), "a file that is bound on the name of a page");
    }
    for path in [victim.as_path(), in_memory.path(), &named] {
        assert_eq!(fs::read(path).unwrap(), text, "{}", path.display());
    }
}

#[test]
fn a_page_of_another_user_than_who_runs_the_process_is_none() {
    if !geteuid().is_root() {
        return;
    }
    let page = create().unwrap();
    let child = Child::with(|| {
        let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
        Ok(page.try_clone()?.into())
    });
    assert!(child.has_it && Proxy::claim(child.id, 5).unwrap().is_none());
    assert!(!is_claimed(&page).unwrap());
}

#[test]
fn a_proxy_is_told_on_the_very_file_that_it_has_open() {
    let page = create().unwrap();
    let child = Child::with(|| Ok(page.try_clone()?.into()));
    let fault = Proxy::claim(child.id, 5).unwrap().unwrap();
    fault.order(&order(), boot_time_ns() + 60_000_000_000).unwrap();
    assert_eq!(in_force(&page).unwrap(), Some(5));
    drop(fault);
    assert!(!is_claimed(&page).unwrap());
}
