//! Settings of the node that are as the fault has set them, and how often the kernel has held somebody back by one of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use caps::Capability;

use super::arm::{Arm, ArmError, Armed, Means};
use crate::host::privilege::{CLOCK, LINK_HOLDER, SERVICE_HOLDER};
use crate::kernel::node::{Kernel, StepError};
use crate::kernel::setting::Setting;
use crate::request::{Evidence, evidence};

/// How often a service is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Settings that a fault has changed. Dropping this does nothing: who reads the journal undoes them.
struct Standing {
    settings: Vec<Kept>,
}

struct Kept {
    setting: Setting,
    /// The kernel's count from before; `None` where the kernel does not count.
    before: Option<u64>,
    /// Who looks at it, where a program has to be asked and not the kernel.
    watch: Option<Watch>,
}

impl Arm for Vec<Setting> {
    fn needed(&self) -> &'static [Capability] {
        self.first().map_or(&[], needed_to_set)
    }

    /// When the kernel refuses one, those before it stay changed.
    fn arm(&self, _: Means) -> Result<Box<dyn Armed>, ArmError> {
        let settings = self.iter().map(Kept::apply).collect::<Result<_, StepError>>()?;
        Ok(Box::new(Standing { settings }))
    }
}

/// The capabilities that a change of this setting needs.
pub(super) fn needed_to_set(setting: &Setting) -> &'static [Capability] {
    match setting {
        // Root owns these files.
        Setting::Cgroup(_) => &[],
        Setting::Link(_) => LINK_HOLDER,
        Setting::Clock(_) => &[CLOCK],
        Setting::Service(_) => SERVICE_HOLDER,
    }
}

impl Armed for Standing {
    /// Settings know no deadline: the guard sees to their end.
    fn renew(&mut self, _: u64) -> Result<(), ArmError> {
        Ok(())
    }

    /// Which of them are still so, and what the kernel has counted since.
    fn evidence(&self) -> Result<Evidence, ArmError> {
        let mut sum = evidence::Settings::default();
        for kept in &self.settings {
            sum.settings_held += u64::from(kept.present()?);
            let Some(before) = kept.before else { continue };
            // A group that has gone took its count along.
            let now = kept.setting.held_back(&Kernel)?.unwrap_or_default();
            *sum.times_held_back.get_or_insert(0) += now.saturating_sub(before);
        }
        Ok(Evidence::Settings(sum))
    }
}

impl Kept {
    fn apply(setting: &Setting) -> Result<Self, StepError> {
        let before = setting.held_back(&Kernel)?;
        setting.apply(&Kernel)?;
        let watch = matches!(setting, Setting::Service(_)).then(|| Watch::start(setting)).transpose()?;
        Ok(Self { setting: setting.clone(), before, watch })
    }

    fn present(&self) -> Result<bool, StepError> {
        match &self.watch {
            Some(watch) => Ok(watch.present()),
            None => self.setting.present(&Kernel),
        }
    }
}

/// Looks at a setting on a thread of its own. systemd may take long to answer, and the injector takes a holder that does not answer
/// for dead. While systemd does not answer, the setting counts as it was seen last.
struct Watch(Arc<AtomicBool>);

impl Watch {
    /// Watches a setting that was applied just now.
    fn start(setting: &Setting) -> Result<Self, StepError> {
        let present = Arc::new(AtomicBool::new(true));
        let (seen, watched) = (Arc::downgrade(&present), setting.clone());
        let watch = move || {
            let mut answered = true;
            loop {
                thread::sleep(LOOK);
                let look = watched.present(&Kernel);
                let Some(present) = seen.upgrade() else { return };
                match &look {
                    Ok(now) => present.store(*now, Ordering::Relaxed),
                    Err(error) if answered => tracing::warn!(setting = %watched, %error, "cannot look at it"),
                    Err(_) => {}
                }
                answered = look.is_ok();
            }
        };
        let started = thread::Builder::new().name("watch".into()).spawn(watch);
        let failed =
            |source: io::Error| StepError::Setting { operation: "watch", what: setting.place(), source };
        started.map(|_| Self(present)).map_err(failed)
    }

    /// Whether the node was as the fault has set it, when somebody answered last.
    fn present(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
