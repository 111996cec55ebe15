//! What runs in VMs, on their kernels. All that a run has for a kernel is done in one boot of it, as a list of jobs.

use std::collections::BTreeMap;

use super::chosen::{Chosen, Share, quoted};
use super::host;
use crate::error::Error;
use crate::said::read_text;
use crate::summary::Tally;
use crate::verdict::{Outcome, Results, Verdict};
use crate::vm::{self, Heard, Job, Report};
use crate::{artifacts, kills, kinds};

/// Rounds of each kind.
const KILLS: u32 = 2;
/// How many seconds matrix, sweep, soak and sabotage may take in each VM. On a slow machine a whole sweep does not end within 2,000.
const LIMIT: u64 = 5400;
/// What all shares of a soak do: with 8 steps in each every kind of step is among them.
const SOAK: &[&str] = &["--steps=96", "--minutes=12"];
/// Of the events of a cell every 48th, and of requests to the kernel every 90th.
const MATRIX: &[&str] = &["--share=48", "--stride=90"];
/// What few machines can do, at every 90th call.
const SWEEP: &[&str] = &["--rare", "--stride=90"];
/// What is killed, of all the ends of faults.
const BY_KILLS: &str = "Kill";
/// What VMs with systemd do in a share, side by side, as `tests/systemd/boot.sh` has it: two parts of the tests that need one boot
/// alone, as these mostly wait; those of which a reboot and a power cut are in the middle; those in which faults take the machine
/// down.
const SYSTEMD_PARTS: [&[&str]; 6] = [
    &["--partition=1/8", "--partition=5/8"],
    &["--partition=2/8", "--partition=6/8"],
    &["--partition=3/8", "--partition=7/8"],
    &["--partition=4/8", "--partition=8/8"],
    &["boots"],
    &["going_down"],
];
/// Each of them on each kernel.
pub(super) const SYSTEMD_SHARES: u32 = (SYSTEMD_PARTS.len() * vm::KERNELS.len()) as u32;

/// What is done in VMs that other steps have jobs in, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InVm {
    /// The kernel tests, but for what has just passed on the host and does not depend on the kernel. `cargo xtask vm` runs
    /// everything.
    Tests,
    /// Faults of every kind, under which everything is killed.
    Kills,
    /// The guards whose absence shows with a delay only, on the kernel where filters are filters.
    Sabotage,
    /// Where packets can be delayed, and where memory, files and clock are ours.
    Soak,
    /// The crash matrix of every kind: of its events a share, another one on each kernel, of each kind, and in each round of landings.
    Matrix,
    /// The sweep over system calls, of what few machines can do; other calls in each round of landings.
    Sweep,
}

/// Does these in one VM of each kernel, side by side. Returns by the name of the step what was heard on each kernel.
pub(super) fn boot(wanted: &[(InVm, &Chosen)]) -> Result<BTreeMap<String, Vec<Heard>>, Error> {
    let mut asked = Vec::new();
    for series in vm::KERNELS {
        let jobs = wanted.iter().filter_map(|(what, chosen)| what.job(chosen, series).transpose());
        let jobs: Vec<_> = jobs.collect::<Result<_, _>>()?;
        if !jobs.is_empty() {
            asked.push((series, jobs));
        }
    }
    let mut by_step: BTreeMap<String, Vec<Heard>> = BTreeMap::new();
    // They share VMs, and with them the time.
    let until = wanted.first().and_then(|(_, chosen)| chosen.until);
    for heard in vm::run_jobs(&artifacts::build()?, asked, until)? {
        by_step.entry(heard.job.clone()).or_default().push(heard);
    }
    Ok(by_step)
}

impl InVm {
    /// What a kernel of this series is asked to do, if anything.
    fn job(self, chosen: &Chosen, series: &str) -> Result<Option<Job>, Error> {
        let job = match self {
            Self::Tests => {
                let share = chosen.share.unwrap_or(Share::WHOLE);
                let left_out = not_repeated(&passed_on_host()?, series);
                vm::tests(&chosen.filters, &chosen.cells, share, &left_out)
            }
            Self::Kills => {
                let every = [BY_KILLS.to_owned()];
                let filters = if chosen.filters.is_empty() { every.as_slice() } else { &chosen.filters };
                vm::kills(KILLS, &chosen.arguments(), filters)
            }
            Self::Sabotage if vm::KERNELS.first() != Some(&series) => return Ok(None),
            Self::Sabotage | Self::Soak | Self::Matrix | Self::Sweep => self.program(chosen),
        };
        Ok(Some(Job { name: chosen.step.to_owned(), ..job }))
    }

