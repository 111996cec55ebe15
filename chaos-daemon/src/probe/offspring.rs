//! What the programs of a sample leave behind. A program may start others which leave its group and its session; as soon as the one
//! that has started them is gone they are the children of whoever has asked for it (`PR_SET_CHILD_SUBREAPER`, prctl(2)), and are ended.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How long a process that was killed may take to end until it is looked at again.
const PAUSE: Duration = Duration::from_millis(2);
/// So often in a row nobody has to be seen where somebody is spared: the kernel may leave one out while another ends (proc(5)).
const CLEAN: u32 = 3;

/// Has what is left behind become a child of this process.
///
/// # Errors
/// When the kernel refuses.
pub fn adopt() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Kills all children of this process but those that are spared, and all that become its children by that, until there is none.
pub fn end_all(spared: &[Pid]) {
    let mut clean = 0;
    while collect() && clean < CLEAN {
        let others: Vec<_> = children().into_iter().filter(|child| !spared.contains(child)).collect();
        clean = if others.is_empty() && !spared.is_empty() { clean + 1 } else { 0 };
        for child in others {
            // Fails when it has ended meanwhile; its number is nobody else's before it is collected.
            let _ = kill(child, Signal::SIGKILL);
        }
        thread::sleep(PAUSE);
    }
}

/// Collects those that have ended; false when no child is left.
fn collect() -> bool {
    loop {
        match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Err(Errno::ECHILD) => return false,
            Ok(_) | Err(_) => {}
        }
    }
}

/// The children of this process, by their numbers in its own namespace.
pub fn children() -> Vec<Pid> {
    // By the thread that has started or adopted them: the first of each process adopts.
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let numbers: Vec<String> = threads
        .map(of)
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    numbers.iter().filter_map(|number| own_number(number)).collect()
}

/// The number that a process has for this one. procfs counts as whoever has mounted it does, and tells the numbers that a process has in
/// each namespace from there inwards; of this one as many as it is deep.
fn own_number(number: &str) -> Option<Pid> {
    let depth = numbers("self")?.len();
    numbers(number)?.get(depth.checked_sub(1)?)?.parse().ok().map(Pid::from_raw)
}

fn numbers(process: &str) -> Option<Vec<String>> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(numbers.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_is_found_by_its_own_number() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let number = Pid::from_raw(child.id().cast_signed());
        assert!(children().contains(&number));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children().contains(&number));
    }
}
