//! The bpf(2) commands that aya lacks, or does not let one look behind: batches of map entries, links.
//!
//! Layouts are those of `include/uapi/linux/bpf.h`; the kernel takes a shorter union bpf_attr as one filled up with
//! zeros.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use aya::Pod;
use aya_obj::generated::bpf_insn;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::fail_point::{self, Point};

// enum bpf_cmd, include/uapi/linux/bpf.h.
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_MAP_UPDATE_BATCH: libc::c_int = 26;
const BPF_MAP_DELETE_BATCH: libc::c_int = 27;
const BPF_LINK_CREATE: libc::c_int = 28;

/// Of an attachment: before all that are there (include/uapi/linux/bpf.h).
const BPF_F_BEFORE: u32 = 1 << 3;
/// Of an attachment: after the one that is named.
const BPF_F_AFTER: u32 = 1 << 4;
/// Of an attachment: that one is named by the id of its program.
const BPF_F_ID: u32 = 1 << 5;

/// No hook takes more programs (`BPF_MPROG_MAX`, include/linux/bpf_mprog.h).
const MOST_ON_A_HOOK: usize = 64;

/// enum bpf_attach_type.
pub(super) const BPF_CGROUP_INET_INGRESS: u32 = 0;
/// enum bpf_attach_type.
pub(super) const BPF_CGROUP_INET_EGRESS: u32 = 1;
/// enum bpf_attach_type.
pub(super) const BPF_CGROUP_INET4_CONNECT: u32 = 10;
/// enum bpf_attach_type.
pub(super) const BPF_CGROUP_INET6_CONNECT: u32 = 11;
/// enum bpf_attach_type.
pub(super) const BPF_CGROUP_UDP4_SENDMSG: u32 = 14;
/// enum bpf_attach_type.
pub(super) const BPF_CGROUP_UDP6_SENDMSG: u32 = 15;
/// enum bpf_attach_type.
pub(super) const BPF_LSM_MAC: u32 = 27;
/// enum bpf_attach_type.
pub(super) const BPF_LSM_CGROUP: u32 = 43;
/// enum bpf_attach_type.
pub(super) const BPF_TCX_INGRESS: u32 = 46;
/// enum bpf_attach_type.
pub(super) const BPF_TCX_EGRESS: u32 = 47;

/// What the kernel has to know of a program to verify it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProgramKind {
    /// enum bpf_prog_type.
    kind: u32,
    /// enum bpf_attach_type; 0 for a type that is attached in one way only.
    attach_type: u32,
    /// Number of the kernel's function that it is attached to, among the kernel's types; 0 for a type that is attached to none.
    hook: u32,
}

impl ProgramKind {
    /// A tc classifier (`BPF_PROG_TYPE_SCHED_CLS`).
    pub(super) const CLASSIFIER: Self = Self { kind: 3, attach_type: 0, hook: 0 };

    /// A program that sees the packets of a control group's sockets (`BPF_PROG_TYPE_CGROUP_SKB`).
    pub(super) const fn packet(attach_type: u32) -> Self {
        Self { kind: 8, attach_type, hook: 0 }
    }

    /// A program that sees the addresses of a control group's sockets (`BPF_PROG_TYPE_CGROUP_SOCK_ADDR`).
    pub(super) const fn address(attach_type: u32) -> Self {
        Self { kind: 18, attach_type, hook: 0 }
    }

    /// A program at a security hook (`BPF_PROG_TYPE_LSM`), for everybody or for a control group.
    pub(super) const fn security(attach_type: u32, hook: u32) -> Self {
        Self { kind: 29, attach_type, hook }
    }
}

/// The member of union bpf_attr for BPF_PROG_LOAD, up to `attach_btf_obj_fd`.
#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    types: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    hook: u32,
    // 0 is the kernel itself, and no module of it.
    hook_object: u32,
    padding: u32,
}

/// The member of union bpf_attr for BPF_MAP_CREATE, up to `map_name`.
#[repr(C)]
#[derive(Default)]
struct MapAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

/// The member of union bpf_attr for one element of a map.
#[repr(C)]
#[derive(Default)]
struct ElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The start of struct bpf_prog_info.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
}

/// The `batch` member of union bpf_attr.
#[repr(C)]
#[derive(Default)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// The `query` member of union bpf_attr, whole: the kernel writes `revision` back, however short it is told that this
/// is (`bpf_mprog_query` in kernel/bpf/mprog.c).
#[repr(C)]
#[derive(Default)]
struct QueryAttr {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    padding: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// The `link_create` member of union bpf_attr, with the `tcx` member in it.
#[repr(C)]
#[derive(Default)]
struct LinkAttr {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    expected_revision: u64,
}

/// The `info` member of union bpf_attr.
#[repr(C)]
struct InfoAttr {
    fd: u32,
    length: u32,
    info: u64,
}

/// The start of struct bpf_link_info, for a tcx link.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TcxLink {
    /// `enum bpf_link_type`.
    pub(super) kind: u32,
    /// Id of the link.
    pub(super) id: u32,
    /// Id of the program.
    pub(super) program: u32,
    padding: u32,
    /// Index of the interface; 0 once that is gone.
    pub(super) interface: u32,
    /// [`BPF_TCX_INGRESS`] or [`BPF_TCX_EGRESS`].
    pub(super) attach_type: u32,
}

