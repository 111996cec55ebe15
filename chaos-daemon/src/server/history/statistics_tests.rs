//! Tests of the figures over many runs.

use proptest::prelude::*;

use super::*;
use crate::experiment::machine::{Deed, Effect, Event, Machine, Step};
use crate::experiment::role::Stages;
use crate::experiment::verdict::VERDICTS;
use crate::experiment::{FailureMode, Fate};
use crate::request::{ApiError, ErrorCode};

fn run(
    experiment: &str,
    verdict: Verdict,
    day: u32,
    digest: &str,
    faults: &[&str],
    score: Option<u8>,
) -> Summary {
    Summary {
        run: ExperimentResult {
            experiment_name: experiment.into(),
            verdict: Some(verdict),
            success: verdict == Verdict::Held,
            started_at: format!("2026-02-{day:02}T10:00:00.000Z"),
            ..ExperimentResult::default()
        },
        owner: crate::spec::Owner::ROOT,
        digest: Some(digest.into()),
        fault_types: faults.iter().map(|fault| (*fault).to_owned()).collect(),
        fates: Vec::new(),
        score,
    }
}

#[test]
fn runs_are_counted_by_what_they_have_in_common() {
    let runs = [
        run("cache", Verdict::Held, 1, "a", &["latency"], Some(100)),
        run("cache", Verdict::Deviated, 2, "a", &["latency", "latency"], Some(50)),
        run("cache", Verdict::Held, 3, "b", &["latency", "timeout"], None),
        run("queue", Verdict::Aborted, 3, "c", &["timeout"], Some(0)),
    ];
    let found = statistics(&runs);
    assert_eq!((found.runs, found.successes, found.success_rate), (4, 2, 0.5));
    assert_eq!(found.mean_score, Some(50.0));
    let counted = |counts: &[Count]| -> Vec<(String, u64)> {
        counts.iter().map(|count| (count.name.clone(), count.runs)).collect()
    };
    assert_eq!(counted(&found.verdicts), [("held".into(), 2), ("aborted".into(), 1), ("deviated".into(), 1)]);
    assert_eq!(counted(&found.failure_modes), [("aborted".into(), 1), ("not_steady_after".into(), 1)]);
    assert_eq!(counted(&found.scores), [("0-24".into(), 1), ("100".into(), 1), ("50-74".into(), 1)]);
    let told = |tallies: &[Tally]| -> Vec<(String, u64, u64)> {
        tallies.iter().map(|tally| (tally.name.clone(), tally.runs, tally.successes)).collect()
    };
    assert_eq!(told(&found.experiments), [("cache".into(), 3, 2), ("queue".into(), 1, 0)]);
    assert_eq!(
        told(&found.days),
        [("2026-02-01".into(), 1, 1), ("2026-02-02".into(), 1, 0), ("2026-02-03".into(), 2, 1)]
    );
    let cache = &found.experiments[0];
    assert_eq!(
        (cache.latest_score, cache.previous_score, cache.mean_score),
        (Some(50), Some(100), Some(75.0))
    );
    assert_eq!((found.experiments[1].latest_score, found.experiments[1].previous_score), (Some(0), None));
    assert!(found.days.iter().all(|day| day.previous_score.is_none()), "{:?}", found.days);
    // The same document both held and deviated.
    let flaky = [Flaky {
        experiment_name: "cache".into(),
        digest: "a".into(),
        held: 1,
        deviated: 1,
        fault_types: vec!["latency".into()],
    }];
    assert_eq!(found.flaky, flaky);
    assert_eq!(statistics(&[]), Statistics::default());
}

#[test]
fn a_run_that_shows_nothing_is_in_no_rate() {
    let verdicts = [Verdict::Held, Verdict::Unverified, Verdict::Deviated, Verdict::Unverified];
    let runs: Vec<_> =
        verdicts.into_iter().map(|verdict| run("a", verdict, 1, "a", &["latency"], None)).collect();
    let found = statistics(&runs);
    assert_eq!((found.runs, found.successes, found.success_rate), (4, 1, 0.5));
    assert_eq!((found.experiments[0].runs, found.experiments[0].success_rate), (4, 0.5));
    assert_eq!(statistics(&runs[1..2]).success_rate, 0.0);
}

