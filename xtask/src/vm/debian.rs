//! A VM with a real systemd: a Debian root file system on a disk, on which the package is installed and tested.
//!
//! The file system is made once, by mmdebstrap, and never written to: QEMU keeps what the guest writes for itself. What
//! changes from run to run (package, tests, modules) comes in the initramfs, which puts it into the root before it
//! hands over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpio::Archive;
use super::image::{self, BIN_DIR};
use crate::artifacts::Artifacts;
use crate::error::Error;
use crate::{dist, run, tools};

/// What the root has beyond a minimal Debian: systemd, the observers of the tests, and what the experiments that are shipped
/// are run against.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,iputils-ping,bpftool,kmod,procps,postgresql,prometheus,prometheus-alertmanager,python3,python3-psycopg2";
/// The programs of the tests. What they start of the daemon's, the package installs.
const PROGRAMS: [&str; 4] = ["chaos-tests", "chaos-daemon-failing", "chaos-tools", "chaos-worker"];
const RELEASE: &str = "bookworm";
/// Enough for the packages and for what the tests install; the file is sparse.
const SIZE: &str = "2G";

/// The disk. Delete `target/vm/debian` to make a newer one.
pub(super) fn disk() -> Result<PathBuf, Error> {
    let dir = run::vm_dir().join("debian");
    let (disk, contents) = (dir.join("root.ext4"), dir.join("packages"));
    if disk.is_file() && fs::read_to_string(&contents).is_ok_and(|packages| packages == PACKAGES) {
        return Ok(disk);
    }
    tools::require(tools::DEBIAN)?;
    eprintln!("making a Debian root file system (once)");
    let (tree, partial) = (dir.join("tree"), dir.join("partial.ext4"));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).map_err(Error::file("create", &dir))?;
    run::output(
        Command::new("mmdebstrap")
            .args(["--variant=minbase", &format!("--include={PACKAGES}")])
            // The tests that need it start it: a boot under emulation is slow enough.
            .arg("--customize-hook=chroot \"$1\" systemctl disable postgresql prometheus prometheus-alertmanager")
            .arg(RELEASE)
            .arg(&tree),
    )?;
    run::output(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(&tree).arg(&partial).arg(SIZE))?;
    fs::remove_dir_all(&tree).map_err(Error::file("remove", &tree))?;
    fs::write(&contents, PACKAGES).map_err(Error::file("write", &contents))?;
    fs::rename(&partial, &disk).map_err(Error::file("rename", &partial))?;
    Ok(disk)
}

/// The same initramfs for one machine, with the tests that it runs; without `filters`, every one.
pub(super) fn filtered(base: &Archive, filters: &[String]) -> Archive {
    let mut archive = base.clone();
    archive.file("chaos/filters", filters.join("\n").as_bytes());
    archive
}

/// The initramfs, without the kernel's modules: what mounts the disk, and what it puts there.
/// `programs` is the folder of the programs to be packed.
pub(super) fn base(built: &Artifacts, programs: &Path) -> Result<Archive, Error> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "root", "etc"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    image::add_busybox_alone(&mut archive)?;
    let tree = run::root().join("tests/systemd");
    archive.program("init", &image::read(&tree.join("init.sh"))?);
    archive.program("chaos/boot.sh", &image::read(&tree.join("boot.sh"))?);
    archive.program("chaos/provision.sh", &image::read(&run::root().join("vagrant/provision.sh"))?);
    archive.file("chaos/chaos-test.service", &image::read(&tree.join("chaos-test.service"))?);
    for file in
        ["server-reference.service", "prober-reference.service", "shop.py", "payment.py", "prometheus.yml"]
    {
        archive.file(&format!("chaos/{file}"), &image::read(&tree.join(file))?);
    }
    for name in PROGRAMS {
        archive.program(&format!("{BIN_DIR}/{name}"), &image::stripped(built.program(name)?)?);
    }
    // Beside the one with fail points there is the one that the package installs.
    archive.link(&format!("{BIN_DIR}/chaos-daemon"), "/usr/bin/chaos-daemon");
    let folder = run::vm_dir().join("deb");
    let version = env!("CARGO_PKG_VERSION");
    // Two versions of one build: what an upgrade is to dpkg and systemd.
    for (name, version) in [("this.deb", version.to_owned()), ("next.deb", format!("{version}+next"))] {
        let package = dist::package(programs, &version, &folder, dist::Packing::Quick)?;
        archive.file(&format!("chaos/{name}"), &image::read(&package)?);
    }
    Ok(archive)
}
