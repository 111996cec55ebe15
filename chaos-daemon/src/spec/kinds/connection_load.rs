//! `connection_load`: a server's connections are used up.

use std::time::Duration;

use super::Kind;
use crate::spec::FaultRequest;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::Ramp;
use crate::spec::sessions::LoadParams;
use crate::spec::units::SpecError;

pub(super) const KIND: Kind = Kind {
    summary: "opens connections to a server of this host (TCP, HTTP or MCP) and holds them, so that its pool is used up, or opens and closes \
                 them at a rate; counts those that are refused, late, or answered with nothing, and times them",
    categories: &[Category::Resources, Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Partial],
    share: None,
    needs: &[],
    parameters: &[fields_of::<LoadParams>, fields_of::<Ramp>],
    group: false,
    target: &["netns"],
    example: ("{}", r#"{"url": "tcp://127.0.0.1:1", "sessions": 1}"#),
    effect,
};

fn effect(request: &FaultRequest, _: Duration) -> Result<Effect, SpecError> {
    let ramp = request.part::<Ramp>()?.duration();
    Ok(Effect::Load(request.part::<LoadParams>()?.load(ramp, &request.target)?))
}
