//! Whose something is: the user's, whatever process of theirs has called.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::request::Caller;

/// A user of this host, or the far side of a vsock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// By user id.
    User(u32),
    /// By vsock context id.
    Context(u32),
}

impl Owner {
    /// Whether it is root of this host.
    pub fn is_root(self) -> bool {
        self == Self::User(0)
    }
}

impl From<Caller> for Owner {
    fn from(caller: Caller) -> Self {
        match caller {
            Caller::Unix { uid, .. } => Self::User(uid),
            Caller::Vsock { cid } => Self::Context(cid),
        }
    }
}

impl fmt::Display for Owner {
    /// `uid 1000`, or `vsock context 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid {uid}"),
            Self::Context(cid) => write!(f, "vsock context {cid}"),
        }
    }
}
