//! Whether a chain is whole: a pure function of its bytes, and of the heads that are known.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::chain::Hash;
use crate::head::Head;
use crate::line::Line;
use crate::record::{Dropped, Record};

/// No more problems are told: one change may break every line behind it.
const MOST_PROBLEMS: usize = 50;

/// A part of a chain, as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// For people.
    pub name: String,
    /// The number of its first line, by its name.
    pub first: u64,
    /// All that is in it.
    pub bytes: Vec<u8>,
}

/// What is wrong with a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The segment that it was seen in; empty of the chain as a whole.
    pub segment: String,
    /// The line of that file, from 1; 0 of the segment as a whole.
    pub line: u64,
    /// What, in words.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.segment.as_str(), self.line) {
            ("", _) => f.write_str(&self.what),
            (segment, 0) => write!(f, "{segment}: {}", self.what),
            (segment, line) => write!(f, "{segment}:{line}: {}", self.what),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// How many lines there are.
    pub lines: u64,
    /// The number of the first; 0 without a line.
    pub first: u64,
    /// Where it ends; nothing without a line.
    pub head: Option<Head>,
    /// How many heads that others have kept are those of lines that are there.
    pub heads_met: u64,
    /// How many are of lines that were dropped to keep within the bound.
    pub heads_dropped: u64,
    /// What is wrong; nothing of a chain that is whole.
    pub problems: Vec<Problem>,
    /// What is worth knowing, and no change: a line that a crash has cut.
    pub notes: Vec<String>,
}

impl Verified {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks at a chain: each of its segments, in order; the head that is kept beside it; and those that others have kept.
pub fn verify(
    segments: impl IntoIterator<Item = Segment>,
    beside: Option<Head>,
    elsewhere: &[(Head, String)],
) -> Verified {
    let mut look = Look::default();
    for (head, whose) in elsewhere {
        look.known.entry(head.seq).or_default().push((head.hash, whose.clone()));
    }
    if let Some(head) = beside {
        look.known.entry(head.seq).or_default().push((head.hash, "the file beside the chain".to_owned()));
    }
    for segment in segments {
        look.segment(&segment);
    }
    look.end(beside)
}

/// What is known while one line after the other is looked at.
#[derive(Default)]
struct Look {
    verified: Verified,
    /// Where it ends so far.
    head: Option<Head>,
    /// What the very first line has before it.
    base: Option<Head>,
    dropped: Option<Dropped>,
    /// The heads that are to be met, by their numbers.
    known: BTreeMap<u64, Vec<(Hash, String)>>,
    /// Whether the last line that was looked at has no end.
    is_cut: bool,
}

impl Look {
    fn problem(&mut self, segment: &str, line: u64, what: String) {
        if self.verified.problems.len() < MOST_PROBLEMS {
            self.verified.problems.push(Problem { segment: segment.to_owned(), line, what });
        }
    }

    fn segment(&mut self, Segment { name, first, bytes }: &Segment) {
        if self.is_cut {
            self.problem(name, 0, "the segment before it ends in the middle of a line".to_owned());
            self.is_cut = false;
        }
        let next = self.head.map(|head| head.seq + 1);
        if next.is_some_and(|next| next != *first) {
            self.problem(name, 0, format!("it should begin with line {}", next.unwrap_or_default()));
        }
        let mut is_first = true;
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let number = index as u64 + 1;
            if !line.ends_with(b"\n") {
                self.problem(name, number, "it ends in the middle of a line".to_owned());
                self.is_cut = true;
            }
            let Ok(read) = Line::read(line) else {
                self.problem(name, number, "this is no line of the audit".to_owned());
                // Only what comes after it can be held against it.
                self.head = self.head.map(|head| Head { seq: head.seq + 1, hash: Hash::of(line) });
                continue;
            };
            if is_first && read.seq != *first {
                self.problem(name, number, format!("by its name the segment begins with line {first}"));
            }
            is_first = false;
            self.line(name, number, (&read, line));
        }
    }

    fn line(&mut self, name: &str, number: u64, (line, bytes): (&Line, &[u8])) {
        let before = match self.head {
            Some(head) => head,
            None => {
                let base = Head { seq: line.seq.saturating_sub(1), hash: line.prev };
                self.verified.first = line.seq;
                *self.base.insert(base)
            }
        };
        match (line.seq == before.seq + 1, line.prev == before.hash) {
            (true, true) => {}
            (false, _) => {
                let what = format!("line {} is here where line {} should be", line.seq, before.seq + 1);
                self.problem(name, number, what);
            }
            (true, false) => {
                let what = format!("line {} does not follow what is before it, which was changed", line.seq);
                self.problem(name, number, what);
            }
        }
        let head = Head { seq: line.seq, hash: Hash::of(bytes) };
        self.head = Some(head);
        self.verified.lines += 1;
        for (hash, whose) in self.known.remove(&line.seq).unwrap_or_default() {
            if hash == head.hash {
                self.verified.heads_met += 1;
            } else {
                let what = format!("line {} is another than {whose} knows", line.seq);
                self.problem(name, number, what);
            }
        }
        self.said(&line.record, name, number);
    }

    /// What a line says of the chain itself.
    fn said(&mut self, record: &Record, name: &str, number: u64) {
        if let Some(dropped) = &record.dropped {
            self.dropped = Some(dropped.clone());
        }
        let Some(mended) = &record.mended else { return };
        if mended.bytes > 0 {
            let bytes = mended.bytes;
            self.verified.notes.push(format!(
                "{name}:{number}: a crash had cut a line: {bytes} bytes of it were taken away when the daemon started"
            ));
        }
        if mended.lost > 0 {
            let lost = mended.lost;
            let what =
                format!("when the daemon started, {lost} lines that had been synced were missing before it");
            self.problem(name, number, what);
        }
    }

    fn end(mut self, beside: Option<Head>) -> Verified {
        if self.is_cut {
            // A daemon that goes on mends it when it starts.
            self.verified.notes.push("the last line was not written to its end".to_owned());
        }
        let base = self.base.unwrap_or(Head::NONE);
        // Segments that were to be dropped may be there still: the daemon died meanwhile.
        let expected = match &self.dropped {
            Some(dropped) if dropped.seq <= base.seq => Head { seq: dropped.seq, hash: dropped.hash },
            Some(_) => base,
            None => Head::NONE,
        };
        if self.verified.lines > 0 && base != expected {
            let what = match base.seq.checked_sub(expected.seq) {
                Some(missing) if missing > 0 => format!(
                    "lines {} to {} are missing before the first, and nothing says that they were dropped",
                    expected.seq + 1,
                    base.seq
                ),
                _ => "the first line does not follow those that were dropped before it".to_owned(),
            };
            self.problem("", 0, what);
        }
        if beside.is_none() && self.verified.lines > 0 {
            self.problem("", 0, "there is no head beside the chain".to_owned());
        }
        let last = self.head.map_or(0, |head| head.seq);
        for (seq, heads) in std::mem::take(&mut self.known) {
            for (_, whose) in heads {
                match seq {
                    0 => {}
                    _ if seq <= base.seq && self.verified.lines > 0 => self.verified.heads_dropped += 1,
                    _ if seq > last => {
                        let what =
                            format!("the end is missing: {whose} knows line {seq}, and the last is {last}");
                        self.problem("", 0, what);
                    }
                    _ => self.problem("", 0, format!("line {seq}, which {whose} knows, is missing")),
                }
            }
        }
        self.verified.head = self.head;
        self.verified
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
