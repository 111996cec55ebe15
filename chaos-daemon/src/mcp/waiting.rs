//! How long a call waits for the end of a run, and what its caller hears until it is answered.

use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use crate::request::ApiError;
use crate::request::fields::Fields;
use crate::server::history::ExperimentResult;
use crate::server::history::views::sees_all;
use crate::server::runs::Run;
use crate::spec::{Owner, SpecError};

/// The longest wait for the end of a run: a little less than any call may take.
pub const LONGEST_WAIT: Duration = Duration::from_secs(44);
/// How often who wants to hear of progress does.
const NEWS: Duration = Duration::from_secs(1);

/// Understands how long to wait for the end of a run.
pub(super) fn wait_seconds(fields: &mut Fields) -> Result<Option<Duration>, SpecError> {
    let Some(seconds) = fields.number("wait_seconds")? else { return Ok(None) };
    let most = LONGEST_WAIT.as_secs_f64();
    if !(0.0..=most).contains(&seconds) {
        let problem = format!("{seconds} is not from 0 to {most} seconds: wait again for a run that goes on");
        return Err(SpecError::new("wait_seconds", problem));
    }
    Ok(Some(Duration::from_secs_f64(seconds)))
}

/// That field as JSON Schema.
pub(super) fn wait_property(unless_given: Duration, description: &str) -> Value {
    json!({"type": "number", "minimum": 0, "maximum": LONGEST_WAIT.as_secs(), "default": unless_given.as_secs(),
        "description": description})
}

/// What joins a call and those who wait for its answer: which run it waits for, and whether they still do.
pub(super) fn between() -> (Asker, watch::Receiver<Option<Run>>) {
    let (asker, followed) = watch::channel(None);
    (Asker(asker), followed)
}

/// Who waits for the answer to a call, as the call sees them.
pub(super) struct Asker(watch::Sender<Option<Run>>);

impl Asker {
    /// Returns once nobody waits for the answer any more.
    pub(super) async fn left(&self) {
        self.0.closed().await;
    }

    /// How a run has ended, if it does so within this time, and while the answer is waited for. Its progress is told to a `viewer` who
    /// may see all of it.
    pub(super) async fn until_ended(
        &self,
        run: &Run,
        limit: Duration,
        viewer: Owner,
    ) -> Option<Result<ExperimentResult, ApiError>> {
        if sees_all(run.owner, viewer) {
            self.0.send_replace(Some(run.clone()));
        }
        tokio::select! {
            biased;
            ended = run.finished() => Some(ended),
            () = sleep(limit) => None,
            () = self.0.closed() => None,
        }
    }
}

/// Progress of a call, for a caller who has asked to hear of it.
pub(super) struct News {
    token: Option<ProgressToken>,
    peer: Peer<RoleServer>,
    began: Instant,
    due: Interval,
    followed: watch::Receiver<Option<Run>>,
}

impl News {
    /// News for who has made this request, which begins now, of the run that the call waits for.
    pub(super) fn new(request: &RequestContext<RoleServer>, followed: watch::Receiver<Option<Run>>) -> Self {
        let began = Instant::now();
        let mut due = interval_at(began + NEWS, NEWS);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { token: request.meta.get_progress_token(), peer: request.peer.clone(), began, due, followed }
    }

    /// Returns when there is something to tell, which is never without a token.
    pub(super) async fn due(&mut self) {
        match self.token {
            Some(_) => drop(self.due.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Tells how it goes: seconds since the call began, and of how many, if that can be said. It is not to be cancelled: what
    /// is on its way has to be written before the answer is. Who does not read it would not read the answer either.
    pub(super) async fn tell(&self) {
        let Some(token) = self.token.clone() else { return };
        let elapsed = self.began.elapsed().as_secs_f64();
        let mut news = ProgressNotificationParam::new(token, elapsed);
        let live = self.followed.borrow().as_ref().map(Run::live);
        if let Some(live) = live {
            news.total = live.left.map(|left| elapsed + left);
            news.message = Some(live.to_string());
        }
        // Who has gone need not be told.
        let _ = self.peer.notify_progress(news).await;
    }
}
