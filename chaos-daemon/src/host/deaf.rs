//! Whether a process takes a signal, or the kernel throws it away (signal(7), pid_namespaces(7), `sig_task_ignored` in kernel/signal.c).

use procfs::process::Process;

use super::ProcessId;

/// SIGKILL and SIGSTOP, which nobody can ignore.
const ALWAYS_TAKEN: [i32; 2] = [9, 19];

/// Why a process takes no notice of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deaf {
    /// It ignores that signal.
    Ignores,
    /// It is the first of its pid namespace, and has no handler for that signal.
    First,
}

/// Why this process would take no notice of the signal; `None` where it would, or has ended. Others may change that at any time.
pub fn deaf(id: ProcessId, signal: i32) -> Option<Deaf> {
    let process = Process::new(id.pid).ok()?;
    let status = process.status().ok()?;
    let is_same = process.stat().is_ok_and(|stat| stat.starttime == id.start_time);
    let is_first = status.nspid.as_ref().is_some_and(|all| all.len() > 1 && all.last() == Some(&1));
    is_same.then(|| of_masks(signal, (status.sigign, status.sigcgt), is_first)).flatten()
}

/// By the signals that are ignored and those that have a handler.
fn of_masks(signal: i32, (ignored, caught): (u64, u64), is_first: bool) -> Option<Deaf> {
    let bit = u32::try_from(signal.checked_sub(1)?).ok().and_then(|at| 1_u64.checked_shl(at))?;
    match ALWAYS_TAKEN.contains(&signal) {
        true => None,
        false if ignored & bit != 0 => Some(Deaf::Ignores),
        false => (is_first && caught & bit == 0).then_some(Deaf::First),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::waits::wait_for;

    const TERM: i32 = 15;

    #[test]
    fn the_first_of_a_namespace_takes_what_it_has_a_handler_for_and_what_nobody_can_ignore() {
        let bit = 1 << (TERM - 1);
        assert_eq!(of_masks(TERM, (0, 0), false), None);
        assert_eq!(of_masks(TERM, (bit, 0), false), Some(Deaf::Ignores));
        assert_eq!(of_masks(TERM, (0, 0), true), Some(Deaf::First));
        assert_eq!(of_masks(TERM, (0, bit), true), None);
        assert_eq!(of_masks(9, (u64::MAX, 0), true), None);
        assert_eq!(of_masks(0, (u64::MAX, 0), true), None);
    }

    #[test]
    fn a_child_that_ignores_a_signal_is_deaf_to_that_one_alone() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; read -r line"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let id = ProcessId::of(child.id().cast_signed()).unwrap();
        wait_for(|| deaf(id, TERM) == Some(Deaf::Ignores));
        assert_eq!((deaf(id, 1), deaf(id, 9)), (None, None));
        assert_eq!(deaf(ProcessId { start_time: id.start_time + 1, ..id }, TERM), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
