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
    within_tree(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())))
}

/// A program that runs cargo, at the root of the tree.
pub(crate) fn within_tree(mut command: Command) -> Command {
    command.current_dir(root());
    // `cargo run` describes this package by them, and build scripts that look at them would run again each time.
    for (name, _) in std::env::vars_os() {
        let about_us = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if name.to_str().is_some_and(|name| about_us.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command
}

/// A program that is killed when the thread that starts it ends, however that ends (`PR_SET_PDEATHSIG`, prctl(2)): nothing
/// that can run for an hour is to outlive who reads its results.
pub(crate) fn bound(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_that_is_bound_is_killed_when_who_started_it_ends() {
        const KILL: i32 = 9;
        let start = || {
            let mut command = bound("sh");
            let mut child = command.args(["-c", "echo up; exec sleep 60"]).stdout(Stdio::piped()).spawn()?;
            // Before it says something it may not be bound yet.
            let mut line = String::new();
            child.stdout.as_mut().map(|output| BufReader::new(output).read_line(&mut line)).transpose()?;
            Ok::<_, std::io::Error>((child, line))
        };
        let (mut child, line) = std::thread::spawn(start).join().unwrap().unwrap();
        assert_eq!(line, "up\n");
        assert_eq!(child.wait().unwrap().signal(), Some(KILL));
    }
}
