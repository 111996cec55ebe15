//! What goes on in a caller's name when the caller is no longer connected. The injector is told while the caller is. What it is told
//! then is all that the server can do in that name later.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Service;
use super::leave::said_of;
use crate::experiment::driver::unexpected;
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Stage, staged};
use crate::request::approvals::{Approval, ApprovalRequest};
use crate::request::claim::{Claim, Entrusted, Undertaking};
use crate::request::wire::Door;
use crate::request::{ApiError, Caller, ErrorCode, Reply, Request};
use crate::server::history::of_document;
use crate::server::schedule::Schedule;
use crate::server::schedule::plan::Words;
use crate::server::search::Kept;
use crate::spec::{FaultRequest, Owner, QualifiedName};

/// How much longer a run may take than twice its method: its samples, what it waits for, and its recovery.
const GRACE: Duration = Duration::from_secs(4 * 3600);
/// How many runs of a search come to nothing before they have begun, beside those of its budget: each was in the way of another.
const IN_VAIN: u32 = 64;

impl Service {
    /// Has a run of an experiment go on in the name in which this asks. Returns the way to the injector in the name of the run.
    ///
    /// # Errors
    /// When the policy forbids it, or it is none of what was entrusted.
    pub(super) async fn entrust_run(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        owner: Owner,
        at: AtStage,
    ) -> Result<(Door, Option<String>), ApiError> {
        let entrusted = run_of(experiment, document, owner, at);
        let (grant, approved) = self.entrust(entrusted).await?;
        Ok((self.door.in_the_name_of(Claim::Grant(grant)), approved))
    }

    /// Asks whether a run of an experiment would be let as far as others have to approve of it.
    ///
    /// # Errors
    /// [`ErrorCode::ApprovalNeeded`], with what to do.
    pub(super) async fn ask_approval(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        owner: Owner,
        at: AtStage,
    ) -> Result<(), ApiError> {
        let run = run_of(experiment, document, owner, at);
        self.door.call(Request::Approved(Box::new(run))).await.map(drop)
    }