/// The start of struct bpf_link_info, for a link to a control group.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupLink {
    /// `enum bpf_link_type`.
    pub(super) kind: u32,
    /// Id of the link.
    pub(super) id: u32,
    /// Id of the program.
    pub(super) program: u32,
    padding: u32,
    /// Id of the control group; 0 once that is gone.
    pub(super) cgroup: u64,
    /// enum bpf_attach_type.
    pub(super) attach_type: u32,
    padding_at_end: u32,
}

/// A command that gives nothing back but what it writes.
///
/// # Safety
/// `A` is the layout of the member of union bpf_attr that `command` takes, and the addresses in it are valid for
/// as much as the kernel reads and writes there.
pub(super) unsafe fn bpf<A>(command: libc::c_int, attr: &mut A) -> io::Result<()> {
    fail_point::pass(Point::BeforeCall)?;
    // SAFETY: the caller's promise is what is asked for.
    unsafe { call(command, attr) }?;
    fail_point::pass(Point::AfterCall)
}

/// A command that gives a descriptor back.
///
/// # Safety
/// As for [`bpf`]; and `command` is one that makes a descriptor.
pub(super) unsafe fn bpf_fd<A>(command: libc::c_int, attr: &mut A) -> io::Result<OwnedFd> {
    fail_point::pass(Point::BeforeCall)?;
    // SAFETY: the caller's promise is what is asked for.
    let made = unsafe { call(command, attr) }?;
    // SAFETY: the kernel has just made this descriptor, close-on-exec, for nobody else.
    let made = unsafe { OwnedFd::from_raw_fd(made) };
    // Owned by now, so that a failure here loses nothing.
    fail_point::pass(Point::AfterCall)?;
    Ok(made)
}

/// # Safety
/// As for [`bpf`].
unsafe fn call<A>(command: libc::c_int, attr: &mut A) -> io::Result<libc::c_int> {
    // SAFETY: `attr` is valid for its size, by the type; what it points to is the caller's promise.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<A>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // A descriptor or 0, so the cast loses nothing.
    Ok(done as libc::c_int)
}

fn batch_attr<K: Pod>(map: BorrowedFd<'_>, keys: &[K]) -> BatchAttr {
    BatchAttr {
        keys: keys.as_ptr() as u64,
        count: u32::try_from(keys.len()).unwrap_or(u32::MAX),
        map_fd: map.as_raw_fd().unsigned_abs(),
        ..BatchAttr::default()
    }
}

/// What a kernel says of a batch for a map whose type has none (`ENOTSUPP`, which is the kernel's own and in no library). Tries have
/// batches since Linux 5.13.
const NO_BATCHES: i32 = 524;

/// The result of a batch; where the map's type has none, that of doing the same for each key by itself.
fn or_one_by_one<K>(
    batch: io::Result<()>,
    keys: &[K],
    each: impl FnMut(&K) -> io::Result<()>,
) -> io::Result<()> {
    match batch {
        Err(error) if error.raw_os_error() == Some(NO_BATCHES) => keys.iter().try_for_each(each),
        done => done,
    }
}

/// An element of a map, without a value.
fn element<K>(map: BorrowedFd<'_>, key: &K) -> ElementAttr {
    let (map_fd, key) = (map.as_raw_fd().unsigned_abs(), std::ptr::from_ref(key) as u64);
    ElementAttr { map_fd, key, ..ElementAttr::default() }
}

/// Puts all keys into a map with one-byte values, in one system call if it can be. The map's keys must be `K`.
pub(super) fn insert_all<K: Pod>(map: BorrowedFd<'_>, keys: &[K]) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let values = vec![1u8; keys.len()];
    let mut attr = BatchAttr { values: values.as_ptr() as u64, ..batch_attr(map, keys) };
    // SAFETY: the layout is that of a batch; the kernel reads `count` keys and values, and both slices have that
    // many and live through the call.
    let batch = unsafe { bpf(BPF_MAP_UPDATE_BATCH, &mut attr) };
    or_one_by_one(batch, keys, |key| {
        let mut attr = ElementAttr { value: values.as_ptr() as u64, ..element(map, key) };
        // SAFETY: the layout is that of an element; the kernel reads a key and the first value, both of which live through the call.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }
    })
}

