//! What `resource_exhaustion` takes from the node and holds until it ends.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ip;
use super::parameter::part;
use super::parts::Ramp;
use super::process::Whose;
use super::settings::{self, need};
use super::target::{self, Protocol, TargetRequest};
use super::units::SpecError;

/// More MiB than any host has: 16 TiB.
pub(super) const MOST_MB: f64 = 16_777_216.0;
const MEBIBYTE: f64 = 1_048_576.0;
/// Each of a process's threads takes up to four of the 65,530 mappings that it may have (`vm.max_map_count`).
const MOST_THREADS: u64 = 15_000;
/// What a process may have of descriptors at most, unless an administrator has changed it (`fs.nr_open`).
const MOST_THINGS: u64 = 1_048_576;
/// Why open files are not taken from one service.
const NO_SERVICE_S_FILES: &str = "open files are taken from the host's table. One service cannot be given fewer: its processes \
     would pass the limit (RLIMIT_NOFILE) on to those that they start, which would keep it when the fault has ended. To have its \
     calls fail as if it had too many, give file_error or socket_error the errno too_many_open_files; to take them from the host";
/// The slowest and the fastest load of a disk, in bytes per second.
const LEAST_RATE: u64 = 65_536;
const MOST_RATE: u64 = 1 << 40;

/// Something of which a fault takes a share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Hoard {
    /// Memory, populated.
    Memory {
        /// How much.
        size: MemorySize,
        /// Bytes that stay available on the host; `None` is the default.
        reserve: Option<u64>,
    },
    /// Memory of a control group, until the kernel kills one of its processes for want of it.
    Oom {
        /// Bytes that stay available on the host; `None` is the default.
        reserve: Option<u64>,
    },
    /// Room of a file system.
    Disk(DiskFill),
    /// Open files of the host's table.
    Descriptors {
        /// How many; `None` is all but `leave`.
        count: Option<u64>,
        /// How many entries stay free; `None` is the default.
        leave: Option<u64>,
    },
    /// Places for processes and threads.
    Tasks {
        /// How many.
        count: u64,
    },
    /// Files of a file system.
    Inodes {
        /// A directory in it.
        path: PathBuf,
        /// How many.
        count: u64,
    },
    /// Ports.
    Ports {
        /// UDP ports instead of TCP ports.
        udp: bool,
        /// Of which address; unspecified is all of the family.
        address: IpAddr,
        /// First and last; `None` is the range for connections.
        range: Option<(u16, u16)>,
        /// How many.
        count: u64,
    },
    /// One port.
    Port(LocalPort),
    /// Bandwidth of a file system.
    DiskIo {
        /// A directory in it.
        path: PathBuf,
        /// Bytes per second, read and written together.
        rate: u64,
        /// Size of the file that is read and written.
        bytes: u64,
    },
}

/// A port that a service of this host could bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPort {
    /// Whether it is one of UDP.
    pub udp: bool,
    /// Of which address; `None` is every address of this host.
    pub address: Option<IpAddr>,
    /// Its number.
    pub port: u16,
}

impl std::fmt::Display for LocalPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} port {} of ", if self.udp { "UDP" } else { "TCP" }, self.port)?;
        match self.address {
            Some(address) => address.fmt(f),
            None => f.write_str("every address"),
        }
    }
}

/// Whether the ports that a target means are those of UDP; of TCP unless it says so.
fn is_udp(target: &TargetRequest) -> Result<bool, SpecError> {
    match target::protocol(target.protocol.as_deref())? {
        Protocol::Any | Protocol::Tcp => Ok(false),
        Protocol::Udp => Ok(true),
        Protocol::Icmp => Err(SpecError::new("target.protocol", "icmp has no ports: give tcp or udp")),
    }
}

/// What `port_in_use` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PortParams {
    /// Of which address of this host; every one, of IPv4 and IPv6, unless it is given.
    address: Option<String>,
}

