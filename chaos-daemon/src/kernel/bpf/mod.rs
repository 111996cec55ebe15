//! Loads the eBPF programs, fills their maps, and attaches them.
//!
//! Everything here belongs to one [`Programs`]: dropping it, or the death of the process that holds it, takes the
//! fault away. No holder reads the kernel's BTF, which takes 6 ms: what programs have to know of it comes with their work.

pub mod calls;
mod dns;
mod error;
pub mod files;
pub mod inventory;
mod object;
mod peers;
mod rules;
pub mod sample;
pub mod sever;
pub mod sockets;
mod sys;

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use aya::maps::ProgramArray;
use chaos_common::{Way, name};
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::host::{KernelFiles, KernelSockets};
use crate::request::names::MOST_ADDRESSES;
use crate::sabotage::{self, Guard};
use crate::spec::Direction;
pub use calls::CallPrograms;
pub use error::BpfError;

/// How many peers the maps hold. Decided at load, since maps do not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Single addresses, of each IP version.
    pub hosts: u32,
    /// Shorter prefixes, of each IP version.
    pub prefixes: u32,
}

/// The most addresses of a named host that a fault is about at once.
pub const MOST_NAMED: u32 = MOST_ADDRESSES;
/// Room for them, and while they change for those that were before.
pub const NAMED_ROOM: u32 = 2 * MOST_NAMED;

/// Which programs of the object a fault needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// Those that look at packets on a device.
    Packets,
    /// Those that jump to one that looks at packets, once it is installed, and do nothing before.
    Stubs,
    /// Those that make an answer of a packet on a device, but for resets.
    Answers,
    /// Those that look at questions about names on a device.
    Dns,
    /// Those that send such questions on a detour.
    DnsDetour,
    /// Those that look at what the sockets of a control group ask for.
    Calls,
    /// Those that lose what the sockets of a control group send and get.
    Severance,
    /// Those that look at what the processes of a control group ask of files, on this kernel.
    Files(KernelFiles),
    /// Those that look at what the processes of a control group ask of sockets, on this kernel.
    Sockets(KernelSockets),
}

/// What a fault does on its target device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// Drops packets.
    Drop,
    /// Answers TCP segments with a reset.
    Reset,
    /// Answers packets with a message that they cannot arrive.
    Reject,
    /// Answers questions about names.
    Dns,
    /// Sends packets on a detour.
    Divert,
    /// Sends questions about names on a detour.
    Detain,
}

impl Capacity {
    /// Whether what needs `other` fits.
    pub fn holds(self, other: Self) -> bool {
        self.hosts >= other.hosts && self.prefixes >= other.prefixes
    }
}

impl Hook {
    /// The program that does it.
    const fn program(self, direction: Direction) -> &'static str {
        match (self, direction) {
            (Self::Drop, Direction::Egress) => name::DROP_EGRESS,
            (Self::Drop, Direction::Ingress) => name::DROP_INGRESS,
            (Self::Reset, Direction::Egress) => name::RESET_EGRESS,
            (Self::Reset, Direction::Ingress) => name::RESET_INGRESS,
            (Self::Reject, Direction::Egress) => name::REJECT_EGRESS,
            (Self::Reject, Direction::Ingress) => name::REJECT_INGRESS,
            (Self::Dns, Direction::Egress) => name::DNS_EGRESS,
            (Self::Dns, Direction::Ingress) => name::DNS_INGRESS,
            (Self::Divert, Direction::Egress) => name::DIVERT_EGRESS,
            (Self::Divert, Direction::Ingress) => name::DIVERT_INGRESS,
            (Self::Detain, Direction::Egress) => name::DETAIN_EGRESS,
            (Self::Detain, Direction::Ingress) => name::DETAIN_INGRESS,
        }
    }
}

/// The two ends of a detour. Both programs sit on ingress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopEnd {
    /// The end beside the target device, where packets come back.
    Near,
    /// The end in the private network namespace, where packets turn around.
    Far,
}

impl LoopEnd {
    const fn program(self) -> &'static str {
        match self {
            Self::Near => name::COMEBACK,
            Self::Far => name::HAIRPIN,
        }
    }
}

/// One attachment, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the program.
    pub program: &'static str,
    /// Name that the interface had when the program was attached.
    pub interface: String,
    /// Which side of the interface.
    pub direction: Direction,
    /// Whether our program still is on that interface. It is not once the interface is gone.
    pub present: bool,
}

/// A tcx link and what it was made for.
struct Link {
    fd: OwnedFd,
    /// On the device.
    attached: &'static str,
    /// What acts: the same, or what a stub jumps to.
    program: &'static str,
    interface: String,
    index: u32,
    direction: Direction,
}

