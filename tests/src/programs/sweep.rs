//! `sweep [--stride=N] [--offset=N] [--limit=SECONDS] [--only=TEXT[,TEXT…]] [--rare]`: the sweep over system calls for every kind
//! that this kernel can do. Prints what it found; its last line is `N passed, N failed, N skipped`, in points.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::asked::{Asked, Tally};
use crate::kernel::Context;
use crate::residue::Surroundings;
use crate::sweep::{self, Found, Kind, supervised};

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let asked = match Asked::read(std::env::args().skip(1), Duration::from_secs(900)) {
        Ok(asked) if asked.share == 1 => asked,
        Ok(_) => return refuse("--share"),
        Err(argument) => return refuse(&argument),
    };
    let deadline = Instant::now() + asked.limit;
    let context = Context::new();
    let mut tally = Tally::new("points");
    let wants = |kind: &Kind, name: &str| asked.wants(name, kind.is_rare());
    let mut normal = Vec::new();
    for (kind, why) in sweep::lacking(&context).into_iter().filter(|(kind, _)| wants(kind, kind.name)) {
        tally.skip(kind.name, why);
    }
    asked.print_choice();
    let (stride, choice) = (asked.stride as usize, asked.choice_of_calls());
    for sweep in
        sweep::all(&context, stride, choice).iter().filter(|sweep| wants(sweep.kind, &sweep.to_string()))
    {
        normal.extend(report(&mut tally, sweep.kind, sweep, || sweep.run(deadline)));
    }
    let mut guarded = supervised::all(&context, stride, choice);
    guarded.retain(|sweep| wants(sweep.kind, &sweep.to_string()));
    for of_a_kind in guarded.chunk_by(|one, other| one.kind.name == other.kind.name) {
        let around = Surroundings::new();
        for sweep in of_a_kind {
            report(&mut tally, sweep.kind, sweep, || sweep.run(deadline));
        }
        tally.behaves(of_a_kind[0].kind.name, around);
    }
    normal.sort();
    let quantile = |share: f64| {
        let last = normal.len().saturating_sub(1);
        normal.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    };
    println!("strike to normal: p50 {:?}, p99 {:?}, max {:?}", quantile(0.5), quantile(0.99), quantile(1.0));
    tally.end()
}

/// Carries out one sweep; returns how soon traffic was normal after each strike.
fn report(
    tally: &mut Tally,
    kind: &Kind,
    sweep: impl std::fmt::Display,
    run: impl FnOnce() -> crate::Result<Found>,
) -> Vec<Duration> {
    let started = Instant::now();
    let found = run()
        .unwrap_or_else(|error| Found { failures: vec![format!("{sweep}: {error}")], ..Found::default() });
    tally.judge(kind.class(), found.judged);
    // What could not be carried out at all is a point that failed.
    let passed = found.points.saturating_sub(found.failures.len());
    tally.add(kind.name, &sweep.to_string(), passed, &found.failures, started);
    found.normal
}

fn refuse(argument: &str) -> ExitCode {
    eprintln!("sweep: what is {argument}?");
    ExitCode::from(2)
}
