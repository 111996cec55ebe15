//! A process of a stranger's that looks like a proxy of MCP, or that sees files of root's where its own are, by mounts.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use chaos_daemon::spec::FaultType;
use chaos_daemon::spec::mcp::page::{LINK, NUMBER};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Gid, Uid, chroot, setgroups, setresgid, setresuid};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cases::carry_out;
use super::said::{Said, Tried};
use super::stage::{Stage, USERS};
use super::stranger::GROUP_ID;
use super::walk::fault;
use crate::error::{Error, Result};
use crate::process::Killed;

/// The argument by which a test executable becomes an impostor; then what it pretends, a folder, what is root's, and the name of a
/// proxy's program.
const ROLE: &str = "impostor";
/// What it says once it is one.
const READY: u8 = b'.';

/// What an impostor has open in place of a proxy's page.
const PRETENCES: [&str; 5] =
    ["a place of root's", "a file of root's", "a file of its own", "memory that is not sealed", "a pipe"];

/// Starts one; it ends with what is returned.
fn start(pretence: &str, folder: &Path, roots: &str) -> Result<Killed> {
    let mut command = Command::new("/proc/self/exe");
    command.args([ROLE, pretence]).arg(folder).args([roots, "mcp-proxy"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.map_err(Error::io("start", "an impostor"))?);
    let mut said = [0];
    let mut from =
        child.0.stdout.take().ok_or_else(|| Error::Different("an impostor without a pipe".into()))?;
    from.read_exact(&mut said).map_err(Error::io("hear", format!("an impostor with {pretence}")))?;
    Ok(child)
}

/// Lives an impostor's life, if the arguments of this process say so.
pub(super) fn serve_if_asked() -> Option<ExitCode> {
    let words: Vec<_> = std::env::args().collect();
    let [_, role, pretence, folder, roots, ..] = words.as_slice() else { return None };
    if role != ROLE {
        return None;
    }
    let pretended = pretend(pretence, Path::new(folder), Path::new(roots)).and_then(|_held| {
        io::stdout().write_all(&[READY])?;
        io::stdout().flush()?;
        io::stdin().read_to_end(&mut Vec::new())
    });
    Some(match pretended {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("impostor: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Has what is root's mounted under the name of a page at the root of its own mounts, as anybody can who has user namespaces; becomes
/// a stranger; and opens what it can.
fn pretend(pretence: &str, folder: &Path, roots: &Path) -> io::Result<OwnedFd> {
    // Of whom is in the caller's own session nobody is met.
    nix::unistd::setsid()?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    mount(Some("none"), folder, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
    let page = folder.join(LINK.trim_start_matches('/'));
    File::create(&page)?.write_all(&[b'x'; 8192])?;
    chown(&page, Some(USERS[0]), None)?;
    chown(folder, Some(USERS[0]), None)?;
    if pretence.ends_with("root's") {
        mount(Some(&roots.join("file")), &page, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    for name in ["closed", "proc"] {
        fs::create_dir(folder.join(name))?;
    }
    mount(Some(&roots.join("closed")), &folder.join("closed"), None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    chroot(folder)?;
    std::env::set_current_dir("/")?;
    let (user, group) = (Uid::from_raw(USERS[0]), Gid::from_raw(GROUP_ID));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)?;
    nix::sys::prctl::set_dumpable(true)?;
    let open = |flags: i32| OpenOptions::new().read(true).custom_flags(flags).open(LINK);
    let file: OwnedFd = match pretence {
        "memory that is not sealed" => {
            let name = CString::new(LINK.trim_start_matches("/memfd:").trim_end_matches(" (deleted)"))?;
            memfd_create(name.as_c_str(), MFdFlags::empty())?
        }
        "a pipe" => nix::unistd::pipe()?.1,
        "a file of its own" => OpenOptions::new().read(true).write(true).open(LINK)?.into(),
        _ => open(libc::O_PATH)?.into(),
    };
    // SAFETY: nobody in this process has this number open.
    match unsafe { libc::dup2(file.as_raw_fd(), NUMBER) } {
        NUMBER => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A proxy's calls are spoiled of no impostor, and nothing is opened by way of what it has mounted.
pub(super) fn tried(stage: &Stage) -> Result<Tried> {
    let mut tried = Tried::default();
    let mut said = Said::open(stage, &stage.strangers[0])?;
    let roots = stage.names().roots;
    for pretence in PRETENCES {
        let folder = TempDir::with_prefix("chaos-test-").map_err(Error::io("create", "a folder"))?;
        let impostor = start(pretence, folder.path(), &roots)?;
        let number = impostor.0.id();
        let mut whole = fault(FaultType::McpError, &stage.known());
        whole["target"] = json!({"pid": number});
        whole["params"] = json!({"fail": 1, "tools": ["words-of-a-stranger"]});
        let served = tried.served;
        carry_out(stage, &mut said, whole, &mut tried, || format!("{pretence} as a proxy"))?;
        // It was registered, and no more.
        if tried.served > served + 1 {
            tried.effects.push(format!("{pretence} was taken for a proxy's page"));
        }
        for (kind, parameter, value) in ways(number) {
            let mut whole = fault(kind, &stage.known());
            whole["params"][parameter] = json!(value);
            carry_out(stage, &mut said, whole, &mut tried, || format!("{pretence}: {value}"))?;
        }
    }
    Ok(tried)
}

/// Ways to what is root's through a process that has it mounted.
fn ways(number: u32) -> [(FaultType, &'static str, Value); 4] {
    let root = format!("/proc/{number}/root");
    [
        (FaultType::ResourceExhaustion, "path", json!(format!("{root}/closed"))),
        (FaultType::ResourceExhaustion, "path", json!(format!("/proc/{number}/cwd/closed"))),
        (FaultType::ConnectionLoad, "url", json!(format!("unix:{root}/closed/socket"))),
        (FaultType::ConnectionLoad, "url", json!(format!("mcp+unix:{root}/closed/socket"))),
    ]
}
