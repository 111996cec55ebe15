//! Subscriptions to runs: who has one hears when there is something new about a run, and when it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::ErrorData;
use rmcp::model::{ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{Peer, RoleServer, SubscriptionContext, SubscriptionSink};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::resources::{run_id, unknown};
use crate::request::ErrorCode;
use crate::server::runs::Run;
use crate::server::service::Service;

/// The most runs that one connection follows at once.
pub const MOST_FOLLOWED: usize = 16;
/// The least time between two updates of one run, but for the one at its end.
const PACE: Duration = Duration::from_secs(1);

/// What one connection follows.
pub(super) struct Subscriptions {
    places: Arc<Semaphore>,
    /// By address, of revisions in which one subscribes to one resource; those of `subscriptions/listen` live in their requests.
    followed: Mutex<BTreeMap<String, Follower>>,
}

/// A task that follows a run, and ends with this value.
struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Who hears of the run at an address.
enum Ear {
    Session(Peer<RoleServer>, String),
    Request(SubscriptionSink, String),
}

impl Ear {
    /// Tells that there is something new; false when nobody hears it.
    async fn tell(&self) -> bool {
        match self {
            Self::Session(peer, uri) => {
                peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok()
            }
            Self::Request(sink, uri) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    }
}

/// A run that is known.
enum Known {
    GoesOn(Box<Run>),
    Ended,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST_FOLLOWED)), followed: Mutex::default() }
    }
}

impl Subscriptions {
    /// Follows the run at `uri`, unless this connection does already.
    ///
    /// # Errors
    /// When no run is there, or too many are followed.
    pub(super) async fn subscribe(
        &self,
        service: &Service,
        uri: String,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let known = find(service, &uri).await?.ok_or_else(|| unknown(&uri))?;
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|_, follower| !follower.0.is_finished());
        if followed.contains_key(&uri) {
            return Ok(());
        }
        let place = self.place(1)?;
        let ear = Ear::Session(peer, uri.clone());
        let task = tokio::spawn(async move {
            let _place = place;
            follow(&known, &ear).await;
        });
        followed.insert(uri, Follower(task));
        Ok(())
    }

    /// Follows the run at `uri` no more. Succeeds when it was not followed.
    pub(super) fn unsubscribe(&self, uri: &str) {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).remove(uri);
    }

    /// Follows the runs that a request of `subscriptions/listen` asks for until it is cancelled. Those that are not known are left
    /// aside.
    ///
    /// # Errors
    /// When too many are followed.
    pub(super) async fn listen(
        &self,
        service: &Service,
        context: &SubscriptionContext,
    ) -> Result<(), ErrorData> {
        let asked: BTreeSet<_> = context.accepted().resource_subscriptions.iter().flatten().collect();
        // Also one that asks for nothing is kept until it is cancelled.
        let _places = self.place(asked.len().max(1))?;
        let follow = join_all(asked.into_iter().map(|uri| async move {
            if let Ok(Some(known)) = find(service, uri).await {
                follow(&known, &Ear::Request(context.sink().clone(), uri.clone())).await;
            }
        }));
        tokio::select! {
            () = context.cancelled() => {}
            () = async { drop(follow.await); std::future::pending().await } => {}
        }
        Ok(())
    }

    fn place(&self, count: usize) -> Result<OwnedSemaphorePermit, ErrorData> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Arc::clone(&self.places).try_acquire_many_owned(count).ok().ok_or_else(|| {
            let text = format!(
                "this connection follows {MOST_FOLLOWED} runs, which is the most at once: unsubscribe from one"
            );
            ErrorData::invalid_request(text, None)
        })
    }
}

/// What of a request of `subscriptions/listen` can be had: runs, and no more of them than may be followed.
pub(super) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let asked: BTreeSet<_> = requested.resource_subscriptions.iter().flatten().collect();
    let runs = asked.into_iter().filter(|uri| run_id(uri).is_some()).take(MOST_FOLLOWED);
    SubscriptionFilter::builder().resource_subscriptions(runs.cloned().collect::<Vec<_>>()).build()
}

/// The run at `uri`.
async fn find(service: &Service, uri: &str) -> Result<Option<Known>, ErrorData> {
    let Some(run_id) = run_id(uri) else { return Ok(None) };
    if let Some(run) = service.run_going_on(run_id) {
        return Ok(Some(Known::GoesOn(Box::new(run))));
    }
    match service.history().run(run_id.to_owned()).await {
        Ok(recorded) => Ok((recorded.run.run_id == run_id).then_some(Known::Ended)),
        Err(error) if error.code == ErrorCode::RunNotFound => Ok(None),
        Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
    }
}

/// Tells when there is something new about a run, and when it has ended; of one that has ended before, at once, because who has asked
/// may not know that. Returns then, or when nobody hears it.
async fn follow(known: &Known, ear: &Ear) {
    if let Known::GoesOn(run) = known {
        let mut told = run.happened();
        let mut due = interval_at(Instant::now() + PACE, PACE);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = run.finished();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => break,
                _ = due.tick() => {}
            }
            let now = run.happened();
            if now != told {
                told = now;
                if !ear.tell().await {
                    return;
                }
            }
        }
    }
    ear.tell().await;
}
