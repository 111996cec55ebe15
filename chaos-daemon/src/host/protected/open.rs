//! What an operator opens to faults that is closed by default: the table `open` of the policy.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::process::Running;
use super::super::program::is_plain;
use crate::spec::SpecError;

/// The table of the policy that has this.
const TABLE: &str = "open";
/// Ports below this are those of a host's own services (`ip_unprivileged_port_start`).
const FIRST_FREE_PORT: u16 = 1024;
/// Ports from there on by which a cluster is run: etcd, the API server, kubelet.
const OF_CLUSTERS: &[u16] = &[2379, 2380, 6443, 10_250];
const MIB: u64 = 1 << 20;
/// In how many units at once the policy may open processes, at most.
const MOST_UNITS: usize = 1000;
/// The least time between two volleys that the policy may allow.
const LEAST_INTERVAL_MS: u64 = 100;

/// What is open. Everything left out is as closed as it can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Open {
    /// Programs whose processes may be hit although a rule protects them: names of processes, or absolute paths. Default: none.
    pub programs: BTreeSet<String>,
    /// Units that may be hit likewise, with every process in them: full names. Default: none.
    pub units: BTreeSet<String>,
    /// Whether a selector may mean the whole host: an expression that everybody meets. Default: no.
    pub host_wide_selectors: bool,
    /// In how many units, containers or, outside of those, programs at once processes may be hit. Default: 4.
    pub units_at_once: usize,
    /// The least time between two volleys of `process_kill`, in milliseconds. Default: 1000.
    pub least_interval_ms: u64,
    /// Ports below 1024, and those of a cluster, that `port_in_use` may take: 80, of either protocol. Default: none.
    pub ports: BTreeSet<u16>,
    /// Folders whose file systems `disk_fill`, `inodes` and `disk_io` may take although they are the host's root, that of its logs, or
    /// of the daemon's state; of whoever may write there. Default: none.
    pub file_systems: BTreeSet<String>,
    /// Folders and files of the host that `file_error` may take with a signal: "/etc/shop". Default: none.
    pub signal_paths: BTreeSet<String>,
    /// MiB of memory that stay available on the host, whatever a caller asks for. Default: 256, or a quarter of a host
    /// that has less than 1 GiB.
    pub least_memory_mb: Option<u64>,
    /// MiB that stay free in a file system, likewise, but for one that `fault_paths` names. Default: the less of 64 and 5 %.
    pub least_disk_mb: Option<u64>,
    /// Entries of the host's table of open files that stay free, likewise. Default: the larger of 1024 and 5 %.
    pub least_files: Option<u64>,
    /// Processes and threads that the host can have still, likewise. Default: the larger of 512 and 10 %.
    pub least_tasks: Option<u64>,
    /// The largest share of all processors that a fault outside a control group may burn, in percent. Default: 100, where everybody
    /// else has the share that is theirs.
    pub most_cpu_percent: u32,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            programs: BTreeSet::new(),
            units: BTreeSet::new(),
            host_wide_selectors: false,
            units_at_once: 4,
            least_interval_ms: 1000,
            ports: BTreeSet::new(),
            file_systems: BTreeSet::new(),
            signal_paths: BTreeSet::new(),
            least_memory_mb: None,
            least_disk_mb: None,
            least_files: None,
            least_tasks: None,
            most_cpu_percent: 100,
        }
    }
}

impl Open {
    /// Whether all of it makes sense.
    ///
    /// # Errors
    /// Names the field that does not, and what would be right.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |field: &str, problem: &str| Err(SpecError::new(format!("{TABLE}.{field}"), problem));
        if !self.programs.iter().all(|name| is_name(name)) {
            return wrong(
                "programs",
                "give names of processes or absolute paths: \"postgres\", \"/usr/sbin/nginx\"",
            );
        }
        let is_unit = |name: &String| name.ends_with(".service") || name.ends_with(".scope");
        if !self.units.iter().all(is_unit) {
            return wrong("units", "give full names: \"postgresql.service\"");
        }
        for (field, paths) in [("file_systems", &self.file_systems), ("signal_paths", &self.signal_paths)] {
            if !paths.iter().all(|path| path == "/" || is_plain(path)) {
                return wrong(field, "give absolute paths: \"/srv/data\"");
            }
        }
        if !(1..=MOST_UNITS).contains(&self.units_at_once) {
            return wrong("units_at_once", "give 1 to 1000");
        }
        if !(LEAST_INTERVAL_MS..=3_600_000).contains(&self.least_interval_ms) {
            return wrong("least_interval_ms", "give 100 to 3600000");
        }
        if !(1..=100).contains(&self.most_cpu_percent) {
            return wrong("most_cpu_percent", "give 1 to 100");
        }
        Ok(())
    }

    /// Whether a process may be hit although it is protected, where anything opens that.
    pub fn has(&self, process: &Running) -> bool {
        let of_program = |name: &String| *name == process.name || process.exe.as_ref() == Some(name);
        self.programs.iter().any(of_program) || process.unit().is_some_and(|unit| self.units.contains(unit))
    }

    /// The least time between two volleys.
    pub fn between_volleys(&self) -> Duration {
        Duration::from_millis(self.least_interval_ms)
    }

    /// Whether a port of the host may be taken.
    pub fn has_port(&self, port: u16) -> bool {
        let is_free = port >= FIRST_FREE_PORT && !OF_CLUSTERS.contains(&port);
        is_free || self.ports.contains(&port)
    }

    /// Bytes of `total` memory that stay available.
    pub fn least_memory(&self, total: u64) -> u64 {
        self.least_memory_mb.map_or((256 * MIB).min(total / 4), |mebibytes| mebibytes.saturating_mul(MIB))
    }

    /// Bytes that stay free of a file system of so many.
    pub fn least_room(&self, bytes: u64) -> u64 {
        self.least_disk_mb.map_or((64 * MIB).min(bytes / 20), |mebibytes| mebibytes.saturating_mul(MIB))
    }

    /// Entries that stay free of a table of so many.
    pub fn least_files(&self, table: u64) -> u64 {
        self.least_files.unwrap_or(1024.max(table / 20))
    }

    /// How many processes and threads there can be still, where there can be so many in all.
    pub fn least_tasks(&self, most: u64) -> u64 {
        self.least_tasks.unwrap_or(512.max(most / 10))
    }
}

