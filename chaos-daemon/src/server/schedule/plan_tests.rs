//! Firings through the changes of the clocks, windows, jitter, and what is too late.

use proptest::prelude::*;

use super::*;
use crate::spec::windows::WindowWords;

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn words(cron: &str, time_zone: &str) -> Words {
    let windows = WindowsWords::default();
    let (cron, time_zone) = (cron.to_owned(), time_zone.to_owned());
    Words { experiment: "x".into(), cron, time_zone, windows, jitter_seconds: 0, seed: 0 }
}

fn plan(words: &Words) -> Plan {
    Plan::parse(words, at("2026-01-01T00:00:00Z")).unwrap()
}

fn with_windows(mut words: Words, only: &[&str], never: &[&str]) -> Words {
    let all = |texts: &[&str]| texts.iter().map(|text| WindowWords::of(text).unwrap()).collect();
    words.windows = WindowsWords { only: all(only), never: all(never) };
    words
}

/// The next so many times, as the zone's clocks show them.
fn times(plan: &Plan, after: &str, count: usize) -> Vec<String> {
    let mut after = at(after);
    let next = || {
        after = plan.next(after)?.occurrence;
        Some(plan.shown(after))
    };
    std::iter::from_fn(next).take(count).collect()
}

#[test]
fn times_are_those_of_the_zones_clocks() {
    let berlin = plan(&words("0 10 * * 1-5", "Europe/Berlin"));
    let expected = ["2026-02-06T10:00:00+01:00", "2026-02-09T10:00:00+01:00"];
    assert_eq!(times(&berlin, "2026-02-05T09:00:00Z", 2), expected);
    assert_eq!(times(&berlin, "2026-07-01T07:59:59Z", 1), ["2026-07-01T10:00:00+02:00"]);
    let utc = plan(&words("0 10 * * *", "utc"));
    assert_eq!(times(&utc, "2026-02-05T10:00:00Z", 1), ["2026-02-06T10:00:00+00:00"]);
    assert_eq!(utc.zone_name(), "UTC");
    assert_eq!(plan(&words("0 10 * * *", "europe/berlin")).zone_name(), "Europe/Berlin");
}

#[test]
fn in_spring_what_the_clocks_skip_comes_when_they_have_changed() {
    // On 2026-03-29 Berlin goes from 02:00 to 03:00.
    let night = plan(&words("30 2 * * *", "Europe/Berlin"));
    let expected = ["2026-03-28T02:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00"];
    assert_eq!(times(&night, "2026-03-28T00:00:00Z", 3), expected);
    // Two times that become one fire once.
    let both = plan(&words("30 2,3 * * *", "Europe/Berlin"));
    assert_eq!(
        times(&both, "2026-03-28T23:00:00Z", 2),
        ["2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00"]
    );
    // What goes by the hour has no such hour.
    let hourly = plan(&words("30 * * * *", "Europe/Berlin"));
    assert_eq!(
        times(&hourly, "2026-03-29T00:00:00Z", 2),
        ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]
    );
}

#[test]
fn in_autumn_what_the_clocks_repeat_comes_once() {
    // On 2026-10-25 Berlin goes from 03:00 back to 02:00.
    let night = plan(&words("30 2 * * *", "Europe/Berlin"));
    let expected = ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"];
    assert_eq!(times(&night, "2026-10-24T12:00:00Z", 2), expected);
    // Also if the server looks in the repeated hour only.
    assert_eq!(times(&night, "2026-10-25T01:10:00Z", 1), ["2026-10-26T02:30:00+01:00"]);
    let hourly = plan(&words("30 * * * *", "Europe/Berlin"));
    let expected = ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"];
    assert_eq!(times(&hourly, "2026-10-25T00:00:00Z", 3), expected);
}

