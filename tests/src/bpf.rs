//! bpf(2) as the tests use it: what is there, seen without the daemon's code, and small objects of a test's own.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::libc;

use crate::error::{Error, Result};

/// `BPF_PROG_TYPE_SCHED_CLS`.
pub const CLASSIFIER: u32 = 3;
/// `BPF_PROG_TYPE_CGROUP_SKB`.
pub const CGROUP_SKB: u32 = 8;
/// `BPF_CGROUP_INET_EGRESS`, an attach type.
pub const CGROUP_EGRESS: u32 = 1;
/// Attach types of control groups that faults may use, with their names: packets, calls, security hooks.
const CGROUP_HOOKS: [(u32, &str); 9] = [
    (0, "inet_ingress"),
    (CGROUP_EGRESS, "inet_egress"),
    (8, "inet4_bind"),
    (9, "inet6_bind"),
    (10, "inet4_connect"),
    (11, "inet6_connect"),
    (14, "udp4_sendmsg"),
    (15, "udp6_sendmsg"),
    (43, "lsm_cgroup"),
];
/// `BPF_TCX_INGRESS`, an attach type.
pub const TCX_INGRESS: u32 = 46;
/// `BPF_TCX_EGRESS`, an attach type.
pub const TCX_EGRESS: u32 = 47;

// enum bpf_cmd (include/uapi/linux/bpf.h), where the layouts are from, too.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const OBJ_PIN: libc::c_long = 6;
const PROG_GET_NEXT_ID: libc::c_long = 11;
const MAP_GET_NEXT_ID: libc::c_long = 12;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const MAP_GET_FD_BY_ID: libc::c_long = 14;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const PROG_QUERY: libc::c_long = 16;
const LINK_CREATE: libc::c_long = 28;
const LINK_GET_FD_BY_ID: libc::c_long = 30;
const LINK_GET_NEXT_ID: libc::c_long = 31;

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A program.
    Program,
    /// A map.
    Map,
    /// A link.
    Link,
}

/// An object, whoever holds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: u32,
    /// Its name; a link has none, and this is that of its program.
    pub name: String,
}

/// Every field of union bpf_attr that is used here, as the 32-bit words at its offsets.
type Attr = [u32; 32];

fn call(command: libc::c_long, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: every caller fills in the words that its command reads, and addresses of what outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of::<Attr>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(done).map_err(io::Error::other) }
}

fn call_for_fd(command: libc::c_long, attr: &mut Attr) -> io::Result<OwnedFd> {
    // SAFETY: these commands return a new descriptor, which nobody else has.
    call(command, attr).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts an address at a word and the next one.
fn put<T>(attr: &mut Attr, at: usize, address: *const T) {
    let address = address as u64;
    (attr[at], attr[at + 1]) = (address as u32, (address >> 32) as u32);
}

fn put_name(attr: &mut Attr, at: usize, name: &str) {
    let mut bytes = [0_u8; 16];
    bytes.iter_mut().zip(name.bytes().take(15)).for_each(|(to, from)| *to = from);
    for (word, chunk) in attr[at..].iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    }
}

/// Loads a program that lets everything pass, and that uses `map`, if one is given.
///
/// # Errors
/// As the kernel says.
pub fn load(name: &str, kind: u32, map: Option<BorrowedFd<'_>>) -> Result<OwnedFd> {
    // r0 = 1 lets pass where 0 would not; for a classifier, -1 has no opinion.
    let verdict: u64 = if kind == CLASSIFIER { 0xffff_ffff } else { 1 };
    load_with(name, kind, verdict, map)
}

/// Loads a classifier that lets everything pass, so that none behind it is asked (`TC_ACT_OK`).
///
/// # Errors
/// As the kernel says.
pub fn load_passing(name: &str) -> Result<OwnedFd> {
    load_with(name, CLASSIFIER, 0, None)
}

fn load_with(name: &str, kind: u32, verdict: u64, map: Option<BorrowedFd<'_>>) -> Result<OwnedFd> {
    let mut program: Vec<u64> = Vec::new();
    if let Some(map) = map {
        // r1 = map: BPF_LD | BPF_IMM | BPF_DW, source BPF_PSEUDO_MAP_FD; two slots.
        program.extend([0x1118 | u64::from(map.as_raw_fd().unsigned_abs()) << 32, 0]);
    }
    program.extend([0xb7 | verdict << 32, 0x95]);
    let license = c"GPL";
    let mut attr = Attr::default();
    (attr[0], attr[1]) = (kind, u32::try_from(program.len()).unwrap_or_default());
    put(&mut attr, 2, program.as_ptr());
    put(&mut attr, 4, license.as_ptr());
    put_name(&mut attr, 12, name);
    call_for_fd(PROG_LOAD, &mut attr).map_err(Error::io("load program", name))
}

