//! `cargo xtask dist`: the release programs, and a Debian package of them with the units, the policy, the manual pages
//! and the shell completions. The package is a tree that is laid out here and packed by dpkg-deb.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::error::Error;
use crate::{run, tools};

/// What it installs in `/usr/bin`.
pub(crate) const PROGRAMS: [&str; 2] = ["chaos-daemon", "chaosctl"];

/// From the tree into the package, as they are.
const FILES: &[(&str, &str)] = &[
    ("systemd/chaos-daemon.service", "usr/lib/systemd/system/chaos-daemon.service"),
    ("systemd/chaos-daemon-guard.service", "usr/lib/systemd/system/chaos-daemon-guard.service"),
    ("systemd/chaos-daemon.socket", "usr/lib/systemd/system/chaos-daemon.socket"),
    ("systemd/sysusers.d/chaos-daemon.conf", "usr/lib/sysusers.d/chaos-daemon.conf"),
    ("systemd/tmpfiles.d/chaos-daemon.conf", "usr/lib/tmpfiles.d/chaos-daemon.conf"),
    ("systemd/policy.toml", POLICY),
    ("README.md", "usr/share/doc/chaos-daemon/README.md"),
    ("docs/faults.md", "usr/share/doc/chaos-daemon/docs/faults.md"),
    ("docs/experiments.md", "usr/share/doc/chaos-daemon/docs/experiments.md"),
    ("docs/operating.md", "usr/share/doc/chaos-daemon/docs/operating.md"),
    ("docs/limits.md", "usr/share/doc/chaos-daemon/docs/limits.md"),
    ("docs/clients.md", "usr/share/doc/chaos-daemon/docs/clients.md"),
    (
        "clients/.claude-plugin/marketplace.json",
        "usr/share/chaos-daemon/clients/.claude-plugin/marketplace.json",
    ),
    (
        "clients/claude-code/.claude-plugin/plugin.json",
        "usr/share/chaos-daemon/clients/claude-code/.claude-plugin/plugin.json",
    ),
    ("clients/claude-code/.mcp.json", "usr/share/chaos-daemon/clients/claude-code/.mcp.json"),
    ("clients/claude-code/hooks/hooks.json", "usr/share/chaos-daemon/clients/claude-code/hooks/hooks.json"),
    (
        "clients/claude-code/skills/chaos-rules/SKILL.md",
        "usr/share/chaos-daemon/clients/claude-code/skills/chaos-rules/SKILL.md",
    ),
    ("CHANGELOG.md", "usr/share/doc/chaos-daemon/CHANGELOG.md"),
    ("LICENSE", "usr/share/doc/chaos-daemon/copyright"),
];
/// The operator's to change: dpkg asks before it replaces one that was.
const POLICY: &str = "etc/chaos-daemon/policy.toml";

/// Where each shell looks for the completions of a program.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/chaosctl"),
    ("zsh", "usr/share/zsh/vendor-completions/_chaosctl"),
    ("fish", "usr/share/fish/vendor_completions.d/chaosctl.fish"),
];

pub(crate) fn main() -> Result<ExitCode, Error> {
    let programs = build()?;
    let package =
        package(&programs, env!("CARGO_PKG_VERSION"), &run::root().join("target/dist"), Packing::Small)?;
    println!("{}", package.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the release programs; returns the folder they are in. Not static: a static C library could not look up
/// host names the way that the host is set up for.
pub(crate) fn build() -> Result<PathBuf, Error> {
    let mut command = run::cargo();
    command.args(["build", "--profile=dist", "--package=chaos-daemon", "--bins"]);
    let status = command.status().map_err(|source| run::start_error(&command, source))?;
    if !status.success() {
        let output = String::new();
        return Err(Error::Status { command: "cargo build --profile=dist".into(), status, output });
    }
    Ok(run::root().join("target/dist"))
}

/// How a package is compressed (dpkg-deb(1)).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Packing {
    /// As Debian does: as small as can be.
    Small,
    /// In a few seconds: it is installed on this machine's VM and nowhere else.
    Quick,
}

impl Packing {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Small => &[],
            Self::Quick => &["-Zgzip", "-z1"],
        }
    }
}

