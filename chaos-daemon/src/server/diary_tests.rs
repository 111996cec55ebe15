//! Tests of what is left of a run whose server has died.

use super::*;
use crate::experiment::ending::Fate;
use crate::experiment::role::{Role, Stage};
use crate::experiment::timeline::Reading;
use crate::request::Evidence;
use crate::request::evidence::Met;
use crate::server::history::{ExperimentResult, RunFault};

fn event(at_seconds: f64, kind: Kind, subject: &str) -> Entry {
    let (time, subject) = (format!("2026-02-05T10:00:{at_seconds:06.3}Z"), subject.to_owned());
    Entry::Event(Occurrence { at_seconds, time, kind, subject, detail: String::new() })
}

fn sample(at_seconds: f64, met: bool) -> Entry {
    Entry::Sample(Reading {
        at_seconds,
        time: String::new(),
        probe: "up".into(),
        role: Role::SteadyState,
        stage: Stage::Before,
        met,
        value: Some(1.5),
        took_seconds: 0.1,
        late_seconds: None,
        no_data: false,
        detail: "connected".into(),
    })
}

fn fate(at_seconds: f64, affected: u64) -> Entry {
    let evidence = Evidence::Met(Met { matched: affected, affected, protected: 0 });
    let fate =
        Fate { injected: true, effective: affected > 0, removed_clean: false, evidence: Some(evidence) };
    Entry::Fault { name: "cut".into(), fate, at_seconds }
}

/// What a run writes, up to its last beat.
fn life() -> Vec<Entry> {
    vec![
        event(0.0, Kind::Phase, "before"),
        sample(0.1, true),
        event(0.1, Kind::Met, ""),
        event(0.1, Kind::Phase, "method"),
        event(0.1, Kind::Injecting, "cut"),
        event(0.5, Kind::Injected, "cut"),
        fate(0.5, 0),
        fate(1.5, 7),
        Entry::Beat { at_seconds: 2.0 },
    ]
}

fn noted() -> Recorded {
    let fault = RunFault {
        name: "cut".into(),
        fault_type: "timeout".into(),
        target: "{}".into(),
        seconds: 60.0,
        weight: 10,
        injected: None,
        effective: None,
        removed_clean: None,
        evidence: None,
    };
    let run = ExperimentResult {
        started_at: "2026-02-05T10:00:00.000Z".into(),
        error: Some("the daemon ended".into()),
        ..ExperimentResult::default()
    };
    let events = vec![Occurrence::started("2026-02-05T10:00:00.000Z", "uid 0")];
    Recorded { run, faults: vec![fault], events, ..Recorded::default() }
}

/// What is recorded of a run that died after so many entries.
fn after(entries: usize) -> Recorded {
    let mut recorded = noted();
    add(&mut recorded, life().into_iter().take(entries).collect());
    recorded
}

#[test]
fn whenever_a_run_dies_its_record_says_what_was_seen_until_then_and_nothing_of_what_was_not() {
    for entries in 1..=life().len() {
        let (recorded, all) = (after(entries), life());
        let written = &all[..entries];
        let end = written.last().unwrap().at_seconds();
        let run = &recorded.run;
        assert!((run.duration_seconds - end).abs() < 1e-9, "the last beat is the end: {entries}");
        assert_eq!(
            recorded.samples.len(),
            written.iter().filter(|entry| matches!(entry, Entry::Sample(_))).count()
        );
        let events = written.iter().filter(|entry| matches!(entry, Entry::Event(_))).count();
        // Who has begun it, and that its record ends.
        assert_eq!(recorded.events.len(), events + 2);
        let verified = run.verified.unwrap();
        assert_eq!((verified.before, run.steady_state_before), (entries >= 3, entries >= 3), "{entries}");
        assert!(!verified.after && !run.steady_state_after);
        let fault = &recorded.faults[0];
        assert_eq!(fault.injected, (entries >= 7).then_some(true), "{entries}");
        // Not seen to act is not the same as idle, and nobody has seen it removed.
        assert_eq!(fault.effective, (entries >= 8).then_some(true), "{entries}");
        assert_eq!((fault.removed_clean, run.packets_affected), (None, if entries >= 8 { 7 } else { 0 }));
    }
    let last = after(life().len()).events.pop().unwrap();
    assert_eq!((last.kind, last.time.as_str()), (Kind::Abort, "2026-02-05T10:00:02.000Z"));
    assert_eq!(last.detail, "interrupted: the daemon ended");
}

#[test]
fn a_steady_state_that_was_judged_after_the_faults_is_known() {
    for (kind, met) in [(Kind::Met, true), (Kind::NotMet, false)] {
        let mut recorded = noted();
        let more = [event(3.0, Kind::Phase, "after"), event(3.1, kind, "")];
        add(&mut recorded, life().into_iter().chain(more).collect());
        let run = recorded.run;
        assert_eq!((run.verified.unwrap().after, run.steady_state_after), (true, met));
        assert!(run.steady_state_before);
    }
}

#[test]
fn of_a_run_without_a_diary_nothing_is_claimed() {
    let mut recorded = noted();
    add(&mut recorded, Vec::new());
    assert_eq!(recorded, noted());
}

/// Waits until a diary has so many lines.
fn lines(directory: &Path, count: usize) -> Vec<Entry> {
    let end = Instant::now() + crate::waits::HANG;
    loop {
        let found = read(Some(directory), "a");
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < end, "{found:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_diary_has_what_happens_as_it_happens_and_a_beat_where_nothing_does() {
    let directory = tempfile::tempdir().unwrap();
    let entries = begin(Some(directory.path()), "a").unwrap();
    life().into_iter().for_each(|entry| entries.send(entry).unwrap());
    assert_eq!(lines(directory.path(), life().len())[..life().len()], life());
    let beat = lines(directory.path(), life().len() + 1).pop().unwrap();
    assert!(matches!(beat, Entry::Beat { .. }), "{beat:?}");
    forget(Some(directory.path()), "a");
    assert!(read(Some(directory.path()), "a").is_empty());
    // Twice is no error.
    forget(Some(directory.path()), "a");
    drop(entries);
}

#[test]
fn what_was_written_in_part_is_left_out_and_the_rest_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let whole: Vec<_> = life().iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
    let torn = format!("{}\n{{\"event\":{{\"at_sec", whole.join("\n"));
    fs::write(path(directory.path(), "a"), torn).unwrap();
    assert_eq!(read(Some(directory.path()), "a"), life());
}
