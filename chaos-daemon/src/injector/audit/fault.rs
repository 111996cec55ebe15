//! The lines of a fault: that it begins, how that went, that it waits for its target and follows it, and how it ended.

use chaos_audit::{Kind, Outcome, Record};
use jiff::Timestamp;

use super::super::approvals::leave::Leave;
use super::super::state::Injector;
use super::{because, of_daemon};
use crate::policy::{Intent, Who};
use crate::request::ApiError;
use crate::spec::QualifiedName;

/// An injection whose line is written.
pub(in crate::injector) struct Begun(Record);

impl Begun {
    /// Waits until it is written that a fault begins.
    ///
    /// # Errors
    /// When it cannot be, so that it must not.
    pub(in crate::injector) async fn write(
        injector: &Injector,
        name: &QualifiedName,
        ((description, digest), leave): ((&str, &str), Option<&Leave>),
        (who, intent): (&Who, Intent),
    ) -> Result<Self, ApiError> {
        let in_run = if intent == Intent::Run { "in a run: " } else { "" };
        let record = Record {
            outcome: Outcome::Intent,
            id: Some(format!("{:016x}", rand::random::<u64>())),
            on: Some(name.to_string()),
            what: Some(format!("{in_run}{description}")),
            plan_digest: Some(digest.to_owned()),
            approval: leave.map(|leave| leave.ids.join(",")),
            ..injector.record("inject", Some(who))
        };
        match injector.before(record.clone()).await {
            Ok(()) => Ok(Self(record)),
            Err(mut error) => {
                injector.refused(record, &mut error);
                Err(error)
            }
        }
    }

    /// Writes how it went.
    pub(in crate::injector) fn ended(self, injector: &Injector, error: Option<&mut ApiError>) {
        let record = match error {
            None => Record { outcome: Outcome::Done, time: Timestamp::now(), ..self.0 },
            Some(error) => {
                error.recorded = true;
                let outcome = Outcome::Failed;
                Record { outcome, ..because(self.0, error) }
            }
        };
        injector.audit.put(Kind::Start, record);
    }
}

impl Injector {
    /// Records what has become of a fault by itself, and why: whoever has removed it is in the reason.
    pub(in crate::injector) fn note_fault(&self, act: &str, name: &QualifiedName, reason: Option<&str>) {
        let (on, reason) = (Some(name.to_string()), reason.map(str::to_owned));
        self.audit.put(Kind::Start, Record { on, reason, ..of_daemon(act) });
    }
}