#[test]
fn a_change_at_midnight_loses_no_day_and_doubles_none() {
    // On 2026-04-24 Cairo goes from 00:00 to 01:00, and on 2026-10-30 from 00:00 back to 23:00.
    let midnight = plan(&words("0 0 * * *", "Africa/Cairo"));
    let spring = ["2026-04-23T00:00:00+02:00", "2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"];
    assert_eq!(times(&midnight, "2026-04-22T12:00:00Z", 3), spring);
    let late = plan(&words("30 23 * * *", "Africa/Cairo"));
    assert_eq!(
        times(&late, "2026-10-29T12:00:00Z", 2),
        ["2026-10-29T23:30:00+03:00", "2026-10-30T23:30:00+02:00"]
    );
}

#[test]
fn it_fires_within_its_windows_only() {
    let words =
        with_windows(words("*/30 * * * *", "Europe/Berlin"), &["mon-fri 09:00-10:00"], &["wed 09:30-10:00"]);
    let expected = ["2026-02-03T09:30:00+01:00", "2026-02-04T09:00:00+01:00", "2026-02-05T09:00:00+01:00"];
    assert_eq!(times(&plan(&words), "2026-02-03T08:00:00Z", 3), expected);
    // A time that the clocks have moved out of its window is left out.
    let words = with_windows(self::words("30 2 * * *", "Europe/Berlin"), &["02:00-03:00"], &[]);
    let expected = ["2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00"];
    assert_eq!(times(&plan(&words), "2026-03-28T00:00:00Z", 2), expected);
}

#[test]
fn jitter_is_reproducible_and_stays_below_its_bound() {
    let mut words = words("0 10 * * *", "UTC");
    words.jitter_seconds = 300;
    let delays = |seed: u32| -> Vec<i64> {
        let plan = plan(&Words { seed, ..words.clone() });
        let mut after = at("2026-02-01T00:00:00Z");
        let next = || {
            let firing = plan.next(after)?;
            after = firing.occurrence;
            Some(firing.due.duration_since(firing.occurrence).as_secs())
        };
        std::iter::from_fn(next).take(200).collect()
    };
    let seven = delays(7);
    assert_eq!(seven, delays(7));
    assert_ne!(seven, delays(8));
    assert!(seven.iter().all(|delay| (0..=300).contains(delay)), "{seven:?}");
    let mean = seven.iter().sum::<i64>() / 200;
    assert!((100..200).contains(&mean), "{mean}");
}

#[test]
fn jitter_leads_neither_out_of_a_window_nor_to_the_next_time() {
    let mut words = with_windows(words("50 16 * * *", "UTC"), &["09:00-17:00"], &[]);
    words.jitter_seconds = 3600;
    let mut minutely = self::words("* * * * *", "UTC");
    minutely.jitter_seconds = 3600;
    for seed in 0..200 {
        let firing = plan(&Words { seed, ..words.clone() }).next(at("2026-02-01T00:00:00Z")).unwrap();
        assert!(firing.due < at("2026-02-01T17:00:00Z"), "{seed}: {firing:?}");
        let firing = plan(&Words { seed, ..minutely.clone() }).next(at("2026-02-01T00:00:00Z")).unwrap();
        assert!(firing.due < at("2026-02-01T00:02:00Z"), "{seed}: {firing:?}");
    }
}

#[test]
fn what_is_late_by_more_than_the_grace_is_missed_and_counted() {
    let plan = plan(&words("0 * * * *", "UTC"));
    let handled = at("2026-02-01T10:00:00Z");
    let firing = |time: &str| Firing { occurrence: at(time), due: at(time) };
    let eleven = at("2026-02-01T11:00:00Z");
    assert_eq!(plan.due(handled, at("2026-02-01T10:59:59Z")), Due::NotYet(eleven));
    for now in ["2026-02-01T11:00:00Z", "2026-02-01T11:01:00Z"] {
        assert_eq!(plan.due(handled, at(now)), Due::Fire(firing("2026-02-01T11:00:00Z")), "{now}");
    }
    assert_eq!(
        plan.due(handled, at("2026-02-01T11:01:01Z")),
        Due::Missed { first: eleven, until: eleven, times: 1 }
    );
    // What can still come is not among them.
    let until = at("2026-02-01T13:00:00Z");
    assert_eq!(plan.due(handled, at("2026-02-01T14:00:30Z")), Due::Missed { first: eleven, until, times: 3 });
    assert_eq!(plan.due(until, at("2026-02-01T14:00:30Z")), Due::Fire(firing("2026-02-01T14:00:00Z")));
    // A clock that went back has nothing to do again.
    assert_eq!(plan.due(handled, at("2026-02-01T09:30:00Z")), Due::NotYet(eleven));
}

