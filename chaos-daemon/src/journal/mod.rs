//! The write-ahead undo log: what may be on the node, written down before it is made.
//!
//! One file per fault, one JSON value per line, synced line by line. The directory belongs on tmpfs: kernel
//! state dies with the boot, and so must this; a record of another boot is void. Recovery undoes everything
//! that reached [`Event::Intent`], so every undo accepts "was never made".
//!
//! A line counts once its newline is there: nothing is made before the sync that follows. Only a last line without one may
//! be passed over. A whole line that is not understood, because another version wrote it, is kept with its file, and told of.

pub mod down;
pub mod line;
pub mod undo;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fail_point::{self, Point};
use crate::host::BootId;
use crate::kernel::step::Step;
use crate::spec::{FaultType, QualifiedName};

pub use down::{Back, DownRecord, Found as FoundDown};
pub use line::Unclear;
pub use undo::{Stuck, UndoReport, undo_all, undo_on};

/// Of this program, as its journals say.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One line of a fault's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first line: whose steps follow, and in which boot.
    Fault {
        /// Which boot.
        boot: BootId,
        /// Name.
        name: QualifiedName,
        /// Type.
        fault_type: FaultType,
        /// Version of the program that wrote this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
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
    /// Bytes of the events that were written as a whole.
    length: u64,
}

/// A journal found on disk.
#[derive(Debug)]
pub struct Found {
    /// Its file.
    pub path: PathBuf,
    /// Name and type, when the first line could be read.
    pub fault: Option<(QualifiedName, FaultType)>,
    /// Version of the program that wrote it, when that could be read.
    pub version: Option<String>,
    /// Whether it is of this boot. Without a first line it is taken to be.
    pub of_this_boot: bool,
    /// Everything that reached intent, in order.
    pub steps: Vec<Step>,
    /// Whether undoing has begun.
    pub ending: bool,
    /// Whole lines that are not understood; none of a journal of another boot, which is void.
    pub unclear: Vec<Unclear>,
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
        name: &QualifiedName,
        fault_type: FaultType,
        steps: &[Step],
    ) -> io::Result<Entry> {
        fail_point::pass(Point::BeforeIntent)?;
        let path = self.directory.join(format!("{id:08x}.jsonl"));
        // OPENS: root, who starts the daemon | root | in the runtime directory, which is root's, with all above it (`own`)
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let mut entry = Entry { file, path, steps: Vec::new(), length: 0 };
        let version = Some(VERSION.to_owned());
        let first = Event::Fault { boot: self.boot.clone(), name: name.clone(), fault_type, version };
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
        let text = fs::read(&path)?;
        Ok(Found { path, ..Found::of(&text, &self.boot) })
    }
}

impl Default for Found {
    /// One in which nothing is. Without a first line it is taken to be of this boot.
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            fault: None,
            version: None,
            of_this_boot: true,
            steps: Vec::new(),
            ending: false,
            unclear: Vec::new(),
        }
    }
}

