//! `connection_load`: a server has many clients.

use serde_json::json;

use super::Kind;
use super::aims::{Aims, Request};
use super::ended::held;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::plain;
use super::table::{Table, part};

fn so_many(aims: &Aims, sessions: u32) -> Request {
    (aims.around_server(), json!({"url": aims.url(), "sessions": sessions}))
}

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part(
            "http, a pool",
            &[
                "hoards::connections::a_pool_of_workers_serves_nobody_else_while_the_fault_lasts_and_everybody_after_it",
            ],
        ),
        part(
            "http, at a rate",
            &["hoards::connections::connections_are_opened_and_closed_at_the_rate_and_none_lingers"],
        ),
        part(
            "tcp",
            &["hoards::protocols::plain_connections_are_open_while_the_fault_lasts_and_closed_after_it"],
        ),
        part(
            "unix",
            &[
                "hoards::protocols::connections_to_a_socket_of_the_file_system_are_open_while_the_fault_lasts_and_closed_after_it",
            ],
        ),
        part(
            "mcp+http",
            &[
                "hoards::protocols::sessions_of_mcp_over_http_are_begun_and_open_while_the_fault_lasts_and_closed_after_it",
            ],
        ),
        part(
            "mcp+unix, a daemon",
            &[
                "hoards::connections::a_daemon_of_whose_places_a_user_holds_all_that_are_his_serves_others_alone",
            ],
        ),
    ]),
    needs: Needs::Nothing,
    struck: &[plain(Sign::Clients(5), |aims| so_many(aims, 5))],
    ended: &[held(|aims| so_many(aims, 10))],
    harmless: |aims| so_many(aims, 1),
    planned: |aims, _| so_many(aims, 5),
};
