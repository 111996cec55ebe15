//! Credentials of probes, on their way from a file of root's through the injector and the prober to whom they are shown.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use chaos_daemon::host::secret::roots;
use serde_json::{Value, json};

use super::{Context, Outcome, TestResult, tests};
use crate::daemon::folder_of_roots;
use crate::{Daemon, Mcp};

tests![
    a_credential_of_a_file_is_shown_at_the_origins_of_the_policy_and_nowhere_else,
    a_file_is_taken_for_roots_by_its_mode_and_the_way_to_it,
];

const TOKEN: &str = "hunter2-hunter2";
const BASIC: &str = "probe:hunter2";
/// `printf probe:hunter2 | base64`
const ENCODED: &str = "cHJvYmU6aHVudGVyMg==";

/// A server that wants to see a credential, says back what it was asked, and keeps every header `Authorization`.
struct Door {
    url: String,
    shown: Arc<Mutex<Vec<String>>>,
}

impl Door {
    fn open() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&shown);
        // It ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever asked may be gone.
                let _ = answer(stream, &keeps);
            }
        });
        Ok(Self { url, shown })
    }

    /// What it was shown since it was last asked.
    fn shown(&self) -> Vec<String> {
        std::mem::take(&mut *self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn answer(mut stream: TcpStream, shown: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let authorization = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
    });
    let known = [format!("Bearer {TOKEN}"), format!("Basic {ENCODED}")];
    let status = match &authorization {
        Some(value) if known.contains(value) => "200 OK",
        _ => "401 Unauthorized",
    };
    shown.lock().unwrap_or_else(PoisonError::into_inner).extend(authorization);
    let length = head.len();
    write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{head}")
}

/// One sample by the tool.
fn take(mcp: &Mcp, words: &[&str]) -> Result<Value, Box<dyn std::error::Error>> {
    let sample = mcp.call_tool("chaos_probe", json!({"arguments": words}))?.ok()?;
    for secret in ["hunter2", ENCODED] {
        assert!(!sample.to_string().contains(secret), "{words:?}: {sample}");
    }
    Ok(sample)
}

fn write(folder: &Path, name: &str, text: &str, mode: u32) -> std::io::Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, format!("{text}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(path)
}

fn a_credential_of_a_file_is_shown_at_the_origins_of_the_policy_and_nowhere_else(_: &Context) -> TestResult {
    let (folder, open) = (folder_of_roots("token")?, tempfile::tempdir()?);
    let (token, basic) =
        (write(folder.path(), "token", TOKEN, 0o600)?, write(folder.path(), "basic", BASIC, 0o600)?);
    let readable = write(folder.path(), "readable", TOKEN, 0o644)?;
    let unnamed = write(folder.path(), "unnamed", TOKEN, 0o600)?;
    let changeable = write(open.path(), "changeable", TOKEN, 0o600)?;
    let link = folder.path().join("link");
    symlink(&token, &link)?;
    let (door, other) = (Door::open()?, Door::open()?);
    let named =
        [&token, &basic, &readable, &changeable, &link].map(|path| format!("{path:?} = [{:?}]", door.url));
    let policy = folder.path().join("policy.toml");
    fs::write(&policy, format!("probe_credentials = {{ {} }}\n", named.join(", ")))?;
    let daemon = Daemon::start_with(|command| {
        command.arg("--policy").arg(&policy);
    })?;
    let mcp = daemon.mcp()?;

    let bare = take(&mcp, &["http", &door.url])?;
    assert!(bare["ok"] == false && bare["detail"].to_string().contains("401"), "{bare}");
    for (option, path, shown) in [
        ("--bearer-file", &token, format!("Bearer {TOKEN}")),
        ("--basic-file", &basic, format!("Basic {ENCODED}")),
    ] {
        let path = path.display().to_string();
        for _again in 0..2 {
            let sample = take(&mcp, &["http", &door.url, option, &path])?;
            assert_eq!(sample["ok"], true, "{sample}");
            assert_eq!(door.shown(), [&*shown], "{option}");
        }
        let sample = take(&mcp, &["http", &other.url, option, &path])?;
        assert!(sample["detail"].to_string().contains("may not be shown to"), "{sample}");
    }
    for (path, said) in [
        (&readable, "others may get at it"),
        (&changeable, "can be written by others than its owner"),
        (&link, "leads over a link"),
        (&unnamed, "probe_credentials."),
    ] {
        let path = path.display().to_string();
        let sample = take(&mcp, &["http", &door.url, "--bearer-file", &path])?;
        assert!(sample["ok"] == false && sample["detail"].to_string().contains(said), "{path}: {sample}");
    }
    assert!(door.shown().is_empty() && other.shown().is_empty(), "somebody was shown what may not be");
    assert!(!daemon.log().contains("hunter2"), "{}", daemon.log());
    Ok(Outcome::Pass)
}

fn a_file_is_taken_for_roots_by_its_mode_and_the_way_to_it(_: &Context) -> TestResult {
    let folder = folder_of_roots("secret")?;
    for (mode, secret, said) in [
        (0o600, true, None),
        (0o640, true, None),
        (0o644, false, None),
        (0o644, true, Some("others may get at it")),
        (0o620, true, Some("can be written by others")),
    ] {
        let read = roots(&write(folder.path(), "file", "x", mode)?, secret);
        match said {
            None => assert_eq!(read?, b"x\n", "{mode:o}"),
            Some(said) => {
                assert!(read.as_ref().is_err_and(|error| error.contains(said)), "{mode:o}: {read:?}");
            }
        }
    }
    let file = write(folder.path(), "file", "x", 0o600)?;
    let link = folder.path().join("link");
    symlink(&file, &link)?;
    let refused = roots(&link, true);
    assert!(refused.as_ref().is_err_and(|error| error.contains("leads over a link")), "{refused:?}");
    Ok(Outcome::Pass)
}
