//! What the daemon was told of alerts. In memory, and so from its start on; it has no clock of its own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Alert;
use super::matcher::Matcher;
use super::notification::{Notice, Notification, Status};
use crate::probe::Seen;
use crate::probe::http::LARGEST_BODY;

/// The most that are kept: an alert counts once for every receiver that was told of it.
const MOST: usize = 1000;

/// The latest alerts that were told of.
#[derive(Debug)]
pub(super) struct Record {
    /// When it began, and when anything was told last.
    began: Timestamp,
    heard: Option<Timestamp>,
    /// How many alerts were told of so far.
    told: u64,
    /// How many that fired are not known any more, or were left out by who told.
    lost: u64,
    /// By fingerprint and receiver.
    alerts: BTreeMap<(String, String), Told>,
}

/// What was told of an alert last.
#[derive(Debug)]
struct Told {
    /// Its place among all that was told.
    number: u64,
    notice: Notice,
    /// When that status was told first.
    since: Timestamp,
}

impl Record {
    /// Nothing was told yet.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { began: now, heard: None, told: 0, lost: 0, alerts: BTreeMap::new() }
    }

    /// Takes a notification in; returns of how many alerts it was.
    pub(super) fn note(&mut self, notification: Notification, now: Timestamp) -> usize {
        let Notification { receiver, alerts, left_out, .. } = notification;
        let count = alerts.len();
        self.heard = Some(now);
        self.lost = self.lost.saturating_add(left_out);
        for notice in alerts {
            self.told += 1;
            let key = (notice.fingerprint.clone(), receiver.clone());
            let same = self.alerts.get(&key).filter(|told| told.notice.status == notice.status);
            let since = same.map_or(now, |told| told.since);
            self.alerts.insert(key, Told { number: self.told, notice, since });
            self.forget();
        }
        count
    }

    /// Forgets one where there is one too many: of those that are resolved, or else of all, the one that was told of longest ago.
    fn forget(&mut self) {
        if self.alerts.len() <= MOST {
            return;
        }
        let oldest = self.alerts.iter().min_by_key(|(_, told)| (told.fires(), told.number));
        let oldest = oldest.map(|(key, _)| key.clone());
        let forgotten = oldest.and_then(|key| self.alerts.remove(&key));
        self.lost += u64::from(forgotten.is_some_and(|told| told.fires()));
    }

    /// What `alert` asks, answered as an Alertmanager's answer would be.
    pub(super) fn seen(&self, alert: &Alert, now: Timestamp) -> Seen {
        let judged = self.concerning(alert).and_then(|alerts| alert.judge(&alerts, now));
        let none = |seen: &Seen| seen.value.is_some_and(|count| count < 0.5);
        match judged {
            Ok(seen) if none(&seen) => {
                let silence = self.silence(now);
                Seen { verdict: seen.verdict.map(|said| format!("{said}; {silence}")), ..seen }
            }
            judged => judged.into(),
        }
    }

    /// The alerts with the right labels, those that fire first: each once, with all receivers that were told of it.
    fn concerning(&self, alert: &Alert) -> Result<Value, String> {
        let labels: Vec<_> = alert
            .labels
            .iter()
            .map(Matcher::test)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let (mut firing, mut resolved, mut size) = (BTreeMap::new(), Vec::new(), 0);
        let fit = |told: &Told| labels.iter().all(|label| label.fits(&told.notice.labels));
        for ((fingerprint, receiver), told) in self.alerts.iter().filter(|(_, told)| fit(told)) {
            if !told.fires() {
                resolved.push(told.resolved());
                continue;
            }
            size += told.notice.size();
            // An Alertmanager that was asked may not say more either.
            if size as u64 > LARGEST_BODY {
                return Ok(Value::Null);
            }
            let alert = firing.entry(fingerprint).or_insert_with(|| told.firing());
            if let Some(receivers) = alert["receivers"].as_array_mut() {
                receivers.push(json!({"name": receiver}));
            }
        }
        Ok(firing.into_values().chain(resolved).collect())
    }

    /// What there is to know about why none is there.
    fn silence(&self, now: Timestamp) -> String {
        let ago = |then: Timestamp| now.duration_since(then).as_secs_f64().max(0.0);
        let lost = match self.lost {
            0 => String::new(),
            lost => {
                format!("; lost: {lost} that fired, left out by who told or older than the latest {MOST}")
            }
        };
        match self.heard {
            Some(heard) => format!("the latest word came {:.0} s ago{lost}", ago(heard)),
            None => format!("no word came in the {:.0} s since the daemon listens", ago(self.began)),
        }
    }
}

