//! Makes the runs of the searches, one after the other, each as a caller's own and by the same way.

use std::convert::Infallible;
use std::time::Duration;

use chaos_search::{NoData, Outcome};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{RunOf, Searches, lost};
use crate::experiment::Verdict;
use crate::experiment::search::Plan;
use crate::experiment::search::observe::outcome;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::server::runs::Run;
use crate::server::service::{Service, entrusted};

/// How long a step waits for others' runs to end, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(500);
/// After how many runs in a row that found the steady state not met a search ends.
const MOST_REFUSED: usize = 3;
/// What the experiment of a candidate is called behind the name of its own.
const WHAT: &str = "search";

/// Drives every search that goes on, for ever. Who drops it drops their steps where they are: the next one finds them in the files.
pub(in crate::server) async fn keep(service: Service) -> Infallible {
    let searches = service.searches().clone();
    let mut driving = JoinSet::new();
    loop {
        for name in searches.take_undriven() {
            driving.spawn(drive(service.clone(), name));
        }
        tokio::select! {
            () = searches.begun.notified() => {}
            Some(ended) = driving.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a search broke");
                }
            }
        }
    }
}

/// Drives one to its end.
async fn drive(service: Service, name: String) {
    let searches = service.searches();
    let mut stopped = match searches.lock().get(&name) {
        Some(entry) => entry.stop.subscribe(),
        None => return,
    };
    let ended = loop {
        match step(&service, &name, &mut stopped).await {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    if let Some(problem) = ended {
        end(searches, &name, problem).await;
    }
    let grant = searches.lock().get(&name).and_then(|entry| entry.kept.grant);
    service.give_back(grant).await;
    searches.leave(&name);
    tracing::info!(search = name, "a search has ended");
}

/// Ends a search that cannot go on; what has ended it is told with it.
async fn end(searches: &Searches, name: &str, problem: String) {
    tracing::warn!(search = name, problem, "a search ends before its time");
    let ended = searches.change(name, move |kept| {
        kept.search.stop();
        kept.problem.get_or_insert(problem);
    });
    if let Err(error) = ended.await {
        tracing::warn!(search = name, %error, "the end of a search is not on file");
    }
}

/// What to run now.
struct Now {
    document: Map<String, Value>,
    plan: Plan,
    caller: Caller,
    grant: Option<u64>,
    /// What begins it.
    by: String,
}

/// What became of a step.
struct Ended {
    outcome: Outcome,
    verdict: Option<Verdict>,
    problem: Option<String>,
    /// Why there is to be no other.
    fatal: Option<String>,
}

impl Ended {
    fn without_data(why: NoData, took: Duration, problem: String) -> Self {
        let outcome = Outcome { seen: Err(why), seconds: took.as_secs_f64() };
        Self { outcome, verdict: None, problem: Some(problem), fatal: None }
    }
}

/// Makes one step; says whether there may be another.
async fn step(service: &Service, name: &str, stopped: &mut watch::Receiver<()>) -> Result<bool, ApiError> {
    let searches = service.searches();
    let looked = searches.change(name, |kept| {
        if kept.is_pending() {
            let outcome = lost(kept, Timestamp::now());
            kept.tell(outcome);
            if let Some(run) = kept.runs.last_mut() {
                run.problem = Some("the daemon ended while it went on".to_owned());
            }
        }
        let wait = match kept.search.history() {
            [] => 0.0,
            _ => kept.search.spec().budget.recovery_seconds,
        };
        (kept.goes_on(), wait)
    });
    let (goes_on, wait) = looked.await?;
    if !goes_on {
        return Ok(false);
    }
    tokio::select! {
        () = sleep(Duration::try_from_secs_f64(wait).unwrap_or_default()) => {}
        _ = stopped.changed() => return Ok(false),
    }
    let Some(now) = decide(searches, name).await? else { return Ok(false) };
    let began = Instant::now();
    let ended = match begin(service, &now, stopped).await {
        Ok(run) => {
            note(searches, name, &run).await?;
            follow(&now, &run, began, stopped).await
        }
        Err(error) => {
            let why = match error.code {
                ErrorCode::LimitReached | ErrorCode::Unavailable => NoData::Interrupted,
                _ => NoData::Refused,
            };
            Ended::without_data(why, began.elapsed(), error.to_string())
        }
    };
    let told = searches.change(name, move |kept| {
        kept.tell(ended.outcome);
        if let Some(run) = kept.runs.last_mut() {
            (run.verdict, run.problem) = (ended.verdict, ended.problem);
        }
        let fatal = ended.fatal.or_else(|| is_down(&kept.runs));
        if let Some(fatal) = fatal.filter(|_| kept.goes_on()) {
            kept.search.stop();
            kept.problem = Some(fatal);
        }
        kept.goes_on()
    });
    told.await
}

/// Why nothing more can be learned of a system that does not come up again.
fn is_down(runs: &[RunOf]) -> Option<String> {
    let refused = runs.iter().rev().take_while(|run| run.verdict == Some(Verdict::Refused)).count();
    (refused >= MOST_REFUSED).then(|| {
        format!("the steady state was not met before {refused} runs in a row: see to the system, or give it more time to recover")
    })
}

/// Decides what is next, which may take long, and writes it down; nothing if the search has ended.
async fn decide(searches: &Searches, name: &str) -> Result<Option<Now>, ApiError> {
    let kept = searches.list(Some(name))?.remove(0);
    let decided = searches.off_the_loop(move |_| {
        let (mut search, plan) = (kept.search.clone(), kept.plan()?);
        let trial = search.next_trial().map(|trial| {
            let by = format!(
                "search {}, step {}, of {}: {}",
                kept.name,
                trial.number + 1,
                kept.set_by,
                trial.step.reason
            );
            let document = plan.document(&kept.document, &trial.step.candidate, WHAT);
            (document, by)
        });
        let now =
            trial.map(|(document, by)| Now { document, plan, caller: kept.set_by, grant: kept.grant, by });
        Ok::<_, ApiError>((search, now))
    });
    let (search, now) = decided.await??;
    let committed = searches.change(name, move |kept| {
        // Somebody may have stopped it meanwhile.
        if !kept.goes_on() {
            return None;
        }
        kept.search = search;
        if now.is_some() {
            let began_at = Timestamp::now();
            kept.runs.push(RunOf { began_at, run_id: None, verdict: None, problem: None });
        }
        now
    });
    committed.await
}

/// Begins the run; where others' runs leave no place, it waits a while.
async fn begin(service: &Service, now: &Now, stopped: &mut watch::Receiver<()>) -> Result<Run, ApiError> {
    let until = Instant::now() + PATIENCE;
    let service = service.in_the_name_of(entrusted(now.grant)?);
    loop {
        match service.run_candidate(&now.document, now.plan.stage, now.caller, &now.by).await {
            Err(error) if error.code == ErrorCode::LimitReached && Instant::now() < until => {
                tokio::select! {
                    () = sleep(LOOK) => {}
                    _ = stopped.changed() => return Err(error),
                }
            }
            begun => return begun,
        }
    }
}

/// Writes down which run it is. One that cannot be written down is ended.
async fn note(searches: &Searches, name: &str, run: &Run) -> Result<(), ApiError> {
    let run_id = run.run_id.clone();
    let noted = searches.change(name, move |kept| {
        if let Some(run) = kept.runs.last_mut() {
            run.run_id = Some(run_id);
        }
    });
    noted.await.inspect_err(|_| run.end("the search that cannot be written down"))
}

/// Follows a run to its end, which comes soon if the search is stopped.
async fn follow(now: &Now, run: &Run, began: Instant, stopped: &mut watch::Receiver<()>) -> Ended {
    let result = tokio::select! {
        result = run.finished() => result,
        _ = stopped.changed() => {
            run.end("the end of its search");
            run.finished().await
        }
    };
    match result {
        Ok(result) => {
            let (samples, took) = (run.samples(), began.elapsed().as_secs_f64());
            let outcome = outcome(&now.plan.objective, result.verdict, &samples, took);
            let fatal = if result.verdict == Some(Verdict::Aborted) {
                Some("somebody has stopped its run".to_owned())
            } else {
                (!result.left.is_empty())
                    .then(|| format!("run {} has left: {}", run.run_id, result.left.join("; ")))
            };
            Ended { outcome, verdict: result.verdict, problem: result.error, fatal }
        }
        Err(error) => Ended::without_data(NoData::Interrupted, began.elapsed(), error.to_string()),
    }
}
