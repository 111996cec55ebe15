//! What matrix and sweep strike, of every kind of fault (`kinds`). A kind is tried here, or left out for a reason that shows as a
//! skip.

use std::sync::LazyLock;

use chaos_daemon::spec::{FAULT_TYPES, FaultType};

use crate::fault::Fault;
use crate::kernel::supervised::stage::Make;
use crate::kernel::{Attach, Context};
use crate::kinds;
use crate::kinds::aims::{Aims, ToRequest};
use crate::kinds::needs::{Machine, Needs};
use crate::kinds::sign::Sign;
use crate::kinds::struck::{Act, Struck, Way};
use crate::victim::has_controllers;

/// A kind of fault. What uses something up is called by what that is, for processors `resource_exhaustion`.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What it is called in reports.
    pub name: &'static str,
    /// Its fault type.
    of: &'static str,
    struck: &'static Struck,
    needs: Needs,
}

impl Kind {
    /// The attachments that it is tried with on the bench, on a kernel that has all; none when it is not tried there.
    pub(crate) fn attachments(&self) -> &'static [Attach] {
        match self.struck.way {
            Way::Packets(_) | Way::Answers(_) => const { &[Attach::Auto, Attach::Clsact] },
            Way::Calls(_) | Way::Plain(_) => const { &[Attach::Auto] },
            Way::Guarded(_) | Way::Elsewhere(_) => const { &[] },
        }
    }

    /// Whether other tests try it, and no cell does.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.struck.way, Way::Elsewhere(_))
    }

    /// What its faults are called, by who ends them: the kernel, or a guard.
    pub fn class(&self) -> &'static str {
        match self.struck.way {
            Way::Guarded(_) => "supervised faults",
            _ => "kernel faults",
        }
    }

    /// Whether few machines can do it: it needs a kernel that has everything, or a machine of its own. What needs systemd is for
    /// tests that have one.
    pub fn is_rare(&self) -> bool {
        self.needs.is_rare() || !self.struck.controllers.is_empty()
    }

    /// Why it cannot be tried on a machine.
    pub fn lacks(&self, machine: &Machine) -> Option<&'static str> {
        match self.struck.way {
            Way::Elsewhere(why) => Some(why),
            _ if !has_controllers(self.struck.controllers) => {
                Some("the controllers of cgroup v2 are not there")
            }
            _ => machine.lacks(self.needs),
        }
    }

    fn act(&self) -> Option<Act> {
        match self.struck.way {
            Way::Packets(act) | Way::Answers(act) | Way::Calls(act) | Way::Plain(act) => Some(act),
            Way::Guarded(_) | Way::Elsewhere(_) => None,
        }
    }

    /// How it shows on the bench that it acts; a stage knows by itself.
    pub(crate) fn sign(&self) -> Option<Sign> {
        self.act().map(|act| act.sign)
    }

    /// A fault of it for the bench, which the probe notices unless it uses something up; none when it is not tried there.
    pub(crate) fn fault(&self, aims: &Aims) -> Option<Fault> {
        self.act().map(|act| self.made(act.request, aims))
    }

    /// The same for the matrix.
    pub(crate) fn fault_in_matrix(&self, aims: &Aims) -> Option<Fault> {
        self.act().map(|act| self.made(self.struck.in_matrix.unwrap_or(act.request), aims))
    }

    fn made(&self, request: ToRequest, aims: &Aims) -> Fault {
        let (target, params) = request(aims);
        Fault::new(self.of).aimed(target).with(params)
    }

    /// Whether the warm holder takes it, and none is started for it.
    pub(crate) fn is_for_warm_holder(&self) -> bool {
        matches!(self.struck.way, Way::Packets(_))
    }

    /// Whether it makes requests to the kernel of those that count: netlink or bpf(2).
    pub(crate) fn makes_requests(&self) -> bool {
        !matches!(self.struck.way, Way::Plain(_))
    }

    /// Whether processes are looked for, for which files of every process of the host are opened.
    pub(super) fn looks(&self) -> bool {
        self.struck.looks
    }
}

/// Every kind that is tried here.
pub(crate) fn here(context: &Context) -> impl Iterator<Item = &'static Kind> {
    let machine = Machine::of(context);
    all().filter(move |kind| kind.lacks(&machine).is_none())
}

/// Those of all kinds that have a guard, and their stages, with their places among all.
pub(crate) fn guarded() -> impl Iterator<Item = (usize, &'static Kind, Make)> {
    all().enumerate().filter_map(|(position, kind)| match kind.struck.way {
        Way::Guarded(make) => Some((position, kind, make)),
        _ => None,
    })
}

/// Every kind.
pub(crate) fn all() -> impl Iterator<Item = &'static Kind> {
    static ALL: LazyLock<Vec<Kind>> = LazyLock::new(|| {
        let of_type = |kind: &FaultType| {
            let (of, needs) = (kind.name(), kinds::of(*kind).needs);
            let named =
                move |struck: &'static Struck| Kind { name: struck.name.unwrap_or(of), of, struck, needs };
            kinds::of(*kind).struck.iter().map(named)
        };
        FAULT_TYPES.iter().flat_map(of_type).collect()
    });
    ALL.iter()
}

#[cfg(test)]
mod tests {
    use chaos_daemon::spec::resource;

    use super::*;

    #[test]
    fn every_fault_type_and_every_resource_is_tried_or_left_out_for_a_reason() {
        let has = |name: &str| all().any(|kind| kind.name == name);
        // Processors are called by the fault type.
        let resources = resource::names().filter(|resource| *resource != "cpu");
        let names = FAULT_TYPES.iter().map(|kind| kind.name()).chain(resources);
        assert_eq!(names.filter(|name| !has(name)).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn no_two_kinds_have_one_name() {
        let mut names: Vec<_> = all().map(|kind| kind.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
