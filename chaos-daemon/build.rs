//! Links the programs that tests start, also those of `tests/`, so that nothing of them has to be moved when they start.

fn main() {
    // Of the package that this is built for: a file that is not there would have it compiled again each time.
    println!("cargo::rerun-if-changed=Cargo.toml");
    // A program at a random address (PIE) has each pointer in it put right at each start, and a test starts dozens of programs. What is
    // installed is built by another profile, and keeps its random address.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-link-arg=-no-pie");
    }
}
