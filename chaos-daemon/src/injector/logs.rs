//! What a probe asks about a log, where the policy allows it. A file is read here; the journal is read by journalctl, a child
//! without rights but those of the journal's group. Both happen away from the loop, a few at a time, and never for long.

use std::fs::File;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use nix::sched::CloneFlags;
use nix::unistd::Gid;
use regex::Regex;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::aside::{Places, Purpose, Turn, on_a_thread};
use super::child::{collect, ended, kill, start_child};
use super::inject::cancelled;
use super::server_process::{drop_rights, unprivileged};
use crate::host::accounts;
use crate::host::log::{Limit, LogError, Window, file, journal};
use crate::policy::{Policy, Who};
use crate::request::facts::LogFacts;
use crate::request::wire::Ticket;
use crate::request::{ApiError, Caller, ErrorCode};
use crate::spec::{Log, LogRequest, LogSearch};

/// So many are read at once, one of a user, also while a file system hangs.
static PLACES: Places = Places::new(2, 1, None, "questions about logs");
/// The longest that reading may take, whatever is asked for.
const LONGEST: Duration = Duration::from_secs(30);
/// Who may read the journal (systemd-journald.service(8)).
const GROUP: &str = "systemd-journal";
/// How much is told of what journalctl complains about, in bytes.
const COMPLAINT: u64 = 300;

/// Counts the entries of a log that match.
///
/// # Errors
/// When the question makes no sense, the policy forbids it, or the log cannot be read, or not within `limit`.
pub(super) async fn look(
    policy: &Policy,
    request: &LogRequest,
    limit: Duration,
    (who, ticket): (&Who, &mut Ticket),
) -> Result<LogFacts, ApiError> {
    let search = LogSearch::parse(request)?;
    policy.may_read(who, &search.log)?;
    let limit = Limit::of(limit.min(LONGEST));
    let place = place(limit, (who.caller, ticket)).await?;
    let pattern = search.pattern;
    match search.log {
        Log::File { path, last, within } => {
            let window = within.map(before_now);
            let (facts, _place) =
                aside(place, limit, move || file::search(&path, &pattern, last, window, limit)).await?;
            Ok(facts)
        }
        Log::Unit { name, within, priority } => {
            of_unit(&name, priority, pattern, before_now(within), place, limit).await
        }
    }
}

fn before_now(within: Duration) -> Window {
    Window::before(Timestamp::now(), within)
}

/// A place, when it is its turn, and before who has asked leaves.
async fn place(limit: Limit, (caller, ticket): (Caller, &mut Ticket)) -> Result<Turn, ApiError> {
    tokio::select! {
        biased;
        () = ticket.cancelled() => Err(cancelled()),
        place = timeout(limit.left(), PLACES.turn(caller.into(), Purpose::Look)) => {
            let place = place.unwrap_or_else(|_| {
                Err(ApiError::new(
                    ErrorCode::LimitReached,
                    "too many questions about logs: it was not its turn",
                ))
            });
            place.map_err(|error| error.hint("sample less often, or give more time by --timeout"))
        }
    }
}

/// Does what may block in a place, which is free again when it is done, however long somebody waited for it.
async fn aside<T: Send + 'static>(
    place: Turn,
    limit: Limit,
    read: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<(T, Turn), ApiError> {
    let reading = on_a_thread(move || read().map(|done| (done, place)));
    match timeout(limit.left(), reading).await {
        Ok(Ok(done)) => done.map_err(|error| refuse(&error)),
        Ok(Err(error)) => Err(unavailable(format!("reading broke: {error}"))),
        Err(_) => Err(refuse(&limit.over())),
    }
}

