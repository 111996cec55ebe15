//! What the proxy does to which call: decided from the seed and the call's number alone, so that a seed replays.

use std::time::Duration;

use clap::Args;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::duration;
use crate::spec::{Probability, SpecError};

/// Which calls meet a fault, and which fault.
#[derive(Debug, Args)]
pub(super) struct Faults {
    /// Answers come so much later
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "0s")]
    delay: Duration,
    /// Vary the delay by at most so much, either way
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "0s")]
    jitter: Duration,
    /// Share of the calls that is delayed, 0 to 1
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0)]
    delay_share: f64,
    /// Share that is answered with an error, and never comes to the server
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    fail: f64,
    /// Share whose answer never comes
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    drop: f64,
    /// Share whose answer is cut short
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    truncate: f64,
    /// Share whose answer has a wrong byte
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    corrupt: f64,
}

/// What becomes of the answer to one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Harm {
    /// It comes as the server gave it.
    None,
    /// An error comes instead, and the server is not asked.
    Fail,
    /// It does not come.
    Drop,
    /// It ends after this share of its bytes.
    Truncate(f64),
    /// One byte, after this share of them, is another.
    Corrupt(f64),
}

/// Everything that is decided about one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Verdict {
    pub(super) harm: Harm,
    pub(super) delay: Duration,
}

impl Verdict {
    pub(super) const NOTHING: Self = Self { harm: Harm::None, delay: Duration::ZERO };
}

impl Faults {
    /// Refuses shares that are none, or that are more than all calls together.
    ///
    /// # Errors
    /// Names the option.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        for (option, share) in [
            ("--delay-share", self.delay_share),
            ("--fail", self.fail),
            ("--drop", self.drop),
            ("--truncate", self.truncate),
            ("--corrupt", self.corrupt),
        ] {
            Probability::new(option, share)?;
        }
        let together = self.fail + self.drop + self.truncate + self.corrupt;
        if together > 1.0 {
            let problem =
                format!("with --drop, --truncate and --corrupt {together} of the calls: give at most 1");
            return Err(SpecError::new("--fail", problem));
        }
        if self.jitter > self.delay {
            return Err(SpecError::new(
                "--jitter",
                "longer than --delay: answers cannot come before they are given",
            ));
        }
        Ok(())
    }

    /// Decides about a call, the first of which has number 1.
    pub(super) fn verdict(&self, seed: u64, call: u64) -> Verdict {
        let mut dice = StdRng::seed_from_u64(seed.wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let (late, jitter, what, place) =
            (dice.random::<f64>(), dice.random::<f64>(), dice.random::<f64>(), dice.random::<f64>());
        let delay = match late < self.delay_share {
            true => (self.delay + self.jitter.mul_f64(2.0 * jitter)).saturating_sub(self.jitter),
            false => Duration::ZERO,
        };
        Verdict { harm: self.harm(what, place), delay }
    }

    fn harm(&self, what: f64, place: f64) -> Harm {
        let mut bound = 0.0;
        for (share, harm) in [
            (self.fail, Harm::Fail),
            (self.drop, Harm::Drop),
            (self.truncate, Harm::Truncate(place)),
            (self.corrupt, Harm::Corrupt(place)),
        ] {
            bound += share;
            if what < bound {
                return harm;
            }
        }
        Harm::None
    }
}

impl Harm {
    /// The answer, without the end of its line, as the client gets it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a length, which is kept within it"
    )]
    pub(super) fn apply(self, mut answer: Vec<u8>) -> Option<Vec<u8>> {
        let at = |share: f64| ((answer.len() as f64 * share) as usize).min(answer.len().saturating_sub(1));
        match self {
            Self::None | Self::Fail => {}
            Self::Drop => return None,
            Self::Truncate(share) => answer.truncate(at(share)),
            Self::Corrupt(share) => {
                let at = at(share);
                // A control character: no JSON has one, and none of these ends a line.
                if let Some(byte) = answer.get_mut(at) {
                    *byte = 0x01;
                }
            }
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn faults() -> Faults {
        Faults {
            delay: Duration::from_millis(100),
            jitter: Duration::from_millis(40),
            delay_share: 0.5,
            fail: 0.1,
            drop: 0.2,
            truncate: 0.1,
            corrupt: 0.1,
        }
    }

    #[test]
    fn shares_are_met_and_a_seed_replays() {
        let verdicts: Vec<_> = (1..=20_000).map(|call| faults().verdict(7, call)).collect();
        let share = |holds: fn(&Verdict) -> bool| {
            f64::from(u32::try_from(verdicts.iter().filter(|one| holds(one)).count()).unwrap()) / 20_000.0
        };
        for (found, asked) in [
            (share(|one| !one.delay.is_zero()), 0.5),
            (share(|one| one.harm == Harm::Fail), 0.1),
            (share(|one| one.harm == Harm::Drop), 0.2),
            (share(|one| matches!(one.harm, Harm::Truncate(_))), 0.1),
            (share(|one| matches!(one.harm, Harm::Corrupt(_))), 0.1),
        ] {
            // Four standard errors of the largest share.
            assert!((found - asked).abs() < 0.015, "{found} instead of {asked}");
        }
        assert_eq!(verdicts, (1..=20_000).map(|call| faults().verdict(7, call)).collect::<Vec<_>>());
        assert_ne!(verdicts, (1..=20_000).map(|call| faults().verdict(8, call)).collect::<Vec<_>>());
    }

    #[test]
    fn a_delay_varies_by_its_jitter_at_most() {
        let late = |call| faults().verdict(1, call).delay;
        let late: Vec<_> = (1..1000).map(late).filter(|delay| !delay.is_zero()).collect();
        assert!(late.iter().all(|delay| (60..=140).contains(&delay.as_millis())));
        assert!(
            late.iter().any(|delay| delay.as_millis() < 70)
                && late.iter().any(|delay| delay.as_millis() > 130)
        );
    }

    #[test]
    fn shares_that_make_no_sense_are_refused_by_name() {
        for (faults, option) in [
            (Faults { fail: 1.5, ..faults() }, "--fail"),
            (Faults { drop: f64::NAN, ..faults() }, "--drop"),
            (Faults { drop: 0.8, ..faults() }, "--fail"),
            (Faults { jitter: Duration::from_secs(1), ..faults() }, "--jitter"),
        ] {
            assert_eq!(faults.check().unwrap_err().field, option);
        }
        faults().check().unwrap();
    }

    proptest! {
        #[test]
        fn a_harmed_answer_is_one_line_that_is_no_json(place in 0.0..1.0, number in any::<i64>()) {
            let answer = serde_json::json!({"jsonrpc": "2.0", "id": number, "result": {"text": "a\nb"}});
            for harm in [Harm::Truncate(place), Harm::Corrupt(place)] {
                let line = harm.apply(answer.to_string().into_bytes()).unwrap();
                prop_assert!(!line.contains(&b'\n'));
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&line).is_err());
            }
            prop_assert_eq!(Harm::Drop.apply(b"{}".to_vec()), None);
        }
    }
}
