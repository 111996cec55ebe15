//! When a schedule may fire, or an experiment begin: times of the day on days of the week, or on dates, as the clock on the wall shows
//! them.

use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SpecError;

/// The days of a week, in its order.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// The most windows of one kind.
const MOST_WINDOWS: usize = 50;
const MINUTES_OF_A_DAY: u16 = 24 * 60;
/// A year that has every day that any has.
const LEAP_YEAR: i16 = 2024;
/// What a window of dates begins and ends with when nobody says.
const WHOLE_DAY: (&str, &str) = ("00:00", "24:00");

/// The time zone with this IANA name.
///
/// # Errors
/// Of the field `time_zone`, when there is none.
pub fn zone(name: &str) -> Result<TimeZone, SpecError> {
    // Those built in: the server can open no files, and all hosts with one version of the daemon agree.
    let zone = TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown());
    zone.ok_or_else(|| {
        let problem =
            format!("{name:?} is no time zone: give an IANA name such as \"Europe/Berlin\", or \"UTC\"");
        SpecError::new("time_zone", problem)
    })
}

/// A window in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowWords {
    /// The days on which it begins, e.g. "mon-fri" or "sat,sun"; every day without it.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<String>,
    /// In place of days, the dates on which it begins: one, e.g. "2026-12-24", or "12-25" of every year; or the first and the last of a
    /// range, e.g. "2026-12-24..2027-01-01".
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dates: Option<String>,
    /// When it begins, e.g. "09:00".
    pub from: String,
    /// When it is over, e.g. "17:00", or "24:00"; on the next day if that is not after its beginning.
    pub to: String,
}

impl WindowWords {
    /// Reads `mon-fri 09:00-17:00`, or without days `22:00-06:00`; or in place of days dates, `12-24 12:00-24:00`, which without times
    /// are whole days: `2026-12-24..2027-01-01`.
    ///
    /// # Errors
    /// When it is not of that form; what is in it is looked at by [`Windows::parse`].
    pub fn of(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let is_dates = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains(':');
        let (on, times) = match words[..] {
            [dates] if is_dates(dates) => return Ok(Self::on(dates.to_owned())),
            [times] => (None, times),
            [on, times] => (Some(on.to_owned()), times),
            _ => (None, ""),
        };
        let Some((from, to)) = times.split_once('-') else {
            return Err(format!(
                "{text:?} is no window, e.g. \"mon-fri 09:00-17:00\", \"22:00-06:00\", \"12-25\" or \"2026-12-24..2027-01-01\""
            ));
        };
        let (from, to) = (from.to_owned(), to.to_owned());
        match on {
            Some(dates) if is_dates(&dates) => Ok(Self { from, to, ..Self::on(dates) }),
            days => Ok(Self { days, dates: None, from, to }),
        }
    }

    /// All of these dates.
    pub fn on(dates: String) -> Self {
        let (from, to) = WHOLE_DAY;
        Self { days: None, dates: Some(dates), from: from.to_owned(), to: to.to_owned() }
    }
}

impl fmt::Display for WindowWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(on) = self.days.as_ref().or(self.dates.as_ref()) {
            write!(f, "{on} ")?;
        }
        write!(f, "{}-{}", self.from, self.to)
    }
}

/// Windows in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WindowsWords {
    /// It fires within one of these only; any time without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<WindowWords>,
    /// It never fires within these, whatever `only` says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<WindowWords>,
}

/// Days on which a window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Days {
    /// Those of the week, a bit each, Monday first.
    OfWeek(u8),
    /// From one date to another, both included, which is not before.
    Dates(Date, Date),
    /// From one month and day to another of every year, both included; on over the end of the year if that is before.
    EveryYear((i8, i8), (i8, i8)),
}