#[test]
fn a_fault_counts_by_what_it_did_itself_and_not_by_what_the_system_made_of_it() {
    let fate =
        |injected, effective, removed_clean| Fate { injected, effective, removed_clean, evidence: None };
    let with = |mut run: Summary, fates: &[(&str, Fate)]| {
        run.fates = fates.iter().map(|(kind, fate)| ((*kind).to_owned(), *fate)).collect();
        run
    };
    let all = fate(true, true, true);
    let runs = [
        with(
            run("a", Verdict::Deviated, 1, "a", &["latency", "latency"], None),
            &[("latency", all), ("latency", all)],
        ),
        with(
            run("b", Verdict::Held, 1, "b", &["latency", "timeout"], None),
            &[("latency", fate(true, false, true))],
        ),
        with(
            run("c", Verdict::Failed, 1, "c", &["latency"], None),
            &[("latency", fate(false, false, false))],
        ),
        // Of before it was recorded.
        run("d", Verdict::Held, 1, "d", &["latency"], None),
    ];
    let found = statistics(&runs).faults;
    let [latency, timeout] = found.as_slice() else { panic!("{found:?}") };
    let counts = (latency.injected, latency.effective, latency.removed_clean);
    assert_eq!((latency.runs, latency.asked, counts), (4, 4, (3, 2, 3)));
    assert_eq!((latency.successes, latency.success_rate), (2, 0.5));
    assert_eq!((timeout.runs, timeout.asked, timeout.success_rate), (1, 0, 0.0));
}

/// What the state machine really says of a run that goes so: as it is recorded, and as it was before that.
fn told(events: Vec<Event>) -> [Option<&'static str>; 2] {
    let step = Step { deed: Deed::Inject, background: false, before: false, after: false };
    let (mut machine, _) = Machine::start(vec![step], Stages { before: true, during: false, after: true });
    for event in events {
        if let Some(Effect::Finish(outcome)) = machine.step(event).pop() {
            let result = ExperimentResult {
                verdict: Some(outcome.verdict),
                success: outcome.success(),
                error: outcome.error,
                failure_mode: outcome.failure,
                ..ExperimentResult::default()
            };
            let before = ExperimentResult { failure_mode: None, ..result.clone() };
            return [failure_mode(&result), failure_mode(&before)];
        }
    }
    panic!("the run does not end");
}

#[test]
fn what_failed_is_told_by_what_the_run_itself_says() {
    let met = || Event::Sampled(Ok(()));
    let unmet = |why: &str| Event::Sampled(Err(why.to_owned()));
    let (injected, removed) = (|| Event::Injected(0, Ok(())), || Event::Removed(0, Ok(())));
    let refused = |code| Event::Injected(0, Err(ApiError::new(code, "no eth0")));
    let left = Event::Removed(0, Err("left behind: a veth".into()));
    let abort = |verdict, why: &str| Event::Abort(verdict, why.to_owned());
    let broken = "gate x was breached: it cannot be judged: refused";
    for (mode, events) in [
        (None, vec![met(), injected(), Event::Lasted, removed(), met()]),
        (Some("not_steady_before"), vec![unmet("up")]),
        (Some("not_steady_after"), vec![met(), injected(), Event::Lasted, removed(), unmet("up")]),
        (
            Some("not_steady_during"),
            vec![met(), injected(), Event::Deviated("up".into()), Event::Lasted, removed(), met()],
        ),
        (Some("injection_failed"), vec![met(), refused(ErrorCode::InjectionFailed), met()]),
        (Some("fault_ended_early"), vec![met(), injected(), Event::Gone(0, "gone".into()), removed(), met()]),
        (Some("rollback_failed"), vec![met(), injected(), Event::Lasted, left, met()]),
        (Some("gate_breached"), vec![met(), injected(), abort(Verdict::Tripped, "gate x"), removed(), met()]),
        (Some("probe_broken"), vec![met(), injected(), abort(Verdict::Failed, broken), removed(), met()]),
        (Some("aborted"), vec![met(), injected(), abort(Verdict::Aborted, "stopped"), removed(), met()]),
    ] {
        assert_eq!(told(events), [mode, mode]);
    }
    // What the words of before did not tell, or called otherwise.
    let late = || Event::Overdue("not recovered within 5s: up".into());
    let found = |mode| {
        vec![met(), injected(), Event::Lasted, removed(), Event::Finding(mode, "P1: alert".into()), met()]
    };
    for (mode, before, events) in [
        ("not_recovered", "not_recovered", vec![met(), injected(), Event::Lasted, removed(), late()]),
        (
            "rto_missed",
            "not_steady_after",
            vec![met(), injected(), Event::Lasted, removed(), Event::Late("late".into()), met()],
        ),
        (
            "rto_missed",
            "not_recovered",
            vec![met(), injected(), Event::Lasted, removed(), Event::Late("late".into()), late()],
        ),
        ("alert_missing", "alert", found(FailureMode::AlertMissing)),
        ("alert_unexpected", "alert", found(FailureMode::AlertUnexpected)),
        ("target_vanished", "injection_failed", vec![met(), refused(ErrorCode::TargetNotFound), met()]),
        ("injection_refused", "injection_failed", vec![met(), refused(ErrorCode::PolicyDenied), met()]),
    ] {
        assert_eq!(told(events), [Some(mode), Some(before)]);
    }
}

