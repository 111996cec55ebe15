//! What the unit withholds and a drop-in of the documentation gives: programs as probes, being told of alerts, and faults of calls
//! to MCP servers.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::cgroup::Cgroup;
use crate::daemon::binary;
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::systemd::service::Service;
use crate::systemd::settings::{DropIn, OtherPolicy};
use crate::systemd::unit::{MEMBER, SERVICE, STRANGER, chaosctl, installed, run};
use crate::systemd::{TestResult, tests};
use crate::tools::{Came, Session};

tests![
    a_program_that_the_policy_names_is_a_probe_with_the_drop_in_for_programs,
    alerts_are_heard_of_who_knows_the_token_with_the_drop_in_for_alerts,
    calls_to_an_mcp_server_fail_with_the_drop_in_for_them_and_neither_without_it_nor_after,
];

const FOLDER: &str = "/usr/local/lib/checks";
const PROGRAM: &str = "/usr/local/lib/checks/queue";
/// An experiment whose steady state is what the program says, and which burns a little.
const DOCUMENT: &str = r#"{"title": "checked", "description": "by a program", "rollbacks": [],
    "steady-state-hypothesis": {"title": "as it should be", "probes": [{"type": "probe", "name": "queue", "tolerance": 0,
        "provider": {"type": "process", "path": "/usr/local/lib/checks/queue", "arguments": ["short"], "timeout": 30}}]},
    "method": [{"type": "action", "name": "burn", "provider": {"type": "process", "path": "chaosctl",
        "arguments": {"inject": "resource_exhaustion", "--cpu-percent": 5, "--for": "1s"}}}]}"#;
const DOCUMENT_FILE: &str = "/tmp/chaos-checked.json";

