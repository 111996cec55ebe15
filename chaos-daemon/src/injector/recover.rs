//! Recovery: undo everything that a daemon which died may have left, from its journal and by our own marks.

use std::io;
use std::path::Path;

use nix::libc;

use super::runtime::{Runtime, RuntimeError};
use crate::fail_point::{self, Role};
use crate::journal::{Found, Journal, undo_on};
use crate::kernel::node::{Kernel, Node};
use crate::kernel::process::{END_LIMIT, ProcessId};
use crate::kernel::setting::Setting;
use crate::kernel::step::Step;
use crate::residue::{self, Scope};

/// What recovery found.
#[derive(Debug, Default, serde::Serialize)]
pub struct Recovered {
    /// What was on the node and is gone.
    pub removed: Vec<String>,
    /// What may still be there.
    pub stuck: Vec<String>,
    /// What somebody else has changed since, and was left so.
    pub kept: Vec<String>,
    /// Journals of an earlier boot, whose kernel state died with it.
    pub void: usize,
    /// Journals that are understood, and of which something is stuck: whoever stays may undo it later.
    #[serde(skip)]
    pub unfinished: Vec<Unfinished>,
}

/// A journal of which something may still be there.
#[derive(Debug)]
pub struct Unfinished {
    /// It.
    pub found: Found,
    /// What may be there, for people.
    pub residue: Vec<String>,
}

impl Recovered {
    /// Writes it to the log.
    pub fn log(&self) {
        for each in &self.removed {
            tracing::warn!(removed = each, "left behind by a daemon that died");
        }
        for each in &self.kept {
            tracing::warn!(kept = each, "left behind by a daemon that died, and somebody else's since");
        }
        for each in &self.stuck {
            tracing::error!(stuck = each, "left behind by a daemon that died, and cannot be removed");
        }
    }
}

/// Why recovery could not be done.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The runtime directory, or a daemon that runs in it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The journal.
    #[error("read the journal")]
    Journal(#[source] io::Error),
    /// A hung daemon that cannot be ended.
    #[error("end the hung daemon {pid}")]
    End {
        /// Its process.
        pid: i32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Recovers after a daemon that ran in `runtime_dir`. One that still runs is refused; one that is stopped
/// (SIGSTOP) is ended first, since it can neither renew nor undo; one that was killed and hangs in the kernel is left to it. With
/// `sweep`, also removes what carries our marks and no running daemon uses, whoever made it, there.
///
/// # Errors
/// When a daemon is running, or the journal cannot be read.
pub fn recover(runtime_dir: &Path, sweep: Option<Scope>) -> Result<Recovered, RecoverError> {
    fail_point::enter(Role::Recovery);
    if let Some(daemon) = Runtime::claimant(runtime_dir) {
        end_if_stopped(daemon)?;
    }
    let runtime = Runtime::claim(runtime_dir)?;
    let journal = Journal::open(runtime.journal_dir()).map_err(RecoverError::Journal)?;
    let mut recovered = recover_journal(&journal).map_err(RecoverError::Journal)?;
    if let Some(scope) = sweep {
        let swept = residue::sweep(Some(runtime_dir), scope);
        recovered.removed.extend(swept.removed);
        recovered.stuck.extend(swept.stuck);
    }
    Ok(recovered)
}

/// Undoes every journal that was left behind. One that is not understood as a whole is kept, and stuck.
///
/// # Errors
/// When the journals cannot be read.
pub fn recover_journal(journal: &Journal) -> io::Result<Recovered> {
    recover_on(&Kernel, journal)
}

/// As [`recover_journal`], on any node.
///
/// # Errors
/// As [`recover_journal`].
pub fn recover_on(node: &impl Node, journal: &Journal) -> io::Result<Recovered> {
    let mut recovered = Recovered::default();
    let mut all = journal.left_behind()?;
    all.sort_by_key(turn);
    for found in all {
        if !found.of_this_boot {
            recovered.void += 1;
            found.forget()?;
            continue;
        }
        let report = undo_on(node, &found.steps);
        recovered.removed.extend(report.removed.iter().map(ToString::to_string));
        let residue = report.residue();
        recovered.stuck.extend_from_slice(&residue);
        recovered.kept.extend(report.kept);
        // What cannot be read may be there still.
        let unclear = found
            .not_understood()
            .map(|what| format!("journal {}: {what}: {}", found.path.display(), found.remedy()));
        match unclear {
            Some(unclear) => recovered.stuck.push(unclear),
            None if residue.is_empty() => found.forget()?,
            None => recovered.unfinished.push(Unfinished { found, residue }),
        }
    }
    Ok(recovered)
}

/// When a journal has its turn: first what does not end by itself, and of that last a link, which may have to be waited for.
fn turn(found: &Found) -> u8 {
    let has_link = found.steps.iter().any(|step| matches!(step, Step::Setting(Setting::Link(_))));
    match (found.is_supervised(), has_link) {
        (true, false) => 0,
        (true, true) => 1,
        (false, _) => 2,
    }
}

fn end_if_stopped(daemon: ProcessId) -> Result<(), RecoverError> {
    let failed = |source| RecoverError::End { pid: daemon.pid, source };
    let Some(process) = daemon.open().map_err(failed)? else { return Ok(()) };
    if !process.stopped {
        return Ok(());
    }
    tracing::warn!(pid = daemon.pid, "the daemon is stopped; ending it");
    process.signal(libc::SIGKILL).map_err(failed)?;
    // Whoever is not gone by then hangs in the kernel, and nothing more comes of it.
    process.wait(END_LIMIT).map_err(failed)?;
    Ok(())
}
