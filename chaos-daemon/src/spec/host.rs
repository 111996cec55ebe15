//! How the whole host goes down: `host_reboot` and `host_panic`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::settings::within;
use super::units::SpecError;

/// From the injection until it happens when nobody says, in seconds: long enough for the caller to hear of it.
const COUNTDOWN: f64 = 1.0;
/// The shortest and the longest, in seconds.
const COUNTDOWNS: (f64, f64) = (1.0, 600.0);

/// The end of this boot, and when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDown {
    /// By what.
    pub way: Way,
    /// How long after the injection. Until then it can be prevented.
    pub countdown: Duration,
}

/// By what a host goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// It is rebooted.
    Reboot {
        /// Without stopping services first.
        forced: bool,
    },
    /// Its kernel panics.
    Panic {
        /// Whether what programs have written is put on disk first.
        sync: bool,
        /// Whether it may be that it does not come up again by itself.
        stay_down: bool,
    },
}

/// What `host_reboot` takes in `params`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RebootParams {
    forced: Option<bool>,
    countdown_seconds: Option<f64>,
}

/// What `host_panic` takes in `params`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PanicParams {
    sync: Option<bool>,
    stay_down: Option<bool>,
    countdown_seconds: Option<f64>,
}

impl RebootParams {
    /// What is asked for, of a fault that lasts so long.
    pub(super) fn down(&self, lasts: Duration) -> Result<HostDown, SpecError> {
        let way = Way::Reboot { forced: self.forced.unwrap_or(false) };
        Ok(HostDown { way, countdown: countdown(self.countdown_seconds, lasts)? })
    }
}

impl PanicParams {
    /// What is asked for, of a fault that lasts so long.
    pub(super) fn down(&self, lasts: Duration) -> Result<HostDown, SpecError> {
        let way = Way::Panic { sync: self.sync.unwrap_or(false), stay_down: self.stay_down.unwrap_or(false) };
        Ok(HostDown { way, countdown: countdown(self.countdown_seconds, lasts)? })
    }
}

fn countdown(seconds: Option<f64>, lasts: Duration) -> Result<Duration, SpecError> {
    let (least, most) = COUNTDOWNS;
    let seconds = within("params.countdown_seconds", seconds.unwrap_or(COUNTDOWN), least, most)?;
    let countdown = Duration::from_secs_f64(seconds);
    if countdown < lasts {
        return Ok(countdown);
    }
    let problem = format!("it would end before the {seconds} s of its countdown are over: give more");
    Err(SpecError::new("duration_seconds", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_goes_down_a_second_later_in_order_and_comes_up_again_unless_told_otherwise() {
        let minute = Duration::from_secs(60);
        let reboot: RebootParams = serde_json::from_str("{}").unwrap();
        let HostDown { way, countdown } = reboot.down(minute).unwrap();
        assert_eq!((way, countdown), (Way::Reboot { forced: false }, Duration::from_secs(1)));
        let panic: PanicParams = serde_json::from_str(r#"{"sync":true,"countdown_seconds":5}"#).unwrap();
        let HostDown { way, countdown } = panic.down(minute).unwrap();
        assert_eq!((way, countdown), (Way::Panic { sync: true, stay_down: false }, Duration::from_secs(5)));
    }

    #[test]
    fn a_countdown_that_the_caller_would_not_hear_of_or_the_fault_not_live_to_see_is_refused() {
        let field = |seconds, lasts| {
            let params = RebootParams { forced: None, countdown_seconds: seconds };
            params.down(Duration::from_secs_f64(lasts)).map(drop).map_err(|error| error.field)
        };
        assert_eq!(field(Some(0.1), 60.0), Err("params.countdown_seconds".to_owned()));
        assert_eq!(field(Some(601.0), 3600.0), Err("params.countdown_seconds".to_owned()));
        assert_eq!(field(None, 1.0), Err("duration_seconds".to_owned()));
        assert_eq!(field(Some(60.0), 60.0), Err("duration_seconds".to_owned()));
        assert_eq!(field(None, 1.5), Ok(()));
    }
}