impl PortParams {
    /// The port that a target names, and nothing beside it but a network namespace.
    pub(super) fn port(&self, named: &TargetRequest) -> Result<LocalPort, SpecError> {
        let alone = TargetRequest { local_port: None, protocol: None, netns: None, ..named.clone() };
        if alone != TargetRequest::default() {
            let problem =
                "this fault takes a port of this host: give local_port, and maybe protocol and netns";
            return Err(SpecError::new("target", problem));
        }
        let ports = target::ports("target.local_port", named.local_port.as_ref())?;
        let ports = need("target.local_port", ports, "the port to take")?;
        Ok(LocalPort {
            udp: is_udp(named)?,
            address: self.address.as_deref().map(address).transpose()?,
            port: ports.only().ok_or_else(|| {
                SpecError::new("target.local_port", "this fault takes one port: give it, such as 8080")
            })?,
        })
    }
}

/// How far a file system is filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskFill {
    /// A directory in it.
    pub path: PathBuf,
    /// By so many bytes.
    pub bytes: Option<u64>,
    /// Until it is so full; not beside `bytes`.
    pub percent: Option<f64>,
    /// Bytes that stay free; `None` is the default.
    pub leave: Option<u64>,
}

/// How much memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum MemorySize {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of the host's memory, or of the limit of the target.
    Percent(f64),
}

/// What `resource_exhaustion` takes of memory.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MemoryParams {
    /// MiB to hold.
    #[schemars(range(min = 1.0, max = MOST_MB))]
    memory_mb: Option<f64>,
    /// In place of MiB: share of the host's memory, or of the limit of the unit or cgroup.
    #[schemars(range(min = 1.0, max = 100.0))]
    memory_percent: Option<f64>,
    /// In place of an amount: until the kernel's OOM killer kills in the unit or cgroup. The policy must allow process_kill.
    #[serde(default)]
    oom: bool,
    /// MiB that stay available on the host; the larger of 512 and 10 % unless it is given.
    #[schemars(range(min = 64.0, max = MOST_MB))]
    reserve_mb: Option<f64>,
}

/// What `resource_exhaustion` takes of the room of a file system.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DiskParams {
    /// A directory of the file system.
    path: String,
    /// MiB to take.
    #[schemars(range(min = 1.0, max = MOST_MB))]
    megabytes: Option<f64>,
    /// In place of MiB: how full the file system gets.
    #[schemars(range(min = 1.0, max = 100.0))]
    percent: Option<f64>,
    /// MiB that stay free; the less of 1024 and 5 % unless it is given.
    #[schemars(range(min = 0.0, max = MOST_MB))]
    leave_free_mb: Option<f64>,
}

/// What `resource_exhaustion` takes of open files.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DescriptorParams {
    /// How many to hold.
    #[schemars(range(min = 1, max = MOST_THINGS))]
    count: Option<u64>,
    /// How many of the host's table stay free; the larger of 1024 and 10 % unless it is given.
    #[schemars(range(min = 256))]
    leave_free: Option<u64>,
}

/// What `resource_exhaustion` takes of processes and threads.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct TaskParams {
    /// How many to hold.
    #[schemars(range(min = 1, max = MOST_THREADS))]
    count: u64,
}

/// What `resource_exhaustion` takes of the inodes of a file system.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct InodeParams {
    /// A directory of the file system.
    path: String,
    /// How many to hold.
    #[schemars(range(min = 1, max = MOST_THINGS))]
    count: u64,
}

/// What `resource_exhaustion` takes of ports.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PortsParams {
    /// How many to hold.
    #[schemars(range(min = 1, max = 65_535))]
    count: u64,
    /// Of which address of this host.
    #[serde(default = "any_address")]
    address: String,
    /// Of which ports, from 1024 on, e.g. 20000-20999; those for connections unless it is given.
    port_range: Option<String>,
}

fn any_address() -> String {
    Ipv4Addr::UNSPECIFIED.to_string()
}

/// What `resource_exhaustion` takes of a disk's bandwidth.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct DiskIoParams {
    /// A directory of the file system.
    path: String,
    /// Bytes read and written per second, both together.
    #[schemars(range(min = LEAST_RATE, max = MOST_RATE))]
    bytes_per_second: u64,
    /// MiB of the file that is read and written.
    #[serde(default = "file_mb")]
    #[schemars(range(min = 1.0, max = 65_536.0))]
    size_mb: f64,
}

