//! The kernels of the VM: Debian packages, fetched through apt (which checks their signatures), unpacked, never
//! installed, and kept in `target/vm/kernels`. Those of another release of Debian than this machine's come by lists of their own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
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

/// One of them that is no module any more: Linux 6.16 has it built in under another name.
const MODULES_OF_OLD: &[&str] = &["crc32c_generic"];

/// Releases of Debian whose kernels this machine's own lists may not have, by series, and where they are.
const SUITES: &[(&str, &str)] = &[("5.10", "bullseye"), ("7.2", "sid")];
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

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
    let tree = dir.join("tree");
    let release = names(&tree.join("lib/modules"))?
        .pop()
        .ok_or_else(|| Error::Lacking(format!("no modules in {}", tree.display())))?;
    // Since 7.0 it lies beside its modules.
    let places = [tree.join("boot").join(format!("vmlinuz-{release}")), beside(&tree, &release, "vmlinuz")];
    let vmlinuz = places.into_iter().find(|path| path.is_file());
    let vmlinuz = vmlinuz.ok_or_else(|| Error::Lacking(format!("no vmlinuz in {}", tree.display())))?;
    let modules = dir.join("modules");
    stage(&tree, &release, &modules)?;
    Ok(Kernel { vmlinuz, release, modules })
}

/// A file of a kernel's folder of modules.
fn beside(tree: &Path, release: &str, name: &str) -> PathBuf {
    tree.join("lib/modules").join(release).join(name)
}

/// Where apt looks for packages: its own lists, or those of one other release.
struct Lists(Vec<String>);

impl Lists {
    /// Those of this machine.
    const fn own() -> Self {
        Self(Vec::new())
    }

    /// Those of another release, kept in a folder.
    fn of(suite: &str, folder: &Path) -> Result<Self, Error> {
        let (state, sources) = (folder.join("lists"), folder.join("sources.list"));
        let partial = state.join("partial");
        fs::create_dir_all(&partial).map_err(Error::file("create", &partial))?;
        fs::write(&sources, format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n"))
            .map_err(Error::file("write", &sources))?;
        let options = [
            format!("Dir::Etc::sourcelist={}", sources.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", state.display()),
            // What is kept of this machine's lists is none of these.
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ];
        let lists = Self(options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect());
        run::output(lists.command("apt-get").args(["update", "--quiet", "--quiet"]))?;
        Ok(lists)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.0).env("LC_ALL", "C");
        command
    }

    /// Whether a package can be downloaded.
    fn have(&self, package: &str) -> Result<bool, Error> {
        let policy = run::text(self.command("apt-cache").args(["policy", package]))?;
        Ok(policy.lines().any(|line| line.contains("Candidate:") && !line.contains("(none)")))
    }
}

fn fetch(series: &str, dir: &Path) -> Result<(), Error> {
    let suite = SUITES.iter().find(|(of, _)| *of == series).map(|(_, suite)| *suite);
    let lists = match suite {
        Some(suite) => Lists::of(suite, &dir.with_extension("lists"))?,
        None => Lists::own(),
    };
    let package = match newest(series, &lists)? {
        Some(package) => package,
        None => {
            tools::update()?;
            newest(series, &lists)?.ok_or_else(|| {
                Error::Lacking(format!(
                    "apt knows no package linux-image-{series}*-cloud-amd64: Debian {} has it",
                    suite.unwrap_or("12")
                ))
            })?
        }
    };
    // In newer ones the image is an empty package that depends on its parts.
    let release = package.trim_start_matches("linux-image-");
    let parts = ["base", "binary", "modules"].map(|part| format!("linux-{part}-{release}"));
    let mut packages = vec![package.clone()];
    for part in parts {
        if lists.have(&part)? {
            packages.push(part);
        }
    }
    eprintln!("downloading {}", packages.join(", "));
    let partial = dir.with_extension("partial");
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(Error::file("create", &partial))?;
    let download =
        || run::output(lists.command("apt-get").arg("download").args(&packages).current_dir(&partial));
    if download().is_err() {
        // Lists older than the mirror name files that are gone.
        tools::update()?;
        download()?;
    }
    let tree = partial.join("tree");
    for deb in
        names(&partial)?.into_iter().filter(|name| name.ends_with(".deb")).map(|name| partial.join(name))
    {
        run::output(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&tree))?;
        fs::remove_file(&deb).map_err(Error::file("remove", &deb))?;
    }
    // As on a machine where it is installed.
    let lib = tree.join("lib");
    if !lib.exists() {
        symlink("usr/lib", &lib).map_err(Error::file("link", &lib))?;
    }
    let _ = fs::remove_dir_all(dir);
    fs::rename(&partial, dir).map_err(Error::file("rename", &partial))
}

/// The newest signed cloud kernel of the series that apt can download.
fn newest(series: &str, lists: &Lists) -> Result<Option<String>, Error> {
    let names = run::text(lists.command("apt-cache").args(["pkgnames", &format!("linux-image-{series}")]))?;
    let mut found: Vec<&str> = names
        .lines()
        .filter(|name| name.ends_with("-cloud-amd64"))
        .filter(|name| name[format!("linux-image-{series}").len()..].starts_with('.'))
        .collect();
    found.sort_by_key(|name| numbers(name));
    for name in found.iter().rev() {
        if lists.have(name)? {
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
    for module in MODULES.iter().chain(MODULES_OF_OLD) {
        let is_it = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            name.split('.').next().is_some_and(|stem| stem.replace('-', "_") == *module)
        };
        if builtin.lines().any(is_it) {
            continue;
        }
        let line = match dependencies.lines().find(|line| line.split(':').next().is_some_and(is_it)) {
            Some(line) => line,
            None if MODULES_OF_OLD.contains(module) => continue,
            None => return Err(Error::Lacking(format!("this kernel has no module {module}"))),
        };
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
