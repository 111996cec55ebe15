//! What failed first in a run: a closed list, by which runs are counted.

use serde::{Deserialize, Serialize};

use super::verdict::Verdict;
use crate::request::ErrorCode;

/// Why a run was no success. What ended it before its time counts, or else what was seen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureMode {
    /// Before the method the steady state was not met, a gate was breached, or an alert fired already: nothing was done.
    NotSteadyBefore,
    /// The steady state was not met while the method went on.
    NotSteadyDuring,
    /// It was not met after.
    NotSteadyAfter,
    /// It was not met again in the time that the document gives it.
    NotRecovered,
    /// It was met again, but later than the recovery time objective, or was not seen to be.
    RtoMissed,
    /// An alert that has to fire did not, or too late.
    AlertMissing,
    /// An alert fired that must not, or was not gone in time.
    AlertUnexpected,
    /// A gate was breached.
    GateBreached,
    /// The target of a fault was not there when its turn came, or when it was planned.
    TargetVanished,
    /// A fault was refused: by the policy, by a protection or a limit, or for want of something.
    InjectionRefused,
    /// A fault could not be injected.
    InjectionFailed,
    /// A fault ended before its time.
    FaultEndedEarly,
    /// A probe does not work.
    ProbeBroken,
    /// The method could not be carried out as it is written.
    MethodBroken,
    /// Something is left of a fault, or nobody knows.
    RollbackFailed,
    /// Somebody stopped it.
    Aborted,
    /// The daemon, or its server, ended while it went on.
    Interrupted,
    /// A fault acted on nothing, so that the run shows nothing.
    FaultIdle,
    /// Nothing failed, and nobody knows what became of the steady state.
    NotVerified,
}

/// Every mode.
pub const FAILURE_MODES: &[FailureMode] = &[
    FailureMode::NotSteadyBefore,
    FailureMode::NotSteadyDuring,
    FailureMode::NotSteadyAfter,
    FailureMode::NotRecovered,
    FailureMode::RtoMissed,
    FailureMode::AlertMissing,
    FailureMode::AlertUnexpected,
    FailureMode::GateBreached,
    FailureMode::TargetVanished,
    FailureMode::InjectionRefused,
    FailureMode::InjectionFailed,
    FailureMode::FaultEndedEarly,
    FailureMode::ProbeBroken,
    FailureMode::MethodBroken,
    FailureMode::RollbackFailed,
    FailureMode::Aborted,
    FailureMode::Interrupted,
    FailureMode::FaultIdle,
    FailureMode::NotVerified,
];

impl FailureMode {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotSteadyBefore => "not_steady_before",
            Self::NotSteadyDuring => "not_steady_during",
            Self::NotSteadyAfter => "not_steady_after",
            Self::NotRecovered => "not_recovered",
            Self::RtoMissed => "rto_missed",
            Self::AlertMissing => "alert_missing",
            Self::AlertUnexpected => "alert_unexpected",
            Self::GateBreached => "gate_breached",
            Self::TargetVanished => "target_vanished",
            Self::InjectionRefused => "injection_refused",
            Self::InjectionFailed => "injection_failed",
            Self::FaultEndedEarly => "fault_ended_early",
            Self::ProbeBroken => "probe_broken",
            Self::MethodBroken => "method_broken",
            Self::RollbackFailed => "rollback_failed",
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
            Self::FaultIdle => "fault_idle",
            Self::NotVerified => "not_verified",
        }
    }

    /// The mode of this word.
    pub fn parse(name: &str) -> Option<Self> {
        FAILURE_MODES.iter().copied().find(|mode| mode.name() == name)
    }

    /// Of a run that is ended before its time with this verdict.
    pub(super) fn of_end(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Refused => Self::NotSteadyBefore,
            Verdict::Held | Verdict::Deviated => Self::NotSteadyDuring,
            Verdict::Tripped => Self::GateBreached,
            Verdict::Failed => Self::ProbeBroken,
            Verdict::Aborted => Self::Aborted,
            Verdict::Interrupted => Self::Interrupted,
            Verdict::Unverified => Self::NotVerified,
        }
    }

    /// Of a run to which the injector has said this of a fault.
    pub(super) fn of_refusal(code: ErrorCode) -> Self {
        match code {
            ErrorCode::TargetNotFound => Self::TargetVanished,
            ErrorCode::InjectionFailed | ErrorCode::RevertFailed | ErrorCode::Unavailable => {
                Self::InjectionFailed
            }
            _ => Self::InjectionRefused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_one_word_everywhere() {
        for mode in FAILURE_MODES {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
            assert_eq!(FailureMode::parse(mode.name()), Some(*mode));
        }
        assert_eq!(FailureMode::parse("other"), None);
    }

    #[test]
    fn a_fault_that_is_refused_is_told_from_one_that_fails_and_from_a_target_that_is_gone() {
        for (code, mode) in [
            (ErrorCode::TargetNotFound, FailureMode::TargetVanished),
            (ErrorCode::PolicyDenied, FailureMode::InjectionRefused),
            (ErrorCode::LimitReached, FailureMode::InjectionRefused),
            (ErrorCode::GuardMissing, FailureMode::InjectionRefused),
            (ErrorCode::InjectionFailed, FailureMode::InjectionFailed),
            (ErrorCode::Unavailable, FailureMode::InjectionFailed),
        ] {
            assert_eq!(FailureMode::of_refusal(code), mode);
        }
    }
}
