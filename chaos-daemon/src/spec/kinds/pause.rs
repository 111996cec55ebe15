//! `pause`: the processes of a cgroup stand still.

use super::Kind;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::requirement::Requirement;
use crate::spec::settings;

pub(super) const KIND: Kind = Kind {
    summary: "freezes every process of a cgroup or unit (supervised)",
    categories: &[Category::Process],
    lifetimes: &[(LifetimeClass::Supervised, None)],
    severities: &[Severity::Outage],
    share: None,
    needs: &[Requirement::CgroupV2],
    parameters: &[],
    group: true,
    target: &["on_target_gone"],
    example: (r#"{"unit": "a.service"}"#, "{}"),
    effect: |request, _| Ok(Effect::Pause { whose: settings::group(&request.target)? }),
};
