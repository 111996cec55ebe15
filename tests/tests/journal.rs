//! Probes of a real journal, which systemd-journal-remote makes of text, and journalctl reads for the daemon. On the host only: the
//! VM's image has neither, and the one with systemd has a journal of its own (`systemd/first_boot/services.rs`).

#![cfg(test)]

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chaos_tests::HANG;
use chaos_tests::late::assert_within;
use chaos_tests::process::{self, wait_until};
use chaos_tests::{Daemon, Mcp};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Nobody's to call but systemd's, and so in no folder of programs.
const WRITER: &str = "/lib/systemd/systemd-journal-remote";
const UNIT: &str = "chaos-payment.service";
const GROUP: &str = "systemd-journal";
/// A journal, and a program called `journalctl` that has the real one read it in place of the host's.
struct Journal {
    folder: TempDir,
}

impl Journal {
    fn of(entries: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let journal = Self { folder };
        let mut command = Command::new(WRITER);
        command.arg("--output").arg(journal.file()).arg("-").stdin(Stdio::piped()).stderr(Stdio::null());
        let mut writer = command.spawn().unwrap();
        writer.stdin.take().unwrap().write_all(entries.concat().as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        // As systemd has its own.
        chown(journal.file(), Some(0), Some(group(GROUP))).unwrap();
        fs::set_permissions(journal.file(), Permissions::from_mode(0o640)).unwrap();
        fs::create_dir(journal.path("bin")).unwrap();
        journal.instead(&format!("exec {} --file={} \"$@\"", real().display(), journal.file().display()));
        journal
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("test.journal")
    }

    /// What the daemon finds as `journalctl`.
    fn instead(&self, script: &str) {
        let program = self.path("bin/journalctl");
        // Renamed into its place: one that is executed cannot be written to.
        fs::write(self.path("new"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(self.path("new"), Permissions::from_mode(0o755)).unwrap();
        fs::rename(self.path("new"), program).unwrap();
    }

    fn daemon(&self) -> Daemon {
        let policy = self.path("policy.toml");
        fs::write(&policy, format!("probe_logs = [\"unit:{UNIT}\", \"unit:chaos-absent.service\"]")).unwrap();
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        Daemon::start_with(|command| {
            command.arg("--policy").arg(policy).env("PATH", path);
        })
        .unwrap()
    }
}

fn real() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|folder| folder.join("journalctl")).find(|path| path.is_file()).unwrap()
}

fn group(name: &str) -> u32 {
    let groups = fs::read_to_string("/etc/group").unwrap();
    let line = groups.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

/// An entry of so many seconds ago in the export format (systemd.io/JOURNAL_EXPORT_FORMATS).
fn entry(number: u32, age: u64, unit: &str, priority: u8, message: &[u8]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let time = (now - Duration::from_secs(age)).as_micros();
    let message = String::from_utf8(message.to_vec()).unwrap();
    format!(
        "__REALTIME_TIMESTAMP={time}\n__MONOTONIC_TIMESTAMP={number}000000\n_BOOT_ID=0123456789abcdef0123456789abcdef\n\
         _SYSTEMD_UNIT={unit}\nPRIORITY={priority}\nMESSAGE={message}\n\n"
    )
}

fn journal() -> Journal {
    let long = format!("ERROR {}", "x".repeat(20_000));
    Journal::of(&[
        entry(1, 600, UNIT, 3, b"ERROR long ago"),
        entry(2, 30, UNIT, 3, b"ERROR no connection left"),
        entry(3, 20, "chaos-other.service", 3, b"ERROR of another"),
        entry(4, 10, UNIT, 6, b"ERROR \x1b[31mred\x1b[0m"),
        entry(5, 5, UNIT, 6, b"all is well"),
        // Longer than what journalctl writes unless it is told to write all of it.
        entry(6, 4, UNIT, 4, long.as_bytes()),
    ])
}

fn sample(mcp: &Mcp, words: &[&str]) -> Value {
    let words = [&["log", "--timeout", "20s"], words].concat();
    mcp.call_tool("chaos_probe", json!({"arguments": words})).unwrap().ok().unwrap()
}

fn of_unit(mcp: &Mcp, words: &[&str]) -> Value {
    sample(mcp, &[&["--unit", UNIT, "--match", "ERROR"], words].concat())
}

#[test]
fn entries_of_one_unit_are_counted_by_age_priority_and_text() {
    let journal = journal();
    let daemon = journal.daemon();
    let mcp = daemon.mcp().unwrap();
    for (words, value) in [
        (&["--within", "60s"][..], 3.0),
        (&[], 3.0),
        (&["--within", "1h"], 4.0),
        (&["--priority", "warning"], 2.0),
        (&["--priority", "err", "--within", "1h"], 2.0),
        (&["--within", "15s", "--priority", "err", "--max", "0"], 0.0),
    ] {
        let seen = of_unit(&mcp, words);
        assert!(seen["ok"] == true && seen["value"] == value, "{words:?}: {seen}");
    }
    let seen = of_unit(&mcp, &["--max", "0"]);
    assert!(seen["ok"] == false && seen["value"] == 3.0, "{seen}");
    let detail = seen["detail"].as_str().unwrap();
    assert!(detail.contains("3 of 4 entries match, the last: \"ERROR no connection left\""), "{detail}");
    assert!(detail.contains("ERROR \\u{1b}[31mred\\u{1b}[0m"), "{detail}");
    assert!(detail.len() < 1000, "{detail}");
}

#[test]
fn silence_is_told_from_a_unit_of_which_nothing_is_known_and_from_a_journal_that_is_closed() {
    let journal = journal();
    let daemon = journal.daemon();
    let mcp = daemon.mcp().unwrap();
    let silent = of_unit(&mcp, &["--within", "1s", "--max", "0"]);
    assert!(silent["ok"] == true && silent["value"] == 0.0, "{silent}");
    let absent = sample(&mcp, &["--unit", "chaos-absent.service", "--match", "x", "--max", "0"]);
    assert!(absent["ok"] == false && absent["value"].is_null(), "{absent}");
    assert!(absent["detail"].as_str().unwrap().contains("no entry of chaos-absent.service"), "{absent}");
    // Read by the right of the group, and of nobody else.
    fs::set_permissions(journal.file(), Permissions::from_mode(0o600)).unwrap();
    let closed = of_unit(&mcp, &["--max", "0"]);
    assert!(closed["ok"] == false && closed["value"].is_null(), "{closed}");
    assert!(closed["detail"].as_str().unwrap().contains("Permission denied"), "{closed}");
}

#[test]
fn journalctl_runs_without_any_right_but_those_of_its_group() {
    let journal = journal();
    let told = journal.path("told");
    fs::write(&told, "").unwrap();
    fs::set_permissions(&told, Permissions::from_mode(0o666)).unwrap();
    journal.instead(&format!("cat /proc/self/status > {}; exit 3", told.display()));
    let daemon = journal.daemon();
    let failed = of_unit(&daemon.mcp().unwrap(), &["--max", "0"]);
    assert!(
        failed["ok"] == false && failed["detail"].as_str().unwrap().contains("exit status: 3"),
        "{failed}"
    );
    let status = fs::read_to_string(told).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(!field("Uid").contains(&"0".to_owned()) && !field("Gid").contains(&"0".to_owned()), "{status}");
    assert_eq!(field("Groups"), [group(GROUP).to_string()]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
}

#[test]
fn one_that_hangs_or_never_stops_is_ended_at_the_limit_and_nobody_else_waits() {
    let journal = journal();
    let daemon = journal.daemon();
    let mcp = daemon.mcp().unwrap();
    let left = || {
        let unit = format!("--unit={UNIT}");
        let of_us = |process: &process::Process| {
            process.arguments.iter().any(|word| word.contains("61.7") || *word == unit || word == "yes")
        };
        let all = process::descendants(daemon.injector_pid()).into_iter().filter(of_us);
        all.map(|process| process.pid).collect::<BTreeSet<_>>()
    };
    for (script, words) in [
        ("exec sleep 61.7", "within 1s"),
        ("while :; do echo 61.7 >&2; done", "within 1s"),
        ("exec yes '{\"__REALTIME_TIMESTAMP\":\"1\",\"MESSAGE\":\"61.7\"}'", ""),
        ("exec yes", "something else"),
    ] {
        journal.instead(script);
        let start = Instant::now();
        let asked =
            json!({"arguments": ["log", "--unit", UNIT, "--match", "x", "--max", 0, "--timeout", "1s"]});
        let seen = mcp.call_tool("chaos_probe", asked).unwrap().ok().unwrap();
        let detail = seen["detail"].as_str().unwrap();
        assert!(seen["ok"] == false && seen["value"].is_null() && detail.contains(words), "{script}: {seen}");
        assert_within(Duration::from_secs(11), start.elapsed(), script);
        assert!(wait_until(HANG, || left().is_empty()), "{script}: it still runs");
    }
    // One of a user that hangs is the most; whoever asks for something else has an answer meanwhile.
    journal.instead("exec sleep 61.7");
    let socket = daemon.socket();
    let hanging: Vec<_> = (0..4).map(|_| std::thread::spawn(hang(&socket))).collect();
    // Until then it is a shell, and has no arguments for a moment when it becomes `sleep` (execve(2)).
    let sleeps = |process: &process::Process| process.arguments.iter().any(|word| word == "61.7");
    assert!(
        wait_until(HANG, || process::descendants(daemon.injector_pid()).iter().any(sleeps)),
        "{:?}",
        left()
    );
    let meanwhile = left();
    assert_eq!(meanwhile.len(), 1);
    mcp.call_tool("chaos_status", json!({})).unwrap().ok().unwrap();
    assert_eq!(left(), meanwhile, "the answer has waited for one that hangs");
    for seen in hanging {
        assert_eq!(seen.join().unwrap()["ok"], false);
    }
    assert!(wait_until(HANG, || left().is_empty()));
}

/// One question of ten seconds, by a client of its own.
fn hang(socket: &Path) -> impl FnOnce() -> Value + Send + 'static {
    let socket = socket.to_owned();
    move || {
        let asked = json!({"arguments": ["log", "--unit", UNIT, "--match", "x", "--timeout", "10s"]});
        Mcp::connect(&socket).unwrap().call_tool("chaos_probe", asked).unwrap().ok().unwrap()
    }
}
