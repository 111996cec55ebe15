//! What packets are answered with: what a caller writes in `params`, and what it means.

use chaos_common::unreachable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::target::Protocol;
use super::traffic::Traffic;
use super::units::SpecError;

/// The answers of `error`, as callers name them.
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
pub(super) struct ErrorParams {
    /// What packets are answered with. A reset is for TCP only.
    #[serde(default = "reset")]
    #[schemars(extend("enum" = words(ERROR_ANSWERS)))]
    answer: String,
}

fn reset() -> String {
    Refusal::Reset.name().to_owned()
}

fn words<T>(known: &[(&'static str, T)]) -> Vec<&'static str> {
    known.iter().map(|(word, _)| *word).collect()
}

impl ErrorParams {
    pub(super) fn refusal(&self) -> Result<Refusal, SpecError> {
        let found = ERROR_ANSWERS.iter().find(|(word, _)| self.answer == *word);
        found.map(|(_, answer)| *answer).ok_or_else(|| {
            let (answer, known) = (&self.answer, words(ERROR_ANSWERS).join(", "));
            SpecError::new("params.answer", format!("{answer:?} is not known: give one of {known}"))
        })
    }
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
