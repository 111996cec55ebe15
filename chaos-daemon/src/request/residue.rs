//! What of ours is on the node beside what a running daemon uses, and what it does there.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad it is. The worst of all findings is that of the node.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is left.
    #[default]
    Clean,
    /// Something lies about, and does nothing.
    Inert,
    /// Something could not be looked at: it is not known what is left.
    Unknown,
    /// A fault still acts.
    Effect,
}

/// One thing that is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leftover {
    /// What it does: "inert", "unknown" or "effect".
    pub level: Level,
    /// Kind of thing: "device", "filter", "link", "program", "map", "pin", "holder", "server", "daemon", "process",
    /// "cgroup", "mount", "file", "journal" or "look" (what could not be looked at).
    pub kind: String,
    /// Which one, and what it does.
    pub what: String,
    /// Where: a network namespace, a path; empty for the node as a whole.
    pub place: String,
    /// How it goes away.
    pub goes: String,
}

/// Everything that is left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResidueReport {
    /// The worst of all findings: "clean", "inert", "unknown" or "effect".
    pub level: Level,
    /// Each thing.
    pub leftovers: Vec<Leftover>,
    /// Network namespaces that were looked into.
    pub namespaces: u32,
    /// Mount namespaces that were looked into.
    pub mount_namespaces: u32,
    /// Processes that were looked at.
    pub processes: u32,
    /// Things of ours that are in use by running faults, and therefore not left over.
    pub in_use: u32,
}

impl Level {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Inert => "inert",
            Self::Unknown => "unknown",
            Self::Effect => "effect",
        }
    }

    /// The exit code of a program that looked: 0 nothing, 5 inert leftovers, 7 an effect remains, 1 cannot be known.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Inert => 5,
            Self::Unknown => 1,
            Self::Effect => 7,
        }
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.what)?;
        if !self.place.is_empty() {
            write!(f, " in {}", self.place)?;
        }
        Ok(())
    }
}

impl fmt::Display for ResidueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for left in &self.leftovers {
            writeln!(f, "{:<7} {left}", left.level.word().to_uppercase())?;
            writeln!(f, "        {}", left.goes)?;
        }
        let verdict = match self.level {
            Level::Clean => "nothing of ours is left",
            Level::Inert => "something of ours is left, and does nothing",
            Level::Unknown => "not everything could be looked at",
            Level::Effect => "a fault that nobody keeps still acts",
        };
        writeln!(
            f,
            "{verdict} ({} network and {} mount namespaces, {} processes; {} things in use by running faults)",
            self.namespaces, self.mount_namespaces, self.processes, self.in_use
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_not_knowing_is_never_clean() {
        let mut levels = [Level::Effect, Level::Clean, Level::Unknown, Level::Inert];
        levels.sort();
        assert_eq!(levels.map(Level::exit_code), [0, 5, 1, 7]);
    }

    #[test]
    fn a_report_names_what_is_left_where_and_how_it_goes() {
        let left = Leftover {
            level: Level::Inert,
            kind: "device".into(),
            what: "chaos0000beefn".into(),
            place: "network namespace blue".into(),
            goes: "removed at the next start".into(),
        };
        let report = ResidueReport { level: Level::Inert, leftovers: vec![left], ..ResidueReport::default() };
        let text = report.to_string();
        assert!(text.starts_with("INERT   device chaos0000beefn in network namespace blue\n"), "{text}");
        assert!(text.contains("removed at the next start\nsomething of ours is left"), "{text}");
    }
}
