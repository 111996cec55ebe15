//! Which programs, maps, links and pins on this node are ours, whoever holds them: known by their names, read and never
//! changed.
//!
//! Layouts are those of `include/uapi/linux/bpf.h`. Listing by id needs CAP_SYS_ADMIN (bpf(2)).

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::libc;

use super::sys;
use crate::kernel::netlink::marks::BPF_PREFIX;
use crate::spec::Direction;

// enum bpf_cmd.
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_GET_NEXT_ID: libc::c_int = 11;
const BPF_MAP_GET_NEXT_ID: libc::c_int = 12;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_MAP_GET_FD_BY_ID: libc::c_int = 14;
const BPF_LINK_GET_FD_BY_ID: libc::c_int = 30;
const BPF_LINK_GET_NEXT_ID: libc::c_int = 31;

// enum bpf_link_type.
const BPF_LINK_TYPE_CGROUP: u32 = 3;

/// No program of ours uses more maps.
const MOST_MAPS: usize = 64;

/// A program of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Ids of the maps it uses.
    pub maps: Vec<u32>,
}

/// A map of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// When it is a lease: until when the programs that use it act, in nanoseconds of the boot-time clock.
    pub deadline_ns: Option<u64>,
}

/// A link to a program of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its id.
    pub id: u32,
    /// `enum bpf_link_type`: 11 is tcx, 3 a control group.
    pub kind: u32,
    /// Id of the program.
    pub program: u32,
    /// Id of the control group that it is on, if it is on one.
    pub cgroup: Option<u64>,
}

/// Everything of ours that bpf(2) lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Programs.
    pub programs: Vec<Program>,
    /// Maps.
    pub maps: Vec<Map>,
    /// Links.
    pub links: Vec<Link>,
}

/// A program on a tcx hook, ours or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// Id of the program.
    pub program: u32,
    /// Id of its link; 0 when it was attached without one.
    pub link: u32,
    /// Which hook.
    pub direction: Direction,
}

/// What of ours is pinned at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinned {
    /// A program.
    Program(u32),
    /// A map.
    Map(u32),
    /// A link.
    Link(u32),
}

/// The members of union bpf_attr for listing and opening by id.
#[repr(C)]
#[derive(Default)]
struct IdAttr {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// struct bpf_prog_info, up to `name`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: u64,
    lengths: [u32; 2],
    instructions: [u64; 2],
    load_time: u64,
    created_by_uid: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

/// struct bpf_map_info, up to `name`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct LookupAttr {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct PathAttr {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Everything of ours.
///
/// # Errors
/// When the kernel does not list it, for want of a capability.
pub fn inventory() -> io::Result<Inventory> {
    let programs = each(BPF_PROG_GET_NEXT_ID, BPF_PROG_GET_FD_BY_ID, program)?;
    let maps = each(BPF_MAP_GET_NEXT_ID, BPF_MAP_GET_FD_BY_ID, map)?;
    let mut links = each(BPF_LINK_GET_NEXT_ID, BPF_LINK_GET_FD_BY_ID, |fd| link(fd).map(Some))?;
    links.retain(|link| programs.iter().any(|program| program.id == link.program));
    Ok(Inventory { programs, maps, links })
}

/// What is on the tcx hooks of a device in the calling thread's network namespace, in order; nothing on a kernel without.
///
/// # Errors
/// When the kernel does not say. A device that has gone has nothing on it.
pub fn attached(ifindex: u32) -> io::Result<Vec<Attached>> {
    let mut found = Vec::new();
    for (direction, attach_type) in
        [(Direction::Ingress, sys::BPF_TCX_INGRESS), (Direction::Egress, sys::BPF_TCX_EGRESS)]
    {
        let on_hook = sys::tcx_query(ifindex, attach_type)?.unwrap_or_default();
        let attached = |(program, link)| Attached { program, link, direction };
        found.extend(on_hook.programs.into_iter().map(attached));
    }
    Ok(found)
}

/// Whether the program with this id is ours. One that has gone is nobody's.
///
/// # Errors
/// When the kernel does not say.
pub(super) fn is_ours(id: u32) -> io::Result<bool> {
    let Some(fd) = by_id(BPF_PROG_GET_FD_BY_ID, id)? else { return Ok(false) };
    let mut info = ProgramInfo::default();
    sys::get_info(fd.as_fd(), &mut info)?;
    Ok(ours(&info.name).is_some())
}

/// The name of the program with this id, if it is not ours; `None` of one that has gone, too.
///
/// # Errors
/// When the kernel does not say.
pub fn name_of_another(id: u32) -> io::Result<Option<String>> {
    let Some(fd) = by_id(BPF_PROG_GET_FD_BY_ID, id)? else { return Ok(None) };
    let mut info = ProgramInfo::default();
    sys::get_info(fd.as_fd(), &mut info)?;
    let length = info.name.iter().position(|byte| *byte == 0).unwrap_or(info.name.len());
    let name = String::from_utf8_lossy(&info.name[..length]).into_owned();
    Ok(ours(&info.name).is_none().then_some(name))
}

/// What of ours is pinned at `path`; `None` when it is somebody else's, or gone.
///
/// # Errors
/// When it cannot be opened.
pub fn pinned(path: &Path) -> io::Result<Option<Pinned>> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    // OPENS: whoever may write to a file system of eBPF objects | root | an eBPF object and nothing else, of which the kernel tells its id;
    // the link of its descriptor is read, not followed
    let mut attr = PathAttr { path: text.as_ptr() as u64, ..PathAttr::default() };
    // SAFETY: the layout is that of a path; the kernel reads it up to its zero, and it lives through the call.
    let fd = match unsafe { sys::bpf_fd(BPF_OBJ_GET, &mut attr) } {
        Ok(fd) => fd,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let kind = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    let kind = kind.to_string_lossy();
    if kind.contains("bpf-map") {
        return Ok(map(&fd)?.map(|map| Pinned::Map(map.id)));
    }
    if kind.contains("bpf-prog") {
        return Ok(program(&fd)?.map(|program| Pinned::Program(program.id)));
    }
    let link = link(&fd)?;
    let program_of_it = by_id(BPF_PROG_GET_FD_BY_ID, link.program)?;
    let ours = program_of_it.map(|fd| program(&fd)).transpose()?.flatten().is_some();
    Ok(ours.then_some(Pinned::Link(link.id)))
}

/// What `look` makes of every object of a kind. What comes or goes meanwhile is left out.
fn each<T>(
    next: libc::c_int,
    open: libc::c_int,
    look: impl Fn(&OwnedFd) -> io::Result<Option<T>>,
) -> io::Result<Vec<T>> {
    let mut found = Vec::new();
    let mut id = 0;
    loop {
        let mut attr = IdAttr { id, ..IdAttr::default() };
        // SAFETY: the layout is that of an id, and has no addresses.
        match unsafe { sys::bpf(next, &mut attr) } {
            Ok(()) => id = attr.next_id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(error),
        }
        if let Some(fd) = by_id(open, id)? {
            found.extend(look(&fd)?);
        }
    }
}

fn by_id(open: libc::c_int, id: u32) -> io::Result<Option<OwnedFd>> {
    let mut attr = IdAttr { id, ..IdAttr::default() };
    // SAFETY: the layout is that of an id, and has no addresses.
    match unsafe { sys::bpf_fd(open, &mut attr) } {
        Ok(fd) => Ok(Some(fd)),
        // EAGAIN: a link that is still being made (bpf_link_by_id(), kernel/bpf/syscall.c).
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock) => Ok(None),
        Err(error) => Err(error),
    }
}

