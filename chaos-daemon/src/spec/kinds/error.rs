//! `error`: packets are answered with an error.

use std::time::Duration;

use super::{Kind, TRAFFIC};
use crate::spec::FaultRequest;
use crate::spec::answer::ErrorParams;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::PacketShare;
use crate::spec::requirement::Requirement;
use crate::spec::target::Direction;
use crate::spec::traffic::Traffic;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "answers matching packets with an error, so that callers fail at once: TCP segments with a reset, or any \
                 packet with a message that its destination cannot be reached",
    categories: &[Category::Network, Category::Errors],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Partial, Severity::Outage],
    share: Some((Of::Packets, "params.packet_probability")),
    needs: &[Requirement::PacketPrograms],
    parameters: &[fields_of::<ErrorParams>, fields_of::<PacketShare>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let traffic = Traffic::parse(&request.target, &[Direction::Egress])?;
    let refusal = request.part::<ErrorParams>()?.refusal()?;
    let traffic = refusal.narrow(traffic)?;
    Ok(Effect::Refuse { traffic, refusal, packet_probability: request.packet_share()? })
}
