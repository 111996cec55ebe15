//! `chaosctl audit`: shows the record of who did what, and checks that it is whole.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chaos_audit::{Head, Line, Outcome, Record, Segment, Verified, Who, segments, verify};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use super::failure::{FAILED, Failure};
use super::interrupts::Interrupts;
use crate::host::words;
use crate::request::{AUDIT, STATE_DIR};

/// Where the daemon tells what a caller may see of it.
const RESOURCE: &str = "chaos://audit";
/// How often it is looked for more.
const FOLLOW: Duration = Duration::from_millis(500);

/// What is done with the audit.
#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Check that nothing was changed, left out, put in or cut off; exit code 0, or 1 with what is wrong
    Verify(VerifyArgs),
    /// Show it: root all of it from its files, others what they have done themselves
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The folder with its files [default: /var/lib/chaos-daemon/audit]
    folder: Option<PathBuf>,
    /// Where it once ended, as SEQ:HASH; may be repeated
    #[arg(long, value_name = "SEQ:HASH")]
    head: Vec<Head>,
    /// Do not ask the journal where it once ended
    #[arg(long)]
    no_journal: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The folder with its files [default: /var/lib/chaos-daemon/audit]
    folder: Option<PathBuf>,
    /// Only of this user
    #[arg(long, value_name = "UID")]
    caller: Option<u32>,
    /// Only since then: a time, a date, or how long ago, e.g. 2d
    #[arg(long, value_name = "TIME", value_parser = super::history::time)]
    since: Option<Timestamp>,
    /// Only about this fault, experiment, run or schedule; of another user's as UID/NAME
    #[arg(long, value_name = "NAME")]
    fault: Option<String>,
    /// Only what was refused, or has failed
    #[arg(long)]
    refused: bool,
    /// Go on showing what comes, until Ctrl-C; for root
    #[arg(long)]
    follow: bool,
}

/// Does it. Returns text for people, the answer for programs, and the exit code.
pub(super) async fn carry_out(
    command: &AuditCommand,
    socket: &Path,
    json: bool,
) -> Result<(String, Value, u8), Failure> {
    match command {
        AuditCommand::Verify(args) => args.carry_out(),
        AuditCommand::Show(args) => args.carry_out(socket, json).await,
    }
}

fn folder(given: Option<&PathBuf>) -> PathBuf {
    given.cloned().unwrap_or_else(|| Path::new(STATE_DIR).join(AUDIT))
}

fn unread(folder: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ": only root can read the files; `chaosctl audit show` shows what you have done yourself"
        }
        io::ErrorKind::NotFound => ": name the folder `audit` below the daemon's --state-dir",
        _ => "",
    };
    Failure::Other(format!("reading the audit in {}: {error}{advice}", folder.display()))
}

impl VerifyArgs {
    fn carry_out(&self) -> Result<(String, Value, u8), Failure> {
        let folder = folder(self.folder.as_ref());
        let failed = |error: io::Error| unread(&folder, &error);
        let mut elsewhere: Vec<_> =
            self.head.iter().map(|head| (*head, "the head that was given".to_owned())).collect();
        let mut notes = Vec::new();
        if !self.no_journal {
            match heads_of_journal(&folder) {
                Ok(heads) if heads.is_empty() => {
                    notes.push(
                        "the journal knows no head of it: what root has forged is not found".to_owned(),
                    );
                }
                Ok(heads) => elsewhere.extend(heads.into_iter().map(|head| (head, "the journal".to_owned()))),
                Err(error) => notes.push(format!("the journal cannot be asked for heads: {error}")),
            }
        }
        // The head first: what is written meanwhile is behind it.
        let beside = Head::beside(&folder);
        let all = segments(&folder).map_err(failed)?;
        let mut problem = None;
        let read = all
            .iter()
            .map_while(|segment| Segment::read(segment).map_err(|error| problem = Some(error)).ok());
        let mut verified = verify(read, beside, &elsewhere);
        if let Some(error) = problem {
            return Err(failed(error));
        }
        verified.notes.extend(notes);
        let code = if verified.is_whole() { 0 } else { FAILED };
        Ok((told(&folder, &verified), json!(verified), code))
    }
}

fn told(folder: &Path, verified: &Verified) -> String {
    let Verified { lines, first, head, heads_met, problems, notes, .. } = verified;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match (verified.is_whole(), head) {
        (true, Some(head)) => writeln!(
            text,
            "{}: whole: {lines} lines from {first} to {}, {heads_met} known heads met; it ends with {head}",
            folder.display(),
            head.seq
        ),
        (true, None) => writeln!(text, "{}: there is no line yet", folder.display()),
        (false, _) => {
            writeln!(text, "{}: it was changed, in {} places or more:", folder.display(), problems.len())
        }
    };
    for problem in problems {
        let _ = writeln!(text, "  {problem}");
    }
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// Where the audit in a folder once ended, as root has told the journal.
fn heads_of_journal(folder: &Path) -> io::Result<BTreeSet<Head>> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(rename = "CHAOS_SEQ")]
        seq: String,
        #[serde(rename = "CHAOS_HASH")]
        hash: String,
    }
    let folder = folder.canonicalize()?;
    let asked = Command::new("journalctl")
        .args(["--quiet", "--no-pager", "--output=json", "--output-fields=CHAOS_SEQ,CHAOS_HASH"])
        // What begins with an underscore journald has added itself (systemd.journal-fields(7)).
        .args(["_UID=0", "CHAOS_ACT=audit_head"])
        .arg(format!("CHAOS_FOLDER={}", folder.display()))
        .output()?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr);
        return Err(io::Error::other(format!("journalctl: {}", said.trim())));
    }
    let entries =
        asked.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    Ok(entries.filter_map(|Entry { seq, hash }| format!("{seq}:{hash}").parse().ok()).collect())
}

