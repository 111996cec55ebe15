//! Pages at several sizes, and what keys ask for.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::*;
use crate::cli::live::gauges::tests::reading;
use crate::cli::live::limits::Limits;
use crate::cli::top::eyes::Look;
use crate::cli::top::model::Deed;
use crate::experiment::role::Role;
use crate::mcp::results::StatusOutput;

fn seen(faults: &[&str], runs: &[&str]) -> Look {
    let fault = |name: &&str| {
        json!({"name": name, "fault_type": "latency", "active": true, "registered": true, "state": "effective",
            "description": "delays eth0 by 200 ms", "lifetime": "kernel", "guard": "the kernel", "began_by": "uid 1000",
            "age_seconds": 3.0, "remaining_seconds": 48.2,
            "evidence": {"packets_matched": 12, "packets_affected": 11, "packets_protected": 1}})
    };
    let run = |id: &&str| {
        let sample = reading("p95", Role::Gate, 2.0, Some(512.0), false);
        json!({"run_id": id, "experiment_name": format!("experiment of {id}"), "phase": "method", "activities": ["cut"],
            "fault_names": ["cut"], "elapsed_seconds": 12.0, "remaining_seconds": 48.0, "latest": [sample]})
    };
    let faults: Vec<_> = faults.iter().map(fault).collect();
    let runs: Vec<_> = runs.iter().map(run).collect();
    let inactive = json!({"name": "asleep", "fault_type": "latency", "registered": true, "active": false});
    let all = faults.into_iter().chain([inactive]).collect::<Vec<_>>();
    let status: StatusOutput =
        serde_json::from_value(json!({"active_faults": all, "running": runs})).unwrap();
    let first = reading("p95", Role::Gate, 1.0, Some(100.0), true);
    let new_runs =
        status.running.iter().map(|run| (run.run_id.clone(), Limits::default(), vec![first.clone()]));
    Look { new_runs: new_runs.collect(), status }
}

fn model(faults: &[&str], runs: &[&str]) -> Model {
    let mut model = Model::new("db1");
    model.look(seen(faults, runs));
    model
}

fn press(model: &mut Model, keys: &str) -> Vec<Deed> {
    let press = |c: char| {
        let code = match c {
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            c => KeyCode::Char(c),
        };
        model.press(KeyEvent::new(code, KeyModifiers::NONE))
    };
    keys.chars().map(press).filter(|deed| *deed != Deed::Nothing).collect()
}

