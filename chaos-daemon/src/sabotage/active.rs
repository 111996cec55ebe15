//! The sabotage itself, in builds with the feature only.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::libc;
use nix::unistd::{ForkResult, Pid};

use super::{Guard, UnknownSabotage};

/// Names the guard that is missing, by [`Guard::absence`]. Injector, server and holders hand it on to one another.
pub const VARIABLE: &str = "CHAOS_SABOTAGE";
/// The folder, of a bpf file system, for the pins of [`Guard::NoPins`].
pub const PINS: &str = "CHAOS_SABOTAGE_PINS";

/// How long a forked holder lingers. Longer than any test waits, and not for ever.
const LINGER: Duration = Duration::from_secs(90);

/// Whether a guard is missing in this process.
pub fn without(guard: Guard) -> bool {
    static MISSING: OnceLock<Option<Guard>> = OnceLock::new();
    // An unknown name has been refused at the start.
    *MISSING.get_or_init(|| missing().ok().flatten()) == Some(guard)
}

/// Checks what the environment asks for, and says aloud what is missing.
///
/// # Errors
/// When it names no guard.
pub fn check() -> Result<(), UnknownSabotage> {
    if let Some(guard) = missing()? {
        tracing::warn!(missing = ?guard, "this process is sabotaged: for tests of the tests only");
    }
    Ok(())
}

fn missing() -> Result<Option<Guard>, UnknownSabotage> {
    let Some(name) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let name = name.to_string_lossy();
    let found = Guard::ALL.iter().find(|guard| guard.absence() == name);
    found.copied().map(Some).ok_or_else(|| UnknownSabotage(name.into_owned()))
}

/// `union bpf_attr`, its part for BPF_OBJ_PIN (`include/uapi/linux/bpf.h`).
#[repr(C)]
struct PinAttr {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Pins a link, so that it outlives its holder.
pub fn pin(link: BorrowedFd<'_>) {
    const BPF_OBJ_PIN: libc::c_long = 6;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if !without(Guard::NoPins) {
        return;
    }
    let folder = std::env::var(PINS).unwrap_or_default();
    let name = format!("{folder}/{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = CString::new(name.as_str()).unwrap_or_default();
    let attr = PinAttr { path: path.as_ptr() as u64, fd: link.as_raw_fd().unsigned_abs(), flags: 0 };
    // SAFETY: the kernel reads the attributes and the path up to its zero; both live until the call is over.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_PIN, &raw const attr, size_of::<PinAttr>()) };
    if result < 0 {
        tracing::error!(error = %std::io::Error::last_os_error(), name, "cannot pin a link");
    }
}

/// Leaves a copy of this process behind, with all its descriptors.
pub fn fork() {
    if !without(Guard::NoFork) {
        return;
    }
    // SAFETY: a holder of network faults has one thread; the child only sleeps and ends.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => {
            std::thread::sleep(LINGER);
            // SAFETY: ends this process at once, without running anything of its parent's.
            unsafe { libc::_exit(0) }
        }
        Ok(ForkResult::Parent { child }) => tracing::debug!(child = Pid::as_raw(child), "forked"),
        Err(error) => tracing::error!(%error, "cannot fork"),
    }
}
