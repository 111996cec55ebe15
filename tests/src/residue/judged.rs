//! How many times which level of residue was found, before recovery and in the end.

use std::fmt;
use std::time::Duration;

use super::Level;
use crate::error::{Error, Result};

/// How often each level was found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Nothing differed.
    pub identical: usize,
    /// Something was left, and did nothing.
    pub inert: usize,
    /// Something acted.
    pub effect: usize,
}

impl Levels {
    fn add(&mut self, level: &Level) {
        *match level {
            Level::Identical => &mut self.identical,
            Level::Inert(_) => &mut self.inert,
            Level::Effect(_) => &mut self.effect,
        } += 1;
    }

    fn merge(&mut self, other: Self) {
        self.identical += other.identical;
        self.inert += other.inert;
        self.effect += other.effect;
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} identical, {} inert residue, {} effect", self.identical, self.inert, self.effect)
    }
}

/// What was found when those were dead who would have ended the fault, and what when it was over.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// Before `recover`, where that is what is left to do.
    pub before_recovery: Levels,
    /// After it, or after the daemon or the guard has ended the fault.
    pub in_the_end: Levels,
}

impl Judged {
    /// Nobody is there any more, and nobody has recovered yet.
    pub fn before_recovery(&mut self, level: &Level) {
        self.before_recovery.add(level);
    }

    /// It is over: nothing is left, inert or not.
    ///
    /// # Errors
    /// With what is left after `settle`, and whether it acts.
    pub fn in_the_end(&mut self, level: Level, settle: Duration) -> Result<()> {
        self.in_the_end.add(&level);
        match level {
            Level::Identical => Ok(()),
            Level::Inert(what) => Err(Error::Different(format!("inert residue after {settle:?}:\n{what}"))),
            Level::Effect(what) => Err(Error::Different(format!("still acts after {settle:?}:\n{what}"))),
        }
    }

    /// Counts what another has found, too.
    pub fn merge(&mut self, other: Self) {
        self.before_recovery.merge(other.before_recovery);
        self.in_the_end.merge(other.in_the_end);
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "before recovery {}; in the end {}", self.before_recovery, self.in_the_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_is_counted_apart_and_only_nothing_is_right_in_the_end() {
        let mut judged = Judged::default();
        let (inert, effect) = (|| Level::Inert("+ a".into()), || Level::Effect("+ b".into()));
        for level in [inert(), Level::Identical, inert(), effect()] {
            judged.before_recovery(&level);
        }
        let settle = Duration::from_secs(1);
        assert!(judged.in_the_end(Level::Identical, settle).is_ok());
        let said = |result: Result<()>| result.map_err(|error| error.to_string());
        assert_eq!(said(judged.in_the_end(inert(), settle)), Err("inert residue after 1s:\n+ a".into()));
        assert_eq!(said(judged.in_the_end(effect(), settle)), Err("still acts after 1s:\n+ b".into()));
        let mut both = judged;
        both.merge(judged);
        assert_eq!(
            both.to_string(),
            "before recovery 2 identical, 4 inert residue, 2 effect; in the end 2 identical, 2 inert residue, 2 effect"
        );
    }
}
