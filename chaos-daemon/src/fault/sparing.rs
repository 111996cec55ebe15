//! Whom a request has to spare: who asks, what the policy opens, and without which units this host does not come up.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::host::{Open, Protected, Spared};
use crate::kernel::node::talk;
use crate::kernel::systemd;
use crate::request::{ApiError, Caller, ErrorCode};

/// For how long the service manager's answer is believed.
const FRESH: Duration = Duration::from_mins(1);

/// What it answered last, and when.
static NEEDED: Mutex<Option<(Instant, BTreeSet<String>)>> = Mutex::new(None);

/// Whom a request by `caller` has to spare where this is open. Blocks.
pub fn spared(caller: Caller, open: &Open) -> Spared {
    Spared::of(caller, open, needed())
}

/// Units without which this host does not come up; where nobody can be asked, none is known, and the table of names has to do.
fn needed() -> BTreeSet<String> {
    let mut known = NEEDED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, units)) = &*known
        && at.elapsed() < FRESH
    {
        return units.clone();
    }
    let units = match systemd::absent() {
        Some(_) => BTreeSet::new(),
        None => match talk(async |systemd| systemd.needed_to_boot().await) {
            Ok(units) => units,
            Err(error) => {
                tracing::warn!(%error, "cannot ask which units this host needs to come up: those that it named last count, and names");
                return known.as_ref().map(|(_, units)| units.clone()).unwrap_or_default();
            }
        },
    };
    *known = Some((Instant::now(), units.clone()));
    units
}

/// Refuses what is protected: `what` is that, and the reason comes behind it.
///
/// # Errors
/// [`ErrorCode::TargetProtected`], with the rule and the line of the policy that opens it.
pub(super) fn refuse(what: &str, protected: Option<Protected>) -> Result<(), ApiError> {
    match protected {
        None => Ok(()),
        Some(protected) => {
            let text = format!("{what} is protected: {protected}");
            Err(ApiError::new(ErrorCode::TargetProtected, text).hint(protected.remedy()))
        }
    }
}
