//! What can go wrong between us and the kernel's routing netlink, each with the operation and its subject.

use std::fmt;
use std::time::Duration;

use netlink_packet_core::{DecodeError, ErrorMessage, NLA_HEADER_SIZE};
use nix::errno::Errno;

use super::wire::Attributes;
use crate::host::netns::NetNsError;

/// How long the kernel may take to answer. It answers at once, unless somebody holds the lock that all network
/// configuration shares.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A netlink operation that did not succeed. `operation` names what was tried, and on what.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No socket.
    #[error("cannot open a netlink socket")]
    Open(#[source] std::io::Error),
    /// No namespace to open the socket in.
    #[error("cannot open a netlink socket in its network namespace")]
    NetNs(#[source] NetNsError),
    /// The process lacks CAP_NET_ADMIN in the user namespace that owns the network namespace.
    #[error("cannot {operation}: CAP_NET_ADMIN is needed")]
    NotPermitted {
        /// What was tried.
        operation: String,
        /// What the kernel said.
        #[source]
        source: Refusal,
    },
    /// The kernel was built without something, or its module is not installed.
    #[error("cannot {operation}: this kernel lacks {module} (not built in, and no such module is installed)")]
    MissingModule {
        /// Name of the kernel module.
        module: &'static str,
        /// What was tried.
        operation: String,
        /// What the kernel said.
        #[source]
        source: Refusal,
    },
    /// The kernel said no.
    #[error("cannot {operation}")]
    Refused {
        /// What was tried.
        operation: String,
        /// What the kernel said.
        #[source]
        source: Refusal,
    },
    /// What was asked for would not be what the kernel does; nothing was sent.
    #[error("cannot {operation}: {problem}")]
    OutOfRange {
        /// What was tried.
        operation: String,
        /// Which value, and its bounds.
        problem: String,
    },
    /// The device lacks our mark; nothing was sent.
    #[error("cannot {operation}: it is not a device of ours")]
    NotOurs {
        /// What was tried.
        operation: String,
    },
    /// Whether it happened is unknown.
    #[error("cannot {operation}: no answer from the kernel (waited at most {ANSWER_LIMIT:?})")]
    NoAnswer {
        /// What was tried.
        operation: String,
    },
    /// The list kept changing while it was read.
    #[error("cannot {operation}: it kept changing while it was read")]
    Unstable {
        /// What was tried.
        operation: String,
    },
    /// An answer that cannot be read is unknown, never absent.
    #[error("cannot {operation}: the answer is not understood")]
    Unreadable {
        /// What was tried.
        operation: String,
        /// What is wrong with the answer.
        #[source]
        source: DecodeError,
    },
    /// What was made is not there when read back.
    #[error("cannot {operation}: it was accepted, and is not there when read back")]
    Vanished {
        /// What was tried.
        operation: String,
    },
}

impl NetlinkError {
    /// The kernel's error number, when the kernel said no.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::NotPermitted { source, .. }
            | Self::MissingModule { source, .. }
            | Self::Refused { source, .. } => Some(source.errno),
            _ => None,
        }
    }

    pub(super) fn refused(operation: String, source: Refusal) -> Self {
        match source.errno {
            Errno::EPERM | Errno::EACCES => Self::NotPermitted { operation, source },
            _ => Self::Refused { operation, source },
        }
    }

    /// Says that `errno`, for the request that failed, means that the kernel lacks `module`.
    pub(super) fn meaning_missing(self, errno: Errno, module: &'static str) -> Self {
        match self {
            Self::Refused { operation, source } if source.errno == errno => {
                Self::MissingModule { module, operation, source }
            }
            other => other,
        }
    }
}

/// The kernel's no: its error number and, where it gives one, its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The error number.
    pub errno: Errno,
    /// The extended acknowledgement's text, e.g. "Specified qdisc kind is unknown."
    pub words: Option<String>,
}

impl Refusal {
    /// Reads an error message. The socket has NETLINK_CAP_ACK on, so that behind the header of the request
    /// the attributes of the extended acknowledgement follow at once (linux/netlink.h, `struct nlmsgerr`).
    pub(super) fn from_message(message: &ErrorMessage) -> Self {
        const HEADER: usize = 16;
        Self::new(message.raw_code(), message.header.get(HEADER..).unwrap_or_default())
    }

    pub(super) fn new(code: i32, attributes: &[u8]) -> Self {
        const NLMSGERR_ATTR_MSG: u16 = 1;
        let words = (attributes.len() > NLA_HEADER_SIZE)
            .then(|| Attributes::parse(attributes).ok()?.text(NLMSGERR_ATTR_MSG).ok().flatten())
            .flatten();
        Self { errno: Errno::from_raw(code.saturating_neg()), words }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.errno)?;
        match &self.words {
            Some(words) => write!(f, " (the kernel says: {})", words.trim_end_matches('.')),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}
