//! Tests of the reports.

use serde_json::json;

use super::story::Story;
use super::*;
use crate::experiment::alert::Alarm;
use crate::experiment::recovery::Incident;
use crate::experiment::role::{Role, Stage, Stages};
use crate::experiment::timeline::{Kind, Occurrence, Reading};
use crate::experiment::{Recovery, Verdict};
use crate::request::Evidence;
use crate::request::evidence::Met;
use crate::server::history::{ExperimentResult, Recorded, RunFault};
use crate::spec::FaultType;

pub(super) fn event(at_seconds: f64, kind: Kind, subject: &str, detail: &str) -> Occurrence {
    let time = format!("2026-02-05T10:00:{at_seconds:06.3}Z");
    Occurrence { at_seconds, time, kind, subject: subject.into(), detail: detail.into() }
}

pub(super) fn sample(
    at_seconds: f64,
    probe: &str,
    role: Role,
    stage: Stage,
    met: bool,
    detail: &str,
) -> Reading {
    Reading {
        at_seconds,
        time: format!("2026-02-05T10:00:{at_seconds:06.3}Z"),
        probe: probe.into(),
        role,
        stage,
        met,
        value: Some(12.5),
        took_seconds: 0.25,
        late_seconds: None,
        no_data: false,
        detail: detail.into(),
    }
}

/// A run in which a gate was breached, and in which everything that has a name has a bad one.
pub(super) fn tripped(bad: &str) -> Recorded {
    let document = json!({"title": bad, "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": bad, "tolerance": 200}]}});
    Recorded {
        owner: None,
        run: ExperimentResult {
            experiment_name: bad.into(),
            verdict: Some(Verdict::Tripped),
            steady_state_before: true,
            steady_state_after: true,
            duration_seconds: 12.0,
            error: Some(format!("gate {bad} was breached: {bad}")),
            started_at: "2026-02-05T10:00:00.000Z".into(),
            run_id: "4f1c".into(),
            packets_affected: 7,
            gate_reaction_seconds: Some(0.043),
            stage: crate::experiment::Stage::try_from(25).ok(),
            next: Some("stage 25 % is due again".into()),
            ..ExperimentResult::default()
        },
        digest: Some("d1".into()),
        staged: None,
        host: None,
        document: document.as_object().cloned(),
        faults: vec![RunFault {
            weight: 10,
            injected: None,
            effective: None,
            removed_clean: None,
            evidence: Some(Evidence::Met(Met { matched: 9, affected: 7, protected: 0 })),
            name: "slow.1".into(),
            fault_type: "latency".into(),
            target: format!(r#"{{"interface":"{bad}"}}"#),
            seconds: 60.0,
        }],
        events: vec![
            event(0.0, Kind::Phase, "before", ""),
            event(0.5, Kind::Met, "", ""),
            event(0.5, Kind::Injecting, "slow.1", ""),
            event(1.0, Kind::Injected, "slow.1", ""),
            event(5.0, Kind::Breach, bad, &format!("gate {bad} was breached: {bad}")),
            event(5.0, Kind::Abort, "", "tripped"),
            event(5.0, Kind::Removing, "slow.1", ""),
            event(5.5, Kind::Removed, "slow.1", ""),
            event(8.0, Kind::Met, "", ""),
            event(8.0, Kind::Phase, "finished", "tripped"),
        ],
        samples: vec![
            sample(0.5, bad, Role::SteadyState, Stage::Before, true, "connected"),
            sample(2.0, bad, Role::Gate, Stage::During, true, "12 ms"),
            sample(3.0, bad, Role::Gate, Stage::During, false, bad),
            sample(5.0, bad, Role::Gate, Stage::During, false, bad),
            sample(8.0, bad, Role::SteadyState, Stage::After, true, "connected"),
        ],
        samples_left_out: 2,
    }
}

const NASTY: &str =
    "<script src=\"https://evil.example/x.js\">alert('1')</script>&|`*_[x](javascript:1)\n# x";

