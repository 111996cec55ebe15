//! A look at the first packets that pass somewhere: copies the headers of a few, and lets all of them through. For whoever wants to know
//! what there is where a fault meets nothing.
//!
//! The program is written by hand, since it is no part of a fault: it decides nothing, and does nothing more once it has seen enough.
//! It is there for as long as a [`Sampler`], by links that end with the process. Reference: `struct __sk_buff` in
//! include/uapi/linux/bpf.h, bpf-helpers(7) (`bpf_skb_load_bytes`), Documentation/bpf/standardization/instruction-set.rst.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use aya_obj::generated::bpf_insn;

use super::sys::{self, ProgramKind, Turn};
use crate::kernel::netlink::marks::BPF_PREFIX;
use crate::spec::Direction;

/// So many packets are copied.
pub const MOST: u32 = 64;
/// So much of each, in bytes: the link's header, an outer IPv6 header, what a tunnel puts behind it, and the headers within.
const HEADERS: u32 = 144;
/// What is known of a packet beside its headers, in bytes: six numbers.
const FACTS: u32 = 24;
const SLOT: u32 = FACTS + HEADERS;

/// The headers of one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Which way it went.
    pub direction: Direction,
    /// Index of the device that it was on.
    pub interface: u32,
    /// What it is by the link layer's word (linux/if_ether.h), behind a tag that was taken off.
    pub protocol: u16,
    /// The type of a tag that was taken off, or is still to be put on by the device; without one `None`.
    pub tag: Option<u16>,
    /// Whether the bytes begin with a link header; else with that of IP.
    pub linked: bool,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// Copies headers for as long as it is there.
#[derive(Debug)]
pub struct Sampler {
    frames: OwnedFd,
    linked: bool,
    _links: Vec<OwnedFd>,
}

impl Sampler {
    /// At both hooks of a device of the calling thread's network namespace, ahead of all programs. Needs tcx.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn on_device(index: u32) -> io::Result<Self> {
        let hooks = [(Direction::Ingress, sys::BPF_TCX_INGRESS), (Direction::Egress, sys::BPF_TCX_EGRESS)];
        // TCX_NEXT: go on with the next program.
        Self::start(
            |_| ProgramKind::CLASSIFIER,
            true,
            -1,
            &hooks,
            |program, attach_type| sys::attach(program, (index, attach_type), Turn::First, 0),
        )
    }

    /// At both hooks for packets of a control group.
    ///
    /// # Errors
    /// As [`on_device`](Self::on_device).
    pub fn on_group(group: BorrowedFd<'_>) -> io::Result<Self> {
        let hooks = [
            (Direction::Ingress, sys::BPF_CGROUP_INET_INGRESS),
            (Direction::Egress, sys::BPF_CGROUP_INET_EGRESS),
        ];
        // 1: let it through.
        Self::start(ProgramKind::packet, false, 1, &hooks, |program, attach_type| {
            sys::cgroup_attach(program, group, attach_type)
        })
    }

    fn start(
        kind: impl Fn(u32) -> ProgramKind,
        linked: bool,
        verdict: i32,
        hooks: &[(Direction, u32)],
        attach: impl Fn(BorrowedFd<'_>, u32) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let (counter, frames) = (counter()?, frames()?);
        let mut links = Vec::new();
        for (direction, attach_type) in hooks {
            let program = load(kind(*attach_type), *direction, (&counter, &frames), verdict)?;
            links.push(attach(program.as_fd(), *attach_type)?);
        }
        Ok(Self { frames, linked, _links: links })
    }

    /// What has passed by now, the first [`MOST`].
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn seen(&self) -> io::Result<Vec<Frame>> {
        let mut seen = Vec::new();
        let mut slot = [0; SLOT as usize];
        for number in 0..MOST {
            sys::read_array(self.frames.as_fd(), number, &mut slot)?;
            seen.extend(frame(&slot, self.linked));
        }
        Ok(seen)
    }
}

fn counter() -> io::Result<OwnedFd> {
    sys::create_array(&format!("{BPF_PREFIX}count"), 4, 1)
}

fn frames() -> io::Result<OwnedFd> {
    sys::create_array(&format!("{BPF_PREFIX}seen"), SLOT, MOST)
}

/// What a slot holds; `None` of one that is empty, or is being written.
fn frame(slot: &[u8; SLOT as usize], linked: bool) -> Option<Frame> {
    let number = |at: usize| slot.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    // Of the kernel's, which has it as it is on the wire.
    let wire = |number: u32| u16::from_be(u16::try_from(number).unwrap_or_default());
    let (length, protocol, tagged) = (number(0)?, number(4)?, number(8)?);
    let (tag, direction, interface) = (number(12)?, number(16)?, number(20)?);
    let bytes = slot.get(FACTS as usize..)?.get(..usize::try_from(length).ok()?)?;
    (length > 0).then(|| Frame {
        direction: if direction == 0 { Direction::Ingress } else { Direction::Egress },
        interface,
        protocol: wire(protocol),
        tag: (tagged != 0).then(|| wire(tag)),
        linked,
        bytes: bytes.to_vec(),
    })
}

fn load(
    kind: ProgramKind,
    direction: Direction,
    (counter, frames): (&OwnedFd, &OwnedFd),
    verdict: i32,
) -> io::Result<OwnedFd> {
    let program = program(direction, (counter.as_raw_fd(), frames.as_raw_fd()), verdict);
    let name = format!("{BPF_PREFIX}sample");
    sys::load_program(kind, &name, c"Dual MIT/GPL", &program)
        .map_err(|(source, log)| io::Error::new(source.kind(), format!("{source}{log}")))
}

/// One instruction: what it does, to which register, from which, with which offset and number.
const fn op(code: u8, to: u8, from: u8, off: i16, imm: i32) -> (u8, u8, u8, i16, i32) {
    (code, to, from, off, imm)
}

