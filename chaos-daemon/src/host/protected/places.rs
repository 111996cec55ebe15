//! How far a selection goes: over how many units, and whether it means the whole host.

use std::collections::BTreeSet;

use super::open::opens_units;
use super::{Open, Rule, Spared, opens};
use crate::host::Running;
use crate::spec::ProcessSelector;

/// What is known of a selection before anybody is hit.
#[derive(Debug)]
pub struct Selected<'a> {
    /// What selects.
    pub selector: &'a ProcessSelector,
    /// Those that match and may be hit, whatever share of them.
    pub matching: &'a [&'a Running],
    /// By which rules others are left out.
    pub left_out: &'a BTreeSet<Rule>,
}

/// Why a selection goes too far, and what would open it; `None` when it does not.
pub fn host_wide(selected: &Selected<'_>, spared: &Spared) -> Option<(String, String)> {
    let Selected { selector, matching, left_out } = selected;
    let ProcessSelector { pid, cgroup, exe, container, .. } = selector;
    let named = pid.is_some() || cgroup.is_some() || exe.is_some() || container.is_some();
    let by_words = |problem: &str| Some((problem.to_owned(), opens("host_wide_selectors", "true")));
    if !named && !spared.open.host_wide_selectors {
        if left_out.contains(&Rule::First) {
            return by_words("its expression meets PID 1, too, and so means the whole host");
        }
        let asker = spared.asker;
        if !asker.is_root() && matching.iter().any(|process| asker.uid != Some(process.owner.uid)) {
            return by_words("an expression alone meets processes of others than who asks");
        }
    }
    too_many(matching.iter().copied(), &spared.open)
}

/// Why processes are in too many places to be hit at once, and what would open it.
pub fn too_many<'a>(processes: impl Iterator<Item = &'a Running>, open: &Open) -> Option<(String, String)> {
    let places: BTreeSet<_> = processes.map(Running::place).collect();
    let (count, most) = (places.len(), open.units_at_once);
    let problem = format!("it meets processes of {count} units or programs at once, and {most} is the most");
    (count > most).then(|| (problem, opens_units(count)))
}

impl Running {
    /// What it is counted as a part of: a unit, a container, a control group, or its program.
    fn place(&self) -> String {
        let group = self.cgroup.as_ref().filter(|path| !path.as_os_str().is_empty());
        let unit = self.unit().map(str::to_owned).or_else(|| self.container());
        unit.or_else(|| group.map(|path| path.display().to_string()))
            .or_else(|| self.exe.clone())
            .unwrap_or_else(|| self.name.clone())
    }
}