impl Days {
    fn has(self, date: Date) -> bool {
        match self {
            Self::OfWeek(days) => days & (1 << date.weekday().to_monday_zero_offset()) != 0,
            Self::Dates(first, last) => (first..=last).contains(&date),
            Self::EveryYear(first, last) => {
                let day = (date.month(), date.day());
                let (begun, not_over) = (first <= day, day <= last);
                if first <= last { begun && not_over } else { begun || not_over }
            }
        }
    }
}

/// A window that makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// The days on which it begins.
    days: Days,
    /// Its first minute of the day.
    from: u16,
    /// The minute after its last one.
    to: u16,
}

/// All minutes of an hour, a bit each.
const HOUR: u64 = (1 << 60) - 1;

/// Minutes of a day, a word for each hour: to go through years of them takes no long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minutes([u64; 24]);

impl Minutes {
    const NONE: Self = Self([0; 24]);
    const ALL: Self = Self([HOUR; 24]);

    /// Of each of these hours these minutes, a bit each.
    pub fn of(hours: u64, minutes: u64) -> Self {
        Self(std::array::from_fn(|hour| if hours & (1 << hour) == 0 { 0 } else { minutes & HOUR }))
    }

    /// Those of them that are among others as well.
    #[must_use]
    pub fn among(self, others: Self) -> Self {
        Self(std::array::from_fn(|hour| self.0[hour] & others.0[hour]))
    }

    /// Those of them that are not among others.
    fn without(self, others: Self) -> Self {
        self.among(Self(others.0.map(|minutes| !minutes)))
    }

    /// Adds those from one minute of the day until before another.
    fn add(&mut self, from: u16, to: u16) {
        for (minutes, begin) in self.0.iter_mut().zip((0..).step_by(60)) {
            let [first, end] = [from, to].map(|minute| minute.saturating_sub(begin).min(60));
            if first < end {
                *minutes |= (HOUR >> (60 - (end - first))) << first;
            }
        }
    }

    fn has(self, time: DateTime) -> bool {
        let minutes = usize::try_from(time.hour()).ok().and_then(|hour| self.0.get(hour));
        minutes.is_some_and(|minutes| minutes & (1 << time.minute()) != 0)
    }

    /// Each, as hour and minute, in their order.
    pub fn each(self) -> impl Iterator<Item = (i8, i8)> {
        let hours = self.0.into_iter().zip(0_i8..).filter(|(minutes, _)| *minutes != 0);
        hours.flat_map(|(minutes, hour)| {
            (0_i8..60).filter(move |minute| minutes & (1 << *minute) != 0).map(move |minute| (hour, minute))
        })
    }
}

/// Windows that make sense.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Windows {
    only: Vec<Window>,
    never: Vec<Window>,
}

impl Windows {
    /// Understands windows in words.
    ///
    /// # Errors
    /// Names the field that makes no sense, and what would be right.
    pub fn parse(words: &WindowsWords) -> Result<Self, SpecError> {
        Ok(Self { only: Window::all(&words.only, "only")?, never: Window::all(&words.never, "never")? })
    }

    /// Whether they are open at that time.
    pub fn allow(&self, time: DateTime) -> bool {
        self.minutes(time.date()).has(time)
    }

    /// The minutes of a day at which they are open.
    pub fn minutes(&self, date: Date) -> Minutes {
        let within = |windows: &[Window]| {
            let mut minutes = Minutes::NONE;
            windows.iter().for_each(|window| window.add(date, &mut minutes));
            minutes
        };
        let open = if self.only.is_empty() { Minutes::ALL } else { within(&self.only) };
        open.without(within(&self.never))
    }

    /// The same without those dates on which nothing ever happens; `None` if there are none.
    pub fn without_holidays(&self) -> Option<Self> {
        let is_weekly = |window: &&Window| matches!(window.days, Days::OfWeek(_));
        let never: Vec<_> = self.never.iter().filter(is_weekly).copied().collect();
        (never.len() < self.never.len()).then(|| Self { only: self.only.clone(), never })
    }

