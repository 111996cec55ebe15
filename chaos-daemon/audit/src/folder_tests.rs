//! A chain on disk: crashes, bounds, modes.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::mutation_tests::{read, record, write};
use crate::verify::verify;

const LIMITS: Limits = Limits { segment: 4 << 10, all: 24 << 10 };

#[test]
fn a_crash_at_any_byte_of_the_last_line_is_mended_at_the_next_start_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { segment: 1 << 20, all: 1 << 20 };
    write(folder.path(), 5, limits);
    let path = segment_path(folder.path(), 1);
    let whole = fs::read(&path).unwrap();
    let next = Line::after(Head::beside(folder.path()).unwrap(), record(5)).unwrap().0;
    for torn in 1..next.len() {
        fs::write(&path, [&whole[..], &next[..torn]].concat()).unwrap();
        let (mut chain, said) = Folder::open(folder.path(), limits).unwrap();
        let mended = said[0].mended.clone().unwrap();
        assert_eq!((mended.bytes, mended.lost), (torn as u64, 0));
        chain.append(&said).unwrap();
        chain.append(&[record(6)]).unwrap();
        let found = verify(read(folder.path()), Head::beside(folder.path()), &[]);
        assert_eq!((found.lines, found.problems, found.notes.len()), (7, Vec::new(), 1));
    }
}

#[test]
fn lines_that_had_been_synced_and_are_missing_at_the_next_start_are_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 5, Limits { segment: 1 << 20, all: 1 << 20 });
    let path = segment_path(folder.path(), 1);
    let text = fs::read_to_string(&path).unwrap();
    let cut: Vec<_> = text.split_inclusive('\n').take(3).collect();
    fs::write(&path, cut.concat()).unwrap();
    // The daemon starts, and goes on as if nothing had been.
    let head = write(folder.path(), 9, Limits { segment: 1 << 20, all: 1 << 20 });
    let found = verify(read(folder.path()), Some(head), &[]);
    assert!(
        found.problems.iter().any(|problem| problem.what.contains("2 lines that had been synced")),
        "{found:?}"
    );
}

#[test]
fn all_of_it_keeps_within_its_bound_and_only_root_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let chain = folder.path().join("audit");
    let head = write(&chain, 2000, LIMITS);
    let room: u64 = read(&chain).iter().map(|segment| segment.bytes.len() as u64).sum();
    assert!(room <= LIMITS.all + LIMITS.segment && room > LIMITS.all / 2, "{room}");
    assert!(head.seq > 2000, "what was dropped is said");
    let found = verify(read(&chain), Some(head), &[]);
    assert_eq!(found.problems, []);
    for path in [chain.clone(), chain.join(HEAD), segments(&chain).unwrap()[0].1.clone()] {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
}

#[test]
fn a_daemon_that_dies_between_saying_what_it_drops_and_dropping_it_leaves_a_chain_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = Vec::new();
    let (mut chain, _) = Folder::open(folder.path(), LIMITS).unwrap();
    while segments(folder.path()).unwrap()[0].0 == 1 {
        before = read(folder.path());
        chain.append(&[record(1)]).unwrap();
    }
    let first = &before[0];
    fs::write(segment_path(folder.path(), first.first), &first.bytes).unwrap();
    drop(chain);
    let head = write(folder.path(), 10, LIMITS);
    let found = verify(read(folder.path()), Some(head), &[]);
    assert_eq!(found.problems, []);
}
