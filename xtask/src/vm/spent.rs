//! Where the time of VMs went, as a table.

use super::jobs::{Spent, Start};

/// Of one VM, in seconds.
#[derive(Debug, Clone)]
pub(super) struct Times {
    pub(super) release: String,
    /// Bytes of its image.
    pub(super) image: u64,
    pub(super) start: Option<Start>,
    /// Of each job that has ended, in their order.
    pub(super) jobs: Vec<(String, Spent)>,
    /// From the last word of `vm-init` until QEMU had ended, if it said one.
    pub(super) power_off: Option<f64>,
    pub(super) all: f64,
}

impl Times {
    /// What is said of one part, if this VM had it.
    fn part(&self, part: &Part<'_>) -> Option<String> {
        let seconds = |seconds: f64| format!("{seconds:.1}");
        Some(match part {
            Part::Image => format!("{} MiB", self.image >> 20),
            Part::Boot => seconds(self.start?.boot),
            Part::Unpacking => seconds(self.start?.unpacking),
            Part::SetUp => seconds(self.start?.set_up),
            Part::Job(name) => {
                let (_, spent) = self.jobs.iter().find(|(job, _)| job == name)?;
                format!("{:.1} + {:.1}", spent.busy, spent.waited)
            }
            Part::PowerOff => seconds(self.power_off?),
            Part::All => seconds(self.all),
        })
    }
}

/// A line of the table.
enum Part<'a> {
    Image,
    Boot,
    Unpacking,
    SetUp,
    Job(&'a str),
    PowerOff,
    All,
}

impl Part<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Image => "image",
            Self::Boot => "QEMU and the kernel start",
            Self::Unpacking => "the kernel unpacks the image",
            Self::SetUp => "set-up",
            Self::Job(name) => name,
            Self::PowerOff => "power-off",
            Self::All => "all of it",
        }
    }
}

/// A column for each VM, a line for each part of its time; nothing if there is none.
pub(super) fn table(vms: &[&Times]) -> String {
    let mut jobs: Vec<&str> = Vec::new();
    for (job, _) in vms.iter().flat_map(|vm| &vm.jobs) {
        if !jobs.contains(&job.as_str()) {
            jobs.push(job);
        }
    }
    let before = [Part::Image, Part::Boot, Part::Unpacking, Part::SetUp];
    let parts = before.into_iter().chain(jobs.into_iter().map(Part::Job)).chain([Part::PowerOff, Part::All]);
    let row = |name: &str, cells: Vec<String>| format!("| {name} | {} |\n", cells.join(" | "));
    let mut text = row("seconds of a VM (busy + waiting)", vms.iter().map(|vm| vm.release.clone()).collect());
    text.push_str(&format!("|{}\n", "---|".repeat(vms.len() + 1)));
    for part in parts {
        let cells: Vec<_> = vms.iter().map(|vm| vm.part(&part)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(Option::unwrap_or_default).collect();
            text.push_str(&row(part.name(), cells));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(release: &str, jobs: &[(&str, f64)]) -> Times {
        let jobs = jobs.iter().map(|(name, busy)| ((*name).to_owned(), Spent { busy: *busy, waited: 0.25 }));
        let start = Some(Start { boot: 5.0, unpacking: 2.5, set_up: 0.25 });
        Times {
            release: release.to_owned(),
            image: 3 << 20,
            start,
            jobs: jobs.collect(),
            power_off: Some(1.0),
            all: 99.0,
        }
    }

    #[test]
    fn each_job_of_any_vm_has_a_line_with_a_gap_for_who_had_it_not() {
        let vms = [times("6.1", &[("sabotage-vm", 7.0), ("vm", 9.5)]), times("6.12", &[("vm", 8.0)])];
        let text = table(&vms.iter().collect::<Vec<_>>());
        for line in
            ["| image | 3 MiB | 3 MiB |", "| sabotage-vm | 7.0 + 0.2 |  |", "| vm | 9.5 + 0.2 | 8.0 + 0.2 |"]
        {
            assert!(text.lines().any(|of_table| of_table == line), "{line}\n{text}");
        }
        let never = Times { start: None, ..times("6.1", &[]) };
        assert!(!table(&[&never]).contains("set-up"), "what no VM had");
    }
}
