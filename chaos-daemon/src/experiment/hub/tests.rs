//! Tests of the catalogue.

use std::collections::BTreeSet;
use std::process::Command;

use super::*;
use crate::experiment::Experiment;
use crate::experiment::variables::Nowhere;

fn built_in() -> Vec<Entry> {
    entries([]).unwrap()
}

fn here(directory: &Path) -> Hub {
    Hub { directory: directory.to_owned(), commit: None }
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
    let done = Command::new("git").arg("-C").arg(folder).args(settings).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn every_document_of_the_folder_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let there: BTreeSet<_> = here(&folder).entries().unwrap().into_iter().map(|entry| entry.name).collect();
    let known: BTreeSet<_> = built_in().into_iter().map(|entry| entry.name).collect();
    assert_eq!(there, known);
    assert!(known.len() >= 6);
}

#[test]
fn what_is_built_in_is_understood_without_being_told_anything_and_says_what_it_is() {
    for entry in built_in() {
        let source = Source::read(&entry.text).unwrap();
        let experiment = Experiment::parse(source.document(), &Nowhere)
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
    let all = entries([&here(folder.path())]).unwrap();
    assert_eq!((all[0].name.as_str(), all[0].title.as_str()), ("process-death", "mine"));
    assert!(all[0].has("ODD") && all[0].injects("packet_loss") && !all[0].has("unit"));
    assert_eq!(all.len(), built_in().len() + 1);
    fs::write(folder.path().join("broken.json"), "{").unwrap();
    assert!(entries([&here(folder.path())]).unwrap_err().field.ends_with("broken.json"));
    assert!(entries([&here(Path::new("/nonexistent/hub"))]).unwrap_err().field.contains("/nonexistent/hub"));
}

#[test]
fn a_commit_is_read_as_it_is_whatever_has_become_of_the_files() {
    let repository = tempfile::tempdir().unwrap();
    let folder = repository.path().join("chaos");
    fs::create_dir_all(folder.join("deeper.yaml")).unwrap();
    let write = |title: &str| fs::write(folder.join("one.yaml"), format!("title: {title}\n")).unwrap();
    write("first");
    fs::write(folder.join("deeper.yaml/two.yaml"), "title: below\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link.yaml")).unwrap();
    git(repository.path(), &["init", "--quiet"]);
    git(repository.path(), &["add", "."]);
    git(repository.path(), &["commit", "--quiet", "--message", "one"]);
    let commit = git(repository.path(), &["rev-parse", "HEAD"]);
    write("second");
    fs::write(folder.join("broken.yaml"), "{").unwrap();
    let pinned = format!("{}#{commit}", folder.display());
    let read = pinned.parse::<Hub>().unwrap().entries().unwrap();
    let [only] = read.as_slice() else { panic!("{read:?}") };
    assert_eq!((only.title.as_str(), only.hub.as_str()), ("first", pinned.as_str()));
    // Another commit is not looked for elsewhere, and no repository is none.
    let unknown = format!("{}#{}", folder.display(), "1".repeat(40)).parse::<Hub>().unwrap();
    assert!(unknown.entries().unwrap_err().problem.contains("nothing is fetched"));
    let elsewhere = tempfile::tempdir().unwrap();
    let none = format!("{}#{commit}", elsewhere.path().display()).parse::<Hub>().unwrap();
    assert!(none.entries().unwrap_err().problem.contains("not a git repository"));
}

#[test]
fn what_may_move_pins_nothing() {
    for name in ["main", "v1.0", "1234567", ""] {
        assert!(format!("/hub#{name}").parse::<Hub>().unwrap_err().contains("40 digits"), "{name}");
    }
    assert_eq!("/hub".parse::<Hub>().unwrap(), here(Path::new("/hub")));
}
