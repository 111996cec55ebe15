//! `matrix [--stride=N] [--limit=SECONDS] [--only=TEXT]`: the crash matrix for every fault type that this kernel can do.
//! Prints what it found; its last line is `N passed, N failed, N skipped`, in cells.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use chaos_tests::kernel::Context;
use chaos_tests::matrix::{EVENTS, Found, Matrix, all};

fn main() -> ExitCode {
    if let Some(code) = chaos_tests::caller::serve_if_asked() {
        return code;
    }
    let (mut stride, mut limit, mut only) = (1, 1800, String::new());
    for argument in std::env::args().skip(1) {
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
        let known = match argument.split_once('=') {
            Some(("--stride", text)) => number(text).map(|value| stride = value),
            Some(("--limit", text)) => number(text).map(|value| limit = value),
            Some(("--only", text)) => {
                text.clone_into(&mut only);
                Some(())
            }
            _ => None,
        };
        if known.is_none() {
            eprintln!("matrix: what is {argument}?");
            return ExitCode::from(2);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(limit.into());
    let mut total = Found::default();
    for matrix in all(&Context::new(), stride).iter().filter(|matrix| matrix.to_string().contains(&only)) {
        report(&mut total, matrix, "every event", || matrix.run(EVENTS, deadline));
        report(&mut total, matrix, "recovery", || matrix.recoveries());
    }
    println!("{} passed, {} failed, 0 skipped", total.cells - total.failures.len(), total.failures.len());
    if total.failures.is_empty() && total.cells > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(total: &mut Found, matrix: &Matrix, what: &str, run: impl FnOnce() -> chaos_tests::Result<Found>) {
    let started = Instant::now();
    let found = run().unwrap_or_else(|error| Found {
        failures: vec![format!("{matrix}, {what}: {error}")],
        ..Found::default()
    });
    println!("{matrix}, {what}: {} cells, {:.1} s", found.cells, started.elapsed().as_secs_f64());
    found.failures.iter().for_each(|failure| println!("FAILED: {failure}"));
    // What could not be carried out at all is a cell that failed.
    total.cells += found.cells.max(found.failures.len());
    total.failures.extend(found.failures);
}
