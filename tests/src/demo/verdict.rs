//! The claims of the demonstration, each with the measurement that it rests on.

use std::io::Write;
use std::time::Duration;

use serde_json::Value;

use super::chart::Phase;
use super::{millis, say};
use crate::Result;
use crate::flow::FlowReport;
use crate::skip::kernel_version;

/// Claims, held or not.
#[derive(Debug, Default)]
pub(super) struct Claims(Vec<(bool, String)>);

impl Claims {
    fn add(&mut self, holds: bool, claim: String) {
        self.0.push((holds, claim));
    }

    /// The cable works before anything is injected.
    pub(super) fn baseline(&mut self, before: &Phase) {
        self.add(before.lost() == 0, format!("before, {} packets were lost", before.lost()));
    }

    /// Nothing gets through.
    pub(super) fn cut_off(&mut self, during: &Phase) {
        let (lost, all) = (during.lost(), during.samples.len());
        self.add(lost == all, format!("under network_partition {lost} of {all} packets were lost"));
    }

    /// Everything gets through, late by what was asked for.
    pub(super) fn delayed(&mut self, before: &Phase, during: &Phase, asked: Duration, tolerance: Duration) {
        let (Some(base), Some(median)) = (before.median(), during.median()) else {
            return self.add(false, "there was no round trip to compare".to_owned());
        };
        let holds = median.abs_diff(base + asked) <= tolerance && during.lost() == 0;
        let added = millis(median) - millis(base);
        self.add(
            holds,
            format!(
                "asked for {:.0} ms: the median round trip grew by {added:.2} ms (within {:.0} ms), {} lost",
                millis(asked),
                millis(tolerance),
                during.lost()
            ),
        );
    }

    /// As before.
    pub(super) fn recovered(&mut self, after: &Phase) {
        self.add(after.lost() == 0, format!("after the removal, {} packets were lost", after.lost()));
    }

    /// The daemon knows what it did.
    pub(super) fn evidence(&mut self, removed: &Value, during: &Phase) {
        let affected = removed["evidence"]["packets_affected"].as_u64().unwrap_or(0);
        let sent = during.samples.len() as u64;
        self.add(
            affected >= sent,
            format!("the daemon's own count: {affected} packets affected, of {sent} that we sent"),
        );
    }

    /// A flow that was not asked for lost nothing. Without tcx a clsact qdisc has to be added, for which the kernel
    /// takes the device's queues down a moment (`qdisc_graft`): there it is said, but not held against the daemon.
    pub(super) fn bystander(&mut self, flow: &FlowReport) {
        let harmed = flow.lost() + flow.refused + flow.duplicated + flow.reordered;
        let excused = kernel_version() < (6, 6);
        let note = if excused { " (a kernel without tcx may lose some)" } else { "" };
        self.add(
            flow.sent > 0 && (harmed == 0 || excused),
            format!(
                "a bystander on the same cable: {} of {} packets lost, {} refused, slowest {:.2} ms{note}",
                flow.lost(),
                flow.sent,
                flow.refused,
                millis(flow.slowest)
            ),
        );
    }

    /// The device's own queue was never replaced.
    pub(super) fn queues(&mut self, phases: [&Phase; 3]) {
        let same = phases.iter().all(|phase| phase.root_qdisc == phases[0].root_qdisc);
        let word = if same { "identical" } else { "NOT identical" };
        self.add(same, format!("the device's root qdisc before, during and after: {word}"));
    }

    /// Independent tools see what they saw before.
    pub(super) fn clean(&mut self, clean: &Result<()>) {
        let words = match clean {
            Ok(()) => "identical".to_owned(),
            Err(error) => format!("NOT identical: {error}"),
        };
        self.add(
            clean.is_ok(),
            format!("links, qdiscs, filters, eBPF as ip, tc and the kernel list them: {words}"),
        );
    }

    /// No process is left.
    pub(super) fn stopped(&mut self, stopped: &Result<()>) {
        let words =
            stopped.as_ref().map_or_else(ToString::to_string, |()| "no process of it is left".to_owned());
        self.add(stopped.is_ok(), format!("the daemon has ended: {words}"));
    }

    /// Prints them; true when all hold.
    pub(super) fn print(&self, out: &mut impl Write) -> bool {
        for (holds, claim) in &self.0 {
            say(out, &format!("  {} {claim}", if *holds { "✓" } else { "✗" }));
        }
        let failed = self.0.iter().filter(|(holds, _)| !holds).count();
        match failed {
            0 => say(out, &format!("all {} claims hold", self.0.len())),
            _ => say(out, &format!("{failed} of {} claims do not hold", self.0.len())),
        }
        failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(millis: &[u64]) -> Phase {
        let samples = millis.iter().map(|ms| Some(Duration::from_millis(*ms))).collect();
        Phase { name: "x", samples, root_qdisc: "qdisc noqueue 0: root".to_owned() }
    }

    fn delayed(before: &[u64], during: &[u64]) -> bool {
        let mut claims = Claims::default();
        claims.delayed(&phase(before), &phase(during), Duration::from_millis(100), Duration::from_millis(5));
        claims.print(&mut Vec::new())
    }

    #[test]
    fn a_delay_is_claimed_only_when_it_was_measured() {
        assert!(delayed(&[1], &[101, 102, 104]));
        assert!(!delayed(&[1], &[107]));
        assert!(!delayed(&[1], &[1]));
        assert!(!delayed(&[], &[101]));
    }

    #[test]
    fn one_packet_through_is_no_partition() {
        let mut claims = Claims::default();
        claims.cut_off(&Phase { samples: vec![None, Some(Duration::ZERO)], ..phase(&[]) });
        assert!(!claims.print(&mut Vec::new()));
    }
}
