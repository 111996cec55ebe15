//! What a fault has met, taken or done since it started: figures of its own family, and no others. The names are those that callers
//! see, so that there is one description of each.

pub mod words;

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a fault has met, taken or done, by the family that it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
// Read in this order: a variant comes before those whose fields it has, too.
#[serde(untagged)]
pub enum Evidence {
    /// Of packets, and of calls.
    Met(Met),
    /// resource_exhaustion of cpu.
    Burned(Burned),
    /// link_down in a rhythm.
    Flaps(Flaps),
    /// Other supervised faults.
    Settings(Settings),
    /// connection_load.
    Connections(Connections),
    /// resource_exhaustion of memory with oom.
    Oom(Oom),
    /// resource_exhaustion of memory.
    Memory(Memory),
    /// resource_exhaustion of disk_fill.
    Room(Room),
    /// resource_exhaustion of what is counted, and port_in_use.
    Things(Things),
    /// resource_exhaustion of disk_io.
    Moved(Moved),
    /// process_kill.
    Signals(Signals),
    /// service_restart.
    Restart(Recovery),
    /// process_pause.
    Pauses(Pauses),
    /// host_reboot, host_panic.
    Down(Down),
    /// Nothing is known yet: it is being applied.
    Unknown(Unknown),
}

/// No figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unknown {}

/// Packets that a fault has met; of a fault of calls, calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Met {
    /// Packets that matched the target; for a fault of calls, calls.
    #[serde(rename = "packets_matched")]
    pub matched: u64,
    /// Packets, or calls, that the fault acted on.
    #[serde(rename = "packets_affected")]
    pub affected: u64,
    /// Packets, or calls, that matched but are protected, such as the daemon's own.
    #[serde(rename = "packets_protected")]
    pub protected: u64,
}

/// Processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Burned {
    /// Processor time that was burned.
    pub cpu_seconds: Seconds,
}

/// A link that goes down and up by turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flaps {
    /// Settings of the host that are as the fault has set them; of a link in a rhythm 1 while it is down.
    pub settings_held: u64,
    /// How often the link was set down.
    pub link_downs: u64,
}

/// Settings of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// Settings of the host that are as the fault has set them; of a link in a rhythm 1 while it is down.
    pub settings_held: u64,
    /// cpu_limit, memory_limit, pids_limit: how often the kernel has held the cgroup back by the limit (`nr_throttled` of
    /// `cpu.stat`, `high` of `memory.events.local`, `max` of `pids.events`); of other settings it does not count.
    #[schemars(with = "u64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_held_back: Option<u64>,
}

/// Connections to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Things that the fault holds and that are counted: descriptors, threads, inodes, ports, connections.
    pub things_held: u64,
    /// What has become of all that it has opened.
    pub connections: ConnectionEvidence,
    /// Why it is less than was asked for, if it is: "growing", "reserve" (what is left is to stay), "exhausted" (there is no more),
    /// "lapsed" (given back, because the daemon stood still) or "struck" (given back, because the OOM killer has killed).
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
}

/// Memory of a control group, until the kernel kills for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Oom {
    /// Bytes that the fault holds, of memory or of a file system.
    pub bytes_held: u64,
    /// By how much `oom_kill` in `memory.events` of the cgroup has risen. It may count twice the one for which all of a group are
    /// killed.
    pub oom_kills: u64,
    /// Seconds until somebody was back: a new process that matches the target, the service active again, or a new process in the
    /// cgroup after a strike of the OOM killer.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_after_seconds: Option<Seconds>,
    /// Why it is less than was asked for, if it is: "growing", "reserve" (what is left is to stay), "exhausted" (there is no more),
    /// "lapsed" (given back, because the daemon stood still) or "struck" (given back, because the OOM killer has killed).
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
}

/// Memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Bytes that the fault holds, of memory or of a file system.
    pub bytes_held: u64,
    /// Of these, on huge pages.
    pub bytes_on_huge_pages: u64,
    /// Why it is less than was asked for, if it is: "growing", "reserve" (what is left is to stay), "exhausted" (there is no more),
    /// "lapsed" (given back, because the daemon stood still) or "struck" (given back, because the OOM killer has killed).
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
}

