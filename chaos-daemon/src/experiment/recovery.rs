//! How soon a system was seen to fail after an action that makes it unreachable, and how soon it was well again. Pure: times
//! and samples of the steady state go in, measures come out.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::alert::{Alarm, Watch};
use crate::request::evidence;
use crate::spec::FaultType;

/// Faults after which a system is expected to be gone for a while. Of the others, what a probe sees anyway is measured.
pub const OUTAGES: &[FaultType] =
    &[FaultType::ProcessKill, FaultType::ServiceRestart, FaultType::ServiceStop, FaultType::NetworkPartition];

/// What is said of an outage that no sample has seen.
const UNSEEN: &str = "no outage was seen, so recovery was not measured";

/// What a run has shown of recovery. All times are in seconds, and begin when the action was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recovery {
    /// Each action that makes a system unreachable, and each other one after which the steady state was seen not to be met, in the
    /// order in which they were carried out.
    pub incidents: Vec<Incident>,
    /// Each alert that the document speaks of and whose action was carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<Alarm>,
    /// Mean time until an alert that has to fire was seen to, of those that were.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mttd_by_alert_seconds: Option<f64>,
    /// Mean time until the steady state was seen not to be met, of the incidents of which it was.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mttd_seconds: Option<f64>,
    /// Mean time until it was met again, of the incidents of which it was seen.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mttr_seconds: Option<f64>,
    /// How long recovery may take, as the document says.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rto_seconds: Option<f64>,
    /// Whether every outage that was seen was over within that time; absent when none was, or somebody stopped the run before that
    /// could be told.
    #[schemars(with = "bool")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_rto: Option<bool>,
}

/// What came of one action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Incident {
    /// Name of the action.
    pub action: String,
    /// Type of its fault.
    #[schemars(with = "String")]
    pub fault_type: FaultType,
    /// Until the first sample after it that did not meet the steady state; absent when there was none.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_after_seconds: Option<f64>,
    /// Until the old process, or service, was gone.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_after_seconds: Option<f64>,
    /// Until there was a new one.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_process_after_seconds: Option<f64>,
    /// Until the first sample after the failing one that met it again; absent while there was none.
    #[schemars(with = "f64")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_after_seconds: Option<f64>,
    /// What is missing of these measures, and why.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<String>,
}

/// Whether what a fault does is an outage.
pub fn is_outage(fault_type: FaultType) -> bool {
    OUTAGES.contains(&fault_type)
}

#[derive(Debug, Clone)]
struct Open {
    /// Number of the activity.
    index: usize,
    action: String,
    fault_type: FaultType,
    began: Duration,
    unreachable: Option<Duration>,
    recovered: Option<Duration>,
    gone: Option<Duration>,
    new: Option<Duration>,
}

/// What is known while a run goes on. All times are since it began.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    rto: Option<Duration>,
    incidents: Vec<Open>,
    /// Until when there was somebody who looked, of a run that was stopped.
    cut_short: Option<Duration>,
}

impl Tracker {
    /// Nothing has happened yet. `rto` is how long recovery may take.
    pub fn new(rto: Option<Duration>) -> Self {
        Self { rto, ..Self::default() }
    }

    /// An action that injects was carried out, and had been asked for at `began`.
    pub fn acted(&mut self, index: usize, action: &str, fault_type: FaultType, began: Duration) {
        let action = action.to_owned();
        let (unreachable, recovered, gone, new) = (None, None, None, None);
        self.incidents.push(Open { index, action, fault_type, began, unreachable, recovered, gone, new });
    }

    /// Somebody has stopped the run: what has still some of its time is not too late, whatever was seen of it.
    pub fn stop(&mut self, at: Duration) {
        self.cut_short = Some(at);
    }