/// Removes all keys from a map. One that is not there ends the batch, so they must be.
pub(super) fn remove_all<K: Pod>(map: BorrowedFd<'_>, keys: &[K]) -> io::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut attr = batch_attr(map, keys);
    // SAFETY: the layout is that of a batch; the kernel reads `count` keys, and the slice has that many.
    let batch = unsafe { bpf(BPF_MAP_DELETE_BATCH, &mut attr) };
    or_one_by_one(batch, keys, |key| {
        let mut attr = element(map, key);
        // SAFETY: the layout is that of an element; the kernel reads a key, which lives through the call.
        unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut attr) }
    })
}

/// Loads a program of a type, made for an attach type where its type has several. Returns the reason and the verifier's
/// last words if the kernel refuses.
pub(super) fn load_program(
    kind: ProgramKind,
    name: &str,
    license: &CStr,
    instructions: &[bpf_insn],
) -> Result<OwnedFd, (io::Error, String)> {
    const VERIFIER_LOG: usize = 1 << 20;
    let mut attr = LoadAttr {
        kind: kind.kind,
        attach_type: kind.attach_type,
        hook: kind.hook,
        count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..LoadAttr::default()
    };
    // The last byte stays zero.
    let room = attr.name.len() - 1;
    attr.name.iter_mut().zip(name.bytes().take(room)).for_each(|(to, from)| *to = from);
    // SAFETY: the layout is that of a program to be loaded; the kernel reads `count` instructions and the licence up
    // to its zero, both of which live through the call.
    let reason = match unsafe { bpf_fd(BPF_PROG_LOAD, &mut attr) } {
        Ok(program) => return Ok(program),
        Err(reason) => reason,
    };
    // Once more, for the reason. Verifying without a log is faster, and succeeds but for a broken build.
    let mut log = vec![0u8; VERIFIER_LOG];
    (attr.log_level, attr.log_size, attr.log) = (1, VERIFIER_LOG as u32, log.as_mut_ptr() as u64);
    // SAFETY: as above; the kernel writes at most `log_size` bytes into the log.
    if let Ok(program) = unsafe { bpf_fd(BPF_PROG_LOAD, &mut attr) } {
        return Ok(program);
    }
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<_> = log.trim_end_matches(['\0', '\n']).lines().rev().take(12).collect();
    Err((reason, lines.iter().rev().map(|line| format!("\n{line}")).collect()))
}

/// Writes one entry of a program array. The kernel checks that the program may be there.
pub(super) fn set_program(map: BorrowedFd<'_>, slot: u32, program: BorrowedFd<'_>) -> io::Result<()> {
    let value = program.as_raw_fd();
    let mut attr = ElementAttr { value: std::ptr::from_ref(&value) as u64, ..element(map, &slot) };
    // SAFETY: the layout is that of an element; key and value of a program array have four bytes, as these have.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }
}

/// Another descriptor of the same file, the lowest that is free and at least `least`.
pub(super) fn duplicate(fd: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    let made = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(least))?;
    // SAFETY: fcntl(2) has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Id of the program in a slot of a program array, if there is one.
