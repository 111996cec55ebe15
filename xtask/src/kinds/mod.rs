//! `cargo xtask kinds`: the table of every kind of fault on every kernel, from what the tests have said.
//!
//! What is a kind, and which tests see it act, is the list of chaos-tests (`tests/src/kinds`), which its program `kinds` prints.
//! What they said is kept from run to run: a complete `cargo xtask test` begins anew, and whatever else runs kernel tests adds to it.

mod kept;
mod table;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use crate::artifacts;
use crate::error::Error;
use crate::run;
use crate::summary::Tally;
use crate::verdict::Verdict;
use crate::vm::Heard;
use kept::Kept;
pub(crate) use kept::Place;
use table::Table;

/// The tests on the kernels, and those of the installed package.
pub(crate) const KERNEL_TESTS: &str = "kernel-tests";
pub(crate) const SYSTEMD_TESTS: &str = "systemd-tests";

/// A line of the table, as the list has it.
#[derive(Debug, Deserialize)]
struct Row {
    kind: String,
    what: String,
    /// With their suite; all of them see it act.
    tests: Vec<String>,
    refused: Option<Refused>,
}

/// Who sees it refused where it is not possible, or not tried.
#[derive(Debug, Deserialize)]
struct Refused {
    test: String,
    /// What its words begin with if it is not possible.
    begins: String,
    /// What they begin with if only nobody tries it.
    untried: String,
}

/// Where what the tests said is kept, and where the table is written.
fn kept_file() -> PathBuf {
    run::root().join("target/kinds.json")
}

fn table_file() -> PathBuf {
    run::root().join("target/kinds.md")
}

/// Held while what is kept is read and written: suites run side by side.
static KEEPING: Mutex<()> = Mutex::new(());

/// Changes what is kept.
fn change(change: impl FnOnce(&mut Kept)) -> Result<(), Error> {
    let _alone = KEEPING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut kept = Kept::read(&kept_file())?;
    change(&mut kept);
    kept.write(&kept_file())
}

/// Forgets what other runs have said; the tests with systemd are known to be left out until a VM has run a share of them.
pub(crate) fn begin() -> Result<(), Error> {
    let mut kept = Kept::default();
    kept.leave_out(SYSTEMD_TESTS, "no VM with systemd was run");
    kept.write(&kept_file())
}

/// Keeps what the tests of a suite have said in one place.
pub(crate) fn keep(place: Place, suite: &str, verdicts: &[Verdict]) -> Result<(), Error> {
    change(|kept| kept.add(place, suite, verdicts))
}

/// Keeps what they have said in VMs, and where the others of the suite are that were not meant to run there.
pub(crate) fn keep_heard(suite: &str, heard: &[Heard], others: Option<String>) -> Result<(), Error> {
    change(|kept| {
        heard.iter().for_each(|heard| kept.add(Place::Vm, suite, &heard.results.verdicts));
        kept.others_in_vms(suite, others);
    })
}

/// The table itself, on the screen and in its file.
pub(crate) fn main() -> Result<ExitCode, Error> {
    let table = make()?;
    Ok(if table.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// As [`main`], as a step: a cell that nobody fills is a failure.
pub(crate) fn step() -> Result<Tally, Error> {
    let table = make()?;
    let mut tally = Tally::default();
    let gaps = table.gaps();
    match (table.has_columns(), gaps.is_empty()) {
        (false, _) => tally.skip("kinds: no kernel test has said anything"),
        (true, true) => tally.pass(1),
        (true, false) => gaps.into_iter().for_each(|gap| tally.fail(format!("kinds: {gap}"))),
    }
    Ok(tally)
}

fn make() -> Result<Table, Error> {
    let kept = Kept::read(&kept_file())?;
    let table = Table::new(&list()?, &kept);
    let path = table_file();
    std::fs::write(&path, table.markdown(true)).map_err(Error::file("write", &path))?;
    println!("{}\nwith who has seen it: target/kinds.md", table.markdown(false));
    Ok(table)
}

/// Asks the program for its list. With everything else, as whoever has run tests has built it already.
fn list() -> Result<Vec<Row>, Error> {
    let built = artifacts::build()?;
    let text = run::text(&mut Command::new(built.program("kinds")?))?;
    text.lines().map(row).collect()
}

/// Of every kind its name and a test that sees it act, a pair for each test.
pub(crate) fn seers() -> Result<Vec<(String, String)>, Error> {
    let pairs = |row: Row| row.tests.into_iter().map(move |test| (row.kind.clone(), test));
    Ok(list()?.into_iter().flat_map(pairs).collect())
}

fn row(line: &str) -> Result<Row, Error> {
    serde_json::from_str(line).map_err(|source| Error::Json { what: "a kind of fault".into(), source })
}
