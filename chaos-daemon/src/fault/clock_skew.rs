//! Clock skew: the wall clock of the host is wrong.
//!
//! - **Mechanism**: `clock_adjtime(CLOCK_REALTIME, ADJ_SETOFFSET)`: a step, in one call, by an offset.
//! - **Kernel requirement**: `CAP_SYS_TIME`.
//! - **Lifetime class**: supervised. The clock stays wrong when everybody of ours is dead. A reboot reads the time from the
//!   hardware clock, which this never writes; what somebody else has copied there meanwhile (`hwclock --systohc`) stays, and
//!   the journal, which is of one boot, cannot help: a time service has to.
//! - **Undo**: the same offset the other way, so that time that has passed and slewing stay. A clock that is nearer to where
//!   it was than to where the step has put it has been corrected by somebody, and is left alone.
//! - **Blast radius**: the whole host: timers on the wall clock, certificates, logs, everybody who asks what time it is. Our
//!   own deadlines are on the boot clock. Off unless the policy allows it.
//! - **Reference**: clock_adjtime(2), Linux `kernel/time/timekeeping.c`.

use super::Ready;
use super::{Plan, settings};
use crate::host::privilege::may_set_clock;
use crate::kernel::clock;
use crate::kernel::setting::{ClockSetting, Setting};
use crate::request::{ApiError, ErrorCode};

/// Looks at the clocks, and plans it.
///
/// # Errors
/// When this process may not set the clock, or cannot read it.
pub(super) fn prepare(offset_ns: i64) -> Result<Ready, ApiError> {
    if !may_set_clock() {
        return Err(ApiError::new(ErrorCode::MissingPrivilege, "clock_skew needs CAP_SYS_TIME").hint(
            "the unit of an installed daemon withholds it: the documentation says which drop-in gives it",
        ));
    }
    let base_ns = clock::distance_ns().map_err(|error| {
        ApiError::new(ErrorCode::InjectionFailed, format!("read the clocks of this host: {error}"))
    })?;
    Ok(plan(offset_ns, base_ns).into())
}

/// Plans it, where the clocks are `base_ns` apart.
pub fn plan(offset_ns: i64, base_ns: i64) -> Plan {
    let setting = ClockSetting { base_ns, offset_ns };
    settings(format!("clock_skew: {setting}"), Setting::Clock(setting))
}