#[test]
fn the_latest_score_and_the_one_before_are_those_of_the_latest_runs_in_whatever_order_they_are_found() {
    let run = |day, score| run("cache", Verdict::Held, day, "a", &[], score);
    let mut runs = vec![run(3, Some(40)), run(1, Some(90)), run(4, None), run(2, Some(70))];
    for _ in 0..2 {
        let found = &statistics(&runs).experiments[0];
        assert_eq!((found.latest_score, found.previous_score), (Some(40), Some(70)));
        runs.reverse();
    }
}

fn any_run() -> impl Strategy<Value = Summary> {
    let faults =
        proptest::collection::vec(proptest::sample::select(vec!["latency", "timeout", "pause"]), 0..4);
    let verdict = proptest::sample::select(VERDICTS.to_vec());
    let score = proptest::option::of(0_u8..=100);
    (0_u32..4, verdict, 1_u32..29, 0_u32..5, faults, score).prop_map(
        |(experiment, verdict, day, digest, faults, score)| {
            run(&experiment.to_string(), verdict, day, &digest.to_string(), &faults, score)
        },
    )
}

proptest! {
    #[test]
    fn every_run_is_counted_once_and_no_figure_is_out_of_bounds(runs in proptest::collection::vec(any_run(), 0..60)) {
        let found = statistics(&runs);
        let total = runs.len() as u64;
        prop_assert_eq!(found.runs, total);
        prop_assert_eq!(found.verdicts.iter().map(|count| count.runs).sum::<u64>(), total);
        prop_assert_eq!(found.experiments.iter().map(|tally| tally.runs).sum::<u64>(), total);
        prop_assert_eq!(found.days.iter().map(|tally| tally.runs).sum::<u64>(), total);
        let failures = found.failure_modes.iter().map(|count| count.runs).sum::<u64>();
        prop_assert_eq!(failures + found.successes, total);
        let scored = runs.iter().filter(|run| run.score.is_some()).count() as u64;
        prop_assert_eq!(found.scores.iter().map(|count| count.runs).sum::<u64>(), scored);
        for tally in &found.faults {
            prop_assert!(tally.runs <= total && tally.successes <= tally.asked);
        }
        for tally in found.experiments.iter().chain(&found.days) {
            prop_assert!((0.0..=1.0).contains(&tally.success_rate) && tally.successes <= tally.runs);
            prop_assert!(tally.runs <= total);
            prop_assert!(tally.mean_score.is_none_or(|score| (0.0..=100.0).contains(&score)));
        }
        for flaky in &found.flaky {
            let verdicts: Vec<_> = runs.iter().filter(|run| run.digest.as_ref() == Some(&flaky.digest)).map(|run| run.run.verdict).collect();
            prop_assert!(verdicts.contains(&Some(Verdict::Held)));
            prop_assert!(verdicts.iter().any(|verdict| matches!(verdict, Some(Verdict::Deviated | Verdict::Tripped))));
        }
    }
}
