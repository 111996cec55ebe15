//! `process_pause`: processes stand still.

use serde_json::json;

use super::Kind;
use super::aims::at_process;
use super::ended::ended;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::plain;
use super::table::{Table, of_unit, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
        part(
            "all the time",
            &["processes::pauses::every_thread_of_who_is_paused_stands_still_and_nobody_else_does"],
        ),
        part(
            "in a rhythm, with jitter",
            &["processes::pauses::in_a_rhythm_processes_stand_still_and_run_by_turns"],
        ),
        part("of a share", &["processes::pauses::a_share_of_a_service_stands_still_and_the_rest_runs"]),
        of_unit(&[
            "first_boot::processes::the_installed_daemon_pauses_a_service_which_goes_on_when_the_daemon_is_killed",
        ]),
    ]),
    needs: Needs::Nothing,
    struck: &[plain(Sign::Traced, |aims| (aims.process(), json!({}))).of_processes()],
    ended: &[ended(Sign::Traced, |aims| (aims.process(), json!({})))],
    harmless: |aims| (aims.process(), json!({})),
    planned: at_process,
};
