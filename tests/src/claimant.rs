//! A process of the test's own that has claimed a runtime directory as an injector does, beats on its first thread, and writes to a
//! file on another: who freezes the file's file system and kills it has an injector that hangs in the kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::Duration;

use chaos_daemon::injector::runtime::Runtime;

use crate::error::{Error, Result};
use crate::process::{Process, wait_for};

/// The argument by which a test executable becomes a claimant.
const ROLE: &str = "claimant";
/// Between two writes, and two beats.
const STEP: Duration = Duration::from_millis(20);

/// A running claimant; killed with the guard.
#[derive(Debug)]
pub(crate) struct Claimant(Child);

impl Claimant {
    /// Starts one, and waits until it serves and has written.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn start(runtime_dir: &Path, file: &Path) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(ROLE).args([runtime_dir, file]);
        let claimant = Self(command.spawn().map_err(Error::io("start", "a claimant"))?);
        let pid = claimant.0.id().cast_signed();
        let serves =
            || Runtime::named(runtime_dir).is_some_and(|named| named.process.pid == pid && !named.recovers);
        wait_for("claimant that serves", || serves() && file.exists())?;
        Ok(claimant)
    }

    /// As `/proc` shows it; `None` when it has been collected.
    pub(crate) fn process(&self) -> Option<Process> {
        Process::read(self.0.id().cast_signed())
    }
}

impl Drop for Claimant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lives a claimant's life, if the arguments of this process say so.
pub fn serve_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [role, runtime_dir, file] if role == ROLE => {
            let ended = serve(Path::new(runtime_dir), Path::new(file));
            eprintln!("claimant: {ended:?}");
            Some(ExitCode::FAILURE)
        }
        _ => None,
    }
}

fn serve(runtime_dir: &Path, file: &Path) -> io::Result<()> {
    let mut runtime = Runtime::claim(runtime_dir).map_err(io::Error::other)?;
    let file = File::create(file)?;
    thread::spawn(move || {
        while file.write_all_at(b"here", 0).is_ok() {
            thread::sleep(STEP);
        }
    });
    let heartbeat = runtime.serve().map_err(io::Error::other)?;
    loop {
        heartbeat.beat();
        thread::sleep(STEP);
    }
}
