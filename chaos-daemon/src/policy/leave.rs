//! What the policy lets somebody do, told before it is tried.

use jiff::Timestamp;

use super::environment::Environment;
use super::refusal::Refusal;
use super::{Policy, Who};
use crate::request::Act;
use crate::request::leave::{Forbidden, Leave};
use crate::spec::FAULT_TYPES;

impl Policy {
    /// What somebody may do here, whatever it is done to, as the decisions would have it `now`.
    pub fn leave(&self, who: &Who, now: Timestamp) -> Leave {
        let roles = self.roles.of(who);
        let may_not = Act::ALL.into_iter().filter_map(|act| {
            let refusal = self.admit(who, act).err()?;
            Some(forbidden(act.name(), refusal))
        });
        let forbidden_types = FAULT_TYPES.iter().filter_map(|kind| {
            let refusal = self.admit_kind(*kind).err()?;
            Some(forbidden(kind.name(), refusal))
        });
        let (longest, most) = self.limits.longest_and_most(&roles);
        let least = |whole: u64, own: Option<u64>| own.map_or(whole, |own| own.min(whole));
        Leave {
            caller: who.caller.to_string(),
            environment: self.environment.as_ref().map(Environment::name).map(str::to_owned),
            policy: self.digest.clone(),
            may_not: may_not.collect(),
            longest_seconds: least(self.max_duration_seconds, longest),
            most_active: least(self.max_active as u64, most),
            limits: self.limits.words(&roles).into_iter().chain(approved_of(self)).collect(),
            interfaces: self.interfaces.as_ref().map(|names| names.iter().cloned().collect()),
            windows: self.windows.told(),
            closed: self.windows.admit(now).err().map(|refusal| forbidden("begin", refusal)),
            experiments_need: self.experiments.needed().collect(),
            forbidden_types: forbidden_types.collect(),
            roles: roles.iter().map(|role| role.name().to_owned()).collect(),
        }
    }
}

/// What others have to approve of, for people.
fn approved_of(policy: &Policy) -> impl Iterator<Item = String> {
    policy.approval.words().into_iter().map(|words| format!("approved of by {words}"))
}

fn forbidden(what: &str, refusal: Refusal) -> Forbidden {
    Forbidden { what: what.to_owned(), rule: refusal.rule, why: refusal.message }
}
