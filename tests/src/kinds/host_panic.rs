//! `host_panic`: the kernel panics.

use serde_json::json;

use super::Kind;
use super::aims::at_host;
use super::ended::TAKES_HOST_DOWN;
use super::needs::{Needs, TAKES_DOWN};
use super::struck::elsewhere;
use super::table::{Table, down};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[down(
        "host_panic",
        "and up again",
        &[
            "going_down::panic_by_an_experiment_begins",
            "going_down::up_again_after_a_panic_everything_is_told",
        ],
    )]),
    needs: Needs::OwnHost,
    struck: &[elsewhere(TAKES_DOWN)],
    ended: TAKES_HOST_DOWN,
    harmless: |_| (json!({}), json!({})),
    planned: at_host,
};
