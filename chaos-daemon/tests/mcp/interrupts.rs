//! `chaosctl run` and `inject --wait` that somebody interrupts, and a run for which nobody waits.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::chaosctl::{Output, chaosctl};
use crate::client::{Client, PATIENCE};
use crate::double::Server;
use crate::experiments::{document, port, register, until};

/// A `chaosctl` that goes on.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(socket: &std::path::Path, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chaosctl"));
        command.arg("--socket").arg(socket).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().unwrap().cast_signed()), signal).unwrap();
    }

    /// Whether it catches SIGTERM, the later of the two.
    fn is_ready(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id().unwrap())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::SIGTERM as i32 - 1)) != 0
    }

    /// Waits until a line of its standard error has these words, which it then is without.
    pub(crate) async fn until_it_says(&mut self, words: &str) -> String {
        let stderr = self.0.stderr.as_mut().unwrap();
        let mut line = Vec::new();
        loop {
            match timeout(PATIENCE, stderr.read_u8()).await.expect("no word of it").expect("it has ended") {
                b'\n' if String::from_utf8_lossy(&line).contains(words) => {
                    return String::from_utf8_lossy(&line).into_owned();
                }
                b'\n' => line.clear(),
                byte => line.push(byte),
            }
        }
    }

    pub(crate) async fn ended(self) -> Output {
        let output =
            timeout(PATIENCE, self.0.wait_with_output()).await.expect("chaosctl does not end").unwrap();
        Output {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A server, and a run of 10 min on this interface whose fault is active.
async fn started(name: &str, interface: &str, words: &[&str]) -> (Server, Running, tokio::net::TcpListener) {
    let server = Server::start().await;
    let (listener, address) = port().await;
    let mut long = document(name, &address, "10m");
    long["method"][0]["provider"]["arguments"]["--interface"] = json!(interface);
    register(&mut Client::open(&server.socket).await, long).await;
    let running = Running::start(&server.socket, &[&["run", name], words].concat());
    until(|| !server.active.lock().unwrap().is_empty()).await;
    (server, running, listener)
}

#[tokio::test]
async fn an_interrupt_stops_the_run_and_waits_for_its_verdict() {
    for (signal, name, words) in
        [(Signal::SIGINT, "SIGINT", &[][..]), (Signal::SIGTERM, "SIGTERM", &["--json"])]
    {
        let (server, running, _listener) = started("long", "eth0", words).await;
        running.signal(signal);
        let output = running.ended().await;
        assert_eq!(output.code, 5, "{}{}", output.stdout, output.stderr);
        assert!(output.stderr.contains(&format!("chaosctl: {name}: stopping run ")), "{}", output.stderr);
        let verdict = if words.is_empty() { "long: aborted after " } else { "\"verdict\":\"aborted\"" };
        assert!(output.stdout.contains(verdict), "{}", output.stdout);
        assert!(server.active.lock().unwrap().is_empty(), "its fault is left");
    }
}

#[tokio::test]
async fn a_second_interrupt_ends_the_waiting_at_once_and_says_how_to_stop_the_run() {
    // The removal takes 5 s there.
    let (server, mut running, _listener) = started("sticks", "sticky0", &[]).await;
    running.signal(Signal::SIGINT);
    let line = running.until_it_says("SIGINT: stopping run ").await;
    let run = line.split("stopping run ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    running.signal(Signal::SIGINT);
    let output = running.ended().await;
    let said = output.stderr;
    assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{said}");
    assert!(said.contains(&format!("run {run} may go on: stop it with chaosctl stop --run {run}")), "{said}");
    let mut client = Client::open(&server.socket).await;
    let (status, _) = client.call("chaos_status", json!({})).await;
    assert_eq!(status["running"][0]["run_id"], run, "it has waited for the end: {status}");
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_keeps_nobody_who_interrupts_twice() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mcp.sock");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let running = Running::start(&socket, &["run", "any"]);
    until(|| running.is_ready()).await;
    running.signal(Signal::SIGINT);
    running.signal(Signal::SIGTERM);
    let output = running.ended().await;
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(output.stderr.contains("before the daemon had answered"), "{}", output.stderr);
}

#[tokio::test]
async fn a_detached_run_goes_on_and_its_handle_is_all_that_is_printed() {
    let (server, running, _listener) = started("long", "eth0", &["--detach"]).await;
    let output = running.ended().await;
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let run = output.stdout.strip_suffix('\n').unwrap();
    assert_eq!(server.active.lock().unwrap().len(), 1, "it has ended");
    let follows = Running::start(&server.socket, &["show", "--wait", run]);
    let stopped = chaosctl(&server.socket, &["stop", "--run", run]).await;
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    assert_eq!(follows.ended().await.code, 5);
}

#[tokio::test]
async fn an_interrupt_ends_the_fault_for_which_somebody_waits() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let server = Server::start().await;
        let words = ["inject", "timeout", "--interface", "eth0", "--for", "10m", "--wait"];
        let waits = Running::start(&server.socket, &words);
        until(|| !server.active.lock().unwrap().is_empty()).await;
        waits.signal(signal);
        let output = waits.ended().await;
        assert!(
            output.code == 0 && output.stdout.ends_with(" stopped\n"),
            "{}{}",
            output.stdout,
            output.stderr
        );
        assert!(server.active.lock().unwrap().is_empty(), "it is left");
    }
}
