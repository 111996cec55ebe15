//! `service_stop`: a service is stopped.

use serde_json::json;

use super::Kind;
use super::aims::at_unit;
use super::ended::BY_ITS_GUARD;
use super::needs::Needs;
use super::struck::guarded;
use super::table::{Table, service};
use crate::kernel::supervised::service;

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[service(
        "service_stop",
        &["first_boot::services::a_service_is_stopped_while_the_fault_lasts_and_started_again"],
    )]),
    needs: Needs::OwnManager,
    struck: &[guarded(service::stopped)],
    ended: BY_ITS_GUARD,
    harmless: |aims| (aims.unit(), json!({})),
    planned: at_unit,
};
