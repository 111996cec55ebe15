//! Which minutes of which days a cron expression means, by the rules of cron(8) and crontab(5).

use jiff::civil::Date;

use crate::spec::SpecError;
use crate::spec::windows::Minutes;

/// What a field of the expression may hold.
struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    /// Words for its values, from the least one on.
    words: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
/// Names of the days of a week, as cron counts them.
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// The longest expression, in bytes.
const LONGEST: usize = 500;
/// Sunday has two numbers.
const SUNDAY: u8 = 7;

/// In their order.
const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, words: &[] },
    Field { name: "hour", least: 0, most: 23, words: &[] },
    Field { name: "day of the month", least: 1, most: 31, words: &[] },
    Field { name: "month", least: 1, most: 12, words: MONTHS },
    Field { name: "day of the week", least: 0, most: SUNDAY, words: WEEKDAYS },
];

/// A cron expression of five fields: minute, hour, day of the month, month, day of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both kinds of day are restricted, so that either makes a day.
    either_day: bool,
    /// Every hour counts, also one that a change of the clock repeats.
    pub every_hour: bool,
}

impl Cron {
    /// Understands `*`, numbers, names of months and weekdays, ranges, lists and steps (`*/15`, `9-17/2`).
    ///
    /// # Errors
    /// Names the field that makes no sense, and what would be right.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        if text.len() > LONGEST {
            return Err(SpecError::new(
                "cron",
                format!("it has {} characters, and {LONGEST} is the most", text.len()),
            ));
        }
        let words: Vec<_> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = words[..] else {
            let problem = format!(
                "{text:?} has {} fields: five are needed (minute, hour, day of the month, month, day of the week), e.g. \
                 \"0 10 * * 1-5\"",
                words.len()
            );
            return Err(SpecError::new("cron", problem));
        };
        let mut weekdays = FIELDS[4].set(weekday)?;
        if weekdays & (1_u64 << SUNDAY) != 0 {
            weekdays = (weekdays | 1) & !(1_u64 << SUNDAY);
        }
        Ok(Self {
            minutes: FIELDS[0].set(minute)?,
            hours: FIELDS[1].set(hour)?,
            days: FIELDS[2].set(day)?,
            months: FIELDS[3].set(month)?,
            weekdays,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            every_hour: hour.starts_with('*'),
        })
    }

    /// Whether something of this day is meant.
    pub fn means(&self, date: Date) -> bool {
        let has = |set: u64, value: i8| set & (1_u64 << value) != 0;
        let by_day = has(self.days, date.day());
        let by_weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let day = if self.either_day { by_day || by_weekday } else { by_day && by_weekday };
        has(self.months, date.month()) && day
    }

    /// The minutes of such a day.
    pub fn minutes(&self) -> Minutes {
        Minutes::of(self.hours, self.minutes)
    }
}

impl Field {
    /// The values that `text` means, a bit each.
    fn set(&self, text: &str) -> Result<u64, SpecError> {
        text.split(',').try_fold(0_u64, |set, part| Ok(set | self.part(part)?))
    }

