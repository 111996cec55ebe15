//! How the whole host goes down: `host_reboot` and `host_panic`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RebootParams {
    /// Without stopping services first.
    #[serde(default)]
    forced: bool,
}

/// What `host_panic` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PanicParams {
    /// Put on disk first what programs have written.
    #[serde(default)]
    sync: bool,
    /// Also where kernel.panic is 0, so that the host stays down until somebody resets it.
    #[serde(default)]
    stay_down: bool,
}

impl RebootParams {
    pub(super) fn way(&self) -> Way {
        Way::Reboot { forced: self.forced }
    }
}

impl PanicParams {
    pub(super) fn way(&self) -> Way {
        Way::Panic { sync: self.sync, stay_down: self.stay_down }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::effect::Effect;
    use crate::spec::{FaultRequest, FaultType, Probability, SpecError, TargetRequest};

    fn down(fault_type: FaultType, params: Value, lasts: f64) -> Result<HostDown, SpecError> {
        let request = FaultRequest {
            fault_type,
            probability: Probability::CERTAIN,
            duration_seconds: Some(lasts),
            error_message: None,
            target: TargetRequest::default(),
            params: params.as_object().unwrap().clone(),
        };
        request.parse().map(|fault| match fault.effect {
            Effect::Down(down) => down,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_host_goes_down_a_second_later_in_order_and_comes_up_again_unless_told_otherwise() {
        let HostDown { way, countdown } = down(FaultType::HostReboot, json!({}), 60.0).unwrap();
        assert_eq!((way, countdown), (Way::Reboot { forced: false }, Duration::from_secs(1)));
        let params = json!({"sync": true, "countdown_seconds": 5});
        let HostDown { way, countdown } = down(FaultType::HostPanic, params, 60.0).unwrap();
        assert_eq!((way, countdown), (Way::Panic { sync: true, stay_down: false }, Duration::from_secs(5)));
    }

    #[test]
    fn a_countdown_that_the_caller_would_not_hear_of_or_the_fault_not_live_to_see_is_refused() {
        let field = |seconds: Value, lasts| {
            let params = json!({"countdown_seconds": seconds});
            down(FaultType::HostReboot, params, lasts).map(drop).map_err(|error| error.field)
        };
        assert_eq!(field(json!(0.1), 60.0), Err("params.countdown_seconds".to_owned()));
        assert_eq!(field(json!(601.0), 3600.0), Err("params.countdown_seconds".to_owned()));
        assert_eq!(field(Value::Null, 1.0), Err("duration_seconds".to_owned()));
        assert_eq!(field(json!(60.0), 60.0), Err("duration_seconds".to_owned()));
        assert_eq!(field(Value::Null, 1.5), Ok(()));
    }
}
