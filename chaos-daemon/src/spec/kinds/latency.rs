//! `latency`: packets arrive late.

use std::time::Duration;

use super::{DETOUR, Kind, TRAFFIC};
use crate::spec::FaultRequest;
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::impairment::LatencyParams;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::{Correlated, PacketShare};
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "delays matching packets with netem on a device of ours",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded],
    share: Some((Of::Packets, "params.packet_probability")),
    needs: DETOUR,
    parameters: &[fields_of::<LatencyParams>, fields_of::<Correlated>, fields_of::<PacketShare>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, "{}"),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let params: LatencyParams = request.part()?;
    request.impair(params.impairment(request.part()?)?, request.packet_share()?, params.names()?)
}