/// Packs the programs as this version into `folder`; returns the package.
pub(crate) fn package(
    programs: &Path,
    version: &str,
    folder: &Path,
    packing: Packing,
) -> Result<PathBuf, Error> {
    tools::require(tools::DIST)?;
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(&tree);
    let mut needed = (2, 0);
    for name in PROGRAMS {
        let to = place(&tree, &format!("usr/bin/{name}"))?;
        run::output(
            Command::new("strip").arg("--strip-unneeded").arg("-o").arg(&to).arg(programs.join(name)),
        )?;
        set_mode(&to, 0o755)?;
        needed = needed.max(newest_glibc(&fs::read(&to).map_err(Error::file("read", &to))?));
    }
    for (from, to) in FILES {
        let from = run::root().join(from);
        write(&tree, to, &fs::read(&from).map_err(Error::file("read", &from))?)?;
    }
    for (shell, to) in COMPLETIONS {
        let script = run::output(Command::new(programs.join("chaosctl")).args(["completions", shell]))?;
        write(&tree, to, &script)?;
    }
    add_manual(programs, &tree)?;
    add_control(&tree, version, needed)?;
    let package = folder.join(format!("chaos-daemon_{version}_amd64.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(packing.options()).args(["--root-owner-group", "--build"]).arg(&tree).arg(&package);
    run::output(&mut command)?;
    fs::remove_dir_all(&tree).map_err(Error::file("remove", &tree))?;
    Ok(package)
}

/// A manual page for each program and each of its commands.
fn add_manual(programs: &Path, tree: &Path) -> Result<(), Error> {
    let folder = tree.join("usr/share/man/man1");
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    for name in PROGRAMS {
        run::output(Command::new(programs.join(name)).arg("manual").arg(&folder))?;
    }
    for page in fs::read_dir(&folder).map_err(Error::file("list", &folder))?.flatten() {
        set_mode(&page.path(), 0o644)?;
        // Without a time stamp: the same sources make the same package.
        run::output(Command::new("gzip").arg("-9n").arg(page.path()))?;
    }
    Ok(())
}

/// What dpkg reads: the description, the list of the operator's files, and the scripts.
fn add_control(tree: &Path, version: &str, (major, minor): (u32, u32)) -> Result<(), Error> {
    let from = run::root().join("systemd/deb");
    let read = |name: &str| {
        let path = from.join(name);
        fs::read_to_string(&path).map_err(Error::file("read", &path))
    };
    let control =
        read("control")?.replace("@VERSION@", version).replace("@GLIBC@", &format!("{major}.{minor}"));
    write(tree, "DEBIAN/control", control.as_bytes())?;
    write(tree, "DEBIAN/conffiles", format!("/{POLICY}\n").as_bytes())?;
    for script in ["postinst", "prerm", "postrm"] {
        let name = format!("DEBIAN/{script}");
        write(tree, &name, read(script)?.as_bytes())?;
        set_mode(&tree.join(name), 0o755)?;
    }
    Ok(())
}

/// The newest version of the C library that a program asks for: its symbols carry the version that brought them.
fn newest_glibc(program: &[u8]) -> (u32, u32) {
    const PREFIX: &[u8] = b"GLIBC_";
    let at = program.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    at.filter_map(|(at, _)| {
        let rest = &program[at + PREFIX.len()..];
        let text = std::str::from_utf8(rest.split(|byte| *byte == 0).next()?).ok()?;
        let mut numbers = text.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
    .max()
    .unwrap_or((2, 0))
}

/// The path of a file in the tree, whose folder is made.
fn place(tree: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = tree.join(name);
    // Modes do not depend on the umask of who builds.
    let mut folder = tree.to_path_buf();
    for part in Path::new(name).parent().into_iter().flat_map(Path::components) {
        folder.push(part);
        fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        set_mode(&folder, 0o755)?;
    }
    Ok(path)
}

fn write(tree: &Path, name: &str, content: &[u8]) -> Result<(), Error> {
    let path = place(tree, name)?;
    fs::write(&path, content).map_err(Error::file("write", &path))?;
    set_mode(&path, 0o644)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::file("set the mode of", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_version_counts_as_numbers() {
        let program = b"\0GLIBC_2.4\0x\0GLIBC_2.34\0GLIBC_2.3.4\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(program), (2, 34));
    }
}
