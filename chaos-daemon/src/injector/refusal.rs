//! Why two faults cannot be active at once.

use std::time::Duration;

use crate::request::{ApiError, ErrorCode};

/// Both would change the setting at this place. Names are as the caller reads them.
pub(super) fn changed_already(other: &str, place: &str) -> ApiError {
    let text = format!("fault {other} has changed {place} already, and one at a time can");
    ApiError::new(ErrorCode::LimitReached, text).hint("remove it first, or wait until it ends")
}

/// Both have this name.
pub(super) fn active_already(name: &str, remaining: Duration) -> ApiError {
    let text = format!("fault {name} is already active, for another {:.1} s", remaining.as_secs_f64());
    ApiError::new(ErrorCode::FaultActive, text).hint("remove it first, or inject under another name")
}
