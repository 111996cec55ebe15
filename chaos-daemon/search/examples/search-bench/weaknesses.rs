//! Services with one weakness each, in simulated time. Where each begins to fail is drawn from a seed that no searcher sees.

use chaos_search::{
    Candidate, Direction, Harsher, Kind, Ladder, LadderWords, NoData, Observation, Outcome, Parameter, Scale,
    Setting, Space, Value, Values,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

type Failure = Box<dyn std::error::Error>;

/// The weaknesses, by what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakness {
    /// A pool of connections that slow calls exhaust, and callers that try again.
    PoolExhaustion,
    /// Calls that wait for ever, each with a thread.
    MissingTimeout,
    /// A client that does not come back after a long outage.
    NoReconnect,
    /// A queue without bounds before a slow consumer.
    UnboundedQueue,
    /// A cache and a database, of which one may be ill.
    OnlyTogether,
    /// A pause that does harm only while a certain job runs.
    PhaseWindow,
}

pub(crate) const ALL: [Weakness; 6] = [
    Weakness::PoolExhaustion,
    Weakness::MissingTimeout,
    Weakness::NoReconnect,
    Weakness::UnboundedQueue,
    Weakness::OnlyTogether,
    Weakness::PhaseWindow,
];

/// A service, its weakness drawn.
pub(crate) struct Service {
    pub weakness: Weakness,
    pub space: Space,
    /// Where it begins to fail, between 0 and 1 of what is possible.
    drawn: [f64; 2],
    /// For [`Weakness::OnlyTogether`]: which two faults.
    pub pair: [usize; 2],
}

fn range(from: f64, to: f64, scale: Scale, step: f64, harsher: Harsher) -> Result<Ladder, Failure> {
    let values = Values::Range { from, to, scale, step: Some(step), whole: false };
    Ok(Ladder::try_from(LadderWords { values, harsher })?)
}

fn parameter(name: &str, unit: &str, ladder: Ladder) -> Parameter {
    Parameter { name: name.to_owned(), unit: unit.to_owned(), ladder }
}

fn kind(name: &str, parameters: Vec<Parameter>) -> Kind {
    Kind { name: name.to_owned(), parameters }
}

