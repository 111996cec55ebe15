//! After the reboot, and to the moment when the power goes.

use super::lab::{assert_fresh_boot, inject_on_the_host};
use super::unit::{MEMBER, chaosctl};
use super::{TestResult, tests};

tests![nothing_of_a_fault_outlives_a_reboot_and_the_daemon_runs, the_power_goes_while_a_fault_is_active,];

fn nothing_of_a_fault_outlives_a_reboot_and_the_daemon_runs() -> TestResult {
    assert_fresh_boot()?;
    // Registrations do survive, inactive.
    let status = chaosctl(MEMBER, &["--json", "status"])?;
    assert!(status.contains("\"cut\"") && !status.contains("\"active\":true"), "{status}");
    Ok(())
}

/// The third boot says how it went. `tests/systemd/boot.sh` resets the machine after this, with nothing stopped or
/// synced.
fn the_power_goes_while_a_fault_is_active() -> TestResult {
    Ok(inject_on_the_host()?)
}
