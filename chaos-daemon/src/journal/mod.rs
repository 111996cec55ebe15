//! The write-ahead undo log: what may be on the node, written down before it is made.
//!
//! One file per fault, one JSON value per line, synced line by line. The directory belongs on tmpfs: kernel
//! state dies with the boot, and so must this; a record of another boot is void. Recovery undoes everything
//! that reached [`Event::Intent`], so every undo accepts "was never made".

pub mod down;
pub mod undo;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fail_point::{self, Point};
use crate::host::BootId;
use crate::kernel::step::Step;
use crate::spec::{FaultName, FaultType};

pub use down::{Back, DownRecord, Found as FoundDown};
pub use undo::{Stuck, UndoReport, undo_all, undo_on};

/// One line of a fault's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first line: whose steps follow, and in which boot.
    Fault {
        /// Which boot.
        boot: BootId,
        /// Name.
        name: FaultName,
        /// Type.
        fault_type: FaultType,
    },
    /// The object is about to be made.
    Intent(Step),
    /// Everything is made, and was read back.
    Applied,
    /// Undoing begins.
    Ending {
        /// Why.
        reason: String,
    },
}

/// Where journals are kept.
#[derive(Debug, Clone)]
pub struct Journal {
    directory: PathBuf,
    boot: BootId,
}

/// The open journal of one fault.
#[derive(Debug)]
pub struct Entry {
    file: File,
    path: PathBuf,
    steps: Vec<Step>,
}

/// A journal found on disk.
#[derive(Debug)]
pub struct Found {
    /// Its file.
    pub path: PathBuf,
    /// Name and type, when the first line could be read.
    pub fault: Option<(FaultName, FaultType)>,
    /// Whether it is of this boot. Without a first line it is taken to be.
    pub of_this_boot: bool,
    /// Everything that reached intent, in order.
    pub steps: Vec<Step>,
    /// Whether undoing has begun.
    pub ending: bool,
}

/// The journals in a directory, which need not exist, as they are now: to look, not to recover. One that goes meanwhile is
/// left out.
///
/// # Errors
/// When one cannot be read.
pub fn look_into(directory: &Path) -> io::Result<Vec<Found>> {
    let journal = Journal { directory: directory.to_owned(), boot: BootId::current()? };
    match journal.left_behind() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match directory.exists() {
            true => journal.left_behind(),
            false => Ok(Vec::new()),
        },
        found => found,
    }
}

impl Journal {
    /// Opens the journal in `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// When the directory cannot be made or the boot's identity not be read.
    pub fn open(directory: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self { directory, boot: BootId::current()? })
    }

    /// Starts the journal of one fault: its steps are on file when this returns.
    ///
    /// # Errors
    /// When they cannot be written; nothing must be applied then.
    pub fn begin(
        &self,
        id: u32,
        name: &FaultName,
        fault_type: FaultType,
        steps: &[Step],
    ) -> io::Result<Entry> {
        fail_point::pass(Point::BeforeIntent)?;
        let path = self.directory.join(format!("{id:08x}.jsonl"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let mut entry = Entry { file, path, steps: Vec::new() };
        let first = Event::Fault { boot: self.boot.clone(), name: name.clone(), fault_type };
        let intents = steps.iter().cloned().map(Event::Intent);
        entry
            .write(std::iter::once(first).chain(intents))
            .and_then(|()| File::open(&self.directory)?.sync_all())
            .and_then(|()| fail_point::pass(Point::AfterIntent))
            // Nothing is applied, so nothing may be left to undo.
            .inspect_err(|_| entry.forget())?;
        entry.steps = steps.to_vec();
        Ok(entry)
    }

    /// Reads every journal that was left behind. One that was cut short gives what can be read of it.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn left_behind(&self) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for item in fs::read_dir(&self.directory)? {
            let path = item?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                found.push(self.read(path)?);
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn read(&self, path: PathBuf) -> io::Result<Found> {
        let mut found = Found { path, fault: None, of_this_boot: true, steps: Vec::new(), ending: false };
        // As bytes: what is cut off within a character is no text, and must not hide the lines before it.
        for line in fs::read(&found.path)?.split(|byte| *byte == b'\n') {
            // A line that is not whole was never acted on: acting waits for the sync.
            match serde_json::from_slice(line) {
                Ok(Event::Fault { boot, name, fault_type }) => {
                    found.of_this_boot = boot == self.boot;
                    found.fault = Some((name, fault_type));
                }
                Ok(Event::Intent(step)) => found.steps.push(step),
                Ok(Event::Ending { .. }) => found.ending = true,
                Ok(Event::Applied) | Err(_) => {}
            }
        }
        Ok(found)
    }
}

impl Found {
    /// The number of the fault, from the name of the file.
    pub fn id(&self) -> Option<u32> {
        u32::from_str_radix(self.path.file_stem()?.to_str()?, 16).ok()
    }

    /// Whether it may have left something on this node that nobody's death ends.
    pub fn is_supervised(&self) -> bool {
        self.of_this_boot && self.steps.iter().any(Step::is_supervised)
    }

    /// Forgets this journal: everything in it is undone or void.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(&self) -> io::Result<()> {
        forget(&self.path)
    }
}

