//! A chain on disk: a folder with its segments and its head.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::audit::{Sink, Written};
use crate::chain::Hash;
use crate::head::Head;
use crate::line::Line;
use crate::record::{Dropped, Mended, Outcome, Record};
use crate::verify::Segment;

/// The file with the head.
const HEAD: &str = "head";
/// Its length in bytes: one write, within a sector.
const HEAD_LENGTH: usize = 128;
const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";
/// The end of a segment that is looked at when it is opened: longer than any line.
const LONGEST_LINE: u64 = 128 << 10;

/// How much room a chain may take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A segment that has as much is followed by another one.
    pub segment: u64,
    /// All segments together; beyond it the oldest is dropped.
    pub all: u64,
}

/// A chain that is open to be written.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    limits: Limits,
    /// The last segment.
    file: File,
    /// How much of it is whole lines.
    length: u64,
    /// Numbers of the first lines of the segments before it, and their lengths.
    before: VecDeque<(u64, u64)>,
    /// The number of the first line of the last segment.
    first: u64,
    head: Head,
    head_file: File,
}

/// The path of the segment that begins with this line.
fn segment_path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{first:020}{SUFFIX}"))
}

/// The segments of a folder, by the numbers of their first lines.
///
/// # Errors
/// When the folder cannot be read.
pub fn segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let digits = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
        if let Some(Ok(first)) = digits.filter(|digits| digits.len() == 20).map(str::parse) {
            found.push((first, path));
        }
    }
    found.sort();
    Ok(found)
}

impl Segment {
    /// Reads the segment at this path.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read((first, path): &(u64, PathBuf)) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, first: *first, bytes: fs::read(path)? })
    }
}

impl Head {
    /// The head that is kept in a folder; nothing where it cannot be read as one.
    pub fn beside(folder: &Path) -> Option<Self> {
        fs::read_to_string(folder.join(HEAD)).ok()?.trim().parse().ok()
    }

    fn to_file(self) -> Vec<u8> {
        format!("{:<1$}\n", self.to_string(), HEAD_LENGTH - 1).into_bytes()
    }
}

/// What was found at the end of a segment.
struct End {
    /// How much of it is whole lines.
    length: u64,
    /// Bytes of a line that was begun.
    torn: u64,
    /// Its last whole line.
    last: Option<Vec<u8>>,
}

fn end_of(file: &mut File) -> io::Result<End> {
    let all = file.seek(SeekFrom::End(0))?;
    let from = all.saturating_sub(LONGEST_LINE);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let last = tail.get(..whole).and_then(|lines| lines.split_inclusive(|byte| *byte == b'\n').next_back());
    // Without a line end in all of it, it is no part of a chain, and what is there stays.
    let length = if whole == 0 && from > 0 { all } else { from + whole as u64 };
    Ok(End { length, torn: all - length, last: last.map(<[u8]>::to_vec) })
}

impl Folder {
    /// Opens the chain in a folder, which is made if it is not there, and nobody else writes it meanwhile. What a crash has cut is
    /// mended, and told by the first of the records to write.
    ///
    /// # Errors
    /// When it cannot be made, read or locked.
    pub fn open(path: &Path, limits: Limits) -> io::Result<(Self, Vec<Record>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let head_file = options.open(path.join(HEAD))?;
        head_file.try_lock().map_err(io::Error::from)?;
        let synced = Head::beside(path).unwrap_or(Head::NONE);
        let mut all: VecDeque<_> = segments(path)?.into();
        let (first, last) = all.pop_back().unwrap_or_else(|| (1, segment_path(path, 1)));
        let mut before = VecDeque::new();
        for (first, path) in &all {
            before.push_back((*first, fs::metadata(path)?.len()));
        }
        let mut file = options.open(&last)?;
        let End { length, torn, last } = end_of(&mut file)?;
        if torn > 0 {
            file.set_len(length)?;
        }
        let read = last.as_deref().map(|line| (Line::read(line).ok(), Hash::of(line)));
        let head = match (read, all.back()) {
            (Some((Some(line), hash)), _) => Head { seq: line.seq, hash },
            // It goes on all the same; what is wrong before it is found by whoever verifies.
            (Some((None, hash)), _) => Head { seq: synced.seq.max(first), hash },
            (None, Some(earlier)) => {
                let line = end_of(&mut File::open(&earlier.1)?)?.last.unwrap_or_default();
                Head { seq: first.saturating_sub(1), hash: Hash::of(&line) }
            }
            (None, None) if first == 1 => Head::NONE,
            (None, None) => synced,
        };
        File::open(path)?.sync_all()?;
        let lost = synced.seq.saturating_sub(head.seq);
        let mended = (torn > 0 || lost > 0).then(|| Record {
            time: Timestamp::now(),
            act: "audit_mended".to_owned(),
            outcome: Outcome::Done,
            mended: Some(Mended { bytes: torn, lost }),
            ..Record::default()
        });
        let folder = Self { path: path.to_owned(), limits, file, length, before, first, head, head_file };
        Ok((folder, mended.into_iter().collect()))
    }