impl Found {
    /// What this text of a journal says in this boot.
    fn of(text: &[u8], this_boot: &BootId) -> Self {
        let mut found = Self::default();
        // As bytes: what is cut off within a character is no text, and must not hide the lines before it.
        for (number, whole) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = whole.strip_suffix(b"\n").unwrap_or(whole);
            match line::event(line) {
                // Earlier versions began each event with a newline.
                _ if line.is_empty() => {}
                Ok(Event::Fault { boot, name, fault_type, version }) => {
                    found.of_this_boot = boot == *this_boot;
                    found.fault = Some((name, fault_type));
                    found.version = version;
                }
                Ok(Event::Intent(step)) => found.steps.push(step),
                Ok(Event::Ending { .. }) => found.ending = true,
                Ok(Event::Applied) => {}
                // A line that is not whole was never acted on: acting waits for the sync.
                Err(_) if line.len() == whole.len() => {}
                Err(error) => {
                    if let Some(line::Origin { boot, version }) = line::origin(line) {
                        found.of_this_boot = boot == *this_boot;
                        found.version = version;
                    }
                    found.unclear.push(Unclear { line: number + 1, cause: line::cause(&error) });
                }
            }
        }
        if !found.of_this_boot {
            found.unclear.clear();
        }
        found
    }

    /// The number of the fault, from the name of the file.
    pub fn id(&self) -> Option<u32> {
        u32::from_str_radix(self.path.file_stem()?.to_str()?, 16).ok()
    }

    /// Whether it may have left something on this node that nobody's death ends. What is not understood may be such.
    pub fn is_supervised(&self) -> bool {
        self.of_this_boot && (!self.unclear.is_empty() || self.steps.iter().any(Step::is_supervised))
    }

    /// What is not understood of it, for people; `None` when all is.
    pub fn not_understood(&self) -> Option<String> {
        let lines = self.unclear.iter().map(|unclear| format!("line {} ({})", unclear.line, unclear.cause));
        let lines: Vec<_> = lines.collect();
        (!lines.is_empty()).then(|| format!("{} not understood", lines.join(", ")))
    }

    /// What to do about what is not understood.
    pub fn remedy(&self) -> String {
        let wrote = match &self.version {
            Some(version) => format!("version {version}"),
            None => "it does not say which".to_owned(),
        };
        format!(
            "run `chaos-daemon recover` of the version that wrote it ({wrote}; this is {VERSION}); the file is kept until \
             then. If it is damaged, see to what it names, and remove it"
        )
    }

    /// Opens this journal again, to go on undoing what is in it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn reopen(&self) -> io::Result<Entry> {
        // OPENS: root, who starts the daemon | root | in the runtime directory, which is root's, with all above it (`own`)
        let file = OpenOptions::new().write(true).open(&self.path)?;
        let text = fs::read(&self.path)?;
        // What comes after the last newline is no line.
        let length = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        Ok(Entry { file, path: self.path.clone(), steps: self.steps.clone(), length: length as u64 })
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
        let mut lines = Vec::new();
        for event in events {
            serde_json::to_writer(&mut lines, &event)?;
            lines.push(b'\n');
        }
        // What was written before may have been cut short, for want of room: it is no line, and must not become a part of one.
        self.file.set_len(self.length)?;
        self.file.write_all_at(&lines, self.length)?;
        self.file.sync_data()?;
        self.length += lines.len() as u64;
        Ok(())
    }
}

