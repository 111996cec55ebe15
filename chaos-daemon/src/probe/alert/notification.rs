//! What a receiver's `webhook_configs` send: version 4 of Alertmanager's payload
//! (<https://prometheus.io/docs/alerting/latest/configuration/#webhook_config>). Fields that are not known here may be there.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// The version of the payload that is understood.
const VERSION: &str = "4";
/// The most text of one alert, in bytes: so many of them are kept.
const LARGEST_ALERT: usize = 16 * 1024;

/// What one receiver is told of the alerts of a group.
#[derive(Debug, Deserialize)]
pub(super) struct Notification {
    version: String,
    /// Name of the receiver.
    pub(super) receiver: String,
    /// The alerts.
    pub(super) alerts: Vec<Notice>,
    /// How many alerts of the group are not among them (`max_alerts`).
    #[serde(default, rename = "truncatedAlerts")]
    pub(super) left_out: u64,
}

/// What is told of one alert.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Notice {
    pub(super) status: Status,
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) starts_at: Timestamp,
    #[serde(default, rename = "generatorURL")]
    pub(super) generator_url: String,
    pub(super) fingerprint: String,
}

/// Whether an alert fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Firing,
    Resolved,
}

impl Notification {
    /// Understands the body of a request.
    ///
    /// # Errors
    /// Says what it lacks, or has too much of.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let notification: Self = serde_json::from_slice(body)
            .map_err(|error| format!("not what an Alertmanager sends, version {VERSION}: {error}"))?;
        if notification.version != VERSION {
            return Err(format!("version {:?} of the payload: {VERSION:?} is known", notification.version));
        }
        let beside = notification.receiver.len();
        match notification.alerts.iter().find(|notice| notice.size() + beside > LARGEST_ALERT) {
            Some(notice) => Err(format!(
                "alert {:?} has more than {} KiB of labels and annotations",
                notice.name().chars().take(64).collect::<String>(),
                LARGEST_ALERT / 1024
            )),
            None => Ok(notification),
        }
    }
}

impl Notice {
    /// Name of the alert.
    pub(super) fn name(&self) -> &str {
        self.labels.get("alertname").map_or("", String::as_str)
    }

    /// How much text it has, in bytes.
    pub(super) fn size(&self) -> usize {
        let texts = self.labels.iter().chain(&self.annotations);
        let texts: usize = texts.map(|(name, text)| name.len() + text.len()).sum();
        texts + self.generator_url.len() + self.fingerprint.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// As Alertmanager 0.25 sends it.
    fn sent() -> Value {
        json!({
            "receiver": "oncall", "status": "firing", "version": "4", "truncatedAlerts": 0,
            "groupKey": "{}:{alertname=\"PayDown\"}", "groupLabels": {"alertname": "PayDown"},
            "commonLabels": {"alertname": "PayDown"}, "commonAnnotations": {},
            "externalURL": "http://host:9093",
            "alerts": [{
                "status": "firing", "labels": {"alertname": "PayDown", "team": "pay"},
                "annotations": {"summary": "it gives no numbers"},
                "startsAt": "2026-05-04T12:00:00.123456789+02:00", "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://host:9090/graph", "fingerprint": "00d6f1f6e8a2cc04",
            }],
        })
    }

    fn parse(sent: &Value) -> Result<Notification, String> {
        Notification::parse(sent.to_string().as_bytes())
    }

    #[test]
    fn what_alertmanager_sends_is_understood() {
        let notification = parse(&sent()).unwrap();
        let [notice] = notification.alerts.as_slice() else { panic!("{notification:?}") };
        assert_eq!((notification.receiver.as_str(), notification.left_out), ("oncall", 0));
        assert_eq!((notice.name(), notice.status), ("PayDown", Status::Firing));
        assert_eq!(notice.starts_at.to_string(), "2026-05-04T10:00:00.123456789Z");
        assert_eq!(notice.annotations["summary"], "it gives no numbers");
        let mut none = sent();
        none["alerts"] = json!([]);
        assert_eq!(parse(&none).unwrap().alerts.len(), 0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (path, value, said) in [
            ("/version", json!("3"), "version \"3\" of the payload"),
            ("/version", json!(4), "expected a string"),
            ("/receiver", json!(null), "expected a string"),
            ("/alerts", json!({}), "expected a sequence"),
            ("/alerts/0/status", json!("pending"), "unknown variant `pending`"),
            ("/alerts/0/labels", json!({"team": 1}), "expected a string"),
            ("/alerts/0/startsAt", json!("yesterday"), "as year"),
            ("/alerts/0/fingerprint", json!(7), "expected a string"),
            (
                "/alerts/0/annotations",
                json!({"a": "x".repeat(LARGEST_ALERT)}),
                "\"PayDown\" has more than 16 KiB",
            ),
            ("/truncatedAlerts", json!(-1), "expected u64"),
        ] {
            let mut wrong = sent();
            *wrong.pointer_mut(path).unwrap() = value;
            let error = parse(&wrong).unwrap_err();
            assert!(error.contains(said), "{path}: {error}");
        }
        for lacking in ["version", "receiver", "alerts"] {
            let mut wrong = sent();
            wrong.as_object_mut().unwrap().remove(lacking);
            assert!(parse(&wrong).unwrap_err().contains(&format!("missing field `{lacking}`")));
        }
        for body in ["", "{", "[]", "alerts", "{\"alerts\": []} x", "\u{0}"] {
            assert!(Notification::parse(body.as_bytes()).is_err(), "{body:?}");
        }
        assert!(Notification::parse(b"{\"version\": \"\xff\"}").is_err());
    }
}
