//! What the policy is asked before something is done for a caller. The injector has the policy, and answers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Service;
use crate::experiment::driver::unexpected;
use crate::experiment::{Experiment, Stage, host_limits};
use crate::policy::environment::texts_of;
use crate::request::facts::{Facts, Precautions, Question};
use crate::request::leave::Leave;
use crate::request::{Act, ApiError, Caller, Reply, Request};
use crate::spec::{FaultRequest, GivenName, Owner};

/// Whether this may be done with what is named in a document.
pub fn about(act: Act, document: &Map<String, Value>) -> Question {
    Question::Named { act, texts: said_in(document) }
}

/// Whether an experiment that this document means may begin.
pub fn beginning(experiment: &Experiment, document: &Map<String, Value>) -> Question {
    Question::Experiment(Box::new(said_of(experiment, document)))
}

impl Service {
    /// Asks something to which leave is the whole answer.
    ///
    /// # Errors
    /// The rule of the policy that forbids it.
    pub async fn ask(&self, question: Question) -> Result<(), ApiError> {
        self.door.call(Request::Look { question }).await.map(drop)
    }

    /// What callers have to keep to on this host, as Markdown.
    ///
    /// # Errors
    /// When the injector is gone.
    pub async fn rules(&self) -> Result<String, ApiError> {
        match self.door.call(Request::Look { question: Question::Rules }).await? {
            Reply::Seen(Facts::Rules(text)) => Ok(text),
            other => Err(unexpected(&other)),
        }
    }

    /// What who asks may do on this host.
    ///
    /// # Errors
    /// When the injector is gone.
    pub async fn leave_here(&self) -> Result<Leave, ApiError> {
        match self.door.call(Request::Look { question: Question::Leave }).await? {
            Reply::Seen(Facts::Leave(leave)) => Ok(*leave),
            other => Err(unexpected(&other)),
        }
    }

    /// The fault that is registered under the name that `caller` gives.
    ///
    /// # Errors
    /// When there is none, or it is another user's.
    pub async fn fault_meant(&self, name: &GivenName, caller: Caller) -> Result<FaultRequest, ApiError> {
        let name = self.named(name, caller).await?;
        Ok(FaultRequest::clone(&*self.needed(&name, caller)?))
    }

    /// The document that is registered under the name that `caller` gives.
    ///
    /// # Errors
    /// When there is none, or it is another user's.
    pub async fn document_meant(&self, name: &str, caller: Caller) -> Result<Map<String, Value>, ApiError> {
        Ok(self.experiment(name, caller).await?.document)
    }

    /// Whether a run of this document at this stage, or at the next, is due.
    ///
    /// # Errors
    /// That another stage comes first, or that there is no such stage.
    pub async fn stage_due(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        (name, wanted): (&str, Option<Stage>),
        caller: Caller,
    ) -> Result<(), ApiError> {
        // One that is registered only now is the caller's.
        let owner = self.experiment(name, caller).await.map_or(caller.owner(), |subject| subject.owner);
        self.due(experiment, document, wanted, (owner, caller)).await.map(drop)
    }

    /// Asks whether the caller may do this at all.
    ///
    /// # Errors
    /// The rule of the policy that forbids it.
    pub async fn ask_leave(&self, act: Act) -> Result<(), ApiError> {
        self.leave(Question::Act(act)).await
    }

    /// Whose things are meant by a name that says `owner`, or nothing: one's own. Those of others are for root and admins to name.
    ///
    /// # Errors
    /// [`crate::request::ErrorCode::PolicyDenied`], whether or not there is any.
    pub async fn meant(&self, owner: Option<Owner>, caller: Caller) -> Result<Owner, ApiError> {
        let owner = owner.unwrap_or(caller.owner());
        if !caller.may_name(owner) {
            self.leave(Question::Naming(owner)).await?;
        }
        Ok(owner)
    }

    async fn leave(&self, question: Question) -> Result<(), ApiError> {
        match self.door.call(Request::Look { question }).await? {
            Reply::Seen(Facts::Act) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The experiment as it may be run here, within the limits of this host, if the operator lets it begin now.
    pub(super) async fn admit(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
    ) -> Result<Experiment, ApiError> {
        let question = beginning(experiment, document);
        match self.door.call(Request::Look { question }).await? {
            Reply::Seen(Facts::Experiment(limits)) => Ok(host_limits::within(experiment, &limits)?),
            other => Err(unexpected(&other)),
        }
    }
}

/// What an experiment says of itself.
pub(super) fn said_of(experiment: &Experiment, document: &Map<String, Value>) -> Precautions {
    experiment.guardrails.precautions(said_in(document))
}

/// What a document says, each text once, but for its prose.
fn said_in(document: &Map<String, Value>) -> Vec<String> {
    let texts: BTreeSet<&str> = texts_of(document).into_iter().collect();
    texts.into_iter().map(str::to_owned).collect()
}
