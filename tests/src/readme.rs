//! The README's table of faults is the one that the code has. `cargo xtask tidy --fix` writes it.

use std::fs;
use std::path::Path;

use chaos_daemon::spec::FAULT_TYPES;

const BEGIN: &str = "<!-- faults:begin -->";
const END: &str = "<!-- faults:end -->";

fn table() -> String {
    let mut text = String::from("| fault | what it does | parameters (default) |\n|---|---|---|\n");
    for fault in FAULT_TYPES {
        text.push_str(&format!("| `{}` | {} | {} |\n", fault.name(), fault.summary(), fault.parameters()));
    }
    text
}

#[test]
fn the_readme_lists_the_faults_that_the_code_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("a line with faults:begin");
    let (written, after) = rest.split_once(END).expect("a line with faults:end");
    let wanted = format!("\n{}", table());
    if std::env::var_os("CHAOS_FIX").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(written, wanted, "the README is stale: cargo xtask tidy --fix");
}
