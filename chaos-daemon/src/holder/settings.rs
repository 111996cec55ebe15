//! Settings of the node that are as the fault has set them, and how often the kernel has held somebody back by one of them.

use crate::kernel::setting::Setting;
use crate::kernel::step::{Kernel, StepError};
use crate::request::Evidence;

/// Settings that a fault has changed. Dropping this does nothing: who reads the journal undoes them.
pub struct Standing {
    /// Each with the kernel's count from before; `None` where the kernel does not count.
    settings: Vec<(Setting, Option<u64>)>,
}

impl Standing {
    /// Changes them.
    ///
    /// # Errors
    /// When the kernel refuses one; those before it stay changed.
    pub fn apply(settings: &[Setting]) -> Result<Self, StepError> {
        let apply = |setting: &Setting| {
            let before = setting.held_back(&Kernel)?;
            setting.apply(&Kernel)?;
            Ok((setting.clone(), before))
        };
        Ok(Self { settings: settings.iter().map(apply).collect::<Result<_, StepError>>()? })
    }

    /// Which of them are still so, and what the kernel has counted since.
    ///
    /// # Errors
    /// When that cannot be known.
    pub fn evidence(&self) -> Result<Evidence, StepError> {
        let mut sum = Evidence::default();
        for (setting, before) in &self.settings {
            sum.settings += u64::from(setting.present(&Kernel)?);
            let Some(before) = before else { continue };
            // A group that has gone took its count along.
            let now = setting.held_back(&Kernel)?.unwrap_or_default();
            *sum.held_back.get_or_insert(0) += now.saturating_sub(*before);
        }
        Ok(sum)
    }
}
