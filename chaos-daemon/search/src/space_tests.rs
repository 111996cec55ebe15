//! Tests of ladders and of what is within what.

use proptest::prelude::*;

use super::*;
use crate::samples::{faults, ladder, pair, range};

#[test]
fn a_ladder_goes_from_the_mildest_to_the_harshest_and_ends_at_its_ends() {
    let linear = range(0.0, 10.0, Scale::Linear, Some(3.0), Harsher::Larger);
    assert_eq!((0..5).map(|rung| linear.number(rung)).collect::<Vec<_>>(), [0.0, 3.0, 6.0, 9.0, 10.0]);
    let bandwidth = range(1.0, 100.0, Scale::Logarithmic, Some(10.0), Harsher::Smaller);
    assert_eq!((0..3).map(|rung| bandwidth.number(rung)).collect::<Vec<_>>(), [100.0, 10.0, 1.0]);
    let one = range(5.0, 5.0, Scale::Linear, None, Harsher::Larger);
    assert_eq!((one.len(), one.number(7)), (1, 5.0));
}

#[test]
fn whole_numbers_stand_on_a_ladder_once_each() {
    let values =
        Values::Range { from: 1.0, to: 8.0, scale: Scale::Logarithmic, step: Some(1.2), whole: true };
    let whole = ladder(values, Harsher::Larger);
    let numbers: Vec<f64> = (0..whole.len() as u32).map(|rung| whole.number(rung)).collect();
    assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn a_set_has_its_order_only_if_it_is_said() {
    let words = || Values::Set(vec!["reset".into(), "drop".into()]);
    assert_eq!(ladder(words(), Harsher::Smaller).value(0), Value::Word("drop".into()));
    assert_eq!(ladder(words(), Harsher::Larger).value(0), Value::Word("reset".into()));
    assert!(!ladder(words(), Harsher::Unknown).is_ordered());
}

#[test]
fn a_range_that_is_none_is_refused_with_what_is_wrong() {
    let of = |from, to, scale, step| {
        Ladder::try_from(LadderWords {
            values: Values::Range { from, to, scale, step, whole: false },
            harsher: Harsher::Larger,
        })
        .map_err(|error| error.to_string())
    };
    assert!(of(2.0, 1.0, Scale::Linear, None).unwrap_err().contains("goes from 2 to 1"));
    assert!(of(0.0, 1.0, Scale::Logarithmic, None).unwrap_err().contains("above 0"));
    assert!(of(f64::NAN, 1.0, Scale::Linear, None).is_err());
    for (scale, step) in [
        (Scale::Linear, 0.0),
        (Scale::Linear, -1.0),
        (Scale::Linear, 1e-9),
        (Scale::Linear, f64::NAN),
        (Scale::Logarithmic, 1.0),
        (Scale::Logarithmic, 0.5),
    ] {
        assert!(of(1.0, 2.0, scale, Some(step)).unwrap_err().contains("steps"), "{scale:?} {step}");
    }
}

#[test]
fn a_space_is_read_from_what_a_document_says() {
    let text = r#"{"kinds": [{"name": "slow", "parameters": [{"name": "delay", "unit": "ms", "ladder":
        {"values": {"range": {"from": 1, "to": 1000, "scale": "logarithmic"}}, "harsher": "larger"}}]}],
        "most": 1, "duration": {"values": {"range": {"from": 30, "to": 30}}, "harsher": "larger"}}"#;
    let space: Space = serde_json::from_str(text).unwrap();
    space.check().unwrap();
    let candidate = space.mildest(&[0]);
    assert_eq!(space.setting(&candidate).to_string(), "slow delay 1ms, for 30s");
    assert_eq!(serde_json::from_str::<Space>(&serde_json::to_string(&space).unwrap()).unwrap(), space);
    assert!(serde_json::from_str::<Space>(&text.replace("\"from\": 1,", "\"from\": 2000,")).is_err());
}

