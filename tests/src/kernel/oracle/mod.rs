//! The residue oracle is not blind: for everything that it claims to see, a test leaves just that, and the oracle names it;
//! and it names nothing that is somebody else's.
//!
//! It is asked as an operator without a daemon asks it: `chaos-daemon recover --dry-run --json`. On a host others may have
//! left something, too; there a test speaks of its own things only.

mod files;
pub(super) mod packets;
mod processes;

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use tempfile::TempDir;

use super::KernelTest;
use crate::daemon::binary;
use crate::{Error, Result};

pub(super) use files::Cgroup;
pub(super) use packets::leased;
pub(super) use processes::Fake;

/// Every test of the oracle.
pub(super) fn all() -> Vec<KernelTest> {
    [packets::TESTS, processes::TESTS, files::TESTS].concat()
}

/// What the oracle said.
pub(super) struct Verdict {
    code: i32,
    report: Value,
}

impl Verdict {
    /// Asks it, on behalf of a daemon that ran in `runtime_dir`.
    pub(super) fn ask(runtime_dir: &Path) -> Result<Self> {
        let mut command = Command::new(binary("chaos-daemon")?);
        command.args(["recover", "--dry-run", "--json", "--runtime-dir"]).arg(runtime_dir);
        let output = command.output().map_err(Error::io("start", "chaos-daemon recover --dry-run"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let report = serde_json::from_str(&text).map_err(|error| {
            Error::Different(format!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
        })?;
        Ok(Self { code: output.status.code().unwrap_or(-1), report })
    }

    /// Asks it without any daemon in mind.
    fn of_node() -> Result<Self> {
        let folder = TempDir::new().map_err(Error::io("create", "a folder"))?;
        Self::ask(folder.path())
    }

    fn leftovers(&self) -> &[Value] {
        self.report["leftovers"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// Everything whose text, place or way to go contains this.
    fn naming(&self, text: &str) -> Vec<&Value> {
        let fields = ["what", "place", "goes"];
        let names = |left: &&Value| {
            fields.iter().any(|field| left[field].as_str().is_some_and(|word| word.contains(text)))
        };
        self.leftovers().iter().filter(names).collect()
    }

    /// The one thing of this kind whose text or place contains this; it must be at this level, and say how it goes. The
    /// verdict as a whole, and the exit code, must be at least as bad.
    pub(super) fn names(&self, level: &str, kind: &str, text: &str) -> Result<&Value> {
        let found: Vec<_> = self.naming(text).into_iter().filter(|left| left["kind"] == kind).collect();
        let wrong = |problem: &str| {
            Err(Error::Different(format!("{problem}: {level} {kind} {text}: {:#}", self.report)))
        };
        let [left] = found[..] else { return wrong(&format!("named {} times", found.len())) };
        let rank = |level: &Value| LEVELS.iter().position(|(name, _)| level == name);
        let code = LEVELS.iter().find(|(name, _)| self.report["level"] == *name).map(|(_, code)| *code);
        if left["level"] != level {
            return wrong("at another level");
        }
        if left["goes"].as_str().is_none_or(str::is_empty) {
            return wrong("without a way to go");
        }
        if rank(&self.report["level"]) < rank(&left["level"]) || code != Some(self.code) {
            return wrong(&format!("exit code {}", self.code));
        }
        Ok(left)
    }

    /// Nothing that has to do with this is left.
    fn is_silent_on(&self, text: &str) -> Result<()> {
        match self.naming(text)[..] {
            [] => Ok(()),
            [..] => Err(Error::Different(format!("{text} is named: {:#}", self.report))),
        }
    }
}

/// The levels, in order, and their exit codes.
const LEVELS: [(&str, i32); 4] = [("clean", 0), ("inert", 5), ("unknown", 1), ("effect", 7)];

/// A fault number that no other test has, and that begins with no digit that matters to anyone.
fn number(n: u32) -> u32 {
    0x1000_0000 | std::process::id() << 4 | n << 1
}

/// A thread in a mount namespace of its own, with something mounted or made there by `make`. All of it goes with this.
pub(super) struct Elsewhere {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Elsewhere {
    pub(super) fn new(make: impl FnOnce() -> Result<()> + Send + 'static) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (ready, made) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let done = (|| {
                unshare(CloneFlags::CLONE_NEWNS).map_err(Error::sys("unshare", "mounts"))?;
                let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
                mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
                    .map_err(Error::sys("make private", "/"))?;
                make()
            })();
            // Without anyone who waits there is nobody to tell.
            let _ = ready.send(());
            // An error is the news that the guard has gone.
            let _ = stopped.recv();
            done
        });
        let mut elsewhere = Self { stop: Some(stop), thread: Some(thread) };
        let _ = made.recv();
        if elsewhere.thread.as_ref().is_some_and(|thread| thread.is_finished()) {
            elsewhere.finish()?;
        }
        Ok(elsewhere)
    }

    /// Ends it; an error is what went wrong in it.
    fn finish(&mut self) -> Result<()> {
        self.stop.take();
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            eprintln!("elsewhere: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::like_a_faults;

    #[test]
    fn a_group_that_bears_a_number_of_a_test_is_known_for_the_tests() {
        let name = format!("chaos{:08x}-limit", number(1));
        assert!(name.starts_with(&like_a_faults(std::process::id())), "{name}");
    }
}