impl ShowArgs {
    async fn carry_out(&self, socket: &Path, json: bool) -> Result<(String, Value, u8), Failure> {
        let folder = folder(self.folder.as_ref());
        let all = match segments(&folder) {
            Ok(all) => all,
            // Where nobody has said where it is, the daemon knows.
            Err(_) if self.folder.is_none() && !self.follow => return self.ask(socket).await,
            Err(error) => return Err(unread(&folder, &error)),
        };
        let mut shown = Shown::default();
        for segment in &all {
            let bytes = Segment::read(segment).map_err(|error| unread(&folder, &error))?.bytes;
            self.collect(&bytes, &mut shown);
        }
        if !self.follow {
            return Ok((shown.text, Value::Array(shown.lines), 0));
        }
        print(&shown, json);
        self.go_on(&folder, json).await.map_err(|error| unread(&folder, &error))?;
        Ok((String::new(), Value::Null, 0))
    }

    /// Asks the daemon for what the caller may see.
    async fn ask(&self, socket: &Path) -> Result<(String, Value, u8), Failure> {
        let client = Client::connect(socket).await?;
        let read = client.read(RESOURCE).await;
        client.close().await;
        let mut shown = Shown::default();
        self.collect(read?.as_bytes(), &mut shown);
        Ok((shown.text, Value::Array(shown.lines), 0))
    }

    /// Shows what is added, until Ctrl-C.
    async fn go_on(&self, folder: &Path, json: bool) -> io::Result<()> {
        let (mut at, mut end) = match segments(folder)?.pop() {
            Some((_, path)) => (path.clone(), path.metadata()?.len()),
            None => (PathBuf::new(), 0),
        };
        let mut interrupts = Interrupts::new().map_err(io::Error::other)?;
        loop {
            tokio::select! {
                _ = interrupts.next() => return Ok(()),
                () = tokio::time::sleep(FOLLOW) => {}
            }
            // What was added to the last one before another was begun, and the others.
            let later = segments(folder)?.into_iter().map(|(_, path)| path).filter(|path| *path >= at);
            let later: Vec<_> = later.collect();
            for path in later {
                let from = if path == at { end } else { 0 };
                let mut bytes = Vec::new();
                let mut file = File::open(&path)?;
                file.seek(SeekFrom::Start(from))?;
                file.read_to_end(&mut bytes)?;
                let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                bytes.truncate(whole);
                let mut shown = Shown::default();
                self.collect(&bytes, &mut shown);
                print(&shown, json);
                (at, end) = (path, from + whole as u64);
            }
        }
    }

    fn collect(&self, bytes: &[u8], shown: &mut Shown) {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(read) = Line::read(line) else { continue };
            if self.wants(&read.record) {
                shown.text.push_str(&row(&read.record));
                shown.lines.push(serde_json::from_slice(line).unwrap_or_default());
            }
        }
    }

    fn wants(&self, record: &Record) -> bool {
        let Record { time, who, on, run, outcome, .. } = record;
        let of_caller = |uid: u32| who.as_ref().is_some_and(|who| who.uid == Some(uid));
        let about = |name: &str| [on, run].into_iter().flatten().any(|on| on == name);
        let was_refused = matches!(outcome, Outcome::Refused | Outcome::Failed);
        self.caller.is_none_or(of_caller)
            && self.since.is_none_or(|since| *time >= since)
            && self.fault.as_deref().is_none_or(about)
            && (!self.refused || was_refused)
    }
}

/// What is shown, for people and for programs.
#[derive(Default)]
struct Shown {
    text: String,
    lines: Vec<Value>,
}

fn print(shown: &Shown, json: bool) {
    let mut text = String::new();
    match json {
        true => shown.lines.iter().for_each(|line| text.push_str(&format!("{line}\n"))),
        false => text.push_str(&words::plain(&shown.text)),
    }
    // A reader that has gone is no reason to complain.
    let _ = io::stdout().write_all(text.as_bytes());
}

/// A record as a row: `2026-11-30T18:00:00Z  uid 1001 (pid 7, /usr/bin/chaosctl)  inject slow: refused: ...`.
fn row(record: &Record) -> String {
    let Record { time, act, outcome, who, on, what, reason, rule, repeats, .. } = record;
    let who = who.as_ref().map_or_else(|| "the daemon".to_owned(), name);
    let outcome = match outcome {
        Outcome::Intent => "begins",
        Outcome::Done => "done",
        Outcome::Refused => "refused",
        Outcome::Failed => "failed",
    };
    let on = on.as_ref().map(|on| format!(" {on}")).unwrap_or_default();
    let repeats = repeats.map(|count| format!(" {count} times")).unwrap_or_default();
    let rule = rule.as_ref().map(|rule| format!(" by `{rule}`")).unwrap_or_default();
    let more: String = [what, reason].into_iter().flatten().map(|text| format!(": {text}")).collect();
    let row = format!("{time:.0}  {who}  {act}{on} {outcome}{repeats}{rule}{more}");
    format!("{}\n", words::line(&row))
}

fn name(who: &Who) -> String {
    let Who { uid, cid, pid, exe, loginuid, .. } = who;
    let party = match (uid, cid) {
        (Some(uid), _) => format!("uid {uid}"),
        (None, Some(cid)) => format!("vsock context {cid}"),
        (None, None) => "somebody".to_owned(),
    };
    let login = loginuid.filter(|login| Some(*login) != *uid).map(|login| format!("logged in as {login}"));
    let more: Vec<_> =
        [pid.map(|pid| format!("pid {pid}")), exe.clone(), login].into_iter().flatten().collect();
    if more.is_empty() { party } else { format!("{party} ({})", more.join(", ")) }
}