fn file_mb() -> f64 {
    64.0
}

/// What is to be taken, from whom, and how fast.
pub(super) struct Taking {
    /// Of what, and how much.
    pub(super) what: Hoard,
    /// How long it takes until all of it is taken.
    pub(super) ramp: Duration,
    /// Whose it is, where it is not the whole host's.
    pub(super) whose: Option<Whose>,
    /// In which network namespace, where it has a part in it.
    pub(super) netns: Option<String>,
}

/// Memory, held, or taken until somebody is killed for want of it.
pub(super) fn memory(params: &Map<String, Value>, target: &TargetRequest) -> Result<Taking, SpecError> {
    let MemoryParams { memory_mb, memory_percent, oom, reserve_mb } = part(params)?;
    let (reserve, whose) = (reserve_mb.map(mebibytes), settings::group_if_any(target)?);
    let what = match (oom, memory_mb, memory_percent) {
        (true, Some(_), _) => return Err(taken_anyway("params.memory_mb")),
        (true, None, Some(_)) => return Err(taken_anyway("params.memory_percent")),
        (true, None, None) if whose.is_none() => {
            let problem =
                "never of the whole host: give target.unit or target.cgroup, with a limit of memory";
            return Err(SpecError::new("params.oom", problem));
        }
        (true, None, None) => Hoard::Oom { reserve },
        (false, Some(megabytes), None) => {
            Hoard::Memory { size: MemorySize::Bytes(mebibytes(megabytes)), reserve }
        }
        (false, None, Some(percent)) => Hoard::Memory { size: MemorySize::Percent(percent), reserve },
        (false, Some(_), Some(_)) => {
            return Err(SpecError::new(
                "params.memory_percent",
                "give memory_mb or memory_percent, not both",
            ));
        }
        (false, None, None) => return need("params.memory_mb", None, "MiB, or memory_percent"),
    };
    Ok(Taking { what, ramp: ramp(params)?, whose, netns: None })
}

fn taken_anyway(field: &str) -> SpecError {
    SpecError::new(field, "oom takes as much as there is: leave this out")
}

/// Room of a file system.
pub(super) fn disk_fill(params: &Map<String, Value>, target: &TargetRequest) -> Result<Taking, SpecError> {
    let DiskParams { path, megabytes, percent, leave_free_mb } = part(params)?;
    let (path, bytes, leave) = (absolute(path)?, megabytes.map(mebibytes), leave_free_mb.map(mebibytes));
    match (bytes, percent, leave) {
        (Some(_), Some(_), _) => Err(SpecError::new("params.percent", "give megabytes or percent, not both")),
        (None, None, None) => need("params.megabytes", None, "MiB, or percent, or leave_free_mb"),
        _ => of_the_host(Hoard::Disk(DiskFill { path, bytes, percent, leave }), params, target),
    }
}

/// Open files of the host's table.
pub(super) fn descriptors(params: &Map<String, Value>, target: &TargetRequest) -> Result<Taking, SpecError> {
    let DescriptorParams { count, leave_free } = part(params)?;
    if count.is_none() && leave_free.is_none() {
        return need("params.count", None, "how many to hold, or leave_free");
    }
    settings::nowhere(target, NO_SERVICE_S_FILES)?;
    of_the_host(Hoard::Descriptors { count, leave: leave_free }, params, target)
}

/// Places for processes and threads.
pub(super) fn tasks(params: &Map<String, Value>, target: &TargetRequest) -> Result<Taking, SpecError> {
    let TaskParams { count } = part(params)?;
    let whose = settings::group_if_any(target)?;
    Ok(Taking { what: Hoard::Tasks { count }, ramp: ramp(params)?, whose, netns: None })
}

/// Files of a file system.
pub(super) fn inodes(params: &Map<String, Value>, target: &TargetRequest) -> Result<Taking, SpecError> {
    let InodeParams { path, count } = part(params)?;
    of_the_host(Hoard::Inodes { path: absolute(path)?, count }, params, target)
}

