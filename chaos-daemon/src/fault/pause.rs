//! Pause: every process of a cgroup stands still, and knows nothing of it.
//!
//! - **Mechanism**: `cgroup.freeze`. Applied means that the kernel says `frozen 1`: none of them runs any more.
//! - **Kernel requirement**: cgroup v2.
//! - **Lifetime class**: supervised. A frozen cgroup stays frozen when everybody of ours is dead; a reboot ends it.
//! - **Undo**: thawed, if it is still frozen.
//! - **Blast radius**: the processes of the cgroup and of those below it; whoever waits for them; locks that they hold. Their
//!   timers and time-outs go on: what is due is due when they go on.
//! - **Reference**: Linux `Documentation/admin-guide/cgroup-v2.rst`, `cgroup.freeze`.

use super::Ready;
use super::look::{Eyes, invalid, lasting, value};
use super::{Plan, settings};
use crate::host::CgroupRef;
use crate::kernel::setting::{CgroupSetting, Knob, Setting};
use crate::request::ApiError;
use crate::spec::Whose;

/// Looks at the group, and plans it.
///
/// # Errors
/// Names what cannot be frozen, or is already.
pub(super) fn prepare(whose: &Whose, eyes: &Eyes<'_>) -> Result<Ready, ApiError> {
    let (cgroup, open) = lasting(whose, eyes)?;
    let old = value("pause", &cgroup, &open, &Knob::Freeze)?;
    if old != "0" {
        return Err(invalid(format!("cgroup {} is frozen already", cgroup.path.display())));
    }
    Ok(plan(&cgroup, &old).into())
}

/// Plans it, where the switch is at `old`.
pub fn plan(cgroup: &CgroupRef, old: &str) -> Plan {
    let description = format!("pause: freezes every process of cgroup {}", cgroup.path.display());
    let setting = CgroupSetting {
        cgroup: cgroup.clone(),
        knob: Knob::Freeze,
        old: old.to_owned(),
        new: "1".to_owned(),
    };
    settings(description, Setting::Cgroup(setting))
}
