//! `service_restart`: a service is restarted, once.

use serde_json::json;

use super::Kind;
use super::aims::at_unit;
use super::ended::NOT_TAKEN_BACK;
use super::needs::{NO_MANAGER, Needs};
use super::struck::elsewhere;
use super::table::{Table, service};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[service(
        "service_restart",
        &[
            "first_boot::services::a_restart_says_how_long_the_service_was_gone_and_warns_if_it_does_not_come_back",
        ],
    )]),
    needs: Needs::OwnManager,
    struck: &[elsewhere(NO_MANAGER)],
    ended: NOT_TAKEN_BACK,
    harmless: |aims| (aims.unit(), json!({})),
    planned: at_unit,
};
