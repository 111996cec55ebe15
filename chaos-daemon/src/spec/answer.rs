//! What packets are answered with: what a caller writes in `params`, and what it means.

use chaos_common::unreachable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::target::{Protocol, Traffic};
use super::units::{Probability, SpecError, packet_share};

/// The answers of `error`, as callers name them; the first is the one that need not be named.
pub const ERROR_ANSWERS: &[(&str, Refusal)] = &[
    ("reset", Refusal::Reset),
    ("host_unreachable", Refusal::HostUnreachable),
    ("network_unreachable", Refusal::NetworkUnreachable),
    ("port_unreachable", Refusal::PortUnreachable),
    ("admin_prohibited", Refusal::AdminProhibited),
];

/// What `error` answers a packet with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A TCP reset.
    Reset,
    /// ICMP: the host cannot be reached.
    HostUnreachable,
    /// ICMP: no route to its network.
    NetworkUnreachable,
    /// ICMP: nobody listens on the port.
    PortUnreachable,
    /// ICMP: a firewall forbids it.
    AdminProhibited,
}

impl Refusal {
    /// The codes of the ICMP message, as the programs read them; none for a reset.
    pub fn codes(self) -> Option<u32> {
        match self {
            Self::Reset => None,
            Self::HostUnreachable => Some(unreachable::HOST),
            Self::NetworkUnreachable => Some(unreachable::NETWORK),
            Self::PortUnreachable => Some(unreachable::PORT),
            Self::AdminProhibited => Some(unreachable::ADMIN_PROHIBITED),
        }
    }

    /// As callers name it.
    pub fn name(self) -> &'static str {
        ERROR_ANSWERS.iter().find(|(_, refusal)| *refusal == self).map_or("reset", |(name, _)| name)
    }
}

/// What `error` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorParams {
    answer: Option<String>,
    packet_probability: Option<f64>,
}

impl ErrorParams {
    pub(super) fn refusal(&self) -> Result<Refusal, SpecError> {
        find(self.answer.as_deref(), ERROR_ANSWERS)
    }

    pub(super) fn share(&self) -> Result<Probability, SpecError> {
        packet_share(self.packet_probability)
    }
}

/// The answer of this name; the first of the list if none is named.
fn find<T: Copy>(name: Option<&str>, known: &[(&str, T)]) -> Result<T, SpecError> {
    let found = match name {
        None => known.first(),
        Some(name) => known.iter().find(|(word, _)| name == *word),
    };
    found.map(|(_, answer)| *answer).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        let name = name.unwrap_or_default();
        SpecError::new("params.answer", format!("{name:?} is not known: give one of {}", words.join(", ")))
    })
}

impl Refusal {
    /// The traffic that can be answered so: only TCP can be reset.
    pub(super) fn narrow(self, mut traffic: Traffic) -> Result<Traffic, SpecError> {
        match (self, traffic.protocol) {
            (Self::Reset, Protocol::Any) => traffic.protocol = Protocol::Tcp,
            (Self::Reset, Protocol::Udp | Protocol::Icmp) => {
                return Err(SpecError::new(
                    "target.protocol",
                    "only tcp can be reset: leave the protocol out, give another answer, or use timeout",
                ));
            }
            _ => {}
        }
        Ok(traffic)
    }
}
