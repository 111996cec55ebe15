//! Faults of sockets: what one service asks of them fails, with an error of the caller's choice.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calls::{self, Failure};
use super::errno::SOCKET_ERRORS;
use super::parts::{CallShare, CallSignal};
use super::process::Whose;
use super::target::{self, PortMatch, Protocol, TargetRequest};
use super::units::SpecError;

/// Something that programs ask of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Giving one an address of this host.
    Bind,
    /// Having one wait for connections.
    Listen,
    /// Taking a connection that has come.
    Accept,
    /// Sending, by whatever call.
    Send,
    /// Receiving, likewise.
    Receive,
}

/// Every operation.
pub const OPERATIONS: &[Operation] =
    &[Operation::Bind, Operation::Listen, Operation::Accept, Operation::Send, Operation::Receive];

/// What is not meant here, and why.
const OTHERS: &[(&str, &str)] = &[
    ("connect", "is what connect_error fails"),
    ("close", "cannot be made to fail: no security hook of the kernel is asked about it; fail send"),
];

impl Operation {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Listen => "listen",
            Self::Accept => "accept",
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }

    /// Why it can never be met by a fault of this protocol and these ports; `None` when it can.
    fn unmet(self, protocol: Protocol, ports: PortMatch) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Listen | Self::Accept if protocol == Protocol::Udp => {
                Some(("params.operations", "is of connections, which UDP has none of: leave it out"))
            }
            Self::Bind | Self::Listen | Self::Accept if ports.remote.is_some() => Some((
                "target.remote_port",
                "is asked of a socket that has no peer yet: give local_port, or leave the operation out",
            )),
            _ => None,
        }
    }
}

/// What one service asks of sockets of IPv4 and IPv6: parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketCalls {
    /// Whose calls.
    pub whose: Whose,
    /// Protocol; never [`Protocol::Icmp`].
    pub protocol: Protocol,
    /// Ports.
    pub ports: PortMatch,
    /// Which calls; never empty, and each once.
    pub operations: Vec<Operation>,
}

/// What `socket_error` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SocketParams {
    /// Which calls fail; all unless some are given.
    #[serde(default)]
    #[schemars(extend("items" = {"type": "string", "enum": OPERATIONS}))]
    operations: Vec<String>,
    /// What a call fails with; no_buffer_space unless it is given.
    #[schemars(extend("enum" = calls::words(SOCKET_ERRORS)))]
    errno: Option<String>,
}

impl SocketParams {
    pub(super) fn failure(&self, share: CallShare, signal: &CallSignal) -> Result<Failure, SpecError> {
        Failure::parse(SOCKET_ERRORS, self.errno.as_deref(), share)?.with_signal(signal)
    }

    pub(super) fn calls(&self, target: &TargetRequest) -> Result<SocketCalls, SpecError> {
        let TargetRequest { protocol, port, local_port, remote_port, .. } = target.clone();
        let others = TargetRequest { protocol, port, local_port, remote_port, ..TargetRequest::default() };
        let problem = "what is asked of a socket may be of no interface and of no peer: name a cgroup, a unit or processes, and \
                       beside them protocol and ports only";
        let whose = Whose::alone(target, others, problem)?;
        let (protocol, ports) = (target::protocol(target.protocol.as_deref())?, PortMatch::parse(target)?);
        if protocol == Protocol::Icmp {
            return Err(SpecError::new(
                "target.protocol",
                "icmp has no ports: give tcp or udp, or leave it out",
            ));
        }
        let mut operations = calls::operations(&self.operations, OPERATIONS, Operation::name, OTHERS)?;
        let unmet = |operation: &Operation| operation.unmet(protocol, ports);
        match self.operations.is_empty() {
            true => operations.retain(|operation| unmet(operation).is_none()),
            false => {
                if let Some((operation, (field, why))) =
                    operations.iter().find_map(|operation| Some((operation, unmet(operation)?)))
                {
                    return Err(SpecError::new(field, format!("{} {why}", operation.name())));
                }
            }
        }
        Ok(SocketCalls { whose, protocol, ports, operations })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::effect::Effect;
    use crate::spec::fault;
    use crate::spec::{FaultType, Ports};

    fn parse(narrow: Value, params: Value) -> Result<(SocketCalls, Failure), SpecError> {
        let mut target = json!({"unit": "a.service"});
        target.as_object_mut().unwrap().extend(narrow.as_object().unwrap().clone());
        match fault::tests::parse(FaultType::SocketError, &target.to_string(), params)?.effect {
            Effect::Sockets { calls, failure } => Ok((calls, failure)),
            other => panic!("{other:?}"),
        }
    }

    fn operations(narrow: Value, params: Value) -> Vec<&'static str> {
        parse(narrow, params).unwrap().0.operations.into_iter().map(Operation::name).collect()
    }

