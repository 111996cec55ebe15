//! How a caller names a network namespace.

use super::units::SpecError;

/// Where root keeps namespaces: `ip netns` (ip-netns(8)) and nearly every container engine, and Docker.
const FOLDERS: &[&str] = &["/run/netns", "/var/run/netns", "/run/docker/netns", "/var/run/docker/netns"];

/// Whether nobody but root and the kernel says where a name leads: it stands in a folder of root's, or procfs shows it of a
/// process or a thread. Anywhere else somebody could put another file in its place while a fault is active, or a file system on
/// the way there that never answers.
pub fn is_trusted(name: &str) -> bool {
    match name.rsplit_once('/') {
        None => is_plain(name),
        Some((folder, last)) if FOLDERS.contains(&folder) => is_plain(last),
        Some(_) => is_of_process(name),
    }
}

/// Refuses every other name.
pub(super) fn check(name: Option<&str>) -> Result<(), SpecError> {
    let Some(odd) = name.filter(|name| !is_trusted(name)) else { return Ok(()) };
    let problem = format!(
        "{odd:?} is no place where only root and the kernel keep network namespaces: give a name that `ip netns list` shows, \
         /proc/PID/ns/net of a process that is in it, or a path directly in /run/netns or /run/docker/netns"
    );
    Err(SpecError::new("target.netns", problem))
}

fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

fn is_of_process(path: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let Some(process) = path.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/ns/net")) else {
        return false;
    };
    match process.split_once("/task/") {
        None => is_number(process),
        Some((pid, tid)) => is_number(pid) && is_number(tid),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::FaultRequest;

    #[test]
    fn names_and_the_paths_that_root_and_the_kernel_keep_are_namespaces() {
        for good in [
            "blue",
            "blue one",
            "/run/netns/blue",
            "/var/run/netns/cni-5f0c",
            "/run/docker/netns/1f2e3d4c5b6a",
            "/var/run/docker/netns/default",
            "/proc/1/ns/net",
            "/proc/712/task/713/ns/net",
        ] {
            assert!(is_trusted(good) && check(Some(good)).is_ok(), "{good}");
        }
        assert!(check(None).is_ok());
    }

    #[test]
    fn a_path_that_others_could_lead_elsewhere_is_refused_with_what_to_give_instead() {
        for odd in [
            "",
            ".",
            "..",
            "a/b",
            "../netns/blue",
            "/tmp/ns",
            "/dev/watchdog",
            "/run/user/1000/netns/blue",
            "/run/netns",
            "/run/netns/",
            "/run/netns/..",
            "/run/netns/../../tmp/ns",
            "/run/netns/deep/blue",
            "/run//netns/blue",
            "/proc/self/ns/net",
            "/proc/1/ns/uts",
            "/proc/1/root/tmp/ns/net",
            "/proc/1/cwd/ns/net",
            "/proc/1/fd/7",
            "/proc/1/task/ns/net",
            "/proc/1/task/2/task/3/ns/net",
            "/proc//ns/net",
            "/proc/1/ns/net/",
            "blue\0",
        ] {
            assert!(!is_trusted(odd), "{odd:?}");
            let request = json!({
                "fault_type": "link_down", "probability": 1.0, "target": {"interface": "eth0", "netns": odd},
            });
            let request: FaultRequest = serde_json::from_value(request).unwrap();
            let error = request.parse().unwrap_err();
            assert!(error.field == "target.netns" && error.problem.contains("/proc/PID/ns/net"), "{error}");
        }
    }
}