// Of an instruction: 64-bit move and sum, load and store of 32 bits, jumps, a call.
const MOV: u8 = 0xbf;
const MOV_NUMBER: u8 = 0xb7;
const ADD_NUMBER: u8 = 0x07;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_NUMBER: u8 = 0x62;
const ATOMIC: u8 = 0xc3;
const MAP: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP_IF: u8 = 0x15;
const JUMP_UNLESS: u8 = 0x55;
const JUMP_IF_LEAST: u8 = 0x35;
const JUMP_IF_LESS: u8 = 0xa5;
const JUMP_IF_MOST: u8 = 0xb5;
const LOOKUP: i32 = 1;
const LOAD_BYTES: i32 = 26;
/// Of an atomic sum: give back what was there (`BPF_ADD | BPF_FETCH`).
const FETCH: i32 = 1;
/// A jump to the end, which is put in below.
const END: i16 = i16::MAX;

/// The program, which has r6 for the packet, r7 for its slot and r8 for its length.
fn program(direction: Direction, (counter, frames): (RawFd, RawFd), verdict: i32) -> Vec<bpf_insn> {
    let (most, headers) = (MOST.cast_signed(), HEADERS.cast_signed());
    let facts = i32::try_from(FACTS).unwrap_or_default();
    let way = i32::from(direction == Direction::Egress);
    let mut code = vec![
        op(MOV, 6, 1, 0, 0),
        // The counter: who finds it high enough has nothing to do.
        op(STORE_NUMBER, 10, 0, -4, 0),
        op(MOV, 2, 10, 0, 0),
        op(ADD_NUMBER, 2, 0, 0, -4),
        op(MAP, 1, 1, 0, counter),
        op(0, 0, 0, 0, 0),
        op(CALL, 0, 0, 0, LOOKUP),
        op(JUMP_IF, 0, 0, END, 0),
        op(LOAD, 1, 0, 0, 0),
        op(JUMP_IF_LEAST, 1, 0, END, most),
        op(MOV_NUMBER, 1, 0, 0, 1),
        op(ATOMIC, 0, 1, 0, FETCH),
        op(JUMP_IF_LEAST, 1, 0, END, most),
        op(STORE, 10, 1, -4, 0),
        // The slot of that number.
        op(MOV, 2, 10, 0, 0),
        op(ADD_NUMBER, 2, 0, 0, -4),
        op(MAP, 1, 1, 0, frames),
        op(0, 0, 0, 0, 0),
        op(CALL, 0, 0, 0, LOOKUP),
        op(JUMP_IF, 0, 0, END, 0),
        op(MOV, 7, 0, 0, 0),
    ];
    // Fields of struct __sk_buff: protocol, vlan_present, vlan_proto, ifindex.
    for (field, at) in [(16, 4), (20, 8), (28, 12), (40, 20)] {
        code.extend([op(LOAD, 1, 6, field, 0), op(STORE, 7, 1, at, 0)]);
    }
    code.extend([
        op(STORE_NUMBER, 7, 0, 16, way),
        // Its length, of which no more is copied than there is room for.
        op(LOAD, 8, 6, 0, 0),
        op(JUMP_IF_MOST, 8, 0, 1, headers),
        op(MOV_NUMBER, 8, 0, 0, headers),
        op(JUMP_IF_LESS, 8, 0, END, 14),
        op(MOV, 1, 6, 0, 0),
        op(MOV_NUMBER, 2, 0, 0, 0),
        op(MOV, 3, 7, 0, 0),
        op(ADD_NUMBER, 3, 0, 0, facts),
        op(MOV, 4, 8, 0, 0),
        op(CALL, 0, 0, 0, LOAD_BYTES),
        op(JUMP_UNLESS, 0, 0, END, 0),
        // Last: a slot with a length is whole.
        op(STORE, 7, 8, 0, 0),
        op(MOV_NUMBER, 0, 0, 0, verdict),
        op(EXIT, 0, 0, 0, 0),
    ]);
    let end = i16::try_from(code.len() - 2).unwrap_or_default();
    let place = |(at, (code, to, from, off, imm)): (usize, (u8, u8, u8, i16, i32))| {
        let at = i16::try_from(at).unwrap_or_default();
        let off = if off == END { end - at - 1 } else { off };
        bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(to, from), off, imm }
    };
    code.into_iter().enumerate().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_read_as_the_program_has_written_it_and_an_empty_one_is_none() {
        let mut slot = [0; SLOT as usize];
        assert_eq!(frame(&slot, true), None);
        let facts = [20_u32, u32::from(0x0800_u16.to_be()), 1, u32::from(0x88a8_u16.to_be()), 1, 7];
        for (at, fact) in facts.into_iter().enumerate() {
            slot[at * 4..at * 4 + 4].copy_from_slice(&fact.to_ne_bytes());
        }
        slot[24..44].fill(9);
        let expected = Frame {
            direction: Direction::Egress,
            interface: 7,
            protocol: 0x0800,
            tag: Some(0x88a8),
            linked: true,
            bytes: vec![9; 20],
        };
        assert_eq!(frame(&slot, true), Some(expected));
    }

    #[test]
    fn every_jump_of_the_program_is_to_an_instruction_of_it() {
        let code = program(Direction::Egress, (3, 4), -1);
        for (at, instruction) in code.iter().enumerate() {
            let is_jump = instruction.code & 7 == 5 && !matches!(instruction.code, 0x85 | 0x95);
            let to = i64::try_from(at).unwrap() + 1 + i64::from(instruction.off);
            assert!(!is_jump || (0..i64::try_from(code.len()).unwrap()).contains(&to), "{at}");
        }
    }
}