fn ours(name: &[u8; 16]) -> Option<String> {
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let name = String::from_utf8_lossy(&name[..length]).into_owned();
    name.starts_with(BPF_PREFIX).then_some(name)
}

fn program(fd: &OwnedFd) -> io::Result<Option<Program>> {
    let mut info = ProgramInfo::default();
    sys::get_info(fd.as_fd(), &mut info)?;
    let Some(name) = ours(&info.name) else { return Ok(None) };
    let mut maps = [0_u32; MOST_MAPS];
    // The kernel fills the array whose address it finds in what it is to fill.
    let mut again =
        ProgramInfo { map_count: MOST_MAPS as u32, maps: maps.as_mut_ptr() as u64, ..ProgramInfo::default() };
    sys::get_info(fd.as_fd(), &mut again)?;
    let count = (again.map_count as usize).min(MOST_MAPS);
    Ok(Some(Program { id: info.id, name, maps: maps[..count].to_vec() }))
}

fn map(fd: &OwnedFd) -> io::Result<Option<Map>> {
    let mut info = MapInfo::default();
    sys::get_info(fd.as_fd(), &mut info)?;
    let Some(name) = ours(&info.name) else { return Ok(None) };
    let is_lease = name.strip_prefix(BPF_PREFIX) == Some(chaos_common::name::LEASE);
    // Somebody else's map of this name may have another layout.
    let fits = (info.key_size, info.value_size) == (4, 8);
    let deadline_ns = (is_lease && fits).then(|| first_value(fd)).transpose()?;
    Ok(Some(Map { id: info.id, name, deadline_ns }))
}

fn link(fd: &OwnedFd) -> io::Result<Link> {
    let info = sys::cgroup_link(fd.as_fd())?;
    let cgroup = (info.kind == BPF_LINK_TYPE_CGROUP).then_some(info.cgroup);
    Ok(Link { id: info.id, kind: info.kind, program: info.program, cgroup })
}

/// The value under key 0 of a map whose keys have four bytes and whose values eight.
fn first_value(fd: &OwnedFd) -> io::Result<u64> {
    let (key, mut value) = (0_u32, 0_u64);
    let mut attr = LookupAttr {
        map: fd.as_raw_fd().unsigned_abs(),
        key: std::ptr::from_ref(&key) as u64,
        value: std::ptr::from_mut(&mut value) as u64,
        ..LookupAttr::default()
    };
    // SAFETY: the layout is that of an element; the caller has seen that key and value have these sizes.
    unsafe { sys::bpf(BPF_MAP_LOOKUP_ELEM, &mut attr) }?;
    Ok(value)
}
