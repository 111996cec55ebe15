//! What this kernel can do, found out by doing it: in a private namespace, with nothing left behind.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::bpf::{BpfError, Capacity, Family, Programs, kernel_has_tcx};
use super::netlink::NetlinkError;
use super::netlink::probe::{probe, probe_htb};
use super::{process, systemd, trace};
use crate::host::btf::BtfError;
use crate::host::{
    Facts, KernelFiles, KernelSockets, Lack, PlaceRef, Unusable, WhenAsked, cgroup, controller, panic,
};
use crate::request::chain;
use crate::spec::Requirement;

fn release() -> String {
    nix::sys::utsname::uname()
        .map_or("unknown".to_owned(), |name| name.release().to_string_lossy().into_owned())
}

/// Tries what most faults need, and the rest when it is asked for. Takes some milliseconds, and longer when modules have to be loaded.
pub fn facts() -> Facts {
    let release = release();
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let processors = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).count();
    let tcx = kernel_has_tcx().unwrap_or(false);
    let (veth, filters, netem) = match probe() {
        Ok(support) => {
            let unusable = |answer: Result<(), NetlinkError>| unusable(answer, &release);
            (unusable(support.veth), unusable(support.filters), unusable(support.netem))
        }
        Err(error) => {
            let reason = Some(Unusable::Refused(words(&error)));
            (reason.clone(), reason.clone(), reason)
        }
    };
    // Whether the kernel takes those that look at packets, the first holder finds out: to verify them takes longer than all of this.
    // With tcx links no filter is needed.
    let packet_programs =
        load(Family::Stubs).err().map(Unusable::Refused).or(if tcx { None } else { filters });
    let processors = u32::try_from(processors).unwrap_or(u32::MAX).max(1);
    let (cgroup_v2, controllers) = match cgroup::mount() {
        Ok(Some(mount)) => (None, controller::lacking(&mount)),
        Ok(None) => (Some("not mounted as a whole".to_owned()), Vec::new()),
        Err(error) => (Some(words(&error)), Vec::new()),
    };
    let tracing = trace::forbidden();
    let systemd = systemd::absent();
    Facts {
        release,
        processors,
        tcx,
        packet_programs,
        veth,
        netem,
        cgroup_v2,
        controllers,
        tracing,
        descriptors: process::no_descriptors(),
        htb: WhenAsked::new(htb),
        call_programs: WhenAsked::new(calls),
        sever_programs: WhenAsked::new(severance),
        files: WhenAsked::new(|| aside(files)),
        sockets: WhenAsked::new(|| aside(sockets)),
        systemd,
        sysrq: panic::no_trigger(),
    }
}

/// Makes an htb where nobody meets it.
fn htb() -> Result<(), Lack> {
    let release = release();
    let Some(why) = unusable(probe_htb(), &release) else { return Ok(()) };
    let name = Requirement::Htb.name();
    let remedy = why.remedy(&name, "CONFIG_NET_SCH_HTB", &release);
    Err(Lack { what: format!("{name} ({why})"), remedy })
}

/// Loads the programs for control groups.
fn calls() -> Result<(), Lack> {
    load(Family::Calls).map_err(|reason| no_call_programs(&reason))
}

fn no_call_programs(reason: &str) -> Lack {
    Lack {
        what: format!("{} ({reason})", Requirement::CallPrograms.name()),
        remedy: "run a kernel of 5.18 or newer with CONFIG_CGROUP_BPF; no module has it".to_owned(),
    }
}

/// Loads the programs for the packets of control groups.
fn severance() -> Result<(), Lack> {
    load(Family::Severance).map_err(|reason| no_sever_programs(&reason))
}

fn no_sever_programs(reason: &str) -> Lack {
    Lack {
        what: format!("{} ({reason})", Requirement::SeverPrograms.name()),
        remedy: "run a kernel of 5.12 or newer with CONFIG_CGROUP_BPF; no module has it".to_owned(),
    }
}

/// Room for no peers.
const NO_PEERS: Capacity = Capacity { hosts: 1, prefixes: 1 };

/// On a thread of its own, which may end with what it tries.
fn aside<T: Send + 'static>(look: fn() -> Result<T, Lack>) -> Result<T, Lack> {
    let found = thread::spawn(look).join();
    found.unwrap_or_else(|_panic| Err(no_hooks("programs at security hooks: looking panicked".into())))
}

