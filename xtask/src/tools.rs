//! The programs of other projects that tests need, which package brings each, and installing what is missing.

use std::process::Command;
use std::sync::Mutex;

use crate::error::Error;
use crate::run;

/// A program we run, or copy into the VM.
pub(crate) struct Tool {
    program: &'static str,
    /// Arguments with which the program succeeds only when all of the package is there; empty: it need not be run.
    probe: &'static [&'static str],
    package: &'static str,
    why: &'static str,
}

impl Tool {
    const fn new(program: &'static str, package: &'static str, why: &'static str) -> Self {
        Self { program, probe: &[], package, why }
    }

    fn is_there(&self) -> bool {
        let Some(path) = run::find(self.program) else { return false };
        self.probe.is_empty() || run::output(Command::new(path).args(self.probe)).is_ok()
    }
}

/// What host tests use to look at the kernel independently of the daemon.
pub(crate) const OBSERVERS: &[Tool] = &[
    Tool::new("ip", "iproute2", "makes test links, observes links"),
    Tool::new("tc", "iproute2", "observes qdiscs and filters"),
    Tool::new("ping", "iputils-ping", "measures round trips independently"),
    Tool::new("bpftool", "bpftool", "observes eBPF links"),
    Tool::new("mkfs.ext4", "e2fsprogs", "makes the disks of tests"),
];

/// What tests use on the host alone: real servers that probes are tried on (84 MB to download, 573 MB on disk), and who else
/// has rules in the kernel.
pub(crate) const HOST: &[Tool] = &[
    Tool::new("nft", "nftables", "makes tables of somebody else's"),
    Tool::new("prometheus", "prometheus", "is asked for numbers by probes"),
    Tool::new("prometheus-alertmanager", "prometheus-alertmanager", "is asked for alerts by probes"),
    Tool::new("dnsmasq", "dnsmasq-base", "is asked for names by probes"),
    Tool::new("nginx", "nginx-light", "is asked by probes, also over TLS"),
    // Its programs are in no directory where a shell looks.
    Tool {
        program: "dpkg-query",
        probe: &["--show", "postgresql"],
        package: "postgresql",
        why: "has a port that probes are tried on",
    },
    Tool::new("openssl", "openssl", "makes certificates for it"),
    Tool::new("journalctl", "systemd", "is asked for entries of a journal by the daemon"),
    Tool {
        program: "dpkg-query",
        probe: &["--show", "systemd-journal-remote"],
        package: "systemd-journal-remote",
        why: "makes a journal that probes are tried on",
    },
];

/// What the measurements compare us with.
pub(crate) const PEERS: &[Tool] = &[
    Tool::new("bash", "bash", "runs the scripts we are compared with"),
    Tool::new("iptables", "iptables", "blocks by rules, to compare with"),
    Tool::new("nft", "nftables", "blocks by sets, to compare with"),
    Tool::new("stress-ng", "stress-ng", "uses processor time, to compare with"),
];

/// What builds kube-apiserver: 81 MB to download, 453 MB on disk.
pub(crate) const GO: &[Tool] = &[Tool::new("go", "golang-go", "builds the API server of Kubernetes")];

/// What probes of Kubernetes are tried on, beside kube-apiserver (17 MB to download, 66 MB on disk).
pub(crate) const KUBERNETES: &[Tool] = &[
    Tool::new("etcd", "etcd-server", "keeps what the API server of Kubernetes has"),
    Tool::new("kubectl", "kubernetes-client", "says what is ready, to compare with"),
    Tool::new("openssl", "openssl", "makes certificates for it"),
];

/// What runs the official Python client. Debian's python3 alone cannot make the folder for other people's packages.
pub(crate) const PYTHON: &[Tool] = &[Tool {
    program: "python3",
    probe: &["-c", "import ensurepip, venv"],
    package: "python3-venv",
    why: "runs the official MCP client",
}];

/// What reports are looked at with: 130 MB to download.
pub(crate) const BROWSER: &[Tool] = &[
    Tool::new("chromium", "chromium", "draws the pages of reports"),
    Tool::new("chromedriver", "chromium-driver", "tells the browser what to do"),
    Tool::new("pandoc", "pandoc", "writes the reports of Chaos Toolkit"),
    Tool {
        program: "dpkg-query",
        probe: &["--show", "libcairo2"],
        package: "libcairo2",
        why: "draws charts for the reports of Chaos Toolkit",
    },
];

