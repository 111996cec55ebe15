//! Only the tests in the VM with systemd may switch on what takes a host down.

use std::fs;
use std::path::Path;

/// The one place where the host is a test's to take down.
const ALLOWED: &str = "src/systemd/going_down.rs";

fn offenders(folder: &Path, found: &mut Vec<String>) {
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            offenders(&path, found);
        } else if !path.ends_with(ALLOWED) {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            let on = |switch: &str| text.replace(' ', "").contains(&format!("{switch}={}", true));
            if ["host_reboot", "host_panic"].into_iter().any(on) {
                found.push(path.display().to_string());
            }
        }
    }
}

#[test]
fn nobody_else_switches_on_what_takes_a_host_down() {
    let mut found = Vec::new();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "systemd"] {
        offenders(&tests.join(folder), &mut found);
    }
    assert!(found.is_empty(), "{found:?}");
    // It would be found there.
    let mut allowed = fs::read_to_string(tests.join(ALLOWED)).unwrap();
    allowed.retain(|letter| letter != ' ');
    assert!(allowed.contains(&format!("host_panic={}", true)));
}
