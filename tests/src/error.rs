//! What goes wrong in test tooling, as opposed to in what is tested.

use std::io;
use std::time::Duration;

use crate::late;

/// Result of test tooling.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation of a guard or a measurement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call or file operation.
    #[error("{op} {subject}: {source}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// On what.
        subject: String,
        /// Why it failed. Printed with the rest: a test's failure is one line.
        source: io::Error,
    },
    /// A helper program said no.
    #[error("{command}: {output}")]
    Command {
        /// The command line.
        command: String,
        /// What it wrote.
        output: String,
    },
    /// Something did not happen in the time that is promised for it. A busy machine may be the reason.
    #[error("{}{what} not within {after:?}", late::MARK)]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// Something did not happen in a time that only a hang reaches.
    #[error("{what} not within {:?}, which only a hang takes", late::HANG)]
    Hung {
        /// What was waited for.
        what: String,
    },
    /// The daemon's answer was not one.
    #[error("MCP {what}: {problem}")]
    Mcp {
        /// Which call.
        what: String,
        /// What was wrong.
        problem: String,
    },
    /// Something differs that should not.
    #[error("{0}")]
    Different(String),
}

impl Error {
    /// For a wait of so long in vain: no promise is as long as a hang.
    pub fn in_vain(what: impl Into<String>, after: Duration) -> Self {
        let what = what.into();
        if after < late::HANG { Self::Late { what, after } } else { Self::Hung { what } }
    }

    /// Whether something was late, and nothing else is wrong: also if that is told as a part of something else.
    pub fn is_late(&self) -> bool {
        self.to_string().contains(late::MARK)
    }

    /// `.map_err(Error::io("open", path))`
    pub fn io(op: &'static str, subject: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let subject = subject.into();
        move |source| Self::Io { op, subject, source }
    }

    /// As [`Error::io`], for nix.
    pub fn sys(op: &'static str, subject: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        let subject = subject.into();
        move |errno| Self::Io { op, subject, source: errno.into() }
    }
}
