//! The decision as a table, made of every role, act, host, window, marker and limit; and what holds for every policy.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::json;
use toml::{Table, Value};

use super::*;
use crate::policy::limits::Lately;
use crate::policy::{Role, Way};
use crate::request::Caller;
use crate::spec::FAULT_TYPES as ALL_TYPES;

const NOON: &str = "2026-02-02T12:00:00Z";

fn now() -> Timestamp {
    NOON.parse().unwrap()
}

fn policy(text: &str) -> Policy {
    Policy::parse(text, std::path::Path::new("policy.toml")).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Two faults active, one ended half a minute ago, and three begun within the hour.
fn recent() -> Recent {
    let own = Lately { begun: 3, active: 2, since_end: Some(Duration::from_secs(30)) };
    Recent { own, all: own }
}

fn user(uid: u32) -> Who {
    Caller::Unix { uid, gid: uid, pid: 7 }.into()
}

fn request(interface: &str, seconds: f64) -> FaultRequest {
    let request = json!({"fault_type": "latency", "probability": 1, "duration_seconds": seconds,
        "target": {"interface": interface}, "params": {"delay_ms": 10}});
    serde_json::from_value(request).unwrap()
}

/// The whole decision about a single fault, or a run's.
fn decide(policy: &Policy, who: &Who, request: &FaultRequest, intent: Intent) -> Result<(), ApiError> {
    let fault = request.parse().unwrap();
    policy.spare_production_in(request)?;
    let (active, recent) = (0, recent());
    policy.permit(&Asked { who, fault: &fault, active, recent, intent, now: now() }).map(drop)
}

#[test]
fn who_may_do_what_where_and_when_is_this_table() {
    let hosts = [None, Some("test"), Some("production")];
    let mut permitted = 0;
    let mut decisions = 0;
    for (host, role, act) in hosts
        .into_iter()
        .flat_map(|host| Role::ALL.into_iter().flat_map(move |role| Act::ALL.map(|act| (host, role, act))))
    {
        let here = host.map(|name| format!("environment = \"{name}\"\n")).unwrap_or_default();
        let policy = policy(&format!("{here}roles.{role}.uids = [1000]"));
        let by_role = match act {
            Act::Look => true,
            Act::End | Act::Plan => role != Role::Observer,
            Act::Approve => matches!(role, Role::Approver | Role::Admin),
            _ => matches!(role, Role::Operator | Role::Admin),
        };
        let by_host = match act {
            Act::Look | Act::End | Act::Approve => true,
            Act::Plan | Act::Probe | Act::Register => host != Some("production"),
            Act::Inject | Act::Run | Act::Schedule => host == Some("test"),
        };
        let admitted = policy.admit(&user(1000), act);
        assert_eq!(admitted.is_ok(), by_role && by_host, "{host:?}, {role}, {act:?}: {admitted:?}");
        permitted += usize::from(admitted.is_ok());
        decisions += 1;
    }
    assert_eq!((decisions, permitted), (108, 47));
}

#[test]
fn a_single_fault_is_permitted_where_role_host_window_marker_type_interface_and_length_all_are() {
    let on = |rule: bool, text: &str| if rule { format!("{text}\n") } else { String::new() };
    // Which of them forbid.
    for bits in 0..128u32 {
        let [role, host, window, marker, kind, place, length] =
            [0, 1, 2, 3, 4, 5, 6].map(|bit| bits >> bit & 1 == 1);
        let text = [
            if host { String::new() } else { "environment = \"test\"\n".to_owned() },
            on(role, "roles.operator.uids = [1]"),
            on(window, "windows.never = [\"2026-02-02\"]"),
            on(kind, "fault_types = [\"packet_loss\"]"),
            on(place, "interfaces = [\"eth9\"]"),
            on(length, "max_duration_seconds = 10"),
        ];
        let policy = policy(&text.concat());
        let request = request(if marker { "eth0-prod" } else { "eth0" }, 60.0);
        let decided = decide(&policy, &user(1000), &request, Intent::Single);
        assert_eq!(decided.is_ok(), bits == 0, "{text:?}, marker {marker}: {decided:?}");
        // A run has begun within the windows.
        let in_run = decide(&policy, &user(1000), &request, Intent::Run);
        assert_eq!(in_run.is_ok(), bits & !0b100 == 0, "{text:?}: {in_run:?}");
        // A plan may be made on a host of which nothing is said, and at any time, and says that the fault would be refused now.
        let fault = request.parse().unwrap();
        let plan = policy.spare_production_in(&request).map_err(ApiError::from).and_then(|()| {
            policy.permit(&Asked {
                who: &user(1000),
                fault: &fault,
                active: 0,
                recent: recent(),
                intent: Intent::Plan,
                now: now(),
            })
        });
        assert_eq!(plan.is_ok(), bits & !0b110 == 0, "{text:?}");
        if let Ok(permit) = plan {
            assert_eq!(permit.refused_now.is_some(), bits != 0, "{text:?}");
        }
    }
}

#[test]
fn in_production_nobody_does_anything_whatever_a_document_says() {
    let policy = policy("environment = \"production\"");
    let root = &user(0);
    assert!(decide(&policy, root, &request("eth0", 1.0), Intent::Single).is_err());
    assert!(decide(&policy, root, &request("eth0", 1.0), Intent::Plan).is_err());
    let environments = vec!["production".to_owned()];
    let has = Precautions { environments, gate: true, alert: true, stages: true, ..Precautions::default() };
    let refused = policy.may_begin(root, &has, now()).unwrap_err();
    assert!(refused.message.contains("this host is production"), "{refused}");
    assert!(refused.hint.unwrap().contains("nothing in that file"));
    assert!(policy.admit(root, Act::End).is_ok() && policy.admit(root, Act::Look).is_ok());
}

#[test]
fn a_document_about_production_is_not_run_anywhere() {
    let policy = policy("environment = \"test\"");
    let texts = vec!["--unit".to_owned(), "prod-db.service".to_owned()];
    let has = Precautions { texts, ..Precautions::default() };
    let refused = policy.may_begin(&user(0), &has, now()).unwrap_err();
    assert!(refused.message.contains("prod-db.service") && refused.message.contains("\"prod\""), "{refused}");
}

/// A policy as a table of TOML, in which some of what may forbid something is there.
fn strict() -> impl Strategy<Value = Table> {
    let all = vec![
        "environment = \"staging\"",
        "environment = \"test\"",
        "roles.operator.uids = [1]",
        "roles.others = \"observer\"",
        "windows.only = [\"sat 09:00-10:00\"]",
        "windows.only = [\"mon 09:00-10:00\"]",
        "windows.never = [\"02-02\"]",
        "fault_types = [\"packet_loss\"]",
        "fault_types = []",
        "interfaces = [\"eth9\"]",
        "max_duration_seconds = 10",
        "experiments.require_gate = true",
        "experiments.require_stages = true",
        "experiments.require_environments = true",
        "production_markers = [\"eth*\"]",
        "single_faults.any_time = true",
        "single_faults.without_requirements = true",
        "limits.everybody.most_latency_ms = 5",
        "limits.admin.most_share_percent = 10",
        "limits.operator.max_duration_seconds = 7",
        "limits.operator.max_active = 1",
        "limits.everybody.runs_per_hour = 2",
        "limits.together.runs_per_hour = 1",
        "limits.operator.cool_down_seconds = 90",
        "limits.together.cool_down_seconds = 60",
    ];
    subsequence(all, 0..12).prop_map(|lines| {
        let mut table = Table::new();
        lines.iter().for_each(|line| add(&mut table, line));
        table
    })
}

/// Adds lines, in place of what is there.
fn add(table: &mut Table, lines: &str) {
    fn merge(into: &mut Table, from: Table) {
        for (name, value) in from {
            match (into.get_mut(&name), value) {
                (Some(Value::Table(known)), Value::Table(more)) => merge(known, more),
                (_, value) => drop(into.insert(name, value)),
            }
        }
    }
    merge(table, lines.parse().unwrap());
}

fn of(table: &Table) -> Policy {
    policy(&table.to_string())
}

proptest! {
    /// What each refusal names is enough, one after the other, until it is permitted.
    #[test]
    fn the_lines_of_each_refusal_permit_what_it_refuses(
        table in strict(), uid in select(vec![0u32, 1, 1000]), kind in select(ALL_TYPES.to_vec()), seconds in 1u32..3600,
    ) {
        let mut table = table;
        let mut lines_seen = Vec::new();
        let who = user(uid);
        let ask = |policy: &Policy| -> Result<(), Refusal> {
            let mut request = request("eth0-prod", f64::from(seconds));
            request.fault_type = FaultType::Latency;
            let fault = Fault { fault_type: kind, ..request.parse().unwrap() };
            policy.admit(&who, Act::Inject)?;
            policy.admit_single(now())?;
            policy.admit_type(&fault)?;
            policy.admit_place(&fault)?;
            policy.admit_duration(&fault)?;
            let roles = policy.roles.of(&who);
            policy.limits.admit(&roles, &fault)?;
            policy.limits.admit_active(&roles, &recent())?;
            policy.admit_pace(&who, &recent())?;
            policy.spare_production_in(&request)
        };
        while let Err(refusal) = ask(&of(&table)) {
            let Way::Lines { full: lines, .. } = refusal.way.clone() else { panic!("nothing permits it: {refusal:?}") };
            prop_assert!(!lines_seen.contains(&lines), "{lines:?} did not help: {refusal:?}");
            add(&mut table, &lines);
            lines_seen.push(lines);
        }
        prop_assert!(lines_seen.len() < 22);
    }

    /// Narrower: a rule more, which only forbids.
    #[test]
    fn a_narrower_policy_never_permits_more(
        table in strict(),
        rule in select(vec![
            "roles.others = \"observer\"\nroles.operator.uids = []", "fault_types = []", "interfaces = []", "max_duration_seconds = 1",
            "windows.never = [\"2026-01-01..2026-12-31\"]", "experiments.require_gate = true", "environment = \"production\"",
            "production_markers = [\"production\", \"prod\", \"prd\", \"eth*\"]", "single_faults.any_time = false",
            "single_faults.without_requirements = false", "limits.everybody.most_latency_ms = 3", "limits.operator.most_share_percent = 5",
            "limits.everybody.max_duration_seconds = 2", "limits.operator.max_active = 1", "limits.admin.runs_per_hour = 1",
            "limits.everybody.cool_down_seconds = 31", "limits.together.runs_per_hour = 1", "limits.together.cool_down_seconds = 1",
        ]),
        uid in select(vec![0u32, 1, 1000]), seconds in 1u32..3600, interface in select(vec!["eth0", "eth9", "eth0-prod"]),
        intent in select(vec![Intent::Single, Intent::Run, Intent::Plan, Intent::PlanOfRun]),
    ) {
        let mut narrower = table.clone();
        add(&mut narrower, rule);
        let (who, request) = (user(uid), request(interface, f64::from(seconds)));
        if decide(&of(&narrower), &who, &request, intent).is_ok() {
            let wider = decide(&of(&table), &who, &request, intent);
            prop_assert!(wider.is_ok(), "{rule:?} permits what {table} does not: {wider:?}");
        }
        for act in Act::ALL {
            prop_assert!(of(&narrower).admit(&who, act).is_err() || of(&table).admit(&who, act).is_ok());
        }
    }
}

#[test]
fn the_longest_fault_is_no_matter_of_the_policy() {
    let mut fault = request("eth0", 1.0).parse().unwrap();
    fault.duration = LONGEST_FAULT + Duration::from_secs(1);
    let refused = policy("environment = \"test\"").admit_duration(&fault).unwrap_err();
    assert_eq!(refused.way, Way::Nothing);
}