    /// A program of the image, with its arguments.
    fn program(self, chosen: &Chosen) -> Job {
        let mut argv = vec![vm::program(self.called())];
        argv.extend(self.arguments(chosen));
        let report = match self {
            Self::Sabotage => {
                argv.push(format!("--results={}", vm::RESULTS));
                Report::Verdicts
            }
            _ => Report::Text,
        };
        Job { name: self.called().to_owned(), argv, limit: LIMIT, report, files: Vec::new() }
    }

    /// The name of its program.
    fn called(self) -> &'static str {
        match self {
            Self::Tests => "test-runner",
            Self::Kills => "kills",
            Self::Sabotage => "sabotage",
            Self::Soak => "soak",
            Self::Matrix => "matrix",
            Self::Sweep => "sweep",
        }
    }

    /// Of such a program, in every boot and in a replay.
    fn arguments(self, chosen: &Chosen) -> Vec<String> {
        let own: Vec<String> = match self {
            Self::Tests | Self::Kills => Vec::new(),
            Self::Sabotage => vec!["--netem".to_owned()],
            Self::Soak => {
                // The shares of one round have one seed, by which they share out among them what has to come first.
                let seed = format!("--seed={}", chosen.offset());
                SOAK.iter().map(ToString::to_string).chain([seed]).collect()
            }
            Self::Matrix | Self::Sweep => {
                let density = if self == Self::Matrix { MATRIX } else { SWEEP };
                let only = chosen.filters.iter().map(|filter| format!("--only={filter}"));
                let limit = format!("--limit={LIMIT}");
                density.iter().map(ToString::to_string).chain([limit]).chain(only).collect()
            }
        };
        own.into_iter().chain(chosen.arguments()).collect()
    }

    /// What came of it, by what was heard on each kernel.
    pub(super) fn judge(self, chosen: &Chosen, heard: &[Heard]) -> Result<Tally, Error> {
        let mut tally = Tally::default();
        if heard.is_empty() {
            tally.fail(format!("{}: no kernel was asked for anything", chosen.step));
        }
        for heard in heard {
            let replay = |cell: &str| self.replay(chosen, &heard.release, cell);
            match self {
                Self::Tests | Self::Kills | Self::Sabotage => tally.add_heard(heard, &replay),
                Self::Soak | Self::Matrix | Self::Sweep => {
                    let name = format!("{} on {}", self.called(), heard.release);
                    let (status, failure) = (heard.results.exit, heard.failure.clone());
                    read_text(&name, &heard.text, status, failure, &replay, &mut tally);
                }
            }
        }
        match self {
            Self::Tests => kinds::keep_heard(kinds::KERNEL_TESTS, heard, others(chosen))?,
            Self::Kills => heard.iter().try_for_each(|heard| kills::keep(&heard.results.verdicts))?,
            _ => {}
        }
        Ok(if self == Self::Soak { tally.by_seed(chosen.offset()) } else { tally })
    }

    /// The command that boots a kernel again, by its release, and does there what has failed.
    fn replay(self, chosen: &Chosen, release: &str, cell: &str) -> String {
        let what = match self {
            Self::Tests => format!("--filter {}", quoted(cell)),
            Self::Kills => format!("--kills {KILLS} --filter {}", quoted(cell)),
            Self::Sabotage | Self::Soak | Self::Matrix | Self::Sweep => {
                let named = chosen.takes.cells;
                // The name of a cell says it without its share, and whatever else was asked for.
                let is_choice =
                    |word: &String| ["--partition=", "--cell="].iter().any(|option| word.starts_with(option));
                let rest = self.arguments(chosen).into_iter().filter(|word| !(named && is_choice(word)));
                let cell = named.then(|| format!("--cell={cell}"));
                let words = [vm::program(self.called())].into_iter().chain(rest).chain(cell);
                format!("-- {}", words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" "))
            }
        };
        format!("{} {what}", vm::command(release))
    }
}

/// Where those tests are that this share has not.
fn others(chosen: &Chosen) -> Option<String> {
    chosen.share.filter(|share| share.of() > 1).map(|share| format!("in another share than {share}"))
}

