//! Faults of calls: what the programs of one service ask the kernel for fails, with an error of the caller's choice.

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::errno::{CONNECT_ERRORS, Errno};
use super::parts::{CallShare, CallSignal};
use super::ports::Ports;
use super::process::{Whose, signal};
use super::target::{self, Protocol, TargetRequest};
use super::units::{Probability, SpecError};

/// How the calls that match fail.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// With which error.
    pub errno: Errno,
    /// Share of the calls that match, and are not let pass for being early, that fails.
    pub probability: Probability,
    /// So many calls that match are let pass first.
    pub after_calls: u64,
    /// So many calls fail at most; `None` is no limit.
    pub times: Option<u64>,
    /// Number of the signal (signal(7)) that whoever makes such a call is sent beside it; `None` is none.
    pub signal: Option<i32>,
}

impl Failure {
    /// What a caller says of it: an error of `known`, the first of them if none is named, for every call unless something
    /// else is said.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub(super) fn parse(
        known: &[(&str, &str, i32)],
        errno: Option<&str>,
        CallShare { call_probability, after_calls, times }: CallShare,
    ) -> Result<Self, SpecError> {
        let probability = Probability::new("params.call_probability", call_probability)?;
        Ok(Self { errno: Errno::parse(errno, known)?, probability, after_calls, times, signal: None })
    }

    /// The same, of calls by which a signal may come. One that was meant to end a process once is not to end each that comes in its
    /// place: so with a signal and nothing said, one call fails.
    ///
    /// # Errors
    /// When there is no signal of this name, or it would leave processes standing still.
    pub(super) fn with_signal(self, CallSignal { signal: name }: &CallSignal) -> Result<Self, SpecError> {
        let Some(name) = name else { return Ok(self) };
        Ok(Self { signal: Some(signal(name)?), times: self.times.or(Some(1)), ..self })
    }
}

/// The operations that a caller names, each once; all of `known` if none is named. `others` are those that cannot be meant, and
/// why.
///
/// # Errors
/// Names what is not known.
pub(super) fn operations<T: Copy + PartialEq>(
    names: &[String],
    known: &[T],
    name_of: fn(T) -> &'static str,
    others: &[(&str, &str)],
) -> Result<Vec<T>, SpecError> {
    let mut operations = Vec::new();
    for name in names {
        let found = known.iter().copied().find(|operation| name_of(*operation) == name);
        let operation = found.ok_or_else(|| {
            let problem = match others.iter().find(|(other, _)| other == name) {
                Some((_, why)) => format!("{name} {why}"),
                None => {
                    let known: Vec<_> = known.iter().map(|operation| name_of(*operation)).collect();
                    format!("{name:?} is not known: give some of {}", known.join(", "))
                }
            };
            SpecError::new("params.operations", problem)
        })?;
        if !operations.contains(&operation) {
            operations.push(operation);
        }
    }
    if operations.is_empty() {
        operations.extend_from_slice(known);
    }
    Ok(operations)
}

/// The calls of one service that open a connection, or send without one: parsed, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Whose sockets.
    pub whose: Whose,
    /// Destinations. Empty, with no host either, is every destination.
    pub peers: Vec<IpNet>,
    /// Destination by name, to be resolved.
    pub host: Option<String>,
    /// Protocol; never [`Protocol::Icmp`].
    pub protocol: Protocol,
    /// Ports of the destination.
    pub ports: Option<Ports>,
}

/// What `connect_error` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ConnectParams {
    /// What a call fails with; connection_refused unless it is given.
    #[schemars(extend("enum" = words(CONNECT_ERRORS)))]
    errno: Option<String>,
}

impl ConnectParams {
    pub(super) fn failure(&self, share: CallShare) -> Result<Failure, SpecError> {
        Failure::parse(CONNECT_ERRORS, self.errno.as_deref(), share)
    }
}