/// The loaded programs, their maps and their links.
pub struct Programs {
    // Dropped in this order: links before the programs they hold.
    links: Vec<Link>,
    /// Another descriptor of [`name::JUMP`], above those of the links.
    jump: Option<OwnedFd>,
    loaded: object::Loaded,
    contents: rules::Contents,
    stubs: [Option<&'static str>; 2],
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let programs: Vec<_> = self.links.iter().map(|link| (link.program, &link.interface)).collect();
        f.debug_struct("Programs").field("links", &programs).finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads every program of a family and has it verified. Nothing is attached, the rule selects nothing, and the lease is over.
    ///
    /// # Errors
    /// When the kernel refuses the object, or the object is not the one that belongs to this program.
    pub fn load(family: Family, capacity: Capacity) -> Result<Self, BpfError> {
        // The kernel refuses maps for nothing.
        let (hosts, prefixes) = (capacity.hosts.max(1), capacity.prefixes.max(1));
        let sizes = [
            (name::HOSTS_V4, hosts),
            (name::HOSTS_V6, hosts),
            (name::NETS_V4, prefixes),
            (name::NETS_V6, prefixes),
        ];
        let loaded = object::Loaded::new(chaos_ebpf::OBJECT, family, &sizes)?;
        rules::check_contract(&loaded)?;
        let contents = rules::Contents::new(capacity);
        Ok(Self { links: Vec::new(), jump: None, loaded, contents, stubs: [None; 2] })
    }

    /// Attaches a stub that jumps to a program to the target device through tcx, behind those of ours and ahead of all others. `index` is the
    /// device's in the network namespace of the calling thread; `interface` is what messages call it.
    ///
    /// Links end one after the other when their process dies, and the kernel waits for RCU in between; the jumps of both
    /// directions end at once.
    ///
    /// # Errors
    /// When there is no such interface, the stub of this direction already jumps to another program, or the kernel has no tcx
    /// (see [`kernel_has_tcx`]).
    pub fn attach_tcx(
        &mut self,
        hook: Hook,
        direction: Direction,
        index: u32,
        interface: &str,
    ) -> Result<(), BpfError> {
        let stub = self.aim_stub(hook, direction)?;
        let program = hook.program(direction);
        self.attach(stub, program, direction, index, interface)?;
        self.end_jumps_first(program)
    }

    /// Has the jumps end before the links when this process dies. The kernel lets go of the files of a process that has died
    /// from the last descriptor down (`exit_files` and `task_work_run`), and of a link only after a wait for RCU.
    fn end_jumps_first(&mut self, program: &'static str) -> Result<(), BpfError> {
        let last = self.links.iter().map(|link| link.fd.as_raw_fd()).max().unwrap_or_default();
        let jump = self.loaded.data(name::JUMP)?.fd().as_fd();
        let above = sys::duplicate(jump, last + 1).map_err(|source| BpfError::Jump { program, source })?;
        self.jump = Some(above);
        Ok(())
    }

    /// Attaches the program for one end of the detour through tcx, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// As [`Programs::attach_tcx`].
    pub fn attach_loop_tcx(&mut self, end: LoopEnd, index: u32, interface: &str) -> Result<(), BpfError> {
        self.attach(end.program(), end.program(), Direction::Ingress, index, interface)
    }

    /// Attaches a stub that jumps nowhere through tcx, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// As [`Programs::attach_tcx`].
    pub fn attach_stub_tcx(
        &mut self,
        direction: Direction,
        index: u32,
        interface: &str,
    ) -> Result<(), BpfError> {
        let (_, stub) = stub(direction);
        self.attach(stub, stub, direction, index, interface)
    }

    fn attach(
        &mut self,
        attached: &'static str,
        program: &'static str,
        direction: Direction,
        index: u32,
        interface: &str,
    ) -> Result<(), BpfError> {
        let fd = attach_ahead(self.loaded.program(attached)?, (index, attach_type(direction)))
            .map_err(|source| BpfError::Attach { program, interface: interface.to_owned(), source })?;
        sabotage::pin(fd.as_fd());
        self.links.push(Link { fd, attached, program, interface: interface.to_owned(), index, direction });
        Ok(())
    }

    /// The program for one end of the detour, for whoever attaches it otherwise than through tcx.
    ///
    /// # Errors
    /// When the program is missing.
    pub fn program_fd(&self, end: LoopEnd) -> Result<BorrowedFd<'_>, BpfError> {
        self.loaded.program(end.program())
    }

