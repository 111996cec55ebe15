//! The diary of a run: a file in the state directory with a line for each thing that happens, written as it happens. It is there until
//! the run is recorded. What its server has left unfinished the next one reads there, up to the last beat.
//!
//! A thread of its own writes it, so that no disk keeps a run from going on. What happens is synced as it is written; samples and
//! beats once a second.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::history::Recorded;
use crate::experiment::entry::{Entries, Entry};
use crate::experiment::role::Stages;
use crate::experiment::timeline::{Kind, Occurrence};

/// How often a run is seen to go on, and what it has written is on disk.
const BEAT: Duration = Duration::from_secs(1);
/// The most of a diary that is read, in bytes: what a run of the longest kind writes is a quarter of that.
const LONGEST: u64 = 64 << 20;

fn path(directory: &Path, run_id: &str) -> PathBuf {
    directory.join(format!("run-{run_id}.jsonl"))
}

/// Begins the diary of a run in `directory`; without one, or where it cannot be written, nothing is written down.
pub(super) fn begin(directory: Option<&Path>, run_id: &str) -> Option<Entries> {
    let path = path(directory?, run_id);
    let options = || OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
    let (entries, written) = mpsc::channel();
    let began = Instant::now();
    let spawned = options().and_then(|file| {
        thread::Builder::new().name("diary".to_owned()).spawn(move || {
            if let Err(error) = write(file, &written, began) {
                tracing::warn!(%error, "the diary of a run cannot be written on");
            }
        })
    });
    match spawned {
        Ok(_) => Some(entries),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a run has no diary");
            None
        }
    }
}

/// Writes what comes, until nobody has anything more to say.
fn write(mut file: File, entries: &Receiver<Entry>, began: Instant) -> io::Result<()> {
    let mut synced = Instant::now();
    loop {
        let next = match entries.recv_timeout(BEAT) {
            Ok(entry) => entry,
            Err(RecvTimeoutError::Timeout) => Entry::Beat { at_seconds: began.elapsed().as_secs_f64() },
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let mut all = vec![next];
        all.extend(entries.try_iter());
        let mut lines = Vec::new();
        for entry in &all {
            serde_json::to_writer(&mut lines, entry).map_err(io::Error::other)?;
            lines.push(b'\n');
        }
        // One call: a death in between leaves whole lines, and the last perhaps in part.
        file.write_all(&lines)?;
        if all.iter().any(|entry| matches!(entry, Entry::Event(_) | Entry::Fault { .. }))
            || synced.elapsed() >= BEAT
        {
            // The sandbox knows no fdatasync.
            file.sync_all()?;
            synced = Instant::now();
        }
    }
}

/// Forgets the diary of a run that is recorded.
pub(super) fn forget(directory: Option<&Path>, run_id: &str) {
    let Some(directory) = directory else { return };
    match fs::remove_file(path(directory, run_id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(run = run_id, %error, "the diary of a run stays");
        }
        _ => {}
    }
}

/// What the diary of a run has, as far as it can be read; nothing where there is none.
pub(super) fn read(directory: Option<&Path>, run_id: &str) -> Vec<Entry> {
    let opened = directory.map(|directory| File::open(path(directory, run_id)));
    let Some(Ok(file)) = opened else { return Vec::new() };
    let lines = BufReader::new(file.take(LONGEST)).lines();
    // The last line may be there in part.
    lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

/// Adds what a diary has to what is known of a run that was interrupted: what was seen until the last beat, which is its end. What was
/// not seen stays unknown. Without a diary nothing is known.
pub(super) fn add(recorded: &mut Recorded, entries: Vec<Entry>) {
    let Some(end) = entries.iter().map(Entry::at_seconds).reduce(f64::max) else { return };
    recorded.run.duration_seconds = end;
    for entry in entries {
        match entry {
            Entry::Event(event) => recorded.events.push(event),
            Entry::Sample(sample) => recorded.samples.push(sample),
            Entry::Fault { name, fate, .. } => {
                if let Some(fault) = recorded.faults.iter_mut().find(|fault| fault.name == name) {
                    fault.injected = Some(fate.injected);
                    fault.effective = fate.effective.then_some(true);
                    fault.removed_clean = fate.removed_clean.then_some(true);
                    fault.evidence = fate.evidence;
                }
            }
            Entry::Beat { .. } => {}
        }
    }
    let began = |event: &&Occurrence| event.kind == Kind::Phase && event.subject == "method";
    let method = recorded.events.iter().find(began).map_or(f64::INFINITY, |event| event.at_seconds);
    let after = recorded.events.iter().find(|event| event.kind == Kind::Phase && event.subject == "after");
    let after = after.map_or(f64::INFINITY, |event| event.at_seconds);
    let judged = |from: f64, to: f64| {
        let mut within = recorded.events.iter().filter(|event| (from..=to).contains(&event.at_seconds));
        within.find(|event| matches!(event.kind, Kind::Met | Kind::NotMet)).map(|event| event.kind)
    };
    let (before, after) = (judged(0.0, method), judged(after, f64::MAX));
    recorded.run.steady_state_before = before == Some(Kind::Met);
    recorded.run.steady_state_after = after == Some(Kind::Met);
    recorded.run.verified = Some(Stages { before: before.is_some(), during: false, after: after.is_some() });
    let affected = recorded.faults.iter().filter_map(|fault| Some(fault.evidence?.affected()));
    recorded.run.packets_affected = affected.sum();
    let detail = format!("interrupted: {}", recorded.run.error.as_deref().unwrap_or_default());
    recorded.events.push(Occurrence {
        at_seconds: end,
        time: recorded.run.started_at.parse::<jiff::Timestamp>().map_or_else(
            |_| recorded.run.started_at.clone(),
            |began| format!("{:.3}", began + Duration::try_from_secs_f64(end).unwrap_or_default()),
        ),
        kind: Kind::Abort,
        subject: String::new(),
        detail,
    });
}

#[cfg(test)]
#[path = "diary_tests.rs"]
mod tests;