/// The errors of a list, as callers name them.
pub(super) fn words(known: &[(&'static str, &str, i32)]) -> Vec<&'static str> {
    known.iter().map(|(word, ..)| *word).collect()
}

impl Connections {
    /// Parses a target that names a service and, maybe, destinations.
    pub(super) fn parse(target: &TargetRequest) -> Result<Self, SpecError> {
        for (field, present, why) in [
            (
                "target.interface",
                target.interface.is_some(),
                "a call has none yet: name cidr, port or protocol",
            ),
            ("target.netns", target.netns.is_some(), "the sockets of a cgroup are found in every namespace"),
            ("target.local_port", target.local_port.is_some(), "a call has none yet: give port"),
            ("target.direction", target.direction.is_some(), "calls go out"),
        ] {
            if present {
                return Err(SpecError::new(field, format!("{why}; leave it out")));
            }
        }
        let either = target::ports("target.port", target.port.as_ref())?;
        let remote = target::ports("target.remote_port", target.remote_port.as_ref())?;
        if either.is_some() && remote.is_some() && either != remote {
            return Err(SpecError::new("target.port", "a call has one port: give port or remote_port"));
        }
        let protocol = target::protocol(target.protocol.as_deref())?;
        if protocol == Protocol::Icmp {
            return Err(SpecError::new("target.protocol", "icmp has no connections: give tcp or udp"));
        }
        Ok(Self {
            whose: Whose::parse(target)?.ok_or_else(Whose::missing)?,
            peers: target::peers(target)?,
            host: target.host.clone(),
            protocol,
            ports: either.or(remote),
        })
    }
}

#[cfg(test)]
mod tests {
    use nix::libc;
    use serde_json::json;

    use super::*;
    use crate::spec::FaultType;
    use crate::spec::effect::Effect;
    use crate::spec::fault;

    fn target(json: serde_json::Value) -> Result<Connections, SpecError> {
        Connections::parse(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn a_service_and_where_it_calls_are_a_target() {
        let found = target(json!({"unit": "a.service", "cidr": "10.0.0.7", "port": 5432, "protocol": "tcp"}))
            .unwrap();
        assert_eq!((found.ports, found.protocol), (Some(Ports::one(5432)), Protocol::Tcp));
        assert_eq!(found.peers, ["10.0.0.7/32".parse::<IpNet>().unwrap()]);
        assert_eq!(target(json!({"cgroup": "a", "remote_port": 7})).unwrap().ports, Some(Ports::one(7)));
    }

    #[test]
    fn what_a_call_does_not_have_is_refused_by_its_field() {
        for (with, field) in [
            (json!({"interface": "eth0"}), "target.interface"),
            (json!({"netns": "a"}), "target.netns"),
            (json!({"local_port": 1}), "target.local_port"),
            (json!({"direction": "egress"}), "target.direction"),
            (json!({"pid": 0}), "target.pid"),
            (json!({"pid": 1, "share": 0.5}), "target.share"),
            (json!({"protocol": "icmp"}), "target.protocol"),
            (json!({"port": 0}), "target.port"),
            (json!({"port": 1, "remote_port": 2}), "target.port"),
            (json!({"cgroup": "b"}), "target.cgroup"),
        ] {
            let mut whole = json!({"unit": "a.service"});
            whole.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
            assert_eq!(target(whole.clone()).unwrap_err().field, field, "{whole}");
        }
        assert_eq!(target(json!({"port": 1})).unwrap_err().field, "target.cgroup");
    }

    #[test]
    fn errors_have_two_names_and_a_default() {
        let parse =
            |params| match fault::tests::parse(FaultType::ConnectError, r#"{"unit":"a.service"}"#, params)?
                .effect
            {
                Effect::Connect { failure, .. } => Ok::<_, SpecError>(failure),
                other => panic!("{other:?}"),
            };
        assert_eq!(parse(json!({})).unwrap().errno.symbol(), "ECONNREFUSED");
        for name in ["host_unreachable", "EHOSTUNREACH"] {
            assert_eq!(parse(json!({"errno": name})).unwrap().errno.number(), libc::EHOSTUNREACH as u32);
        }
        assert_eq!(parse(json!({"errno": "EIO"})).unwrap_err().field, "params.errno");
        let share = parse(json!({"call_probability": 2})).unwrap_err();
        assert_eq!(share.field, "params.call_probability");
        assert_eq!(parse(json!({"times": 2})).unwrap().times, Some(2));
        assert_eq!(parse(json!({"times": 0})).unwrap_err().field, "params.times");
    }
}