    /// The steady state was asked for at `asked`, and known at `answered`. What was asked before an action tells nothing about
    /// it.
    pub fn observe(&mut self, asked: Duration, answered: Duration, met: bool) {
        self.cut_short = self.cut_short.map(|until| until.max(answered));
        for incident in self.incidents.iter_mut().filter(|incident| asked >= incident.began) {
            let after = answered.saturating_sub(incident.began);
            match (incident.unreachable, met) {
                (None, false) => incident.unreachable = Some(after),
                // What was asked for before it failed is no news of its recovery.
                (Some(failed), true) if asked >= incident.began + failed => {
                    _ = incident.recovered.get_or_insert(after);
                }
                _ => {}
            }
        }
    }

    /// What the fault of an activity has seen of processes.
    pub fn saw(&mut self, index: usize, seen: &evidence::Recovery) {
        for incident in self.incidents.iter_mut().filter(|incident| incident.index == index) {
            incident.gone = seen.gone_after_seconds.map(|time| time.0).or(incident.gone);
            incident.new = seen.back_after_seconds.map(|time| time.0).or(incident.new);
        }
    }

    /// Whether there is an incident that is not known to be over, or an outage that has still to be seen.
    pub fn is_open(&self) -> bool {
        self.incidents.iter().any(|incident| incident.is_incident() && incident.recovered.is_none())
    }

