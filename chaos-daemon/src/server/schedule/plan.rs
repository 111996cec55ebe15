//! When a schedule fires: pure, with the time passed in.
//!
//! A time that a change of the clocks skips counts when they have changed, and one that it repeats counts once, the first time;
//! an expression with every hour in it goes by the hours that there are. So it is with cron(8), too.

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::cron::Cron;
use crate::spec::SpecError;
use crate::spec::windows::{Windows, WindowsWords, zone};

/// How late a firing may come; later it is missed.
pub const GRACE: SignedDuration = SignedDuration::from_secs(60);
/// The longest jitter.
pub const LONGEST_JITTER: u32 = 12 * 3600;
/// The most missed times that are counted at once.
pub const MOST_COUNTED: u32 = 1000;
/// How far a time is looked for: there is a 29 February in it.
const HORIZON_DAYS: u32 = 4 * 366;
/// No change of a clock repeats or skips more than this but one that skips a day.
const SHIFT: SignedDuration = SignedDuration::from_hours(3);
/// A clock that went back by more was wrong before.
const WRONG: SignedDuration = SignedDuration::from_hours(24);

/// What a schedule is, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Words {
    /// The registered experiment that it runs.
    pub experiment: String,
    /// Minute, hour, day of the month, month, day of the week.
    pub cron: String,
    /// Whose clock and whose weekdays, by its IANA name.
    pub time_zone: String,
    /// When it may fire.
    #[serde(default)]
    pub windows: WindowsWords,
    /// Each firing comes up to so many seconds later, by chance.
    #[serde(default)]
    pub jitter_seconds: u32,
    /// Decides how much later: the same seed, the same times.
    #[serde(default)]
    pub seed: u32,
}

/// When to fire.
#[derive(Debug, Clone)]
pub struct Plan {
    cron: Cron,
    zone: TimeZone,
    windows: Windows,
    /// The windows without the dates on which it never fires, if there are any.
    workdays: Option<Windows>,
    jitter: u32,
    seed: u32,
}

/// One firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// The time that the expression means.
    pub occurrence: Timestamp,
    /// When it comes, with its jitter.
    pub due: Timestamp,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing before then.
    NotYet(Timestamp),
    /// Fire.
    Fire(Firing),
    /// Nothing: what was to be done is too late.
    Missed {
        /// The first time that was missed.
        first: Timestamp,
        /// Up to which time all is dealt with.
        until: Timestamp,
        /// How many were; at least, if it is [`MOST_COUNTED`].
        times: u32,
    },
    /// Nothing: it fell on dates on which it never fires.
    Skipped {
        /// The first time that did.
        first: Timestamp,
        /// Up to which time all is dealt with.
        until: Timestamp,
        /// How many did; at least, if it is [`MOST_COUNTED`].
        times: u32,
    },
    /// Nothing, for years.
    Never,
}

impl Plan {
    /// Understands a schedule, and sees that it fires at all, after `now`.
    ///
    /// # Errors
    /// Names the field that makes no sense, and what would be right.
    pub fn parse(words: &Words, now: Timestamp) -> Result<Self, SpecError> {
        if words.jitter_seconds > LONGEST_JITTER {
            let problem = format!("{} is too long: at most {LONGEST_JITTER}", words.jitter_seconds);
            return Err(SpecError::new("jitter_seconds", problem));
        }
        let windows = Windows::parse(&words.windows)?;
        let plan = Self {
            cron: Cron::parse(&words.cron)?,
            zone: zone(&words.time_zone)?,
            workdays: windows.without_holidays(),
            windows,
            jitter: words.jitter_seconds,
            seed: words.seed,
        };
        if plan.occurrence(now).is_some() {
            return Ok(plan);
        }
        let free = Self { windows: Windows::default(), workdays: None, ..plan.clone() };
        Err(match free.occurrence(now) {
            None => SpecError::new("cron", format!("{:?} means no day in the next four years", words.cron)),
            Some(_) => SpecError::new(
                "windows",
                format!("they let {:?} never fire: widen them, or change cron", words.cron),
            ),
        })
    }

    /// The name of the time zone as its database has it.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// A time as the zone's clocks show it, ISO 8601.
    pub fn shown(&self, time: Timestamp) -> String {
        format!("{:.0}", time.display_with_offset(self.zone.to_offset(time)))
    }

    /// The first firing whose time is after `after`; none, if there is none for years.
    pub fn next(&self, after: Timestamp) -> Option<Firing> {
        let occurrence = self.occurrence(after)?;
        Some(Firing { occurrence, due: self.due_of(occurrence) })
    }

    /// What is to be done `now`, if everything up to `handled` is dealt with.
    pub fn due(&self, handled: Timestamp, now: Timestamp) -> Due {
        let next = self.next(handled);
        if let Some(skipped) = self.skipped(handled, now, next) {
            return skipped;
        }
        let Some(next) = next else { return Due::Never };
        if next.due > now {
            return Due::NotYet(next.due);
        }
        if !self.is_late(next, now) {
            return Due::Fire(next);
        }
        let first = next.occurrence;
        let (mut until, mut times) = (first, 1);
        while let Some(next) = self.next(until).filter(|next| self.is_late(*next, now)) {
            if self.skipped(until, now, Some(next)).is_some() {
                break;
            }
            if times == MOST_COUNTED {
                // None that could still come is left out.
                let jitter = SignedDuration::from_secs(self.jitter.into());
                return Due::Missed { first, until: until.max(now - GRACE - jitter), times };
            }
            (until, times) = (next.occurrence, times + 1);
        }
        Due::Missed { first, until, times }
    }