/// Counts entries of the journal; if the unit has none in the window, sees that it has some at all, so that neither a name that is
/// wrong nor a journal that is closed or not kept counts as silence.
async fn of_unit(
    name: &str,
    priority: Option<&str>,
    pattern: Regex,
    window: Window,
    place: Turn,
    limit: Limit,
) -> Result<LogFacts, ApiError> {
    let mut since = vec![format!("--since=@{}", window.since.as_second())];
    since.extend(priority.map(|priority| format!("--priority={priority}")));
    let count = move |entries| journal::search(entries, &pattern, window, limit);
    let (facts, place) = read(name, &since, place, limit, count).await?;
    if facts.seen > 0 || facts.ahead > 0 {
        return Ok(facts);
    }
    let (is_known, _place) = read(name, &["--lines=1".to_owned()], place, limit, journal::is_any).await?;
    match is_known {
        true => Ok(facts),
        false => {
            let problem = format!("the journal has no entry of {name} at all, not even of its start");
            Err(unavailable(problem).hint("see the name, and whether the journal is kept: journalctl --unit"))
        }
    }
}

/// Has journalctl write entries of a unit, and has them understood.
async fn read<T: Send + 'static>(
    name: &str,
    which: &[String],
    place: Turn,
    limit: Limit,
    understand: impl FnOnce(File) -> Result<T, LogError> + Send + 'static,
) -> Result<(T, Turn), ApiError> {
    let who = on_a_thread(reader).await.and_then(|who| who);
    let started = who.and_then(|who| start(name, which, who));
    let (mut child, entries) = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unavailable("there is no journalctl, by which the journal is read"),
        _ => unavailable(format!("start journalctl: {error}")),
    })?;
    let answer = match aside(place, limit, move || understand(entries)).await {
        Ok(done) => end(&mut child, limit).await.map(|status| (done, status)),
        Err(error) => Err(error),
    };
    let complains = child.stderr.take();
    // Whom nobody listens to any more; it has ended otherwise.
    kill(&mut child, "journalctl");
    collect(child, "journalctl").await;
    let (done, status) = answer?;
    match status.success() {
        true => Ok(done),
        false => Err(unavailable(format!("journalctl: {status}: {}", complaint(complains, limit).await))),
    }
}

async fn end(child: &mut Child, limit: Limit) -> Result<ExitStatus, ApiError> {
    match timeout(limit.left(), ended(child)).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(error)) => Err(unavailable(format!("wait for journalctl: {error}"))),
        Err(_) => Err(refuse(&limit.over())),
    }
}

/// Whose rights journalctl has.
struct Reader {
    user: (u32, u32),
    groups: Vec<Gid>,
}

/// Looks them up. Blocks.
fn reader() -> io::Result<Reader> {
    let groups = accounts::group(GROUP)?.map(Gid::from_raw).into_iter().collect();
    Ok(Reader { user: unprivileged()?, groups })
}

/// Starts journalctl on the main thread, where this is called.
fn start(name: &str, which: &[String], who: Reader) -> io::Result<(Child, File)> {
    let mut command = Command::new("journalctl");
    command.args(["--output=json", "--all", "--output-fields=MESSAGE", "--no-pager"]);
    command.arg(format!("--unit={name}")).args(which);
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    drop_rights(&mut command, who.user, who.groups, CloneFlags::empty());
    let mut child = start_child(command, Vec::new())?;
    let entries = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
    Ok((child, File::from(entries.into_owned_fd()?)))
}

/// The last that it said of what went wrong.
async fn complaint(stderr: Option<ChildStderr>, limit: Limit) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = stderr {
        // What has come by then is what there is to tell.
        let _ = timeout(limit.left(), stderr.take(COMPLAINT).read_to_end(&mut said)).await;
    }
    match String::from_utf8_lossy(&said).trim().lines().last() {
        Some(last) => last.escape_debug().to_string(),
        None => "it does not say why".to_owned(),
    }
}

fn unavailable(problem: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Unavailable, problem)
}

fn refuse(error: &LogError) -> ApiError {
    let code = match error {
        LogError::Absent(_) => ErrorCode::TargetNotFound,
        LogError::Closed(_) => ErrorCode::MissingPrivilege,
        LogError::Link(_) | LogError::Kind(_) | LogError::Partial(_) | LogError::Short { .. } => {
            ErrorCode::InvalidParameter
        }
        LogError::Timeless | LogError::Io { .. } | LogError::Entry(_) | LogError::Late(_) => {
            ErrorCode::Unavailable
        }
    };
    ApiError::new(code, error.to_string())
}
