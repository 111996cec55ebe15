//! Running other programs, and where things are in the tree.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// `target/vm`: kernels, images, consoles.
pub(crate) fn vm_dir() -> PathBuf {
    root().join("target/vm")
}

/// Cargo, as the one that started us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs to the end and returns what it wrote to standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| start_error(command, source))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = format!("\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    Err(Error::Status { command: words(command), status: output.status, output: text })
}

/// As [`output`], as text.
pub(crate) fn text(command: &mut Command) -> Result<String, Error> {
    output(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Names the program that could not be started.
pub(crate) fn start_error(command: &Command, source: std::io::Error) -> Error {
    Error::Start { program: command.get_program().to_string_lossy().into_owned(), source }
}

fn words(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Where a program is on PATH (and in the sbin folders, which a user's PATH may lack).
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}