    /// The times up to `now` that come after `handled` and before `next`, the next firing: dates have kept them from being any.
    fn skipped(&self, handled: Timestamp, now: Timestamp, next: Option<Firing>) -> Option<Due> {
        let windows = self.workdays.clone()?;
        let free = Self { windows, workdays: None, ..self.clone() };
        let end = next.map_or(now, |next| now.min(next.occurrence - SignedDuration::from_secs(1)));
        let after = |time| free.occurrence(time).filter(|time| *time <= end);
        let first = after(handled)?;
        let (mut until, mut times) = (first, 1);
        while let Some(time) = after(until) {
            if times == MOST_COUNTED {
                return Some(Due::Skipped { first, until: end, times });
            }
            (until, times) = (time, times + 1);
        }
        Some(Due::Skipped { first, until, times })
    }

    /// Too late by the grace, or by a window that is over.
    fn is_late(&self, firing: Firing, now: Timestamp) -> bool {
        let late = now.duration_since(firing.due);
        late > GRACE || (late.is_positive() && !self.allows(now))
    }

    fn allows(&self, time: Timestamp) -> bool {
        self.windows.is_empty() || self.windows.allow(self.zone.to_datetime(time))
    }

    /// With the jitter, which leads neither out of a window nor to the next time.
    fn due_of(&self, occurrence: Timestamp) -> Timestamp {
        if self.jitter == 0 {
            return occurrence;
        }
        let next = self.occurrence(occurrence);
        let before_next = next.map_or(i64::MAX, |next| next.duration_since(occurrence).as_secs() - 1);
        let mut room = i64::from(self.jitter).min(before_next).max(0);
        if !self.windows.is_empty() {
            let after = |minutes: i64| occurrence + SignedDuration::from_mins(minutes);
            let end = (1..=room / 60).find(|minutes| !self.allows(after(*minutes)));
            room = end.map_or(room, |minutes| minutes * 60 - 1);
        }
        // Both are seconds: neither wraps.
        let chance = self.chance(occurrence) % (room.unsigned_abs() + 1);
        occurrence + SignedDuration::from_secs(chance.cast_signed())
    }

    fn chance(&self, occurrence: Timestamp) -> u64 {
        let mut bytes = self.seed.to_le_bytes().to_vec();
        bytes.extend(occurrence.as_second().to_le_bytes());
        Sha256::digest(bytes).iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte))
    }

    /// The first time that the expression means after `after`, and the windows allow.
    fn occurrence(&self, after: Timestamp) -> Option<Timestamp> {
        let local = self.zone.to_datetime(after);
        // A clock that is set back has yesterday's times again.
        let mut date = local.date().yesterday().unwrap_or(local.date());
        let mut found: Option<Timestamp> = None;
        for _ in 0..HORIZON_DAYS {
            let last = found.is_some();
            if self.cron.means(date) {
                found = found.into_iter().chain(self.on(date, after)).min();
            }
            if last {
                return found;
            }
            date = date.tomorrow().ok()?;
        }
        found
    }

    /// The first such time of one day.
    fn on(&self, date: Date, after: Timestamp) -> Option<Timestamp> {
        let local = self.zone.to_datetime(after);
        let mut found: Option<(Timestamp, jiff::civil::DateTime)> = None;
        // First which minutes those are: there are years of days, and may be a hundred windows.
        for (hour, minute) in self.cron.minutes().among(self.windows.minutes(date)).each() {
            let time = date.at(hour, minute, 0, 0);
            if local.duration_since(time) > SHIFT {
                continue;
            }
            if found.is_some_and(|(_, first)| time.duration_since(first) > SHIFT) {
                break;
            }
            let ambiguous = self.zone.to_ambiguous_timestamp(time);
            let times = match ambiguous.offset() {
                AmbiguousOffset::Unambiguous { .. } => [ambiguous.compatible().ok(), None],
                AmbiguousOffset::Gap { .. } if self.cron.every_hour => [None, None],
                AmbiguousOffset::Gap { .. } => [ambiguous.later().ok(), None],
                AmbiguousOffset::Fold { .. } if self.cron.every_hour => {
                    [ambiguous.earlier().ok(), ambiguous.later().ok()]
                }
                AmbiguousOffset::Fold { .. } => [ambiguous.earlier().ok(), None],
            };
            for instant in times.into_iter().flatten().filter(|at| *at > after && self.allows(*at)) {
                if found.is_none_or(|(first, _)| instant < first) {
                    found = Some((instant, found.map_or(time, |(_, civil)| civil)));
                }
            }
        }
        found.map(|(instant, _)| instant)
    }
}

/// From when on a schedule looks after the clock: as it was (`handled`), or, if the clock was set back by more than a day, since now,
/// but never again what it has `tried`.
pub fn settle(handled: Timestamp, tried: Option<Timestamp>, now: Timestamp) -> Timestamp {
    if handled.duration_since(now) <= WRONG {
        return handled;
    }
    tried.map_or(now, |tried| tried.max(now))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
