//! Why a service deserves chaos: from facts to reasons, each with its number, and with what would answer it.

use std::collections::BTreeMap;

use crate::trend::LATELY;
use crate::trial::{Trial, kill, of_kind, on_dependencies, unfailed, untested};
use crate::{Forecast, GAUGES, Gauge, Level, Outcome, Service, Stalled, Tried, What, forecast};

/// What is used of a limit says something from this share on.
const FULL: f64 = 0.5;
/// Below this share of the time nothing is made of it that something stands still.
const STILL: f64 = 0.02;
/// So many runs in a row that held say that it is time for more.
const GREENS: usize = 3;
/// Of a service on which nothing was ever tried: as many days as are worth most of the points.
const NEVER: f64 = 365.0;

/// A reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    /// What it is about.
    pub what: What,
    /// The number that speaks for it.
    pub number: f64,
    /// What that is worth.
    pub points: f64,
    /// The same for people.
    pub words: String,
    /// What would try it, the best first.
    pub trials: Vec<Trial>,
}

fn reason(what: What, number: f64, words: String, trials: Vec<Trial>) -> Reason {
    Reason { what, number, points: what.points(number), words, trials }
}

/// Every reason there is, the one that is worth most first.
pub(crate) fn reasons(service: &Service) -> Vec<Reason> {
    let mut all = Vec::new();
    for gauge in GAUGES {
        all.extend(of_gauge(service, *gauge));
    }
    all.extend(of_trouble(service));
    all.extend(of_pressure(service));
    all.extend(of_history(service));
    all.extend(of_the_untried(service));
    all.retain(|reason| reason.points > 0.0);
    all.sort_by(|one, other| other.points.total_cmp(&one.points).then(one.what.cmp(&other.what)));
    all
}

/// What shows how a service bears that something runs out.
fn of_scarcity(service: &Service, gauge: Gauge) -> Vec<Trial> {
    let mut trials = match gauge {
        Gauge::Memory => std::iter::once(Trial::TakeMemory).chain(kill(service)).collect(),
        Gauge::Descriptors => vec![Trial::FailAccept],
        Gauge::Sessions => {
            let held = |(address, port): &(_, u16)| Trial::HoldSessions(*address, *port);
            service.listens.iter().map(held).collect()
        }
        Gauge::Disk => service.writes.clone().map(Trial::FailWrites).into_iter().collect(),
        Gauge::Tasks => Vec::new(),
    };
    trials.push(Trial::Pause);
    trials
}

fn of_gauge(service: &Service, gauge: Gauge) -> Vec<Reason> {
    let name = gauge.name();
    let trials = of_scarcity(service, gauge);
    let mut found = Vec::new();
    if let Some(Forecast { level, per_second, seconds }) = forecast(&service.looks, gauge) {
        let grows = amount(per_second, gauge);
        let words = format!("{name}: {}, grows by {grows}/s: full in {}", of(level, gauge), time(seconds));
        found.push(reason(What::Forecast, seconds, words, trials.clone()));
    }
    let last = service.looks.last().and_then(|look| look.gauges.get(&gauge).copied());
    if let Some(level) = last.filter(|level| level.limit > 0.0 && level.used / level.limit >= FULL) {
        let share = level.used / level.limit;
        let words = format!("{name}: {}, {:.0} % of what there can be", of(level, gauge), share * 100.0);
        found.push(reason(What::Saturation, share, words, trials));
    }
    found
}

fn of_trouble(service: &Service) -> Vec<Reason> {
    let mut found = Vec::new();
    let mut start_anew: Vec<_> = kill(service).into_iter().chain([Trial::Pause]).collect();
    if service.managed {
        start_anew.insert(0, Trial::Restart);
    }
    if service.restarts > 0 {
        let words = format!("was started anew {}", times(service.restarts.into()));
        found.push(reason(What::Restarts, f64::from(service.restarts), words, start_anew));
    }
    if service.oom_kills > 0 {
        let words = format!("the kernel has killed in it {} for want of memory", times(service.oom_kills));
        let trials = of_scarcity(service, Gauge::Memory);
        found.push(reason(What::OomKills, service.oom_kills as f64, words, trials));
    }
    if let Some(errors) = &service.errors {
        let more = errors.recent as f64 - errors.expected;
        if more >= 1.0 {
            let (recent, expected) = (errors.recent, errors.expected);
            let words =
                format!("{recent} lines of errors lately, where {expected:.1} are usual: {}", errors.example);
            let mut trials = on_dependencies(service);
            trials.push(Trial::Pause);
            trials.extend(kill(service));
            found.push(reason(What::Errors, more, words, trials));
        }
    }
    // One look may have come between a connection and its accept(2).
    let waiting = service.looks.iter().rev().take(3).map(|look| look.waiting).min().unwrap_or_default();
    if waiting > 0 {
        let words = format!("{waiting} connections wait to be accepted, again and again");
        let mut trials = of_scarcity(service, Gauge::Sessions);
        trials.insert(0, Trial::Pause);
        found.push(reason(What::Waiting, waiting.into(), words, trials));
    }
    found
}

/// The share of the time that it has stood still lately.
fn stalled(service: &Service) -> Option<Stalled> {
    let all: Vec<_> = service.looks.iter().filter_map(|look| Some((look.at, look.stalled?))).collect();
    let (last, then) = *all.last()?;
    let (first, before) = *all.iter().find(|(at, _)| *at >= last - LATELY)?;
    let time = last - first;
    // A group that was made anew counts from the beginning.
    let share = |then: f64, before: f64| ((then - before) / time).clamp(0.0, 1.0);
    (time > 0.0).then(|| Stalled {
        cpu: share(then.cpu, before.cpu),
        memory: share(then.memory, before.memory),
        io: share(then.io, before.io),
    })
}

