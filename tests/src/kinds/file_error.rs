//! `file_error`: calls about files fail.

use serde_json::json;

use super::Kind;
use super::aims::{Aims, Request};
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::calls;
use super::table::{Part, SCOPED, Table, part};

const fn file(what: &'static str, tests: &'static [&'static str]) -> Part {
    part(what, tests)
        .unless("file_calls::a_kernel_that_cannot_fail_calls_about_files_says_what_it_lacks", "file_error")
}

fn opening(aims: &Aims) -> Request {
    (aims.group(), json!({"path": aims.file, "operations": ["open"]}))
}

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        file(
            "below a folder, all operations",
            &["file_calls::a_file_error_fails_what_one_group_asks_below_a_folder_and_nothing_else"],
        ),
        file(
            "of a process, and of a container",
            &["file_calls::a_file_error_of_a_process_or_a_container_is_of_its_group_alone"],
        ),
        file("open, create, read, write, mmap", &["file_calls::a_file_error_is_narrowed_to_operations"]),
        file("every errno", &["file_calls::a_file_error_is_each_of_those_that_it_can_be"]),
        file(
            "of a share, after some, so many times",
            &["file_calls::a_file_error_fails_its_share_of_the_calls_from_the_nth_on_and_so_many_at_most"],
        ),
        file(
            "the n-th call ends who makes it",
            &["file_calls::the_nth_call_ends_who_makes_it_and_who_comes_in_its_place_goes_on"],
        ),
        file(
            "on an overlay",
            &["file_calls::a_file_error_is_met_on_an_overlay_and_not_on_what_is_mounted_below"],
        ),
        SCOPED,
    ]),
    needs: Needs::Lsm,
    struck: &[calls(Sign::Files, opening)],
    ended: &[ended(Sign::Files, opening)],
    harmless: |aims| (aims.group(), json!({"path": aims.folder})),
    planned: |aims, _| (aims.group(), json!({"path": aims.folder})),
};
