//! What `resource_exhaustion` takes from the node and holds until it ends.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ip;
use super::settings::{ExhaustionParams, need, within};
use super::target::{self, Protocol, TargetRequest};
use super::units::SpecError;

/// The least that may be kept for the host, in MiB.
const LEAST_RESERVE_MB: f64 = 64.0;
const MEBIBYTE: f64 = 1_048_576.0;
/// Each of a process's threads takes up to four of the 65,530 mappings that it may have (`vm.max_map_count`).
const MOST_THREADS: u64 = 15_000;
/// What a process may have of descriptors at most, unless an administrator has changed it (`fs.nr_open`).
const MOST_THINGS: u64 = 1_048_576;
/// Why open files are not taken from one service.
pub(super) const NO_SERVICE_S_FILES: &str = "open files are taken from the host's table. One service cannot be given fewer: its processes \
     would pass the limit (RLIMIT_NOFILE) on to those that they start, which would keep it when the fault has ended. To have its \
     calls fail as if it had too many, give file_error or socket_error the errno too_many_open_files; to take them from the host";
/// The fewest entries of the host's table of open files that may be kept free.
const LEAST_FREE: u64 = 256;
/// The slowest load of a disk, in bytes per second.
const LEAST_RATE: u64 = 65_536;
/// Size of the file that loads a disk when nobody says.
const DEFAULT_SIZE_MB: f64 = 64.0;

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
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortParams {
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

impl Hoard {
    /// Whether it can be taken within a control group.
    pub(super) fn fits_cgroup(&self) -> bool {
        match self {
            Self::Memory { .. } | Self::Oom { .. } | Self::Tasks { .. } | Self::DiskIo { .. } => true,
            Self::Disk(_)
            | Self::Descriptors { .. }
            | Self::Inodes { .. }
            | Self::Ports { .. }
            | Self::Port(_) => false,
        }
    }
}

impl ExhaustionParams {
    /// What is to be taken and held; `None` for another resource.
    pub(super) fn hoard(&self, target: &TargetRequest) -> Result<Option<Hoard>, SpecError> {
        Ok(Some(match self.resource()? {
            "memory" => self.memory()?,
            "disk_fill" => Hoard::Disk(self.disk_fill()?),
            "file_descriptors" => self.descriptors()?,
            "pids" => Hoard::Tasks { count: self.count(MOST_THREADS)? },
            "inodes" => Hoard::Inodes { path: self.path()?, count: self.count(MOST_THINGS)? },
            "ports" => Hoard::Ports {
                udp: is_udp(target)?,
                address: self.address.as_deref().map_or(Ok(Ipv4Addr::UNSPECIFIED.into()), address)?,
                range: self.port_range.as_deref().map(port_range).transpose()?,
                count: self.count(65_535)?,
            },
            "disk_io" => self.disk_io()?,
            _ => return Ok(None),
        }))
    }

    fn disk_fill(&self) -> Result<DiskFill, SpecError> {
        let path = self.path()?;
        let bytes = mebibytes("params.megabytes", self.megabytes, 1.0)?;
        let leave = mebibytes("params.leave_free_mb", self.leave_free_mb, 0.0)?;
        let percent = self.percent.map(|share| within("params.percent", share, 1.0, 100.0)).transpose()?;
        match (bytes, percent, leave) {
            (Some(_), Some(_), _) => {
                Err(SpecError::new("params.percent", "give megabytes or percent, not both"))
            }
            (None, None, None) => need("params.megabytes", None, "MiB, or percent, or leave_free_mb"),
            _ => Ok(DiskFill { path, bytes, percent, leave }),
        }
    }

    fn descriptors(&self) -> Result<Hoard, SpecError> {
        if self.leave_free.is_some_and(|leave| leave < LEAST_FREE) {
            return Err(SpecError::new("params.leave_free", format!("give {LEAST_FREE} or more")));
        }
        let count = match (self.count, self.leave_free) {
            (None, Some(_)) => None,
            _ => Some(self.count(MOST_THINGS)?),
        };
        Ok(Hoard::Descriptors { count, leave: self.leave_free })
    }

    fn disk_io(&self) -> Result<Hoard, SpecError> {
        let rate = need("params.bytes_per_second", self.bytes_per_second, "bytes per second")?;
        if !(LEAST_RATE..=1 << 40).contains(&rate) {
            return Err(SpecError::new("params.bytes_per_second", format!("give {LEAST_RATE} or more")));
        }
        let size = self.size_mb.unwrap_or(DEFAULT_SIZE_MB);
        let bytes = mebibytes("params.size_mb", Some(within("params.size_mb", size, 1.0, 65_536.0)?), 1.0)?;
        Ok(Hoard::DiskIo { path: self.path()?, rate, bytes: bytes.unwrap_or_default() })
    }

    fn path(&self) -> Result<PathBuf, SpecError> {
        let path = PathBuf::from(need("params.path", self.path.clone(), "a directory of the file system")?);
        match path.is_absolute() {
            true => Ok(path),
            false => {
                Err(SpecError::new("params.path", "give an absolute path: the daemon has its own directory"))
            }
        }
    }

    fn count(&self, most: u64) -> Result<u64, SpecError> {
        let count = need("params.count", self.count, "how many")?;
        match (1..=most).contains(&count) {
            true => Ok(count),
            false => {
                Err(SpecError::new("params.count", format!("{count} is out of bounds: give 1 to {most}")))
            }
        }
    }

    /// How long it takes until all of it is taken.
    pub(super) fn ramp(&self) -> Result<Duration, SpecError> {
        let seconds = within("params.ramp_seconds", self.ramp_seconds.unwrap_or(0.0), 0.0, 3600.0)?;
        Ok(Duration::from_secs_f64(seconds))
    }

    fn memory(&self) -> Result<Hoard, SpecError> {
        let reserve = mebibytes("params.reserve_mb", self.reserve_mb, LEAST_RESERVE_MB)?;
        if self.oom != Some(true) {
            return Ok(Hoard::Memory { size: self.memory_size()?, reserve });
        }
        let given = [
            ("params.memory_mb", self.memory_mb.is_some()),
            ("params.memory_percent", self.memory_percent.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => Err(SpecError::new(field, "oom takes as much as there is: leave this out")),
            None => Ok(Hoard::Oom { reserve }),
        }
    }

    fn memory_size(&self) -> Result<MemorySize, SpecError> {
        match (mebibytes("params.memory_mb", self.memory_mb, 1.0)?, self.memory_percent) {
            (Some(bytes), None) => Ok(MemorySize::Bytes(bytes)),
            (None, Some(percent)) => {
                Ok(MemorySize::Percent(within("params.memory_percent", percent, 1.0, 100.0)?))
            }
            (Some(_), Some(_)) => {
                Err(SpecError::new("params.memory_percent", "give memory_mb or memory_percent, not both"))
            }
            (None, None) => need("params.memory_mb", None, "MiB, or memory_percent"),
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

/// A number of MiB as bytes.
fn mebibytes(field: &str, value: Option<f64>, least: f64) -> Result<Option<u64>, SpecError> {
    let Some(value) = value else { return Ok(None) };
    let value = within(field, value, least, 16_777_216.0)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded just before")]
    let bytes = (value * MEBIBYTE) as u64;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hoard(params: serde_json::Value) -> Result<Option<Hoard>, SpecError> {
        serde_json::from_value::<ExhaustionParams>(params).unwrap().hoard(&TargetRequest::default())
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
