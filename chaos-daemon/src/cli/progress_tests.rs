//! What is shown of a run, on a terminal, in a pipe, and to programs.

use serde_json::json;

use super::*;
use crate::cli::live::gauges::tests::reading;
use crate::experiment::role::Role;
use crate::experiment::timeline::Kind;

fn running(phase: &str, elapsed_seconds: f64, met: bool) -> RunningView {
    RunningView {
        run_id: "4f1c2a9b".to_owned(),
        experiment_name: "slow".to_owned(),
        phase: phase.to_owned(),
        activities: vec!["cut".to_owned()],
        elapsed_seconds,
        remaining_seconds: Some(48.4),
        latest: vec![
            reading("p95", Role::Gate, elapsed_seconds, Some(512.04), met),
            reading("health", Role::SteadyState, elapsed_seconds, None, true),
        ],
        ..RunningView::default()
    }
}

fn seen(running: RunningView) -> Followed {
    Followed { running: Some(running), ..Followed::default() }
}

fn injected(at_seconds: f64) -> Occurrence {
    let (time, subject) = (String::new(), "cut".to_owned());
    Occurrence { at_seconds, time, kind: Kind::Injected, subject, detail: String::new() }
}

fn progress(way: Way, size: fn() -> (u16, u16)) -> Progress<Vec<u8>> {
    Progress::to(Vec::new(), way, Ink { colours: false }, size)
}

fn said(progress: Progress<Vec<u8>>) -> String {
    String::from_utf8(progress.out).unwrap()
}

/// What a terminal obeys here is left out.
fn bare(text: &str) -> String {
    let mut bare = String::new();
    let mut parts = text.split("\x1b[");
    bare.push_str(parts.next().unwrap_or_default());
    for part in parts {
        bare.push_str(part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest));
    }
    bare
}

#[test]
fn what_is_no_terminal_has_a_line_when_something_has_changed() {
    let mut progress = progress(Way::Written, || (80, 24));
    progress.begin("4f1c2a9b", "slow", "stops it");
    for (phase, elapsed, met) in
        [("method", 1.0, true), ("method", 2.0, true), ("method", 3.0, false), ("after", 4.0, false)]
    {
        let events = vec![injected(0.5)];
        progress.show(&Followed { events, ..seen(running(phase, elapsed, met)) });
    }
    progress.end();
    progress.verdict(&RunOutput::default());
    let said = said(progress);
    let begins: Vec<_> = said.lines().map(|line| line.split(", 48s").next().unwrap()).collect();
    assert_eq!(
        begins,
        [
            "run 4f1c2a9b of slow; Ctrl-C stops it",
            "    0.500 s  injected: cut",
            "slow: method (cut), 1s",
            "    3.000 s  p95 seen to fail: p95 says",
            "slow: method (cut), 3s",
            "slow: after (cut), 4s"
        ]
    );
    assert!(!said.contains('\x1b'), "{said:?}");
}

#[test]
fn with_json_nothing_is_shown() {
    let mut progress = progress(Way::Hidden, || (80, 24));
    progress.begin("4f1c2a9b", "slow", "stops it");
    progress.show(&seen(running("method", 1.0, true)));
    progress.lose("gone", 15);
    progress.end();
    progress.verdict(&RunOutput::default());
    assert_eq!(said(progress), "");
}