    /// Lets the stub of this direction jump to the program of a hook, and returns the stub, to be attached
    /// otherwise than through tcx. It does nothing any more once this `Programs` is gone.
    ///
    /// # Errors
    /// When the stub of this direction already jumps to another program.
    pub fn stub_fd(&mut self, hook: Hook, direction: Direction) -> Result<BorrowedFd<'_>, BpfError> {
        let stub = self.aim_stub(hook, direction)?;
        self.loaded.program(if sabotage::without(Guard::Stub) { hook.program(direction) } else { stub })
    }

    /// Has the stub of a direction jump to the program of a hook; returns the stub's name.
    fn aim_stub(&mut self, hook: Hook, direction: Direction) -> Result<&'static str, BpfError> {
        let (way, stub) = stub(direction);
        let program = hook.program(direction);
        if let Some(occupant) = self.stubs[way as usize].filter(|&occupant| occupant != program) {
            return Err(BpfError::StubTaken { occupant });
        }
        let jump = self.loaded.data(name::JUMP)?.fd().as_fd();
        sys::set_program(jump, way as u32, self.loaded.program(program)?)
            .map_err(|source| BpfError::Jump { program, source })?;
        self.stubs[way as usize] = Some(program);
        Ok(stub)
    }

    /// What the kernel says about each attachment made here.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn read_back(&self) -> Result<Vec<Attachment>, BpfError> {
        self.links.iter().map(|link| self.read_back_one(link)).collect()
    }

    fn read_back_one(&self, link: &Link) -> Result<Attachment, BpfError> {
        let Link { program, attached, .. } = *link;
        let failed = |source| BpfError::ReadBack { program, interface: link.interface.clone(), source };
        let id = |name| sys::program_id(self.loaded.program(name)?).map_err(failed);
        let seen = sys::tcx_link(link.fd.as_fd()).map_err(failed)?;
        let made = (id(attached)?, link.index, attach_type(link.direction));
        let mut present = (seen.program, seen.interface, seen.attach_type) == made;
        if program != attached {
            let jump = self.loaded.data(name::JUMP)?.fd().as_fd();
            let aim = sys::program_in(jump, stub(link.direction).0 as u32).map_err(failed)?;
            present &= aim == Some(id(program)?);
        }
        Ok(Attachment { program, interface: link.interface.clone(), direction: link.direction, present })
    }

    /// Has stubs jump nowhere any more, and takes every link away. Programs and maps stay loaded.
    ///
    /// # Errors
    /// When a stub cannot be emptied. The links are gone all the same.
    pub fn detach(&mut self) -> Result<(), BpfError> {
        let emptied = self.empty_stubs();
        self.links.clear();
        emptied
    }

    fn empty_stubs(&mut self) -> Result<(), BpfError> {
        for way in [Way::Egress, Way::Ingress] {
            if self.stubs[way as usize].is_some() {
                let jump = ProgramArray::try_from(self.loaded.map_mut(name::JUMP)?);
                jump.and_then(|mut jump| jump.clear_index(&(way as u32)))
                    .map_err(|source| BpfError::map(name::JUMP, source))?;
                self.stubs[way as usize] = None;
            }
        }
        Ok(())
    }
}

/// Where a direction's stub finds the program that it jumps to, and the stub.
const fn stub(direction: Direction) -> (Way, &'static str) {
    match direction {
        Direction::Egress => (Way::Egress, name::STUB_EGRESS),
        Direction::Ingress => (Way::Ingress, name::STUB_INGRESS),
    }
}

const fn attach_type(direction: Direction) -> u32 {
    match direction {
        Direction::Egress => sys::BPF_TCX_EGRESS,
        Direction::Ingress => sys::BPF_TCX_INGRESS,
    }
}

/// How often it is looked what is on a hook that others change.
const LOOKS: usize = 16;

/// Attaches a program behind those of ours, so that faults follow each other, and ahead of all others. What a program lets pass no
/// program behind it sees (`enum tcx_action_base` in include/uapi/linux/bpf.h).
fn attach_ahead(program: BorrowedFd<'_>, hook: (u32, u32)) -> io::Result<OwnedFd> {
    for _ in 0..LOOKS {
        let on_hook = sys::tcx_query(hook.0, hook.1)?.unwrap_or_default();
        let mut turn = sys::Turn::First;
        for (id, _) in on_hook.programs {
            // What may not be looked at is of others.
            match inventory::is_ours(id) {
                Ok(true) => turn = sys::Turn::After(id),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        match sys::attach(program, hook, turn, on_hook.revision) {
            // Somebody has attached or detached something since.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => {}
            done => return done,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ESTALE))
}

/// Whether the kernel attaches programs through tcx (6.6 and later). Asked, not derived from a version.
///
/// # Errors
/// When the kernel says neither yes nor no, for want of CAP_NET_ADMIN.
pub fn kernel_has_tcx() -> Result<bool, BpfError> {
    sys::has_tcx().map_err(BpfError::Probe)
}