    /// Whether there are none, so that every time is right.
    pub fn is_empty(&self) -> bool {
        self.only.is_empty() && self.never.is_empty()
    }
}

impl Window {
    fn all(words: &[WindowWords], kind: &str) -> Result<Vec<Self>, SpecError> {
        if words.len() > MOST_WINDOWS {
            let problem = format!("there are {}, and {MOST_WINDOWS} is the most", words.len());
            return Err(SpecError::new(format!("windows.{kind}"), problem));
        }
        let words = words.iter().enumerate();
        words.map(|(index, words)| Self::parse(words, &format!("windows.{kind}[{index}]"))).collect()
    }

    fn parse(words: &WindowWords, path: &str) -> Result<Self, SpecError> {
        let wrong = |field: &str| {
            let path = format!("{path}.{field}");
            move |problem: String| SpecError::new(path, problem)
        };
        let days = match (&words.days, &words.dates) {
            (Some(text), None) => days(text).map(Days::OfWeek).map_err(wrong("days"))?,
            (None, Some(text)) => dates(text).map_err(wrong("dates"))?,
            (None, None) => Days::OfWeek(0x7f),
            (Some(_), Some(_)) => {
                return Err(wrong("dates")("there are days, too: give one of them".to_owned()));
            }
        };
        let time = |text: &str, field: &str| {
            minute_of_day(text).ok_or_else(|| {
                let problem = format!("{text:?} is no time of the day, e.g. \"09:00\"");
                SpecError::new(format!("{path}.{field}"), problem)
            })
        };
        let (from, to) = (time(&words.from, "from")?, time(&words.to, "to")?);
        if from == to || from == MINUTES_OF_A_DAY {
            let problem =
                format!("{}-{} has nothing in it: a whole day is 00:00-24:00", words.from, words.to);
            return Err(SpecError::new(format!("{path}.to"), problem));
        }
        Ok(Self { days, from, to })
    }

    /// Adds the minutes of a day that are in it.
    fn add(self, date: Date, minutes: &mut Minutes) {
        let begins = |date: Date| self.days.has(date);
        // Past midnight it goes on today if it began yesterday.
        let is_past_midnight = self.from > self.to;
        if is_past_midnight && date.yesterday().is_ok_and(begins) {
            minutes.add(0, self.to);
        }
        if begins(date) {
            minutes.add(self.from, if is_past_midnight { MINUTES_OF_A_DAY } else { self.to });
        }
    }
}

/// `mon-fri,sun`, as bits.
fn days(text: &str) -> Result<u8, String> {
    let number = |word: &str| {
        let word = word.trim().to_ascii_lowercase();
        DAYS.iter().position(|day| *day == word).ok_or_else(|| {
            format!(
                "{text:?}: {word:?} is no day: give {}, ranges such as mon-fri, or lists of them",
                DAYS.join(", ")
            )
        })
    };
    let mut set = 0_u8;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        // A range may go on past Sunday.
        let count = (last + DAYS.len() - first) % DAYS.len();
        set |= (first..=first + count).fold(0_u8, |set, day| set | (1 << (day % DAYS.len())));
    }
    Ok(set)
}

/// `2026-12-24..2027-01-01`, or one of the two; without years, of every year.
fn dates(text: &str) -> Result<Days, String> {
    let wrong = |problem: &str| format!("{text:?}: {problem}");
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (date(first)?, date(last)?) {
        ((Some(_), first), (Some(_), last)) if first <= last => Ok(Days::Dates(first, last)),
        ((Some(_), _), (Some(_), _)) => Err(wrong("its end is before its beginning")),
        ((None, first), (None, last)) => {
            Ok(Days::EveryYear((first.month(), first.day()), (last.month(), last.day())))
        }
        _ => Err(wrong("one of its dates has a year: give both a year, or none")),
    }
}

