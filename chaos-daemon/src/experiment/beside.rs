//! Which faults of a document may be active at the same time.

use std::time::Duration;

use super::activity::Deed;
use super::document::Experiment;

impl Experiment {
    /// For each fault, in their order, the numbers of those that may be active when it is injected, if activities take no time themselves;
    /// of what takes some, the faults are the further apart.
    pub fn beside(&self) -> Vec<Vec<usize>> {
        let (mut now, mut lives) = (Duration::ZERO, Vec::new());
        for activity in &self.method {
            let begins = now + activity.before;
            match &activity.deed {
                Deed::Inject { name, fault } => {
                    let lasts = fault.parse().map_or(Duration::ZERO, |fault| fault.duration);
                    lives.push((name.as_ref(), begins, begins + lasts));
                }
                Deed::Remove(name) => {
                    for (_, _, ends) in lives.iter_mut().filter(|(other, ..)| *other == Some(name)) {
                        *ends = begins.min(*ends);
                    }
                }
                Deed::Probe { .. } => {}
            }
            if !activity.background {
                now = begins + activity.after.unwrap_or_default();
            }
        }
        let is_there = |(number, (_, begins, _)): (usize, &(_, Duration, Duration))| {
            let earlier = |(other, (_, began, ends)): &(usize, &(_, Duration, Duration))| {
                (*began, *other) < (*begins, number) && begins < ends
            };
            lives.iter().enumerate().filter(earlier).map(|(other, _)| other).collect()
        };
        lives.iter().enumerate().map(is_there).collect()
    }
}

#[cfg(test)]
#[path = "beside_tests.rs"]
mod tests;
