//! The runs of searches, and what is searched.

use serde_json::{Map, Value};

use super::{Service, Subject, Wish};
use crate::experiment::variables::Nowhere;
use crate::experiment::{Experiment, Stage};
use crate::request::{Act, ApiError, Caller};
use crate::server::runs::Run;
use crate::server::search::{Beginning, Kept, Searches};

impl Service {
    /// What is searched.
    pub fn searches(&self) -> &Searches {
        &self.searches
    }

    /// Begins a search of the registered experiment of this name, in the name of `caller`. Returns the name of the search.
    ///
    /// # Errors
    /// When there is no such experiment, the policy forbids that it is run by itself, or as [`Searches::begin`].
    pub async fn begin_search(
        &self,
        experiment: &str,
        beginning: Beginning<'_>,
        caller: Caller,
    ) -> Result<String, ApiError> {
        self.ask_leave(Act::Schedule).await?;
        let document = self.experiment(experiment, caller).await?.document;
        let search = Kept::begun(&self.searches, document, beginning, caller)?;
        let grant = self.entrust_search(&search).await?;
        let begun = self.searches.begin(Kept { grant: Some(grant), ..search }).await;
        if begun.is_err() {
            self.give_back(Some(grant)).await;
        }
        begun
    }

    /// Starts a run of a document that is not registered, for `caller`, who is not there, and does not wait for it.
    ///
    /// # Errors
    /// As [`Service::run`].
    pub async fn run_candidate(
        &self,
        document: &Map<String, Value>,
        stage: Option<Stage>,
        caller: Caller,
        started_by: &str,
    ) -> Result<Run, ApiError> {
        let experiment = Experiment::parse(document, &Nowhere)?;
        let subject = Subject { owner: caller.owner(), experiment, document: document.clone() };
        let wish = Wish { stage, plan_digest: None };
        self.begin(&subject, &wish, caller, Some(started_by)).await
    }
}
