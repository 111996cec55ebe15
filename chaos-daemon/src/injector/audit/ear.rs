//! What others are told of the audit: journald has every line with its fields, and every minute where the chain ends.

use std::path::Path;

use chaos_audit::{Ear, Head, Record, Who};
use tracing::Dispatch;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::request::AUDIT;

/// What the names of fields begin with.
const PREFIX: &str = "CHAOS";
/// By which the lines are found in the journal.
const IDENTIFIER: &str = "chaos-audit";

/// The journal, or the log where there is none.
pub(super) struct Told {
    folder: String,
    journal: Option<Dispatch>,
}

impl Told {
    /// For the audit in this folder.
    pub(super) fn new(folder: &Path) -> Self {
        let layer = tracing_journald::layer().map(|layer| {
            layer.with_field_prefix(Some(PREFIX.to_owned())).with_syslog_identifier(IDENTIFIER.to_owned())
        });
        let journal = layer.ok().map(|layer| Dispatch::new(Registry::default().with(layer)));
        // As whoever verifies it names it, whatever links lead there.
        // OPENS: root, who starts the daemon | root | the folder is root's, with all above it (`own`)
        let state = folder.parent().and_then(|state| state.canonicalize().ok());
        let folder = state.map_or_else(|| folder.to_owned(), |state| state.join(AUDIT));
        Self { folder: folder.display().to_string(), journal }
    }

    fn to_journal(&self, tell: impl FnOnce()) -> bool {
        let Some(journal) = &self.journal else { return false };
        tracing::dispatcher::with_default(journal, tell);
        true
    }
}

impl Ear for Told {
    fn record(&mut self, record: &Record) {
        let Record { act, outcome, who, on, what, rule, code, reason, plan_digest, run, id, .. } = record;
        let nobody = Who::default();
        let Who { uid, gid, pid, cid, loginuid, exe, role, socket, .. } = who.as_ref().unwrap_or(&nobody);
        let outcome = serde_json::to_value(outcome).unwrap_or_default();
        self.to_journal(|| {
            tracing::info!(
                act,
                outcome = outcome.as_str(),
                uid,
                gid,
                pid,
                cid,
                loginuid,
                exe,
                role,
                socket,
                on,
                what,
                rule,
                code,
                reason,
                plan_digest,
                run,
                id,
                stage = record.stage,
                repeats = record.repeats,
                server = record.told_by_server,
                "{act} {}",
                on.as_deref().unwrap_or_default()
            );
        });
    }

    fn head(&mut self, head: Head) {
        let (folder, hash) = (&self.folder, head.hash.to_string());
        let told = self.to_journal(|| {
            tracing::info!(act = "audit_head", folder, seq = head.seq, hash, "the audit ends with {head}")
        });
        if !told {
            tracing::info!(folder, %head, "the audit ends");
        }
    }

    fn trouble(&mut self, trouble: Option<&str>) {
        match trouble {
            Some(error) => tracing::error!(error, "the audit cannot be written, so nothing begins"),
            None => tracing::info!("the audit is written again"),
        }
    }
}