fn of_pressure(service: &Service) -> Vec<Reason> {
    let Some(share) = stalled(service) else { return Vec::new() };
    let all = [
        (What::CpuPressure, share.cpu, "a processor", vec![Trial::TakeCpu, Trial::Pause]),
        (What::MemoryPressure, share.memory, "memory", of_scarcity(service, Gauge::Memory)),
        (What::IoPressure, share.io, "block devices", of_scarcity(service, Gauge::Disk)),
    ];
    let told = all.into_iter().filter(|(_, share, ..)| *share >= STILL);
    told.map(|(what, share, whom, trials)| {
        let words = format!("waits for {whom} {:.0} % of the time", share * 100.0);
        reason(what, share, words, trials)
    })
    .collect()
}

/// Runs that showed something, by experiment, the oldest first.
fn by_experiment(service: &Service) -> BTreeMap<&str, Vec<&Tried>> {
    let mut all = BTreeMap::<&str, Vec<&Tried>>::new();
    for run in service.tried.iter().filter(|run| run.outcome != Outcome::Nothing) {
        all.entry(&run.experiment).or_default().push(run);
    }
    all
}

fn of_history(service: &Service) -> Vec<Reason> {
    let experiments = by_experiment(service);
    let latest = || experiments.values().filter_map(|runs| runs.last().copied());
    let again = |runs: &[&Tried]| runs.iter().rev().map(|run| Trial::Again(run.run_id.clone())).collect();
    let mut found = Vec::new();
    let broken: Vec<_> = latest().filter(|run| run.outcome == Outcome::Broke).collect();
    if let Some(run) = broken.last() {
        let words = format!("broke in {:?}, and has not held since (run {})", run.experiment, run.run_id);
        found.push(reason(What::Broke, broken.len() as f64, words, again(&broken)));
    }
    let unseen: Vec<_> =
        service.tried.iter().filter(|run| run.outcome == Outcome::Broke && !run.alerted).collect();
    if let Some(run) = unseen.last() {
        let count = unseen.len();
        let words = format!("broke {} without an alert, lastly in run {}", times(count as u64), run.run_id);
        found.push(reason(What::NoAlert, count as f64, words, again(&unseen)));
    }
    // The experiment of which the largest part is left.
    let left = experiments.values().filter_map(|runs| {
        let held = runs.iter().filter(|run| run.outcome == Outcome::Held).filter_map(|run| run.stage);
        Some((100 - held.map(|stage| stage.0.min(100)).max()?, *runs.last()?))
    });
    if let Some((left, run)) = left.filter(|(left, _)| *left > 0).max_by_key(|(left, _)| *left) {
        let words = format!("held at {} % in {:?}, and no further was tried", 100 - left, run.experiment);
        let trials = vec![Trial::Again(run.run_id.clone())];
        found.push(reason(What::Stage, left.into(), words, trials));
    }
    let in_a_row = |runs: &Vec<&Tried>| {
        runs.iter().rev().take_while(|run| run.outcome == Outcome::Held && run.stage.is_none()).count()
    };
    let greens = experiments.iter().map(|(name, runs)| (in_a_row(runs), *name));
    if let Some((greens, name)) = greens.max().filter(|(greens, _)| *greens >= GREENS) {
        let words =
            format!("{name:?} held {greens} times in a row: time for another kind, or for more of it");
        found.push(reason(What::Greens, greens as f64, words, untested(service)));
    }
    found
}

fn of_the_untried(service: &Service) -> Vec<Reason> {
    let mut found = Vec::new();
    let unfailed = unfailed(service);
    if let Some(first) = unfailed.first() {
        let (address, port, connections) = (first.address, first.port, first.connections);
        let words = format!(
            "of those it needs {} never failed; with {address} port {port} it has {connections} connections",
            unfailed.len()
        );
        found.push(reason(What::Dependency, unfailed.len() as f64, words, on_dependencies(service)));
    }
    if let Some(likeness) = &service.likeness {
        let (run, kind, similarity) = (&likeness.run_id, &likeness.kind, likeness.similarity);
        let words = format!("is like what broke by {kind} in run {run}: alike by {similarity:.2} of 1");
        found.push(reason(What::Likeness, similarity, words, of_kind(service, kind)));
    }
    let trials = untested(service);
    let mut kinds: Vec<_> = trials.iter().filter_map(Trial::kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if !kinds.is_empty() {
        let words = format!("{} kinds of faults were never tried on it: {}", kinds.len(), kinds.join(", "));
        found.push(reason(What::Untested, kinds.len() as f64, words, trials));
    }
    let shown = service.tried.iter().filter(|run| run.outcome != Outcome::Nothing);
    let idle = shown.map(|run| run.seconds_ago).min_by(f64::total_cmp).map(|seconds| seconds / 86400.0);
    let words = match idle {
        None => "nothing was ever tried on it, as far as you may see".to_owned(),
        Some(days) => format!("nothing was tried on it for {days:.1} days"),
    };
    found.push(reason(What::Idle, idle.unwrap_or(NEVER), words, crate::trial::all(service)));
    found
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// `12.0 of 64.0 MiB`
fn of(level: Level, gauge: Gauge) -> String {
    match gauge.in_bytes() {
        true => format!("{:.1} of {}", level.used / MIB, amount(level.limit, gauge)),
        false => format!("{} of {}", level.used, level.limit),
    }
}

const MIB: f64 = 1024.0 * 1024.0;

fn amount(number: f64, gauge: Gauge) -> String {
    if gauge.in_bytes() { format!("{:.1} MiB", number / MIB) } else { format!("{number:.1}") }
}

/// `47 s`, `12 min`, `3.5 h`, `2.1 days`
fn time(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86400.0),
    }
}
