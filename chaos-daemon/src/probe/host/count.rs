//! What the kernel counts by itself: load and threads (`/proc/loadavg`, proc_loadavg(5)), and open files
//! (`/proc/sys/fs/file-nr`, proc_sys_fs(5)), against how many there may be.

use serde::{Deserialize, Serialize};

use super::{Seen, percent, read, unsaid};

const LOAD: &str = "/proc/loadavg";
const FILES: &str = "/proc/sys/fs/file-nr";
const THREADS: &str = "/proc/sys/kernel/threads-max";
const PIDS: &str = "/proc/sys/kernel/pid_max";

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Count {
    /// Threads that run, wait for a processor, or wait for a disk: an average over a minute.
    Load1,
    /// Over five minutes.
    Load5,
    /// Over a quarter of an hour.
    Load15,
    /// Open files of all processes, in percent of fs.file-max.
    OpenFilesPercent,
    /// Threads of all processes, in percent of kernel.threads-max or kernel.pid_max, whichever is less.
    TasksPercent,
}

impl Count {
    pub(super) fn read(self) -> Result<Seen, String> {
        match self {
            Self::Load1 | Self::Load5 | Self::Load15 => {
                let text = read(LOAD)?;
                let load = self.load(&text).ok_or_else(|| unsaid(LOAD, &text))?;
                Ok(Seen::measured(load, load.to_string()))
            }
            Self::OpenFilesPercent => {
                let text = read(FILES)?;
                let (open, most) = files(&text).ok_or_else(|| unsaid(FILES, &text))?;
                share(open, most, "fs.file-max")
            }
            Self::TasksPercent => {
                let text = read(LOAD)?;
                let tasks = tasks(&text).ok_or_else(|| unsaid(LOAD, &text))?;
                let (threads, pids) = (limit(THREADS)?, limit(PIDS)?);
                match threads < pids {
                    true => share(tasks, threads, "kernel.threads-max"),
                    false => share(tasks, pids, "kernel.pid_max"),
                }
            }
        }
    }

    /// `2.06 1.68 1.43 3/107 21220`: three averages, threads that run and all that there are, the latest process.
    pub(super) fn load(self, text: &str) -> Option<f64> {
        let mut averages = text.split(' ');
        let average = match self {
            Self::Load1 => averages.next(),
            Self::Load5 => averages.nth(1),
            Self::Load15 => averages.nth(2),
            Self::OpenFilesPercent | Self::TasksPercent => None,
        };
        average?.parse().ok()
    }
}

pub(super) fn tasks(text: &str) -> Option<u64> {
    text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// `791 0 2466170`: allocated, of these free, and the most. How many are in use, and how many may be.
pub(super) fn files(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (allocated, free, most) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some((allocated.saturating_sub(free), most))
}

fn limit(path: &'static str) -> Result<u64, String> {
    let text = read(path)?;
    text.trim().parse().ok().ok_or_else(|| unsaid(path, &text))
}

fn share(count: u64, most: u64, setting: &str) -> Result<Seen, String> {
    let share = percent(count, most).ok_or_else(|| format!("{setting} is 0"))?;
    Ok(Seen::measured(share, format!("{share:.1} %, {count} of {most} ({setting})")))
}
