//! Who asks, what the policy opens, and whom that spares: by what the rules go that a process does not tell by itself.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use super::super::process::{Owner, ProcessId, Running};
use super::Open;
use crate::request::Caller;

/// By what it is decided who is spared, beside what processes tell themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spared {
    /// Who asked, and everybody above: a shell, a session of sshd.
    pub session: Vec<ProcessId>,
    /// The program of the daemon, by device and inode: injector, server, prober, holders and guard run it.
    pub program: Option<(u64, u64)>,
    /// Who asked.
    pub asker: Asker,
    /// What the policy opens.
    pub open: Open,
    /// Units without which this host does not come up: `sysinit.target` or `basic.target` needs them.
    pub needed: BTreeSet<String>,
    /// Whether nobody is hit, and it is only told how they are: then only what nothing opens counts, and no login.
    pub only_looks: bool,
}

/// Who asks, as far as rules ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// The user; `None` has none on this host.
    pub uid: Option<u32>,
    /// Number of the terminal that the process has; 0 is none.
    pub terminal: i32,
    /// The user who has logged in for it.
    pub login: Option<u32>,
}

impl Default for Asker {
    /// The daemon.
    fn default() -> Self {
        Self { uid: Some(0), terminal: 0, login: None }
    }
}

impl Asker {
    fn of(caller: Caller, process: Option<&Running>) -> Self {
        let Caller::Unix { uid, .. } = caller else { return Self { uid: None, ..Self::default() } };
        let Owner { terminal, login, .. } = process.map(|process| process.owner).unwrap_or_default();
        Self { uid: Some(uid), terminal, login }
    }

    /// Whether it is root.
    pub fn is_root(self) -> bool {
        self.uid == Some(0)
    }
}

impl Spared {
    /// Of a request by `caller`, where this is open, and these units are needed.
    pub fn of(caller: Caller, open: &Open, needed: BTreeSet<String>) -> Self {
        let above = Running::with_those_above([caller.process()]);
        let asker = Asker::of(caller, above.iter().find(|process| process.id.pid == caller.process()));
        let session = above.iter().map(|process| process.id).collect();
        Self { session, program: own_program(), asker, open: open.clone(), needed, only_looks: false }
    }

    /// The same of who only looks.
    #[must_use]
    pub fn for_looks(self) -> Self {
        Self { only_looks: true, ..self }
    }

    /// The same where the caller's own session may be met: by what only delays it or keeps it from others.
    #[must_use]
    pub fn with_session(&self) -> Self {
        Self { session: Vec::new(), ..self.clone() }
    }
}

/// The program of the daemon, by device and inode.
pub fn own_program() -> Option<(u64, u64)> {
    fs::metadata("/proc/self/exe").ok().map(|file| (file.dev(), file.ino()))
}
