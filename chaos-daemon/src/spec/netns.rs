//! How a caller names a network namespace, and how a policy does.

use serde::Deserialize;

use super::units::SpecError;

/// Where root keeps namespaces: `ip netns` (ip-netns(8)) and nearly every container engine, and Docker.
const FOLDERS: &[&str] = &["/run/netns", "/var/run/netns", "/run/docker/netns", "/var/run/docker/netns"];

/// Where `ip netns` keeps those that have a name.
const NAMED: &str = "/run/netns";
/// The rule of a policy.
const RULE: &str = "fault_netns";

/// Which network namespaces a policy names: by where root keeps them, since the number of a process is soon another one's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum NetNsRule {
    /// `*`: all there are.
    Any,
    /// `/run/netns/*`: all that are kept in this folder.
    Folder(String),
    /// `blue`, `/run/docker/netns/1f2e3d4c5b6a`: the one at this path.
    One(String),
}

impl TryFrom<String> for NetNsRule {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_suffix("/*").filter(|folder| FOLDERS.contains(folder)) {
            Some(folder) => Ok(Self::Folder(folder.to_owned())),
            None if text.contains('*') || text.starts_with("/proc/") || !is_trusted(&text) => {
                let problem = format!(
                    "{text:?} is no place where root keeps network namespaces: give a name that `ip netns list` shows, a path \
                     directly in /run/netns or /run/docker/netns, one of these folders and /*, or * for all there are"
                );
                Err(SpecError::new(RULE, problem))
            }
            None if text.contains('/') => Ok(Self::One(text)),
            None => Ok(Self::One(format!("{NAMED}/{text}"))),
        }
    }
}

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
    #[test]
    fn a_policy_names_namespaces_by_where_root_keeps_them_and_by_nothing_else() {
        let rule = |text: &str| NetNsRule::try_from(text.to_owned());
        for (text, meant) in [
            ("*", NetNsRule::Any),
            ("blue", NetNsRule::One("/run/netns/blue".into())),
            ("/run/docker/netns/1f2e", NetNsRule::One("/run/docker/netns/1f2e".into())),
            ("/run/netns/*", NetNsRule::Folder("/run/netns".into())),
            ("/var/run/docker/netns/*", NetNsRule::Folder("/var/run/docker/netns".into())),
        ] {
            assert_eq!(rule(text), Ok(meant));
        }
        for odd in [
            "",
            "/*",
            "**",
            "bl*",
            "/run/netns/b*",
            "/tmp/*",
            "/run/*",
            "/tmp/ns",
            "/proc/1/ns/net",
            "/proc/*",
            "../a",
            "a/b",
        ] {
            let error = rule(odd).unwrap_err();
            assert!(error.field == RULE && error.problem.contains("/run/netns"), "{error}");
        }
    }
}
