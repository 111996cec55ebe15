//! `soak [--minutes=M] [--seed=S] [--steps=N] [--lane=L] [--partition=K/N] [--cycles=N] [--until=SECONDS]`: random steps and
//! deaths, in several lanes side by side; then so many injections beside a bystander. Prints the seed first. With `--steps`, fewer
//! are a failure, and with 0 of them there is the bystander alone. No step is begun when the machine has been up for so many
//! seconds; fewer are then no failure. The last line is `N passed, N failed, N skipped`, in steps; those that went wrong for a
//! cause that was seen, and is not the daemon's, are in neither number, and are told before.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::bystander::Beside;
use crate::cells::{Partition, Until};
use crate::kernel::Attach;
use crate::soak::{Figures, Plan, run};

/// Packets per second of the bystander: fewer would hardly meet the moments at which something changes.
const LEAST_RATE: u32 = 10_000;

/// Of that rate, on a machine that has more to do.
const LEAST_SHARE: f64 = 0.9;
/// Around how many of the steps packets may come through a fault because the daemon was kept from renewing a lease: a share of them,
/// and so many where there are few.
const MOST_DOUBTFUL: (f64, f64) = (0.2, 3.0);

struct Options {
    minutes: u64,
    seed: u64,
    steps: Option<usize>,
    lane: Option<usize>,
    part: Option<Partition>,
    cycles: u32,
    until: Until,
}

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let mut options = Options {
        minutes: 60,
        seed: now,
        steps: None,
        lane: None,
        part: None,
        cycles: 0,
        until: Until::default(),
    };
    for argument in std::env::args().skip(1) {
        if read(&argument, &mut options).is_none() {
            eprintln!("soak: what is {argument}?");
            return ExitCode::from(2);
        }
    }
    println!("seed {}", options.seed);
    let started = Instant::now();
    let limit = Duration::from_secs(options.minutes * 60);
    let plan = Plan {
        seed: options.seed,
        steps: options.steps.unwrap_or(usize::MAX),
        limit: options.until.left().map_or(limit, |left| limit.min(left)),
        lane: options.lane,
        part: options.part,
    };
    let figures = if plan.steps == 0 || plan.limit.is_zero() { Ok(Figures::default()) } else { run(plan) };
    let mut figures = figures.unwrap_or_else(|error| Figures {
        failures: vec![format!("every lane: {error}")],
        ..Figures::default()
    });
    let mut passed = figures.taken();
    println!("{passed} steps in {:.0} s", started.elapsed().as_secs_f64());
    print(&mut figures);
    let is_over = || options.until.left().is_some_and(|left| left.is_zero());
    let mut left = if is_over() { options.asked().saturating_sub(passed) } else { 0 };
    if left == 0
        && options.lane.is_none()
        && options.part.is_none()
        && figures.failures.is_empty()
        && options.steps.is_some_and(|asked| passed < asked)
    {
        figures.failures.push(format!("every lane: only {passed} steps within {} minutes", options.minutes));
    }
    figures.failures.extend(too_doubtful(figures.doubtful, passed));
    for way in ways(options.cycles) {
        if is_over() {
            left += 1;
            continue;
        }
        match harm(&way) {
            None => passed += 1,
            Some(harm) => figures.failures.push(harm),
        }
    }
    let failed = figures.failures.len();
    for failure in &figures.failures {
        println!("FAILED: {failure}");
    }
    println!(
        "packets came through a fault {} times while something kept the daemon from its lease",
        figures.doubtful
    );
    println!("{} more went wrong and are excused", figures.excused.len());
    for cause in &figures.excused {
        println!("  {cause}");
    }
    println!("cells: {passed}");
    println!("left: {left}");
    println!("{} passed, {failed} failed, 0 skipped", passed.saturating_sub(failed));
    if failed == 0 && passed + left > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Options {
    /// How many steps are asked for, of all or of a part.
    fn asked(&self) -> usize {
        self.steps.map_or(0, |steps| steps.div_ceil(self.part.map_or(1, Partition::of)))
    }
}

/// As it is best; and as it is before Linux 6.6, where a clsact qdisc is there already.
fn ways(cycles: u32) -> impl Iterator<Item = Beside> {
    let best = Beside::cycles(cycles);
    let ways = [best, Beside { attach: Attach::Clsact, clsact: true, ..best }];
    ways.into_iter().filter(|way| way.cycles > 0)
}

/// Measures a bystander, and says what was wrong.
fn harm(way: &Beside) -> Option<String> {
    let what = match way.measure() {
        Ok(bystander)
            if bystander.rate < LEAST_RATE || bystander.achieved() < LEAST_SHARE * f64::from(LEAST_RATE) =>
        {
            format!("slower than {LEAST_RATE} packets/s: {bystander}")
        }
        Ok(bystander) if bystander.harmed() == 0 => {
            println!("attached by {:?}: {bystander}", way.attach);
            return None;
        }
        Ok(bystander) => bystander.to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!("bystander by {:?}: {what}", way.attach))
}

/// Why a soak says too little, if so.
fn too_doubtful(doubtful: usize, passed: usize) -> Option<String> {
    let (share, few) = MOST_DOUBTFUL;
    let is_too_often = doubtful as f64 > few.max(share * passed as f64);
    is_too_often.then(|| {
        format!(
            "every lane: around {doubtful} of {passed} steps packets came through a fault while something kept \
             the daemon: too often"
        )
    })
}

fn read(argument: &str, options: &mut Options) -> Option<()> {
    let (name, text) = argument.split_once('=')?;
    match name {
        "--minutes" => options.minutes = text.parse().ok()?,
        "--seed" => options.seed = text.parse().ok()?,
        "--steps" => options.steps = Some(text.parse().ok()?),
        "--lane" => options.lane = Some(text.parse().ok()?),
        "--partition" => options.part = Some(text.parse().ok()?),
        "--until" => options.until = text.parse().ok()?,
        "--cycles" => options.cycles = text.parse().ok()?,
        _ => return None,
    }
    Some(())
}

fn print(figures: &mut Figures) {
    for (name, count) in &figures.steps {
        println!("  {name}: {count}{}", times(figures.normal.get_mut(name), "to normal"));
    }
    let mut all: Vec<_> = figures.normal.iter().filter(|(name, _)| name.starts_with("Kill")).collect();
    let mut kills: Vec<_> = all.drain(..).flat_map(|(_, times)| times.clone()).collect();
    println!("SIGKILL, under a fault{}", times(Some(&mut kills), "to normal"));
    println!("faults that ended by themselves{}", times(Some(&mut figures.late), "late"));
    println!("supervised faults that the guard ended{}", times(Some(&mut figures.guarded), "after"));
    let [target, bystander] = figures.packets;
    println!("residue when every fault had ended: {}", figures.judged.in_the_end);
    println!("packets: {target} of targets, {bystander} of bystanders; unexplained: {}", figures.unexplained);
}

fn times(times: Option<&mut Vec<Duration>>, what: &str) -> String {
    let Some(times) = times.filter(|times| !times.is_empty()) else { return String::new() };
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    format!("; {what}: p50 {:.1?}, p99 {:.1?}, max {:.1?} of {}", at(0.5), at(0.99), at(1.0), times.len())
}
