//! Two other ways to search: at random, and by breeding what does the most harm.

use chaos_search::{Candidate, Outcome, Searcher, Space, Unexpected};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Some faults, each number of them as likely as another, on any rungs.
fn anything(space: &Space, rng: &mut StdRng) -> Candidate {
    let many = rng.random_range(1..=space.most);
    let mut kinds: Vec<usize> = (0..space.kinds.len()).collect();
    while kinds.len() > many {
        kinds.remove(rng.random_range(0..kinds.len()));
    }
    space
        .choices(&space.mildest(&kinds))
        .into_iter()
        .fold(space.mildest(&kinds), |candidate, (place, ladder)| {
            candidate.with(place, rng.random_range(0..=ladder.top()))
        })
}

/// Any candidate, as often as it is asked.
pub(crate) struct Random {
    space: Space,
    rng: StdRng,
}

impl Random {
    pub(crate) fn new(space: &Space, seed: u64) -> Random {
        Random { space: space.clone(), rng: StdRng::seed_from_u64(seed) }
    }
}

impl Searcher for Random {
    fn ask(&mut self) -> Option<Candidate> {
        Some(anything(&self.space, &mut self.rng))
    }

    fn tell(&mut self, _: &Candidate, _: Outcome) -> Result<(), Unexpected> {
        Ok(())
    }
}

const POPULATION: usize = 10;
/// That a child is changed, that its faults are, and that it has two parents.
const MUTATION: f64 = 0.7;
const OTHER_FAULTS: f64 = 0.6;
const CROSSOVER: f64 = 0.6;

/// A genetic search as Krkn-AI has published it: what does more harm is fitter. Fitness is what the gates show against what is
/// allowed, 5 more if an objective is missed, and -1 if a run has shown nothing.
pub(crate) struct Genetic {
    space: Space,
    rng: StdRng,
    /// The generation before, and what has been run of this one.
    parents: Vec<(Candidate, f64)>,
    children: Vec<(Candidate, f64)>,
}

impl Genetic {
    pub(crate) fn new(space: &Space, seed: u64) -> Genetic {
        let rng = StdRng::seed_from_u64(seed);
        Genetic { space: space.clone(), rng, parents: Vec::new(), children: Vec::new() }
    }

    /// One of the parents, each as often as it is fit.
    fn parent(&mut self) -> Option<Candidate> {
        let least = self.parents.iter().map(|(_, fitness)| *fitness).fold(f64::MAX, f64::min);
        let share = |fitness: f64| fitness - least + 0.01;
        let sum: f64 = self.parents.iter().map(|(_, fitness)| share(*fitness)).sum();
        let mut at = self.rng.random_range(0.0..1.0) * sum;
        for (candidate, fitness) in &self.parents {
            at -= share(*fitness);
            if at <= 0.0 {
                return Some(candidate.clone());
            }
        }
        self.parents.last().map(|(candidate, _)| candidate.clone())
    }
}

impl Searcher for Genetic {
    fn ask(&mut self) -> Option<Candidate> {
        if self.children.len() == POPULATION {
            self.parents = std::mem::take(&mut self.children);
        }
        let (Some(mut child), Some(other)) = (self.parent(), self.parent()) else {
            return Some(anything(&self.space, &mut self.rng));
        };
        if self.rng.random_bool(CROSSOVER) {
            for place in other.places() {
                if let (Some(rung), true) = (other.rung(place), self.rng.random_bool(0.5)) {
                    child = child.with(place, rung);
                }
            }
        }
        if self.rng.random_bool(MUTATION) {
            if self.rng.random_bool(OTHER_FAULTS) && self.space.kinds.len() > 1 {
                return Some(anything(&self.space, &mut self.rng));
            }
            let choices = self.space.choices(&child);
            let (place, ladder) = choices[self.rng.random_range(0..choices.len())];
            child = child.with(place, self.rng.random_range(0..=ladder.top()));
        }
        Some(child)
    }

    fn tell(&mut self, candidate: &Candidate, outcome: Outcome) -> Result<(), Unexpected> {
        let harm = outcome
            .seen
            .as_ref()
            .map(|seen| seen.iter().map(|gate| gate.value / gate.threshold).sum::<f64>());
        let missed = if outcome.margin().is_ok_and(|margin| margin > 0.0) { 5.0 } else { 0.0 };
        self.children.push((candidate.clone(), harm.map_or(-1.0, |harm| harm + missed)));
        Ok(())
    }
}
