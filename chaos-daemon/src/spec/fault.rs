//! A fault: what a caller writes ([`FaultRequest`]) and what it means ([`Fault`]).

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::blast::Of;
use super::dns::{Names, Questions};
use super::effect::Effect;
use super::host::{HostDown, Way};
use super::impairment::Impairment;
use super::kinds::FaultType;
use super::link::Link;
use super::netns;
use super::parameter;
use super::parts::{Countdown, PacketShare};
use super::service::ServicePackets;
use super::share::Share;
use super::target::{Direction, OnTargetGone, TargetRequest};
use super::traffic::Traffic;
use super::units::{DEFAULT_FAULT, LONGEST_FAULT, Probability, SHORTEST_FAULT, SpecError, seconds};

/// A fault as a caller registers it: the tool specification's fields, and the node's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRequest {
    /// Kind of fault.
    pub fault_type: FaultType,
    /// Rolled once per `inject`.
    pub probability: Probability,
    /// How long each injection lasts, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<f64>,
    /// Text reported when the fault is injected, for `error` and `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Where it goes.
    #[serde(default)]
    pub target: TargetRequest,
    /// How much, depending on the type.
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// A fault, parsed: every value within its bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Its type.
    pub fault_type: FaultType,
    /// How long it lasts.
    pub duration: Duration,
    /// What it does, and where.
    pub effect: Effect,
    /// What becomes of it when its target has gone.
    pub on_target_gone: OnTargetGone,
}

impl FaultRequest {
    /// Parses the request into a fault whose every value is within its bounds.
    ///
    /// # Errors
    /// Names the first field that is missing or wrong.
    pub fn parse(&self) -> Result<Fault, SpecError> {
        let duration = match self.duration_seconds {
            None => DEFAULT_FAULT,
            Some(value) => seconds("duration_seconds", value, SHORTEST_FAULT, LONGEST_FAULT)?,
        };
        if self.error_message.as_ref().is_some_and(|text| text.len() > 512) {
            return Err(SpecError::new("error_message", "longer than 512 bytes"));
        }
        self.target.check_resolving().and_then(|()| netns::check(self.target.netns.as_deref()))?;
        self.fault_type.check(&self.params)?;
        let effect = match self.target.on_target_gone {
            None => self.fault_type.effect(self, duration)?,
            // What becomes of a fault without its target is no part of where it goes.
            Some(_) => {
                let target = TargetRequest { on_target_gone: None, ..self.target.clone() };
                self.fault_type.effect(&Self { target, ..self.clone() }, duration)?
            }
        };
        let on_target_gone = self.target.on_target_gone()?;
        if self.target.on_target_gone.is_some() && !effect.is_pinned() {
            let problem = "belongs to faults of packets, calls, links, pauses and limits: others end with what they are about";
            return Err(SpecError::new("target.on_target_gone", problem));
        }
        Ok(Fault { fault_type: self.fault_type, duration, effect, on_target_gone })
    }

    /// The same fault of no more than a share of what it matches. Of processes a seed chooses them, so that a larger share has
    /// those of a smaller one among it.
    ///
    /// # Errors
    /// When this type affects no share, or the fault says already which share it affects.
    pub fn held_to(&self, share: Share) -> Result<Self, SpecError> {
        let Some((of, field)) = self.fault_type.shared() else {
            let problem =
                format!("{} affects all that it matches: no stage can be less", self.fault_type.name());
            return Err(SpecError::new("fault_type", problem));
        };
        let mut fault = self.clone();
        let taken = match of {
            Of::Processes | Of::Everything => fault.target.share.replace(share).is_some(),
            Of::Packets | Of::Calls => {
                let name = field.trim_start_matches("params.");
                fault.params.insert(name.to_owned(), Value::from(share.fraction())).is_some()
            }
        };
        match taken {
            true => Err(SpecError::new(field, "the stage says which share it is: leave it out")),
            false => Ok(fault),
        }
    }

    pub(super) fn lose(&self, directions: &[Direction], partition: bool) -> Result<Effect, SpecError> {
        let packet_probability = self.packet_share()?;
        if let Some(packets) = ServicePackets::parse(&self.target, directions)? {
            return Ok(Effect::Sever { packets, packet_probability, partition });
        }
        let traffic = Traffic::parse(&self.target, directions)?;
        Ok(Effect::Drop { traffic, packet_probability, partition })
    }

    /// What says itself which share of the packets it is about.
    pub(super) fn impair_all(&self, impairment: Impairment) -> Result<Effect, SpecError> {
        self.impair(impairment, Probability::CERTAIN, Vec::new())
    }

    /// What is of both directions, unless one is asked for, or can be had.
    fn impair_both(&self, impairment: Impairment) -> Result<Effect, SpecError> {
        let is_of_all = !self.target.names_group() && self.target.interface.as_deref() != Some("lo");
        let direction = is_of_all.then(|| "both".to_owned());
        let direction = self.target.direction.clone().or(direction);
        let target = TargetRequest { direction, ..self.target.clone() };
        Self { target, ..self.clone() }.impair_all(impairment)
    }

    /// A link of which at least one way is met that changes something.
    pub(super) fn impair_by_link(&self, link: Link) -> Result<Effect, SpecError> {
        let effect = self.impair_both(Impairment::Link(link))?;
        if let Effect::Impair { traffic, impairment: Impairment::Link(link), .. } = &effect {
            link.check(&traffic.directions)?;
        }
        Ok(effect)
    }

    pub(super) fn impair(
        &self,
        impairment: Impairment,
        packet_probability: Probability,
        names: Vec<Names>,
    ) -> Result<Effect, SpecError> {
        let mut traffic = Traffic::parse(&self.target, &[Direction::Egress])?;
        if !names.is_empty() {
            traffic = Questions::narrow(traffic)?;
        }
        if traffic.interface.as_deref() == Some("lo") {
            finds_back_on_loopback(&traffic)?;
        }
        Ok(Effect::Impair { traffic, impairment, packet_probability, names })
    }

    pub(super) fn down(&self, way: Way, lasts: Duration) -> Result<Effect, SpecError> {
        Ok(Effect::Down(HostDown { way, countdown: self.part::<Countdown>()?.within(lasts)? }))
    }

    pub(super) fn packet_share(&self) -> Result<Probability, SpecError> {
        self.part::<PacketShare>()?.probability()
    }

    pub(super) fn part<T: for<'de> Deserialize<'de>>(&self) -> Result<T, SpecError> {
        parameter::part(&self.params)
    }
}

/// Refuses what cannot be sent on a detour from the loopback.
fn finds_back_on_loopback(traffic: &Traffic) -> Result<(), SpecError> {
    const LOCAL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
    if traffic.directions.contains(&Direction::Ingress) {
        let problem = "whatever leaves on the loopback arrives there: give \"egress\"";
        return Err(SpecError::new("target.direction", problem));
    }
    let lost = |net: &&IpNet| matches!(net, IpNet::V4(net) if !net.contains(&LOCAL) && !LOCAL.contains(net));
    match traffic.peers.iter().find(lost) {
        None => Ok(()),
        Some(net) => Err(SpecError::new(
            "target.cidr",
            format!(
                "on the loopback this fault finds IPv4 packets to {LOCAL} only, and none to {net}: use that, or IPv6"
            ),
        )),
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
pub(super) mod tests;