#[test]
fn the_facts_are_told_in_order_with_their_times() {
    let text = paragraph(&tripped("fast"));
    for fact in [
        "The experiment \"fast\" began on 5 February 2026, 10:00:00 UTC and ended 12 s later with the verdict tripped.",
        "It was run at stage 25 % of its blast radius.",
        "\"slow.1\" (latency, interface fast, for 60 s) was active from 1 s to 5.5 s (packets: 9 matched, 7 affected, 0 protected).",
        "The first sample out of bounds was of \"fast\" at 3 s, 2 s after the first fault was active: fast.",
        "At 5 s gate fast was breached: fast; every fault was removed 43 ms after",
        "The steady state was met 2.5 s after the last fault was removed.",
        "Evidence: 7 samples, 10 events.",
    ] {
        assert!(text.contains(fact), "{fact}\n{text}");
    }
}

#[test]
fn whose_a_run_is_and_who_has_begun_it_is_told_where_it_is_recorded() {
    let mut recorded = tripped("fast");
    let who = |recorded: &Recorded| {
        Story::of(recorded).rows().into_iter().find(|(label, _)| *label == "Who").map(|(_, who)| who)
    };
    assert_eq!(who(&recorded), None);
    recorded.owner = Some("uid 1000".into());
    assert_eq!(who(&recorded).unwrap(), "uid 1000");
    for (by, expected) in [
        ("uid 1000, pid 4711", "uid 1000, pid 4711"),
        ("schedule office", "uid 1000, begun by schedule office"),
    ] {
        let mut recorded = recorded.clone();
        recorded.events.insert(0, Occurrence::started("2026-02-05T10:00:00.000Z", by));
        assert_eq!(who(&recorded).unwrap(), expected);
        for text in [markdown::report(&recorded), html::report(&recorded)] {
            assert!(text.contains(expected), "{text}");
        }
    }
}

#[test]
fn of_a_steady_state_that_was_not_to_be_verified_after_the_faults_nothing_is_claimed() {
    let mut recorded = tripped("fast");
    recorded.events.retain(|event| event.kind != Kind::Met);
    recorded.run.verified = Some(Stages { before: true, during: false, after: true });
    assert!(paragraph(&recorded).contains("The steady state was not met after the last fault was removed."));
    recorded.run.verified = Some(Stages { before: true, during: false, after: false });
    assert!(
        paragraph(&recorded).contains("The steady state was not verified after the last fault was removed.")
    );
}

#[test]
fn recovery_is_told_of_each_action_that_made_an_outage() {
    let incident = |action: &str, recovered| Incident {
        action: action.into(),
        fault_type: FaultType::ProcessKill,
        unreachable_after_seconds: Some(0.25),
        gone_after_seconds: None,
        new_process_after_seconds: None,
        recovered_after_seconds: recovered,
        finding: None,
    };
    let mut recorded = tripped("fast");
    let incidents = vec![incident("kill", Some(1.5)), incident("kill again", None)];
    recorded.run.recovery = Some(Recovery { incidents, rto_seconds: Some(1.0), ..Recovery::default() });
    let text = paragraph(&recorded);
    assert!(
        text.contains(
            "Of \"kill\": seen to fail after 250 ms, recovered after 1.5 s, objective 1 s: missed."
        ),
        "{text}"
    );
    assert!(
        text.contains("Of \"kill again\": seen to fail after 250 ms, not seen to recover, objective 1 s."),
        "{text}"
    );
}

#[test]
fn every_alert_is_told_of_with_what_was_found() {
    let alarm = |alert: &str, fired, gone, finding: Option<&str>| Alarm {
        alert: alert.into(),
        action: "kill".into(),
        fired_after_seconds: fired,
        gone_after_seconds: gone,
        finding: finding.map(str::to_owned),
    };
    let mut recorded = tripped("fast");
    let alerts = vec![
        alarm("pool", Some(3.25), Some(1.5), None),
        alarm("node", Some(3.0), Some(0.0), None),
        alarm("disk", None, None, Some("P1: it did not fire")),
    ];
    recorded.run.recovery = Some(Recovery { alerts, ..Recovery::default() });
    let text = html::report(&recorded).replace("&quot;", "\"");
    for fact in [
        "pool: fired 3.25 s after \"kill\", gone 1.5 s after the last fault was removed<",
        "node: fired 3 s after \"kill\", gone before the last fault was removed<",
        "disk: not seen to fire<",
        "<li>P1: it did not fire.</li>",
    ] {
        assert!(text.contains(fact), "{fact}\n{text}");
    }
}

