//! What the proxy does to which call: decided from the seed and the call's number alone, so that a seed replays.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::spec::mcp::Spoiling;

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

impl Spoiling {
    /// Decides about a call, the first of which has number 1.
    pub(super) fn verdict(&self, seed: u64, call: u64) -> Verdict {
        let mut dice = StdRng::seed_from_u64(seed.wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let (late, jitter, what, place) =
            (dice.random::<f64>(), dice.random::<f64>(), dice.random::<f64>(), dice.random::<f64>());
        if dice.random::<f64>() >= self.call_probability.get() {
            return Verdict::NOTHING;
        }
        let delay = match late < self.delay_share.get() {
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
            bound += share.get();
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
    use crate::spec::Probability;

    fn faults() -> Spoiling {
        let params = serde_json::json!({
            "delay_ms": 100, "jitter_ms": 40, "delay_share": 0.5, "fail": 0.1, "drop": 0.2, "truncate": 0.1, "corrupt": 0.1,
        });
        Spoiling::parse(params.as_object().unwrap()).unwrap()
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
    fn only_a_share_of_the_calls_meets_anything() {
        let half = Spoiling { call_probability: Probability::new("", 0.5).unwrap(), ..faults() };
        let met: Vec<u64> = (1..=10_000).filter(|call| half.verdict(3, *call) != Verdict::NOTHING).collect();
        assert!(met.iter().all(|call| half.verdict(3, *call) == faults().verdict(3, *call)));
        // Three of four calls meet a delay or a harm, of which this is half.
        assert!((3600..3900).contains(&met.len()), "{}", met.len());
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