impl Service {
    pub(crate) fn new(weakness: Weakness, seed: u64) -> Result<Service, Failure> {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed_0f7e_57ab);
        let first = rng.random_range(0..5usize);
        let second = (first + rng.random_range(1..5usize)) % 5;
        let drawn = [rng.random_range(0.0..1.0), rng.random_range(0.0..1.0)];
        let ms = |to| range(1.0, to, Scale::Logarithmic, 1.02, Harsher::Larger);
        let percent = || range(0.5, 100.0, Scale::Linear, 0.5, Harsher::Larger);
        let kinds = match weakness {
            Weakness::PoolExhaustion => {
                vec![kind(
                    "delay",
                    vec![parameter("delay", "ms", ms(2000.0)?), parameter("share", "%", percent()?)],
                )]
            }
            Weakness::MissingTimeout => vec![kind("delay", vec![parameter("delay", "ms", ms(10_000.0)?)])],
            Weakness::NoReconnect => {
                let seconds = range(0.1, 60.0, Scale::Logarithmic, 1.02, Harsher::Larger)?;
                vec![kind("outage", vec![parameter("length", "s", seconds)])]
            }
            Weakness::UnboundedQueue => vec![kind("slow", vec![parameter("share", "%", percent()?)])],
            Weakness::OnlyTogether => ["cpu", "cache", "disk", "database", "network"]
                .into_iter()
                .map(|name| Ok(kind(name, vec![parameter("share", "%", percent()?)])))
                .collect::<Result<_, Failure>>()?,
            Weakness::PhaseWindow => {
                let offset = range(0.0, 59.0, Scale::Linear, 1.0, Harsher::Unknown)?;
                vec![kind(
                    "pause",
                    vec![parameter("pause", "ms", ms(5000.0)?), parameter("offset", "s", offset)],
                )]
            }
        };
        let duration = match weakness {
            Weakness::UnboundedQueue => range(10.0, 300.0, Scale::Logarithmic, 1.02, Harsher::Larger)?,
            _ => range(60.0, 60.0, Scale::Linear, 1.0, Harsher::Larger)?,
        };
        let most = kinds.len();
        let space = Space { kinds, most, gap: None, duration };
        Ok(Service { weakness, space, drawn, pair: [first, second] })
    }

    /// What the gates see without noise: error rate or latency against what is allowed.
    fn seen(&self, setting: &Setting) -> Vec<(f64, f64)> {
        let number = |fault: &str, name: &str| {
            let fault = setting.faults.iter().find(|of| of.fault == fault)?;
            match fault.parameters.iter().find(|(of, ..)| of == name)?.1 {
                Value::Number(number) => Some(number),
                Value::Word(_) => None,
            }
        };
        let get = |fault, name| number(fault, name).unwrap_or(0.0);
        let [a, b] = self.drawn;
        match self.weakness {
            Weakness::PoolExhaustion => {
                pool(get("delay", "delay") / 1000.0, get("delay", "share") / 100.0, 8.0 + 32.0 * a)
            }
            Weakness::MissingTimeout => {
                let threads = 50.0 + 300.0 * a;
                let busy = 100.0 * (0.02 + get("delay", "delay") / 1000.0);
                vec![((1.0 - threads / busy).max(0.0), 0.05)]
            }
            Weakness::NoReconnect => {
                let (outage, keepalive) = (get("outage", "length"), 30f64.powf(a));
                vec![(if outage > keepalive { 1.0 } else { outage / 300.0 }, 0.25)]
            }
            Weakness::UnboundedQueue => {
                let surplus = (100.0 - 150.0 * (1.0 - get("slow", "share") / 100.0)).max(0.0);
                vec![(surplus * setting.duration_seconds, 2000.0 + 13_000.0 * a)]
            }
            Weakness::OnlyTogether => {
                let share = |kind: usize| get(&self.space.kinds[kind].name, "share") / 100.0;
                let others: f64 = (0..5).filter(|kind| !self.pair.contains(kind)).map(share).sum();
                let load = (0.3 + 0.01 * others)
                    * (1.0 + (1.0 + 0.6 * a) * share(self.pair[0]))
                    * (1.0 + (1.0 + 0.6 * b) * share(self.pair[1]));
                vec![(if load < 0.995 { 1.0 / (1.0 - load) } else { 200.0 }, 10.0)]
            }
            Weakness::PhaseWindow => {
                let since = (get("pause", "offset") - 60.0 * b).rem_euclid(60.0);
                let share = if since < 12.0 { 1.0 } else { 0.01 };
                vec![(20.0 + share * get("pause", "pause"), 200.0 + 1800.0 * a)]
            }
        }
    }

    /// The margin of a setting without noise.
    fn truth(&self, setting: &Setting) -> f64 {
        self.seen(setting)
            .into_iter()
            .map(|(value, threshold)| value / threshold - 1.0)
            .fold(f64::MIN, f64::max)
    }

    /// The margin of a candidate without noise.
    pub(crate) fn margin(&self, candidate: &Candidate) -> f64 {
        self.truth(&self.space.setting(candidate))
    }

    /// The candidate with all its ordered values nearer to the mildest, or farther from it, by one factor.
    fn scaled(&self, candidate: &Candidate, factor: f64) -> Setting {
        let (mut setting, kinds) = (self.space.setting(candidate), candidate.kinds());
        let toward = |value: f64, ladder: &Ladder| {
            let mildest = ladder.number(0);
            mildest + factor * (value - mildest)
        };
        for (fault, kind) in setting.faults.iter_mut().zip(kinds) {
            for ((_, value, _), parameter) in
                fault.parameters.iter_mut().zip(&self.space.kinds[kind].parameters)
            {
                if let (Value::Number(number), true) = (&mut *value, parameter.ladder.is_ordered()) {
                    *number = toward(*number, &parameter.ladder);
                }
            }
        }
        setting.duration_seconds = toward(setting.duration_seconds, &self.space.duration);
        setting
    }

    /// How far a candidate is from where it begins to fail, as a share of that; above 0 if it fails.
    pub(crate) fn off(&self, candidate: &Candidate) -> f64 {
        let (mut low, mut high) = (0.0, 4.0);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if self.truth(&self.scaled(candidate, middle)) > 0.0 { high = middle } else { low = middle }
        }
        1.0 / high - 1.0
    }

    /// What a run shows: each value off by some 3 %, one run of 50 half as bad again, and one of 50 shows nothing.
    pub(crate) fn run(&self, candidate: &Candidate, rng: &mut StdRng) -> Outcome {
        let setting = self.space.setting(candidate);
        let seconds = self.space.seconds(candidate) + 5.0;
        let noise = (0..12).map(|_| rng.random_range(0.0..1.0f64)).sum::<f64>() - 6.0;
        let outlier = if rng.random_bool(0.02) { 1.5 } else { 1.0 };
        if rng.random_bool(0.02) {
            return Outcome { seen: Err(NoData::Unverified), seconds };
        }
        let observe = |(value, threshold): (f64, f64)| Observation {
            gate: "gate".to_owned(),
            // No gate is worse than everything lost.
            value: (value * (0.03 * noise).exp() * outlier).min(20.0 * threshold),
            threshold,
            direction: Direction::AtMost,
            whole: None,
        };
        Outcome { seen: Ok(self.seen(&setting).into_iter().map(observe).collect()), seconds }
    }
}

/// A minute of 100 calls a second through a pool, in steps of 50 ms: who waits longer than a second tries again, three times.
fn pool(delay: f64, share: f64, places: f64) -> Vec<(f64, f64)> {
    const STEP: f64 = 0.05;
    let served = places / (0.02 + share * delay);
    let (mut waiting, mut late, mut lost, mut slowest) = (0.0f64, 0.0, 0.0, 0.0f64);
    for _ in 0..1200 {
        let offered = 100.0 * (1.0 + 3.0 * late);
        waiting = (waiting + (offered - served) * STEP).clamp(0.0, 10.0 * served);
        let wait = waiting / served;
        late = (wait - 1.0).clamp(0.0, 1.0);
        lost += late / 1200.0;
        slowest = slowest.max(wait + delay);
    }
    vec![(lost, 0.05), (slowest, 2.5)]
}
