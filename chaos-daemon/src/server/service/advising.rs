//! What is asked, in which order and for how long, until there is advice.

use std::collections::BTreeMap;
use std::time::Duration;

use chaos_advise::{Advice, Errors, Trial};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout_at};

use super::Service;
use crate::experiment::driver::unexpected;
use crate::request::facts::{Facts, LogFacts, Question};
use crate::request::services::{ServiceSeen, ServicesSeen, ServicesWanted};
use crate::request::{ApiError, Caller, ErrorCode, Reply, Request};
use crate::server::advise::{Advised, Gathered, Report, refused_kinds};
use crate::spec::LogRequest;

/// How often services are looked at.
const LOOKS: u32 = 6;
/// How much longer than the window that may take: a busy host looks slowly.
const LATE: Duration = Duration::from_secs(10);
/// How long all of it may take: whoever asks has to be answered.
const WHOLE: Duration = Duration::from_secs(36);
/// Of how many services the logs are read.
const MOST_LOGS: usize = 12;
/// How long that may take, altogether and for one.
const LOGS: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(3));
/// What lines of errors have in them.
const ERRORS: &str =
    "(?i)\\b(error|err|fail(ed|ure)?|fatal|panic(ked)?|exception|critical|refused|timed out)\\b";
/// What is lately, and what it is held against.
const WITHIN: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(3600));
/// How many things are tried out for a service until one would be admitted.
const MOST_TRIALS: usize = 6;
/// How long trying out may take altogether, once there is something to advise.
const TRYING: Duration = Duration::from_secs(12);

/// What advice is wanted.
#[derive(Debug, Clone)]
pub struct AdviceWanted {
    /// Only about this service.
    pub service: Option<String>,
    /// How long services are looked at.
    pub window: Duration,
    /// About how many services at most.
    pub most: usize,
}

impl Service {
    /// Which services deserve chaos next, as far as `caller` may see them, each with a document that could be run now.
    ///
    /// # Errors
    /// When the policy forbids it, services cannot be looked at, or there is none of the name.
    pub async fn advise(&self, wanted: &AdviceWanted, caller: Caller) -> Result<Report, ApiError> {
        let (owner, until) = (caller.owner(), Instant::now() + WHOLE);
        let seen = self.look_at_services(wanted, caller).await?;
        if let (Some(name), true) = (&wanted.service, seen.services.is_empty() && seen.left_out.is_empty()) {
            let text = format!("no service {name:?} with processes is seen here");
            return Err(ApiError::new(ErrorCode::TargetNotFound, text)
                .hint("chaos_targets lists units, containers and control groups"));
        }
        let mut not_seen = Vec::new();
        let errors = self.errors(&seen.services, &mut not_seen).await;
        let past = self.history.tried(owner).await?;
        let (more, now) = (seen.more, jiff::Timestamp::now().as_millisecond());
        let mut gathered = Gathered::rank(seen, (&self.looks, owner), &errors, &past, now);
        gathered.not_seen.extend(not_seen);
        self.try_all(gathered, (wanted.most, more), until, caller).await
    }

    /// Looks several times, and gives the last look, with what the first has asked of the service manager.
    async fn look_at_services(
        &self,
        wanted: &AdviceWanted,
        caller: Caller,
    ) -> Result<ServicesSeen, ApiError> {
        let (pause, until) = (wanted.window / (LOOKS - 1), Instant::now() + wanted.window + LATE);
        let mut seen = self.look_at_services_once(wanted, true, caller).await?;
        for _ in 1..LOOKS {
            sleep(pause).await;
            let look = self.look_at_services_once(wanted, false, caller);
            // Of a host that is too busy for all of them, what was seen is told.
            let Ok(next) = timeout_at(until, look).await else {
                seen.not_seen.push("trends: this host was too busy to be looked at often".to_owned());
                break;
            };
            seen = next?.with_manager_of(seen);
        }
        Ok(seen)
    }