/// Ports of an address.
pub(super) fn ports(params: &Map<String, Value>, target: &TargetRequest) -> Result<Taking, SpecError> {
    let PortsParams { count, address: text, port_range: range } = part(params)?;
    let range = range.as_deref().map(port_range).transpose()?;
    let what = Hoard::Ports { udp: is_udp(target)?, address: address(&text)?, range, count };
    Ok(Taking { what, ramp: ramp(params)?, whose: None, netns: settings::netns_if_any(target)? })
}

/// Bandwidth of a file system.
pub(super) fn disk_io(params: &Map<String, Value>, target: &TargetRequest) -> Result<Taking, SpecError> {
    let DiskIoParams { path, bytes_per_second: rate, size_mb } = part(params)?;
    let what = Hoard::DiskIo { path: absolute(path)?, rate, bytes: mebibytes(size_mb) };
    Ok(Taking { what, ramp: Duration::ZERO, whose: settings::group_if_any(target)?, netns: None })
}

fn of_the_host(
    what: Hoard,
    params: &Map<String, Value>,
    target: &TargetRequest,
) -> Result<Taking, SpecError> {
    settings::nowhere(target, "this resource is the whole host's")?;
    Ok(Taking { what, ramp: ramp(params)?, whose: None, netns: None })
}

fn ramp(params: &Map<String, Value>) -> Result<Duration, SpecError> {
    part(params).map(Ramp::duration)
}

fn absolute(path: String) -> Result<PathBuf, SpecError> {
    let path = PathBuf::from(path);
    match path.is_absolute() {
        true => Ok(path),
        false => {
            Err(SpecError::new("params.path", "give an absolute path: the daemon has its own directory"))
        }
    }
}

fn address(text: &str) -> Result<IpAddr, SpecError> {
    ip::address(text).ok_or_else(|| {
        SpecError::new("params.address", format!("{text:?} is no address: give one of this host"))
    })
}

/// "FIRST-LAST". Ports below 1024 are those of services, and need a capability that no holder has.
fn port_range(text: &str) -> Result<(u16, u16), SpecError> {
    let parsed =
        text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match parsed {
        Some((first, last)) if 1024 <= first && first <= last => Ok((first, last)),
        _ => Err(SpecError::new(
            "params.port_range",
            format!("{text:?} is not a range of ports from 1024 on: give e.g. \"20000-20999\""),
        )),
    }
}

