//! What cargo-fuzz has found so far is borne by every reader.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::*;

/// The package of cargo-fuzz.
fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_reader_bears_every_file_of_its_corpus() {
    let mut broken = Vec::new();
    for corpus in entries(&fuzz().join("corpus")) {
        for path in entries(&corpus) {
            let bytes = fs::read(&path).unwrap();
            if catch_unwind(AssertUnwindSafe(|| read(&name(&corpus), &bytes))).is_err() {
                broken.push(path.display().to_string());
            }
        }
    }
    assert!(broken.is_empty(), "not borne, see above:\n{}", broken.join("\n"));
}

#[test]
fn every_reader_has_a_target_and_a_corpus() {
    let readers: BTreeSet<_> = READERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let corpora = entries(&fuzz().join("corpus"));
    assert!(corpora.iter().all(|corpus| !entries(corpus).is_empty()));
    assert_eq!(corpora.iter().map(|path| name(path)).collect::<BTreeSet<_>>(), readers);
    let manifest: toml::Table = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap().parse().unwrap();
    let targets = manifest["bin"].as_array().unwrap().iter();
    let targets: BTreeSet<_> = targets.map(|bin| bin["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(targets, readers);
}

#[test]
fn the_most_memory_that_something_takes_is_known_of_each_part_and_of_the_whole() {
    let inner = |bytes: usize| peak_of(|| drop(vec![1_u8; bytes]));
    let whole = peak_of(|| {
        let kept = vec![1_u8; 1000];
        assert_eq!(inner(5000), 5000);
        assert_eq!(inner(3000), 3000);
        drop(kept);
    });
    assert_eq!(whole, 6000);
}

#[test]
fn who_takes_too_much_memory_or_time_is_told() {
    let work = || drop(vec![1_u8; 1000]);
    let told = |most, longest| catch_unwind(AssertUnwindSafe(|| within(most, longest, work))).is_err();
    assert!(!told(1000, LONGEST));
    assert!(told(999, LONGEST) && told(1000, Duration::ZERO));
}

#[test]
fn only_the_last_digit_of_a_fraction_may_differ() {
    let alike = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| serde_json::from_str(text).unwrap());
        are_alike(&one, &other)
    };
    assert!(alike(r#"{"a":[0.1,7]}"#, r#"{"a":[0.10000000000000002,7]}"#));
    for (one, other) in
        [("0.1", "0.1001"), ("7", "8"), ("7", "null"), (r#"{"a":1}"#, r#"{"b":1}"#), ("[1]", "[1,1]")]
    {
        assert!(!alike(one, other), "{one} {other}");
    }
}
