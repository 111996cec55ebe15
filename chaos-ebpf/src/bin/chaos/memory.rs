//! What programs at security hooks read of the kernel's memory: by address and offset, and never followed by the verifier.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::programs::LsmContext;

/// An argument of the hook. All are registers' values in a row.
#[inline(always)]
pub(crate) fn argument(ctx: &LsmContext, number: usize) -> u64 {
    ctx.arg(number)
}

/// What lies at an offset from an address of the kernel's; `None` when it cannot be read.
///
/// # Safety
/// Every bit pattern is a value of `T`.
#[inline(always)]
pub(crate) unsafe fn read<T>(base: u64, offset: u32) -> Option<T> {
    // Not cleared before: of more than 8 bytes that would be a call, and the verifier lets the helper fill what is not.
    let mut value = MaybeUninit::<T>::uninit();
    let at = base.wrapping_add(u64::from(offset));
    // SAFETY: the helper checks the address that it reads, and writes as many bytes to the stack as there is room for.
    let failed =
        unsafe { bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, at as *const _) };
    // SAFETY: the helper has written all of it, and the caller promises that whatever it is is a value.
    if failed == 0 { Some(unsafe { value.assume_init() }) } else { None }
}

/// The pointer that lies there; `None` also when there is none.
#[inline(always)]
pub(crate) fn pointer(base: u64, offset: u32) -> Option<u64> {
    // SAFETY: a number.
    unsafe { read(base, offset) }.filter(|value| *value != 0)
}
