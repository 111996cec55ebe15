//! A server that was taken over: the real one stands still, and this test speaks on its descriptors. It can look, end, and speak for who
//! is connected. It can be nobody else, and begin nothing in the name of who has gone.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use chaos_daemon::request::Request;
use chaos_daemon::request::claim::{Claim, Entrusted, Undertaking};
use chaos_daemon::spec::{FaultRequest, Owner};
use nix::libc;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::{Daemon, Mcp};

tests![
    a_server_that_was_taken_over_speaks_for_nobody_but_who_is_connected,
    a_server_that_was_taken_over_begins_nothing_that_was_not_entrusted,
    callers_wait_at_the_same_socket_while_a_server_is_followed_by_another,
    by_a_socket_for_observers_nobody_does_more_than_look,
];

const A: u32 = 61_001;
const B: u32 = 61_002;
/// The door, among the descriptors that the injector gives to the server (`injector/server_process.rs`).
const DOOR: i32 = 4;
/// More than there have been connections, or grants.
const NUMBERS: u64 = 64;

type Done<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What has taken the server's place.
struct Hostile {
    server: Process,
    door: UnixStream,
    asked: u64,
}

impl Hostile {
    /// Has the server stand still, and takes its door.
    fn take(daemon: &Daemon) -> Done<Self> {
        use std::os::fd::AsRawFd;
        let server = daemon.server().ok_or("no server")?;
        server.stop();
        let taken = |number: libc::c_long| match i32::try_from(number) {
            // SAFETY: the kernel has just installed this descriptor for us, and nobody else knows it.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(std::io::Error::last_os_error()),
        };
        // SAFETY: system calls without pointers.
        let process = taken(unsafe { libc::syscall(libc::SYS_pidfd_open, server.pid, 0) })?;
        // SAFETY: likewise.
        let door = taken(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), DOOR, 0) })?;
        let door = UnixStream::from(door);
        door.set_nonblocking(false)?;
        door.set_read_timeout(Some(HANG))?;
        Ok(Self { server, door, asked: 1 << 32 })
    }

    /// Asks for something in a name, and waits for the answer.
    fn ask(&mut self, claim: Claim, request: &Request) -> Done<Value> {
        self.asked += 1;
        let call = json!({"id": self.asked, "claim": claim, "request": request}).to_string();
        let length = u32::try_from(call.len()).map_err(|_long| "a long request")?;
        self.door.write_all(&length.to_le_bytes())?;
        self.door.write_all(call.as_bytes())?;
        loop {
            let mut length = [0; 4];
            self.door.read_exact(&mut length)?;
            let mut answer = vec![0; u32::from_le_bytes(length) as usize];
            self.door.read_exact(&mut answer)?;
            let answer: Value = serde_json::from_slice(&answer)?;
            // One to the server that was.
            if answer["id"] == self.asked {
                return Ok(answer["reply"].clone());
            }
        }
    }

    /// Injects a fault of this owner's; what became of it.
    fn inject(&mut self, claim: Claim, owner: u32, cores: u32) -> Done<Value> {
        let name = if owner == 0 { "x".to_owned() } else { format!("{owner}/x") };
        let name = name.try_into()?;
        let request = Request::Inject { name, fault: Box::new(fault(cores)?), plan_digest: None };
        self.ask(claim, &request)
    }

    /// Whose faults are active.
    fn active(&mut self) -> Done<Vec<String>> {
        let status = self.ask(Claim::Nobody, &Request::Status)?;
        let all = status["Status"].as_array().cloned().unwrap_or_default();
        let active = all.iter().filter(|fault| fault["state"] != "ended");
        Ok(active.map(|fault| fault["name"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Ends what is active, which needs no name.
    fn end_all(&mut self) -> Done<()> {
        let ended = self.ask(Claim::Nobody, &Request::StopAll)?;
        assert!(ended["Removed"].is_array(), "{ended}");
        Ok(())
    }
}

/// A fault that harms nobody; another for each number.
fn fault(cores: u32) -> Done<FaultRequest> {
    let request = json!({"fault_type": "resource_exhaustion", "probability": 1, "duration_seconds": 20 + cores,
        "params": {"cpu_percent": 1, "cores": 1}});
    Ok(serde_json::from_value(request)?)
}

fn entrusted(what: Undertaking, owner: u32, fault: FaultRequest) -> Request {
    Request::Entrust(Box::new(Entrusted {
        what,
        owner: Owner::User(owner),
        name: "made up".into(),
        document: "none".into(),
        faults: vec![fault],
        says: Default::default(),
        stage: None,
        skips: false,
        lasts: Some(Duration::from_secs(60)),
        runs: None,
    }))
}

/// Every name that a server could think of.
fn claims() -> impl Iterator<Item = Claim> {
    let numbers = || (0..NUMBERS).chain([u64::MAX, 1 << 63]);
    let connections = numbers().map(Claim::Connection);
    std::iter::once(Claim::Nobody).chain(connections).chain(numbers().map(Claim::Grant))
}

/// In which names a fault of this owner's can be injected. Each that is, is ended.
fn injects(hostile: &mut Hostile, owner: u32) -> Done<Vec<Claim>> {
    let mut injects = Vec::new();
    for claim in claims() {
        let said = hostile.inject(claim, owner, 0)?;
        if said["Error"].is_null() {
            injects.push(claim);
            hostile.end_all()?;
        }
    }
    Ok(injects)
}

fn a_server_that_was_taken_over_speaks_for_nobody_but_who_is_connected(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    // Root and B were there, and have gone. A stays.
    drop((daemon.mcp()?, Mcp::connect_as(B, &daemon.socket())?));
    let a = Mcp::connect_as(A, &daemon.socket())?;
    a.tools()?;
    let mut hostile = Hostile::take(&daemon)?;
    for owner in [0, B] {
        assert_eq!(injects(&mut hostile, owner)?, [], "of {owner}, who is not connected");
    }
    let of_a = injects(&mut hostile, A)?;
    let [Claim::Connection(number)] = of_a[..] else { panic!("{of_a:?}") };
    // Whoever is connected is all that it can be.
    for owner in [0, B] {
        let said = hostile.inject(Claim::Connection(number), owner, 0)?;
        assert_eq!(said["Error"]["code"], "POLICY_DENIED", "{said}");
    }
    drop(a);
    assert_eq!(injects(&mut hostile, A)?, [], "of who has left");
    // What else is asked in a name is refused as well.
    for claim in claims() {
        for request in [Request::Doctor, Request::Residue, Request::PlanAll { faults: Vec::new() }] {
            let said = hostile.ask(claim, &request)?;
            assert_eq!(said["Error"]["code"], "UNAVAILABLE", "{claim:?} {request:?}: {said}");
        }
        for (what, owner) in [(Undertaking::Run, A), (Undertaking::Schedule, 0), (Undertaking::Search, B)] {
            let said = hostile.ask(claim, &entrusted(what, owner, fault(1)?))?;
            assert_eq!(said["Error"]["code"], "UNAVAILABLE", "{claim:?} {what:?}: {said}");
        }
    }
    assert!(hostile.active()?.is_empty());
    hostile.server.signal(Signal::SIGKILL);
    Ok(Outcome::Pass)
}

fn a_server_that_was_taken_over_begins_nothing_that_was_not_entrusted(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let a = Mcp::connect_as(A, &daemon.socket())?;
    a.tools()?;
    let mut hostile = Hostile::take(&daemon)?;
    let of_a = injects(&mut hostile, A)?;
    let [claim] = of_a[..] else { panic!("{of_a:?}") };
    // While A is there, it can say that A begins something, as A himself could: of his own, and of nobody else's.
    let of_root = hostile.ask(claim, &entrusted(Undertaking::Run, 0, fault(1)?))?;
    assert_eq!(of_root["Error"]["code"], "POLICY_DENIED", "{of_root}");
    let mut grants = Vec::new();
    for what in [Undertaking::Run, Undertaking::Schedule] {
        let said = hostile.ask(claim, &entrusted(what, A, fault(1)?))?;
        grants.push(Claim::Grant(said["Entrusted"]["grant"].as_u64().ok_or_else(|| said.to_string())?));
    }
    let [run, schedule] = grants[..] else { panic!("{grants:?}") };
    let kept = daemon.state_dir().join("grants.json");
    let is = std::fs::metadata(&kept)?;
    assert_eq!((is.uid(), is.mode() & 0o777), (0, 0o600), "{}", kept.display());
    drop(a);
    // That is what goes on, once, and nothing else.
    for (by, owner, number) in [(run, A, 2), (run, 0, 1), (run, B, 1), (schedule, A, 1)] {
        let said = hostile.inject(by, owner, number)?;
        assert_eq!(said["Error"]["code"], "POLICY_DENIED", "{by:?} {owner} {number}: {said}");
    }
    assert!(hostile.inject(run, A, 1)?["Injected"].is_object());
    assert_eq!(hostile.active()?, [format!("{A}/x")]);
    hostile.end_all()?;
    let again = hostile.inject(run, A, 1)?;
    assert_eq!(again["Error"]["code"], "POLICY_DENIED", "{again}");
    for (number, is_begun) in [(2, false), (1, true)] {
        let said = hostile.ask(schedule, &entrusted(Undertaking::Run, A, fault(number)?))?;
        assert_eq!(said["Entrusted"]["grant"].is_u64(), is_begun, "{number}: {said}");
    }
    let more = hostile.ask(schedule, &entrusted(Undertaking::Schedule, A, fault(1)?))?;
    assert_eq!(more["Error"]["code"], "POLICY_DENIED", "{more}");
    // The next server has no such schedule, and says so: nothing of it is left.
    hostile.server.signal(Signal::SIGKILL);
    let mcp = daemon.mcp_again()?;
    mcp.tools()?;
    let forgotten = || std::fs::read_to_string(&kept).is_ok_and(|kept| kept == "{}");
    assert!(wait_until(HANG, forgotten), "{}", std::fs::read_to_string(&kept)?);
    Ok(Outcome::Pass)
}

fn callers_wait_at_the_same_socket_while_a_server_is_followed_by_another(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    let of_file = || std::fs::metadata(daemon.socket()).map(|is| is.ino());
    let (before, mcp) = (of_file()?, daemon.mcp()?);
    let server = daemon.server().ok_or("no server")?;
    server.signal(Signal::SIGKILL);
    assert!(wait_until(HANG, || !server.runs()));
    // Nobody serves, and nobody is refused: whoever connects now is served by the next.
    let waiting = daemon.mcp()?;
    waiting.tools()?;
    assert!(mcp.tools().is_err(), "a connection outlived its server");
    assert_eq!(of_file()?, before);
    Ok(Outcome::Pass)
}

fn by_a_socket_for_observers_nobody_does_more_than_look(_: &Context) -> TestResult {
    let daemon = Daemon::start_with(|command| {
        command.args(["--role-socket", "observer=watch.sock"]);
    })?;
    let observer = Mcp::connect(&daemon.runtime_dir().join("watch.sock"))?;
    observer.call_tool("chaos_status", json!({}))?.ok()?;
    let whole = json!({"fault_name": "x", "action": "register", "fault_type": "resource_exhaustion", "probability": 1,
        "params": {"cpu_percent": 1, "cores": 1}});
    for (tool, arguments) in [("chaos_inject_fault", whole.clone()), ("chaos_stop", json!({}))] {
        let said = observer.call_tool(tool, arguments)?;
        let message = said.json["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("a socket for an observer at most"), "{tool}: {}", said.json);
    }
    daemon.mcp()?.call_tool("chaos_inject_fault", whole)?.ok()?;
    Ok(Outcome::Pass)
}