    /// Which incidents took longer than they may, once the run has seen all that it will; `None` when none did.
    pub fn too_late(&self) -> Option<String> {
        let rto = self.rto?;
        let late = self.outages().filter(|incident| incident.is_within(rto, self.cut_short) == Some(false));
        let words = late.map(|incident| {
            let action = &incident.action;
            match incident.recovered {
                Some(after) => format!("recovered {after:.1?} after {action:?}, and the rto is {rto:?}"),
                None => format!("not seen to recover after {action:?}, and the rto is {rto:?}"),
            }
        });
        let words: Vec<_> = words.collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// The measures, with what became of `alerts`; `None` when nothing was an outage, and no alert was to be seen.
    pub fn report(&self, alerts: &[Watch<'_>]) -> Option<Recovery> {
        let alarms: Vec<_> = alerts.iter().filter_map(Watch::report).collect();
        let incidents: Vec<_> = self.incidents.iter().filter(|incident| incident.is_incident()).collect();
        if incidents.is_empty() && alarms.is_empty() {
            return None;
        }
        let rto = self.rto.filter(|_| self.outages().next().is_some());
        Some(Recovery {
            alerts: alarms,
            mttd_by_alert_seconds: mean(alerts.iter().filter_map(Watch::detected)),
            mttd_seconds: mean(incidents.iter().filter_map(|incident| incident.unreachable)),
            mttr_seconds: mean(incidents.iter().filter_map(|incident| incident.recovered)),
            rto_seconds: rto.map(|rto| rto.as_secs_f64()),
            within_rto: rto.and_then(|rto| self.are_within(rto)),
            incidents: incidents.into_iter().map(Open::report).collect(),
        })
    }

    /// Whether all that were seen to fail were over in time: no, as soon as one was not; yes, once that is known of each.
    fn are_within(&self, rto: Duration) -> Option<bool> {
        let seen = self.outages().filter(|outage| outage.unreachable.is_some());
        let within: Vec<_> = seen.map(|outage| outage.is_within(rto, self.cut_short)).collect();
        match (within.contains(&Some(false)), within.contains(&None)) {
            (true, _) => Some(false),
            (false, true) => None,
            (false, false) => (!within.is_empty()).then_some(true),
        }
    }

    /// What is held to the objective.
    fn outages(&self) -> impl Iterator<Item = &Open> {
        self.incidents.iter().filter(|incident| is_outage(incident.fault_type))
    }
}

impl Open {
    /// Whether there is anything to measure: an outage is looked for, whatever else there is was seen.
    fn is_incident(&self) -> bool {
        is_outage(self.fault_type) || self.unreachable.is_some()
    }

    /// Whether it was over in time; `None` of what was never seen to fail, which has shown nothing of recovery, and of what still
    /// had some of its time when the run was `cut_short`.
    fn is_within(&self, rto: Duration, cut_short: Option<Duration>) -> Option<bool> {
        let had_its_time = cut_short.is_none_or(|until| until.saturating_sub(self.began) >= rto);
        match (self.unreachable?, self.recovered) {
            (_, Some(after)) => Some(after <= rto),
            (_, None) => had_its_time.then_some(false),
        }
    }

    fn report(&self) -> Incident {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Incident {
            action: self.action.clone(),
            fault_type: self.fault_type,
            unreachable_after_seconds: seconds(self.unreachable),
            gone_after_seconds: seconds(self.gone),
            new_process_after_seconds: seconds(self.new),
            recovered_after_seconds: seconds(self.recovered),
            finding: self.unreachable.is_none().then(|| UNSEEN.to_owned()),
        }
    }
}

fn mean(times: impl Iterator<Item = Duration>) -> Option<f64> {
    let (sum, count) = times.fold((Duration::ZERO, 0_u32), |(sum, count), time| (sum + time, count + 1));
    (count > 0).then(|| sum.as_secs_f64() / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn tracker(rto: Option<u64>) -> Tracker {
        let mut tracker = Tracker::new(rto.map(ms));
        tracker.acted(2, "kill", FaultType::ProcessKill, ms(1000));
        tracker
    }

    #[test]
    fn the_first_failing_sample_after_the_action_and_the_first_good_one_after_that_count() {
        let mut tracker = tracker(Some(5000));
        for (asked, answered, met) in [
            // Asked before the action: late news of another time.
            (900, 1100, false),
            (1050, 1060, true),
            (1200, 1500, false),
            (1700, 2000, false),
            (3000, 3100, true),
            (3300, 3400, false),
            (9000, 9900, true),
        ] {
            tracker.observe(ms(asked), ms(answered), met);
        }
        let seen = |gone: Option<u64>, back| evidence::Recovery {
            gone_after_seconds: gone.map(|time| evidence::Seconds(ms(time))),
            back_after_seconds: Some(evidence::Seconds(ms(back))),
            ..evidence::Recovery::default()
        };
        tracker.saw(2, &seen(Some(3), 200));
        tracker.saw(1, &seen(None, 1));
        // An answer that knows less does not take back what was known.
        tracker.saw(2, &evidence::Recovery::default());
        assert!(!tracker.is_open() && tracker.too_late().is_none());
        let report = tracker.report(&[]).unwrap();
        let expected = Incident {
            action: "kill".into(),
            fault_type: FaultType::ProcessKill,
            unreachable_after_seconds: Some(0.5),
            gone_after_seconds: Some(0.003),
            new_process_after_seconds: Some(0.2),
            recovered_after_seconds: Some(2.1),
            finding: None,
        };
        assert_eq!(report.incidents, [expected]);
        assert_eq!((report.mttd_seconds, report.mttr_seconds), (Some(0.5), Some(2.1)));
        assert_eq!((report.rto_seconds, report.within_rto), (Some(5.0), Some(true)));
    }

    #[test]
    fn an_answer_that_was_asked_for_before_the_failure_is_no_recovery() {
        let mut tracker = tracker(Some(5000));
        tracker.observe(ms(1900), ms(2000), false);
        // A slow look at everything that began while all was well.
        tracker.observe(ms(1100), ms(3000), true);
        assert!(tracker.is_open());
        tracker.observe(ms(4000), ms(4100), true);
        assert_eq!(tracker.report(&[]).unwrap().incidents[0].recovered_after_seconds, Some(3.1));
    }

    #[test]
    fn means_are_of_what_was_seen() {
        let mut tracker = tracker(None);
        tracker.observe(ms(1000), ms(2000), false);
        tracker.observe(ms(2000), ms(3000), true);
        tracker.acted(3, "cut", FaultType::NetworkPartition, ms(4000));
        tracker.observe(ms(4000), ms(7000), false);
        tracker.observe(ms(7000), ms(10_000), true);
        tracker.acted(4, "again", FaultType::ProcessKill, ms(11_000));
        let report = tracker.report(&[]).unwrap();
        assert_eq!((report.mttd_seconds, report.mttr_seconds), (Some(2.0), Some(4.0)));
        assert_eq!((report.rto_seconds, report.within_rto), (None, None));
        assert!(tracker.is_open(), "the last one may still come");
    }

    #[test]
    fn an_objective_is_missed_by_a_late_recovery_and_by_none_and_no_outage_says_nothing() {
        let mut tracker = tracker(Some(500));
        // Nothing was seen, which is no success of recovery either.
        let unseen = tracker.report(&[]).unwrap();
        assert!(
            tracker.too_late().is_none() && unseen.within_rto.is_none() && unseen.rto_seconds == Some(0.5)
        );
        assert_eq!(unseen.incidents[0].finding.as_deref(), Some(UNSEEN));
        tracker.observe(ms(1100), ms(1200), false);
        assert!(tracker.too_late().unwrap().contains("not seen to recover after \"kill\""));
        tracker.observe(ms(1600), ms(1700), true);
        let late = tracker.too_late().unwrap();
        assert!(late.contains("700") && late.contains("500ms"), "{late}");
        assert_eq!(tracker.report(&[]).unwrap().within_rto, Some(false));
    }

    #[test]
    fn a_run_that_is_stopped_before_the_objective_is_over_says_nothing_of_it() {
        let judged =
            |tracker: &Tracker| (tracker.too_late().is_some(), tracker.report(&[]).unwrap().within_rto);
        let mut stopped = tracker(Some(5000));
        stopped.observe(ms(1100), ms(1200), false);
        stopped.stop(ms(3000));
        assert_eq!(judged(&stopped), (false, None), "it had 2 s of its 5");
        stopped.observe(ms(5000), ms(5000), false);
        assert_eq!(judged(&stopped), (false, None), "it had 4 s of its 5");
        let mut recovered = stopped.clone();
        recovered.observe(ms(5500), ms(5500), true);
        assert_eq!(judged(&recovered), (false, Some(true)), "it was seen to be well in time");
        recovered.acted(3, "cut", FaultType::NetworkPartition, ms(5500));
        recovered.observe(ms(5600), ms(5700), false);
        assert_eq!(judged(&recovered), (false, None), "of two, one is not known");
        stopped.observe(ms(6000), ms(6000), false);
        assert_eq!(judged(&stopped), (true, Some(false)), "it had all of its time");
    }

    #[test]
    fn a_fault_that_makes_no_outage_is_measured_once_a_sample_is_not_met_and_is_held_to_no_objective() {
        let mut tracker = Tracker::new(Some(ms(500)));
        tracker.acted(0, "slow", FaultType::Latency, ms(1000));
        tracker.acted(1, "load", FaultType::ConnectionLoad, ms(2000));
        assert!(!tracker.is_open() && tracker.report(&[]).is_none());
        tracker.observe(ms(1500), ms(1600), false);
        assert!(tracker.is_open(), "from now on it is looked when it is over");
        tracker.observe(ms(3000), ms(3100), true);
        let report = tracker.report(&[]).unwrap();
        assert_eq!(report.incidents.len(), 1, "of the other nothing was seen");
        assert_eq!((&*report.incidents[0].action, &report.incidents[0].finding), ("slow", &None));
        assert_eq!((report.mttd_seconds, report.mttr_seconds), (Some(0.6), Some(2.1)));
        assert_eq!((tracker.too_late(), report.within_rto, report.rto_seconds), (None, None, None));
        assert!(!tracker.is_open());
    }

    #[test]
    fn a_run_without_an_outage_has_no_measures() {
        assert_eq!(Tracker::new(Some(ms(1))).report(&[]), None);
        assert!(is_outage(FaultType::NetworkPartition) && !is_outage(FaultType::Latency));
    }
}
