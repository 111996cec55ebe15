//! Unit tests.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::chosen::{Chosen, quoted};
use crate::error::Error;
use crate::run;
use crate::said::{DOC_TESTS, Libtest};
use crate::summary::Tally;

/// Unit tests of every crate, or of those that are filters. What chaos-tests has in `tests/` needs root: that is another step.
pub(super) fn unit(chosen: &Chosen) -> Result<Tally, Error> {
    const TESTS: &str = "chaos-tests";
    let mut tally = Tally::default();
    let wants =
        |package: &str| chosen.filters.is_empty() || chosen.filters.iter().any(|name| name == package);
    let others: Vec<_> = chosen.filters.iter().filter(|name| *name != TESTS).collect();
    if chosen.filters.is_empty() {
        cargo_test(&["--workspace".into(), format!("--exclude={TESTS}")], &mut tally)?;
    } else if !others.is_empty() {
        let packages: Vec<_> = others.iter().map(|name| format!("--package={name}")).collect();
        cargo_test(&packages, &mut tally)?;
    }
    if wants(TESTS) {
        cargo_test(&[format!("--package={TESTS}"), "--lib".into()], &mut tally)?;
    }
    Ok(tally)
}

/// Runs cargo, and shows what it says but for what passes.
fn cargo_test(what: &[String], tally: &mut Tally) -> Result<(), Error> {
    let failed = |source| Error::Start { program: "a pipe".into(), source };
    // One pipe for both, so that what cargo says of a program comes before what the program says.
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let mut command = run::cargo();
    command.args(["test", "--no-fail-fast"]).args(what).env("CARGO_TERM_COLOR", "never");
    command.env("RUST_TEST_THREADS", threads().to_string());
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut process = command.spawn().map_err(|source| run::start_error(&command, source))?;
    // It holds the other end of the pipe.
    drop(command);
    let mut libtest = Libtest::default();
    for line in BufReader::new(reader).lines() {
        let line = line.map_err(failed)?;
        if libtest.read(&line, tally, &replay) {
            println!("{line}");
        }
    }
    let status = process.wait().map_err(|source| Error::Start { program: "cargo".into(), source })?;
    let ran = libtest.ran;
    if ran.passed != ran.announced || status.success() == (ran.failed > 0) {
        tally.fail(format!("cargo test {}: {status}, {ran:?}", what.join(" ")));
    }
    Ok(())
}

/// How many tests are run at once: most of them wait, for samples and for time-outs.
fn threads() -> usize {
    3 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// The command that runs one test, by what cargo calls its program: the source and the executable.
fn replay(program: &str, test: &str) -> String {
    let target = target(program).unwrap_or_else(|| "--workspace".to_owned());
    format!("cargo test {target} {} -- --exact", quoted(test))
}

/// `unittests src/lib.rs (target/debug/deps/chaos_daemon-0123456789abcdef)`, `tests/lines.rs (…)`.
fn target(program: &str) -> Option<String> {
    if let Some(name) = program.strip_prefix(DOC_TESTS) {
        return Some(format!("--package {} --doc", name.replace('_', "-")));
    }
    let (source, executable) = program.split_once(" (")?;
    let name = executable.trim_end_matches(')').rsplit('/').next()?.rsplit_once('-')?.0;
    match source.strip_prefix("unittests ") {
        Some("src/lib.rs") => Some(format!("--package {} --lib", name.replace('_', "-"))),
        Some("src/main.rs") => Some(format!("--workspace --bin {}", name.replace('_', "-"))),
        Some(source) => Some(format!("--workspace --bin {}", stem(source)?)),
        None => Some(format!("--workspace --test {}", stem(source)?)),
    }
}

/// The name of a file, or of the folder whose main file it is.
fn stem(source: &str) -> Option<&str> {
    let path = source.strip_suffix("/main.rs").or_else(|| source.strip_suffix(".rs"))?;
    path.rsplit('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_test_is_run_again_by_the_target_in_which_it_is() {
        let command = |program: &str| replay(program, "a::b");
        for (program, target) in [
            (
                "unittests src/lib.rs (target/debug/deps/chaos_daemon-0123456789abcdef)",
                "--package chaos-daemon --lib",
            ),
            ("unittests src/main.rs (/t/debug/deps/xtask-0123456789abcdef)", "--workspace --bin xtask"),
            ("unittests src/bin/chaosctl.rs (t/chaosctl-0123456789abcdef)", "--workspace --bin chaosctl"),
            ("tests/mcp/main.rs (t/mcp-0123456789abcdef)", "--workspace --test mcp"),
            ("tests/lines.rs (t/lines-0123456789abcdef)", "--workspace --test lines"),
            ("Doc-tests chaos_common", "--package chaos-common --doc"),
            ("", "--workspace"),
        ] {
            assert_eq!(command(program), format!("cargo test {target} a::b -- --exact"));
        }
    }
}
