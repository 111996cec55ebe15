//! `matrix [--stride=N] [--share=N] [--offset=N] [--limit=SECONDS] [--only=TEXT[,TEXT…]] [--rare]`: the crash matrix for every
//! kind that this kernel can do. Prints what it found; its last line is `N passed, N failed, N skipped`, in cells.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::asked::{Asked, Tally};
use crate::kernel::Context;
use crate::matrix::{EVENTS, Found, UNDOING, all, supervised};
use crate::residue::Surroundings;
use crate::sweep::{self, Kind};

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let asked = match Asked::read(std::env::args().skip(1), Duration::from_secs(1800)) {
        Ok(asked) => asked,
        Err(argument) => {
            eprintln!("matrix: what is {argument}?");
            return ExitCode::from(2);
        }
    };
    let deadline = Instant::now() + asked.limit;
    let context = Context::new();
    let mut tally = Tally::new("cells");
    let wants = |kind: &Kind, name: &str| asked.wants(name, kind.is_rare());
    for (kind, why) in sweep::lacking(&context).into_iter().filter(|(kind, _)| wants(kind, kind.name)) {
        tally.skip(kind.name, why);
    }
    asked.print_choice();
    let (stride, choice) = (asked.stride as usize, asked.choice_of_calls());
    // A share of the events is another one on the other kernel, and for the next kind.
    let mut offset = asked.offset + usize::from(context.kernel >= (6, 6))..;
    let mut next = || offset.next().unwrap_or_default();
    for matrix in
        all(&context, stride, choice).iter().filter(|matrix| wants(matrix.kind, &matrix.to_string()))
    {
        let offset = next();
        let events = asked.share_of(EVENTS, offset);
        report(&mut tally, matrix.kind, matrix, "every event", || matrix.run(&events, deadline));
        let points = asked.share_of(UNDOING, offset);
        report(&mut tally, matrix.kind, matrix, "recovery", || matrix.recoveries(&points));
    }
    // Only of those that kill the injector.
    let deadly: Vec<_> = EVENTS.iter().copied().filter(|event| event.kills_injector()).collect();
    for matrix in supervised::all(&context, stride, choice)
        .iter()
        .filter(|matrix| wants(matrix.kind, &matrix.to_string()))
    {
        let offset = next();
        let (events, around) = (asked.share_of(&deadly, offset), Surroundings::new());
        report(&mut tally, matrix.kind, matrix, "every event", || matrix.run(&events, deadline));
        let points = asked.share_of(UNDOING, offset);
        report(&mut tally, matrix.kind, matrix, "its guard", || matrix.guards(&points, deadline));
        tally.behaves(matrix.kind.name, around);
    }
    tally.end()
}

fn report(
    tally: &mut Tally,
    kind: &Kind,
    matrix: impl std::fmt::Display,
    what: &str,
    run: impl FnOnce() -> crate::Result<Found>,
) {
    let (started, part) = (Instant::now(), format!("{matrix}, {what}"));
    let found = run()
        .unwrap_or_else(|error| Found { failures: vec![format!("{part}: {error}")], ..Found::default() });
    tally.judge(kind.class(), found.judged);
    // What could not be carried out at all is a cell that failed.
    let passed = found.cells.saturating_sub(found.failures.len());
    tally.add(kind.name, &part, passed, &found.failures, started);
}
