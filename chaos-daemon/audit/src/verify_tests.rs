//! What is told of each kind of change.

use super::*;
use crate::audit::Sink as _;
use crate::folder::{Folder, Limits};
use crate::mutation_tests::{read, record, write};

const LIMITS: Limits = Limits { segment: 4 << 10, all: 1 << 20 };

#[test]
fn each_kind_of_change_is_told_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let head = write(folder.path(), 60, LIMITS);
    let whole = read(folder.path());
    let found = verify(whole.clone(), Some(head), &[]);
    assert_eq!((found.lines, found.first, found.head, found.heads_met), (60, 1, Some(head), 1));
    let told = |change: &dyn Fn(&mut Vec<Segment>), beside| {
        let mut all = whole.clone();
        change(&mut all);
        let found = verify(all, beside, &[]);
        found.problems.first().map(ToString::to_string).unwrap_or_default()
    };
    let without = |all: &mut Vec<Segment>, text: &str| {
        let bytes = String::from_utf8(all[1].bytes.clone()).unwrap();
        all[1].bytes = bytes.replacen(text, "", 1).into_bytes();
    };
    let beside = Some(head);
    for (told, expected) in [
        (told(&|all| without(all, "fault"), beside), "which was changed"),
        (told(&|all| without(all, "{"), beside), "no line of the audit"),
        (told(&|all| drop(all.remove(1)), beside), "it should begin with line"),
        (told(&|all| drop(all.remove(0)), beside), "nothing says that they were dropped"),
        (told(&|all| drop(all.pop()), beside), "the end is missing"),
        (told(&|all| all[0].bytes.extend_from_within(..), beside), "line 1 is here where line"),
        (told(&|_| {}, None), "there is no head beside"),
        (told(&|_| {}, Some(Head { hash: Hash::NONE, ..head })), "is another than"),
    ] {
        assert!(told.contains(expected), "{told:?}, and not {expected:?}");
    }
}

#[test]
fn what_was_dropped_to_keep_within_the_bound_is_no_change_and_what_else_is_missing_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let head = write(folder.path(), 400, Limits { all: 20 << 10, ..LIMITS });
    let whole = read(folder.path());
    assert!(whole[0].first > 100, "{}", whole[0].first);
    let early = (Head { seq: 50, hash: Hash::of(b"whatever") }, "the journal".to_owned());
    let found = verify(whole.clone(), Some(head), &[early]);
    assert_eq!((found.problems, found.heads_dropped), (Vec::new(), 1));
    let found = verify(whole[1..].to_vec(), Some(head), &[]);
    assert!(found.problems[0].what.contains("are missing before the first"), "{:?}", found.problems);
}

#[test]
fn a_chain_that_is_opened_again_goes_on_and_nobody_writes_it_beside() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 30, LIMITS);
    let head = write(folder.path(), 30, LIMITS);
    let (open, _) = Folder::open(folder.path(), LIMITS).unwrap();
    assert!(Folder::open(folder.path(), LIMITS).is_err());
    drop(open);
    let (mut chain, said) = Folder::open(folder.path(), LIMITS).unwrap();
    assert_eq!(said, []);
    chain.append(&[record(1)]).unwrap();
    let found = verify(read(folder.path()), Some(head), &[]);
    assert_eq!((found.lines, found.problems), (61, Vec::new()));
}
