//! `sweep [--stride=N] [--limit=SECONDS] [--only=TEXT]`: the sweep over system calls for every fault type that this
//! kernel can do. Prints what it found; its last line is `N passed, N failed, N skipped`, in points.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use chaos_tests::kernel::Context;
use chaos_tests::sweep::{self, Found};

fn main() -> ExitCode {
    if let Some(code) = chaos_tests::caller::serve_if_asked() {
        return code;
    }
    let (mut stride, mut limit, mut only) = (1, 900, String::new());
    for argument in std::env::args().skip(1) {
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
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
            eprintln!("sweep: what is {argument}?");
            return ExitCode::from(2);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(limit as u64);
    let mut total = Found::default();
    for sweep in sweep::all(&Context::new(), stride).iter().filter(|sweep| sweep.to_string().contains(&only))
    {
        let started = Instant::now();
        let found = sweep.run(deadline).unwrap_or_else(|error| Found {
            failures: vec![format!("{sweep}: {error}")],
            ..Found::default()
        });
        println!("{sweep}: {} points, {:.1} s", found.points, started.elapsed().as_secs_f64());
        found.failures.iter().for_each(|failure| println!("FAILED: {failure}"));
        total.points += found.points;
        total.normal.extend(found.normal);
        total.failures.extend(found.failures);
    }
    total.normal.sort();
    let quantile = |share: f64| {
        let last = total.normal.len().saturating_sub(1);
        total.normal.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    };
    println!("strike to normal: p50 {:?}, p99 {:?}, max {:?}", quantile(0.5), quantile(0.99), quantile(1.0));
    println!("{} passed, {} failed, 0 skipped", total.normal.len(), total.failures.len());
    if total.failures.is_empty() && total.points > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
