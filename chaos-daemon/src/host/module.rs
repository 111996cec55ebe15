//! Modules of the kernel: why one cannot be used, and what would supply it.
//!
//! Reference: modprobe(8), modules.dep(5).

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

/// Why something of the kernel cannot be used that may be a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// The kernel has it not, and found no module of this name to load.
    NotInstalled(&'static str),
    /// Anything else, in words: a module that is there and was not loaded, or a question that could not be asked.
    Refused(String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotInstalled(module) => write!(f, "not built in, and no module {module} is installed"),
            Self::Refused(reason) => write!(f, "{reason}"),
        }
    }
}

impl Unusable {
    /// Of a module for which the kernel, of this `release`, has found nothing to load. One that is installed may be forbidden; an
    /// installed daemon does not see whether it is.
    pub fn missing(module: &'static str, release: &str) -> Self {
        let listed = fs::read_to_string(Path::new("/lib/modules").join(release).join("modules.dep"));
        match is_listed(module, &listed.unwrap_or_default()) {
            true => Self::Refused(
                "its module is installed, and is not loaded: forbidden by modprobe.d, or by kernel.modules_disabled".to_owned(),
            ),
            false => Self::NotInstalled(module),
        }
    }

    /// What would supply it: the module that has it, or these options of the kernel.
    pub fn remedy(&self, module: &str, options: &str, release: &str) -> String {
        match self {
            Self::NotInstalled(module) => format!(
                "install the module: on Debian, whose cloud kernel lacks it, `apt install linux-image-{}` and a reboot, on Ubuntu \
                 `apt install linux-modules-extra-{release}`, on Fedora `dnf install kernel-modules-extra`, then `modprobe \
                 {module}`; or run a kernel with {options}",
                debian_name(ARCH)
            ),
            Self::Refused(_) => {
                format!("load the module: `modprobe {module}`; or run a kernel with {options}")
            }
        }
    }
}

/// Whether a list of all modules that are installed (modules.dep(5)) has this one, which may be compressed.
fn is_listed(module: &str, list: &str) -> bool {
    let files = list.lines().filter_map(|line| line.split(':').next()?.rsplit('/').next());
    files.filter_map(|file| file.split_once(".ko")).any(|(name, _)| name.replace('-', "_") == module)
}

/// What Debian calls an architecture.
fn debian_name(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_in_the_list_whatever_it_is_compressed_by() {
        let list = "kernel/net/sched/sch_netem.ko.xz: kernel/lib/a.ko.xz\nkernel/drivers/net/veth.ko:\nkernel/cls-bpf.ko.zst:\n";
        for module in ["sch_netem", "veth", "cls_bpf"] {
            assert!(is_listed(module, list), "{module}");
        }
        assert!(!is_listed("a", list) && !is_listed("sch_net", list) && !is_listed("veth", ""));
    }

    #[test]
    fn what_is_not_installed_comes_from_a_package_and_what_is_installed_is_loaded() {
        let remedy = |why: Unusable| why.remedy("sch_netem", "CONFIG_NET_SCH_NETEM", "6.8.0-45-generic");
        let install = remedy(Unusable::NotInstalled("sch_netem"));
        for words in [
            &format!("`apt install linux-image-{}` and a reboot", debian_name(ARCH)),
            "`apt install linux-modules-extra-6.8.0-45-generic`",
            "`dnf install kernel-modules-extra`",
            "then `modprobe sch_netem`",
            "a kernel with CONFIG_NET_SCH_NETEM",
        ] {
            assert!(install.contains(words), "{words}: {install}");
        }
        let load = remedy(Unusable::Refused("forbidden".into()));
        assert_eq!(load, "load the module: `modprobe sch_netem`; or run a kernel with CONFIG_NET_SCH_NETEM");
        assert_eq!((debian_name("x86_64"), debian_name("aarch64")), ("amd64", "arm64"));
    }

    #[test]
    fn of_a_release_without_modules_none_is_installed() {
        assert_eq!(Unusable::missing("sch_netem", "no/such"), Unusable::NotInstalled("sch_netem"));
    }
}
