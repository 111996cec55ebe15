//! What this kernel can do, found out by doing it: in a private namespace, with nothing left behind.

use std::thread;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::bpf::{Capacity, Family, Programs, kernel_has_tcx};
use super::netlink::NetlinkError;
use super::netlink::probe::probe;
use super::{systemd, trace};
use crate::host::{Facts, cgroup};

/// Tries everything. Takes some tens of milliseconds, and longer when modules have to be loaded.
pub fn facts() -> Facts {
    let release = nix::sys::utsname::uname()
        .map_or("unknown".to_owned(), |name| name.release().to_string_lossy().into_owned());
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let processors = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).count();
    let tcx = kernel_has_tcx().unwrap_or(false);
    let (veth, filters, netem) = match probe() {
        Ok(support) => (reason(support.veth), reason(support.filters), reason(support.netem)),
        Err(error) => {
            let reason = words(&error);
            (Some(reason.clone()), Some(reason.clone()), Some(reason))
        }
    };
    // With tcx links no filter is needed.
    let packet_programs = load(Family::Packets).err().or(if tcx { None } else { filters });
    let processors = u32::try_from(processors).unwrap_or(u32::MAX).max(1);
    let cgroup_v2 = match cgroup::mount() {
        Ok(Some(_)) => None,
        Ok(None) => Some("not mounted as a whole".to_owned()),
        Err(error) => Some(words(&error)),
    };
    let tracing = trace::forbidden();
    let call_programs = load(Family::Calls).err();
    let systemd = systemd::absent();
    Facts {
        release,
        processors,
        tcx,
        packet_programs,
        veth,
        netem,
        cgroup_v2,
        tracing,
        call_programs,
        systemd,
    }
}

/// Loads the programs of a family once, on a thread of its own, whose memory goes with it.
fn load(family: Family) -> Result<(), String> {
    let loaded =
        thread::spawn(move || Programs::load(family, Capacity { hosts: 1, prefixes: 1 }).map(drop)).join();
    match loaded {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(words(&error)),
        Err(_) => Err("loading the programs panicked".to_owned()),
    }
}

fn reason(answer: Result<(), NetlinkError>) -> Option<String> {
    answer.err().map(|error| match error {
        NetlinkError::MissingModule { .. } => {
            "not built in, and no module of that name is installed".to_owned()
        }
        error => words(&error),
    })
}

/// An error and its causes, without the verifier's log.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text.split(" Verifier output").next().unwrap_or_default().to_owned()
}
