//! Undoing a fault: every step, last first, whatever becomes of the others; then looking whether anything is left.

use crate::fail_point::{self, Point};
use crate::kernel::node::{Kernel, Node, StepError, Undone};
use crate::kernel::step::Step;
use crate::request::chain;

/// How often a step is undone that is found again after it.
const ATTEMPTS: usize = 3;

/// A step that may still be on the node.
#[derive(Debug)]
pub struct Stuck {
    /// Which.
    pub step: Step,
    /// Why; `None` when its undo succeeded and yet it is there.
    pub error: Option<StepError>,
}

/// What undoing found.
#[derive(Debug, Default)]
pub struct UndoReport {
    /// Steps that were on the node and are gone.
    pub removed: Vec<Step>,
    /// Steps that may still be there.
    pub stuck: Vec<Stuck>,
    /// What somebody else has changed since, so that it was left alone; for people.
    pub kept: Vec<String>,
}

impl UndoReport {
    /// What is left, for people.
    pub fn residue(&self) -> Vec<String> {
        self.stuck
            .iter()
            .map(|stuck| match &stuck.error {
                Some(error) => format!("{}: {}", stuck.step, chain(error)),
                None => format!("{}: still there", stuck.step),
            })
            .collect()
    }
}

/// Undoes `steps`, last first, and looks whether each is gone. Blocks.
pub fn undo_all(steps: &[Step]) -> UndoReport {
    undo_on(&Kernel, steps)
}

/// As [`undo_all`], on any node.
pub fn undo_on(node: &impl Node, steps: &[Step]) -> UndoReport {
    let mut report = UndoReport::default();
    for step in steps.iter().rev() {
        undo_step(node, step, &mut report);
    }
    report
}

/// Undoes a step until it is seen to be gone, or cannot be undone.
fn undo_step(node: &impl Node, step: &Step, report: &mut UndoReport) {
    let mut removed = false;
    let mut stuck = |error| report.stuck.push(Stuck { step: step.clone(), error });
    for attempt in 1..=ATTEMPTS {
        match undo(node, step) {
            Ok(Undone::Removed) => removed = true,
            Ok(Undone::Absent | Undone::Kept) => {}
            Ok(Undone::Changed { now }) => {
                report.kept.push(format!("{step}: changed by somebody else to {now:?}, and left so"));
                return;
            }
            Err(error) => {
                stuck(Some(error));
                break;
            }
        }
        match step.present(node) {
            Ok(false) => break,
            // What undoing did not find and looking does: not every answer of the kernel tells all that is there at a moment.
            Ok(true) if attempt < ATTEMPTS => {}
            Ok(true) => stuck(None),
            Err(error) => {
                stuck(Some(error));
                break;
            }
        }
    }
    if removed {
        report.removed.push(step.clone());
    }
}

fn undo(node: &impl Node, step: &Step) -> Result<Undone, StepError> {
    fail_point::pass(Point::BeforeUndo).map_err(StepError::Runtime)?;
    let undone = step.undo(node)?;
    fail_point::pass(Point::AfterUndo).map_err(StepError::Runtime)?;
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fake::FakeNode;
    use crate::kernel::process::ProcessId;

    const HOLDER: ProcessId = ProcessId { pid: 100, start_time: 7 };

    /// What undoing finds where a process runs that is overlooked so many times before it is ended, and how often it was tried.
    fn undone(times: usize) -> (UndoReport, usize) {
        let node = FakeNode::default();
        node.0.change(|objects| {
            objects.processes.insert(HOLDER.pid, HOLDER.start_time);
        });
        node.0.overlook(times);
        let report = undo_on(&node, &[Step::Holder(HOLDER)]);
        // Each time it is looked for afterwards.
        (report, node.0.operations() / 2)
    }

    #[test]
    fn a_step_that_an_undo_has_overlooked_is_undone_again_and_is_not_stuck() {
        for times in 0..ATTEMPTS {
            let (report, tried) = undone(times);
            assert!(report.stuck.is_empty(), "{times}: {report:?}");
            assert_eq!(report.removed, [Step::Holder(HOLDER)], "{times}");
            assert_eq!(tried, times + 1);
        }
    }

    #[test]
    fn what_is_stuck_is_told_with_the_cause() {
        let source = std::io::Error::other("it hangs in the kernel");
        let error = StepError::End { pid: HOLDER.pid, source };
        let stuck = vec![Stuck { step: Step::Holder(HOLDER), error: Some(error) }];
        let report = UndoReport { stuck, ..UndoReport::default() };
        assert_eq!(report.residue(), ["holder process 100: end holder 100: it hangs in the kernel"]);
    }

    #[test]
    fn a_step_that_every_undo_overlooks_is_stuck() {
        let (report, tried) = undone(ATTEMPTS);
        assert_eq!(tried, ATTEMPTS);
        assert!(report.removed.is_empty());
        assert_eq!(report.residue(), ["holder process 100: still there"]);
    }
}
