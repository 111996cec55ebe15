//! What goes wrong in the build tool: each variant is an operation and its subject.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

/// A failed operation of the build tool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("start {program}")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{command}: {status}{output}")]
    Status { command: String, status: ExitStatus, output: String },
    #[error("{op} {}", path.display())]
    File {
        op: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("parse {what}")]
    Json {
        what: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{0}")]
    Lacking(String),
    #[error(transparent)]
    Ebpf(#[from] crate::ebpf::EbpfError),
}

impl Error {
    /// Names the operation and the path of an I/O error: `.map_err(Error::file("read", path))`.
    pub(crate) fn file(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::File { op, path, source }
    }
}

/// Prints an error with its causes.
pub(crate) fn report(error: &Error) -> ExitCode {
    eprintln!("xtask: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        eprintln!("  because: {inner}");
        cause = inner.source();
    }
    ExitCode::from(2)
}