/// Makes an array of one `u64`, with this value.
///
/// # Errors
/// As the kernel says.
pub fn array(name: &str, value: u64) -> Result<OwnedFd> {
    let mut attr = Attr::default();
    // BPF_MAP_TYPE_ARRAY; sizes of key and value; entries.
    attr[..4].copy_from_slice(&[2, 4, 8, 1]);
    put_name(&mut attr, 7, name);
    let map = call_for_fd(MAP_CREATE, &mut attr).map_err(Error::io("create map", name))?;
    let key = 0_u32;
    let mut attr = Attr::default();
    attr[0] = map.as_raw_fd().unsigned_abs();
    put(&mut attr, 2, &raw const key);
    put(&mut attr, 4, &raw const value);
    call(MAP_UPDATE_ELEM, &mut attr).map_err(Error::io("write map", name))?;
    Ok(map)
}

/// Attaches a program through a link: to an interface of the calling thread's namespace by its index, or to a control group
/// by an open folder.
///
/// # Errors
/// As the kernel says.
pub fn attach(program: BorrowedFd<'_>, target: u32, attach_type: u32) -> Result<OwnedFd> {
    let mut attr = Attr::default();
    attr[..3].copy_from_slice(&[program.as_raw_fd().unsigned_abs(), target, attach_type]);
    call_for_fd(LINK_CREATE, &mut attr).map_err(Error::io("attach to", target.to_string()))
}

/// Pins an object in a bpffs.
///
/// # Errors
/// As the kernel says.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let subject = || path.display().to_string();
    let text =
        CString::new(path.as_os_str().as_bytes()).map_err(|error| Error::Different(error.to_string()))?;
    let mut attr = Attr::default();
    put(&mut attr, 0, text.as_ptr());
    attr[2] = object.as_raw_fd().unsigned_abs();
    call(OBJ_PIN, &mut attr).map(drop).map_err(Error::io("pin", subject()))
}

/// Every program, map and link on the node.
///
/// # Errors
/// When the kernel does not list them, for want of root.
pub fn objects() -> Result<Vec<Object>> {
    let mut found = Vec::new();
    for (kind, next, open) in [
        (Kind::Program, PROG_GET_NEXT_ID, PROG_GET_FD_BY_ID),
        (Kind::Map, MAP_GET_NEXT_ID, MAP_GET_FD_BY_ID),
        (Kind::Link, LINK_GET_NEXT_ID, LINK_GET_FD_BY_ID),
    ] {
        let failed = |error| Error::io("list", format!("{kind:?}s"))(error);
        let mut attr = Attr::default();
        loop {
            match call(next, &mut attr) {
                Ok(_) => attr[0] = attr[1],
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(failed(error)),
            }
            let id = attr[0];
            if let Some(name) = name_of(kind, open, id).map_err(failed)? {
                found.push(Object { kind, id, name });
            }
        }
    }
    Ok(found)
}

/// The name of an object; `None` when it has gone, or is not there yet.
fn name_of(kind: Kind, open: libc::c_long, id: u32) -> io::Result<Option<String>> {
    let mut attr = Attr::default();
    attr[0] = id;
    let fd = match call_for_fd(open, &mut attr) {
        Ok(fd) => fd,
        // EAGAIN: a link that is still being made (bpf_link_by_id(), kernel/bpf/syscall.c).
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // The start of struct bpf_prog_info, bpf_map_info or bpf_link_info: of these, the names are at byte 64 and 24, and the
    // program's id at byte 8.
    let mut info = [0_u8; 80];
    let mut attr = Attr::default();
    (attr[0], attr[1]) = (fd.as_fd().as_raw_fd().unsigned_abs(), 80);
    put(&mut attr, 2, info.as_mut_ptr());
    call(OBJ_GET_INFO_BY_FD, &mut attr)?;
    let at = match kind {
        Kind::Program => 64,
        Kind::Map => 24,
        Kind::Link => {
            let program = u32::from_ne_bytes([info[8], info[9], info[10], info[11]]);
            return name_of(Kind::Program, PROG_GET_FD_BY_ID, program);
        }
    };
    let name = info[at..at + 16].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(name).into_owned()))
}

/// How many programs are attached to a control group itself, at each hook that has any, whoever holds them.
///
/// # Errors
/// When the folder cannot be opened. A hook that the kernel does not know has none.
pub fn cgroup_programs(cgroup: &Path) -> io::Result<Vec<(&'static str, u32)>> {
    let folder = std::fs::File::open(cgroup)?;
    let count = |(hook, name): (u32, &'static str)| {
        let mut attr = Attr::default();
        (attr[0], attr[1]) = (folder.as_raw_fd().unsigned_abs(), hook);
        // Without room for ids it says how many there are.
        call(PROG_QUERY, &mut attr).is_ok_and(|_| attr[6] > 0).then_some((name, attr[6]))
    };
    Ok(CGROUP_HOOKS.into_iter().filter_map(count).collect())
}

/// Ids of the programs on a tcx hook of the current namespace, in their order.
///
/// # Errors
/// As the kernel says; on one without tcx, always.
pub fn tcx_programs(ifindex: u32, attach_type: u32) -> io::Result<Vec<u32>> {
    let mut ids = [0_u32; 64];
    let mut attr = Attr::default();
    (attr[0], attr[1], attr[6]) = (ifindex, attach_type, 64);
    put(&mut attr, 4, ids.as_mut_ptr());
    call(PROG_QUERY, &mut attr)?;
    Ok(ids[..attr[6].min(64) as usize].to_vec())
}
