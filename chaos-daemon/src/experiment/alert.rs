//! Alerts that a document expects of a fault: which has to fire, how soon, and to be gone again; and which must not. Pure:
//! times and samples go in, what became of the alert comes out.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activity::{Activity, Deed};
use super::failure::FailureMode;
use crate::probe::{Probe, Sample};

/// What an alert has to do. All times are at most [`crate::spec::units::LONGEST_FAULT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Fire.
    Fires {
        /// How soon after the action was asked for.
        within: Duration,
        /// How soon after the last fault was removed it has to be gone again; without it, that is not asked.
        gone_within: Option<Duration>,
    },
    /// Not fire.
    Silence,
}

/// An alert that a document speaks of.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Name in the document.
    pub name: String,
    /// The question: as it should be when the alert fires.
    pub probe: Probe,
    /// How often it is asked.
    pub interval: Duration,
    /// Name of the action from which time counts; without one, the first that injects.
    pub action: Option<String>,
    /// What it has to do.
    pub wanted: Wanted,
}

impl Alert {
    /// The number of the action of `method` from which time counts; `None` when there is no such action.
    pub fn action(&self, method: &[Activity]) -> Option<usize> {
        method.iter().position(|activity| {
            matches!(activity.deed, Deed::Inject { .. })
                && self.action.as_ref().is_none_or(|action| *action == activity.name)
        })
    }

    /// What is wrong before anything was injected: an alert that fires already tells nothing about a fault.
    ///
    /// # Errors
    /// What is not as it should be, for people.
    pub fn judge(&self, sample: &Sample) -> Result<(), String> {
        match (sample.value, sample.ok) {
            (Some(_), false) => Ok(()),
            (Some(_), true) => Err(format!("alert {:?} fires already: {}", self.name, sample.detail)),
            (None, _) => {
                // Whoever is expected to be told of it counts as somebody who watches.
                let so = match self.wanted {
                    Wanted::Fires { .. } => ", so nobody can be seen watching",
                    Wanted::Silence => "",
                };
                Err(format!("alert {:?} cannot be seen{so}: {}", self.name, sample.detail))
            }
        }
    }
}

/// What became of an alert. All times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alarm {
    /// Name of the alert in the document.
    pub alert: String,
    /// Name of the action from which time counts.
    pub action: String,
    /// From when the action was asked for until the alert was seen to fire; absent when it was not.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired_after_seconds: Option<f64>,
    /// From when the last fault was removed until it was seen to be gone, 0 when it was gone before; absent when it was not.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_after_seconds: Option<f64>,
    /// What is not as it should be, after its priority: P1 for an alert that did not fire in time, P2 for one that must not fire, or
    /// was not gone in time.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

/// What a sample has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The alert fires now.
    Fired,
    /// It is gone.
    Gone,
}

/// An alert that is being watched. All times are since the run began.
#[derive(Debug, Clone)]
pub struct Watch<'a> {
    alert: &'a Alert,
    /// When the action was asked for, once it was carried out, and its name.
    began: Option<(Duration, &'a str)>,
    /// When the last fault was removed, and whether the run had gone as described until then.
    removed: Option<(Duration, bool)>,
    /// When the last question was asked that has an answer, or has none.
    asked: Duration,
    answered: bool,
    fired: Option<Duration>,
    firing: bool,
    gone: Option<Duration>,
    /// What was said when it fired, or else last.
    said: String,
}

impl<'a> Watch<'a> {
    /// Nothing has been done yet.
    pub fn new(alert: &'a Alert) -> Self {
        let (began, removed, fired, gone) = (None, None, None, None);
        let (asked, answered, firing, said) = (Duration::ZERO, false, false, String::new());
        Self { alert, began, removed, asked, answered, fired, firing, gone, said }
    }

    /// The action `name` was carried out that was asked for at `began`.
    pub fn acted(&mut self, name: &'a str, began: Duration) {
        self.began = Some((began, name));
    }

    /// Every fault is removed, at `now`. `described`: the run has gone as described so far; otherwise nobody waits for anything.
    pub fn removed(&mut self, now: Duration, described: bool) {
        self.removed = Some((now, described));
    }

    /// Takes a sample in, that was asked for at `asked` and is known at `answered`.
    pub fn observe(&mut self, asked: Duration, answered: Duration, sample: &Sample) -> Option<Change> {
        self.asked = asked;
        self.answered = sample.value.is_some();
        let fires = self.answered && sample.ok;
        if fires || self.fired.is_none() {
            self.said.clone_from(&sample.detail);
        }
        match (self.firing, fires) {
            (false, true) => {
                self.firing = true;
                self.gone = None;
                self.fired.get_or_insert(answered);
                Some(Change::Fired)
            }
            // No answer is not "gone".
            (true, false) if self.answered => {
                self.firing = false;
                self.gone = Some(answered);
                Some(Change::Gone)
            }
            _ => None,
        }
    }

