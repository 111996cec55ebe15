//! What goes wrong in test tooling, as opposed to in what is tested.

use std::io;
use std::time::Duration;

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
    /// Something did not happen in time.
    #[error("{what} not within {after:?}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
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
