//! The policy file, read again. What is active and is no longer allowed ends, and whatever is being decided is decided anew.

use std::convert::Infallible;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;

use super::state::Injector;
use crate::policy::environment::Environment;
use crate::policy::limits::Recent;
use crate::policy::{Asked, Intent, Policy, PolicyError, Who};
use crate::request::{ApiError, ErrorCode, chain};
use crate::spec::{Fault, FaultRequest};

/// Where the policy comes from.
#[derive(Debug, Clone, Default)]
pub struct PolicySource {
    /// Its file; without one, the default holds.
    pub file: Option<PathBuf>,
    /// What the host is, where the file does not say it.
    pub environment: Option<Environment>,
}

impl PolicySource {
    /// Reads it. Blocks.
    ///
    /// # Errors
    /// When the file is no policy, others could change it, or it says of the host something else.
    pub fn read(&self) -> Result<Policy, PolicyError> {
        let policy = self.file.as_deref().map_or_else(|| Ok(Policy::default()), Policy::load)?;
        Ok(policy.in_environment(self.environment.clone())?)
    }
}

/// What a fault was permitted by, to be decided again.
#[derive(Debug, Clone)]
pub(super) struct Grounds {
    pub(super) request: FaultRequest,
    pub(super) fault: Fault,
    pub(super) who: Arc<Who>,
    pub(super) intent: Intent,
    /// The names of what was found for it.
    pub(super) names: Vec<String>,
    /// Who has approved of it, where somebody had to.
    pub(super) approved: Option<String>,
}

impl Grounds {
    /// Who began it, and who has approved of it, for people.
    pub(super) fn began(&self) -> String {
        let approved = self.approved.as_ref().map(|by| format!(", approved by {by}"));
        format!("{}{}", self.who.caller, approved.unwrap_or_default())
    }

    /// Why a fault that goes on may not any more under this policy.
    fn against(&self, policy: &Policy) -> Option<ApiError> {
        // It has begun, so that its number and the time are no longer asked for.
        let intent = self.intent.going_on();
        let recent = Recent::default();
        let asked =
            Asked { who: &self.who, fault: &self.fault, active: 0, recent, intent, now: Timestamp::now() };
        let names = self.names.iter().map(String::as_str);
        let spared = policy.spare_production_in(&self.request).and_then(|()| policy.spare_production(names));
        spared.map_err(ApiError::from).and_then(|()| policy.permit(&asked).map(drop)).err()
    }
}

/// Reads the policy again whenever that is wanted, one time after the other, for ever.
pub(super) async fn keep_policy(injector: Rc<Injector>, source: PolicySource) -> Infallible {
    loop {
        injector.reloads.notified().await;
        reload(&injector, source.clone()).await;
    }
}

/// Reads the policy again, and ends what it no longer allows. Where it cannot be used, the one that holds goes on to hold.
async fn reload(injector: &Rc<Injector>, source: PolicySource) {
    let read = tokio::task::spawn_blocking(move || source.read()).await;
    let policy = match read {
        Ok(Ok(policy)) => policy,
        Ok(Err(error)) => {
            let error = chain(&error);
            injector.note("policy_not_read", error.clone());
            tracing::error!(%error, "the policy was not read again, and the one before goes on to hold");
            return;
        }
        Err(error) => {
            tracing::error!(%error, "the policy was not read again, and the one before goes on to hold");
            return;
        }
    };
    let before = injector.replace_policy(policy);
    let now = injector.policy();
    tracing::info!(before = before.digest, now = now.digest, "the policy was read again");
    injector.note("policy_read", format!("{}, and before {}", now.digest, before.digest));
    let restarted = before.probe_commands != now.probe_commands
        || before.probe_python != now.probe_python
        || before.probe_kubeconfigs != now.probe_kubeconfigs
        || before.probe_credentials != now.probe_credentials;
    if restarted {
        tracing::warn!(
            "programs, modules of Python, kubeconfigs and credentials of probes that are new to the policy can be used once the daemon is started again"
        );
    }
    if now.clock_skew && !before.clock_skew {
        tracing::warn!(
            "the clock can be set wrong once the daemon is started again: it has given up the capability"
        );
    }
    if now.forbids_all() {
        injector.halted.notify_one();
        return;
    }
    let narrower = before.exceeds(&now);
    let refused: Vec<_> = {
        let active = injector.active.borrow();
        let against = active.iter().filter_map(|(name, active)| {
            // What a daemon that died has left is being undone as it is.
            let grounds = active.grounds.as_ref()?;
            let by_leave = || {
                let text = format!("`{}` of the policy allows less than it did", narrower?);
                Some(ApiError::new(ErrorCode::PolicyDenied, text))
            };
            Some((name.clone(), grounds.against(&now).or_else(by_leave)?))
        });
        against.collect()
    };
    for (name, error) in refused {
        tracing::warn!(%name, %error, "the policy no longer allows it: ending it");
        let injector = Rc::clone(injector);
        tokio::task::spawn_local(async move {
            injector.end(&name, &format!("the policy no longer allows it: {error}")).await;
        });
    }
}