#[test]
fn a_window_that_is_over_is_not_entered_late() {
    let plan = plan(&with_windows(words("59 16 * * *", "UTC"), &["09:00-17:00"], &[]));
    let handled = at("2026-02-01T00:00:00Z");
    let time = at("2026-02-01T16:59:00Z");
    assert!(matches!(plan.due(handled, at("2026-02-01T16:59:55Z")), Due::Fire(_)));
    let missed = Due::Missed { first: time, until: time, times: 1 };
    assert_eq!(plan.due(handled, at("2026-02-01T17:00:00Z")), missed);
}

#[test]
fn what_falls_on_a_date_is_skipped_and_counted_and_what_is_late_beside_it_is_missed() {
    // Every six hours, and 25 and 26 December are holidays, in a zone an hour ahead.
    let plan = plan(&with_windows(words("0 */6 * * *", "Europe/Berlin"), &[], &["12-25..12-26"]));
    let expected = ["2026-12-24T18:00:00+01:00", "2026-12-27T00:00:00+01:00"];
    assert_eq!(times(&plan, "2026-12-24T12:00:00Z", 2), expected);
    let (eve, over) = (at("2026-12-24T17:00:00Z"), at("2026-12-26T23:00:00Z"));
    assert_eq!(plan.due(eve, at("2026-12-24T22:59:59Z")), Due::NotYet(over));
    let midnight = at("2026-12-24T23:00:00Z");
    let skipped = |until: &str, times| Due::Skipped { first: midnight, until: at(until), times };
    assert_eq!(plan.due(eve, midnight), skipped("2026-12-24T23:00:00Z", 1));
    assert_eq!(plan.due(midnight, at("2026-12-25T04:59:59Z")), Due::NotYet(over));
    // All of them at once, but not what is to be fired after them.
    assert_eq!(plan.due(eve, at("2026-12-26T23:00:30Z")), skipped("2026-12-26T17:00:00Z", 8));
    let last = at("2026-12-26T17:00:00Z");
    assert_eq!(plan.due(last, at("2026-12-26T23:00:30Z")), Due::Fire(Firing { occurrence: over, due: over }));
    // Nobody was there from the day before to the day after: each time is what it would have been.
    let (handled, now) = (at("2026-12-24T11:00:00Z"), at("2026-12-27T05:30:00Z"));
    let missed = |time| Due::Missed { first: time, until: time, times: 1 };
    assert_eq!(plan.due(handled, now), missed(eve));
    assert_eq!(plan.due(eve, now), skipped("2026-12-26T17:00:00Z", 8));
    assert_eq!(plan.due(last, now), Due::Missed { first: over, until: at("2026-12-27T05:00:00Z"), times: 2 });
}

#[test]
fn a_long_holiday_is_dealt_with_at_once() {
    let plan = plan(&with_windows(words("* * * * *", "UTC"), &[], &["2026-02-01..2026-03-31"]));
    let now = at("2026-03-01T10:00:30Z");
    let Due::Skipped { until, times, .. } = plan.due(at("2026-02-01T00:00:00Z"), now) else {
        panic!("not skipped")
    };
    assert_eq!((until, times), (now, MOST_COUNTED));
    assert!(matches!(plan.due(until, now), Due::NotYet(_)));
    // Hours in which it does not fire are no dates: nothing is told of them.
    let office = self::plan(&with_windows(words("* * * * *", "UTC"), &[], &["10:00-11:00"]));
    assert!(matches!(office.due(at("2026-03-01T09:59:00Z"), now), Due::NotYet(_)));
}

