//! After the power cut, and to the removal.

use std::path::Path;
use std::time::Duration;

use super::lab::{Lab, assert_fresh_boot};
use super::supervised::Supervised;
use super::unit::{SERVICE, SOCKET, installed, is_active, processes, run, systemctl};
use super::{TestResult, tests};

tests![
    nothing_of_a_fault_outlives_a_power_cut_and_the_daemon_runs,
    removing_the_package_during_faults_ends_them_and_purging_leaves_no_file,
];

fn nothing_of_a_fault_outlives_a_power_cut_and_the_daemon_runs() -> TestResult {
    Ok(assert_fresh_boot()?)
}

fn removing_the_package_during_faults_ends_them_and_purging_leaves_no_file() -> TestResult {
    installed()?;
    let (lab, supervised) = (Lab::with_active_faults()?, Supervised::new()?);
    supervised.inject_all()?;
    run("dpkg", &["--remove", "chaos-daemon"])?;
    assert!(supervised.normal(), "{}", supervised.picture());
    lab.time_to_normal(Duration::from_secs(2))?;
    lab.assert_clean(0)?;
    supervised.assert_as_before()?;
    assert!(processes().is_empty() && !is_active(SERVICE) && !is_active(SOCKET));
    assert!(Path::new("/etc/chaos-daemon/policy.toml").exists(), "removing took the operator's policy");
    run("dpkg", &["--purge", "chaos-daemon"])?;
    for path in [
        "/usr/bin/chaos-daemon",
        "/usr/bin/chaosctl",
        "/usr/lib/systemd/system/chaos-daemon.service",
        "/etc/systemd/system/multi-user.target.wants/chaos-daemon.service",
        "/etc/systemd/system/multi-user.target.wants/chaos-daemon-guard.service",
        "/usr/lib/systemd/system/chaos-daemon-guard.service",
        "/etc/systemd/system/sockets.target.wants/chaos-daemon.socket",
        "/etc/systemd/system/chaos-daemon.service",
        "/etc/chaos-daemon",
        "/run/chaos-daemon",
        "/var/lib/chaos-daemon",
    ] {
        assert!(!Path::new(path).exists() && !Path::new(path).is_symlink(), "{path} is left");
    }
    let units = systemctl(&["list-units", "--all", "--plain", "--no-legend", "chaos-daemon*"])?;
    assert!(!units.contains("active"), "{units}");
    Ok(())
}
