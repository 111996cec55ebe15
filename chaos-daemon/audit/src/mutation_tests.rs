//! Mutations of a chain: each is found, but for those that only who may write the files can make, and that are named here.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// How many mutations of each seed.
const MUTATIONS: u32 = 10_000;

pub(crate) fn record(number: u64) -> Record {
    let who = Some(Who { uid: Some(1000 + (number % 3) as u32), gid: Some(1000), ..Who::default() });
    let time = Timestamp::from_second(1_700_000_000 + number as i64).unwrap();
    Record {
        time,
        who,
        act: "inject".to_owned(),
        on: Some(format!("fault-{}", number % 7)),
        ..Record::default()
    }
}

/// A chain of so many lines, of which the oldest are gone.
pub(crate) fn write(folder: &Path, lines: u64, limits: Limits) -> Head {
    let (mut chain, first) = Folder::open(folder, limits).unwrap();
    chain.append(&first).unwrap();
    for number in 0..lines {
        chain.append(&[record(number)]).unwrap();
    }
    chain.written().unwrap().sync().unwrap()
}

pub(crate) fn read(folder: &Path) -> Vec<Segment> {
    segments(folder).unwrap().iter().map(|each| Segment::read(each).unwrap()).collect()
}

fn lines(segment: &Segment) -> Vec<Vec<u8>> {
    segment.bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// A segment, and the place of a line in it.
fn place(rng: &mut StdRng, all: &[Segment]) -> (usize, usize) {
    let segment = rng.random_range(0..all.len());
    let count = all.get(segment).map_or(0, |segment| lines(segment).len());
    (segment, rng.random_range(0..count))
}

fn with_lines(all: &mut [Segment], segment: usize, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
    let mut changed = lines(&all[segment]);
    change(&mut changed);
    all[segment].bytes = changed.concat();
}

/// One change; `other` is another chain of the same length.
fn mutate(rng: &mut StdRng, all: &mut Vec<Segment>, other: &[Segment]) -> &'static str {
    let (segment, line) = place(rng, all);
    match rng.random_range(0..9) {
        0 => {
            let at = rng.random_range(0..all[segment].bytes.len());
            all[segment].bytes[at] ^= 1 << rng.random_range(0..8);
            "edit"
        }
        1 => {
            with_lines(all, segment, |lines| drop(lines.remove(line)));
            "drop a line"
        }
        2 => {
            let (to, there) = place(rng, all);
            let (one, two) = (lines(&all[segment])[line].clone(), lines(&all[to])[there].clone());
            with_lines(all, segment, |lines| lines[line] = two);
            with_lines(all, to, |lines| lines[there] = one);
            "swap"
        }
        3 => {
            let length = rng.random_range(0..all[segment].bytes.len());
            all[segment].bytes.truncate(length);
            all.truncate(segment + 1);
            "cut at a byte"
        }
        4 => {
            with_lines(all, segment, |lines| lines.truncate(line));
            all.truncate(segment + 1);
            "cut at a line"
        }
        5 => {
            let theirs = lines(&other[rng.random_range(0..other.len())]);
            let from = rng.random_range(0..theirs.len());
            let some = theirs[from..theirs.len().min(from + 5)].to_vec();
            with_lines(all, segment, |lines| drop(lines.splice(line..line, some)));
            "splice another chain in"
        }
        6 => {
            with_lines(all, segment, |lines| lines.insert(line, lines[line].clone()));
            "duplicate"
        }
        7 => {
            all.remove(segment);
            "drop a segment"
        }
        _ => {
            // With its right place, and nothing behind it written anew.
            let before = all.iter().flat_map(lines).nth(rng.random_range(0..20)).unwrap();
            let head = Head { seq: Line::read(&before).unwrap().seq, hash: Hash::of(&before) };
            let (forged, _) = Line::after(head, record(999)).unwrap();
            with_lines(all, 0, |lines| match lines.iter().position(|line| *line == before) {
                Some(at) => lines.insert(at + 1, forged),
                None => lines.push(forged),
            });
            "insert"
        }
    }
}

#[test]
fn each_of_10_000_mutations_is_found() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { segment: 6 << 10, all: 40 << 10 };
    let head = write(ours.path(), 400, limits);
    write(theirs.path(), 401, limits);
    let (whole, other) = (read(ours.path()), read(theirs.path()));
    assert!(whole.len() > 3 && whole[0].first > 1, "{} segments", whole.len());
    assert_eq!(verify(whole.clone(), Some(head), &[]).problems, []);
    let mut rng = StdRng::seed_from_u64(33);
    let mut kinds = std::collections::BTreeMap::new();
    for number in 0..MUTATIONS {
        let mut all = whole.clone();
        let kind = mutate(&mut rng, &mut all, &other);
        if all != whole {
            let found = verify(all, Some(head), &[]);
            assert!(!found.is_whole(), "mutation {number}, {kind}, was not found");
            *kinds.entry(kind).or_insert(0) += 1;
        }
    }
    assert!(kinds.len() == 9 && kinds.values().all(|count| *count > 800), "{kinds:?}");
}

/// Writes the chain anew from a line on, without that one, and its head with it.
fn forge(whole: &[Segment], from: usize) -> (Vec<Segment>, Head, u64) {
    let all: Vec<_> = whole.iter().flat_map(lines).collect();
    let first = Line::read(&all[from]).unwrap();
    let mut head = Head { seq: first.seq - 1, hash: first.prev };
    let mut bytes = all[..from].concat();
    for line in &all[from + 1..] {
        let (line, next) = Line::after(head, Line::read(line).unwrap().record).unwrap();
        bytes.extend(line);
        head = next;
    }
    let segment = Segment { name: "one".to_owned(), first: whole[0].first, bytes };
    (vec![segment], head, first.seq)
}

#[test]
fn what_root_alone_can_forge_is_found_by_each_head_behind_it_that_somebody_else_has_kept_and_by_nothing_else()
{
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Vec::new();
    {
        let (mut chain, _) = Folder::open(folder.path(), Limits { segment: 1 << 20, all: 1 << 20 }).unwrap();
        for number in 0..200 {
            chain.append(&[record(number)]).unwrap();
            if number % 50 == 49 {
                kept.push((chain.head(), "the journal".to_owned()));
            }
        }
    }
    let whole = read(folder.path());
    for from in 0..200 {
        let (forged, head, seq) = forge(&whole, from);
        let alone = verify(forged.clone(), Some(head), &[]);
        let held = verify(forged, Some(head), &kept);
        assert!(alone.is_whole(), "line {seq}: {:?}", alone.problems);
        assert_eq!(held.is_whole(), kept.iter().all(|(head, _)| head.seq < seq), "line {seq}");
    }
    // Root may also add what has not been.
    let end = kept[3].0;
    let mut longer = whole.clone();
    longer[0].bytes.extend(Line::after(end, record(7)).unwrap().0);
    assert!(verify(longer, Some(end), &kept).is_whole());
    // With all files gone, the heads of others are all that is left.
    assert!(!verify([], None, &kept).is_whole());
    assert!(fs::remove_dir_all(folder.path()).is_ok());
}
