//! What a service manager hears of the daemon, and the socket that it passes: with a manager played by the test.

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::{Context, Outcome, TestResult, tests};
use crate::daemon::binary;
use crate::fault::Fault;
use crate::late::HANG;
use crate::process::{wait_for, wait_until};
use crate::{Daemon, Error, Mcp, Pair};

tests![
    a_manager_hears_when_the_daemon_is_ready_how_many_faults_are_active_and_when_it_stops,
    a_manager_with_a_watchdog_hears_of_a_daemon_that_lives_and_not_of_one_that_hangs,
    a_passed_socket_is_served_instead_of_one_of_the_daemons_own_and_stays_when_it_ends,
    no_child_of_the_daemon_inherits_what_the_manager_said,
];

/// The manager's end.
struct Ear {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Ear {
    fn new() -> Result<Self, Error> {
        let folder = TempDir::with_prefix("chaos-ear-").map_err(Error::io("create", "a folder"))?;
        let socket =
            UnixDatagram::bind(folder.path().join("notify")).map_err(Error::io("bind", "the manager"))?;
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .map_err(Error::io("set up", "the manager"))?;
        Ok(Self { socket, folder })
    }

    fn configure(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
    }

    /// The lines of one message, if one comes soon.
    fn hear(&self) -> Vec<String> {
        let mut buffer = [0; 512];
        let length = self.socket.recv(&mut buffer).unwrap_or(0);
        String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned).collect()
    }

    fn hears(&self, line: &str) -> Result<(), Error> {
        wait_for(&format!("{line} heard by the manager"), || self.hear().iter().any(|heard| heard == line))
    }

    /// Hears all that has been said by now.
    fn hear_out(&self) {
        while !self.hear().is_empty() {}
    }

    /// How many messages come in so long.
    fn count_within(&self, span: Duration) -> usize {
        let until = Instant::now() + span;
        let mut count = 0;
        while Instant::now() < until {
            count += usize::from(self.hear().iter().any(|line| line == "WATCHDOG=1"));
        }
        count
    }
}

fn a_manager_hears_when_the_daemon_is_ready_how_many_faults_are_active_and_when_it_stops(
    _: &Context,
) -> TestResult {
    let ear = Ear::new()?;
    let pair = Pair::new()?;
    let mut daemon = Daemon::start_with(|command| ear.configure(command))?;
    ear.hears("READY=1")?;
    let mcp = daemon.mcp()?;
    let fault = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}));
    fault.inject(&mcp)?;
    ear.hears("STATUS=1 faults are active")?;
    fault.remove(&mcp)?;
    ear.hears("STATUS=0 faults are active")?;
    daemon.stop()?;
    ear.hears("STOPPING=1")?;
    Ok(Outcome::Pass)
}

fn a_manager_with_a_watchdog_hears_of_a_daemon_that_lives_and_not_of_one_that_hangs(
    _: &Context,
) -> TestResult {
    let ear = Ear::new()?;
    let daemon = Daemon::start_with(|command| {
        ear.configure(command);
        command.env("WATCHDOG_USEC", "1000000");
    })?;
    ear.hears("READY=1")?;
    let (span, injector) = (Duration::from_secs(3), daemon.injector().ok_or("no injector")?);
    ear.hear_out();
    let alive = ear.count_within(span);
    assert!(alive <= 8, "{alive} signs of life within {span:?}, one each 500 ms was asked for");
    if alive < 4 {
        return Err(Error::in_vain(format!("more than {alive} signs of life"), span).into());
    }
    injector.signal(Signal::SIGSTOP);
    ear.hear_out();
    assert_eq!(ear.count_within(span), 0, "a daemon that stands still said that it lives");
    injector.signal(Signal::SIGCONT);
    Ok(Outcome::Pass)
}

fn a_passed_socket_is_served_instead_of_one_of_the_daemons_own_and_stays_when_it_ends(
    _: &Context,
) -> TestResult {
    let folder = TempDir::with_prefix("chaos-passed-")?;
    let path = folder.path().join("passed.sock");
    let listener = UnixListener::bind(&path)?;
    // Through a shell, because the variables name the process that is started, and only it knows its id in time.
    let script = "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\" 3<&0 </dev/null";
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(binary("chaos-daemon")?).arg("run");
    for name in ["run", "state"] {
        let dir = folder.path().join(name);
        command.arg(if name == "run" { "--runtime-dir" } else { "--state-dir" }).arg(&dir);
    }
    open_to_the_server(folder.path())?;
    command.stdin(std::os::fd::OwnedFd::from(listener.try_clone()?));
    command.process_group(0);
    let mut daemon = command.spawn()?;
    let answered = wait_until(HANG, || Mcp::connect(&path).is_ok());
    let own = folder.path().join("run/mcp.sock").exists();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(daemon.id())?);
    nix::sys::signal::kill(pid, Signal::SIGTERM)?;
    let status = daemon.wait()?;
    assert!(answered, "nobody served the passed socket");
    assert!(!own, "the daemon made a socket of its own as well");
    assert!(status.success(), "{status}");
    assert!(path.exists(), "the daemon removed a socket that is not its own");
    Ok(Outcome::Pass)
}

fn no_child_of_the_daemon_inherits_what_the_manager_said(_: &Context) -> TestResult {
    let ear = Ear::new()?;
    let daemon = Daemon::start_with(|command| {
        ear.configure(command);
        command.envs([("WATCHDOG_USEC", "9000000"), ("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "x")]);
    })?;
    assert!(wait_until(HANG, || daemon.server().is_some() && !daemon.holders().is_empty()));
    for child in daemon.server().into_iter().chain(daemon.holders()) {
        let environment = std::fs::read(format!("/proc/{}/environ", child.pid))?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        for name in ["NOTIFY_SOCKET", "WATCHDOG", "LISTEN_"] {
            assert!(!environment.contains(name), "{:?} has {name}", child.arguments);
        }
    }
    Ok(Outcome::Pass)
}

/// The server drops its privileges, and has to get through still.
fn open_to_the_server(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
