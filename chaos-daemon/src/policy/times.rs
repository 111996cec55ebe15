//! When something may begin on this host.

use jiff::Timestamp;
use serde::Deserialize;

use super::refusal::Refusal;
use crate::request::leave;
use crate::spec::SpecError;
use crate::spec::windows::{WindowWords, Windows, WindowsWords, zone};

/// The table of the policy file.
const TABLE: &str = "windows";
/// Whose clock counts when nobody says.
const UTC: &str = "UTC";

/// When experiments and single faults may begin. Everything left out allows any time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Times {
    /// Whose clock and whose weekdays are meant, by its IANA name. Default: UTC.
    pub time_zone: Option<String>,
    /// When something may begin, e.g. "mon-fri 09:00-17:00". Default: at any time.
    pub only: Vec<String>,
    /// When nothing begins, whatever `only` says, e.g. "2026-12-24..2027-01-01" or "12-25". Default: nothing.
    pub never: Vec<String>,
}

impl Times {
    /// Whether all of it makes sense.
    ///
    /// # Errors
    /// Names the field that does not, and what would be right.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        zone(self.zone_name())
            .map_err(|error| SpecError::new(format!("{TABLE}.{}", error.field), error.problem))?;
        self.windows().map(drop)
    }

    /// What callers are told of it; nothing where something may begin at any time.
    pub(super) fn told(&self) -> Option<leave::Windows> {
        let told = leave::Windows {
            time_zone: self.zone_name().to_owned(),
            only: self.only.clone(),
            never: self.never.clone(),
        };
        Some(told).filter(|told| !told.only.is_empty() || !told.never.is_empty())
    }

    fn zone_name(&self) -> &str {
        self.time_zone.as_deref().unwrap_or(UTC)
    }

    fn windows(&self) -> Result<Windows, SpecError> {
        let words = |texts: &[String], kind: &str| -> Result<Vec<_>, SpecError> {
            let texts = texts.iter().enumerate();
            texts
                .map(|(index, text)| {
                    WindowWords::of(text)
                        .map_err(|problem| SpecError::new(format!("{TABLE}.{kind}[{index}]"), problem))
                })
                .collect()
        };
        Windows::parse(&WindowsWords {
            only: words(&self.only, "only")?,
            never: words(&self.never, "never")?,
        })
    }

    /// Whether something may begin `now`.
    ///
    /// # Errors
    /// What time it is here, and the lines that would allow it.
    pub fn admit(&self, now: Timestamp) -> Result<(), Refusal> {
        // Of a policy that was read from a file both make sense.
        let broken = |error: SpecError| Refusal::new(TABLE, error.to_string());
        let zone = zone(self.zone_name()).map_err(broken)?;
        if self.windows().map_err(broken)?.allow(zone.to_datetime(now)) {
            return Ok(());
        }
        let shown = format!("{:.0}", now.display_with_offset(zone.to_offset(now)));
        let text = format!("nothing begins here at this time, {shown}");
        Err(Refusal::new(TABLE, text).but_for(format!("{TABLE}.only = []\n{TABLE}.never = []")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(text: &str) -> Times {
        let times: Times = toml::from_str(text).unwrap();
        times.check().unwrap();
        times
    }

    #[test]
    fn something_begins_within_the_windows_of_the_hosts_own_time() {
        let office = times(
            "time_zone = \"Europe/Berlin\"\nonly = [\"mon-fri 09:00-13:00\"]\nnever = [\"12:00-12:30\"]",
        );
        // 2026-02-02 is a Monday. In Berlin it is an hour later.
        let at = |time: &str| office.admit(format!("2026-02-02T{time}:00Z").parse().unwrap());
        let allowed = ["07:59", "08:00", "10:59", "11:00", "11:30", "12:00"].map(|time| at(time).is_ok());
        assert_eq!(allowed, [false, true, true, false, true, false]);
        let said = at("12:00").unwrap_err();
        assert!(said.message.contains("2026-02-02T13:00:00+01:00") && said.rule == "windows", "{said:?}");
        assert_eq!(times("only = [\"12:00-12:01\"]").admit("2026-02-02T12:00:00Z".parse().unwrap()), Ok(()));
    }

    #[test]
    fn on_holidays_nothing_begins_by_the_hosts_own_time() {
        let holidays =
            times("time_zone = \"Europe/Berlin\"\nnever = [\"2026-12-24..2027-01-01\", \"05-01\"]");
        // In Berlin it is one hour later in winter, and two in summer.
        for (time, allowed) in [
            ("2026-12-23T22:59:59Z", true),
            ("2026-12-23T23:00:00Z", false),
            ("2027-01-01T22:59:59Z", false),
            ("2027-01-01T23:00:00Z", true),
            ("2027-12-24T12:00:00Z", true),
            ("2031-04-30T22:00:00Z", false),
            ("2031-05-01T22:00:00Z", true),
        ] {
            assert_eq!(holidays.admit(time.parse().unwrap()).is_ok(), allowed, "{time}");
        }
    }

    #[test]
    fn windows_that_make_no_sense_are_refused_by_their_field() {
        for (text, field) in [
            ("time_zone = \"Mars/Base\"", "windows.time_zone"),
            ("only = [\"mon\"]", "windows.only[0]"),
            ("never = [\"12-25\", \"02-30\"]", "windows.never[1].dates"),
            ("only = [\"2026-12-24..2026-12-23\"]", "windows.only[0].dates"),
            ("never = [\"12:00-13:00\", \"25:00-26:00\"]", "windows.never[1].from"),
        ] {
            let times: Times = toml::from_str(text).unwrap();
            assert_eq!(times.check().unwrap_err().field, field, "{text}");
        }
    }
}
