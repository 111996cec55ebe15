//! What the operator asks of experiments before they begin: a pure decision on what an experiment says of itself, and the time.

use jiff::Timestamp;
use serde::Deserialize;

use super::denied;
use crate::request::ApiError;
use crate::request::facts::Precautions;
use crate::spec::windows::{WindowWords, Windows, WindowsWords, zone};
use crate::spec::{HostLimits, SpecError};

/// The table of the policy that has these rules.
const TABLE: &str = "experiments";
/// Whose clock counts when nobody says.
const UTC: &str = "UTC";

/// What every experiment has to meet, whoever begins it. Everything left out asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExperimentRules {
    /// What this host is, e.g. "staging". An experiment that says in which environments it may run does so only where this is one
    /// of them; where this is left out, nowhere.
    pub environment: Option<String>,
    /// Whether it has to say in which environments it may run.
    pub require_environments: bool,
    /// Whether it has to have a gate for which no data is a breach.
    pub require_gate: bool,
    /// Whether it has to name an alert that has to fire: without a monitor that sees it, it would only break things.
    pub require_alert: bool,
    /// Whether it has to have stages of its blast radius, of which a document leaves out none.
    pub require_stages: bool,
    /// Whose clock and whose weekdays the windows mean, by its IANA name. Default: UTC.
    pub time_zone: Option<String>,
    /// When it may begin, e.g. "mon-fri 09:00-17:00". Default: at any time.
    pub only: Vec<String>,
    /// When it never begins, whatever `only` says, e.g. "2026-12-24..2027-01-01" or "12-25". Default: nothing.
    pub never: Vec<String>,
    /// What of this host it has to stay within: beyond, it does not begin, and is ended. Default: no limit.
    pub host_limits: HostLimits,
}

impl ExperimentRules {
    /// Whether all of it makes sense.
    ///
    /// # Errors
    /// Names the field that does not, and what would be right.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.environment.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(SpecError::new(format!("{TABLE}.environment"), "give a name, such as \"staging\""));
        }
        let zone = zone(self.zone_name());
        zone.map_err(|error| SpecError::new(format!("{TABLE}.{}", error.field), error.problem))?;
        self.host_limits.check(&format!("{TABLE}.host_limits"))?;
        self.windows().map(drop)
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
        let words = WindowsWords { only: words(&self.only, "only")?, never: words(&self.never, "never")? };
        Windows::parse(&words)
            .map_err(|error| SpecError::new(error.field.replacen("windows", TABLE, 1), error.problem))
    }

    /// Decides whether an experiment that says this of itself may begin `now`.
    ///
    /// # Errors
    /// The rule that forbids it, and what would be right.
    pub(super) fn admit(&self, has: &Precautions, now: Timestamp) -> Result<(), ApiError> {
        self.admit_here(&has.environments)?;
        for (required, has, rule, what) in [
            (
                self.require_gate,
                has.gate,
                "require_gate",
                "a gate for which no data is a breach, in `rollback_on` or `abort_when`",
            ),
            (self.require_alert, has.alert, "require_alert", "an alert with `fires_within`, in `alerts`"),
            (self.require_stages, has.stages, "require_stages", "stages, by `blast_radius`"),
        ] {
            if required && !has {
                let text =
                    format!("an experiment needs {what} of its extension chaos-daemon, to be run here");
                return Err(forbidden(text, rule));
            }
        }
        let zone = zone(self.zone_name())?;
        match self.windows()?.allow(zone.to_datetime(now)) {
            true => Ok(()),
            false => {
                let shown = format!("{:.0}", now.display_with_offset(zone.to_offset(now)));
                Err(forbidden(format!("no experiment begins here at this time, {shown}"), "only` and `never"))
            }
        }
    }

    fn admit_here(&self, environments: &[String]) -> Result<(), ApiError> {
        let allowed = environments.join(", ");
        match &self.environment {
            _ if environments.is_empty() && self.require_environments => {
                let text = "an experiment needs `environments`, the list of those it may run in, in its extension chaos-daemon, to \
                            be run here";
                Err(forbidden(text.to_owned(), "require_environments"))
            }
            _ if environments.is_empty() => Ok(()),
            None => {
                let text =
                    format!("it may run in environment {allowed} only, and it is not said which this is");
                Err(forbidden(text, "environment"))
            }
            Some(here) if environments.contains(here) => Ok(()),
            Some(here) => Err(forbidden(
                format!("it may run in environment {allowed} only, and this is {here}"),
                "environment",
            )),
        }
    }
}

