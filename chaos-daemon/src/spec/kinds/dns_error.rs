//! `dns_error`: questions about names are answered wrongly, or not at all.

use std::time::Duration;

use super::{Kind, TRAFFIC};
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::dns::{DnsParams, Questions};
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::PacketShare;
use crate::spec::requirement::Requirement;
use crate::spec::target::Direction;
use crate::spec::traffic::Traffic;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "answers questions to name servers, about all names or given ones, with an error or a wrong address, or has \
                 them vanish",
    categories: &[Category::Network, Category::Errors],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Partial, Severity::Outage],
    share: Some((Of::Packets, "params.packet_probability")),
    needs: &[Requirement::PacketPrograms],
    parameters: &[fields_of::<DnsParams>, fields_of::<PacketShare>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let traffic = Questions::narrow(Traffic::parse(&request.target, &[Direction::Egress])?)?;
    let questions = request.part::<DnsParams>()?.questions()?;
    Ok(Effect::Names { traffic, questions, packet_probability: request.packet_share()? })
}
