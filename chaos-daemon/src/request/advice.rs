//! What callers do about an error of which nothing better is known than its name.

use super::ErrorCode;

impl ErrorCode {
    /// Whether the same request may succeed later, without being changed and without anything being allowed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::FaultActive | Self::LimitReached | Self::RevertFailed | Self::Unavailable)
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::MissingParameter => "give it: the input schema of the tool has every argument",
            Self::InvalidParameter => "the input schema of the tool says what is right",
            Self::InvalidProbability => "give a number from 0 to 1",
            Self::FaultNotFound => {
                "chaos_status lists the faults; chaos_inject_fault with action \"register\" makes one"
            }
            Self::FaultActive => "wait until it ends, or end it with chaos_stop",
            Self::ExperimentNotFound => "chaos_list_experiments lists them",
            Self::RunNotFound => "chaos_list_runs lists them",
            Self::ScheduleNotFound => "chaos_schedule with action \"list\" lists them",
            Self::SearchNotFound => "chaos_search with action \"list\" lists them",
            Self::TargetNotFound => "chaos_targets lists what there is",
            Self::TargetProtected => "aim at something else: chaos_targets says what is protected",
            Self::PolicyDenied => {
                "chaos_node says what the policy lets you; only the operator of the host changes that"
            }
            Self::UnsupportedKernel => "chaos_node says which faults this kernel can do",
            Self::MissingPrivilege => "the operator of the host has to give the daemon what it lacks",
            Self::GuardMissing => {
                "the operator of the host has to start the guard; faults of other types need none"
            }
            Self::LimitReached => "wait until something ends: chaos_status says what goes on",
            Self::PlanChanged => "plan it again, look at the new plan, and give its plan_digest",
            Self::StageNotDue => "run the stage that is due first",
            Self::ApprovalNeeded => {
                "another person has to approve of it, by chaosctl approve; then ask again"
            }
            Self::IdempotencyKeyReused => "give another key for another request",
            Self::InjectionFailed => {
                "everything was undone: look at the message, and at chaos_node for what this host can do"
            }
            Self::RevertFailed => "it is being retried: look at chaos_status",
            Self::MalformedRequest => "send what the protocol has",
            Self::Unavailable => "try again; chaos_status says what goes on",
        }
    }
}
