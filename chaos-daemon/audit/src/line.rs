//! A record with its place in the chain.

use serde::{Deserialize, Serialize};

use crate::chain::Hash;
use crate::head::Head;
use crate::record::Record;

/// A line, as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its number: 1, and one more for each.
    pub seq: u64,
    /// The hash of the line before it.
    pub prev: Hash,
    /// What it says.
    #[serde(flatten)]
    pub record: Record,
}

impl Line {
    /// The line after `head`, with its line end, and where the chain ends with it.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn after(head: Head, record: Record) -> Result<(Vec<u8>, Head), serde_json::Error> {
        let line = Self { seq: head.seq + 1, prev: head.hash, record: record.bounded() };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        let head = Head { seq: line.seq, hash: Hash::of(&bytes) };
        Ok((bytes, head))
    }

    /// Reads a line, with or without its line end.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Who;

    #[test]
    fn whatever_a_caller_has_named_a_record_is_one_line_of_bounded_length_and_read_as_it_was() {
        let forged = "x\n{\"seq\":1}\r\u{2028}\u{0}\u{1b}[2J\"";
        let who = Who { exe: Some(forged.to_owned()), groups: (0..100_000).collect(), ..Who::default() };
        let record = Record {
            act: "inject".to_owned(),
            on: Some(forged.to_owned()),
            reason: Some("é".repeat(1 << 20)),
            who: Some(who),
            ..Record::default()
        };
        let (bytes, head) = Line::after(Head::NONE, record.clone()).unwrap();
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(bytes.len() < 4096 && bytes.ends_with(b"\n"), "{}", bytes.len());
        assert_eq!(head, Head { seq: 1, hash: Hash::of(&bytes) });
        let read = Line::read(&bytes).unwrap();
        assert_eq!((read.seq, read.prev), (1, Hash::NONE));
        assert_eq!(read.record, record.bounded());
        assert_eq!(read.record.on.as_deref(), Some(forged));
    }
}