#[test]
fn a_space_that_cannot_be_searched_is_refused() {
    let wrong = |change: fn(&mut Space)| {
        let mut space = pair();
        change(&mut space);
        space.check().unwrap_err().to_string()
    };
    assert!(wrong(|space| space.kinds.clear()).contains("has 0 faults"));
    assert!(wrong(|space| space.most = 3).contains("most is 3"));
    assert!(wrong(|space| *space = faults(12)).contains("4095 combinations"));
    assert!(wrong(|space| space.kinds[1].name = "a".into()).contains("twice"));
    assert!(
        wrong(|space| space.duration = ladder(Values::Set(vec!["x".into()]), Harsher::Larger))
            .contains("seconds")
    );
}

#[test]
fn an_absent_fault_is_milder_than_any() {
    let space = pair();
    let (one, both) = (space.mildest(&[0]), space.mildest(&[0, 1]));
    assert!(space.is_within(&one, &both) && !space.is_within(&both, &one));
    assert!(space.magnitude(&one) < space.magnitude(&both));
    let later = both.with(Place::Gap { kind: 1 }, 3);
    assert!(space.is_within(&one, &later), "alone, it does not matter when");
    assert!(!space.is_within(&both, &later) && !space.is_within(&later, &both));
    assert_eq!(later.only(&[1]), space.mildest(&[1]));
    assert!(space.seconds(&later) > space.seconds(&both));
}

#[test]
fn what_has_no_order_is_within_nothing_but_itself() {
    let mut space = pair();
    space.kinds[0].parameters[0].ladder = range(0.0, 9.0, Scale::Linear, Some(1.0), Harsher::Unknown);
    let place = Place::Parameter { kind: 0, parameter: 0 };
    let at = |rung| space.mildest(&[0]).with(place, rung);
    assert!(space.is_within(&at(3), &at(3)));
    assert!(!space.is_within(&at(3), &at(4)) && !space.is_within(&at(4), &at(3)));
    assert_eq!(space.magnitude(&at(3)), space.magnitude(&at(4)));
}

#[test]
fn a_candidate_of_another_space_is_none_of_this() {
    let space = pair();
    let good = space.mildest(&[0, 1]);
    assert!(space.holds(&good));
    assert!(!space.holds(&Candidate { faults: vec![], duration: 0 }));
    assert!(!space.holds(&good.with(Place::Duration, 9)));
    assert!(!space.holds(&good.with(Place::Parameter { kind: 0, parameter: 0 }, 100_000)));
    assert!(
        !space
            .holds(&Candidate { faults: vec![good.faults[1].clone(), good.faults[0].clone()], duration: 0 })
    );
}

fn any_candidate() -> impl Strategy<Value = Candidate> {
    (1u8..4, 0u32..20, 0u32..20, 0u32..2).prop_map(|(set, a, b, after)| {
        let kinds: Vec<usize> = (0..2).filter(|kind| set & (1 << kind) != 0).collect();
        let mut candidate = pair().mildest(&kinds);
        for (kind, rung) in [(0, a), (1, b)] {
            candidate = candidate.with(Place::Parameter { kind, parameter: 0 }, rung);
        }
        if set == 3 && after > 0 { candidate.with(Place::Gap { kind: 1 }, after) } else { candidate }
    })
}

proptest! {
    #[test]
    fn what_is_within_something_is_smaller_and_no_shorter_way_leads_to_it(
        a in any_candidate(), b in any_candidate(), c in any_candidate()
    ) {
        let space = pair();
        prop_assert!(space.holds(&a) && space.is_within(&a, &a));
        if space.is_within(&a, &b) {
            prop_assert!(space.magnitude(&a) <= space.magnitude(&b));
            prop_assert!(space.distance(Some(&a), &b) <= space.distance(None, &b) + 1e-9);
            if space.is_within(&b, &c) {
                prop_assert!(space.is_within(&a, &c));
            }
            if space.is_within(&b, &a) && a.faults.len() > 1 {
                prop_assert_eq!(a, b);
            }
        }
    }

    #[test]
    fn a_number_that_is_exact_stays_it_in_text(number in proptest::num::f64::ANY) {
        let kept = exact(number);
        if kept.is_finite() {
            prop_assert_eq!(exact(kept).to_bits(), kept.to_bits());
            let text = serde_json::to_string(&kept).unwrap();
            prop_assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), kept.to_bits());
        }
    }
}
