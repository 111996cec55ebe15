//! What a document asks of a search.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::candidate::Candidate;
use crate::error::Invalid;
use crate::space::Space;

/// How to search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// By bisection if one ordered parameter of one fault is all there is to vary, and along rays otherwise.
    #[default]
    Auto,
    /// Up the one ordered parameter until something fails, then between what held and what failed.
    Bisection,
    /// Up many rays, then from the first failure down to less: fewer faults, fewer parameters, smaller values.
    Rays,
    /// From a failure that is known down to the least that still fails.
    Minimise {
        /// What has failed.
        from: Candidate,
        /// How much, as [`Outcome::margin`](crate::Outcome::margin) has it.
        margin: f64,
    },
}

/// What a document asks of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What may be tried.
    pub space: Space,
    /// What it may cost.
    pub budget: Budget,
    /// How to search.
    #[serde(default)]
    pub method: Method,
    /// Decides what chance decides.
    pub seed: u64,
    /// No run is asked for of which a larger margin is predicted.
    pub max_violation: f64,
    /// How much the margin may grow over the whole range of one fault, for all that is known before any run. Runs make it more.
    #[serde(default = "steepness")]
    pub steepness: f64,
    /// How near to the boundary is near enough, as a share of its values.
    #[serde(default = "precision")]
    pub precision: f64,
    /// How many runs confirm a failure.
    #[serde(default = "repeats")]
    pub repeats: u32,
    /// How many runs of one candidate may show nothing before it is given up.
    #[serde(default = "retries")]
    pub retries: u32,
}

fn steepness() -> f64 {
    8.0
}

fn precision() -> f64 {
    0.05
}

fn repeats() -> u32 {
    3
}

fn retries() -> u32 {
    2
}

impl Spec {
    /// A specification of what has to be said, with the defaults of the rest.
    pub fn new(space: Space, budget: Budget, max_violation: f64, seed: u64) -> Spec {
        Spec {
            space,
            budget,
            method: Method::Auto,
            seed,
            max_violation,
            steepness: steepness(),
            precision: precision(),
            repeats: repeats(),
            retries: retries(),
        }
    }

    /// Whether a search can be made of it.
    pub fn check(&self) -> Result<(), Invalid> {
        self.space.check()?;
        self.budget.check()?;
        let positive = [
            ("max_violation", self.max_violation, 1e12),
            ("steepness", self.steepness, 1e12),
            ("precision", self.precision, 1.0),
        ];
        if let Some((name, is, most)) = positive.iter().find(|(_, is, most)| !(*is > 0.0 && is <= most)) {
            return Err(Invalid::new(name, format!("is {is}"), &format!("above 0 and at most {most}")));
        }
        if !(1..=20).contains(&self.repeats) || self.retries > 20 {
            return Err(Invalid::new("repeats or retries", "is out of bounds".into(), "1 to 20, or 0 to 20"));
        }
        match &self.method {
            Method::Bisection if self.only_choice().is_none() => Err(Invalid::new(
                "the space",
                "has more to vary than bisection can".into(),
                "one fault, and one parameter or duration of which it is known what is harsher",
            )),
            Method::Minimise { from, margin } if !self.space.holds(from) || !margin.is_finite() => {
                Err(Invalid::new("the failure to minimise", "is none of this space".into(), "one"))
            }
            _ => Ok(()),
        }
    }

    /// The harshest candidate, if there is one choice only, and it is an ordered one.
    pub(crate) fn only_choice(&self) -> Option<Candidate> {
        let mildest = self.space.mildest(&[0]);
        match &self.space.choices(&mildest)[..] {
            [(place, ladder)] if self.space.kinds.len() == 1 && ladder.is_ordered() => {
                Some(mildest.with(*place, ladder.top()))
            }
            _ => None,
        }
    }
}