/// `2026-12-24`, with its year; or `12-24`, without.
fn date(text: &str) -> Result<(Option<i16>, Date), String> {
    let no_date = || format!("{text:?} is no date, e.g. \"2026-12-24\", or \"12-24\" of every year");
    let parts: Vec<_> = text.split('-').collect();
    let (year, month, day) = match parts[..] {
        [year, month, day] => (Some(year), month, day),
        [month, day] => (None, month, day),
        _ => return Err(no_date()),
    };
    let is_plain =
        |digits: &str, length| digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !(year.is_none_or(|year| is_plain(year, 4)) && is_plain(month, 2) && is_plain(day, 2)) {
        return Err(no_date());
    }
    let year = year.and_then(|year| year.parse().ok());
    let day_of = |year: i16| Date::new(year, month.parse().ok()?, day.parse().ok()?).ok();
    let found = day_of(year.unwrap_or(LEAP_YEAR));
    found.map(|date| (year, date)).ok_or_else(|| format!("{text:?} is no date: there is no such day"))
}

/// `09:30`, in minutes since midnight; `24:00` is the end of the day.
fn minute_of_day(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, longest: usize| {
        let plain = (1..=longest).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|_| plain)
    };
    let (hour, minute) = (number(hour, 2)?, number(minute, 2).filter(|_| minute.len() == 2)?);
    (minute < 60 && hour * 60 + minute <= MINUTES_OF_A_DAY).then_some(hour * 60 + minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(only: &[&str], never: &[&str]) -> Windows {
        let words = |texts: &[&str]| texts.iter().map(|text| WindowWords::of(text).unwrap()).collect();
        Windows::parse(&WindowsWords { only: words(only), never: words(never) }).unwrap()
    }

    /// 2026-02-02 is a Monday.
    fn allowed(windows: &Windows, times: &[&str]) -> Vec<bool> {
        times.iter().map(|time| windows.allow(format!("2026-02-{time}").parse().unwrap())).collect()
    }

    #[test]
    fn a_window_begins_with_its_first_minute_and_ends_before_its_last() {
        let office = windows(&["mon-fri 09:00-17:00"], &[]);
        let times = ["02T08:59", "02T09:00", "06T16:59:59", "06T17:00", "07T12:00"];
        assert_eq!(allowed(&office, &times), [false, true, true, false, false]);
        assert_eq!(allowed(&windows(&["0:00-24:00"], &[]), &["02T00:00", "08T23:59"]), [true, true]);
    }

    #[test]
    fn a_window_across_midnight_belongs_to_the_day_on_which_it_begins() {
        let night = windows(&["fri 22:00-06:00"], &[]);
        let times = ["06T05:59", "06T21:59", "06T22:00", "07T00:00", "07T05:59", "07T06:00", "07T22:00"];
        assert_eq!(allowed(&night, &times), [false, false, true, true, true, false, false]);
        // From Sunday into Monday.
        assert_eq!(allowed(&windows(&["sun 23:00-01:00"], &[]), &["02T00:30", "03T00:30"]), [true, false]);
    }

    #[test]
    fn never_counts_for_more_than_only() {
        let lunch = windows(&["09:00-17:00"], &["mon 12:00-13:00", "sat-mon 16:00-17:00"]);
        let times = ["02T12:30", "03T12:30", "02T16:30", "03T16:30", "08T16:30", "02T18:00"];
        assert_eq!(allowed(&lunch, &times), [false, true, false, true, false, false]);
        assert_eq!(allowed(&windows(&[], &["22:00-06:00"]), &["02T23:00", "02T12:00"]), [false, true]);
        assert!(windows(&[], &[]).is_empty() && allowed(&windows(&[], &[]), &["02T03:00"]) == [true]);
    }

    #[test]
    fn dates_are_whole_days_of_one_year_or_of_every_year() {
        let at = |windows: &Windows, times: &[&str]| -> Vec<bool> {
            times.iter().map(|time| windows.allow(time.parse().unwrap())).collect()
        };
        let holidays = windows(&[], &["2026-12-24..2027-01-01", "05-01", "12-30..01-02"]);
        let open = ["2026-12-23T23:59", "2027-01-03T00:00", "2025-12-29T12:00", "2026-05-02T00:00"];
        assert_eq!(at(&holidays, &open), [true; 4]);
        let closed = [
            "2026-12-24T00:00",
            "2027-01-01T23:59:59",
            "2026-05-01T12:00",
            "2031-05-01T00:00",
            "2029-12-30T00:00",
            "2030-01-02T23:59",
        ];
        assert_eq!(at(&holidays, &closed), [false; 6]);
        // The day that most years do not have.
        assert_eq!(at(&windows(&["02-29"], &[]), &["2028-02-29T12:00", "2027-03-01T00:00"]), [true, false]);
        // With times: past midnight, into a day that is no such date itself.
        let eve = windows(&["2026-12-31 22:00-02:00"], &[]);
        let times = ["2026-12-31T21:59", "2026-12-31T22:00", "2027-01-01T01:59", "2027-01-01T22:00"];
        assert_eq!(at(&eve, &times), [false, true, true, false]);
    }

    #[test]
    fn without_holidays_only_the_dates_of_never_are_left_out() {
        assert_eq!(windows(&["12-25"], &["sat 00:00-24:00"]).without_holidays(), None);
        let all = windows(&["mon 09:00-17:00", "12-25"], &["12-24..12-26", "12:00-13:00"]);
        let weekly = windows(&["mon 09:00-17:00", "12-25"], &["12:00-13:00"]);
        assert_eq!(all.without_holidays(), Some(weekly));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_field() {
        for (text, field) in [
            ("mon-fri 9-17", "windows.never[0].from"),
            ("mon-fri", "windows.never[0].from"),
            ("25:00-26:00", "windows.never[0].from"),
            ("09:00-24:01", "windows.never[0].to"),
            ("09:0-17:00", "windows.never[0].from"),
            ("+9:00-17:00", "windows.never[0].from"),
            ("09:00-09:00", "windows.never[0].to"),
            ("24:00-01:00", "windows.never[0].to"),
            ("someday 09:00-17:00", "windows.never[0].days"),
            ("mon-fri, 09:00-17:00", "windows.never[0].days"),
            ("02-30", "windows.never[0].dates"),
            ("2027-02-29", "windows.never[0].dates"),
            ("2026-13-01", "windows.never[0].dates"),
            ("2026-12-24..2026-12-23", "windows.never[0].dates"),
            ("2026-12-24..01-01", "windows.never[0].dates"),
            ("2026-12-24..", "windows.never[0].dates"),
            ("26-12-24", "windows.never[0].dates"),
            ("9-17", "windows.never[0].dates"),
            ("2026-12-24 00:00-00:00", "windows.never[0].to"),
        ] {
            let never = vec![WindowWords::of(text).unwrap()];
            let error = Windows::parse(&WindowsWords { only: Vec::new(), never }).unwrap_err();
            assert_eq!(error.field, field, "{text}: {error}");
        }
        let both = WindowWords { days: Some("mon".into()), ..WindowWords::on("12-25".into()) };
        let error = Windows::parse(&WindowsWords { only: vec![both], never: Vec::new() }).unwrap_err();
        assert_eq!(error.field, "windows.only[0].dates");
        let never = vec![WindowWords::of("12:00-13:00").unwrap(); MOST_WINDOWS + 1];
        let error = Windows::parse(&WindowsWords { only: Vec::new(), never }).unwrap_err();
        assert_eq!(error.field, "windows.never");
        for text in ["", "09:00", "mon 09:00", "mon fri 09:00-17:00", "09:00 - 17:00"] {
            assert!(WindowWords::of(text).is_err(), "{text:?}");
        }
    }
}
