//! `service_restart`: a service is stopped and started again.

use super::Kind;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::requirement::Requirement;
use crate::spec::settings;

pub(super) const KIND: Kind = Kind {
    summary: "restarts a systemd service once, and watches how long it is gone (irreversible)",
    categories: &[Category::Process],
    lifetimes: &[(LifetimeClass::Irreversible, None)],
    severities: &[Severity::Outage],
    share: None,
    needs: &[Requirement::Systemd, Requirement::CgroupV2],
    parameters: &[],
    group: false,
    target: &["unit"],
    example: (r#"{"unit": "a.service"}"#, "{}"),
    effect: |request, _| Ok(Effect::ServiceRestart { unit: settings::service(&request.target)? }),
};