fn forget(path: &Path) -> io::Result<()> {
    fail_point::pass(Point::BeforeForget)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fail_point::pass(Point::AfterForget),
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

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
        let name = QualifiedName::parse("a").unwrap();
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
        let name = QualifiedName::parse("a").unwrap();
        let entry = journal.begin(1, &name, FaultType::Latency, &[holder(1)]).unwrap();
        let mut file = OpenOptions::new().append(true).open(&entry.path).unwrap();
        file.write_all(b"{\"intent\":{\"holder\":{\"pi").unwrap();
        assert_eq!(journal.left_behind().unwrap()[0].steps, [holder(1)]);
    }

    #[test]
    fn what_is_noted_after_a_line_cut_short_is_found() {
        let (_directory, journal) = journal();
        let name = QualifiedName::parse("a").unwrap();
        let mut entry = journal.begin(1, &name, FaultType::Latency, &[holder(1)]).unwrap();
        // As a write leaves it that found no room.
        entry.file.write_all(b"\"appl").unwrap();
        entry.note(Event::Ending { reason: "its time".into() }).unwrap();
        assert!(journal.left_behind().unwrap()[0].ending);
    }

    #[test]
    fn a_journal_that_was_left_behind_is_gone_on_with_and_closed() {
        let (_directory, journal) = journal();
        let name = QualifiedName::parse("a").unwrap();
        let entry = journal.begin(1, &name, FaultType::Latency, &[holder(1)]).unwrap();
        entry.file.write_all_at(b"\"appl", entry.length).unwrap();
        drop(entry);
        let mut again = journal.left_behind().unwrap().remove(0).reopen().unwrap();
        assert_eq!(again.steps(), [holder(1)]);
        again.note(Event::Ending { reason: "told".into() }).unwrap();
        let found = journal.left_behind().unwrap().remove(0);
        assert!(found.ending && found.unclear.is_empty(), "{found:?}");
        again.close().unwrap();
        assert!(journal.left_behind().unwrap().is_empty());
    }

    #[test]
    fn a_line_cut_within_a_character_costs_only_itself() {
        let (_directory, journal) = journal();
        let name = QualifiedName::parse("a").unwrap();
        let entry = journal.begin(1, &name, FaultType::Latency, &[holder(1)]).unwrap();
        let mut file = OpenOptions::new().append(true).open(&entry.path).unwrap();
        file.write_all(b"{\"intent\":{\"clsact\":{\"netns\":{\"name\":\"caf\xc3").unwrap();
        assert_eq!(journal.left_behind().unwrap()[0].steps, [holder(1)]);
    }

    #[test]
    fn the_same_fault_cannot_be_begun_twice() {
        let (_directory, journal) = journal();
        let name = QualifiedName::parse("a").unwrap();
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

    /// What is found of a journal of this boot with these lines after the first, beside one that is as it should be.
    fn found_with(lines: &[u8]) -> Found {
        let (_directory, journal) = journal();
        let name = QualifiedName::parse("a").unwrap();
        let entry = journal.begin(1, &name, FaultType::Latency, &[]).unwrap();
        let _other = journal.begin(2, &name, FaultType::Latency, &[holder(2)]).unwrap();
        let mut file = OpenOptions::new().append(true).open(&entry.path).unwrap();
        file.write_all(lines).unwrap();
        let mut found = journal.left_behind().unwrap();
        assert_eq!((found[1].steps.as_slice(), found[1].not_understood()), ([holder(2)].as_slice(), None));
        found.remove(0)
    }

    #[test]
    fn a_whole_line_that_is_not_understood_is_told_by_its_number_and_the_others_count() {
        let intent = |pid| serde_json::to_string(&Event::Intent(holder(pid))).unwrap();
        let event = r#"{"moved":{"to":"elsewhere"}}"#;
        let step = r#"{"intent":{"Teapot":{"cups":3}}}"#;
        let field = intent(7).replace("\"pid\"", "\"namespace\":4,\"pid\"");
        for (line, cause) in [
            (event, "unknown variant `moved`"),
            (step, "unknown variant `Teapot`"),
            (field.as_str(), "unknown field `namespace`"),
            ("\0\0\0", "no JSON"),
            ("applied", "no JSON"),
        ] {
            let found = found_with(format!("{}\n{line}\n{}\n", intent(1), intent(2)).as_bytes());
            assert_eq!(found.steps, [holder(1), holder(2)], "{line}");
            assert!(found.is_supervised(), "{line}: nobody would look at it");
            assert_eq!(found.unclear.len(), 1, "{line}: {found:?}");
            let words = found.not_understood().unwrap();
            assert!(words.starts_with("line 3 (") && words.contains(cause), "{line}: {words}");
            assert!(found.remedy().contains(&format!("version {VERSION}; ")), "{}", found.remedy());
            // The same as a last line without its newline was never acted on.
            let cut = found_with(line.as_bytes());
            assert_eq!((cut.not_understood(), cut.is_supervised()), (None, false), "{line}");
        }
    }

    #[test]
    fn a_first_line_that_is_not_understood_tells_boot_and_version_all_the_same() {
        let (_directory, journal) = journal();
        let path = journal.directory.join("00000001.jsonl");
        let first = |boot: &BootId| {
            let boot = serde_json::to_string(boot).unwrap();
            format!(
                "{{\"fault\":{{\"boot\":{boot},\"name\":\"a\",\"fault_type\":\"flood\",\"version\":\"9.0.0\"}}}}\n"
            )
        };
        fs::write(&path, first(&journal.boot)).unwrap();
        let found = journal.left_behind().unwrap().remove(0);
        assert!(found.of_this_boot && found.is_supervised(), "{found:?}");
        assert!(found.remedy().contains("version 9.0.0; "), "{}", found.remedy());
        fs::write(&path, first(&serde_json::from_value("another".into()).unwrap())).unwrap();
        let found = journal.left_behind().unwrap().remove(0);
        assert!(!found.of_this_boot && found.not_understood().is_none(), "{found:?}");
    }

    #[test]
    fn a_journal_without_a_version_is_understood() {
        let (_directory, journal) = journal();
        let boot = serde_json::to_string(&journal.boot).unwrap();
        let line = format!(
            "\n{{\"fault\":{{\"boot\":{boot},\"name\":\"a\",\"fault_type\":\"latency\"}}}}\n\n\"applied\"\n"
        );
        fs::write(journal.directory.join("00000001.jsonl"), line).unwrap();
        let found = journal.left_behind().unwrap().remove(0);
        assert!(found.of_this_boot && found.version.is_none(), "{found:?}");
        // Nor has it an owner: it is root's.
        let (name, _) = found.fault.as_ref().unwrap();
        assert_eq!((name.owner, name.name.as_str()), (crate::spec::Owner::ROOT, "a"));
        assert_eq!(found.not_understood(), None);
    }

    proptest! {
        #[test]
        fn whatever_is_in_a_journal_every_whole_line_of_it_counts_or_is_told_of(
            lines in prop::collection::vec(prop::collection::vec(any::<u8>().prop_filter("one line", |byte| *byte != b'\n'), 1..20), 0..5),
            rest in prop::collection::vec(any::<u8>().prop_filter("no line", |byte| *byte != b'\n'), 0..20),
        ) {
            let text: Vec<u8> = lines.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).chain(rest).collect();
            let found = found_with(&text);
            prop_assert_eq!(found.unclear.len(), lines.len());
            prop_assert!(found.steps.is_empty());
        }
    }
}
