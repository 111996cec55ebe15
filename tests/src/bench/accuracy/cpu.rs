//! Processor time: a percentage of one processor, by us and by `stress-ng --cpu-load`, taking turns.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::bench::Options;
use crate::bench::figures::{Report, row};
use crate::bench::processors::Processors;
use crate::fault::Fault;
use crate::process::{self, Process};
use crate::{Daemon, Error, Result};

/// Our mean error, of that of stress-ng.
const GOAL: f64 = 0.5;
/// Whoever burns has found its pace by then.
const WARM_UP: Duration = Duration::from_millis(1500);

/// Both keep to the processor for packets: the measuring thread is on the other.
pub(super) fn measure(options: &Options, processors: Processors, report: &mut Report) -> Result<()> {
    let window = options.pick(Duration::from_secs(6), Duration::from_secs(2));
    let percents: &[u32] = options.pick(&[10, 20, 30, 40, 50, 60, 70, 80, 90], &[10, 50, 90]);
    // A daemon that may use one processor only could not burn on the other.
    processors.keep_to_both()?;
    let mut daemon = Daemon::start()?;
    println!("== processor time of one processor, over {} s", window.as_secs());
    row("percent asked for", &["ours", "stress-ng", "our error", "its error"].map(str::to_owned));
    let (mut our_errors, mut their_errors) = (0.0, 0.0);
    for percent in percents {
        let ours = ours(&daemon, *percent, processors, window)?;
        let theirs = stress_ng(*percent, processors, window)?;
        let error = |used: f64| used - f64::from(*percent);
        our_errors += error(ours).abs();
        their_errors += error(theirs).abs();
        let cells = [ours, theirs, error(ours), error(theirs)].map(|value| format!("{value:.2}"));
        row(&percent.to_string(), &cells);
        report.keep("cpu", &format!("{percent} percent"), json!({"ours": ours, "stress_ng": theirs}));
    }
    daemon.stop()?;
    processors.keep_to_actions()?;
    let (ours, theirs) = (our_errors / percents.len() as f64, their_errors / percents.len() as f64);
    row("mean error", &["".to_owned(), "".to_owned(), format!("{ours:.2}"), format!("{theirs:.2}")]);
    report.keep("cpu", "mean_error", json!({"ours": ours, "stress_ng": theirs}));
    report.at_most("mean error of processor time, of that of stress-ng", ours / theirs, GOAL, "");
    Ok(())
}

fn ours(daemon: &Daemon, percent: u32, processors: Processors, window: Duration) -> Result<f64> {
    let mcp = daemon.mcp()?;
    let params = json!({"cpu_percent": percent, "processors": processors.packets().to_string()});
    let fault = Fault::new("resource_exhaustion").with(params).named(&format!("cpu-{percent}"));
    fault.inject(&mcp)?;
    let share = watch(window, || daemon.holders());
    fault.remove(&mcp)?;
    share
}

/// Ended, whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(process) = pid(&self.0).and_then(Process::read) {
            process.signal(Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

fn pid(child: &Child) -> Option<i32> {
    i32::try_from(child.id()).ok()
}

fn stress_ng(percent: u32, processors: Processors, window: Duration) -> Result<f64> {
    let limit = (WARM_UP + window + Duration::from_secs(10)).as_secs().to_string();
    let (percent, processor) = (percent.to_string(), processors.packets().to_string());
    let mut command = Command::new("stress-ng");
    command.args(["--cpu", "1", "--cpu-load", &percent, "--taskset", &processor, "--timeout", &limit]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running(command.spawn().map_err(Error::io("start", "stress-ng"))?);
    let parent = pid(&running.0).unwrap_or_default();
    watch(window, || process::descendants(parent))
}

/// Percent of a processor that these processes use.
fn watch(window: Duration, burners: impl Fn() -> Vec<Process>) -> Result<f64> {
    std::thread::sleep(WARM_UP);
    let burners = burners();
    let (start, before) = (Instant::now(), used(&burners)?);
    std::thread::sleep(window);
    Ok(100.0 * (used(&burners)? - before) / start.elapsed().as_secs_f64())
}

/// Seconds on a processor, of all threads, as the scheduler counts them (Documentation/scheduler/sched-stats.rst).
fn used(processes: &[Process]) -> Result<f64> {
    let mut nanoseconds = 0.0;
    for process in processes {
        let folder = format!("/proc/{}/task", process.pid);
        let threads = fs::read_dir(&folder).map_err(Error::io("list", folder))?;
        let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("schedstat")).ok();
        let time = |stat: String| stat.split(' ').next()?.parse::<f64>().ok();
        nanoseconds += threads.flatten().filter_map(stat).filter_map(time).sum::<f64>();
    }
    Ok(nanoseconds / 1e9)
}
