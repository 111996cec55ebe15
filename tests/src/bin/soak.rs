//! `soak [--minutes=M] [--seed=S] [--steps=N] [--cycles=N]`: random steps and deaths, for every way to attach; then
//! so many injections beside a bystander. Prints the seed first, and again when something is wrong. The last line is
//! `N passed, N failed, N skipped`, in steps.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaos_tests::bystander::Beside;
use chaos_tests::kernel::{Attach, Context};
use chaos_tests::soak::{Plan, run};

struct Options {
    minutes: u64,
    seed: u64,
    steps: usize,
    cycles: u32,
}

fn main() -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let mut options = Options { minutes: 60, seed: now, steps: usize::MAX, cycles: 0 };
    for argument in std::env::args().skip(1) {
        if read(&argument, &mut options).is_none() {
            eprintln!("soak: what is {argument}?");
            return ExitCode::from(2);
        }
    }
    println!("seed {}", options.seed);
    let ways: &[Attach] =
        if Context::new().kernel >= (6, 6) { &[Attach::Auto, Attach::Clsact] } else { &[Attach::Auto] };
    let share = u32::try_from(ways.len()).unwrap_or(1);
    let (mut passed, mut failed) = (0, 0);
    for attach in ways {
        let plan = Plan {
            seed: options.seed,
            steps: options.steps / share as usize,
            limit: Duration::from_secs(options.minutes * 60) / share,
            attach: *attach,
        };
        let (steps, failure) = soak(plan);
        passed += steps;
        if let Some(failure) = failure {
            failed += 1;
            passed -= 1;
            println!("FAILED: {attach:?}, --seed={}: {failure}", options.seed);
        }
    }
    if options.cycles > 0 {
        match Beside::cycles(options.cycles).measure() {
            Ok(bystander) if bystander.harmed() == 0 => {
                passed += 1;
                println!("{bystander}");
            }
            other => {
                failed += 1;
                let text = other.map_or_else(|error| error.to_string(), |bystander| bystander.to_string());
                println!("FAILED: bystander: {text}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(argument: &str, options: &mut Options) -> Option<()> {
    let (name, text) = argument.split_once('=')?;
    match name {
        "--minutes" => options.minutes = text.parse().ok()?,
        "--seed" => options.seed = text.parse().ok()?,
        "--steps" => options.steps = text.parse().ok()?,
        "--cycles" => options.cycles = text.parse().ok()?,
        _ => return None,
    }
    Some(())
}

/// Steps taken, and what went wrong.
fn soak(plan: Plan) -> (usize, Option<String>) {
    let mut figures = match run(plan) {
        Ok(figures) => figures,
        Err(error) => return (1, Some(error.to_string())),
    };
    figures.normal.sort();
    let quantile = |share: f64| {
        let last = figures.normal.len().saturating_sub(1);
        figures.normal.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    };
    let steps: usize = figures.steps.values().sum();
    println!("{:?}: {steps} steps {:?}; bystander {} packets", plan.attach, figures.steps, figures.packets);
    println!(
        "{} deaths of the daemon under a fault, kill to normal: p50 {:?}, p99 {:?}, max {:?}",
        figures.normal.len(),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0)
    );
    (steps, figures.failure)
}
