//! No sabotage: what every normal build has.

use std::os::fd::BorrowedFd;

use super::{Guard, UnknownSabotage};

/// False: no guard is ever missing.
#[inline(always)]
pub const fn without(_: Guard) -> bool {
    false
}

/// Nothing to check.
///
/// # Errors
/// Never.
pub const fn check() -> Result<(), UnknownSabotage> {
    Ok(())
}

/// Pins nothing.
#[inline(always)]
pub const fn pin(_: BorrowedFd<'_>) {}

/// Does not fork.
#[inline(always)]
pub const fn fork() {}