/// Modules of kernel tests that meet what differs from kernel to kernel: what is there at all, which programs the verifier
/// takes, what packets and calls meet, what a death leaves, and what only a machine of one's own lets be seen.
const DEPENDS_ON_KERNEL: &[&str] =
    &["abilities", "answers", "calls", "dns", "effects", "lacks", "oracle::packets", "sandbox", "severed"];
/// And those that meet how programs are attached: by links (tcx) or as filters (clsact), which is one and the same on every kernel
/// that has links, or has none. What stays attached has to be inert, and be undone.
const DEPENDS_ON_LINKS: &[&str] = &[
    "bystanders",
    "guardian",
    "guards",
    "leases",
    "lifetime",
    "names",
    "overlap",
    "scopes",
    "services",
    "stuck",
];

/// Kernel tests that passed in this run's step "host".
fn passed_on_host() -> Result<Vec<Verdict>, Error> {
    let mut results = Results::default();
    for path in host::results() {
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.map_err(Error::file("read", &path))?,
        };
        text.lines().for_each(|line| {
            results.read(line);
        });
    }
    let passed = results.verdicts.into_iter().filter(|verdict| verdict.outcome == Outcome::Pass);
    Ok(passed.collect())
}

/// Those of them that would say the same on a kernel.
fn not_repeated(passed: &[Verdict], series: &str) -> Vec<String> {
    let alike = |verdict: &&Verdict| {
        let same = vm::has_links(&verdict.kernel) == vm::has_links(series);
        let other = if same { &[] } else { DEPENDS_ON_LINKS };
        let module = verdict.test.strip_prefix("kernel-tests::");
        let depends = |module: &str| {
            DEPENDS_ON_KERNEL.iter().chain(other).any(|depends| module.starts_with(&format!("{depends}::")))
        };
        module.is_some_and(|module| !depends(module))
    };
    passed.iter().filter(alike).map(|verdict| verdict.test.clone()).collect()
}

/// The package on a real systemd, a part of its tests on a kernel each landing. `cargo xtask vm --systemd --dist` does all of it with
/// the programs that are shipped.
pub(super) fn systemd(chosen: &Chosen) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let mut asked: Vec<(&str, Vec<String>)> = match chosen.share {
        Some(share) => {
            let (parts, kernel) = systemd_share(share.number());
            parts.iter().map(|part| (kernel, vec![(*part).to_owned()])).collect()
        }
        None => vm::KERNELS.map(|kernel| (kernel, chosen.filters.clone())).into(),
    };
    // Another boot is for what an earlier one has begun.
    let in_one_boot =
        asked.iter().flat_map(|(_, filters)| filters).all(|part| part.starts_with("--partition="));
    // The machine has been up for no time yet.
    let left = chosen.time_left().filter(|_| in_one_boot);
    for (_, filters) in &mut asked {
        filters.extend(left.map(|left| format!("--until={}", left.as_secs())));
    }
    let heard = vm::test_systemd(&artifacts::build()?, &asked)?;
    for heard in &heard {
        let replay = |test: &str| match in_one_boot {
            true => format!("{} --systemd --filter {}", vm::command(&heard.release), quoted(test)),
            false => chosen.replay_all(),
        };
        tally.add_heard(heard, &replay);
    }
    kinds::keep_heard(kinds::SYSTEMD_TESTS, &heard, others(chosen))?;
    Ok(tally)
}

