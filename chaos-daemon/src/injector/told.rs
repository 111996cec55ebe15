//! What there is to say of a fault beside its figures, for people.

use crate::request::Evidence;
use crate::spec::FaultType;

/// The warning about processes in whose place nobody comes.
const ALONE: &str = "no new process seen: no supervisor?";

/// What is known beside figures: what keeps packets from meeting it, what has happened, and why it most likely meets nothing.
pub(super) fn note(
    known: [&Option<String>; 2],
    likely: Option<&str>,
    evidence: &Evidence,
    fault_type: FaultType,
) -> Option<String> {
    let likely = likely.map(|why| format!("it has met nothing; the likely reason: {why}"));
    let words: Vec<_> = known.into_iter().flatten().chain(&likely).map(String::as_str).collect();
    if words.is_empty() && evidence.recovery().nobody_came_back {
        return Some(alone(fault_type).to_owned());
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// The warning about what does not come back.
fn alone(fault_type: FaultType) -> &'static str {
    match fault_type {
        FaultType::ServiceRestart => "the service is not active again: `systemctl status` says why",
        _ => ALONE,
    }
}