#[test]
fn years_that_were_missed_are_dealt_with_at_once() {
    let plan = plan(&words("* * * * *", "UTC"));
    let now = at("2026-02-01T10:00:30Z");
    let Due::Missed { until, times, .. } = plan.due(at("2024-02-01T00:00:00Z"), now) else {
        panic!("not missed")
    };
    assert_eq!(times, MOST_COUNTED);
    assert!(matches!(plan.due(until, now), Due::Fire(_)), "{until}");
}

#[test]
fn a_clock_that_was_far_ahead_does_not_stop_a_schedule_for_ever() {
    let (now, ahead) = (at("2026-02-01T10:00:00Z"), at("2040-01-01T00:00:00Z"));
    assert_eq!(settle(ahead, Some(at("2026-01-31T00:00:00Z")), now), now);
    assert_eq!(settle(ahead, None, now), now);
    // What was tried is not tried again.
    assert_eq!(settle(ahead, Some(ahead), now), ahead);
    let hour = at("2026-02-01T11:00:00Z");
    assert_eq!(settle(hour, None, now), hour);
    assert_eq!(settle(at("2026-01-01T00:00:00Z"), None, now), at("2026-01-01T00:00:00Z"));
}

#[test]
fn what_never_fires_is_refused_with_its_field() {
    let refused = |words: &Words| Plan::parse(words, at("2026-01-01T00:00:00Z")).unwrap_err();
    assert_eq!(refused(&words("0 0 31 2 *", "UTC")).field, "cron");
    for zone in ["Mars/Olympus", "", "../../etc/passwd", "Local"] {
        assert_eq!(refused(&words("0 0 * * *", zone)).field, "time_zone", "{zone}");
    }
    let office = with_windows(words("0 20 * * *", "UTC"), &["mon-fri 09:00-17:00"], &[]);
    assert_eq!(refused(&office).field, "windows");
    let never = with_windows(words("0 20 * * *", "UTC"), &[], &["00:00-24:00"]);
    assert_eq!(refused(&never).field, "windows");
    let christmas = with_windows(words("0 20 25 12 *", "UTC"), &[], &["12-25"]);
    assert_eq!(refused(&christmas).field, "windows");
    let over = with_windows(words("0 20 * * *", "UTC"), &["2025-12-25"], &[]);
    assert_eq!(refused(&over).field, "windows");
    let late = Words { jitter_seconds: LONGEST_JITTER + 1, ..words("0 20 * * *", "UTC") };
    assert_eq!(refused(&late).field, "jitter_seconds");
    // There is one every four years.
    let leap = plan(&words("0 0 29 2 *", "UTC"));
    assert_eq!(times(&leap, "2026-01-01T00:00:00Z", 1), ["2028-02-29T00:00:00+00:00"]);
}

proptest! {
    /// Whatever the clocks do: times come in order, each after the one before, and with jitter as well.
    #[test]
    fn firings_are_in_order(start in 1_760_000_000_i64..1_860_000_000, minute in 0_u8..60, hour in 0_u8..24, every in any::<bool>(),
        jitter in 0_u32..LONGEST_JITTER, zone in prop::sample::select(&["Europe/Berlin", "Africa/Cairo", "America/St_Johns", "UTC"][..])) {
        let cron = if every { format!("{minute} * * * *") } else { format!("{minute} {hour},2 * * *") };
        let plan = plan(&Words { jitter_seconds: jitter, ..words(&cron, zone) });
        let mut before = Firing { occurrence: Timestamp::from_second(start).unwrap(), due: Timestamp::MIN };
        for _ in 0..5 {
            let next = plan.next(before.occurrence).unwrap();
            prop_assert!(next.occurrence > before.occurrence && next.due > before.due && next.due >= next.occurrence);
            before = next;
        }
    }
}