/// Loads the programs for files, and has the kernel ask one of them.
fn files() -> Result<KernelFiles, Lack> {
    let kernel = KernelFiles::read().map_err(undescribed)?;
    let refused = |error: BpfError| refused("files", &error);
    let mut programs = Programs::load(Family::Files(kernel), NO_PEERS).map_err(refused)?;
    let root = PlaceRef::find(Path::new("/")).and_then(|root| root.map(|root| root.open()).transpose());
    let root = root.ok().flatten().ok_or_else(|| no_hooks("a root folder to look at".into()))?;
    match programs.inode_of(&root, &kernel).map_err(refused)? {
        Some(_) => Ok(kernel),
        None => Err(not_asked(&fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default())),
    }
}

/// That the kernel does not ask such programs, with the list of those that it asks.
fn not_asked(list: &str) -> Lack {
    let list = if list.is_empty() { "its list" } else { list.trim() };
    Lack {
        what: format!("{} ({})", Requirement::FilePrograms.name(), words(&BpfError::NotAsked)),
        remedy: format!("add it on the kernel's command line, `lsm={list},bpf`, and boot"),
    }
}

/// Loads the programs for sockets. Whether the kernel asks any at its security hooks is found out at those of files.
fn sockets() -> Result<KernelSockets, Lack> {
    let kernel = KernelSockets::read().map_err(undescribed)?;
    Programs::load(Family::Sockets(kernel), NO_PEERS).map_err(|error| refused("sockets", &error))?;
    files().map(|_| kernel)
}

/// What the kernel lacks that does not say what programs have to know of it.
fn undescribed(error: BtfError) -> Lack {
    match error {
        BtfError::Read(_) | BtfError::Malformed => Lack {
            what: format!("the kernel's description of its types ({})", words(&error)),
            remedy: "run a kernel with CONFIG_DEBUG_INFO_BTF; no module has it".to_owned(),
        },
        BtfError::NoHook(_) | BtfError::NoMember(_) => no_hooks(format!("CONFIG_BPF_LSM ({error})")),
    }
}

/// Why the kernel refuses programs.
fn refused(of: &str, error: &BpfError) -> Lack {
    no_hooks(format!("programs at the security hooks of {of} ({}{})", lockdown(error), words(error)))
}

/// Whether it is lockdown for which the kernel refuses programs: what it says of it, or, where it cannot be asked, that this is
/// how it refuses then.
fn lockdown(error: &BpfError) -> String {
    let BpfError::Program { source, .. } = error else { return String::new() };
    if source.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    let said = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    match said.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some(("none", _)) => "not permitted, though lockdown is off: ".to_owned(),
        Some((mode, _)) => format!("not permitted: lockdown is {mode}: "),
        None => "not permitted, as under lockdown, which cannot be asked without securityfs: ".to_owned(),
    }
}

fn no_hooks(what: String) -> Lack {
    let remedy = "run a kernel of 6.0 or newer with CONFIG_BPF_LSM, CONFIG_SECURITY_NETWORK and CONFIG_DEBUG_INFO_BTF, `bpf` in the \
                  list of `lsm=` on its command line (/sys/kernel/security/lsm), and no lockdown (/sys/kernel/security/lockdown: [none])";
    Lack { what, remedy: remedy.to_owned() }
}

/// Loads the programs of a family once, on a thread of its own, whose memory goes with it.
fn load(family: Family) -> Result<(), String> {
    let loaded = thread::spawn(move || Programs::load(family, NO_PEERS).map(drop)).join();
    match loaded {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(words(&error)),
        Err(_) => Err("loading the programs panicked".to_owned()),
    }
}

fn unusable(answer: Result<(), NetlinkError>, release: &str) -> Option<Unusable> {
    answer.err().map(|error| match error {
        NetlinkError::MissingModule { module, .. } => Unusable::missing(module, release),
        error => Unusable::Refused(words(&error)),
    })
}

/// An error and its causes, without the verifier's log.
fn words(error: &dyn std::error::Error) -> String {
    chain(error).split(" Verifier output").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_out_by_trying_has_a_remedy_with_an_option() {
        let program = || BpfError::NotAsked;
        let unreadable = BtfError::Read(io::Error::from(io::ErrorKind::NotFound));
        for lack in [
            no_call_programs("refused"),
            no_sever_programs("refused"),
            undescribed(unreadable),
            undescribed(BtfError::NoHook("file_open")),
            refused("files", &program()),
            not_asked("lockdown,yama"),
        ] {
            let says = |word: &str| lack.remedy.contains(word);
            assert!(says("CONFIG_") || says("`lsm=lockdown,yama,bpf`"), "{lack:?}");
        }
    }
}