    /// Whether there is something to see yet.
    pub fn is_pending(&self) -> bool {
        let Some((began, _)) = self.began else { return false };
        let Some((removed, described)) = self.removed else { return true };
        if self.asked < removed {
            return true;
        }
        let until = match self.alert.wanted {
            Wanted::Fires { within, .. } if self.fired.is_none() => Some(began + within),
            Wanted::Fires { gone_within, .. } if self.firing => gone_within.map(|within| removed + within),
            _ => None,
        };
        described && until.is_some_and(|until| self.asked < until)
    }

    /// Waits for nothing any more.
    pub fn give_up(&mut self) {
        self.removed = self.removed.map(|(removed, _)| (removed, false));
    }

    /// Whether the latest sample is as it should be: an alert may take until it is due.
    pub fn is_met(&self) -> bool {
        match self.alert.wanted {
            Wanted::Silence => self.answered && !self.firing,
            Wanted::Fires { .. } => self.finding().is_none(),
        }
    }

    /// How soon it was seen, if it has to fire and did.
    pub fn detected(&self) -> Option<Duration> {
        let (began, _) = self.began.filter(|_| self.alert.wanted != Wanted::Silence)?;
        Some(self.fired?.saturating_sub(began))
    }

    /// What is not as it should be, after its priority, once the run has seen all that it will.
    pub fn finding(&self) -> Option<String> {
        let (began, action) = self.began?;
        let name = &self.alert.name;
        let after = self.fired.map(|fired| fired.saturating_sub(began));
        match (self.alert.wanted, after) {
            (Wanted::Silence, Some(after)) => Some(format!(
                "P2: alert {name:?} fired {after:.1?} after {action:?}, and must not: {}",
                self.said
            )),
            (Wanted::Silence, None) if !self.answered => {
                Some(format!("P2: alert {name:?} must not fire, and cannot be seen: {}", self.said))
            }
            (Wanted::Silence, None) => None,
            (Wanted::Fires { within, .. }, None) if self.asked >= began + within => Some(format!(
                "P1: alert {name:?} did not fire within {within:?} of {action:?}: {}",
                self.said
            )),
            (Wanted::Fires { within, .. }, Some(after)) if after > within => Some(format!(
                "P1: alert {name:?} fired {after:.1?} after {action:?}, and not within {within:?}"
            )),
            (Wanted::Fires { gone_within, .. }, _) => {
                let ((removed, _), within) = (self.removed?, gone_within?);
                let late = self.gone.is_some_and(|gone| gone > removed + within);
                let stays = self.firing && self.asked >= removed + within;
                (late || stays).then(|| {
                    format!(
                        "P2: alert {name:?} was not gone within {within:?} of the removal of the last fault"
                    )
                })
            }
        }
    }

    /// What kind of failure its finding is.
    pub fn failure(&self) -> FailureMode {
        let after = self.began.zip(self.fired).map(|((began, _), fired)| fired.saturating_sub(began));
        match self.alert.wanted {
            Wanted::Fires { within, .. } if after.is_none_or(|after| after > within) => {
                FailureMode::AlertMissing
            }
            _ => FailureMode::AlertUnexpected,
        }
    }

