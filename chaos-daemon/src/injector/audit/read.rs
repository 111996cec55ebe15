//! What callers are told of the audit: root all of it, others what they have done, or what was theirs.

use std::path::Path;

use chaos_audit::{Line, Party, Segment, segments};

use crate::host::budget;
use crate::request::{ApiError, ErrorCode};
use crate::spec::Owner;

/// How many of the latest segments are looked at for somebody.
const MOST_SEGMENTS: usize = 2;

/// The latest lines that `viewer` may see, no more than `most`, the oldest first. Blocks.
///
/// # Errors
/// When they cannot be read, or its time is up.
pub(super) fn latest(folder: &Path, viewer: Owner, most: usize) -> Result<Vec<String>, ApiError> {
    let broken = |error: std::io::Error| {
        ApiError::new(ErrorCode::Unavailable, format!("read the audit in {}: {error}", folder.display()))
    };
    let mut found = Vec::new();
    for segment in segments(folder).map_err(broken)?.iter().rev().take(MOST_SEGMENTS) {
        let bytes = Segment::read(segment).map_err(broken)?.bytes;
        for line in bytes.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if found.len() >= most || budget::check().is_err() {
                break;
            }
            if is_seen(line, viewer) {
                found.push(String::from_utf8_lossy(line).into_owned());
            }
        }
    }
    found.reverse();
    Ok(found)
}

/// Whether somebody may see a line: root all, others what they have asked for, and how their faults have ended.
fn is_seen(line: &[u8], viewer: Owner) -> bool {
    if viewer.is_root() {
        return true;
    }
    let Ok(Line { record, .. }) = Line::read(line) else { return false };
    let is_own = match viewer {
        Owner::User(uid) => record.party() == Party::User(uid),
        Owner::Context(cid) => record.party() == Party::Context(cid),
    };
    let prefix = format!("{}/", viewer.qualifier());
    is_own || (record.who.is_none() && record.on.is_some_and(|on| on.starts_with(&prefix)))
}

#[cfg(test)]
mod tests {
    use chaos_audit::{Head, Record, Who};

    use super::*;

    #[test]
    fn others_than_root_see_what_they_have_done_and_how_theirs_has_ended_and_nothing_of_others() {
        let line = |who: Option<Who>, on: &str| {
            let record = Record { who, on: Some(on.to_owned()), ..Record::default() };
            Line::after(Head::NONE, record).unwrap().0
        };
        let user = |uid| Some(Who { uid: Some(uid), ..Who::default() });
        let far = Some(Who { cid: Some(1001), ..Who::default() });
        for (line, seen) in [
            (line(user(1001), "1002/slow"), true),
            (line(None, "1001/slow"), true),
            (line(user(1002), "1001/slow"), false),
            (line(None, "1002/slow"), false),
            (line(None, "10015/slow"), false),
            (line(far, "slow"), false),
        ] {
            let told = String::from_utf8_lossy(&line);
            assert_eq!(is_seen(&line, Owner::User(1001)), seen, "{told}");
            assert!(is_seen(&line, Owner::ROOT));
        }
    }
}