/// Whether a program can be named so: as a process is, or by its path.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && (name.starts_with('/') || !name.contains('/'))
}

/// A list of one text, as the policy has it.
pub fn list(text: &str) -> String {
    format!("[{}]", toml::Value::from(text))
}

/// What would let processes of so many units be hit at once, for people.
pub(super) fn opens_units(count: usize) -> String {
    match count <= MOST_UNITS {
        true => opens("units_at_once", &count.to_string()),
        false => format!("nothing opens more than {MOST_UNITS}"),
    }
}

/// What would let so little time be between volleys, for people.
pub fn opens_interval(between: Duration) -> String {
    match u64::try_from(between.as_millis()).unwrap_or(u64::MAX) {
        milliseconds @ LEAST_INTERVAL_MS.. => opens("least_interval_ms", &milliseconds.to_string()),
        _ => format!("nothing opens less than {LEAST_INTERVAL_MS} ms"),
    }
}

/// What would open something, for the hint of a refusal.
pub fn opens(field: &str, value: &str) -> String {
    let line = line(field, value);
    format!("{line} of the daemon's policy file opens it; only the operator changes it")
}

/// The line of the policy that would open something, for people.
pub fn line(field: &str, value: &str) -> String {
    format!("`{field} = {value}` in the table `[{TABLE}]`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_by_its_field() {
        Open::default().check().unwrap();
        for (text, field) in [
            ("programs = [\"bin/x\"]", "open.programs"),
            ("programs = [\"\"]", "open.programs"),
            ("units = [\"postgresql\"]", "open.units"),
            ("units_at_once = 0", "open.units_at_once"),
            ("file_systems = [\"tmp\"]", "open.file_systems"),
            ("signal_paths = [\"/a/../b\"]", "open.signal_paths"),
            ("least_interval_ms = 99", "open.least_interval_ms"),
            ("most_cpu_percent = 101", "open.most_cpu_percent"),
        ] {
            assert_eq!(toml::from_str::<Open>(text).unwrap().check().unwrap_err().field, field, "{text}");
        }
        assert!(toml::from_str::<Open>("program = []").is_err());
    }

    #[test]
    fn a_hint_names_a_line_that_can_be_written_or_says_that_nothing_opens_it() {
        let is_taken = |hint: &str| {
            let line = hint.split('`').nth(1).unwrap();
            toml::from_str::<Open>(line).unwrap().check().unwrap();
        };
        is_taken(&opens_units(1000));
        is_taken(&opens_interval(Duration::from_millis(100)));
        assert_eq!(opens_units(1001), "nothing opens more than 1000");
        assert_eq!(opens_interval(Duration::from_millis(99)), "nothing opens less than 100 ms");
        for name in ["a\"b", "tab\there", "bell\u{7}", "\u{fffd}"] {
            is_taken(&opens("programs", &list(name)));
        }
    }

    #[test]
    fn ports_of_the_hosts_own_services_are_closed_and_others_are_free() {
        let closed = Open::default();
        for port in [22, 25, 53, 67, 80, 123, 443, 514, 1023, 2379, 6443, 10_250] {
            assert!(!closed.has_port(port), "{port}");
            assert!(Open { ports: [port].into(), ..closed.clone() }.has_port(port), "{port}");
        }
        assert!([1024, 5432, 8080, 65_535].into_iter().all(|port| closed.has_port(port)));
    }

    #[test]
    fn what_stays_of_a_host_is_a_floor_or_a_share_unless_the_operator_says() {
        let open = Open::default();
        assert_eq!((open.least_memory(512 * MIB), open.least_memory(100 << 30)), (128 * MIB, 256 * MIB));
        assert_eq!((open.least_room(100 << 20), open.least_room(1 << 40)), (5 * MIB, 64 * MIB));
        assert_eq!((open.least_files(10_000), open.least_files(1_000_000)), (1024, 50_000));
        assert_eq!((open.least_tasks(1000), open.least_tasks(100_000)), (512, 10_000));
        let said: Open = toml::from_str("least_memory_mb = 64\nleast_disk_mb = 0").unwrap();
        assert_eq!((said.least_memory(1 << 40), said.least_room(1 << 40)), (64 * MIB, 0));
    }
}
