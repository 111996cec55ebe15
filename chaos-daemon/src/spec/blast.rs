//! The blast radius of a fault: what share of what it matches it affects, how badly, and which faults can be held to a share.

use super::calls::Failure;
use super::effect::Effect;
use super::hoard::Hoard;
use super::units::Probability;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How badly those are off that a fault affects; each is worse than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Slower, or with less than they want, but served: delays, limits, loss that is made up for by sending again.
    Degraded,
    /// Some of what they ask for fails.
    Partial,
    /// Gone, stopped, or cut off.
    Outage,
}

impl Severity {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Degraded => "degraded",
            Self::Partial => "partial",
            Self::Outage => "outage",
        }
    }
}

/// What a fault takes a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// The processes that match.
    Processes,
    /// The packets that match.
    Packets,
    /// The calls that match.
    Calls,
    /// Whoever uses the target, of whom nobody is spared.
    Everything,
}

impl Of {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Packets => "packets",
            Self::Calls => "calls",
            Self::Everything => "everything",
        }
    }
}

/// The blast radius of a fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blast {
    /// What the share is of.
    pub of: Of,
    /// What share of it is affected, as a fraction.
    pub share: f64,
    /// How badly.
    pub severity: Severity,
}

/// A share in percent, with as many places as say something: `25`, `33.3`.
pub fn percent(share: f64) -> String {
    let percent = format!("{:.1}", share * 100.0);
    percent.strip_suffix(".0").unwrap_or(&percent).to_owned()
}