    /// The way to approvals: which there are, to give one, and to take one back.
    ///
    /// # Errors
    /// Whatever the injector says.
    pub async fn approvals(&self, what: ApprovalRequest) -> Result<Vec<Approval>, ApiError> {
        match self.door.call(Request::Approvals(what)).await? {
            Reply::Approvals(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the number by which it goes on, and who has approved of it.
    async fn entrust(&self, what: Entrusted) -> Result<(u64, Option<String>), ApiError> {
        match self.door.call(Request::Entrust(Box::new(what))).await? {
            Reply::Entrusted { grant, approved } => Ok((grant, approved)),
            other => Err(unexpected(&other)),
        }
    }

    /// Has runs of an experiment begin by themselves in the name of who asks.
    async fn entrust_schedule(&self, experiment: &str, owner: Owner) -> Result<u64, ApiError> {
        let subject = self.subject(owner, experiment)?;
        let (experiment, mut all) = (&subject.experiment, faults(&subject.experiment));
        for stage in experiment.guardrails.blast_radius.iter().flat_map(|radius| radius.stages()) {
            all.extend(faults(&staged::at(experiment, *stage)?));
        }
        let schedule = Entrusted {
            what: Undertaking::Schedule,
            owner,
            name: experiment.name.clone(),
            document: of_document(&subject.document).0,
            faults: all,
            says: Default::default(),
            stage: None,
            skips: false,
            lasts: None,
            runs: None,
        };
        Ok(self.entrust(schedule).await?.0)
    }

    /// Has the runs of a search begin in the name of who asks.
    pub(super) async fn entrust_search(&self, search: &Kept) -> Result<u64, ApiError> {
        let experiment = Experiment::parse(&search.document, &Nowhere)?;
        let entrusted = Entrusted {
            what: Undertaking::Search,
            owner: search.owner(),
            name: experiment.name.clone(),
            document: of_document(&search.document).0,
            faults: faults(&experiment),
            says: Default::default(),
            stage: None,
            skips: false,
            lasts: None,
            runs: Some(search.search.spec().budget.runs.saturating_add(IN_VAIN)),
        };
        Ok(self.entrust(entrusted).await?.0)
    }

    /// Sets a schedule of this name, of the experiment that `words` name. Its runs are its owner's, who alone can have it run another
    /// document. Returns what could not be saved.
    ///
    /// # Errors
    /// As of [`Service::to_be_scheduled`] and [`super::Schedules::set`], and when the policy forbids it.
    pub async fn set_schedule(
        &self,
        name: QualifiedName,
        (words, paused): (Words, bool),
        caller: Caller,
        now: Timestamp,
    ) -> Result<Option<String>, ApiError> {
        let (experiment, digest) = self.to_be_scheduled(&words.experiment, name.owner)?;
        let is_own = caller.owner() == name.owner;
        let grant = if is_own { Some(self.entrust_schedule(&experiment, name.owner).await?) } else { None };
        let mut schedule = Schedule::new(Words { experiment, ..words }, paused, digest, caller, now);
        schedule.grant = grant;
        match self.schedules.set(name, schedule).await {
            Ok((replaced, problem)) => {
                self.give_back(replaced).await;
                Ok(problem)
            }
            Err(error) => {
                self.give_back(grant).await;
                Err(error)
            }
        }
    }

    /// Forgets a schedule; says whether there was one, and what could not be saved.
    ///
    /// # Errors
    /// As of [`super::Schedules::delete`].
    pub async fn delete_schedule(&self, name: QualifiedName) -> Result<(bool, Option<String>), ApiError> {
        let (deleted, problem) = self.schedules.delete(name).await?;
        let was = deleted.is_some();
        self.give_back(deleted.and_then(|schedule| schedule.grant)).await;
        Ok((was, problem))
    }

    /// What was entrusted is over.
    pub(in crate::server) async fn give_back(&self, grant: Option<u64>) {
        if let Some(grant) = grant {
            self.door.in_the_name_of(Claim::Grant(grant)).release().await;
        }
    }

    /// Has the injector forget what was entrusted and is none of what goes on.
    pub(in crate::server) async fn keep_entrusted(&self) {
        let grants = [self.schedules.grants(), self.searches.grants()].concat();
        if let Err(error) = self.door.call(Request::Keep { grants }).await {
            tracing::warn!(%error, "what goes on by itself could not be told to the injector");
        }
    }
}

/// Something without leave to begin runs, as it was set by an earlier version.
///
/// # Errors
/// Always, without a grant.
pub(in crate::server) fn entrusted(grant: Option<u64>) -> Result<Claim, ApiError> {
    grant.map(Claim::Grant).ok_or_else(|| {
        let text = "nobody has entrusted its runs to this daemon: it was begun under an earlier version";
        ApiError::new(ErrorCode::Unavailable, text).hint("set or begin it again")
    })
}

/// At which stage an experiment is run, and whether that is not due.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AtStage {
    pub(super) stage: Option<Stage>,
    pub(super) skips: bool,
}

/// A run, as it is entrusted.
fn run_of(experiment: &Experiment, document: &Map<String, Value>, owner: Owner, at: AtStage) -> Entrusted {
    Entrusted {
        what: Undertaking::Run,
        owner,
        name: experiment.name.clone(),
        document: of_document(document).0,
        faults: faults(experiment),
        says: said_of(experiment, document),
        stage: at.stage.map(Stage::percent),
        skips: at.skips,
        lasts: Some(2 * experiment.lasts() + GRACE),
        runs: None,
    }
}

fn faults(experiment: &Experiment) -> Vec<FaultRequest> {
    experiment.faults().map(|(_, _, fault)| fault.clone()).collect()
}
