//! What the daemon's processes give up. Those without rights do before they listen to anybody: files, system calls, ways to more rights.
//!
//! Their user, capabilities and network namespace they have from the injector, which starts them
//! (`injector/server_process.rs`). The rest is done here by the process itself, before it reads the first byte that is
//! not ours: no new privileges, no core, not traceable by its own user, files by Landlock (landlock(7)), system calls by
//! a list of those that it may make (seccomp(2)). None of it needs a service manager, a right, or a file.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};

use super::syscalls;

/// What Landlock is asked for: a kernel that knows less of it gives what it has.
const KNOWN: ABI = ABI::V6;
/// What host names are looked up with: the configuration, and the C library's plug-ins.
const NAME_SERVICE: &[&str] =
    &["/etc", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/run/systemd/resolve"];

/// The most memory of the server (`RLIMIT_DATA`, getrlimit(2)), in bytes: what it counts itself (`server/budget.rs`) stays far below.
/// It is the second net, for what was not counted: the server dies of it, and not the host, and not the injector beside it.
pub const SERVER_MEMORY: u64 = 256 << 20;

/// Which process it is for.
#[derive(Debug, Clone, Copy)]
pub enum Sandbox<'a> {
    /// The server: it reads and writes below one directory, talks on the sockets that it has, and opens none.
    Server {
        /// The directory, if it has one.
        state_dir: Option<&'a Path>,
    },
    /// The prober: it looks names up and opens connections over IP.
    Prober,
    /// The runner: it starts programs, which may do what its user may. Only ways to more rights are closed.
    Runner,
}

/// Why a process could not be shut in. It must not go on then.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A setting of the process.
    #[error("{operation}")]
    Process {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Landlock refused the rules; a kernel without it does not.
    #[error("restrict the files that can be opened")]
    Files(#[from] RulesetError),
    /// The list of system calls.
    #[error("restrict the system calls")]
    Calls(#[from] seccompiler::Error),
}

impl Sandbox<'_> {
    /// Shuts the calling thread in, and every thread that it starts later: call it while there is no other. False when
    /// Landlock was to guard files and this kernel has none, so that their modes alone do. For the runner nothing but modes is to, and
    /// no system call is withheld.
    ///
    /// # Errors
    /// Says what could not be given up.
    pub fn enter(self) -> Result<bool, SandboxError> {
        let process = |operation| {
            move |errno: nix::errno::Errno| SandboxError::Process { operation, source: errno.into() }
        };
        prctl::set_no_new_privs().map_err(process("give up new privileges"))?;
        hide()?;
        setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(process("give up core dumps"))?;
        umask(Mode::from_bits_truncate(0o077));
        let (landlocked, over_ip) = match self {
            Self::Runner => return Ok(true),
            Self::Server { state_dir } => {
                let bound = || process("bound the memory");
                let (_, most) = getrlimit(Resource::RLIMIT_DATA).map_err(bound())?;
                let most = most.min(SERVER_MEMORY);
                setrlimit(Resource::RLIMIT_DATA, most, most).map_err(bound())?;
                (files_of_server(state_dir)?, false)
            }
            Self::Prober => (files_of_prober()?, true),
        };
        syscalls::restrict(over_ip)?;
        Ok(matches!(landlocked.landlock, LandlockStatus::Available { .. }))
    }
}

/// Gives up what none of the daemon's processes needs, whatever rights it has: system calls, new privileges, core dumps. It holds for
/// the calling thread, those that it starts later, and what they execute.
///
/// # Errors
/// Says what could not be given up.
pub fn withhold() -> Result<(), SandboxError> {
    let process =
        |operation| move |errno: nix::errno::Errno| SandboxError::Process { operation, source: errno.into() };
    prctl::set_no_new_privs().map_err(process("give up new privileges"))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(process("give up core dumps"))?;
    Ok(syscalls::withhold()?)
}

/// Keeps other processes of the same user, which may be nobody's, from tracing this one and reading its memory: before a secret is
/// in it.
///
/// # Errors
/// Says that it could not be given up.
pub fn hide() -> Result<(), SandboxError> {
    let operation = "give up being traced";
    prctl::set_dumpable(false).map_err(|errno| SandboxError::Process { operation, source: errno.into() })
}

/// As far as the kernel can: what it does not know yet is left to the list of system calls.
fn ruleset() -> Result<Ruleset, RulesetError> {
    Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::from_all(KNOWN))
}

fn files_of_server(state_dir: Option<&Path>) -> Result<RestrictionStatus, RulesetError> {
    let rights = AccessFs::ReadFile
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::RemoveFile;
    let ruleset = ruleset()?.handle_access(AccessNet::from_all(KNOWN))?.create()?;
    ruleset.add_rules(path_beneath_rules(state_dir, rights))?.restrict_self()
}

fn files_of_prober() -> Result<RestrictionStatus, RulesetError> {
    let rights = AccessFs::ReadFile | AccessFs::ReadDir;
    ruleset()?.create()?.add_rules(path_beneath_rules(NAME_SERVICE, rights))?.restrict_self()
}