fn forbidden(text: String, rule: &str) -> ApiError {
    denied(text, &format!("{TABLE}.{rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ErrorCode;

    fn rules(text: &str) -> ExperimentRules {
        let rules: ExperimentRules = toml::from_str(text).unwrap();
        rules.check().unwrap();
        rules
    }

    /// 2026-02-02 is a Monday.
    fn noon() -> Timestamp {
        "2026-02-02T12:00:00Z".parse().unwrap()
    }

    fn refused(text: &str, has: &Precautions, now: Timestamp) -> String {
        let error = rules(text).admit(has, now).unwrap_err();
        assert_eq!(error.code, ErrorCode::PolicyDenied, "{error}");
        format!("{} {}", error.message, error.hint.unwrap())
    }

    #[test]
    fn without_rules_every_experiment_may_begin_but_one_that_is_for_another_host() {
        assert_eq!(rules("").admit(&Precautions::default(), noon()), Ok(()));
        let staging =
            Precautions { environments: vec!["staging".into(), "test".into()], ..Precautions::default() };
        let said = refused("", &staging, noon());
        assert!(said.contains("staging, test only") && said.contains("`experiments.environment`"), "{said}");
        let said = refused("environment = \"production\"", &staging, noon());
        assert!(said.contains("this is production"), "{said}");
        assert_eq!(rules("environment = \"test\"").admit(&staging, noon()), Ok(()));
        // One that may run anywhere, unless that has to be said.
        assert_eq!(rules("environment = \"production\"").admit(&Precautions::default(), noon()), Ok(()));
        let said = refused("require_environments = true", &Precautions::default(), noon());
        assert!(said.contains("needs `environments`") && said.contains("require_environments"), "{said}");
    }

    #[test]
    fn what_is_required_and_not_there_is_named_with_its_rule() {
        let all = Precautions { environments: Vec::new(), gate: true, alert: true, stages: true };
        for (rule, without, word) in [
            ("require_gate", Precautions { gate: false, ..all.clone() }, "`rollback_on`"),
            ("require_alert", Precautions { alert: false, ..all.clone() }, "`alerts`"),
            ("require_stages", Precautions { stages: false, ..all.clone() }, "`blast_radius`"),
        ] {
            let text = format!("{rule} = true");
            let said = refused(&text, &without, noon());
            assert!(said.contains(word) && said.contains(&format!("`experiments.{rule}`")), "{said}");
            assert_eq!(rules(&text).admit(&all, noon()), Ok(()));
            assert_eq!(rules("").admit(&without, noon()), Ok(()));
        }
    }

    #[test]
    fn an_experiment_begins_within_the_windows_of_the_hosts_own_time() {
        let has = Precautions::default();
        let office =
            "time_zone = \"Europe/Berlin\"\nonly = [\"mon-fri 09:00-13:00\"]\nnever = [\"12:00-12:30\"]";
        // In Berlin it is an hour later.
        let at = |time: &str| rules(office).admit(&has, format!("2026-02-02T{time}Z").parse().unwrap());
        let allowed = ["07:59", "08:00", "10:59", "11:00", "11:30", "12:00"]
            .map(|time| at(&format!("{time}:00")).is_ok());
        assert_eq!(allowed, [false, true, true, false, true, false]);
        let said = refused(office, &has, noon());
        assert!(
            said.contains("2026-02-02T13:00:00+01:00") && said.contains("`experiments.only` and `never`"),
            "{said}"
        );
        assert_eq!(rules("only = [\"12:00-12:01\"]").admit(&has, noon()), Ok(()));
    }

    #[test]
    fn on_holidays_no_experiment_begins_by_the_hosts_own_time() {
        let holidays = "time_zone = \"Europe/Berlin\"\nnever = [\"2026-12-24..2027-01-01\", \"05-01\"]";
        let at = |time: &str| rules(holidays).admit(&Precautions::default(), time.parse().unwrap()).is_ok();
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
            assert_eq!(at(time), allowed, "{time}");
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_their_field() {
        for (text, field) in [
            ("environment = \" \"", "experiments.environment"),
            ("time_zone = \"Mars/Base\"", "experiments.time_zone"),
            ("only = [\"mon\"]", "experiments.only[0]"),
            ("never = [\"12-25\", \"02-30\"]", "experiments.never[1].dates"),
            ("only = [\"2026-12-24..2026-12-23\"]", "experiments.only[0].dates"),
            ("never = [\"12:00-13:00\", \"25:00-26:00\"]", "experiments.never[1].from"),
            ("host_limits = { memory_percent = 120 }", "experiments.host_limits.memory_percent"),
        ] {
            let rules: ExperimentRules = toml::from_str(text).unwrap();
            assert_eq!(rules.check().unwrap_err().field, field, "{text}");
        }
    }
}