/// A number of MiB, which is bounded, as bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "none is below 0 or above MOST_MB"
)]
pub(super) fn mebibytes(megabytes: f64) -> u64 {
    (megabytes * MEBIBYTE) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::effect::Effect;

    fn hoard(params: serde_json::Value) -> Result<Option<Hoard>, SpecError> {
        settings::tests::exhaustion(params).map(|effect| match effect {
            Effect::Hoard { what, .. } => Some(what),
            _ => None,
        })
    }

    #[test]
    fn memory_is_named_in_mebibytes_or_percent_and_not_both() {
        let size = |params| {
            hoard(params).map(|found| match found {
                Some(Hoard::Memory { size, .. }) => Some(size),
                _ => None,
            })
        };
        let found = size(json!({"resource": "memory", "memory_mb": 64})).unwrap();
        assert_eq!(found, Some(MemorySize::Bytes(64 << 20)));
        let found = size(json!({"resource": "memory", "memory_percent": 50})).unwrap();
        assert_eq!(found, Some(MemorySize::Percent(50.0)));
        for (params, field) in [
            (json!({"resource": "memory"}), "params.memory_mb"),
            (json!({"resource": "memory", "memory_mb": 1, "memory_percent": 1}), "params.memory_percent"),
            (json!({"resource": "memory", "memory_percent": 101}), "params.memory_percent"),
            (json!({"resource": "memory", "memory_mb": 1, "reserve_mb": 1}), "params.reserve_mb"),
            (json!({"resource": "memory", "memory_mb": 1, "cores": 1}), "params.cores"),
            (json!({"resource": "memory", "oom": true, "memory_mb": 1}), "params.memory_mb"),
            (json!({"resource": "memory", "oom": true, "memory_percent": 1}), "params.memory_percent"),
            (json!({"resource": "pids", "oom": true, "count": 1}), "params.oom"),
        ] {
            assert_eq!(hoard(params.clone()).unwrap_err().field, field, "{params}");
        }
        assert_eq!(hoard(json!({})).unwrap(), None);
    }

    #[test]
    fn a_port_is_named_by_number_protocol_and_address_and_by_nothing_else() {
        let parse = |target, params| {
            let target: TargetRequest = serde_json::from_value(target).unwrap();
            serde_json::from_value::<PortParams>(params).unwrap().port(&target)
        };
        let port = parse(json!({"local_port": 80}), json!({})).unwrap();
        assert_eq!(port.to_string(), "TCP port 80 of every address");
        let port =
            parse(json!({"local_port": 53, "protocol": "udp", "netns": "n"}), json!({"address": "::1"}));
        assert_eq!(port.unwrap().to_string(), "UDP port 53 of ::1");
        let port = parse(json!({"local_port": 80}), json!({"address": "::ffff:127.0.0.1"})).unwrap();
        assert_eq!(port.to_string(), "TCP port 80 of 127.0.0.1");
        for (target, params, field) in [
            (json!({}), json!({}), "target.local_port"),
            (json!({"local_port": 0}), json!({}), "target.local_port"),
            (json!({"local_port": "80-90"}), json!({}), "target.local_port"),
            (json!({"local_port": 80, "protocol": "icmp"}), json!({}), "target.protocol"),
            (json!({"local_port": 80, "port": 80}), json!({}), "target"),
            (json!({"local_port": 80, "unit": "a.service"}), json!({}), "target"),
            (json!({"local_port": 80}), json!({"address": "lo"}), "params.address"),
        ] {
            assert_eq!(parse(target.clone(), params).unwrap_err().field, field, "{target}");
        }
    }

    #[test]
    fn what_is_counted_has_a_number_and_what_is_in_a_file_system_an_absolute_path() {
        for good in [
            json!({"resource": "disk_fill", "path": "/d", "percent": 90}),
            json!({"resource": "disk_fill", "path": "/d", "megabytes": 5, "leave_free_mb": 0}),
            json!({"resource": "file_descriptors", "leave_free": 1000}),
            json!({"resource": "pids", "count": 5}),
            json!({"resource": "inodes", "path": "/d", "count": 5, "ramp_seconds": 3}),
            json!({"resource": "ports", "count": 5, "address": "::1", "port_range": "2000-3000"}),
            json!({"resource": "disk_io", "path": "/d", "bytes_per_second": 1_000_000}),
        ] {
            assert!(hoard(good.clone()).unwrap().is_some(), "{good}");
        }
        for (params, field) in [
            (json!({"resource": "disk_fill", "megabytes": 5}), "params.path"),
            (json!({"resource": "disk_fill", "path": "d", "megabytes": 5}), "params.path"),
            (json!({"resource": "disk_fill", "path": "/d"}), "params.megabytes"),
            (json!({"resource": "disk_fill", "path": "/d", "megabytes": 5, "percent": 5}), "params.percent"),
            (json!({"resource": "file_descriptors"}), "params.count"),
            (json!({"resource": "file_descriptors", "leave_free": 5}), "params.leave_free"),
            (json!({"resource": "pids", "count": 0}), "params.count"),
            (json!({"resource": "ports", "count": 5, "address": "lo"}), "params.address"),
            (json!({"resource": "ports", "count": 5, "port_range": "22-80"}), "params.port_range"),
            (json!({"resource": "disk_io", "path": "/d"}), "params.bytes_per_second"),
            (
                json!({"resource": "disk_io", "path": "/d", "bytes_per_second": 1e6 as u64, "ramp_seconds": 1}),
                "params.ramp_seconds",
            ),
        ] {
            assert_eq!(hoard(params.clone()).unwrap_err().field, field, "{params}");
        }
    }
}
