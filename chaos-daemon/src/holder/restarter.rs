//! Having a service restarted, and watching what comes of it: when it is gone, and when it is active again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use caps::Capability;

use super::arm::{Arm, ArmError, Armed, Means};
use crate::fault::RestartWork;
use crate::host::privilege::SERVICE_HOLDER;
use crate::kernel::node::talk;
use crate::kernel::systemd::{Systemd, SystemdError, Unit};
use crate::request::Evidence;
use crate::request::evidence::{Recovery, Seconds};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// The same once it takes longer.
const RARE_LOOK: Duration = Duration::from_millis(250);
/// After so long it is looked rarely.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an injection waits for the first effect.
const FIRST_LOOK: Duration = Duration::from_millis(500);

impl Arm for RestartWork {
    fn needed(&self) -> &'static [Capability] {
        SERVICE_HOLDER
    }

    fn arm(&self, _: Means) -> Result<Box<dyn Armed>, ArmError> {
        Ok(Box::new(Restarter::start(self)?))
    }
}

impl Armed for Restarter {
    /// A restart knows no deadline: it was done.
    fn renew(&mut self, _: u64) -> Result<(), ArmError> {
        Ok(())
    }

    /// What has come of it so far.
    fn evidence(&self) -> Result<Evidence, ArmError> {
        Ok(Evidence::Restart(*self.shared.tally()))
    }
}

/// A restart, watched until it is over or the value is dropped.
#[derive(Debug)]
struct Restarter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    tally: Mutex<Recovery>,
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Recovery> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Restarter {
    /// Has the service restarted, and returns when it has gone, or soon.
    ///
    /// # Errors
    /// When systemd refuses.
    fn start(work: &RestartWork) -> Result<Self, SystemdError> {
        let began = Instant::now();
        talk(async |systemd| systemd.restart(&work.unit).await)?;
        let shared = Arc::<Shared>::default();
        let (work, of_thread) = (work.clone(), Arc::clone(&shared));
        let watch = move || {
            let watched = talk(async |systemd| watch(systemd, &work, &of_thread, began).await);
            if let Err(error) = watched {
                tracing::warn!(unit = work.unit, %error, "cannot watch a restart");
            }
        };
        let thread =
            thread::Builder::new().name("restart".into()).spawn(watch).map_err(SystemdError::Runtime)?;
        let restarter = Self { shared, thread: Some(thread) };
        while restarter.shared.tally().gone_after_seconds.is_none() && began.elapsed() < FIRST_LOOK {
            thread::sleep(LOOK);
        }
        Ok(restarter)
    }
}

impl Drop for Restarter {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // One that has panicked watches nothing any more, which is all that is wanted here.
            drop(thread.join());
        }
    }
}

async fn watch(
    systemd: &Systemd,
    work: &RestartWork,
    shared: &Shared,
    began: Instant,
) -> Result<(), SystemdError> {
    while !shared.over.load(Ordering::Acquire) {
        let unit = systemd.unit(&work.unit).await?;
        if see(&mut shared.tally(), work, &unit, began.elapsed()) {
            return Ok(());
        }
        thread::sleep(if began.elapsed() < PATIENCE { LOOK } else { RARE_LOOK });
    }
    Ok(())
}

/// Takes in what is seen after so long; true when there is nothing more to see.
fn see(tally: &mut Recovery, work: &RestartWork, unit: &Unit, after: Duration) -> bool {
    let anew = unit.invocation != work.invocation && !unit.invocation.is_empty();
    if tally.gone_after_seconds.is_none() && (anew || unit.active != "active") {
        (tally.gone_after_seconds, tally.processes_ended) = (Some(Seconds(after)), 1);
    }
    if tally.back_after_seconds.is_none() && anew && unit.active == "active" {
        (tally.back_after_seconds, tally.nobody_came_back) = (Some(Seconds(after)), false);
        return true;
    }
    // It was started, and did not stay.
    tally.nobody_came_back = tally.gone_after_seconds.is_some() && !unit.is_up() && !unit.job;
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_over_when_another_start_is_active() {
        let work = RestartWork { unit: "a.service".into(), invocation: "0a".into() };
        let unit = |active: &str, invocation: &str, job| Unit {
            active: active.into(),
            invocation: invocation.into(),
            job,
            ..Unit::default()
        };
        let ms = Duration::from_millis;
        let seconds = |time| Seconds(ms(time));
        let mut tally = Recovery::default();
        assert!(!see(&mut tally, &work, &unit("active", "0a", true), ms(1)));
        assert_eq!(tally.gone_after_seconds, None);
        assert!(!see(&mut tally, &work, &unit("deactivating", "0a", true), ms(2)));
        assert!(!see(&mut tally, &work, &unit("failed", "0b", false), ms(3)));
        assert!(
            tally.nobody_came_back
                && tally.gone_after_seconds == Some(seconds(2))
                && tally.back_after_seconds.is_none()
        );
        assert!(see(&mut tally, &work, &unit("active", "0c", false), ms(4)));
        assert!(
            !tally.nobody_came_back
                && tally.back_after_seconds == Some(seconds(4))
                && tally.processes_ended == 1
        );
    }
}
