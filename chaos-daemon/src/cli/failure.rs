//! Why a command failed, and the exit code that says so.

use std::fmt::Write as _;

use serde_json::Value;

use super::client::ClientError;
use super::runs::RunError;
use crate::spec::SpecError;
use crate::spec::options::with_options;

/// Refused, or failed, by the daemon; or a probe that was not met.
pub(super) const FAILED: u8 = 1;
/// The command line makes no sense; as clap has it.
pub(super) const USAGE: u8 = 2;
/// The daemon cannot be reached, or went away.
pub(super) const UNREACHABLE: u8 = 3;
/// Not permitted, by the socket's permissions or the policy.
pub(super) const NOT_PERMITTED: u8 = 4;

/// The daemon ended while a run was waited for.
pub(super) const INTERRUPTED: u8 = 6;

/// Why the command failed.
pub(super) enum Failure {
    /// The command line, or a document, makes no sense.
    Usage(SpecError),
    /// The daemon.
    Client(ClientError),
    /// Anything else: what, and what to do.
    Other(String),
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::Usage(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Client(error) => Self::Client(error),
            RunError::Other(error) => Self::Other(error),
        }
    }
}

/// What the daemon refused or failed with: exit code, text, and its whole answer if there is one.
pub(super) fn client_failure(error: ClientError) -> (u8, String, Option<Value>) {
    let text = error.to_string();
    match error {
        ClientError::Connect { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            (NOT_PERMITTED, text, None)
        }
        ClientError::Connect { .. }
        | ClientError::Session(_)
        | ClientError::NotServed(_)
        | ClientError::Call(_) => (UNREACHABLE, text, None),
        ClientError::Ended { .. } => (INTERRUPTED, text, None),
        ClientError::Refused { code, hint, answer, .. } => {
            let mut text = format!("{} ({code})", with_options(&text));
            if let Some(hint) = hint {
                let _ = write!(text, "\n  {}", with_options(&hint));
            }
            let exit = match code.as_str() {
                "POLICY_DENIED" | "MISSING_PRIVILEGE" | "APPROVAL_NEEDED" => NOT_PERMITTED,
                "UNAVAILABLE" => UNREACHABLE,
                _ => FAILED,
            };
            (exit, text, Some(answer))
        }
    }
}