/// Room in a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Room {
    /// Bytes that the fault holds, of memory or of a file system.
    pub bytes_held: u64,
    /// Why it is less than was asked for, if it is: "growing", "reserve" (what is left is to stay), "exhausted" (there is no more),
    /// "lapsed" (given back, because the daemon stood still) or "struck" (given back, because the OOM killer has killed).
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Things {
    /// Things that the fault holds and that are counted: descriptors, threads, inodes, ports, connections.
    pub things_held: u64,
    /// Why it is less than was asked for, if it is: "growing", "reserve" (what is left is to stay), "exhausted" (there is no more),
    /// "lapsed" (given back, because the daemon stood still) or "struck" (given back, because the OOM killer has killed).
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
}

/// Bandwidth of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Bytes that the fault has read from and written to a file system.
    pub bytes_moved: u64,
    /// Why it is less than was asked for, if it is: "growing", "reserve" (what is left is to stay), "exhausted" (there is no more),
    /// "lapsed" (given back, because the daemon stood still) or "struck" (given back, because the OOM killer has killed).
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
}

/// Processes that are sent signals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signals {
    /// Signals sent to who takes notice.
    pub signals_sent: u64,
    /// What became of the processes, since the last volley.
    #[serde(flatten)]
    pub recovery: Recovery,
}

/// Processes that ended because of a fault, and what came after them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recovery {
    /// Processes that were sent a signal and have ended; of a service, 1 once it was gone.
    pub processes_ended: u64,
    /// Seconds until the last of them had ended; of a service, from the order until it was gone.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_after_seconds: Option<Seconds>,
    /// Seconds until somebody was back: a new process that matches the target, the service active again, or a new process in the
    /// cgroup after a strike of the OOM killer.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_after_seconds: Option<Seconds>,
    /// Whether processes have ended, and for seconds no new one was seen.
    #[serde(default)]
    pub nobody_came_back: bool,
}

/// Processes that are made to stand still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pauses {
    /// Processes that stand still now.
    pub processes_paused: u64,
    /// How often processes were made to stand still.
    pub pauses: u64,
}

/// A host that is told to go down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Down {
    /// How often the host was told to go down, 0 or 1.
    pub host_downs: u64,
}

/// What has become of the connections that a fault opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionEvidence {
    /// Opened, with all their answers.
    pub opened: u64,
    /// Refused by the server, or reset before it had answered.
    pub refused: u64,
    /// Not opened, or not answered, in time.
    pub timeouts: u64,
    /// Answered with nothing that says so: accepted and closed without a byte, HTTP 2xx with an empty body, tools/list
    /// without a tool.
    pub empty_answers: u64,
    /// Answered with an error: HTTP 4xx and 5xx, a JSON-RPC error, what is no answer.
    pub error_answers: u64,
    /// Held, and then ended by the server.
    pub lost: u64,
    /// Not opened for a reason of this side, such as no free port.
    pub unopened: u64,
    /// Milliseconds that opening took.
    #[schemars(with = "Percentiles")]
    #[serde(default, rename = "connect_ms", skip_serializing_if = "Option::is_none")]
    pub connect: Option<Percentiles>,
    /// HTTP: milliseconds from a request until the head of its answer.
    #[schemars(with = "Percentiles")]
    #[serde(default, rename = "first_byte_ms", skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Percentiles>,
    /// MCP: milliseconds from initialize until its answer.
    #[schemars(with = "Percentiles")]
    #[serde(default, rename = "initialize_ms", skip_serializing_if = "Option::is_none")]
    pub initialize: Option<Percentiles>,
}

/// Percentiles of the last 4096, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// Half of them, at most.
    pub p50: Milliseconds,
    /// Nine of ten.
    pub p90: Milliseconds,
    /// 99 of 100.
    pub p99: Milliseconds,
}