#[test]
fn a_run_of_which_little_is_known_has_a_report_too() {
    let run = ExperimentResult { experiment_name: "old".into(), ..ExperimentResult::default() };
    let recorded = Recorded { run, ..Recorded::default() };
    assert!(paragraph(&recorded).contains("No sample is recorded."));
    assert!(markdown::report(&recorded).starts_with("# old\n\n**No success.**"));
    assert!(html::report(&recorded).ends_with("</html>\n"));
    assert_eq!(journal::report(&recorded)["steady_states"]["before"], serde_json::Value::Null);
}

#[test]
fn markdown_has_tables_and_no_mark_up_of_others() {
    let text = markdown::report(&tripped("fast"));
    assert!(text.contains("**Tripped.** A gate was breached"), "{text}");
    assert!(text.contains("| 5.50 s | 10:00:05 | slow.1: removed"), "{text}");
    assert!(text.contains("50 of 100: 1 of 2 probes passed"), "{text}");
    let text = markdown::report(&tripped(NASTY));
    // But for what is ours: the fold at the end.
    let others = text.replace("<details>", "").replace("</details>", "");
    let others = others.replace("<summary>", "").replace("</summary>", "");
    assert!(
        !others.contains('<') && !others.replace("\\]", "").contains("](") && !others.contains("\n# x"),
        "{text}"
    );
    // As many cells in each row as the table has columns.
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let bars = row.replace("\\|", "").matches('|').count();
        assert!(bars == 3 || bars == 5, "{row}");
    }
}

#[test]
fn text_of_others_is_left_to_be_read_where_it_means_nothing_and_is_escaped_where_it_would() {
    for (text, expected) in [
        ("process_kill of a & b", "process_kill of a & b"),
        ("_x_ *y* `z` ~~w~~", "\\_x\\_ \\*y\\* \\`z\\` \\~\\~w\\~\\~"),
        ("&lt;b&gt; &#60;", "&amp;lt;b&amp;gt; &amp;#60;"),
        ("<b>1 < 2 <3</b>", "&lt;b>1 < 2 <3&lt;/b>"),
        ("[a](b) ![c](d) | e", "\\[a\\](b) !\\[c\\](d) \\| e"),
        ("> 500", "\\> 500"),
        ("# x\n# y", "\\# x # y"),
        ("<\u{0}b>&\u{0}lt;", "&lt;b>&amp;lt;"),
        ("1. x", "1\\. x"),
        ("5.50 s", "5.50 s"),
        ("- x", "\\- x"),
    ] {
        assert_eq!(markdown::plain(text), expected);
    }
}

/// The tags of a document in order, without what they say; each has to be closed in its turn.
fn tags(html: &str) -> Vec<String> {
    let (mut tags, mut open) = (Vec::new(), Vec::new());
    let mut rest = html;
    while let Some((_, tail)) = rest.split_once('<') {
        let (tag, after) = tail.split_once('>').expect("a tag without an end");
        rest = after;
        assert!(!tag.contains('<'), "{tag}");
        let name = tag.split([' ', '\n']).next().unwrap().trim_end_matches('/').to_owned();
        if let Some(closed) = name.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "closed in its turn");
            continue;
        }
        if !tag.ends_with('/') && !["meta", "!DOCTYPE"].contains(&name.as_str()) {
            open.push(name.clone());
        }
        tags.push(name);
        if tags.last().is_some_and(|name| name == "style") {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
    tags
}

