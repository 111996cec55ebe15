//! `packet_loss`: packets are lost, by chance or in bursts.

use serde_json::json;

use super::Kind;
use super::aims::at_device;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::packets;
use super::table::{OF_CGROUP, SCOPED, Table, inwards, netem};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        netem(
            "packet_loss",
            "by chance",
            &["impairments::a_loss_of_10_percent_loses_10_percent_and_no_sender_is_told"],
        ),
        netem("packet_loss", "correlated", &["impairments::a_correlated_loss_comes_in_rows"]),
        inwards("packet_loss"),
        netem(
            "packet_loss",
            "gilbert_elliott and four_state",
            &["impairments::losses_by_a_model_with_states_come_in_bursts"],
        ),
        netem(
            "packet_loss",
            "beside a delay",
            &["impairments::loss_and_delay_add_up_in_either_order_and_ending_one_leaves_the_other"],
        ),
        netem("packet_loss", OF_CGROUP, &["services::a_loss_of_one_service_is_its_own"]),
        netem(
            "packet_loss",
            "of a process",
            &["scopes::a_loss_of_a_process_that_shares_its_namespace_is_of_its_group_alone"],
        ),
        netem(
            "packet_loss",
            "of a container",
            &["scopes::a_loss_of_a_container_is_of_its_namespace_or_its_group"],
        ),
        SCOPED,
    ]),
    needs: Needs::Netem(&[("packet_loss", || json!({"loss_percent": 10}))]),
    struck: &[packets(Sign::Echoes, |aims| (aims.packets(), json!({"loss_percent": 100})))],
    ended: &[ended(Sign::Echoes, |aims| (aims.packets(), json!({"loss_percent": 100})))],
    harmless: |aims| (aims.packets(), json!({"loss_percent": 1})),
    planned: at_device,
};
