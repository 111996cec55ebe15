//! Tests of the driver, with an injector that says what it is told to, and the real prober.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

use super::*;
use crate::experiment::variables::Nowhere;
use crate::probe::prober;
use crate::request::evidence::{Met, Things};
use crate::request::wire::Desk;
use crate::request::{PlanReport, Reply, Request};
use crate::spec::LifetimeClass;
use crate::spec::{FaultType, QualifiedName};

/// Cuts something off for a minute, and removes that after a moment.
fn experiment(probe: &Value, extensions: &Value) -> Experiment {
    parse(&document(probe, extensions))
}

fn parse(document: &Value) -> Experiment {
    Experiment::parse(document.as_object().unwrap(), &Nowhere).unwrap()
}

fn document(probe: &Value, extensions: &Value) -> Value {
    json!({
        "title": "cut",
        "steady-state-hypothesis": {"title": "up", "probes": [probe]},
        "method": [{"type": "action", "name": "cut", "pauses": {"after": 0.1},
            "provider": {"type": "process", "path": "chaosctl", "arguments":
                {"inject": "timeout", "--interface": "eth0", "--for": "1m"}}}],
        "extensions": extensions,
    })
}

fn prober() -> Prober {
    let (server, other) = UnixStream::pair().unwrap();
    tokio::spawn(prober::serve(other, None));
    Prober::new(prober::samples(server), None)
}

fn status(name: &QualifiedName, state: FaultState, affected: u64, note: Option<&str>) -> FaultStatus {
    FaultStatus {
        began: None,
        name: name.clone(),
        fault_type: FaultType::Timeout,
        state,
        lifetime: LifetimeClass::Kernel,
        guard: String::new(),
        description: String::new(),
        age: Duration::ZERO,
        remaining: Duration::ZERO,
        evidence: Evidence::Met(Met { affected, ..Met::default() }),
        addresses: Vec::new(),
        likely: None,
        note: note.map(str::to_owned),
    }
}

fn plan() -> PlanReport {
    PlanReport {
        description: String::new(),
        lifetime: LifetimeClass::Kernel,
        guard: String::new(),
        duration: Duration::ZERO,
        steps: Vec::new(),
        digest: String::new(),
        targets: None,
        restarts: Vec::new(),
        warnings: Vec::new(),
    }
}

/// Injects whatever it is asked for, which ends after `remaining`, and when that is to be removed it has ended. What it has met is the
/// `first` of these when it has been applied, and the `last` at its end.
async fn injector(
    mut desk: Desk,
    name: QualifiedName,
    remaining: Duration,
    (first, last): (Evidence, Evidence),
) {
    let answers = desk.answers();
    while let Ok(Some((ticket, request))) = desk.next().await {
        let reply = match request {
            Request::Inject { .. } => Reply::Injected(Box::new(FaultStatus {
                remaining,
                evidence: first,
                ..status(&name, FaultState::NoTraffic, 0, None)
            })),
            Request::PlanAll { faults, .. } => Reply::PlannedAll(faults.iter().map(|_| Ok(plan())).collect()),
            Request::Remove { .. } => Reply::Removed(Vec::new()),
            _ => Reply::Status(vec![FaultStatus {
                evidence: last,
                ..status(&name, FaultState::Ended, 0, Some("its holder died"))
            }]),
        };
        answers.answer(ticket, reply);
    }
}

#[tokio::test]
async fn what_a_short_fault_held_when_it_was_applied_counts_though_it_was_given_back_at_its_end() {
    let held = |things_held| Evidence::Things(Things { things_held, shortfall: None });
    let Ending { outcome, fates, .. } = ending_with(Duration::ZERO, (held(10), held(0)), false).await;
    assert_eq!((outcome.verdict, fates[&0].effective), (Verdict::Held, true), "{outcome:?}");
    let Ending { outcome, .. } = ending_with(Duration::ZERO, (held(0), held(0)), false).await;
    assert_eq!(outcome.verdict, Verdict::Unverified, "{outcome:?}");
}

/// How a run ends whose fault has that much of its time left when it has been applied, and is over when it is to be removed.
async fn ending(remaining: Duration) -> Ending {
    ending_of(remaining, 7, false).await
}

