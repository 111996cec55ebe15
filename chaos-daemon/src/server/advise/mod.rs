//! Advice: what is known of the services of this host, what would be tried on them, and by which document. `chaos-advise` ranks; the
//! facts come from the injector, the logs and the history, and each document is planned as any other is.

mod document;
mod gather;
mod looks;

use std::collections::{BTreeMap, BTreeSet};

use chaos_advise::{Advice, Errors, Trial};
use serde_json::{Map, Value};

use crate::request::services::{ServiceSeen, ServicesSeen};
use crate::server::history::tried::Past;
use crate::spec::Owner;
pub use looks::Looks;

/// What is to be said of services.
#[derive(Debug, Default)]
pub struct Gathered {
    seen: BTreeMap<String, ServiceSeen>,
    /// The services, the one that deserves chaos most first.
    pub ranked: Vec<Advice>,
    /// Whom no fault may go to, with the reason.
    pub left_out: Vec<(String, String)>,
    /// What could not be looked at, and why.
    pub not_seen: Vec<String>,
}

/// A service with what was decided about it.
#[derive(Debug)]
pub struct Advised {
    /// Why.
    pub advice: Advice,
    /// What to try, which was planned and would be admitted now; none where nobody has asked for it.
    pub document: Option<Map<String, Value>>,
    /// What would be refused, with the reason.
    pub refused: Vec<(String, String)>,
}

/// What was decided about services.
#[derive(Debug, Default)]
pub struct Report {
    /// The services to which something can be done, the one that deserves chaos most first.
    pub advised: Vec<Advised>,
    /// Whom nothing can be done to, with the reason.
    pub left_out: Vec<(String, String)>,
    /// What could not be looked at, and why.
    pub not_seen: Vec<String>,
    /// How many services more there are.
    pub more: usize,
}

impl Gathered {
    /// Ranks what was seen. `looks` has what `owner` has seen before.
    pub fn rank(
        seen: ServicesSeen,
        (looks, owner): (&Looks, Owner),
        errors: &BTreeMap<String, Errors>,
        past: &[Past],
        now_ms: i64,
    ) -> Self {
        let ServicesSeen { services, left_out, not_seen, .. } = seen;
        let known = |name: &str| looks.of(owner, name);
        let errors = |name: &str| errors.get(name).cloned();
        let facts = gather::facts(&services, known, errors, past, now_ms);
        let ranked = chaos_advise::rank(&facts);
        let seen = services.into_iter().map(|service| (service.name(), service)).collect();
        Self { seen, ranked, left_out, not_seen }
    }

    /// The document by which something is tried on a service, for the first reason that asks for it; none of an earlier one.
    pub fn document(&self, advice: &Advice, trial: &Trial) -> Option<Map<String, Value>> {
        let service = self.seen.get(&advice.service)?;
        let asks = advice.reasons.iter().find(|reason| reason.trials.contains(trial));
        document::document(service, trial, &asks.map(|reason| reason.words.clone()).unwrap_or_default())
    }
}

/// The kinds of what would be refused, each once.
pub fn refused_kinds(refused: &[(String, String)]) -> String {
    let mut told = BTreeSet::new();
    let each = refused.iter().filter(|(kind, _)| told.insert(kind.clone()));
    each.map(|(kind, why)| format!("{kind}: {why}")).collect::<Vec<_>>().join("; ")
}
