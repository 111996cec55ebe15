//! `process_kill`: processes get a signal.

use serde_json::json;

use super::Kind;
use super::aims::at_process;
use super::ended::NOT_TAKEN_BACK;
use super::needs::Needs;
use super::sign::Sign;
use super::struck::plain;
use super::table::{Table, of_unit, part};

pub(super) const KIND: Kind = Kind {
    table: Table::Whole(&[
    part(
        "SIGKILL, once",
        &["processes::kills::a_killed_service_is_seen_to_end_and_to_come_back_and_others_run_on"],
    ),
    part("SIGTERM", &["processes::kills::without_a_supervisor_the_status_says_so"]),
    part("a signal that is survived", &["processes::kills::a_signal_that_a_process_survives_ends_nobody"]),
    part(
        "again and again, with jitter",
        &[
            "processes::kills::a_repeat_hits_whoever_has_come_and_a_removal_prevents_the_next",
            "processes::kills::repeats_end_with_the_time_of_the_fault",
        ],
    ),
    part(
        "of a pid, a cgroup, a container, a command line",
        &["processes::targets::a_kill_by_each_selector_ends_whom_it_selects_and_nobody_else"],
    ),
    part(
        "below another process",
        &["processes::targets::below_another_process_are_its_children_and_theirs_and_nobody_elses"],
    ),
    part(
        "of a share",
        &[
            "processes::targets::a_preview_names_who_would_be_hit_and_a_kill_of_the_same_seed_hits_exactly_those",
        ],
    ),
    of_unit(&[
        "first_boot::processes::a_service_that_the_installed_daemon_kills_is_seen_to_be_started_again",
    ]),
]),
    needs: Needs::Nothing,
    struck: // Of those signals, the one that does nothing to who runs.
    &[plain(Sign::Continued, |aims| (aims.process(), json!({"signal": "SIGCONT"}))).of_processes()],
    ended: NOT_TAKEN_BACK,
    harmless: |aims| (aims.process(), json!({"signal": "SIGCONT"})),
    planned: at_process,
};