/// The same of a fault that has `affected` so many packets, and of which the document says whether it `may_be_idle`.
async fn ending_of(remaining: Duration, affected: u64, may_be_idle: bool) -> Ending {
    let met = |affected| Evidence::Met(Met { affected, ..Met::default() });
    ending_with(remaining, (met(0), met(affected)), may_be_idle).await
}

/// The same of a fault that has met these, first and last.
async fn ending_with(remaining: Duration, met: (Evidence, Evidence), may_be_idle: bool) -> Ending {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let probe = json!({"type": "probe", "name": "up", "tolerance": 0,
        "provider": {"type": "process", "path": "chaosctl", "arguments": ["probe", "tcp", address]}});
    let mut document = document(&probe, &json!([]));
    document["method"][0]["may_be_idle"] = may_be_idle.into();
    let experiment = parse(&document);
    let name = FaultName::new("cut.1").unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (door, prober, caller) = (Door::new(ours), prober(), Caller::Vsock { cid: 3 });
    let owner = caller.owner();
    let known = QualifiedName::new(owner, name.clone());
    tokio::spawn(injector(Desk::new(theirs), known, remaining, met));
    let names = BTreeMap::from([(0, name)]);
    let recorder = Recorder::new(&experiment, names.clone());
    let means = Means { caller, owner, door: &door, prober: &prober, names: &names, recorder: &recorder };
    let (_stop, stopped) = watch::channel(());
    let progress = watch::channel(Progress::default()).0;
    drive(&experiment, &means, stopped, &progress).await
}

#[tokio::test]
async fn a_run_whose_fault_had_died_when_it_was_to_be_removed_has_failed_and_says_of_what() {
    let Ending { outcome, fates, .. } = ending(Duration::from_secs(60)).await;
    assert_eq!(outcome.verdict, Verdict::Failed, "{outcome:?}");
    assert_eq!(outcome.error.as_deref(), Some("the fault ended before its time: its holder died"));
    assert!(outcome.steady_after && fates[&0].effective, "{outcome:?}");
}

#[tokio::test]
async fn a_fault_whose_time_went_by_while_it_was_applied_has_not_ended_before_it() {
    let Ending { outcome, .. } = ending(Duration::ZERO).await;
    assert_eq!((outcome.verdict, outcome.error.as_deref()), (Verdict::Held, None), "{outcome:?}");
}

#[tokio::test]
async fn a_run_whose_fault_met_nobody_shows_nothing_unless_the_document_allows_that() {
    for (affected, may_be_idle, verdict) in
        [(0, false, Verdict::Unverified), (0, true, Verdict::Held), (1, false, Verdict::Held)]
    {
        let Ending { outcome, fates, .. } = ending_of(Duration::ZERO, affected, may_be_idle).await;
        assert_eq!(outcome.verdict, verdict, "{affected} {may_be_idle}: {outcome:?}");
        assert!(outcome.steady_before && outcome.steady_after, "{outcome:?}");
        let met = Evidence::Met(Met { affected, ..Met::default() });
        assert_eq!((fates[&0].effective, fates[&0].evidence), (affected > 0, Some(met)));
        if verdict == Verdict::Unverified {
            let error = outcome.error.unwrap();
            let said = "unverified: the fault of \"cut\" acted on nothing: no packet matched its target";
            assert!(error.starts_with(said), "{error}");
        }
    }
}

/// Says at once that it is not well, and then, much later, that it is.
async fn slow_to_recover(listener: TcpListener) {
    let (mut response, mut delay) = ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", Duration::ZERO);
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        sleep(delay).await;
        stream.write_all(response.as_bytes()).await.unwrap();
        (response, delay) = ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_steady_state_that_is_met_by_a_late_answer_has_not_recovered_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(slow_to_recover(listener));
    let probe =
        json!({"type": "probe", "name": "up", "tolerance": 200, "provider": {"type": "http", "url": url}});
    let limit = json!([{"name": "chaos-daemon", "abort_when": [{"not_recovered_within": "300ms"}]}]);
    let experiment = experiment(&probe, &limit);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let names = BTreeMap::new();
    let recorder = Recorder::new(&experiment, BTreeMap::new());
    let (door, prober, caller) = (Door::new(ours), prober(), Caller::Vsock { cid: 3 });
    let owner = caller.owner();
    let means = Means { caller, owner, door: &door, prober: &prober, names: &names, recorder: &recorder };
    let late = recovered(&experiment, &means).await.unwrap_err();
    assert!(late.starts_with("not recovered within 300ms: "), "{late}");
}
