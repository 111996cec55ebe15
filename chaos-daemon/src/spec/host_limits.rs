//! Limits of this host that no run of an experiment may go beyond: how much of it may be used, and how long may be waited for it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::SpecError;
use super::units::LONGEST_FAULT;

/// The most file systems of which the room is limited: as many as the prober asks at once.
const MOST_PATHS: usize = 8;
/// The longest path, as the kernel has it.
const LONGEST_PATH: usize = 4096;

/// Limits in whole percent, 1 to 99; what is left out is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostLimits {
    /// Of the memory, how much may be used; what gives way is not used.
    pub memory_percent: Option<u8>,
    /// Of the time of all processors, for how much they may be busy.
    pub cpu_percent: Option<u8>,
    /// Of the time, for how much work may wait for a resource, over the last ten seconds (`avg10` of PSI).
    pub pressure_percent: PressureLimits,
    /// Of the room of the file systems at these paths, how much may be used.
    pub disk_percent: BTreeMap<String, u8>,
    /// For how many seconds one has to be exceeded; 0 for one sample. Default: 0.
    pub for_seconds: u64,
}

/// Limits of how long work waits, by what for; some of it, of interrupts all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PressureLimits {
    /// For a processor.
    pub cpu: Option<u8>,
    /// For memory.
    pub memory: Option<u8>,
    /// For block devices.
    pub io: Option<u8>,
    /// For processors that are busy with interrupts.
    pub irq: Option<u8>,
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited<'a> {
    /// Memory that is used.
    Memory,
    /// Processors that are busy.
    Cpu,
    /// Waiting, for the resource of this name.
    Pressure(&'static str),
    /// Room that is used, at this path.
    Disk(&'a str),
}

impl fmt::Display for Limited<'_> {
    /// The field that limits it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory_percent"),
            Self::Cpu => f.write_str("cpu_percent"),
            Self::Pressure(resource) => write!(f, "pressure_percent.{resource}"),
            Self::Disk(path) => write!(f, "disk_percent.{path:?}"),
        }
    }
}

impl HostLimits {
    /// Everything that is limited, and to how many percent.
    pub fn all(&self) -> Vec<(Limited<'_>, u8)> {
        let PressureLimits { cpu, memory, io, irq } = self.pressure_percent;
        let host = [
            (Limited::Memory, self.memory_percent),
            (Limited::Cpu, self.cpu_percent),
            (Limited::Pressure("cpu"), cpu),
            (Limited::Pressure("memory"), memory),
            (Limited::Pressure("io"), io),
            (Limited::Pressure("irq"), irq),
        ];
        let host = host.into_iter().filter_map(|(what, percent)| Some((what, percent?)));
        host.chain(self.disk_percent.iter().map(|(path, percent)| (Limited::Disk(path), *percent))).collect()
    }

    /// Whether all of it makes sense.
    ///
    /// # Errors
    /// Names the field below `table` that does not, and what would be right.
    pub fn check(&self, table: &str) -> Result<(), SpecError> {
        let wrong = |what: &dyn fmt::Display, problem: String| {
            Err(SpecError::new(format!("{table}.{what}"), problem))
        };
        for (what, percent) in self.all() {
            if !(1..=99).contains(&percent) {
                return wrong(&what, format!("{percent} is out of bounds: give 1 to 99 percent"));
            }
            if let Limited::Disk(path) = what
                && !is_path(path)
            {
                return wrong(&what, format!("{path:?} is not an absolute path: give e.g. \"/var\""));
            }
        }
        if self.disk_percent.len() > MOST_PATHS {
            let problem = format!("there are {}, and {MOST_PATHS} is the most", self.disk_percent.len());
            return wrong(&"disk_percent", problem);
        }
        match self.for_seconds > LONGEST_FAULT.as_secs() {
            true => wrong(
                &"for_seconds",
                format!("{} is out of bounds: give 0 to {}", self.for_seconds, LONGEST_FAULT.as_secs()),
            ),
            false if self.for_seconds > 0 && self.all().is_empty() => {
                wrong(&"for_seconds", "nothing is limited: give a limit, too".to_owned())
            }
            false => Ok(()),
        }
    }
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.len() < LONGEST_PATH && !path.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_limited_is_told_by_its_field() {
        let limits: HostLimits = toml::from_str(
            "memory_percent = 80\ncpu_percent = 90\npressure_percent = { cpu = 1, memory = 2, io = 3, irq = 4 }\n\
             disk_percent = { \"/\" = 95, \"/var/log\" = 85 }\nfor_seconds = 10",
        )
        .unwrap();
        limits.check("t").unwrap();
        let told: Vec<_> =
            limits.all().into_iter().map(|(what, percent)| format!("{what} {percent}")).collect();
        assert_eq!(
            told,
            [
                "memory_percent 80",
                "cpu_percent 90",
                "pressure_percent.cpu 1",
                "pressure_percent.memory 2",
                "pressure_percent.io 3",
                "pressure_percent.irq 4",
                "disk_percent.\"/\" 95",
                "disk_percent.\"/var/log\" 85",
            ]
        );
        assert!(HostLimits::default().all().is_empty() && HostLimits::default().check("t").is_ok());
    }

    #[test]
    fn limits_that_make_no_sense_are_refused_by_their_field() {
        let paths: Vec<_> = (0..=MOST_PATHS).map(|number| format!("\"/{number}\" = 90")).collect();
        let many = format!("disk_percent = {{ {} }}", paths.join(", "));
        for (text, field) in [
            ("memory_percent = 0", "t.memory_percent"),
            ("cpu_percent = 100", "t.cpu_percent"),
            ("pressure_percent = { io = 0 }", "t.pressure_percent.io"),
            ("disk_percent = { \"var\" = 90 }", "t.disk_percent.\"var\""),
            ("disk_percent = { \"/var\" = 100 }", "t.disk_percent.\"/var\""),
            (&many, "t.disk_percent"),
            ("memory_percent = 80\nfor_seconds = 3601", "t.for_seconds"),
            ("for_seconds = 5", "t.for_seconds"),
        ] {
            let limits: HostLimits = toml::from_str(text).unwrap();
            assert_eq!(limits.check("t").unwrap_err().field, field, "{text}");
        }
        for text in
            ["load1 = 5", "pressure_percent = { disk = 1 }", "memory_percent = 80.5", "cpu_percent = 300"]
        {
            assert!(toml::from_str::<HostLimits>(text).is_err(), "{text}");
        }
    }
}