/// What checks the Vagrantfile: 18.9 MB to download, 89.7 MB on disk. The plug-in is what knows the settings of the libvirt
/// provider; it needs no libvirt for that.
pub(crate) const VAGRANT: &[Tool] = &[
    Tool::new("vagrant", "vagrant", "checks the Vagrantfile"),
    Tool {
        program: "dpkg-query",
        probe: &["--show", "vagrant-libvirt"],
        package: "vagrant-libvirt",
        why: "knows the settings of the libvirt provider",
    },
];

/// What builds libFuzzer.
pub(crate) const FUZZ: &[Tool] = &[Tool::new("c++", "g++", "builds libFuzzer")];

/// What packs the Debian package.
pub(crate) const DIST: &[Tool] = &[
    Tool::new("dpkg-deb", "dpkg", "packs the package"),
    Tool::new("strip", "binutils", "leaves debug information out of the package"),
    Tool::new("gzip", "gzip", "compresses the manual pages"),
];

/// What makes the root file system of the VM with systemd.
pub(crate) const DEBIAN: &[Tool] = &[
    Tool::new("mmdebstrap", "mmdebstrap", "makes the root of the VM with systemd"),
    Tool::new("mke2fs", "e2fsprogs", "puts that root on a disk"),
];

/// What boots the VM.
pub(crate) const VM: &[Tool] = &[
    Tool::new("qemu-system-x86_64", "qemu-system-x86", "runs the test kernels"),
    Tool::new("depmod", "kmod", "indexes the modules of the test kernels"),
    Tool::new("xz", "xz-utils", "decompresses the modules of the test kernels"),
    Tool::new("busybox", "busybox-static", "is the VM's shell and modprobe"),
    Tool::new("dpkg-deb", "dpkg", "unpacks the kernel packages"),
    Tool::new("strip", "binutils", "leaves debug information out of the image"),
];

/// Makes sure that every tool is there: installs with apt-get when we are root, else names what is missing.
pub(crate) fn require(tools: &[Tool]) -> Result<(), Error> {
    // Steps go side by side, and apt-get lets nobody else install meanwhile.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock();
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !tool.is_there()).collect();
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
    if install(&packages, &[]).is_err() {
        // A fresh machine has no package lists, or lists too old to download from.
        update()?;
        install(&packages, &[]).or_else(|error| install_with_siblings(&packages).unwrap_or(Err(error)))?;
    }
    match missing.iter().find(|tool| !tool.is_there()) {
        None => Ok(()),
        Some(tool) => Err(Error::Lacking(format!("package {} did not bring {}", tool.package, tool.program))),
    }
}

/// A package, and one that it does not bear from a newer release, though it does not need it.
const SIBLINGS: &[(&str, &str)] = &[("qemu-system-x86", "qemu-utils")];

/// In CI, where the machine is ours, brings such a sibling back to the release that the package is installed from. Anywhere
/// else that is for the owner to do: apt's error names the sibling.
fn install_with_siblings(packages: &[&str]) -> Option<Result<(), Error>> {
    std::env::var_os("CI")?;
    let about = std::fs::read_to_string("/etc/os-release").ok()?;
    let release = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let siblings: Vec<String> = SIBLINGS
        .iter()
        .filter(|(package, _)| packages.contains(package))
        .map(|(_, sibling)| format!("{sibling}/{release}"))
        .collect();
    if siblings.is_empty() {
        return None;
    }
    eprintln!("installing {} as well, at the cost of a newer one", siblings.join(" "));
    let mut words = vec!["--allow-downgrades"];
    words.extend(siblings.iter().map(String::as_str));
    Some(install(packages, &words))
}

fn install(packages: &[&str], more: &[&str]) -> Result<(), Error> {
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "-q", "--no-install-recommends"]).args(more).args(packages);
    run::output(command.env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
}

/// Fetches the package lists.
pub(crate) fn update() -> Result<(), Error> {
    run::output(Command::new("apt-get").args(["update", "-q"])).map(drop)
}

/// Succeeds when we are root.
///
/// # Errors
/// As for a package that is missing.
pub(crate) fn root() -> Result<(), Error> {
    match is_root() {
        true => Ok(()),
        false => Err(Error::Lacking("needs root to make network namespaces".into())),
    }
}

/// Whether we may change namespaces and install packages.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