impl Effect {
    /// Whom it affects, and how badly. What cannot be known beforehand (what a program makes of a signal, or how often it asks
    /// for what is used up) counts as it is meant by whoever injects it.
    pub fn blast(&self) -> Blast {
        let blast = |of, share: f64, severity| Blast { of, share, severity };
        let (degraded, partial, outage) = (Severity::Degraded, Severity::Partial, Severity::Outage);
        // With nothing spared, what some have to put up with is the end for all.
        let unless_all = |share: Probability, less| if share == Probability::CERTAIN { outage } else { less };
        let of_packets = |share: Probability, less| blast(Of::Packets, share.get(), unless_all(share, less));
        match self {
            Self::Impair { traffic, impairment, packet_probability, .. } => {
                let share = impairment.share().unwrap_or(*packet_probability);
                let ends = impairment.loses_all(&traffic.directions);
                blast(Of::Packets, share.get(), if ends { outage } else { degraded })
            }
            Self::Drop { packet_probability, .. } | Self::Sever { packet_probability, .. } => {
                of_packets(*packet_probability, degraded)
            }
            Self::Refuse { packet_probability, .. } | Self::Names { packet_probability, .. } => {
                of_packets(*packet_probability, partial)
            }
            Self::Connect { failure, .. } | Self::Files { failure, .. } | Self::Sockets { failure, .. } => {
                let Failure { probability, times, signal, .. } = *failure;
                let severity = match (signal, times) {
                    (Some(_), _) => outage,
                    (None, Some(_)) => partial,
                    (None, None) => unless_all(probability, partial),
                };
                blast(Of::Calls, probability.get(), severity)
            }
            Self::Spoil { spoiling, .. } => {
                let severity = match spoiling.harmed() {
                    harmed if harmed <= 0.0 => degraded,
                    harmed if harmed < 1.0 || !spoiling.tools.is_empty() => partial,
                    _ => unless_all(spoiling.call_probability, partial),
                };
                blast(Of::Calls, spoiling.affected(), severity)
            }
            Self::ProcessKill { processes, .. } => blast(Of::Processes, processes.share.fraction(), outage),
            Self::ProcessPause { processes, rhythm } => {
                let severity = if rhythm.is_some() { degraded } else { outage };
                blast(Of::Processes, processes.share.fraction(), severity)
            }
            Self::LinkDown { rhythm, .. } => {
                blast(Of::Everything, 1.0, if rhythm.is_some() { partial } else { outage })
            }
            Self::Hoard { what, .. } => {
                let severity = match what {
                    Hoard::Memory { .. } | Hoard::DiskIo { .. } => degraded,
                    Hoard::Disk(_)
                    | Hoard::Descriptors { .. }
                    | Hoard::Tasks { .. }
                    | Hoard::Inodes { .. }
                    | Hoard::Ports { .. } => partial,
                    Hoard::Port(_) | Hoard::Oom { .. } => outage,
                };
                blast(Of::Everything, 1.0, severity)
            }
            Self::Cpu(_) | Self::Limit { .. } => blast(Of::Everything, 1.0, degraded),
            Self::ClockSkew { .. } | Self::Load(_) => blast(Of::Everything, 1.0, partial),
            Self::Pause { .. } | Self::ServiceStop { .. } | Self::ServiceRestart { .. } | Self::Down(_) => {
                blast(Of::Everything, 1.0, outage)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::{FAULT_TYPES, FaultRequest, FaultType, Share};

    fn fault(kind: &str, target: Value, params: Value) -> FaultRequest {
        let fault = json!({"fault_type": kind, "probability": 1.0, "target": target, "params": params});
        serde_json::from_value(fault).unwrap()
    }

    fn blast(kind: &str, target: Value, params: Value) -> (Of, f64, Severity) {
        let Blast { of, share, severity } = fault(kind, target, params).parse().unwrap().effect.blast();
        (of, share, severity)
    }

    #[test]
    fn a_link_is_an_outage_if_a_way_that_is_met_loses_everything() {
        let of = |target: Value, params: Value| blast("link_profile", target, params).2;
        let eth0 = || json!({"interface": "eth0"});
        let out = json!({"interface": "eth0", "direction": "egress"});
        assert_eq!(of(eth0(), json!({"preset": "dsl"})), Severity::Degraded);
        assert_eq!(of(eth0(), json!({"up_loss_percent": 100})), Severity::Outage);
        assert_eq!(of(out, json!({"up_delay_ms": 5, "down_loss_percent": 100})), Severity::Degraded);
        let trace = |text: &str| of(eth0(), json!({"up_trace": text}));
        assert_eq!(trace("time_s,loss_percent\n0,0\n5,100"), Severity::Outage);
        assert_eq!(trace("time_s,rate_kbit\n0,100\n5,0"), Severity::Outage);
        assert_eq!(trace("time_s,rate_kbit\n0,100\n0.5,0"), Severity::Degraded);
    }

    #[test]
    fn how_badly_depends_on_whether_anybody_is_spared() {
        use Of::{Calls, Everything, Packets, Processes};
        use Severity::{Degraded, Outage, Partial};
        let (eth0, unit) = (json!({"interface": "eth0"}), json!({"unit": "a.service"}));
        for (kind, target, params, expected) in [
            ("latency", &eth0, json!({"packet_probability": 0.1}), (Packets, 0.1, Degraded)),
            ("network_partition", &eth0, json!({}), (Packets, 1.0, Outage)),
            ("network_partition", &eth0, json!({"packet_probability": 0.5}), (Packets, 0.5, Degraded)),
            ("error", &eth0, json!({}), (Packets, 1.0, Outage)),
            ("error", &eth0, json!({"packet_probability": 0.25}), (Packets, 0.25, Partial)),
            ("packet_loss", &eth0, json!({"loss_percent": 5}), (Packets, 0.05, Degraded)),
            ("packet_loss", &eth0, json!({"loss_percent": 100}), (Packets, 1.0, Outage)),
            ("packet_duplicate", &eth0, json!({"duplicate_percent": 100}), (Packets, 1.0, Degraded)),
            ("bandwidth", &eth0, json!({"rate_kbit": 64}), (Packets, 1.0, Degraded)),
            ("link_down", &eth0, json!({}), (Everything, 1.0, Outage)),
            ("link_down", &eth0, json!({"down_ms": 500, "up_ms": 500}), (Everything, 1.0, Partial)),
            ("connect_error", &unit, json!({}), (Calls, 1.0, Outage)),
            ("connect_error", &unit, json!({"times": 3}), (Calls, 1.0, Partial)),
            ("connect_error", &unit, json!({"call_probability": 0.5}), (Calls, 0.5, Partial)),
            ("socket_error", &unit, json!({}), (Calls, 1.0, Outage)),
            ("socket_error", &unit, json!({"times": 3}), (Calls, 1.0, Partial)),
            (
                "process_kill",
                &json!({"unit": "a.service", "share": "25%"}),
                json!({}),
                (Processes, 0.25, Outage),
            ),
            ("process_pause", &unit, json!({}), (Processes, 1.0, Outage)),
            ("process_pause", &unit, json!({"pause_ms": 50, "run_ms": 50}), (Processes, 1.0, Degraded)),
            ("mcp_error", &unit, json!({"fail": 0.5, "drop": 0.5}), (Calls, 1.0, Outage)),
            ("mcp_error", &unit, json!({"fail": 1, "tools": ["search"]}), (Calls, 1.0, Partial)),
            ("mcp_error", &unit, json!({"fail": 1, "call_probability": 0.5}), (Calls, 0.5, Partial)),
            ("mcp_error", &unit, json!({"drop": 0.25}), (Calls, 0.25, Partial)),
            ("mcp_error", &unit, json!({"delay_ms": 100}), (Calls, 1.0, Degraded)),
            ("service_stop", &unit, json!({}), (Everything, 1.0, Outage)),
            ("pause", &unit, json!({}), (Everything, 1.0, Outage)),
            ("host_reboot", &json!({}), json!({}), (Everything, 1.0, Outage)),
            ("resource_exhaustion", &json!({}), json!({}), (Everything, 1.0, Degraded)),
            ("timeout", &eth0, json!({"packet_probability": 0.5}), (Packets, 0.5, Degraded)),
            ("timeout", &eth0, json!({}), (Packets, 1.0, Outage)),
            ("packet_corrupt", &eth0, json!({"corrupt_percent": 1}), (Packets, 0.01, Degraded)),
            ("packet_corrupt", &eth0, json!({"corrupt_percent": 100}), (Packets, 1.0, Outage)),
            ("packet_reorder", &eth0, json!({"reorder_percent": 5}), (Packets, 1.0, Degraded)),
            ("dns_error", &eth0, json!({"packet_probability": 0.5}), (Packets, 0.5, Partial)),
            ("dns_error", &eth0, json!({}), (Packets, 1.0, Outage)),
            ("file_error", &unit, json!({"path": "/data", "times": 1}), (Calls, 1.0, Partial)),
            ("file_error", &unit, json!({"path": "/data"}), (Calls, 1.0, Outage)),
            ("file_error", &unit, json!({"path": "/data", "signal": "KILL"}), (Calls, 1.0, Outage)),
            ("clock_skew", &json!({}), json!({"offset_seconds": 5}), (Everything, 1.0, Partial)),
            ("service_restart", &unit, json!({}), (Everything, 1.0, Outage)),
            ("host_panic", &json!({}), json!({}), (Everything, 1.0, Outage)),
            ("port_in_use", &json!({"local_port": 80}), json!({}), (Everything, 1.0, Outage)),
            (
                "connection_load",
                &json!({}),
                json!({"url": "tcp://127.0.0.1:80", "sessions": 5}),
                (Everything, 1.0, Partial),
            ),
            (
                "resource_exhaustion",
                &json!({}),
                json!({"resource": "file_descriptors", "leave_free": 1000}),
                (Everything, 1.0, Partial),
            ),
            (
                "resource_exhaustion",
                &unit,
                json!({"resource": "memory", "oom": true}),
                (Everything, 1.0, Outage),
            ),
        ] {
            assert_eq!(blast(kind, target.clone(), params.clone()), expected, "{kind} {target} {params}");
            let severities = FaultType::parse(kind).unwrap().severities();
            assert!(severities.is_sorted() && severities.contains(&expected.2), "{kind}: {severities:?}");
        }
    }

    #[test]
    fn a_fault_is_held_to_a_share_by_what_its_type_has_for_it() {
        let quarter = Share::new(0.25).unwrap();
        for kind in FAULT_TYPES {
            let target = match kind.shared() {
                Some((Of::Packets, _)) => json!({"interface": "eth0"}),
                _ => json!({"unit": "a.service", "seed": 7}),
            };
            let target = match kind {
                FaultType::ConnectError | FaultType::FileError | FaultType::SocketError => {
                    json!({"unit": "a.service"})
                }
                _ => target,
            };
            let params = match kind {
                FaultType::FileError => json!({"path": "/data"}),
                FaultType::McpError => json!({"drop": 1}),
                _ => json!({}),
            };
            let given = fault(kind.name(), target, params);
            let held = given.held_to(quarter);
            let Some((of, field)) = kind.shared() else {
                assert!(held.unwrap_err().problem.contains(kind.name()));
                continue;
            };
            let held = held.unwrap();
            let blast = held.parse().unwrap().effect.blast();
            assert_eq!((blast.of, blast.share, held.target.seed), (of, 0.25, given.target.seed), "{kind:?}");
            // What the document says of it would be overruled without a word.
            assert_eq!(held.held_to(quarter).unwrap_err().field, field);
        }
    }
}
