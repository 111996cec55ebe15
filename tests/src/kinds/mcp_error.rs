//! `mcp_error`: calls to an MCP server behind a proxy fail.

use serde_json::json;

use super::Kind;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::plain;
use super::table::{Table, of_unit, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part(
            "fail",
            &[
                "processes::proxies::calls_behind_a_proxy_fail_while_the_fault_is_active_and_neither_before_nor_after",
            ],
        ),
        part(
            "delay, drop, truncate, corrupt, a share",
            &["processes::proxies::calls_are_delayed_dropped_truncated_and_corrupted_as_the_fault_says"],
        ),
        part("of methods", &["processes::proxies::only_the_methods_that_are_named_meet_the_fault"]),
        part(
            "of a share of the calls",
            &[
                "processes::proxies::a_share_of_the_matching_calls_meets_the_fault_and_of_those_a_share_is_late",
            ],
        ),
        of_unit(&[
            "first_boot::drop_ins::calls_to_an_mcp_server_fail_with_the_drop_in_for_them_and_neither_without_it_nor_after",
        ]),
    ]),
    needs: Needs::Nothing,
    struck: &[plain(Sign::Proxy, |aims| (aims.proxy(), json!({"fail": 1}))).of_processes()],
    ended: &[ended(Sign::Proxy, |aims| (aims.proxy(), json!({"fail": 1})))],
    harmless: |aims| (aims.proxy(), json!({"fail": 1})),
    planned: |aims, params| (aims.proxy(), params),
};
