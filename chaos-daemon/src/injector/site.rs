//! What everything that looks at this node needs to know of the daemon.

use std::path::PathBuf;

use super::watch::GuardPost;
use crate::fault::Attach;
use crate::host::{Facts, NetNs};

/// Where this daemon is, and what the kernel can do.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) facts: Facts,
    /// The network namespace of the daemon: that of every target that names none.
    pub(super) home: NetNs,
    pub(super) runtime_dir: PathBuf,
    pub(super) down_record: PathBuf,
    /// The folder with the audit.
    pub(super) audit: PathBuf,
    pub(super) attach: Attach,
    pub(super) guard: GuardPost,
}