impl Told {
    fn fires(&self) -> bool {
        self.notice.status == Status::Firing
    }

    /// As Alertmanager's API shows an alert, without receivers yet.
    fn firing(&self) -> Value {
        let Notice { labels, annotations, starts_at, generator_url, fingerprint, .. } = &self.notice;
        json!({
            "labels": labels, "annotations": annotations, "fingerprint": fingerprint, "generatorURL": generator_url,
            "startsAt": starts_at, "toldAt": self.since, "receivers": [],
            "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
        })
    }

    fn resolved(&self) -> Value {
        json!({"labels": {"alertname": self.notice.name()}, "toldAt": self.since, "status": {"state": "resolved"}})
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Terms;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_777_888_000 + second).unwrap()
    }

    /// Has `record` told at `second` that the alerts of these numbers are so.
    fn tell(
        record: &mut Record,
        second: i64,
        receiver: &str,
        status: &str,
        numbers: impl IntoIterator<Item = u32>,
    ) {
        let alert = |number: u32| {
            json!({"status": status, "labels": {"alertname": "Pool", "number": number.to_string()},
                "annotations": {"summary": format!("{number} is used up")}, "startsAt": at(0), "fingerprint": number.to_string()})
        };
        let alerts: Vec<_> = numbers.into_iter().map(alert).collect();
        let sent = json!({"version": "4", "receiver": receiver, "alerts": alerts}).to_string();
        record.note(Notification::parse(sent.as_bytes()).unwrap(), at(second));
    }

    fn ask(record: &Record, second: i64, terms: Terms<'_>) -> (f64, String, Value) {
        let seen = record.seen(&Alert::told(terms).unwrap(), at(second));
        (seen.value.unwrap(), seen.verdict.unwrap(), seen.answer.unwrap())
    }

    fn count(record: &Record, terms: Terms<'_>) -> f64 {
        ask(record, 100, terms).0
    }

    const ANY: Terms<'_> = Terms { labels: &[], reason: None, receiver: None, within: None };

    #[test]
    fn an_alert_fires_from_when_it_was_told_firing_until_it_is_told_resolved() {
        let mut record = Record::new(at(0));
        let (none, said, _) = ask(&record, 7, ANY);
        assert!(
            none < 0.5 && said == "none fires; no word came in the 7 s since the daemon listens",
            "{said}"
        );
        tell(&mut record, 10, "oncall", "firing", [1, 2]);
        tell(&mut record, 12, "oncall", "firing", [1]);
        let (two, said, answer) = ask(&record, 13, ANY);
        assert!((two - 2.0).abs() < 0.01 && said.contains("\"Pool\" (summary: \"1 is used up\")"), "{said}");
        let first = &answer["firing"][0];
        assert_eq!((&first["startsAt"], &first["toldAt"]), (&json!(at(0)), &json!(at(10))));
        assert_eq!(first["receivers"], json!([{"name": "oncall"}]));
        tell(&mut record, 20, "oncall", "resolved", [1, 2]);
        let (none, said, _) = ask(&record, 23, ANY);
        assert!(
            none < 0.5
                && said.contains("\"Pool\" is resolved")
                && said.ends_with("; the latest word came 3 s ago"),
            "{said}"
        );
        tell(&mut record, 30, "oncall", "firing", [2]);
        assert_eq!(ask(&record, 31, ANY).2["firing"][0]["toldAt"], json!(at(30)));
    }

    #[test]
    fn it_is_asked_as_an_alertmanager_is() {
        let mut record = Record::new(at(0));
        tell(&mut record, 10, "oncall", "firing", [1, 2]);
        tell(&mut record, 11, "archive", "firing", [1]);
        let second = ["number=2".to_owned()];
        for (terms, expected) in [
            (ANY, 2.0),
            (Terms { labels: &second, ..ANY }, 1.0),
            (Terms { reason: Some("^1 is"), ..ANY }, 1.0),
            (Terms { receiver: Some("archive"), ..ANY }, 1.0),
            (Terms { receiver: Some("archiv"), ..ANY }, 0.0),
            (Terms { receiver: Some("archive"), labels: &second, ..ANY }, 0.0),
            (Terms { within: Some(Duration::from_secs(100)), ..ANY }, 2.0),
            (Terms { within: Some(Duration::from_secs(99)), ..ANY }, 0.0),
        ] {
            assert!((count(&record, terms) - expected).abs() < 0.01, "{terms:?}");
        }
        let both = &ask(&record, 12, ANY).2["firing"][0]["receivers"];
        assert_eq!(*both, json!([{"name": "archive"}, {"name": "oncall"}]));
        // Told resolved to one of two.
        tell(&mut record, 13, "archive", "resolved", [1]);
        assert!(count(&record, Terms { receiver: Some("archive"), ..ANY }) < 0.5);
        assert!((count(&record, ANY) - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_thousand_are_kept_and_the_resolved_and_the_oldest_are_forgotten_first() {
        let mut record = Record::new(at(0));
        tell(&mut record, 1, "oncall", "firing", [0]);
        tell(&mut record, 2, "oncall", "resolved", [1, 2]);
        tell(&mut record, 3, "oncall", "firing", 10..1009);
        assert_eq!((record.alerts.len(), record.lost), (MOST, 0));
        assert!((count(&record, ANY) - 1000.0).abs() < 0.01);
        // Told of again, the first one is not the oldest any more.
        tell(&mut record, 4, "oncall", "firing", [0, 2000]);
        assert_eq!((record.alerts.len(), record.lost), (MOST, 1));
        let of = |number: &str| count(&record, Terms { labels: &[format!("number={number}")], ..ANY });
        assert_eq!((of("0"), of("10"), of("11"), of("2000")), (1.0, 0.0, 1.0, 1.0));
        let said = ask(&record, 5, Terms { labels: &["number=10".to_owned()], ..ANY }).1;
        assert!(said.contains("lost: 1 that fired"), "{said}");
    }

    #[test]
    fn who_leaves_alerts_out_is_believed() {
        let mut record = Record::new(at(0));
        let sent = json!({"version": "4", "receiver": "a", "alerts": [], "truncatedAlerts": 3}).to_string();
        record.note(Notification::parse(sent.as_bytes()).unwrap(), at(1));
        assert!(ask(&record, 2, ANY).1.contains("lost: 3 that fired"));
    }

    #[test]
    fn more_than_fits_into_an_answer_is_no_count() {
        let mut record = Record::new(at(0));
        let alert = |number: u32| {
            json!({"status": "firing", "labels": {"number": number.to_string()}, "annotations": {"a": "x".repeat(15_000)},
                "startsAt": at(0), "fingerprint": number.to_string()})
        };
        let sent = json!({"version": "4", "receiver": "a", "alerts": (0..18).map(alert).collect::<Vec<_>>()})
            .to_string();
        record.note(Notification::parse(sent.as_bytes()).unwrap(), at(1));
        let seen = record.seen(&Alert::told(ANY).unwrap(), at(2));
        assert!(seen.value.is_none() && seen.verdict.unwrap_err().contains("give labels that fewer have"));
        assert!((count(&record, Terms { labels: &["number=3".to_owned()], ..ANY }) - 1.0).abs() < 0.01);
    }
}