    async fn look_at_services_once(
        &self,
        wanted: &AdviceWanted,
        whole: bool,
        caller: Caller,
    ) -> Result<ServicesSeen, ApiError> {
        let asked = ServicesWanted { name: wanted.service.clone(), whole };
        match self.door.call(Request::Look { question: Question::Services(asked) }).await? {
            Reply::Seen(Facts::Services(seen)) => {
                self.looks.note(caller.owner(), seen.at.as_secs_f64(), &seen.services);
                Ok(*seen)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// What the logs say that the policy lets the caller be told of.
    async fn errors(&self, services: &[ServiceSeen], not_seen: &mut Vec<String>) -> BTreeMap<String, Errors> {
        let (begun, mut found, mut denied) = (Instant::now(), BTreeMap::new(), 0);
        let logs = services.iter().filter_map(|service| Some((service.name(), log_of(service)?)));
        let mut read = 0;
        for (name, request) in logs {
            if read == MOST_LOGS || begun.elapsed() >= LOGS.0 {
                not_seen.push(format!("logs: only those of {read} services were read"));
                break;
            }
            match self.errors_of(&request).await {
                Ok(errors) => {
                    read += 1;
                    found.insert(name, errors);
                }
                Err(error) if error.code == ErrorCode::PolicyDenied => denied += 1,
                Err(error) => not_seen.push(format!("the log of {name}: {}", error.message)),
            }
        }
        if denied > 0 {
            not_seen.push(format!("logs of {denied} services: the policy names none of them in probe_logs"));
        }
        found
    }

    async fn errors_of(&self, request: &LogRequest) -> Result<Errors, ApiError> {
        let of_all = self.log(request, WITHIN.1).await?;
        let lately = self.log(request, WITHIN.0).await?;
        let before = of_all.count.saturating_sub(lately.count) as f64;
        let expected = before * WITHIN.0.as_secs_f64() / (WITHIN.1 - WITHIN.0).as_secs_f64();
        Ok(Errors {
            recent: lately.count,
            expected,
            example: lately.last.last().cloned().unwrap_or_default(),
        })
    }

    async fn log(&self, request: &LogRequest, within: Duration) -> Result<LogFacts, ApiError> {
        let request = Box::new(LogRequest { within: Some(within), ..request.clone() });
        let question = Question::Log { request, limit: LOGS.1 };
        match self.door.call(Request::Look { question }).await? {
            Reply::Seen(Facts::Log(facts)) => Ok(facts),
            other => Err(unexpected(&other)),
        }
    }

    /// Plans what would be tried, until there are as many services as are wanted.
    async fn try_all(
        &self,
        gathered: Gathered,
        (most, more): (usize, usize),
        until: Instant,
        caller: Caller,
    ) -> Result<Report, ApiError> {
        let soon = until.min(Instant::now() + TRYING);
        let mut report = Report {
            left_out: gathered.left_out.clone(),
            not_seen: gathered.not_seen.clone(),
            more,
            ..Report::default()
        };
        for advice in &gathered.ranked {
            // For the first all the time there is: on a busy host a plan takes long.
            let until = if report.advised.is_empty() { until } else { soon };
            if report.advised.len() == most || Instant::now() >= until {
                report.more += 1;
                continue;
            }
            let (document, refused) = self.try_one(&gathered, advice, until, caller).await;
            match document {
                Some(document) => {
                    report.advised.push(Advised {
                        advice: advice.clone(),
                        document: Some(document),
                        refused,
                    });
                }
                None => report.left_out.push((advice.service.clone(), refused_kinds(&refused))),
            }
        }
        Ok(report)
    }

    /// The first document of a service that would be admitted now, and what would be refused before it.
    async fn try_one(
        &self,
        gathered: &Gathered,
        advice: &Advice,
        until: Instant,
        caller: Caller,
    ) -> (Option<Map<String, Value>>, Vec<(String, String)>) {
        let mut refused = Vec::new();
        for trial in advice.trials.iter().take(MOST_TRIALS) {
            let (kind, document) = match trial {
                Trial::Again(run_id) => (format!("run {run_id} again"), self.again(run_id, caller).await),
                trial => {
                    let missing =
                        || ApiError::new(ErrorCode::TargetNotFound, "where its packets go is not known");
                    let document = gathered.document(advice, trial).ok_or_else(missing);
                    (trial.kind().unwrap_or_default().to_owned(), document)
                }
            };
            let document = match document {
                Ok(document) => document,
                Err(error) => {
                    refused.push((kind, error.message));
                    continue;
                }
            };
            match timeout_at(until, self.dry_run_of(&document, None, caller)).await {
                Ok(Ok(plan)) if plan.result.success => return (Some(document), refused),
                Ok(Ok(plan)) => refused.push((kind, plan.result.error.unwrap_or_default())),
                Ok(Err(error)) => refused.push((kind, error.message)),
                Err(_) => {
                    refused.push((kind, "there was no time to plan it".to_owned()));
                    break;
                }
            }
        }
        (None, refused)
    }

    /// The document of an earlier run of this caller's.
    async fn again(&self, run_id: &str, caller: Caller) -> Result<Map<String, Value>, ApiError> {
        let recorded = self.history.run(run_id.to_owned()).await?;
        let refused = |text: &str| ApiError::new(ErrorCode::RunNotFound, format!("run {run_id}: {text}"));
        if recorded.owner() != caller.owner() {
            return Err(refused("it was another user's"));
        }
        recorded.document.ok_or_else(|| refused("its document is no longer kept"))
    }
}

/// Where the log of a service is: the journal of its unit, or the file into which its output goes.
fn log_of(service: &ServiceSeen) -> Option<LogRequest> {
    let request = LogRequest { pattern: ERRORS.to_owned(), ..LogRequest::default() };
    match (&service.log, &service.target.unit) {
        (Some(file), _) => Some(LogRequest { file: Some(file.clone()), ..request }),
        (None, Some(unit)) => Some(LogRequest { unit: Some(unit.clone()), ..request }),
        (None, None) => None,
    }
}
