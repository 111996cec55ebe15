//! The programs of other projects that tests need, which package brings each, and installing what is missing.

use std::process::Command;

use crate::error::Error;
use crate::run;

/// A program we run, or copy into the VM.
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
    why: &'static str,
}

/// What host tests use to look at the kernel independently of the daemon.
pub(crate) const OBSERVERS: &[Tool] = &[
    Tool { program: "ip", package: "iproute2", why: "makes test links, observes links" },
    Tool { program: "tc", package: "iproute2", why: "observes qdiscs and filters" },
    Tool { program: "ping", package: "iputils-ping", why: "measures round trips independently" },
    Tool { program: "bpftool", package: "bpftool", why: "observes eBPF links" },
];

/// What packs the Debian package.
pub(crate) const DIST: &[Tool] = &[
    Tool { program: "dpkg-deb", package: "dpkg", why: "packs the package" },
    Tool { program: "strip", package: "binutils", why: "leaves debug information out of the package" },
    Tool { program: "gzip", package: "gzip", why: "compresses the manual pages" },
];

/// What makes the root file system of the VM with systemd.
pub(crate) const DEBIAN: &[Tool] = &[
    Tool { program: "mmdebstrap", package: "mmdebstrap", why: "makes the root of the VM with systemd" },
    Tool { program: "mke2fs", package: "e2fsprogs", why: "puts that root on a disk" },
];

/// What boots the VM.
pub(crate) const VM: &[Tool] = &[
    Tool { program: "qemu-system-x86_64", package: "qemu-system-x86", why: "runs the test kernels" },
    Tool { program: "depmod", package: "kmod", why: "indexes the modules of the test kernels" },
    Tool { program: "xz", package: "xz-utils", why: "decompresses the modules of the test kernels" },
    Tool { program: "busybox", package: "busybox-static", why: "is the VM's shell and modprobe" },
    Tool { program: "dpkg-deb", package: "dpkg", why: "unpacks the kernel packages" },
];

/// Makes sure that every tool is there: installs with apt-get when we are root, else names what is missing.
pub(crate) fn require(tools: &[Tool]) -> Result<(), Error> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| run::find(tool.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    packages.dedup();
    for tool in &missing {
        eprintln!("missing {} (package {}): {}", tool.program, tool.package, tool.why);
    }
    if !is_root() || run::find("apt-get").is_none() {
        return Err(Error::Lacking(format!("install {} and try again", packages.join(" "))));
    }
    eprintln!("installing {}", packages.join(" "));
    let install = || {
        run::output(
            Command::new("apt-get")
                .args(["install", "-y", "-q", "--no-install-recommends"])
                .args(&packages)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    };
    if install().is_err() {
        // A fresh machine has no package lists, or lists too old to download from.
        update()?;
        install()?;
    }
    match missing.iter().find(|tool| run::find(tool.program).is_none()) {
        None => Ok(()),
        Some(tool) => Err(Error::Lacking(format!("package {} did not bring {}", tool.package, tool.program))),
    }
}

/// Fetches the package lists.
pub(crate) fn update() -> Result<(), Error> {
    run::output(Command::new("apt-get").args(["update", "-q"])).map(drop)
}

/// Whether we may change namespaces and install packages.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
