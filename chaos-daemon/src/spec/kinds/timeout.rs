//! `timeout`: packets vanish, so that callers wait until their own time-out.

use super::{Kind, TRAFFIC};
use crate::spec::blast::{Of, Severity};
use crate::spec::category::Category;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::parameter::fields_of;
use crate::spec::parts::PacketShare;
use crate::spec::requirement::Requirement;
use crate::spec::target::Direction;

pub(super) const KIND: Kind = Kind {
    summary: "drops matching packets silently on their way out, so that callers wait; of an interface, or of a unit, cgroup or \
                 processes on every interface",
    categories: &[Category::Network],
    lifetimes: &[(LifetimeClass::Kernel, None)],
    severities: &[Severity::Degraded, Severity::Outage],
    share: Some((Of::Packets, "params.packet_probability")),
    needs: &[Requirement::PacketPrograms],
    parameters: &[fields_of::<PacketShare>],
    group: true,
    target: TRAFFIC,
    example: (r#"{"interface": "eth0"}"#, "{}"),
    effect: |request, _| request.lose(&[Direction::Egress], false),
};
