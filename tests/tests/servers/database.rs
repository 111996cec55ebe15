//! The port of a real PostgreSQL, as a user without rights has started it in a folder of its own.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use chaos_tests::HANG;
use chaos_tests::NetNs;
use chaos_tests::netns::output;
use chaos_tests::process::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{namespace, probe};

/// Who has no rights: nobody and nogroup.
const NOBODY: u32 = 65534;
/// How long the server may take to start, to end, and to answer.
const ADDRESS: &str = "127.0.0.1:5432";

/// Where Debian has the programs of a version.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("the package postgresql").flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs.filter(|folder| folder.join("postgres").is_file()).max().expect("the package postgresql")
}

/// Has a command run as nobody.
fn as_nobody(mut command: Command, program: &Path) -> Command {
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    command.args([&user, &group, "--clear-groups", "--"]).arg(program).current_dir("/");
    command
}

/// A server. It is told to end, since one that is killed leaves memory to the kernel.
struct Postgres {
    server: Child,
    folder: tempfile::TempDir,
}

impl Postgres {
    fn start(namespace: &NetNs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let (programs, data) = (programs(), folder.path().join("data"));
        output(
            as_nobody(Command::new("setpriv"), &programs.join("initdb"))
                .args(["--username=postgres", "--auth=trust", "--no-sync", "--locale=C", "--pgdata"])
                .arg(&data),
        )
        .unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let server = as_nobody(namespace.command("setpriv"), &programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "port=5432", "-c", "unix_socket_directories="])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { server, folder }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.server.id().cast_signed()), signal).unwrap();
    }

    /// Whether it has ended within the limit, without waiting for its clients.
    fn end(&mut self) -> bool {
        self.signal(Signal::SIGINT);
        wait_until(HANG, || self.server.try_wait().unwrap().is_some())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.server.try_wait().unwrap().is_none() && !self.end() {
            self.server.kill().unwrap();
            self.server.wait().unwrap();
        }
    }
}

#[test]
fn the_port_of_postgresql_is_open_while_it_runs_and_that_it_answers_is_for_its_own_client_to_say() {
    let namespace = namespace();
    let tcp = |words: &[&str]| probe(&namespace, &[&["tcp", ADDRESS], words].concat());
    let (code, before) = tcp(&[]);
    assert!(code == 1 && before["value"].is_null(), "{before}");
    let mut postgres = Postgres::start(&namespace);
    assert!(wait_until(HANG, || tcp(&[]).0 == 0), "{:?}: {}", tcp(&[]), postgres.log());
    let (code, open) = tcp(&["--max", "3000"]);
    assert!(code == 0 && (0.0..3000.0).contains(&open["value"].as_f64().unwrap()), "{open}");
    let (code, latency) =
        probe(&namespace, &["latency", "--tcp", ADDRESS, "--samples", "5", "--timeout", "10s"]);
    assert!(code == 0 && latency["detail"].as_str().unwrap().contains("0 without an answer"), "{latency}");

    let client = programs().join("pg_isready");
    let client = client.to_str().unwrap();
    let ready = || {
        let words = ["--timeout", "10s", "--", client, "--host=127.0.0.1", "--port=5432", "--timeout=2"];
        probe(&namespace, &[&["command", "--stdout", "accepting connections"], &words[..]].concat())
    };
    assert!(wait_until(HANG, || ready().0 == 0), "{:?}: {}", ready(), postgres.log());
    // One that stands still has its port open, by the kernel's word; its client has no answer.
    postgres.signal(Signal::SIGSTOP);
    let (still_open, silent) = (tcp(&[]), ready());
    postgres.signal(Signal::SIGCONT);
    assert_eq!(still_open.0, 0, "{still_open:?}");
    assert_eq!((silent.0, &silent.1["answer"]["status"]), (1, &json!(2)), "{silent:?}");

    assert!(postgres.end(), "{}", postgres.log());
    let (code, after) = tcp(&[]);
    assert!(code == 1 && after["detail"].as_str().unwrap().contains("refused"), "{after}");
}
