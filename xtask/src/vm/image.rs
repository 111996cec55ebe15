//! What goes into the initramfs: our programs, busybox, a few independent observers, the libraries of all, and the
//! kernel's modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::cpio::Archive;
use super::jobs::{self, Job};
use super::kernel::{self, Kernel};
use crate::artifacts::{Artifacts, suite};
use crate::error::Error;
use crate::run;
use crate::test::Share;

/// Where our programs are in the image. `vm-init` sets `CHAOS_BIN_DIR` to it.
pub(super) const BIN_DIR: &str = "/chaos/bin";

/// The suites that a VM runs: those whose outcome depends on the kernel. The others need no second kernel and may need
/// what the image lacks; `cargo xtask test` runs every suite in its steps "host" and "servers".
const KERNEL_SUITES: &[&str] = &["bpf", "netlink", "kernel-tests"];

/// Programs of other projects, copied with the libraries they need: the tests' second opinion.
const OBSERVERS: &[&str] = &["ip", "tc", "ping", "bpftool", "mkfs.ext4"];

/// Names of tests that are left out, one a line.
pub(super) const LEFT_OUT: &str = "etc/left-out";

/// Runs a share of the tests of the suites of the kernel, or those of these names, but for what [`LEFT_OUT`] names.
pub(super) fn test_command(filters: &[String], names: &[String], share: Share) -> Vec<String> {
    let mut argv = vec![format!("{BIN_DIR}/test-runner"), format!("--results={}", super::RESULTS)];
    argv.push(format!("--partition={share}"));
    argv.extend(names.iter().map(|name| format!("--cell={name}")));
    argv.push(format!("--leave-out=/{LEFT_OUT}"));
    argv.extend(filters.iter().map(|filter| format!("--filter={filter}")));
    argv.extend(KERNEL_SUITES.iter().map(|name| format!("{BIN_DIR}/{name}")));
    argv
}

/// The part of the image that every kernel shares. `extra` is a file to bring along.
pub(super) fn base(built: &Artifacts, extra: Option<&Path>) -> Result<Archive, Error> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "run", "tmp", "root", "var", "etc", "mnt"] {
        archive.folder(folder);
    }
    // PID 1's standard streams, before devtmpfs is mounted.
    archive.device("dev/console", 5, 1);
    archive.link("var/run", "/run");
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nchaos:x:990:990::/run:/bin/false\nnobody:x:65534:65534::/:/bin/false\n");
    archive.file("etc/group", b"root:x:0:\nchaos:x:990:\nnogroup:x:65534:\n");
    archive.file("etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n");
    archive.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n");

    let mut libraries = BTreeSet::new();
    let mut programs: BTreeSet<&Path> = built.programs.iter().map(PathBuf::as_path).collect();
    // A demonstration builds programs only.
    if !built.tests.is_empty() {
        for name in KERNEL_SUITES {
            programs.insert(built.program(name)?);
        }
    }
    for names in one_by_one(&programs)? {
        let packed: Vec<_> = names.iter().map(|path| format!("{BIN_DIR}/{}", suite(path))).collect();
        archive.program_of_many_names(&packed, &stripped(names[0])?);
        libraries.extend(libraries_of(names[0])?);
    }
    if let Some(path) = extra {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        archive.program(&format!("{BIN_DIR}/{name}"), &read(path)?);
        libraries.extend(libraries_of(path)?);
    }
    add_busybox(&mut archive, &mut libraries)?;
    for name in OBSERVERS {
        let path = run::find(name).ok_or_else(|| Error::Lacking(format!("{name} is not installed")))?;
        archive.program(&format!("usr/bin/{name}"), &read(&path)?);
        libraries.extend(libraries_of(&path)?);
    }
    add_libraries(&mut archive, libraries)?;
    Ok(archive)
}

/// The paths of each file: more than one where they are hard links.
fn one_by_one<'a>(paths: &BTreeSet<&'a Path>) -> Result<Vec<Vec<&'a Path>>, Error> {
    let mut files: BTreeMap<u64, Vec<&Path>> = BTreeMap::new();
    for path in paths {
        let inode = fs::metadata(path).map_err(Error::file("look at", path))?.ino();
        files.entry(inode).or_default().push(path);
    }
    Ok(files.into_values().collect())
}

/// A program without its debug information: the VM unpacks the image into its memory.
pub(super) fn stripped(path: &Path) -> Result<Vec<u8>, Error> {
    let folder = tempfile::tempdir().map_err(Error::file("make a folder in", &std::env::temp_dir()))?;
    // Not through a pipe: some versions of strip go back in what they have written.
    let to = folder.path().join("stripped");
    run::output(Command::new("strip").args(["--strip-debug", "-o"]).arg(&to).arg(path))?;
    read(&to)
}

/// busybox, with nothing else: for an initramfs that only mounts the root.
pub(super) fn add_busybox_alone(archive: &mut Archive) -> Result<(), Error> {
    let mut libraries = BTreeSet::new();
    add_busybox(archive, &mut libraries)?;
    add_libraries(archive, libraries)
}

fn add_libraries(archive: &mut Archive, libraries: BTreeSet<PathBuf>) -> Result<(), Error> {
    for library in libraries {
        archive.program(&library.to_string_lossy(), &read(&library)?);
    }
    Ok(())
}

/// Writes the image of one kernel: the shared part, the jobs that `vm-init` is to do until then, if any, and the kernel's modules.
pub(super) fn write(
    base: &Archive,
    kernel: &Kernel,
    jobs: &[Job],
    until: Option<Instant>,
    to: &Path,
) -> Result<(), Error> {
    let mut archive = base.clone();
    if !jobs.is_empty() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        archive.file("chaos/jobs", jobs::list(jobs, left).as_bytes());
    }
    for (path, text) in jobs.iter().flat_map(|job| &job.files) {
        archive.file(path, text.as_bytes());
    }
    let folder = format!("lib/modules/{}", kernel.release);
    let from = kernel.modules.join(&folder);
    for name in kernel::names(&from)? {
        archive.file(&format!("{folder}/{name}"), &read(&from.join(&name))?);
    }
    fs::write(to, archive.finish()).map_err(Error::file("write", to))
}

fn add_busybox(archive: &mut Archive, libraries: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
    let path = run::find("busybox").ok_or_else(|| Error::Lacking("busybox is not installed".into()))?;
    archive.program("bin/busybox", &read(&path)?);
    libraries.extend(libraries_of(&path)?);
    for applet in run::text(Command::new(&path).arg("--list"))?.lines().filter(|name| *name != "busybox") {
        archive.link(&format!("bin/{applet}"), "/bin/busybox");
    }
    // Where the kernel looks when it wants a module (/proc/sys/kernel/modprobe).
    archive.link("sbin/modprobe", "/bin/busybox");
    Ok(())
}

/// The shared libraries and the loader of a program, at the paths where the loader looks for them.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, Error> {
    // ldd fails on a static program, for which there is nothing to copy.
    let Ok(listing) = run::text(Command::new("ldd").arg(program).env("LC_ALL", "C")) else {
        return Ok(Vec::new());
    };
    if let Some(line) = listing.lines().find(|line| line.contains("not found")) {
        return Err(Error::Lacking(format!("a library of {}: {}", program.display(), line.trim())));
    }
    Ok(listing
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect())
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::file("read", path))
}
