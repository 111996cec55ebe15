//! A service that is stopped.
//!
//! Each start of a unit has an identity of its own (`InvocationID`, systemd.exec(5)). So a service that was stopped by us is told
//! from one that somebody has started since, and from one that somebody has started and stopped again.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kernel::node::talk_on;
use crate::kernel::node::{Node, StepError, Undone};
use crate::kernel::systemd::{Systemd, SystemdError, Unit};

/// How long a service may take to stop, at an injection.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How long its start is waited for. One that is still starting then has been started all the same.
const START_LIMIT: Duration = Duration::from_secs(5);
/// How long an order that nobody waits for any more may take to reach systemd.
const UNDER_WAY: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A service that is stopped, and which start of it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSetting {
    /// Name of the unit.
    pub unit: String,
    /// Identity of the start that is ended.
    pub invocation: String,
}

/// What has become of the service.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// As before.
    Running,
    /// Stopped, and nobody has started it since.
    Stopped,
    /// Somebody else has done something with it since.
    Others(String),
}

impl ServiceSetting {
    /// See [`super::Setting::apply`].
    pub(super) fn apply(&self, node: &impl Node) -> Result<(), StepError> {
        let stopped = talk_on(node, async |systemd| {
            let unit = systemd.unit(&self.unit).await?;
            if self.state(&unit) != State::Running {
                return Ok(Err(unit.active));
            }
            systemd.stop(&self.unit).await?;
            let is_over = |unit: &Unit| matches!(unit.active.as_str(), "inactive" | "failed");
            self.wait(node, systemd, STOP_LIMIT, is_over).await.map(Ok)
        });
        match stopped.map_err(|error| self.failed("stop", error))? {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                Err(self.failed("wait for the end of", SystemdError::Runtime(io::ErrorKind::TimedOut.into())))
            }
            Err(found) => {
                Err(StepError::Changed { what: self.unit.clone(), expected: "active".to_owned(), found })
            }
        }
    }

    /// See [`super::Setting::undo`].
    pub(super) fn undo(&self, node: &impl Node) -> Result<Undone, StepError> {
        let started = talk_on(node, async |systemd| self.start_again(node, systemd).await);
        started.map_err(|error| self.failed("start", error))?
    }

    async fn start_again(
        &self,
        node: &impl Node,
        systemd: &Systemd,
    ) -> Result<Result<Undone, StepError>, SystemdError> {
        let mut unit = systemd.unit(&self.unit).await?;
        if self.state(&unit) == State::Running {
            // Who was to stop it may have died with the order under way.
            node.sleep(UNDER_WAY);
            unit = systemd.unit(&self.unit).await?;
        }
        match self.state(&unit) {
            State::Running if !unit.job => return Ok(Ok(Undone::Absent)),
            State::Others(now) => return Ok(Ok(Undone::Changed { now })),
            // A host that goes down stops everything, and would take a start for an order to stay.
            _ if systemd.is_stopping().await? => {
                return Ok(Ok(Undone::Changed { now: "the host is going down".to_owned() }));
            }
            State::Running | State::Stopped => systemd.start(&self.unit).await?,
        }
        let over = |unit: &Unit| unit.active == "active" || !unit.is_up() && !unit.job;
        let last = match self.wait(node, systemd, START_LIMIT, over).await? {
            Some(unit) => unit,
            None => systemd.unit(&self.unit).await?,
        };
        Ok(match last.is_up() {
            true => Ok(Undone::Removed),
            false => Err(StepError::Changed {
                what: self.unit.clone(),
                expected: "started".to_owned(),
                found: format!("{}; `systemctl status {}` says why", last.active, self.unit),
            }),
        })
    }

    /// Waits until this holds; `None` when the time is over.
    async fn wait(
        &self,
        node: &impl Node,
        systemd: &Systemd,
        limit: Duration,
        holds: impl Fn(&Unit) -> bool,
    ) -> Result<Option<Unit>, SystemdError> {
        let end = node.now() + limit;
        loop {
            let unit = systemd.unit(&self.unit).await?;
            if holds(&unit) {
                return Ok(Some(unit));
            }
            if node.now() >= end {
                return Ok(None);
            }
            node.sleep(LOOK_AGAIN);
        }
    }

    /// See [`super::Setting::present`].
    pub(super) fn present(&self, node: &impl Node) -> Result<bool, StepError> {
        let unit = talk_on(node, async |systemd| systemd.unit(&self.unit).await);
        Ok(self.state(&unit.map_err(|error| self.failed("look at", error))?) == State::Stopped)
    }

    fn state(&self, unit: &Unit) -> State {
        let same = unit.invocation == self.invocation;
        match (unit.load.as_str(), unit.is_up()) {
            ("loaded", true) if same => State::Running,
            ("loaded", true) => State::Others("started by somebody else".to_owned()),
            // Of a service that nothing refers to, systemd forgets everything.
            ("loaded", false) if same || unit.invocation.is_empty() => State::Stopped,
            ("loaded", false) => State::Others("stopped by somebody else".to_owned()),
            (load, _) => State::Others(load.to_owned()),
        }
    }

    fn failed(&self, operation: &'static str, error: SystemdError) -> StepError {
        let source = match error {
            SystemdError::Runtime(source) => source,
            SystemdError::Absent(source) => {
                io::Error::new(source.kind(), format!("connect to the message bus: {source}"))
            }
            error => io::Error::other(error.to_string()),
        };
        StepError::Setting { operation, what: self.unit.clone(), source }
    }
}

impl fmt::Display for ServiceSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stopped", self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fake::{FakeNode, FakeUnit, Trouble};

    #[test]
    fn what_somebody_else_has_done_since_is_told_from_what_we_have() {
        let setting = ServiceSetting { unit: "a.service".into(), invocation: "0a".into() };
        let state = |load: &str, active: &str, invocation: &str| {
            let (load, active, invocation) = (load.into(), active.into(), invocation.into());
            setting.state(&Unit { load, active, invocation, ..Unit::default() })
        };
        assert_eq!(state("loaded", "active", "0a"), State::Running);
        for active in ["deactivating", "inactive", "failed"] {
            assert_eq!(state("loaded", active, "0a"), State::Stopped);
        }
        assert_eq!(state("loaded", "inactive", ""), State::Stopped);
        for (load, active, invocation) in [
            ("loaded", "active", "0b"),
            ("loaded", "activating", "0b"),
            ("loaded", "inactive", "0b"),
            ("masked", "inactive", "0a"),
            ("not-found", "inactive", ""),
        ] {
            assert!(matches!(state(load, active, invocation), State::Others(_)), "{load} {active}");
        }
    }

    #[test]
    fn without_a_service_manager_nothing_is_reported_as_done() {
        let setting = ServiceSetting { unit: "a.service".into(), invocation: "0a".into() };
        let (node, unit) = (FakeNode::default(), setting.unit.clone());
        let running = FakeUnit { load: "loaded", active: "active", start: 0x0a, job: None };
        node.0.change(|objects| _ = objects.units.insert(unit, running));
        assert!(!setting.present(&node).unwrap());
        // Nobody listens any more.
        node.0.expect(Some(Trouble::Refuse(1, usize::MAX)));
        let refused = [
            setting.apply(&node).unwrap_err(),
            setting.undo(&node).unwrap_err(),
            setting.present(&node).unwrap_err(),
        ];
        for error in refused {
            let why = match &error {
                StepError::Setting { what, source, .. } if *what == setting.unit => source.to_string(),
                error => panic!("{error:?}"),
            };
            assert!(why.contains("connect to the message bus"), "{why}");
        }
    }
}