#[test]
fn a_terminal_has_lines_that_are_drawn_again_below_what_happened_and_go() {
    let mut progress = progress(Way::Drawn, || (80, 24));
    progress.show(&seen(running("method", 12.2, true)));
    let first = String::from_utf8(std::mem::take(&mut progress.out)).unwrap();
    let lines: Vec<_> = bare(&first).lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("slow · method (cut)") && lines[0].ends_with("12s, 48s left"), "{lines:?}");
    assert_eq!(lines[1], "run 4f1c2a9b");
    assert!(lines[2].starts_with("✓ p95             512  █"), "{lines:?}");
    assert_eq!(lines.len(), 4, "{lines:?}");
    let events = vec![injected(12.5)];
    progress.show(&Followed { events, ..seen(running("method", 12.7, false)) });
    let second = String::from_utf8(std::mem::take(&mut progress.out)).unwrap();
    assert!(second.starts_with("\r\x1b[4A"), "it begins where the first did: {second:?}");
    let lines: Vec<_> = bare(&second).lines().map(|line| line.trim_start().to_owned()).collect();
    assert_eq!(lines[0], "12.500 s  injected: cut");
    assert_eq!(lines[1], "12.700 s  p95 seen to fail: p95 says");
    assert!(lines[4].starts_with("✗ p95"), "{lines:?}");
    progress.end();
    assert_eq!(std::mem::take(&mut progress.out), b"\r\x1b[4A\x1b[J");
    progress.end();
    assert_eq!(progress.out, b"");
}

#[test]
fn no_line_is_wider_than_the_terminal_is_now_nor_are_there_more_than_it_has() {
    for (size, width) in [
        ((|| (60, 24)) as fn() -> (u16, u16), 60),
        (|| (80, 24), 80),
        (|| (120, 50), 120),
        (|| (20, 4), 20),
        (|| (1, 1), 2),
    ] {
        let mut progress = progress(Way::Drawn, size);
        let long = RunningView { experiment_name: "日".repeat(100), ..running("method", 1.0, false) };
        let events = vec![Occurrence { detail: "x".repeat(300), ..injected(1.0) }];
        progress.show(&Followed { events, ..seen(long) });
        assert!(progress.drawn < usize::from(size().1), "{}", progress.drawn);
        progress.lose(&"y".repeat(300), 15);
        progress.verdict(&RunOutput { experiment_name: "x".repeat(300), ..RunOutput::default() });
        let said = bare(&said(progress));
        for line in said.lines() {
            assert!(canvas::columns(line.trim_start_matches('\r')) < width, "{width}: {line:?}");
        }
    }
}

#[test]
fn a_daemon_that_is_gone_is_told_of_until_it_answers_again() {
    let mut progress = progress(Way::Drawn, || (80, 24));
    progress.show(&seen(running("method", 1.0, true)));
    progress.is_silent();
    progress.lose("no socket", 15);
    progress.show(&seen(running("method", 2.0, true)));
    let said = bare(&said(progress));
    assert_eq!(said.matches("the daemon does not answer").count(), 1, "{said}");
    assert!(!said.contains("has not answered for"), "it was heard just now: {said}");
    assert!(said.ends_with(|_| true) && said.rfind("run 4f1c2a9b") > said.rfind("does not answer"), "{said}");
}

#[test]
fn the_document_is_asked_for_once_and_of_what_is_not_understood_nothing_is_shown() {
    let mut progress = progress(Way::Drawn, || (80, 24));
    assert!(progress.wants_all());
    let answer = json!({"run": {"run_id": "4f1c2a9b"}, "document": {"title": 1}, "events": [{"kind": "novel"}],
        "samples": "many", "running": {"phase": "method", "latest": [{"role": "novel"}]}});
    let seen: Followed = serde_json::from_value(answer).unwrap();
    assert_eq!((seen.events.len(), seen.samples.len(), seen.running.is_none()), (0, 0, true));
    progress.show(&seen);
    assert!(!progress.wants_all());
}

#[test]
fn a_gate_without_data_is_not_well() {
    let mut blind = running("method", 1.0, true);
    blind.latest[0] = Reading { no_data: true, ..reading("p95", Role::Gate, 1.0, None, true) };
    assert!(line(&blind).ends_with("; p95 no data, health ok"), "{}", line(&blind));
    blind.latest[0].met = false;
    assert!(line(&blind).ends_with("; p95 no data not met, health ok"), "{}", line(&blind));
}