    #[test]
    fn every_operation_fails_for_want_of_room_unless_something_else_is_said() {
        let (calls, failure) = parse(json!({}), json!({})).unwrap();
        assert_eq!((calls.operations.as_slice(), calls.protocol), (OPERATIONS, Protocol::Any));
        assert_eq!((failure.errno.symbol(), failure.times), ("ENOBUFS", None));
        let params = json!({"operations": ["send", "bind", "send"], "errno": "EADDRINUSE", "times": 3, "after_calls": 2});
        let narrow = json!({"protocol": "tcp", "local_port": "80-90"});
        let (calls, failure) = parse(narrow, params).unwrap();
        assert_eq!(calls.operations, [Operation::Send, Operation::Bind]);
        assert_eq!(
            calls.ports.local.map(Ports::range).map(|range| (range.first, range.last)),
            Some((80, 90))
        );
        assert_eq!((failure.errno.symbol(), failure.times, failure.after_calls), ("EADDRINUSE", Some(3), 2));
    }

    #[test]
    fn what_can_never_be_met_is_left_out_and_refused_when_it_is_named() {
        assert_eq!(operations(json!({"protocol": "udp"}), json!({})), ["bind", "send", "receive"]);
        assert_eq!(operations(json!({"remote_port": 80}), json!({})), ["send", "receive"]);
        assert_eq!(operations(json!({"port": 80}), json!({})).len(), OPERATIONS.len());
        for (narrow, operation, field) in [
            (json!({"protocol": "udp"}), "accept", "params.operations"),
            (json!({"remote_port": 80}), "bind", "target.remote_port"),
        ] {
            let error = parse(narrow, json!({"operations": ["send", operation]})).unwrap_err();
            assert!(error.field == field && error.problem.starts_with(operation), "{error}");
        }
    }

    #[test]
    fn what_is_missing_or_absurd_is_named() {
        for (narrow, params, field) in [
            (json!({}), json!({"operations": ["connect"]}), "params.operations"),
            (json!({}), json!({"operations": ["close"]}), "params.operations"),
            (json!({}), json!({"operations": ["open"]}), "params.operations"),
            (json!({}), json!({"errno": "no_space"}), "params.errno"),
            (json!({}), json!({"call_probability": 2}), "params.call_probability"),
            (json!({}), json!({"times": 0}), "params.times"),
            (json!({"protocol": "icmp"}), json!({}), "target.protocol"),
            (json!({"local_port": 0}), json!({}), "target.local_port"),
            (json!({"cidr": "10.0.0.1"}), json!({}), "target"),
            (json!({"interface": "eth0"}), json!({}), "target"),
            (json!({"direction": "egress"}), json!({}), "target"),
            (json!({"share": 0.5}), json!({}), "target.share"),
            (json!({"unit": null}), json!({}), "target.cgroup"),
        ] {
            assert_eq!(parse(narrow.clone(), params.clone()).unwrap_err().field, field, "{narrow} {params}");
        }
        let elsewhere = parse(json!({}), json!({"operations": ["connect"]})).unwrap_err();
        assert!(elsewhere.problem.contains("connect_error"), "{elsewhere}");
    }

    #[test]
    fn no_error_has_two_names() {
        let mut numbers: Vec<_> = SOCKET_ERRORS.iter().map(|(.., number)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SOCKET_ERRORS.len());
    }
}
