//! A busy machine: processes that use up processors beside the tests.

use std::process::Child;

use crate::error::Error;
use crate::run;

/// As many as a small machine has processors.
const HOGS: usize = 2;

/// Processes that spin until this is dropped, or the thread is gone that has started them.
#[derive(Debug)]
pub(super) struct Load(Vec<Child>);

impl Load {
    pub(super) fn start() -> Result<Self, Error> {
        let mut load = Self(Vec::new());
        for _ in 0..HOGS {
            let mut command = run::bound("sh");
            command.args(["-c", "while :; do :; done"]);
            load.0.push(command.spawn().map_err(|source| run::start_error(&command, source))?);
        }
        Ok(load)
    }

    /// What there is beside the tests, for the summary.
    pub(super) fn line(&self) -> String {
        format!(
            "under load: {} processes that use up all the processor time they get ran beside",
            self.0.len()
        )
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hogs_run_until_they_are_dropped() {
        let load = Load::start().unwrap();
        let pids: Vec<_> = load.0.iter().map(Child::id).collect();
        let runs = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        assert!(pids.len() == HOGS && pids.iter().all(runs));
        drop(load);
        assert!(!pids.iter().any(runs));
    }
}