/// Why a fault holds less than it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortfall {
    /// It is still growing.
    Growing,
    /// What is left is the reserve.
    Reserve,
    /// The kernel, or the server, gives no more.
    Exhausted,
    /// Its lease ran out, and it has given everything back.
    Lapsed,
    /// The kernel's OOM killer has struck, and it has given everything back.
    Struck,
}

/// A time that is written as a number of its unit.
macro_rules! times {
    ($($(#[$doc:meta])+ $name:ident of $unit:literal,)+) => {$(
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(from = "f64", into = "f64")]
        pub struct $name(pub Duration);

        impl From<f64> for $name {
            fn from(number: f64) -> Self {
                Self(Duration::try_from_secs_f64(number * $unit).unwrap_or_default())
            }
        }

        impl From<$name> for f64 {
            fn from(time: $name) -> Self {
                time.0.as_secs_f64() / $unit
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                f64::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                f64::json_schema(generator)
            }
        }
    )+};
}

times! {
    /// Written in seconds.
    Seconds of 1.0,
    /// Written in milliseconds.
    Milliseconds of 1e-3,
}

/// One object that has whatever an evidence may have: shorter than a form for each family, and understood by more clients.
impl JsonSchema for Evidence {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Evidence".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        for family in families(generator) {
            for (name, property) in family.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                properties.entry(name.clone()).or_insert_with(|| property.clone());
            }
        }
        json_schema!({
            "type": "object",
            "description": "What the fault has met, taken or done since it started: the figures of its own family.",
            "properties": properties,
        })
    }
}

fn families(generator: &mut SchemaGenerator) -> [Schema; 14] {
    [
        Met::json_schema(generator),
        Burned::json_schema(generator),
        Flaps::json_schema(generator),
        Settings::json_schema(generator),
        Connections::json_schema(generator),
        Oom::json_schema(generator),
        Memory::json_schema(generator),
        Room::json_schema(generator),
        Things::json_schema(generator),
        Moved::json_schema(generator),
        Signals::json_schema(generator),
        Recovery::json_schema(generator),
        Pauses::json_schema(generator),
        Down::json_schema(generator),
    ]
}

impl Default for Evidence {
    fn default() -> Self {
        Self::Unknown(Unknown {})
    }
}

impl Evidence {
    /// Whether the fault was seen to act.
    pub fn is_effect(&self) -> bool {
        match self {
            Self::Met(met) => met.affected > 0,
            Self::Burned(burned) => !burned.cpu_seconds.0.is_zero(),
            Self::Flaps(flaps) => flaps.settings_held + flaps.link_downs > 0,
            // A limit that nobody meets is there, and acts on nobody.
            Self::Settings(settings) => settings.times_held_back.unwrap_or(settings.settings_held) > 0,
            Self::Connections(found) => found.things_held + found.connections.opened > 0,
            Self::Oom(oom) => oom.bytes_held + oom.oom_kills > 0,
            Self::Memory(memory) => memory.bytes_held > 0,
            Self::Room(room) => room.bytes_held > 0,
            Self::Things(things) => things.things_held > 0,
            Self::Moved(moved) => moved.bytes_moved > 0,
            Self::Signals(signals) => signals.signals_sent + signals.recovery.processes_ended > 0,
            Self::Restart(recovery) => recovery.processes_ended > 0,
            Self::Pauses(pauses) => pauses.pauses > 0,
            Self::Down(down) => down.host_downs > 0,
            Self::Unknown(_) => false,
        }
    }

    /// Packets, or calls, that the fault acted on.
    pub fn affected(&self) -> u64 {
        if let Self::Met(met) = self { met.affected } else { 0 }
    }

