//! `link_profile`: a whole link, each way for itself.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::{DELAY_MS, ended};
use super::needs::Needs;
use super::sign::Sign;
use super::struck::packets;
use super::table::{Table, netem};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[netem(
    "link_profile",
    "out and in, each for itself",
    &[
        "link_profiles::a_link_has_delay_loss_and_rate_of_its_own_each_way",
        "link_profiles::a_preset_is_the_link_of_its_name",
    ],
), netem("link_profile", "a trace", &[
            "link_profiles::a_trace_has_its_rate_in_each_second_over_and_over",
            "link_profiles::a_trace_of_delays_and_losses_is_replayed",
        ])]),
    needs: Needs::Netem(&[("link_profile", || json!({"preset": "3g"}))]),
    struck: &[packets(Sign::Echoes, |aims| (aims.packets(), json!({"up_delay_ms": 300, "down_delay_ms": 300})))],
    ended: // As late as is told from what is prompt, and half of it lost. One way alone: two take an emulated machine longer than there is
    // time for stopping everybody.
    &[ended(Sign::SomeEchoes, |aims| {
        let mut target = aims.packets();
        target["direction"] = json!("egress");
        (target, json!({"up_delay_ms": DELAY_MS, "up_loss_percent": 50}))
    })],
    harmless: |aims| (aims.packets(), json!({"down_delay_ms": 1})),
    planned: at_device,
};