pub(super) fn program_in(map: BorrowedFd<'_>, slot: u32) -> io::Result<Option<u32>> {
    let mut id = 0_u32;
    let mut attr = ElementAttr {
        map_fd: map.as_raw_fd().unsigned_abs(),
        key: std::ptr::from_ref(&slot) as u64,
        value: std::ptr::from_mut(&mut id) as u64,
        ..ElementAttr::default()
    };
    // SAFETY: the layout is that of an element; key and value of a program array have four bytes, as these have.
    match unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attr) } {
        Ok(()) => Ok(Some(id)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes an array (`BPF_MAP_TYPE_ARRAY`) of so many values of so many bytes.
pub(super) fn create_array(name: &str, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    const BPF_MAP_CREATE: libc::c_int = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    let mut attr =
        MapAttr { kind: BPF_MAP_TYPE_ARRAY, key_size: 4, value_size, entries, ..MapAttr::default() };
    // The last byte stays zero.
    let room = attr.name.len() - 1;
    attr.name.iter_mut().zip(name.bytes().take(room)).for_each(|(to, from)| *to = from);
    // SAFETY: the layout is that of a map to be made, without addresses.
    unsafe { bpf_fd(BPF_MAP_CREATE, &mut attr) }
}

/// Reads an entry of an array into `value`, which is as long as the array's values are.
pub(super) fn read_array(map: BorrowedFd<'_>, slot: u32, value: &mut [u8]) -> io::Result<()> {
    let mut attr = ElementAttr { value: value.as_mut_ptr() as u64, ..element(map, &slot) };
    // SAFETY: the layout is that of an element; the kernel reads a key of four bytes and writes one value, and the caller has room for it.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attr) }
}

/// Id of a program.
pub(super) fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = ProgramInfo::default();
    get_info(program, &mut info)?;
    Ok(info.id)
}

/// Whether the kernel runs tcx programs: asks what runs on the loopback of the calling thread's network namespace.
pub(super) fn has_tcx() -> io::Result<bool> {
    const LOOPBACK: u32 = 1;
    let mut attr =
        QueryAttr { target_ifindex: LOOPBACK, attach_type: BPF_TCX_INGRESS, ..QueryAttr::default() };
    // SAFETY: the layout is that of a query; with room for no ids the kernel only counts them.
    match unsafe { bpf(BPF_PROG_QUERY, &mut attr) } {
        Ok(()) => Ok(attr.revision > 0),
        // Before 6.6 the attach type is unknown.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        // Programs are there, and more than the room for none.
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => Ok(true),
        Err(error) => Err(error),
    }
}

/// What is on a tcx hook.
#[derive(Debug, Default)]
pub(super) struct OnHook {
    /// Ids of the programs, in order, and of their links; 0 for a program that was attached without one.
    pub(super) programs: Vec<(u32, u32)>,
    /// Another number after each change.
    pub(super) revision: u64,
}

/// What is on a tcx hook of an interface of the calling thread's network namespace; `None` without tcx, or such an interface.
pub(super) fn tcx_query(interface: u32, attach_type: u32) -> io::Result<Option<OnHook>> {
    let (mut programs, mut links) = ([0_u32; MOST_ON_A_HOOK], [0_u32; MOST_ON_A_HOOK]);
    let mut attr = QueryAttr {
        target_ifindex: interface,
        attach_type,
        prog_ids: programs.as_mut_ptr() as u64,
        prog_cnt: MOST_ON_A_HOOK as u32,
        link_ids: links.as_mut_ptr() as u64,
        ..QueryAttr::default()
    };
    // SAFETY: the layout is that of a query; the kernel writes at most as many ids to either array as it is told, which both have
    // room for and live through the call.
    match unsafe { bpf(BPF_PROG_QUERY, &mut attr) } {
        Ok(()) => {}
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let programs = programs.into_iter().zip(links).take(attr.prog_cnt as usize).collect();
    Ok(Some(OnHook { programs, revision: attr.revision }))
}

/// Where a program comes among those on a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Before all.
    First,
    /// After the program with this id.
    After(u32),
    /// After all.
    Last,
}

/// Attaches a program by a link: to an interface of the calling thread's network namespace by its index, or to a control group by its
/// descriptor. It is refused with ESTALE where what is on the hook is of another `revision` than this one, unless this is 0. It stays while the link, or a copy of it, is open.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    (target, attach_type): (u32, u32),
    turn: Turn,
    revision: u64,
) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd().unsigned_abs();
    let (flags, relative) = match turn {
        Turn::First => (BPF_F_BEFORE, 0),
        Turn::After(id) => (BPF_F_AFTER | BPF_F_ID, id),
        Turn::Last => (0, 0),
    };
    let mut attr = LinkAttr {
        program,
        target,
        attach_type,
        flags,
        relative,
        expected_revision: revision,
        ..LinkAttr::default()
    };
    // SAFETY: the layout is that of a link to be made, without addresses.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attr) }
}

/// Attaches a program to a control group, beside those that are there. It stays while the link, or a copy of it, is open.
pub(super) fn cgroup_attach(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    attach_type: u32,
) -> io::Result<OwnedFd> {
    // The kernel has the group's descriptor where it has a device's index.
    attach(program, (cgroup.as_raw_fd().unsigned_abs(), attach_type), Turn::Last, 0)
}

/// Attaches a program to the security hook that it was loaded for, whoever calls. It stays while the link, or a copy of it, is
/// open.
pub(super) fn security_attach(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    attach(program, (0, BPF_LSM_MAC), Turn::Last, 0)
}

/// What a link to a control group holds at the moment.
pub(super) fn cgroup_link(link: BorrowedFd<'_>) -> io::Result<CgroupLink> {
    let mut info = CgroupLink::default();
    get_info(link, &mut info)?;
    Ok(info)
}

/// What a tcx link holds at the moment.
pub(super) fn tcx_link(link: BorrowedFd<'_>) -> io::Result<TcxLink> {
    let mut info = TcxLink::default();
    get_info(link, &mut info)?;
    Ok(info)
}

/// `I` starts as struct bpf_link_info or bpf_prog_info does, and takes any value.
pub(super) fn get_info<I>(object: BorrowedFd<'_>, info: &mut I) -> io::Result<()> {
    let mut attr = InfoAttr {
        fd: object.as_raw_fd().unsigned_abs(),
        length: size_of::<I>() as u32,
        info: std::ptr::from_mut(info) as u64,
    };
    // SAFETY: the layout is that of an inquiry; the kernel writes at most `length` bytes into `info`, all of whose
    // fields are integers.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }
}
