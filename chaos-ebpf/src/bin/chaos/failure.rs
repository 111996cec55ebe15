//! Whether a call that matches fails, and with what. The programs run in the caller's own context, which another caller on the
//! same processor may interrupt: so everything is counted atomically.

use core::arch::asm;

use aya_ebpf::helpers::generated::{
    bpf_get_prandom_u32, bpf_ktime_get_boot_ns, bpf_send_signal, bpf_set_retval,
};
use chaos_common::rule::{ALWAYS, hits};
use chaos_common::{PacketRule, lease};

use crate::maps;

/// The call goes on.
pub(crate) const PASS: i32 = 1;
/// The call fails with the number that was set.
const FAIL: i32 = 0;

/// Counts one up, and returns what was counted before.
///
/// # Safety
/// `counter` lies in a map.
#[inline(always)]
pub(crate) unsafe fn count(counter: *mut u64) -> u64 {
    let mut number = 1_u64;
    // The instruction that the library would use, and does not, because it knows of no compare-and-swap here.
    // SAFETY: the caller's promise; values of maps are aligned to 8 bytes.
    unsafe {
        asm!(
            "{number} = atomic_fetch_add((u64 *)({counter} + 0), {number})",
            number = inout(reg) number,
            counter = in(reg) counter,
            options(nostack),
        );
    }
    number
}

/// As [`strike`]; the caller is sent the signal of the rule beside it, if there is one. For security hooks only: the kernel lets
/// no other program for calls send signals.
#[inline(always)]
pub(crate) fn strike_hard(rule: &PacketRule) -> Option<i32> {
    let verdict = strike(rule)?;
    let signal = maps::CALL.get(0)?.signal;
    if signal != 0 {
        // Who cannot get one, as PID 1 of the host, gets the error alone.
        // SAFETY: the helper takes a number.
        unsafe { bpf_send_signal(signal) };
    }
    Some(verdict)
}

/// What a call returns that matches and is not protected, if the fault acts on it. Counts either way.
#[inline(always)]
pub(crate) fn strike(rule: &PacketRule) -> Option<i32> {
    let counters = maps::COUNTERS.get_ptr_mut(0)?;
    // SAFETY: the helper takes nothing and returns a number.
    let now = unsafe { bpf_ktime_get_boot_ns() };
    if !lease::live(*maps::LEASE.get(0)?, now) {
        // SAFETY: the slot of a map, like all that is counted here.
        unsafe { count(&raw mut (*counters).expired) };
        return None;
    }
    let failure = maps::CALL.get(0)?;
    // SAFETY: as above.
    if failure.spares(unsafe { count(maps::CALLS.get_ptr_mut(0)?) }) {
        return None;
    }
    // SAFETY: the helper takes nothing and returns a number.
    let random = if rule.probability == ALWAYS { 0 } else { unsafe { bpf_get_prandom_u32() as u32 } };
    if !hits(rule.probability, random) {
        return None;
    }
    // SAFETY: as above.
    if failure.times != 0 && failure.exhausted(unsafe { count(maps::FAILED.get_ptr_mut(0)?) }) {
        return None;
    }
    // SAFETY: as above.
    unsafe { count(&raw mut (*counters).affected) };
    Some(failure.verdict())
}

/// Has the call return a negative errno.
#[inline(always)]
pub(crate) fn fail(verdict: i32) -> i32 {
    // SAFETY: the helper takes a number.
    unsafe { bpf_set_retval(verdict) };
    FAIL
}
