//! What a VM is to do: jobs, one after the other, each with a limit, and nothing of it left when the next begins. All together may
//! have a time, of which each gets an equal part of what the ones before it have left.
//!
//! `xtask/src/vm/jobs.rs` writes the list into the image and reads the lines that are written here.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::uptime::uptime;
use crate::{Error, Result, runner};

/// How often it is looked what has become of a job. What has ended until then is a zombie.
const LOOK: Duration = Duration::from_millis(50);

/// A program to be run.
#[derive(Debug, Clone, Deserialize)]
pub struct Job {
    name: String,
    argv: Vec<String>,
    /// In seconds.
    limit: u64,
    /// When the last job may begin no further cell, in seconds that the machine has been up.
    #[serde(default)]
    until: Option<f64>,
    /// Whether what it writes to standard output belongs to the results: it has no verdicts to write there.
    #[serde(default)]
    says_results: bool,
}

/// Runs all jobs of a file, and writes a line before and after each. One that is told to end has so long for taking away what it has
/// made, and what it has left so long for ending. The caller has to be the one to whom orphans come.
///
/// # Errors
/// When the file is no list of jobs, or nothing can be written. What goes wrong with one job only its own line says.
pub fn run_all(list: &Path, results: &Path, cleaning: Duration) -> Result<()> {
    let shown = |path: &Path| path.display().to_string();
    let text = fs::read(list).map_err(Error::io("read", shown(list)))?;
    let jobs: Vec<Job> = serde_json::from_slice(&text)
        .map_err(|error| Error::Different(format!("{} is no list of jobs: {error}", list.display())))?;
    let open = || OpenOptions::new().append(true).open(results).map_err(Error::io("open", shown(results)));
    let mut sink = open()?;
    let count = jobs.len();
    for (index, job) in jobs.into_iter().enumerate() {
        write(&mut sink, &json!({"begin": job.name, "at": uptime()?}))?;
        let (status, problems) =
            job.run(count - index, cleaning, open).unwrap_or_else(|error| (None, vec![error.to_string()]));
        let end = json!({"end": job.name, "at": uptime()?, "status": status, "problems": problems});
        write(&mut sink, &end)?;
    }
    Ok(())
}

/// Writes a line at once, and before it the end of one that was cut off.
///
/// # Errors
/// When it cannot be written.
pub fn write(sink: &mut File, line: &Value) -> Result<()> {
    sink.write_all(format!("\n{line}\n").as_bytes()).map_err(Error::io("write", "a line of the results"))
}

impl Job {
    /// Its last argument, which says when it begins no further cell, if the time is limited in which it is one of so many to come.
    fn until(&self, to_come: usize) -> Result<Option<String>> {
        let Some(until) = self.until else { return Ok(None) };
        let [up, _] = uptime()?;
        let mine = up + (until - up).max(0.0) / to_come as f64;
        Ok(Some(format!("--until={mine:.0}")))
    }

    /// Returns its status as a shell has it, if it ended by itself, and what was wrong but for that.
    fn run(
        &self,
        to_come: usize,
        cleaning: Duration,
        results: impl FnOnce() -> Result<File>,
    ) -> Result<(Option<i32>, Vec<String>)> {
        let (program, words) =
            self.argv.split_first().ok_or_else(|| Error::Different("it has no program".into()))?;
        let mut command = Command::new(program);
        command.args(words).args(self.until(to_come)?).stdin(Stdio::null());
        if self.says_results {
            command.stdout(results()?);
        }
        let child = command.spawn().map_err(Error::io("start", program))?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let mut problems = Vec::new();
        let status = wait(pid, Duration::from_secs(self.limit))?;
        if status.is_none() {
            problems.push(format!("not done after {} s: ended", self.limit));
            // It takes away what it has made (`aftermath.rs`), unless it hangs itself.
            let _ = kill(pid, Signal::SIGTERM);
            if wait(pid, cleaning)?.is_none() {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
        problems.extend(runner::end_children(cleaning));
        Ok((status, problems))
    }
}

/// Collects whatever ends, until this process has or the time is over.
fn wait(pid: Pid, limit: Duration) -> Result<Option<i32>> {
    let until = Instant::now() + limit;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(ended, status)) if ended == pid => return Ok(Some(status)),
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == pid => {
                return Ok(Some(128 + signal as i32));
            }
            Ok(WaitStatus::StillAlive) if Instant::now() >= until => return Ok(None),
            Ok(WaitStatus::StillAlive) => std::thread::sleep(LOOK),
            Ok(_) => {}
            Err(errno) => return Err(Error::sys("wait for", "a job")(errno)),
        }
    }
}
