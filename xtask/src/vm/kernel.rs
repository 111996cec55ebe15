//! The kernels of the VM: Debian packages, fetched through apt (which checks their signatures), unpacked, never
//! installed, and kept in `target/vm/kernels`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::{run, tools};

/// Modules that tests and faults need; the closure of their dependencies comes along. Nothing loads them by hand:
/// the kernel asks modprobe, as on a real host.
const MODULES: &[&str] = &[
    "act_bpf",
    "act_mirred",
    "cls_bpf",
    "crc32c_generic",
    "dummy",
    "ext4",
    "ifb",
    "loop",
    "overlay",
    "sch_fq",
    "sch_htb",
    "sch_ingress",
    "sch_netem",
    "sch_tbf",
    "veth",
    "virtio_blk",
    "virtio_pci",
    "vsock",
    "vsock_loopback",
];

/// An unpacked kernel.
pub(crate) struct Kernel {
    /// As `uname -r`.
    pub(crate) release: String,
    /// The compressed kernel image.
    pub(crate) vmlinuz: PathBuf,
    /// Folder that holds `lib/modules/<release>` with the modules of the image, decompressed and indexed.
    pub(crate) modules: PathBuf,
}

/// Finds or fetches the newest kernel of a series such as "6.1". A fetched one is kept: delete
/// `target/vm/kernels/<series>` to look for a newer.
pub(crate) fn obtain(series: &str) -> Result<Kernel, Error> {
    let dir = run::vm_dir().join("kernels").join(series);
    if !dir.join("tree").is_dir() {
        fetch(series, &dir)?;
    }
    let boot = dir.join("tree/boot");
    let release = names(&boot)?
        .into_iter()
        .find_map(|name| name.strip_prefix("vmlinuz-").map(str::to_owned))
        .ok_or_else(|| Error::Lacking(format!("no vmlinuz in {}", boot.display())))?;
    let modules = dir.join("modules");
    stage(&dir.join("tree"), &release, &modules)?;
    Ok(Kernel { vmlinuz: boot.join(format!("vmlinuz-{release}")), release, modules })
}

fn fetch(series: &str, dir: &Path) -> Result<(), Error> {
    let package = match newest(series)? {
        Some(package) => package,
        None => {
            tools::update()?;
            newest(series)?.ok_or_else(|| {
                Error::Lacking(format!(
                    "apt knows no package linux-image-{series}*-cloud-amd64: Debian 12 has it"
                ))
            })?
        }
    };
    eprintln!("downloading {package}");
    let partial = dir.with_extension("partial");
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(Error::file("create", &partial))?;
    let download =
        || run::output(Command::new("apt-get").arg("download").arg(&package).current_dir(&partial));
    if download().is_err() {
        // Lists older than the mirror name files that are gone.
        tools::update()?;
        download()?;
    }
    let deb = names(&partial)?
        .into_iter()
        .find(|name| name.ends_with(".deb"))
        .ok_or_else(|| Error::Lacking(format!("apt-get download left no package of {package}")))?;
    run::output(Command::new("dpkg-deb").arg("-x").arg(partial.join(&deb)).arg(partial.join("tree")))?;
    fs::remove_file(partial.join(&deb)).map_err(Error::file("remove", &partial.join(&deb)))?;
    let _ = fs::remove_dir_all(dir);
    fs::rename(&partial, dir).map_err(Error::file("rename", &partial))
}

/// The newest signed cloud kernel of the series that apt can download.
fn newest(series: &str) -> Result<Option<String>, Error> {
    let names = run::text(Command::new("apt-cache").args(["pkgnames", &format!("linux-image-{series}")]))?;
    let mut found: Vec<&str> = names
        .lines()
        .filter(|name| name.ends_with("-cloud-amd64"))
        .filter(|name| name[format!("linux-image-{series}").len()..].starts_with('.'))
        .collect();
    found.sort_by_key(|name| numbers(name));
    for name in found.iter().rev() {
        let policy = run::text(Command::new("apt-cache").args(["policy", name]).env("LC_ALL", "C"))?;
        if policy.lines().any(|line| line.contains("Candidate:") && !line.contains("(none)")) {
            return Ok(Some((*name).to_owned()));
        }
    }
    Ok(None)
}

/// The numbers in a name: what versions sort by.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Copies the closure of [`MODULES`], decompressed, and indexes it for modprobe.
fn stage(tree: &Path, release: &str, staged: &Path) -> Result<(), Error> {
    let from = tree.join("lib/modules").join(release);
    let to = staged.join("lib/modules").join(release);
    if !from.join("modules.dep").is_file() {
        run::output(Command::new("depmod").arg("-b").arg(tree).arg(release))?;
    }
    let _ = fs::remove_dir_all(staged);
    fs::create_dir_all(&to).map_err(Error::file("create", &to))?;
    let read = |name: &str| {
        let path = from.join(name);
        fs::read_to_string(&path).map_err(Error::file("read", &path))
    };
    let (dependencies, builtin) = (read("modules.dep")?, read("modules.builtin")?);
    for path in closure(&dependencies, &builtin)? {
        let source = from.join(&path);
        let content = match path.strip_suffix(".xz") {
            Some(_) => run::output(Command::new("xz").arg("-dc").arg(&source))?,
            None => fs::read(&source).map_err(Error::file("read", &source))?,
        };
        let name = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".xz");
        fs::write(to.join(name), content).map_err(Error::file("write", &to.join(name)))?;
    }
    for name in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        fs::copy(from.join(name), to.join(name)).map_err(Error::file("copy", &from.join(name)))?;
    }
    run::output(Command::new("depmod").arg("-b").arg(staged).arg(release)).map(drop)
}

/// The files of [`MODULES`] and all they depend on, from lines `path: path path`. Built-in ones need no file.
fn closure(dependencies: &str, builtin: &str) -> Result<BTreeSet<String>, Error> {
    let mut files = BTreeSet::new();
    for module in MODULES {
        let is_it = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            name.split('.').next().is_some_and(|stem| stem.replace('-', "_") == *module)
        };
        if builtin.lines().any(is_it) {
            continue;
        }
        let line = dependencies
            .lines()
            .find(|line| line.split(':').next().is_some_and(is_it))
            .ok_or_else(|| Error::Lacking(format!("this kernel has no module {module}")))?;
        files.extend(line.split([':', ' ']).filter(|part| !part.is_empty()).map(str::to_owned));
    }
    Ok(files)
}

/// The names in a folder.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(dir).map_err(Error::file("list", dir))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_numbers() {
        assert!(numbers("linux-image-6.1.0-9-cloud") < numbers("linux-image-6.1.0-56-cloud"));
        assert!(numbers("linux-image-6.12.95+deb12-cloud") < numbers("linux-image-6.12.117+deb12-cloud"));
    }
}