    /// What became of it; `None` when its action was not carried out.
    pub fn report(&self) -> Option<Alarm> {
        let (began, action) = self.began?;
        let since =
            |time: Option<Duration>, from: Duration| time.map(|time| time.saturating_sub(from).as_secs_f64());
        Some(Alarm {
            alert: self.alert.name.clone(),
            action: action.to_owned(),
            fired_after_seconds: since(self.fired, began),
            gone_after_seconds: self.removed.and_then(|(removed, _)| since(self.gone, removed)),
            finding: self.finding(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::alert::{self, FIRES, Terms};
    use crate::probe::trust::Trust;
    use crate::probe::{Check, DEFAULT_TIMEOUT};

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn alert(wanted: Wanted) -> Alert {
        let check = alert::Alert::parse("http://127.0.0.1:9093", Trust::Host, Terms::default())
            .map(Check::Alert)
            .unwrap();
        let probe = Probe { check, timeout: DEFAULT_TIMEOUT, bounds: FIRES };
        Alert { name: "pool".into(), probe, interval: ms(1000), action: None, wanted }
    }

    fn fires(gone_within: Option<u64>) -> Alert {
        alert(Wanted::Fires { within: ms(5000), gone_within: gone_within.map(ms) })
    }

    fn sample(firing: bool) -> Sample {
        let detail = if firing { "firing: \"Pool\"" } else { "goes to [\"dev\"]" };
        let value = Some(f64::from(u8::from(firing)));
        Sample { ok: firing, value, ..Sample::failed(detail.into()) }
    }

    fn unseen() -> Sample {
        Sample::failed("connection refused".into())
    }

    /// A watch of an alert whose action was asked for at 1 s.
    fn watch(alert: &Alert) -> Watch<'_> {
        let mut watch = Watch::new(alert);
        assert!(!watch.is_pending() && watch.report().is_none());
        watch.acted("kill", ms(1000));
        watch
    }

    #[test]
    fn the_first_sample_that_sees_it_fire_and_the_first_without_it_after_the_removal_count() {
        let alert = fires(Some(3000));
        let mut watch = watch(&alert);
        assert_eq!(watch.observe(ms(1000), ms(1010), &sample(false)), None);
        assert_eq!(watch.observe(ms(2000), ms(2010), &sample(true)), Some(Change::Fired));
        // It flaps.
        assert_eq!(watch.observe(ms(3000), ms(3010), &sample(false)), Some(Change::Gone));
        assert_eq!(watch.observe(ms(4000), ms(4010), &sample(true)), Some(Change::Fired));
        assert!(watch.is_pending());
        watch.removed(ms(4500), true);
        assert_eq!(watch.observe(ms(5000), ms(5010), &sample(true)), None);
        assert_eq!(watch.observe(ms(5500), ms(5510), &unseen()), None);
        assert!(watch.is_pending(), "one that cannot be seen is not gone");
        assert_eq!(watch.observe(ms(6000), ms(6000), &sample(false)), Some(Change::Gone));
        assert!(!watch.is_pending());
        let expected = Alarm {
            alert: "pool".into(),
            action: "kill".into(),
            fired_after_seconds: Some(1.01),
            gone_after_seconds: Some(1.5),
            finding: None,
        };
        assert_eq!(watch.report(), Some(expected));
    }

    #[test]
    fn one_that_does_not_fire_in_time_is_a_finding_of_the_first_priority_with_what_was_seen_instead() {
        let alert = fires(None);
        let mut watch = watch(&alert);
        watch.removed(ms(2000), true);
        for (asked, instead) in [(2500, sample(false)), (5999, unseen()), (6000, sample(false))] {
            assert!(watch.is_pending() && watch.finding().is_none(), "{asked}");
            watch.observe(ms(asked), ms(asked), &instead);
        }
        assert!(!watch.is_pending());
        assert_eq!(watch.failure(), FailureMode::AlertMissing);
        let expected = "P1: alert \"pool\" did not fire within 5s of \"kill\": goes to [\"dev\"]";
        assert_eq!(watch.finding().unwrap(), expected);
        // While the method goes on it may still come, and is late then.
        let mut watch = self::watch(&alert);
        watch.observe(ms(6500), ms(6500), &sample(false));
        assert!(watch.is_pending());
        watch.observe(ms(7500), ms(7500), &sample(true));
        assert_eq!(watch.failure(), FailureMode::AlertMissing);
        let expected = "P1: alert \"pool\" fired 6.5s after \"kill\", and not within 5s";
        assert_eq!(watch.finding().unwrap(), expected);
    }

    #[test]
    fn one_that_stays_is_a_finding_of_the_second_priority_if_it_has_to_go() {
        for (gone_within, found) in [(Some(1000), true), (None, false)] {
            let alert = fires(gone_within);
            let mut watch = watch(&alert);
            watch.observe(ms(1500), ms(1500), &sample(true));
            watch.removed(ms(2000), true);
            watch.observe(ms(2500), ms(2500), &sample(true));
            assert_eq!(watch.is_pending(), found);
            watch.observe(ms(3000), ms(3000), &sample(true));
            assert!(!watch.is_pending());
            let finding = watch.finding();
            assert_eq!(watch.failure(), FailureMode::AlertUnexpected);
            assert_eq!(finding.is_some_and(|finding| finding.starts_with("P2: ")), found);
        }
    }

    #[test]
    fn one_that_must_not_fire_is_looked_at_to_the_end_and_found_however_short_it_was() {
        let alert = alert(Wanted::Silence);
        let mut quiet = watch(&alert);
        quiet.observe(ms(1500), ms(1500), &unseen());
        quiet.removed(ms(2000), true);
        assert!(quiet.is_pending());
        let mut unknown = quiet.clone();
        quiet.observe(ms(2500), ms(2500), &sample(false));
        assert!(!quiet.is_pending() && quiet.finding().is_none());
        unknown.observe(ms(2500), ms(2500), &unseen());
        assert!(unknown.finding().unwrap().contains("cannot be seen: connection refused"));
        let mut loud = watch(&alert);
        loud.observe(ms(1500), ms(1500), &sample(true));
        loud.observe(ms(2500), ms(2500), &sample(false));
        assert_eq!(loud.failure(), FailureMode::AlertUnexpected);
        let expected = "P2: alert \"pool\" fired 500.0ms after \"kill\", and must not: firing: \"Pool\"";
        assert_eq!(loud.finding().unwrap(), expected);
    }

    #[test]
    fn a_run_that_was_cut_short_waits_for_nothing_and_finds_only_what_was_due() {
        let alert = fires(Some(1000));
        for (asked, due) in [(2500, false), (6500, true)] {
            let mut watch = watch(&alert);
            watch.removed(ms(2000), false);
            watch.observe(ms(asked), ms(asked), &sample(false));
            assert!(!watch.is_pending());
            assert_eq!(watch.finding().is_some(), due, "{asked}");
        }
    }

    #[test]
    fn what_fires_before_the_fault_or_cannot_be_seen_is_no_state_to_begin_with() {
        let alert = fires(None);
        assert_eq!(alert.judge(&sample(false)), Ok(()));
        assert!(alert.judge(&sample(true)).unwrap_err().contains("fires already"));
        assert!(alert.judge(&unseen()).unwrap_err().contains("cannot be seen"));
    }
}
