//! Looking at the host: what its daemon says of faults and runs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Map, json};

use crate::cli::client::{Client, ClientError};
use crate::cli::live::limits::Limits;
use crate::cli::progress::Followed;
use crate::cli::runs::object;
use crate::experiment::timeline::Reading;
use crate::mcp::results::StatusOutput;

/// What was seen at once.
#[derive(Debug)]
pub(super) struct Look {
    /// Faults and runs.
    pub(super) status: StatusOutput,
    /// Of runs that were not there before: handle, what is right in them, and their samples so far.
    pub(super) new_runs: Vec<(String, Limits, Vec<Reading>)>,
}

/// A session, as long as it lasts.
pub(super) struct Eyes {
    socket: PathBuf,
    client: Option<Client>,
    /// The runs that were asked about.
    known: BTreeSet<String>,
}

impl Eyes {
    /// Nothing was seen yet.
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, client: None, known: BTreeSet::new() }
    }

    /// Looks; the next look opens a session anew if this one fails.
    ///
    /// # Errors
    /// When the daemon cannot be asked, or refuses.
    pub(super) async fn look(&mut self) -> Result<Look, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.socket).await?,
        };
        let look = see(&client, &mut self.known).await?;
        self.client = Some(client);
        Ok(look)
    }
}

async fn see(client: &Client, known: &mut BTreeSet<String>) -> Result<Look, ClientError> {
    let status: StatusOutput = client.ask("chaos_status", Map::new()).await?.read;
    // Of another user's run nothing more is told.
    let told = status.running.iter().filter(|run| !run.phase.is_empty()).map(|run| run.run_id.clone());
    let now: BTreeSet<_> = told.collect();
    let mut new_runs = Vec::new();
    for run in now.difference(known) {
        let asked = object(json!({"run_id": run, "all_samples": true}));
        match client.ask::<Followed>("chaos_get_run", asked).await {
            Ok(answer) => {
                let Followed { document, samples, .. } = answer.read;
                let limits = document.as_ref().map(Limits::of).unwrap_or_default();
                new_runs.push((run.clone(), limits, samples));
            }
            // It was shown all the same.
            Err(ClientError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    *known = now;
    Ok(Look { status, new_runs })
}