impl Entry {
    /// Adds an event.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&mut self, event: Event) -> io::Result<()> {
        let (before, after) = match &event {
            Event::Ending { .. } => (Point::BeforeEnding, Point::AfterEnding),
            Event::Fault { .. } | Event::Intent(_) => (Point::BeforeIntent, Point::AfterIntent),
            Event::Applied => (Point::BeforeApplied, Point::AfterApplied),
        };
        fail_point::pass(before)?;
        self.write(std::iter::once(event))?;
        fail_point::pass(after)
    }

    /// Every step that reached intent, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Ends the journal: everything is undone.
    ///
    /// # Errors
    /// When the file cannot be removed; recovery will then undo everything once more, and find nothing.
    pub fn close(self) -> io::Result<()> {
        forget(&self.path)
    }

    fn forget(&self) {
        if let Err(error) = forget(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a journal that holds nothing");
        }
    }

    fn write(&mut self, events: impl Iterator<Item = Event>) -> io::Result<()> {
        // The line before may have been cut short, for want of room, and must not swallow this one.
        let mut lines = vec![b'\n'];
        for event in events {
            serde_json::to_writer(&mut lines, &event)?;
            lines.push(b'\n');
        }
        self.file.write_all(&lines)?;
        self.file.sync_data()
    }
}

fn forget(path: &Path) -> io::Result<()> {
    fail_point::pass(Point::BeforeForget)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fail_point::pass(Point::AfterForget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::process::ProcessId;

    fn holder(pid: i32) -> Step {
        Step::Holder(ProcessId { pid, start_time: 7 })
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path().join("journal")).unwrap();
        (directory, journal)
    }

    #[test]
    fn what_reached_intent_is_found_again_and_a_closed_journal_is_not() {
        let (_directory, journal) = journal();
        let name = FaultName::new("a").unwrap();
        let steps = [holder(1), holder(2)];
        let mut entry = journal.begin(1, &name, FaultType::Latency, &steps).unwrap();
        entry.note(Event::Applied).unwrap();
        let found = journal.left_behind().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].steps, steps);
        assert!(found[0].of_this_boot);
        entry.close().unwrap();
        assert!(journal.left_behind().unwrap().is_empty());
    }

    #[test]
    fn a_line_cut_short_costs_only_itself() {
        let (_directory, journal) = journal();
        let name = FaultName::new("a").unwrap();
        let entry = journal.begin(1, &name, FaultType::Latency, &[holder(1)]).unwrap();
        let mut file = OpenOptions::new().append(true).open(&entry.path).unwrap();
        file.write_all(b"{\"intent\":{\"holder\":{\"pi").unwrap();
        assert_eq!(journal.left_behind().unwrap()[0].steps, [holder(1)]);
    }

    #[test]
    fn what_is_noted_after_a_line_cut_short_is_found() {
        let (_directory, journal) = journal();
        let name = FaultName::new("a").unwrap();
        let mut entry = journal.begin(1, &name, FaultType::Latency, &[holder(1)]).unwrap();
        // As a write leaves it that found no room.
        entry.file.write_all(b"\"appl").unwrap();
        entry.note(Event::Ending { reason: "its time".into() }).unwrap();
        assert!(journal.left_behind().unwrap()[0].ending);
    }

    #[test]
    fn a_line_cut_within_a_character_costs_only_itself() {
        let (_directory, journal) = journal();
        let name = FaultName::new("a").unwrap();
        let entry = journal.begin(1, &name, FaultType::Latency, &[holder(1)]).unwrap();
        let mut file = OpenOptions::new().append(true).open(&entry.path).unwrap();
        file.write_all(b"{\"intent\":{\"clsact\":{\"netns\":{\"name\":\"caf\xc3").unwrap();
        assert_eq!(journal.left_behind().unwrap()[0].steps, [holder(1)]);
    }

    #[test]
    fn the_same_fault_cannot_be_begun_twice() {
        let (_directory, journal) = journal();
        let name = FaultName::new("a").unwrap();
        let _entry = journal.begin(1, &name, FaultType::Latency, &[]).unwrap();
        assert!(journal.begin(1, &name, FaultType::Latency, &[]).is_err());
    }

    #[test]
    fn a_journal_of_another_boot_is_void() {
        let (_directory, journal) = journal();
        let line = r#"{"fault":{"boot":"another","name":"a","fault_type":"latency"}}"#;
        fs::write(journal.directory.join("00000001.jsonl"), format!("{line}\n")).unwrap();
        assert!(!journal.left_behind().unwrap()[0].of_this_boot);
    }
}