/// Exit code, and everything it says.
fn ran(args: &[&str]) -> Result<(Option<i32>, String)> {
    let output = Command::new("runuser").args(["-u", MEMBER, "--", "chaosctl"]).args(args).output();
    let output = output.map_err(Error::io("start", "chaosctl"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok((output.status.code(), said))
}

/// Registers the document and runs it, as far as that goes.
fn attempt() -> Result<(Option<i32>, String)> {
    match ran(&["experiment", "register", DOCUMENT_FILE])? {
        (Some(0), _) => ran(&["--json", "run", "checked"]),
        refused => Ok(refused),
    }
}

fn a_program_that_the_policy_names_is_a_probe_with_the_drop_in_for_programs() -> TestResult {
    installed()?;
    fs::create_dir_all(FOLDER)?;
    fs::write(PROGRAM, "#!/bin/sh\n[ \"$1\" = short ] && [ \"$(id -un)\" = chaos-probe ]\n")?;
    fs::set_permissions(PROGRAM, fs::Permissions::from_mode(0o755))?;
    fs::write(DOCUMENT_FILE, DOCUMENT)?;
    fs::set_permissions(DOCUMENT_FILE, fs::Permissions::from_mode(0o644))?;
    // Not named by the policy, and then without the drop-in: refused by name.
    let (code, said) = attempt()?;
    assert!(code != Some(0) && said.contains("probe_commands"), "{code:?} {said}");
    let _policy = OtherPolicy::of(&format!("probe_commands = [{PROGRAM:?}]\n"))?;
    let (code, said) = attempt()?;
    assert!(code != Some(0) && said.contains("RestrictNamespaces"), "{code:?} {said}");
    let _drop_in = DropIn::install(&[SERVICE], "RestrictNamespaces=pid\n")?;
    let (code, said) = attempt()?;
    assert!(code == Some(0) && said.contains("held"), "{code:?} {said}");
    let (code, said) = ran(&["runs"])?;
    assert!(code == Some(0) && said.contains("checked"), "{code:?} {said}");
    fs::remove_dir_all(FOLDER)?;
    Ok(())
}

pub(super) const TOKEN: &str = "b4a5cf7e2f4a4d13a1f0";
const TOKEN_FILE: &str = "/etc/chaos-daemon/alert-token";
const TOLD: &str = "ExecStart=\nExecStart=/usr/bin/chaos-daemon run --policy /etc/chaos-daemon/policy.toml \
                    --alert-webhook 127.0.0.1:9199 --alert-webhook-token-file /etc/chaos-daemon/alert-token\n";
/// As Alertmanager tells a receiver (its documentation, "webhook_config").
const FIRING: &str = r#"{"version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "oncall",
    "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://localhost:9093",
    "alerts": [{"status": "firing", "labels": {"alertname": "PoolUsedUp"}, "annotations": {"summary": "none left"},
        "startsAt": "2026-01-01T00:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "", "fingerprint": "0123456789abcdef"}]}"#;

/// The first line of the answer to a notification.
fn told(token: &str) -> Result<String> {
    let talk = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect("127.0.0.1:9199")?;
        stream.set_read_timeout(Some(HANG))?;
        let head = format!(
            "POST /alerts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        );
        let kind = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", FIRING.len());
        stream.write_all([head.as_bytes(), kind.as_bytes(), FIRING.as_bytes()].concat().as_slice())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    };
    talk().map_err(Error::io("tell", "127.0.0.1:9199"))
}

/// The token, and the drop-in with which the daemon hears who knows it.
pub(super) struct Hearing(Option<DropIn>);

/// Has the daemon listen for alerts.
pub(super) fn hearing() -> Result<Hearing> {
    write_token()?;
    DropIn::install(&[SERVICE], TOLD).map(|drop_in| Hearing(Some(drop_in)))
}

impl Drop for Hearing {
    fn drop(&mut self) {
        drop(self.0.take());
        let _ = fs::remove_file(TOKEN_FILE);
    }
}

fn write_token() -> Result<()> {
    fs::write(TOKEN_FILE, TOKEN)
        .and_then(|()| fs::set_permissions(TOKEN_FILE, fs::Permissions::from_mode(0o640)))
        .map_err(Error::io("write", TOKEN_FILE))
}

fn alerts_are_heard_of_who_knows_the_token_with_the_drop_in_for_alerts() -> TestResult {
    installed()?;
    let pool = ["probe", "alert", "--webhook", "--label", "alertname=PoolUsedUp"];
    let (code, said) = ran(&pool)?;
    assert!(code != Some(0) && said.contains("--alert-webhook"), "{code:?} {said}");
    let hearing = hearing()?;
    assert!(told("0123456789abcdef0123")?.contains(" 401"));
    assert_eq!(ran(&pool)?.0, Some(1), "a stranger was heard");
    assert!(told(TOKEN)?.contains(" 200"));
    let said = chaosctl(MEMBER, &pool)?;
    assert!(said.contains("PoolUsedUp"), "{said}");
    assert!(
        run("runuser", &["-u", STRANGER, "--", "cat", TOKEN_FILE]).is_err(),
        "anybody can read the token"
    );
    drop(hearing);
    assert!(TcpStream::connect("127.0.0.1:9199").is_err(), "somebody listens without the drop-in");
    Ok(())
}

/// A unit with an MCP server behind a proxy.
const OF_TOOLS: &str = "chaos-tools.service";

fn calls_to_an_mcp_server_fail_with_the_drop_in_for_them_and_neither_without_it_nor_after() -> TestResult {
    installed()?;
    let _unit = Service::start(OF_TOOLS, "[Service]\nExecStart=sleep infinity\n")?;
    let group = Cgroup::of_others(&Path::new("/sys/fs/cgroup/system.slice").join(OF_TOOLS))?;
    let (proxy, server) = (Path::new("/usr/bin/chaosctl"), binary("chaos-tools")?);
    let mut session = Session::start_with(proxy, &server, |command| group.place(command))?;
    let mut asked = |when: &str, came: Came| -> Result<()> {
        assert_eq!(session.ask("a", HANG)?, came, "{when}");
        Ok(())
    };
    let fault = ["inject", "mcp_error", "--name", "tools", "--unit", OF_TOOLS, "--fail", "1", "--for", "10m"];
    let (code, said) = ran(&fault)?;
    let named = said.contains("pidfd_getfd") && said.contains("SystemCallFilter=pidfd_getfd");
    assert!(code != Some(0) && named, "{code:?} {said}");
    asked("without the drop-in", Came::Result)?;
    let _drop_in = DropIn::install(&[SERVICE], "SystemCallFilter=pidfd_getfd\n")?;
    asked("before", Came::Result)?;
    chaosctl(MEMBER, &fault)?;
    asked("during", Came::Error)?;
    chaosctl(MEMBER, &["remove", "tools"])?;
    asked("after", Came::Result)?;
    Ok(())
}
