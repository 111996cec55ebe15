//! Tests of the catalogue, with the real grammar of `chaosctl`.

use std::collections::BTreeSet;

use super::*;
use crate::cli::native as grammar;
use crate::experiment::Experiment;
use crate::experiment::variables::Nowhere;
use crate::spec::FaultType;

fn built_in() -> Vec<Entry> {
    entries([]).unwrap()
}

#[test]
fn every_document_of_the_folder_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let there: BTreeSet<_> = of_directory(&folder).unwrap().into_iter().map(|entry| entry.name).collect();
    let known: BTreeSet<_> = built_in().into_iter().map(|entry| entry.name).collect();
    assert_eq!(there, known);
    assert!(known.len() >= 5);
}

#[test]
fn what_is_built_in_is_understood_without_being_told_anything_and_says_what_it_is() {
    for entry in built_in() {
        let source = Source::read(&entry.text).unwrap();
        let experiment = Experiment::parse(source.document(), grammar, &Nowhere)
            .unwrap_or_else(|error| panic!("{}: {}", entry.name, source.place(&entry.file, error)));
        assert_eq!(experiment.name, entry.title);
        assert!(!entry.description.is_empty() && !entry.categories.is_empty(), "{}", entry.name);
        assert_eq!(entry.faults.len(), experiment.faults().count(), "{}", entry.name);
        for fault in &entry.faults {
            FaultType::parse(&fault.replace('-', "_")).unwrap();
        }
        // Whatever differs from host to host can be told.
        assert!(entry.parameters.iter().all(|parameter| {
            let environment = parameter.environment.as_deref();
            environment.is_some_and(|key| key.starts_with("CHAOS_")) && parameter.default.is_some()
        }));
    }
}

#[test]
fn documents_of_directories_come_first_and_what_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mine = "title: mine\ntags: [odd]\nmethod: [{provider: {arguments: [inject, packet-loss]}}]\n";
    fs::write(folder.path().join("process-death.yml"), mine).unwrap();
    fs::write(folder.path().join("notes.txt"), "not: [a document").unwrap();
    let all = entries([folder.path()]).unwrap();
    assert_eq!((all[0].name.as_str(), all[0].title.as_str()), ("process-death", "mine"));
    assert!(all[0].has("ODD") && all[0].injects("packet_loss") && !all[0].has("unit"));
    assert_eq!(all.len(), built_in().len() + 1);
    fs::write(folder.path().join("broken.json"), "{").unwrap();
    assert!(entries([folder.path()]).unwrap_err().field.ends_with("broken.json"));
    assert!(entries([Path::new("/nonexistent/hub")]).unwrap_err().field.contains("/nonexistent/hub"));
}
