//! Direct access to the packet and to the fields of its buffer.

use core::arch::asm;

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use chaos_common::{Bytes, Packet, Unread, Version};

use crate::maps;

const ETH_P_IP: u32 = 0x0800;
const ETH_P_IPV6: u32 = 0x86dd;
/// Enough for the link header, IPv6, four ordinary extension headers and the ports.
const HEADERS: u32 = 256;

/// Fields of `struct __sk_buff` that aya does not name.
pub(crate) trait Skb {
    /// Firewall mark.
    fn mark(&self) -> u32;
    /// Index of the device that the packet is on.
    fn interface(&self) -> u32;
    /// IP version by the link layer's word, which also sees through offloaded VLAN tags.
    fn version(&self) -> Option<Version>;
}

impl Skb for TcContext {
    #[inline(always)]
    fn mark(&self) -> u32 {
        // SAFETY: the kernel passes a valid context, and the verifier allows this field.
        unsafe { (*self.skb.skb).mark }
    }

    #[inline(always)]
    fn interface(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.skb.skb).ifindex }
    }

    #[inline(always)]
    fn version(&self) -> Option<Version> {
        // SAFETY: as above.
        let protocol = unsafe { (*self.skb.skb).protocol };
        if protocol == u32::from((ETH_P_IP as u16).to_be()) {
            Some(Version::V4)
        } else if protocol == u32::from((ETH_P_IPV6 as u16).to_be()) {
            Some(Version::V6)
        } else {
            None
        }
    }
}

/// The readable part of a packet. Any helper that may move the packet ends its validity.
pub(crate) struct View {
    start: usize,
    end: usize,
}

impl View {
    /// The packet as it is now.
    #[inline(always)]
    pub(crate) fn of(ctx: &TcContext) -> Self {
        Self { start: ctx.data(), end: ctx.data_end() }
    }

    #[inline(always)]
    fn get<T: Copy>(&self, at: usize) -> Option<T> {
        let mut from = self.start + at;
        // The check below counts for the verifier only if the very same register is read through afterwards. Hides
        // the address from the compiler, which would otherwise compute it once more for the read.
        // SAFETY: no instruction at all.
        unsafe { asm!("/* {0} */", inout(reg) from, options(nomem, nostack, preserves_flags)) };
        if from + size_of::<T>() > self.end {
            return None;
        }
        // SAFETY: the bytes lie between the packet's start and its end, which the verifier checks on its own. They
        // may be unaligned, which is one load all the same where the verifier lets the program pass.
        Some(unsafe { *(from as *const T) })
    }
}

impl Bytes for View {
    #[inline(always)]
    fn u8(&self, at: usize) -> Option<u8> {
        self.get(at)
    }

    #[inline(always)]
    fn raw16(&self, at: usize) -> Option<u16> {
        self.get(at)
    }

    #[inline(always)]
    fn raw32(&self, at: usize) -> Option<u32> {
        self.get(at)
    }
}

/// Reads the headers. If they are not in the linear part of the buffer they are fetched there, once.
#[inline(always)]
pub(crate) fn read(ctx: &TcContext, version: Version) -> Option<Packet> {
    // SAFETY: this CPU's own slot; see there.
    let slot = unsafe { &mut *maps::PACKET.get_ptr_mut(0)? };
    match Packet::read(&View::of(ctx), version) {
        Ok(packet) => *slot = packet,
        Err(Unread::NotIp) => return None,
        Err(Unread::Short) => {
            if !fetch(ctx.skb.skb, version, slot) {
                return None;
            }
        }
    }
    // Makes the compiler write the slot and read it again.
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", in(reg) slot, options(nostack, preserves_flags)) };
    Some(*slot)
}

/// What was read last.
#[inline(always)]
pub(crate) fn last() -> Option<Packet> {
    // SAFETY: as above.
    Some(unsafe { *maps::PACKET.get_ptr(0)? })
}

/// A function of its own for the verifier and in the object: rare, and long.
#[inline(never)]
fn fetch(skb: *mut __sk_buff, version: Version, slot: &mut Packet) -> bool {
    let ctx = TcContext::new(skb);
    let wanted = if ctx.len() < HEADERS { ctx.len() } else { HEADERS };
    if ctx.pull_data(wanted).is_err() {
        return false;
    }
    match Packet::read(&View::of(&ctx), version) {
        Ok(seen) => {
            *slot = seen;
            true
        }
        Err(_) => false,
    }
}
