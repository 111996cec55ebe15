//! Builds the eBPF object, and checks that the committed one is what its source makes.
//!
//! The object is committed so that nobody needs a BPF toolchain to build the daemon. What keeps that honest is the
//! lock file beside it: which source, which toolchain, which bytes.

mod build;
mod lock;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use crate::error::Error;
use crate::run;
use clap::Subcommand;

use lock::Lock;
use toolchain::Toolchain;

/// What to do with the object.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Builds the object anew and writes it and its lock file.
    Build,
    /// Checks that source and object are those of the lock file and, given the toolchain of the lock file, that
    /// they belong together.
    Check,
}

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EbpfError {
    #[error("{operation} {}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("reading {}", path.display())]
    Toml {
        path: PathBuf,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("writing the lock file")]
    Lock(#[source] toml::ser::Error),
    #[error(
        "no Rust toolchain with the source of the standard library (looked at: {seen}). Install one with `rustup toolchain \
         install nightly --component rust-src`, or Debian's rustc-web, cargo-web and rust-web-src"
    )]
    NoToolchain { seen: String },
    #[error("{tool} is missing: {remedy}")]
    NoTool { tool: &'static str, remedy: &'static str },
    #[error("running {}", program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} failed: {complaint}", program.display())]
    Failed { program: PathBuf, complaint: String },
    #[error("the source of the eBPF object changed since it was built: run `cargo xtask ebpf build`")]
    SourceChanged,
    #[error("the eBPF object is not the one of its lock file: run `cargo xtask ebpf build`")]
    ObjectChanged,
    #[error(
        "the eBPF object is not what its source makes with the pinned toolchain: run `cargo xtask ebpf build`"
    )]
    NotReproduced,
}

/// Runs a task on this checkout.
pub(crate) fn main(task: &Task) -> Result<ExitCode, Error> {
    let root = run::root();
    match task {
        Task::Build => build(&root)?,
        Task::Check => check(&root)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn object_path(root: &Path) -> PathBuf {
    root.join("chaos-ebpf/prebuilt/chaos.bpfel.o")
}

fn build(root: &Path) -> Result<(), EbpfError> {
    let pinned = Lock::read(root).ok();
    let toolchain = Toolchain::find(pinned.as_ref().map(|lock| &lock.toolchain))?;
    println!("building with {}", toolchain.versions);
    let object = build::object(root, &toolchain, &root.join("target/ebpf"))?;
    let path = object_path(root);
    write(&path, &object)?;
    Lock::new(root, &object, toolchain.versions)?.write(root)?;
    println!("wrote {} ({} bytes)", path.display(), object.len());
    Ok(())
}

fn check(root: &Path) -> Result<(), EbpfError> {
    let lock = Lock::read(root)?;
    if lock::source_hash(root)? != lock.source_sha256 {
        return Err(EbpfError::SourceChanged);
    }
    let committed = read(&object_path(root))?;
    if lock::hash(&committed) != lock.object_sha256 {
        return Err(EbpfError::ObjectChanged);
    }
    println!("ok: source and object are those of the lock file");
    let toolchain = match Toolchain::find(Some(&lock.toolchain)) {
        Ok(toolchain) if toolchain.versions == lock.toolchain => toolchain,
        other => {
            let found =
                other.map_or_else(|error| format!("none ({error})"), |found| found.versions.to_string());
            println!("skipped: rebuild: toolchain {found} is not the pinned {}", lock.toolchain);
            return Ok(());
        }
    };
    let scratch = tempfile::tempdir().map_err(file("creating", &std::env::temp_dir()))?;
    if build::object(root, &toolchain, scratch.path())? != committed {
        return Err(EbpfError::NotReproduced);
    }
    println!("ok: rebuilt with {}, byte for byte the same", toolchain.versions);
    Ok(())
}

fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EbpfError {
    let path = path.to_owned();
    move |source| EbpfError::File { operation, path, source }
}

fn read(path: &Path) -> Result<Vec<u8>, EbpfError> {
    fs::read(path).map_err(file("reading", path))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), EbpfError> {
    fs::write(path, bytes).map_err(file("writing", path))
}