    /// What has ended because of it, and what came after that.
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::Signals(signals) => signals.recovery,
            Self::Restart(recovery) => *recovery,
            Self::Oom(Oom { back_after_seconds, .. }) => {
                Recovery { back_after_seconds: *back_after_seconds, ..Recovery::default() }
            }
            _ => Recovery::default(),
        }
    }

    /// Why it holds less than it was asked for, of what can.
    pub fn shortfall(&mut self) -> Option<&mut Option<Shortfall>> {
        match self {
            Self::Connections(Connections { shortfall, .. })
            | Self::Oom(Oom { shortfall, .. })
            | Self::Memory(Memory { shortfall, .. })
            | Self::Room(Room { shortfall, .. })
            | Self::Things(Things { shortfall, .. })
            | Self::Moved(Moved { shortfall, .. }) => Some(shortfall),
            _ => None,
        }
    }

    /// The same, for a reason why it is less than was asked for.
    #[must_use]
    pub fn short(mut self, why: Option<Shortfall>) -> Self {
        if let Some(shortfall) = self.shortfall() {
            *shortfall = why;
        }
        self
    }

    /// The same, where the kernel has killed so often.
    #[must_use]
    pub fn with_oom_kills(self, oom_kills: u64) -> Self {
        match self {
            Self::Oom(oom) => Self::Oom(Oom { oom_kills, ..oom }),
            // The holder was killed before it could say anything.
            _ => Self::Oom(Oom { bytes_held: 0, oom_kills, back_after_seconds: None, shortfall: None }),
        }
    }

    /// What it holds, in bytes or things.
    #[cfg(test)]
    pub fn held(&self) -> u64 {
        match self {
            Self::Oom(Oom { bytes_held, .. })
            | Self::Memory(Memory { bytes_held, .. })
            | Self::Room(Room { bytes_held, .. }) => *bytes_held,
            Self::Connections(Connections { things_held, .. }) | Self::Things(Things { things_held, .. }) => {
                *things_held
            }
            other => panic!("{other:?} is nothing that is held"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_figure_that_several_families_have_is_described_alike() {
        let mut described: BTreeMap<String, Value> = BTreeMap::new();
        let generator = &mut SchemaGenerator::default();
        for family in families(generator) {
            for (name, property) in family.get("properties").and_then(Value::as_object).unwrap() {
                let first = described.entry(name.clone()).or_insert_with(|| property.clone());
                assert_eq!(first, property, "{name}");
            }
        }
        assert!(described.len() > 20, "{described:?}");
    }

    #[test]
    fn every_family_is_read_as_what_was_written() {
        let third = Some(Seconds(Duration::from_millis(300)));
        let recovery = Recovery {
            processes_ended: 1,
            gone_after_seconds: third,
            back_after_seconds: None,
            nobody_came_back: true,
        };
        let times = Percentiles {
            p50: Milliseconds(Duration::from_micros(1500)),
            p90: Milliseconds(Duration::from_millis(2)),
            p99: Milliseconds(Duration::from_secs(3)),
        };
        let connections = ConnectionEvidence { opened: 3, connect: Some(times), ..Default::default() };
        let shortfall = Some(Shortfall::Reserve);
        for evidence in [
            Evidence::default(),
            Evidence::Met(Met { matched: 3, affected: 2, protected: 1 }),
            Evidence::Burned(Burned { cpu_seconds: Seconds(Duration::from_millis(1250)) }),
            Evidence::Flaps(Flaps { settings_held: 0, link_downs: 3 }),
            Evidence::Settings(Settings { settings_held: 1, times_held_back: None }),
            Evidence::Settings(Settings { settings_held: 1, times_held_back: Some(0) }),
            Evidence::Connections(Connections { things_held: 2, connections, shortfall }),
            Evidence::Oom(Oom { bytes_held: 4, oom_kills: 1, back_after_seconds: third, shortfall }),
            Evidence::Memory(Memory { bytes_held: 4, bytes_on_huge_pages: 0, shortfall: None }),
            Evidence::Room(Room { bytes_held: 4, shortfall }),
            Evidence::Things(Things { things_held: 4, shortfall: None }),
            Evidence::Moved(Moved { bytes_moved: 9, shortfall: None }),
            Evidence::Signals(Signals { signals_sent: 2, recovery }),
            Evidence::Restart(recovery),
            Evidence::Pauses(Pauses { processes_paused: 1, pauses: 2 }),
            Evidence::Down(Down { host_downs: 0 }),
        ] {
            let text = serde_json::to_string(&evidence).unwrap();
            assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence, "{text}");
        }
    }
}
