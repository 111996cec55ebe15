//! The last of the first boot: a fault that a reboot interrupts.

use crate::systemd::lab::inject_on_the_host;
use crate::systemd::unit::installed;
use crate::systemd::{TestResult, tests};

tests![a_reboot_begins_while_a_fault_is_active];

/// The second boot says how it went.
fn a_reboot_begins_while_a_fault_is_active() -> TestResult {
    installed()?;
    Ok(inject_on_the_host()?)
}