/// What is done in a share, and on which kernel. The kernels take turns.
fn systemd_share(number: u32) -> (&'static [&'static str], &'static str) {
    let index = (number - 1) as usize % (SYSTEMD_SHARES as usize);
    (SYSTEMD_PARTS[index / vm::KERNELS.len()], vm::KERNELS[index % vm::KERNELS.len()])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::chosen::Takes;
    use super::*;

    fn chosen(step: &'static str, takes: Takes) -> Chosen {
        let share = Share::all(12).nth(2);
        let (cells, filters, offset, minutes, until) = (Vec::new(), Vec::new(), None, None, None);
        Chosen { step, takes, shares: 12, share, landing: 614, offset, cells, filters, minutes, until }
    }

    #[test]
    fn a_job_is_called_as_its_step_and_has_the_share_and_what_it_says_is_read_as_it_is_said() {
        for (what, takes) in [
            (InVm::Tests, Takes::NAMES),
            (InVm::Kills, Takes::NAMES),
            (InVm::Sabotage, Takes::NAMES),
            (InVm::Matrix, Takes::POINTS),
            (InVm::Sweep, Takes::POINTS),
        ] {
            let job = what.job(&chosen("a-step", takes), vm::KERNELS[0]).unwrap().unwrap();
            assert_eq!(job.name, "a-step");
            assert!(job.argv.contains(&"--partition=3/12".to_owned()), "{job:?}");
            let says_verdicts = job.argv.iter().any(|word| word.starts_with("--results="));
            assert_eq!(says_verdicts, job.report == Report::Verdicts, "{job:?}");
        }
        let soak = InVm::Soak.job(&chosen("a-step", Takes::NOTHING), vm::KERNELS[0]).unwrap().unwrap();
        assert!(
            soak.argv.contains(&"--partition=3/12".to_owned()) && soak.argv.contains(&"--seed=51".to_owned()),
            "{soak:?}"
        );
    }

    #[test]
    fn guards_are_taken_out_on_the_oldest_kernel_alone() {
        let sabotage = chosen("sabotage-vm", Takes::NAMES);
        let asked = vm::KERNELS.map(|series| InVm::Sabotage.job(&sabotage, series).unwrap().is_some());
        assert_eq!(asked, [true, false]);
    }

    #[test]
    fn what_has_failed_is_done_again_on_its_kernel_by_the_name_of_the_cell_or_by_seed_and_share() {
        let replay = |what: InVm, takes| what.replay(&chosen("a-step", takes), "6.12.1-x", "a b");
        let vm = "cargo xtask vm --kernel 6.12";
        assert_eq!(replay(InVm::Tests, Takes::NAMES), format!("{vm} --filter 'a b'"));
        assert_eq!(replay(InVm::Kills, Takes::NAMES), format!("{vm} --kills 2 --filter 'a b'"));
        assert_eq!(
            replay(InVm::Sabotage, Takes::NAMES),
            format!("{vm} -- /chaos/bin/sabotage --netem '--cell=a b'")
        );
        assert_eq!(
            replay(InVm::Matrix, Takes::POINTS),
            format!("{vm} -- /chaos/bin/matrix --share=48 --stride=90 --limit=5400 --offset=51 '--cell=a b'")
        );
        assert_eq!(
            replay(InVm::Soak, Takes::NOTHING),
            format!("{vm} -- /chaos/bin/soak --steps=96 --minutes=12 --seed=51 --partition=3/12")
        );
    }

    #[test]
    fn each_part_of_the_tests_with_systemd_is_run_on_each_kernel() {
        let shares: BTreeSet<_> = (1..=SYSTEMD_SHARES).map(systemd_share).collect();
        assert_eq!(shares.len(), SYSTEMD_PARTS.len() * vm::KERNELS.len());
        for kernel in vm::KERNELS {
            let mine = shares.iter().filter(|(_, other)| *other == kernel).flat_map(|(parts, _)| *parts);
            let partitions: BTreeSet<_> = mine.filter_map(|part| part.strip_prefix("--partition=")).collect();
            assert_eq!(partitions, ["1/8", "2/8", "3/8", "4/8", "5/8", "6/8", "7/8", "8/8"].into());
        }
    }

    #[test]
    fn what_depends_on_the_kernel_is_repeated_on_it_though_it_passed_on_the_host() {
        let modules =
            ["netlink::a", "kernel-tests::policy::b", "kernel-tests::dns::c", "kernel-tests::stuck::d"];
        let left_out = |host: &str| {
            let passed = modules.map(|test| Verdict {
                kernel: host.to_owned(),
                test: test.to_owned(),
                outcome: Outcome::Pass,
                reason: String::new(),
                ms: 1,
                cpu_ms: None,
                tries: 1,
                figures: serde_json::Map::new(),
            });
            vm::KERNELS.map(|series| not_repeated(&passed, series))
        };
        let [policy, stuck] = [modules[1], modules[3]];
        assert_eq!(left_out("6.18.1-x"), [vec![policy], vec![policy, stuck]]);
        assert_eq!(left_out("6.1.0-9-amd64"), [vec![policy, stuck], vec![policy]]);
    }
}
