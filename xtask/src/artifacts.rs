//! Builds the project's programs and test binaries, once for the host and the VM alike.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::error::Error;
use crate::run;

/// The executable that is most programs of the tests, by the name it is started under.
const MANY: &str = "chaos-tests";

/// What was built.
#[derive(Debug, Default)]
pub(crate) struct Artifacts {
    /// Programs: chaos-daemon, chaosctl, and those of the tests. Each name of [`MANY`] is one of them.
    pub(crate) programs: Vec<PathBuf>,
    /// One executable per file or folder in `tests/tests/`.
    pub(crate) tests: Vec<PathBuf>,
}

impl Artifacts {
    /// The folder in which the programs lie.
    pub(crate) fn bin_dir(&self) -> Result<&Path, Error> {
        self.program("chaos-daemon")?.parent().ok_or_else(|| Error::Lacking("no folder of programs".into()))
    }

    /// The program, or the executable of the suite, of this name.
    pub(crate) fn program(&self, name: &str) -> Result<&Path, Error> {
        self.programs
            .iter()
            .chain(&self.tests)
            .find(|path| suite(path) == name)
            .map(PathBuf::as_path)
            .ok_or_else(|| Error::Lacking(format!("cargo built no program {name}")))
    }

    /// A command that runs a program of the tests, which finds the others, and ends and cleans up when this process is gone
    /// (`tests/src/aftermath.rs`).
    pub(crate) fn command(&self, name: &str) -> Result<Command, Error> {
        let mut command = Command::new(self.program(name)?);
        command.env("CHAOS_BIN_DIR", self.bin_dir()?);
        command.env("CHAOS_STARTED_BY", std::process::id().to_string());
        Ok(command)
    }
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

/// Builds. Linked dynamically, because looking up users and hosts in a static program loads the host's name service
/// modules, which crash it.
pub(crate) fn build() -> Result<Artifacts, Error> {
    let suites = suites()?;
    let what: Vec<_> = std::iter::once("--bins").chain(suites.iter().map(String::as_str)).collect();
    let mut built = build_with(&what)?;
    // The daemons with fail points, and without a guard, under names of their own. Apart from the others, which must not get
    // the features; both in one build, because a feature of which nobody makes use changes nothing.
    let variants = build_with(&[
        "--bin=chaos-daemon-failing",
        "--bin=chaos-daemon-sabotaged",
        "--features=chaos-daemon/fail-points,chaos-daemon/sabotage",
    ])?;
    built.programs.extend(variants.programs);
    Ok(built)
}

/// What has cargo build the suites of chaos-tests, each by its name: those of other crates are unit tests, and have run.
fn suites() -> Result<Vec<String>, Error> {
    let folder = run::root().join("tests/tests");
    let failed = || Error::file("list", &folder);
    let mut flags = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        flags.extend(path.file_stem().map(|name| format!("--test={}", name.display())));
    }
    flags.sort();
    Ok(flags)
}

/// As [`build`], but only these executables: quicker, and the VM's image smaller.
pub(crate) fn build_programs(names: &[&str]) -> Result<Artifacts, Error> {
    let flags: Vec<_> = names.iter().map(|name| format!("--bin={name}")).collect();
    build_with(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Builds these programs optimised and dynamically linked, as an installed daemon is: for measurements.
pub(crate) fn build_release(names: &[&str]) -> Result<Artifacts, Error> {
    let mut command = cargo_build();
    command.arg("--release").args(names.iter().map(|name| format!("--bin={name}")));
    collect(&mut command)
}

/// By the profile of unit tests, so that nothing is compiled twice.
fn build_with(what: &[&str]) -> Result<Artifacts, Error> {
    collect(cargo_build().args(what))
}

fn cargo_build() -> Command {
    let mut command = run::cargo();
    command.args(["build", "--package=chaos-daemon", "--package=chaos-tests"]);
    command.arg("--message-format=json-render-diagnostics").stderr(std::process::Stdio::inherit());
    command
}

/// Builds, and takes down what cargo says it made.
fn collect(command: &mut Command) -> Result<Artifacts, Error> {
    let messages = run::text(command)?;
    let mut artifacts = Artifacts::default();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line)
            .map_err(|source| Error::Json { what: "a message of cargo".into(), source })?;
        let (Some(executable), Some(target)) = (message.executable, message.target) else { continue };
        if message.reason != "compiler-artifact" {
            continue;
        }
        if target.kind.iter().any(|kind| kind == "test") {
            artifacts.tests.push(executable);
        } else {
            if executable.ends_with(MANY) {
                artifacts.programs.extend(names_of(&executable)?);
            }
            artifacts.programs.push(executable);
        }
    }
    Ok(artifacts)
}

/// Links each name that an executable has beside it, and returns the links.
fn names_of(executable: &Path) -> Result<Vec<PathBuf>, Error> {
    let names = run::text(&mut Command::new(executable))?;
    let link = |name: &str| {
        let path = executable.with_file_name(name);
        let _ = std::fs::remove_file(&path);
        // A hard link: what looks at the processes sees each by its own name.
        std::fs::hard_link(executable, &path).map_err(Error::file("link", &path))?;
        Ok(path)
    };
    names.lines().map(link).collect()
}

/// The name of a suite: the executable's, without the hash that cargo adds.
pub(crate) fn suite(executable: &Path) -> String {
    let name = executable.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            stem.to_owned()
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_named_after_its_file() {
        assert_eq!(suite(Path::new("/x/deps/bpf-0123456789abcdef")), "bpf");
        assert_eq!(suite(Path::new("/x/kernel-tests")), "kernel-tests");
    }
}
