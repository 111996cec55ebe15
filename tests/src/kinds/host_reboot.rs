//! `host_reboot`: the host boots again.

use serde_json::json;

use super::Kind;
use super::aims::at_host;
use super::ended::TAKES_HOST_DOWN;
use super::needs::{Needs, TAKES_DOWN};
use super::struck::elsewhere;
use super::table::{Table, down};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        down(
            "host_reboot",
            "in order",
            &[
                "going_down::reboot_in_order_by_an_experiment_begins",
                "going_down::forced_after_a_reboot_in_order_everything_is_told",
            ],
        ),
        down(
            "host_reboot",
            "forced",
            &[
                "going_down::forced_reboot_begins",
                "going_down::panic_after_a_forced_reboot_everything_is_told",
            ],
        ),
    ]),
    needs: Needs::OwnHost,
    struck: &[elsewhere(TAKES_DOWN)],
    ended: TAKES_HOST_DOWN,
    harmless: |_| (json!({}), json!({})),
    planned: at_host,
};