    /// Where it ends.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Begins another segment.
    fn rotate(&mut self) -> io::Result<()> {
        let first = self.head.seq + 1;
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(segment_path(&self.path, first))?;
        self.file.sync_data()?;
        File::open(&self.path)?.sync_all()?;
        self.before.push_back((self.first, self.length));
        (self.file, self.first, self.length) = (file, first, 0);
        Ok(())
    }

    /// Drops the oldest segments beyond the bound. The last hash of what goes is in the chain before it goes.
    fn drop_oldest(&mut self) -> io::Result<()> {
        let all = |folder: &Self| folder.length + folder.before.iter().map(|(_, length)| length).sum::<u64>();
        let (mut left, mut doomed) = (all(self), Vec::new());
        for (first, length) in &self.before {
            if left <= self.limits.all {
                break;
            }
            left -= length;
            doomed.push(*first);
        }
        let Some(last) = doomed.last() else { return Ok(()) };
        let next = self.before.get(doomed.len()).map_or(self.first, |(first, _)| *first);
        let line = end_of(&mut File::open(segment_path(&self.path, *last))?)?.last.unwrap_or_default();
        let record = Record {
            time: Timestamp::now(),
            act: "audit_dropped".to_owned(),
            dropped: Some(Dropped { seq: next - 1, hash: Hash::of(&line) }),
            ..Record::default()
        };
        self.write(&[record])?;
        self.file.sync_data()?;
        for first in doomed {
            fs::remove_file(segment_path(&self.path, first))?;
            self.before.pop_front();
        }
        Ok(())
    }

    /// All of these or none.
    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let (mut bytes, mut head) = (Vec::new(), self.head);
        for record in records {
            let (line, next) = Line::after(head, record.clone())?;
            bytes.extend_from_slice(&line);
            head = next;
        }
        if let Err(error) = self.file.write_all_at(&bytes, self.length) {
            // A part of it may be there, which takes room.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        self.head = head;
        Ok(())
    }
}

impl Sink for Folder {
    type Synced = Synced;

    fn append(&mut self, records: &[Record]) -> io::Result<()> {
        if self.length >= self.limits.segment && self.head.seq >= self.first {
            self.rotate()?;
        }
        self.write(records)?;
        // What cannot be dropped now is dropped later: what was to be written is written.
        self.drop_oldest().or(Ok(()))
    }

    fn written(&self) -> io::Result<Synced> {
        Ok(Synced { file: self.file.try_clone()?, head_file: self.head_file.try_clone()?, head: self.head })
    }
}

/// What was written, to be synced by another thread.
#[derive(Debug)]
pub struct Synced {
    file: File,
    head_file: File,
    head: Head,
}

impl Written for Synced {
    fn sync(&self) -> io::Result<Head> {
        self.file.sync_data()?;
        self.head_file.write_all_at(&self.head.to_file(), 0)?;
        Ok(self.head)
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
