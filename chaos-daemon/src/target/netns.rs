//! Which network namespaces a fault may go into by a caller's word: those where the caller could go, and those that the policy names.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process;

use procfs::process::Process;

use super::not_found;
use crate::host::{Identity, NetNs, budget};
use crate::request::{ApiError, Caller, ErrorCode, chain};
use crate::spec::NetNsRule;

/// Into which namespaces, beside the daemon's own.
#[derive(Debug, Clone)]
pub struct Entrance {
    identity: Identity,
    /// By the policy, whoever asks.
    named: BTreeSet<NetNsRule>,
}

impl Entrance {
    /// That of a caller, where the policy names these.
    pub fn new(caller: Caller, named: &BTreeSet<NetNsRule>) -> Self {
        Self { identity: Identity::of(caller), named: named.clone() }
    }

    /// As whom it is looked.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Opens a network namespace by its name or path: for root any; for others one that a process of theirs is in, as the kernel has
    /// it, which asks whether the caller could trace that process (proc_pid_ns(5)); and one that the policy names, by whatever name.
    ///
    /// # Errors
    /// [`ErrorCode::TargetNotFound`] when there is none, [`ErrorCode::PolicyDenied`] with what the caller may name.
    pub fn open(&self, name: &str) -> Result<NetNs, ApiError> {
        if self.identity.is_root() || self.named.contains(&NetNsRule::Any) {
            return open(name);
        }
        let why = match name.starts_with("/proc/") {
            true => {
                let opened = || NetNs::open(name).map_err(|error| io::Error::other(chain(&error)));
                match self.identity.act(opened) {
                    Ok(netns) if is_of_another(name) => return Ok(netns),
                    Ok(_) => "it is of a process of the daemon, or of none by now".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
            false => "root keeps it, and who has processes in it is not known".to_owned(),
        };
        if !self.named.is_empty() {
            let netns = open(name)?;
            if self.names(&netns)? {
                return Ok(netns);
            }
        }
        let text =
            format!("target.netns: {name:?} is not a network namespace that this caller may enter: {why}");
        Err(ApiError::new(ErrorCode::PolicyDenied, text).hint(
            "name /proc/PID/ns/net of a process of your own, have root ask for it, or have the operator name it in `fault_netns` \
             of the daemon's policy file",
        ))
    }

    /// Whether the policy names this one.
    fn names(&self, netns: &NetNs) -> Result<bool, ApiError> {
        let number = netns.number().ok();
        for path in self.named.iter().flat_map(paths) {
            budget::check()?;
            // What is not there, or none, is not this one.
            let is_it = NetNs::at(&path).is_ok_and(|named| number.is_some() && named.number().ok() == number);
            if is_it {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a path is of another process than this one: what is this one's own, the kernel shows to each of its threads, whoever that
/// looks as; and some of them are in namespaces of others for a moment.
fn is_of_another(path: &str) -> bool {
    let number = path.split('/').nth(2).and_then(|part| part.parse().ok());
    let status = number.map(|number| Process::new(number).and_then(|process| process.status()));
    status.is_some_and(|status| status.is_ok_and(|status| status.tgid.cast_unsigned() != process::id()))
}

/// Where those are that a rule names; of a folder that is not there, none.
fn paths(rule: &NetNsRule) -> Vec<PathBuf> {
    match rule {
        NetNsRule::Any => Vec::new(),
        NetNsRule::One(path) => vec![path.into()],
        NetNsRule::Folder(folder) => {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        }
    }
}

fn open(name: &str) -> Result<NetNs, ApiError> {
    NetNs::open(name).map_err(|error| no_netns(name, &error))
}

pub(super) fn no_netns(name: &str, error: &dyn std::error::Error) -> ApiError {
    not_found(format!("target.netns: open network namespace {name:?}: {error}"))
        .hint("`ip netns list` shows the names; a path such as /proc/PID/ns/net works too")
}

#[cfg(test)]
#[path = "netns_tests.rs"]
mod tests;
