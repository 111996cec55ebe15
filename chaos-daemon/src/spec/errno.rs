//! The errors that calls can be made to fail with (errno(3)).

use nix::libc;
use serde::{Deserialize, Serialize};

use super::units::SpecError;

/// The errors that a connection can fail with: as callers name them, as errno(3) does, and their numbers.
pub const CONNECT_ERRORS: &[(&str, &str, i32)] = &[
    ("connection_refused", "ECONNREFUSED", libc::ECONNREFUSED),
    ("connection_reset", "ECONNRESET", libc::ECONNRESET),
    ("timed_out", "ETIMEDOUT", libc::ETIMEDOUT),
    ("host_unreachable", "EHOSTUNREACH", libc::EHOSTUNREACH),
    ("network_unreachable", "ENETUNREACH", libc::ENETUNREACH),
    ("network_down", "ENETDOWN", libc::ENETDOWN),
    ("address_not_available", "EADDRNOTAVAIL", libc::EADDRNOTAVAIL),
    ("permission_denied", "EACCES", libc::EACCES),
];

/// The errors that a call about a file can fail with: as callers name them, as errno(3) does, and their numbers.
pub const FILE_ERRORS: &[(&str, &str, i32)] = &[
    ("io_error", "EIO", libc::EIO),
    ("no_space", "ENOSPC", libc::ENOSPC),
    ("quota_exceeded", "EDQUOT", libc::EDQUOT),
    ("read_only", "EROFS", libc::EROFS),
    ("permission_denied", "EACCES", libc::EACCES),
    ("not_permitted", "EPERM", libc::EPERM),
    ("not_found", "ENOENT", libc::ENOENT),
    ("too_many_open_files", "EMFILE", libc::EMFILE),
    ("too_many_open_files_in_system", "ENFILE", libc::ENFILE),
    ("no_memory", "ENOMEM", libc::ENOMEM),
    ("timed_out", "ETIMEDOUT", libc::ETIMEDOUT),
    ("busy", "EBUSY", libc::EBUSY),
];

/// The errors that a call about a socket can fail with: as callers name them, as errno(3) does, and their numbers. The first is
/// the one that POSIX has for every operation.
pub const SOCKET_ERRORS: &[(&str, &str, i32)] = &[
    ("no_buffer_space", "ENOBUFS", libc::ENOBUFS),
    ("no_memory", "ENOMEM", libc::ENOMEM),
    ("permission_denied", "EACCES", libc::EACCES),
    ("not_permitted", "EPERM", libc::EPERM),
    ("address_in_use", "EADDRINUSE", libc::EADDRINUSE),
    ("address_not_available", "EADDRNOTAVAIL", libc::EADDRNOTAVAIL),
    ("too_many_open_files", "EMFILE", libc::EMFILE),
    ("too_many_open_files_in_system", "ENFILE", libc::ENFILE),
    ("connection_aborted", "ECONNABORTED", libc::ECONNABORTED),
    ("connection_reset", "ECONNRESET", libc::ECONNRESET),
    ("broken_pipe", "EPIPE", libc::EPIPE),
    ("timed_out", "ETIMEDOUT", libc::ETIMEDOUT),
    ("network_down", "ENETDOWN", libc::ENETDOWN),
    ("network_unreachable", "ENETUNREACH", libc::ENETUNREACH),
    ("host_unreachable", "EHOSTUNREACH", libc::EHOSTUNREACH),
    ("io_error", "EIO", libc::EIO),
];

/// An error that a call fails with, from a list of those that the call can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errno(i32);

impl Errno {
    /// Finds the error that a caller names, in lower case or as errno(3) has it; the first of the list if none is named.
    ///
    /// # Errors
    /// Names those that are in the list.
    pub fn parse(name: Option<&str>, known: &[(&str, &str, i32)]) -> Result<Self, SpecError> {
        let found = match name {
            None => known.first(),
            Some(name) => known.iter().find(|(word, symbol, _)| name == *word || name == *symbol),
        };
        found.map(|(.., number)| Self(*number)).ok_or_else(|| {
            let words: Vec<_> = known.iter().map(|(word, ..)| *word).collect();
            let name = name.unwrap_or_default();
            SpecError::new("params.errno", format!("{name:?} is not known: give one of {}", words.join(", ")))
        })
    }

    /// Its number, which is positive.
    pub fn number(self) -> u32 {
        self.0.unsigned_abs()
    }

    /// Its name, as errno(3) has it.
    pub fn symbol(self) -> &'static str {
        let all = CONNECT_ERRORS.iter().chain(FILE_ERRORS).chain(SOCKET_ERRORS);
        let found = { all }.find(|(.., number)| *number == self.0);
        found.map_or("an unknown error", |(_, symbol, _)| symbol)
    }
}
