//! What the policy is asked before something is done for a caller. The injector has the policy, and answers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Service;
use crate::experiment::driver::unexpected;
use crate::experiment::{Experiment, host_limits};
use crate::policy::environment::texts_of;
use crate::request::facts::{Facts, Precautions, Question};
use crate::request::{Act, ApiError, Caller, Reply, Request};

impl Service {
    /// Asks whether `caller` may do this at all.
    ///
    /// # Errors
    /// The rule of the policy that forbids it.
    pub async fn ask_leave(&self, act: Act, caller: Caller) -> Result<(), ApiError> {
        match self.door.call(Request::Look { question: Question::Act(act), caller }).await? {
            Reply::Seen(Facts::Act) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The experiment as it may be run here, within the limits of this host, if the operator lets it begin now. One that `begins` counts as
    /// begun from then on.
    pub(super) async fn admit(
        &self,
        experiment: &Experiment,
        document: &Map<String, Value>,
        (caller, begins): (Caller, bool),
    ) -> Result<Experiment, ApiError> {
        let has = Precautions { begins, ..experiment.guardrails.precautions(said_in(document)) };
        let question = Question::Experiment(Box::new(has));
        match self.door.call(Request::Look { question, caller }).await? {
            Reply::Seen(Facts::Experiment(limits)) => Ok(host_limits::within(experiment, &limits)?),
            other => Err(unexpected(&other)),
        }
    }
}

/// What a document says, each text once, but for its prose.
fn said_in(document: &Map<String, Value>) -> Vec<String> {
    let texts: BTreeSet<&str> = texts_of(document).into_iter().collect();
    texts.into_iter().map(str::to_owned).collect()
}