    fn part(&self, part: &str) -> Result<u64, SpecError> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.least, self.most),
            Some((from, to)) => (self.value(from, part)?, self.last(to, part)?),
            None if step.is_some() => {
                return Err(self.wrong(part, &format!("write the range, e.g. {range}-{}/2", self.most)));
            }
            None => (self.value(range, part)?, self.value(range, part)?),
        };
        let step = match step.map(str::parse::<u8>) {
            None => 1,
            Some(Ok(step)) if step > 0 => step,
            Some(_) => return Err(self.wrong(part, "a step is a whole number from 1 up")),
        };
        if from > to {
            return Err(self.wrong(part, "the range ends before it begins: write two, with a comma"));
        }
        Ok((from..=to).step_by(usize::from(step)).fold(0_u64, |set, value| set | (1_u64 << value)))
    }

    /// The end of a range; Sunday is also the last day of a week.
    fn last(&self, text: &str, part: &str) -> Result<u8, SpecError> {
        let value = self.value(text, part)?;
        Ok(if self.most == SUNDAY && value == 0 { SUNDAY } else { value })
    }

    fn value(&self, text: &str, part: &str) -> Result<u8, SpecError> {
        let lower = text.to_ascii_lowercase();
        let named = self.words.iter().zip(self.least..).find(|(word, _)| **word == lower);
        let value = named.map(|(_, value)| value).or_else(|| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits)
        });
        value.filter(|value| (self.least..=self.most).contains(value)).ok_or_else(|| {
            let words = match (self.words.first(), self.words.last()) {
                (Some(first), Some(last)) => format!(", or {first} to {last}"),
                _ => String::new(),
            };
            self.wrong(part, &format!("give {} to {}{words}", self.least, self.most))
        })
    }

    fn wrong(&self, part: &str, problem: &str) -> SpecError {
        SpecError::new("cron", format!("{}: {part:?}: {problem}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn minutes(text: &str) -> Vec<(i8, i8)> {
        Cron::parse(text).unwrap().minutes().each().collect()
    }

    #[test]
    fn lists_ranges_steps_and_names_are_understood() {
        assert_eq!(minutes("0 10 * * *"), [(10, 0)]);
        assert_eq!(minutes("*/20 9-10 * * *"), [(9, 0), (9, 20), (9, 40), (10, 0), (10, 20), (10, 40)]);
        assert_eq!(minutes("5,1-3 0 * * *"), [(0, 1), (0, 2), (0, 3), (0, 5)]);
        assert_eq!(minutes("0 8-18/5 * * *"), [(8, 0), (13, 0), (18, 0)]);
        assert_eq!(minutes("* * * * *").len(), 1440);
        for same in ["0 0 * * mon-fri", "0 0 * * 1-5", "0 0 * * MON,tue,3,4,5"] {
            assert_eq!(Cron::parse(same).unwrap(), Cron::parse("0 0 * * 1,2,3,4,5").unwrap(), "{same}");
        }
    }

    #[test]
    fn sunday_has_two_numbers_and_ends_a_range() {
        for same in ["0 0 * * 7", "0 0 * * 0", "0 0 * * sun"] {
            let cron = Cron::parse(same).unwrap();
            // 2026-02-08 is a Sunday.
            assert!(cron.means(day("2026-02-08")) && !cron.means(day("2026-02-09")), "{same}");
        }
        let end = Cron::parse("0 0 * * fri-sun").unwrap();
        assert!(
            end.means(day("2026-02-06")) && end.means(day("2026-02-08")) && !end.means(day("2026-02-05"))
        );
    }

    #[test]
    fn of_two_restricted_days_either_counts_and_otherwise_both() {
        let either = Cron::parse("0 0 13 * fri").unwrap();
        assert!(either.means(day("2026-02-06")) && either.means(day("2026-01-13")));
        assert!(!either.means(day("2026-01-14")));
        let one = Cron::parse("0 0 13 feb *").unwrap();
        assert!(one.means(day("2026-02-13")) && !one.means(day("2026-03-13")));
        assert!(!one.means(day("2026-02-20")));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_field() {
        for (wrong, field) in [
            ("0 10 * *", "4 fields"),
            ("0 0 10 * * *", "6 fields"),
            ("", "0 fields"),
            ("@daily", "1 fields"),
            ("60 * * * *", "minute"),
            ("0 24 * * *", "hour"),
            ("0 0 0 * *", "day of the month"),
            ("0 0 * 13 *", "month"),
            ("0 0 * * 8", "day of the week"),
            ("0 0 * * fri-mon", "day of the week"),
            ("*/0 * * * *", "minute"),
            ("5/15 * * * *", "minute"),
            ("+5 * * * *", "minute"),
            ("1- * * * *", "minute"),
            (", * * * *", "minute"),
            ("0 0 L * *", "day of the month"),
            (&"0,".repeat(LONGEST), "500 is the most"),
        ] {
            let error = Cron::parse(wrong).unwrap_err();
            assert!(error.field == "cron" && error.problem.contains(field), "{wrong:?}: {error}");
        }
    }
}
