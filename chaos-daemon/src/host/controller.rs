//! The controllers of control groups, which of them version 2 has here, and why it has not the others.
//!
//! Reference: cgroups(7), Linux `Documentation/admin-guide/cgroup-v2.rst` and `Documentation/admin-guide/kernel-parameters.txt`.

use std::fs;
use std::path::Path;

use super::Lack;
use crate::spec::Controller;

/// Every controller that a fault uses.
const CONTROLLERS: [Controller; 4] = [Controller::Cpu, Controller::Memory, Controller::Pids, Controller::Io];

impl Controller {
    /// The name in `/proc/cgroups`, and on the kernel's command line.
    fn old_name(self) -> &'static str {
        if self == Self::Io { "blkio" } else { self.name() }
    }

    /// The options of the kernel that it is built with.
    fn options(self) -> &'static str {
        match self {
            Self::Cpu => "CONFIG_CFS_BANDWIDTH",
            Self::Memory => "CONFIG_MEMCG",
            Self::Pids => "CONFIG_CGROUP_PIDS",
            Self::Io => "CONFIG_BLK_CGROUP and CONFIG_BLK_DEV_THROTTLING",
        }
    }

    /// Why version 2 has it not, where `all` is `/proc/cgroups`.
    fn lack(self, all: &str) -> Lack {
        let (name, old) = (self.name(), self.old_name());
        let mut lines = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let (reason, remedy) = match lines.find(|fields| fields.first() == Some(&old)).as_deref() {
            Some([_, _, _, "0"]) => (
                "disabled".to_owned(),
                format!(
                    "boot without `cgroup_disable={old}`; where the kernel has it off by itself, with `cgroup_enable={old}`"
                ),
            ),
            Some([_, hierarchy, ..]) if *hierarchy != "0" => (
                "in use by a mount of version 1".to_owned(),
                format!(
                    "boot with `cgroup_no_v1={old}` on the kernel's command line; for systemd, `systemd.unified_cgroup_hierarchy=1`"
                ),
            ),
            _ => ("not built in".to_owned(), format!("run a kernel with {}", self.options())),
        };
        Lack { what: format!("the cgroup controller {name} ({reason})"), remedy }
    }
}

/// The controllers that the whole of version 2, mounted at `mount`, has not; each with the reason.
pub fn lacking(mount: &Path) -> Vec<(Controller, Lack)> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    judge(&read(&mount.join("cgroup.controllers")), &read(Path::new("/proc/cgroups")))
}

fn judge(there: &str, all: &str) -> Vec<(Controller, Lack)> {
    let missing = |controller: &Controller| !there.split_whitespace().any(|name| name == controller.name());
    CONTROLLERS.into_iter().filter(missing).map(|controller| (controller, controller.lack(all))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str =
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t3\t10\t1\nblkio\t0\t1\t1\nmemory\t0\t1\t0\n";

    #[test]
    fn a_controller_that_is_not_there_is_in_use_elsewhere_disabled_or_not_built_in() {
        let lacks = judge("io cpuset", ALL);
        let names: Vec<_> = lacks.iter().map(|(controller, _)| *controller).collect();
        assert_eq!(names, [Controller::Cpu, Controller::Memory, Controller::Pids]);
        for ((_, lack), (what, remedy)) in lacks.iter().zip([
            ("cpu (in use by a mount of version 1)", "cgroup_no_v1=cpu"),
            ("memory (disabled)", "cgroup_disable=memory"),
            ("pids (not built in)", "CONFIG_CGROUP_PIDS"),
        ]) {
            assert!(lack.what.contains(what) && lack.remedy.contains(remedy), "{lack:?}");
        }
    }

    #[test]
    fn nothing_is_missing_where_version_2_has_all_of_them() {
        assert_eq!(judge("cpuset cpu io memory hugetlb pids rdma misc", ""), []);
    }

    #[test]
    fn the_old_name_of_io_is_known() {
        let all = "blkio\t5\t1\t1";
        let lacks = judge("cpu memory pids", all);
        assert!(lacks[0].1.remedy.contains("cgroup_no_v1=blkio"), "{lacks:?}");
    }
}