fn drawn(model: &Model, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let ink = Ink { colours: true };
    terminal.draw(|frame| draw(model, &mut Canvas { cells: frame.buffer_mut(), ink })).unwrap();
    let cells = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| cells[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn each_width_shows_every_fault_run_and_gate() {
    let model = model(&["slow-db", "cut"], &["4f1c2a9b"]);
    for (width, height) in [(60, 24), (80, 24), (120, 40)] {
        let lines = drawn(&model, (width, height));
        let text = lines.join("\n");
        assert!(lines[0].starts_with("chaosctl top  db1") && lines[0].ends_with("2 faults, 1 run"), "{text}");
        for name in ["slow-db", "cut"] {
            let line = lines.iter().find(|line| line.trim_start().starts_with(name)).unwrap();
            for word in ["latency", "effective", "48s"] {
                assert!(line.contains(word), "{width}: {line}");
            }
            assert_eq!(line.contains("12 matched, 11 affected"), width >= WIDE, "{line}");
        }
        assert!(text.contains("experiment of 4f1c2a9b · method (cut)"), "{text}");
        assert!(text.contains("12s, 48s left") && text.contains("run 4f1c2a9b; faults: cut"), "{text}");
        assert!(text.contains("✗ p95") && text.contains("512  ▂█"), "{text}");
        assert!(!text.contains("asleep") && lines.last().unwrap().contains("s: stop it"), "{text}");
    }
}

#[test]
fn on_a_small_terminal_what_is_selected_is_in_sight_and_nothing_breaks() {
    let names: Vec<_> = (0..40).map(|number| format!("fault-{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut model = model(&names, &["4f1c2a9b"]);
    press(&mut model, &"↓".repeat(31));
    for size in [(60, 10), (80, 24), (20, 8)] {
        let lines = drawn(&model, size);
        assert!(lines.iter().any(|line| line.starts_with("> fault-30")), "{size:?}: {lines:?}");
    }
    for size in [(1, 1), (2, 2), (5, 3), (200, 1), (1, 60)] {
        drawn(&model, size);
    }
}

#[test]
fn one_page_is_plain_text_with_all_of_it() {
    let names: Vec<_> = (0..40).map(|number| format!("fault-{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let text = whole(&model(&names, &["4f1c2a9b", "77aa"]), 80);
    for name in names.iter().chain(&["run 4f1c2a9b", "run 77aa", "✗ p95"]) {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains('\u{1b}') && text.ends_with('\n') && !text.contains("quit"), "{text}");
    let none = whole(&model(&[], &[]), 60);
    assert!(none.contains("none is active") && none.contains("none goes on"), "{none}");
}

#[test]
fn nothing_is_stopped_without_a_question_that_was_answered_with_yes() {
    let mut model = model(&["slow-db", "cut"], &["4f1c2a9b"]);
    assert_eq!(press(&mut model, "sy"), [], "nothing is selected");
    assert_eq!(press(&mut model, "↓s"), []);
    assert_eq!(model.question().unwrap(), "stop fault slow-db? y: yes, any other key: no");
    assert!(drawn(&model, (60, 24)).last().unwrap().starts_with("stop fault slow-db?"));
    assert_eq!(press(&mut model, "n"), []);
    assert_eq!(press(&mut model, "sqy"), [], "q was an answer, too");
    let slow = Subject::Fault("slow-db".to_owned());
    assert_eq!(press(&mut model, "sy"), [Deed::Stop(slow.clone())]);
    assert_eq!(press(&mut model, "sy"), [], "it is being stopped");
    assert!(
        drawn(&model, (60, 24)).iter().any(|line| line.starts_with("> slow-db") && line.contains("stopping"))
    );
    assert_eq!(press(&mut model, "ay"), [Deed::Stop(Subject::All)]);
    let run = Subject::Run { run_id: "4f1c2a9b".to_owned(), name: "experiment of 4f1c2a9b".to_owned() };
    assert_eq!(press(&mut model, "↓↓↓↓sy"), [Deed::Stop(run.clone())]);
    for subject in [&slow, &Subject::All, &run] {
        model.has_stopped(subject, Err("no such".to_owned()));
    }
    assert_eq!(model.told(), Some(Told::Failed(format!("{run} was not stopped: no such"))));
}

#[test]
fn the_question_is_about_what_was_selected_when_it_was_asked() {
    let mut model = model(&["slow-db", "cut"], &[]);
    press(&mut model, "↓s");
    model.look(seen(&["cut"], &[]));
    assert_eq!(press(&mut model, "y"), [Deed::Stop(Subject::Fault("slow-db".to_owned()))]);
    assert_eq!(model.selected(), None);
}

#[test]
fn to_leave_is_to_wait_for_what_is_being_stopped_unless_it_is_asked_for_twice() {
    let mut idle = model(&["slow-db"], &[]);
    press(&mut idle, "q");
    assert!(idle.is_over());
    let busy = || {
        let mut model = model(&["slow-db"], &[]);
        press(&mut model, "↓syq");
        assert!(!model.is_over());
        model
    };
    let mut waits = busy();
    waits.has_stopped(&Subject::Fault("slow-db".to_owned()), Ok("ended".to_owned()));
    assert!(waits.is_over());
    let mut hurries = busy();
    press(&mut hurries, "q");
    assert!(hurries.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_gone_is_told_of_and_what_was_seen_stays() {
    let mut model = model(&["slow-db"], &[]);
    assert_eq!(model.told(), None);
    tokio::time::advance(std::time::Duration::from_secs(7)).await;
    assert_eq!(model.told(), Some(Told::Failed("the daemon has not answered for 7s".to_owned())));
    model.lose("no socket".to_owned());
    let lines = drawn(&model, (80, 24)).join("\n");
    assert!(lines.contains("the daemon does not answer, since 7s; trying again: no socket"), "{lines}");
    assert!(lines.contains("slow-db"), "{lines}");
    model.look(seen(&[], &[]));
    assert_eq!(model.told(), None);
}

#[test]
fn names_of_others_do_not_steer_the_terminal() {
    let evil = "a\u{1b}]0;evil\u{7}\u{1b}[2J";
    let model = model(&[evil], &[evil]);
    let text = drawn(&model, (120, 24)).join("") + &whole(&model, 120);
    assert!(!text.contains(['\u{1b}', '\u{7}']) && text.contains("\\u{1b}"), "{text:?}");
}
