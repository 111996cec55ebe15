//! Tests of what is written down of a run.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::experiment::machine::Outcome;
use crate::experiment::role::Stages;
use crate::experiment::variables::Nowhere;
use crate::request::{ApiError, ErrorCode};

fn recorder() -> Recorder {
    let document = json!({
        "title": "x",
        "secrets": {"api": {"token": "hunter2"}},
        "steady-state-hypothesis": {"title": "up", "probes": [{"type": "probe", "name": "up", "tolerance": 200,
            "provider": {"type": "http", "url": "http://127.0.0.1:1/"}}]},
        "method": [{"type": "action", "name": "cut", "provider": {"type": "process", "path": "chaosctl",
            "arguments": ["inject", "timeout", "--interface", "eth0"]}}],
    });
    let experiment = Experiment::parse(document.as_object().unwrap(), &Nowhere).unwrap();
    Recorder::new(&experiment, BTreeMap::from([(0, FaultName::new("cut.1").unwrap())]))
}

fn sample(ok: bool, detail: &str) -> Sample {
    Sample { ok, value: Some(12.0), took: Duration::from_millis(12), ..Sample::failed(detail.to_owned()) }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_last_can_be_read_while_it_is_written() {
    let recorder = recorder();
    assert_eq!((recorder.timeline().phase(), recorder.timeline().method_began()), (None, None));
    recorder.effect(&Effect::Sample, true);
    recorder.sampled("up", (Role::SteadyState, Stage::Before), &sample(true, "first"), true, None);
    tokio::time::advance(Duration::from_millis(1500)).await;
    recorder.effect(&Effect::Observe, false);
    tokio::time::advance(Duration::from_millis(500)).await;
    recorder.effect(&Effect::Last(vec![0]), false);
    recorder.sampled("up", (Role::Recovery, Stage::During), &sample(false, "second"), false, None);
    recorder.sampled("slow", (Role::Gate, Stage::During), &sample(true, "gate"), true, None);
    let timeline = recorder.timeline();
    assert_eq!((timeline.phase(), timeline.method_began()), (Some(("lasting", 2.0)), Some(1.5)));
    let latest: Vec<_> = timeline.latest().into_iter().map(|sample| sample.detail).collect();
    assert_eq!(latest, ["gate", "second"]);
}

#[tokio::test(start_paused = true)]
async fn what_happens_is_written_with_both_clocks_in_order() {
    let recorder = recorder();
    recorder.effect(&Effect::Sample, true);
    recorder.event(&Event::Sampled(Ok(())));
    recorder.effect(&Effect::Inject(0), false);
    tokio::time::advance(Duration::from_millis(1500)).await;
    recorder.event(&Event::Injected(0, Err(ApiError::new(ErrorCode::TargetNotFound, "no eth0"))));
    recorder.effect(
        &Effect::Finish(Outcome {
            verdict: Verdict::Failed,
            steady_before: true,
            steady_after: true,
            verified: Stages::default(),
            error: None,
            failure: None,
            left: Vec::new(),
        }),
        false,
    );
    let events = recorder.timeline().events;
    let told: Vec<_> =
        events.iter().map(|event| (event.kind, event.subject.as_str(), event.detail.as_str())).collect();
    assert_eq!(
        told,
        [
            (Kind::Phase, "before", ""),
            (Kind::Met, "", ""),
            (Kind::Injecting, "cut.1", ""),
            (Kind::InjectionFailed, "cut.1", "no eth0"),
            (Kind::Phase, "finished", "failed"),
        ]
    );
    assert!((events[3].at_seconds - 1.5).abs() < 0.01, "{}", events[3].at_seconds);
    let wall: jiff::Timestamp = events[3].time.parse().unwrap();
    assert!(jiff::Timestamp::now().duration_since(wall).as_secs() < 10);
}

#[tokio::test]
async fn no_secret_and_no_endless_text_gets_into_it() {
    let recorder = recorder();
    recorder.sampled(
        "up",
        (Role::SteadyState, Stage::Before),
        &sample(false, "token hunter2 refused"),
        false,
        None,
    );
    recorder.note(Kind::Breach, "slow", &"ä".repeat(2000));
    let timeline = recorder.timeline();
    assert_eq!(timeline.samples[0].detail, "token *** refused");
    assert_eq!(timeline.events[0].detail.chars().count(), LONGEST_TEXT + 1);
}

#[tokio::test]
async fn of_too_many_samples_those_that_are_not_met_and_those_after_the_faults_are_kept() {
    let recorder = recorder();
    for _ in 0..KEPT_SAMPLES + 7 {
        recorder.sampled("up", (Role::Gate, Stage::During), &sample(true, "ok"), true, None);
    }
    recorder.sampled("up", (Role::Gate, Stage::During), &sample(false, "no"), false, None);
    recorder.sampled("up", (Role::SteadyState, Stage::After), &sample(true, "ok"), true, None);
    let timeline = recorder.timeline();
    assert_eq!((timeline.samples.len(), timeline.left_out), (KEPT_SAMPLES + 2, 7));
    // What is left out is news all the same.
    recorder.sampled("up", (Role::SteadyState, Stage::During), &sample(true, "news"), true, None);
    assert_eq!(
        recorder.timeline().latest().last().map(|latest| latest.detail.clone()),
        Some("news".to_owned())
    );
}
