//! `service_stop`: a service is stopped.

use super::Kind;
use crate::spec::blast::Severity;
use crate::spec::category::Category;
use crate::spec::effect::Effect;
use crate::spec::lifetime::LifetimeClass;
use crate::spec::requirement::Requirement;
use crate::spec::settings;

pub(super) const KIND: Kind = Kind {
    summary: "stops a systemd service, and starts it again at the end (supervised)",
    categories: &[Category::Process],
    lifetimes: &[(LifetimeClass::Supervised, None)],
    severities: &[Severity::Outage],
    share: None,
    needs: &[Requirement::Systemd, Requirement::CgroupV2],
    parameters: &[],
    group: false,
    target: &["unit"],
    example: (r#"{"unit": "a.service"}"#, "{}"),
    effect: |request, _| Ok(Effect::ServiceStop { unit: settings::service(&request.target)? }),
};