#[test]
fn html_stands_for_itself_and_what_others_wrote_is_only_text() {
    let html = html::report(&tripped(NASTY));
    let tags = tags(&html);
    for never in ["script", "img", "link", "iframe", "a", "object"] {
        assert!(!tags.contains(&never.to_owned()), "{never}");
    }
    for always in ["svg", "rect", "line", "table", "h1", "details"] {
        assert!(tags.contains(&always.to_owned()), "{always}");
    }
    assert_eq!(tags, self::tags(&html::report(&tripped("fast"))), "as many tags whatever the names are");
    assert!(
        html.contains("&lt;script src=&quot;https://evil.example/x.js&quot;&gt;alert(&#39;1&#39;)"),
        "{html}"
    );
    for asking in ["src=\"", "href", "url(", "@import", "http-equiv=\"refresh\""] {
        assert!(!html.contains(asking), "{asking}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn an_action_has_its_own_name_and_provider_everywhere_and_the_host_is_named() {
    let mut recorded = tripped("fast");
    let provider = json!({"type": "process", "path": "chaosctl",
        "arguments": {"inject": "latency", "--interface": "eth0", "--delay": "${delay}"}});
    let document = recorded.document.as_mut().unwrap();
    document.insert("description".into(), json!("The shop stands a slow database."));
    document.insert(
        "method".into(),
        json!([
            {"type": "probe", "name": "look", "provider": provider},
            {"type": "action", "name": "slow database", "provider": provider},
        ]),
    );
    recorded.host = Some("db1.example.org".into());
    recorded.owner = Some("uid 1000".into());
    let journal = journal::report(&recorded);
    assert_eq!(journal["node"], "db1.example.org");
    let activity = &journal["run"][0]["activity"];
    assert_eq!((&activity["name"], &activity["provider"]), (&json!("slow database"), &provider));
    assert_eq!(journal["rollbacks"][0]["activity"]["name"], "remove slow database");
    for text in [markdown::report(&recorded), html::report(&recorded)] {
        for told in [
            "slow database",
            "db1.example.org",
            "The shop stands a slow database.",
            "slow database: latency,",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
        let (seen, _) = text.split_once("<details>").unwrap();
        assert!(!seen.contains("slow.1"), "{text}");
    }
    // Where the document has other faults than the run, nobody guesses.
    recorded.document.as_mut().unwrap()["method"] = json!([]);
    assert_eq!(journal::report(&recorded)["run"][0]["activity"]["name"], "inject slow.1");
}

#[test]
fn of_a_run_that_broke_off_it_is_said_what_is_known_and_never_what_is_not() {
    let mut recorded = tripped("fast");
    recorded.run.verdict = Some(Verdict::Interrupted);
    let told = |events: usize| {
        let mut recorded = recorded.clone();
        recorded.events.truncate(events);
        paragraph(&recorded)
    };
    for (events, said) in [
        (0, "\"slow.1\" (latency, interface fast, for 60 s) is not known to have been injected"),
        (2, "was not asked for as far as the record goes"),
        (3, "was asked for; whether it was injected is unknown"),
        (4, "was active from 1 s to 12 s"),
    ] {
        let text = told(events);
        assert!(text.contains(said), "{events}: {text}");
        assert!(!text.contains("was not injected"), "{text}");
    }
    // Of a run that ended by itself it is known.
    recorded.run.verdict = Some(Verdict::Refused);
    recorded.events.truncate(2);
    assert!(paragraph(&recorded).contains("was not injected."));
}

#[test]
fn the_journal_has_what_chaos_toolkit_writes() {
    let journal = journal::report(&tripped("fast"));
    assert_eq!((&journal["status"], &journal["deviated"]), (&json!("aborted"), &json!(false)));
    assert_eq!(
        (&journal["start"], &journal["end"]),
        (&json!("2026-02-05T10:00:00.000+00:00"), &json!("2026-02-05T10:00:08.000+00:00"))
    );
    let before = &journal["steady_states"]["before"];
    assert_eq!(before["steady_state_met"], true);
    assert_eq!(before["probes"][0]["activity"]["tolerance"], 200, "the activity is that of the document");
    assert_eq!(
        (&before["probes"][0]["start"], &before["probes"][0]["end"]),
        (&json!("2026-02-05T10:00:00.250+00:00"), &json!("2026-02-05T10:00:00.500+00:00"))
    );
    assert_eq!(journal["run"][0]["activity"]["name"], "inject slow.1");
    assert_eq!(
        (&journal["run"][0]["status"], &journal["run"][0]["duration"]),
        (&json!("succeeded"), &json!(0.5))
    );
    assert_eq!(journal["rollbacks"][0]["status"], "succeeded");
    let output = &journal["run"][0]["output"];
    let said = "slow.1: active for 4.5 s\npackets: 9 matched, 7 affected, 0 protected\n";
    assert_eq!(output, &json!({"status": 0, "stdout": said, "stderr": ""}));
    let mut deviated = tripped("fast");
    deviated.run.verdict = Some(Verdict::Deviated);
    assert_eq!(journal::report(&deviated)["deviated"], true);
}

#[test]
fn outputs_are_those_of_chaos_toolkits_providers_and_a_probe_without_an_answer_has_failed() {
    let mut recorded = tripped("fast");
    let provider = json!({"type": "http", "url": "http://127.0.0.1:1/"});
    recorded.document.as_mut().unwrap()["steady-state-hypothesis"]["probes"][0]["provider"] = provider;
    let said = |met, detail| sample(0.5, "fast", Role::SteadyState, Stage::Before, met, detail);
    let unanswered = Reading { value: None, ..said(false, "GET http://127.0.0.1:1/: no answer within 2s") };
    for (reading, output, status, failed) in [
        (said(true, "GET http://127.0.0.1:1/: status 200"), json!(200), "succeeded", false),
        (
            said(false, "GET http://127.0.0.1:1/: status 503, where 2xx is right"),
            json!(503),
            "succeeded",
            false,
        ),
        (unanswered, json!(null), "failed", true),
    ] {
        recorded.samples = vec![reading.clone()];
        let journal = journal::report(&recorded);
        let probe = &journal["steady_states"]["before"]["probes"][0];
        assert_eq!((&probe["output"]["status"], &probe["status"]), (&output, &json!(status)), "{probe}");
        assert_eq!(probe["tolerance_met"], reading.met);
        assert_eq!(probe["exception"].is_array(), failed, "{probe}");
    }
}

#[test]
fn each_look_at_the_steady_state_during_the_method_is_in_the_journal() {
    let mut recorded = tripped("fast");
    let look = |at, probe, met| sample(at, probe, Role::SteadyState, Stage::During, met, "status 200");
    recorded.samples =
        vec![look(1.0, "a", true), look(1.1, "b", true), look(2.0, "a", false), look(2.1, "b", true)];
    let journal = journal::report(&recorded);
    let during = journal["steady_states"]["during"].as_array().unwrap();
    let met: Vec<_> = during.iter().map(|state| state["steady_state_met"].clone()).collect();
    assert_eq!(met, [json!(true), json!(false)]);
    assert_eq!(during[1]["probes"].as_array().unwrap().len(), 2);
}

#[test]
fn what_to_do_next_depends_on_what_failed() {
    use crate::experiment::FailureMode;
    use crate::experiment::failure::FAILURE_MODES;
    let mut recorded = tripped("fast");
    let mut next = |mode: Option<FailureMode>| {
        recorded.run.failure_mode = mode;
        Story::of(&recorded).next().join(" ")
    };
    assert_eq!(next(None), "Stage 25 % is due again.");
    for mode in FAILURE_MODES {
        let told = next(Some(*mode));
        assert!(
            told.len() > "Stage 25 % is due again.".len() && told.ends_with("Stage 25 % is due again."),
            "{told}"
        );
    }
    assert!(next(Some(FailureMode::Interrupted)).contains("log of the daemon"));
}
