//! Tests of what `chaosctl validate` tells of files.

use super::*;

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn several_files_are_checked_at_once_and_each_problem_has_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let example = crate::experiment::schema::example().to_string();
    let files = vec![
        file(&folder, "good.json", &example),
        file(&folder, "bad.yaml", "title: a\nx: on\nmethod: []\nodd: 1\n"),
        file(&folder, "twice.json", "{\"title\": 1,\n \"title\": 2}"),
        folder.path().join("absent.yaml"),
    ];
    let (text, answer, code) = carry_out(&ValidateArgs { files, all: true }).unwrap_or_else(|_| panic!());
    assert_eq!((code, &answer["valid"]), (USAGE, &json!(false)));
    let found = answer["files"].as_array().unwrap();
    let valid: Vec<_> = found.iter().map(|found| found["valid"].as_bool().unwrap()).collect();
    assert_eq!(valid, [true, false, false, false]);
    let codes: Vec<_> =
        found[1]["problems"].as_array().unwrap().iter().map(|one| one["code"].clone()).collect();
    assert_eq!(codes, ["syntax", "unknown_field", "unknown_field"]);
    assert_eq!(found[2]["problems"][0]["line"], 2);
    assert!(text.contains("bad.yaml:2:4: x: on is not the same to every YAML program: quote it"), "{text}");
    assert!(text.contains("bad.yaml:3:9: warning: method: nothing is injected"), "{text}");
    assert!(text.contains("bad.yaml: 3 problems\n"), "{text}");
    assert!(text.contains("good.json: a valid experiment: "), "{text}");
}

#[test]
fn several_files_without_the_option_are_refused() {
    let files = vec![PathBuf::from("a"), PathBuf::from("b")];
    assert!(matches!(carry_out(&ValidateArgs { files, all: false }), Err(Failure::Usage(_))));
}
