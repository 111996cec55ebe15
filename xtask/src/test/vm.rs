//! What runs in VMs, on their kernels.

use super::chosen::{Chosen, quoted};
use super::host;
use crate::error::Error;
use crate::said::read_console;
use crate::summary::Tally;
use crate::verdict::{Outcome, Results, Verdict};
use crate::{artifacts, kinds, tools, vm};

/// Rounds of each kind.
const KILLS: u32 = 2;
/// How many seconds matrix, sweep and soak may take in each VM. On a slow machine the sweep does not end within 2,000.
const LIMIT: u64 = 5400;
/// Lanes of the soak in a VM (`tests/src/soak/mod.rs`), of which a share is one.
pub(super) const SOAK_LANES: u32 = 2;
/// What a VM with systemd does in a share, as `tests/systemd/boot.sh` has it: a part of the tests that need one boot alone, those of
/// which a reboot and a power cut are in the middle, and those in which faults take the machine down.
const SYSTEMD_PARTS: [&str; 6] =
    ["--partition=1/4", "--partition=2/4", "--partition=3/4", "--partition=4/4", "boots", "going_down"];
/// Each of them on each kernel.
pub(super) const SYSTEMD_SHARES: u32 = (SYSTEMD_PARTS.len() * vm::KERNELS.len()) as u32;

/// The kernel tests on both kernels of the VM, but for what has just passed on the host and does not depend on the kernel.
/// `cargo xtask vm` runs everything.
pub(super) fn kernels(chosen: &Chosen) -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let passed = passed_on_host()?;
    let boots = vm::test_all(&artifacts::build()?, chosen, |series| not_repeated(&passed, series))?;
    for boot in &boots {
        let replay = |test: &str| vm_command(&boot.release, &format!("--filter {}", quoted(test)));
        tally.add_boot(boot, &replay);
    }
    kinds::keep_boots(kinds::KERNEL_TESTS, &boots, others(chosen))?;
    Ok(tally)
}

/// Where those tests are that this share has not.
fn others(chosen: &Chosen) -> Option<String> {
    chosen.share.filter(|share| share.of() > 1).map(|share| format!("in another share than {share}"))
}

/// The command that boots a kernel again, by its release, and does this there.
fn vm_command(release: &str, what: &str) -> String {
    format!("{} {what}", vm::command(release))
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
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            read => read.map_err(Error::file("read", &path))?.lines().for_each(|line| results.read(line)),
        }
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

/// Runs a program with these arguments on both kernels. It reports as a script does.
fn program(chosen: &Chosen, name: &str, arguments: &[String]) -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let argv: Vec<_> = [vm::program(name)].iter().chain(arguments).cloned().collect();
    for (release, text, failure) in vm::program_on_all(&artifacts::build()?, &argv, LIMIT)? {
        let replay = |cell: &str| {
            // The name of a cell says it without its share.
            let rest = arguments.iter().filter(|word| !word.starts_with("--partition="));
            let words: Vec<_> = [vm::program(name)].iter().chain(rest).map(|word| quoted(word)).collect();
            let cell = if chosen.takes.cells { quoted(&format!("--cell={cell}")) } else { String::new() };
            vm_command(&release, format!("-- {} {cell}", words.join(" ")).trim_end())
        };
        read_console(&format!("{name} on {release}"), &text, failure, &replay, &mut tally);
    }
    Ok(tally)
}

/// The soak on both kernels of the VM, where packets can be delayed, and where memory, files and clock are ours.
pub(super) fn soak(chosen: &Chosen) -> Result<Tally, Error> {
    // With 40 steps in each of two lanes every kind of step is among them.
    let mut arguments = vec!["--steps=80".to_owned(), "--minutes=12".to_owned()];
    // The lanes of one round have one seed, by which they share out among them what has to come first.
    arguments.push(format!("--seed={}", chosen.offset()));
    arguments.extend(chosen.share.map(|share| format!("--lane={}", share.number() - 1)));
    Ok(program(chosen, "soak", &arguments)?.by_seed(chosen.offset()))
}

/// The crash matrix of every kind on both kernels of the VM: of its events a share, another one on each kernel, of each kind, and
/// in each round of landings.
pub(super) fn matrix(chosen: &Chosen) -> Result<Tally, Error> {
    points(chosen, "matrix", &["--share=48", "--stride=90"])
}

/// The sweep over system calls on both kernels of the VM, of what few machines can do; other calls in each round of landings.
pub(super) fn sweep(chosen: &Chosen) -> Result<Tally, Error> {
    points(chosen, "sweep", &["--rare", "--stride=90"])
}

fn points(chosen: &Chosen, name: &str, density: &[&str]) -> Result<Tally, Error> {
    let only = chosen.filters.iter().map(|filter| format!("--only={filter}"));
    let density = density.iter().map(|&word| word.to_owned());
    let limit = [format!("--limit={LIMIT}")];
    program(chosen, name, &density.chain(limit).chain(chosen.arguments()).chain(only).collect::<Vec<_>>())
}

pub(super) fn kill(chosen: &Chosen) -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    for boot in vm::test_kills(&artifacts::build()?, KILLS, chosen)? {
        let replay =
            |cell: &str| vm_command(&boot.release, &format!("--kills {KILLS} --filter {}", quoted(cell)));
        tally.add_boot(&boot, &replay);
    }
    Ok(tally)
}

/// The guards whose absence shows with a delay only, on the kernel where filters are filters.
pub(super) fn sabotage(chosen: &Chosen) -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let boot = vm::test_sabotage(&artifacts::build()?, chosen)?;
    tally.add_boot(&boot, &|cell| {
        let cell = quoted(&format!("--cell={cell}"));
        vm_command(&boot.release, &format!("-- {} --netem {cell}", vm::program("sabotage")))
    });
    Ok(tally)
}

/// The package on a real systemd, a part of its tests on a kernel each landing. `cargo xtask vm --systemd` does all of it with the
/// release programs.
pub(super) fn systemd(chosen: &Chosen) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let (kernels, filters) = match chosen.share {
        Some(share) => {
            let (part, kernel) = systemd_share(share.number());
            (vec![kernel], vec![part.to_owned()])
        }
        None => (vm::KERNELS.to_vec(), chosen.filters.clone()),
    };
    let boots = vm::test_systemd(&artifacts::build()?, &kernels, &filters)?;
    for boot in &boots {
        let replay = |test: &str| vm_command(&boot.release, &format!("--systemd --filter {}", quoted(test)));
        tally.add_boot(boot, &replay);
    }
    kinds::keep_boots(kinds::SYSTEMD_TESTS, &boots, others(chosen))?;
    Ok(tally)
}

/// What is done in a share, and on which kernel. The kernels take turns.
fn systemd_share(number: u32) -> (&'static str, &'static str) {
    let index = (number - 1) as usize % (SYSTEMD_SHARES as usize);
    (SYSTEMD_PARTS[index / vm::KERNELS.len()], vm::KERNELS[index % vm::KERNELS.len()])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_part_of_the_tests_with_systemd_is_run_on_each_kernel() {
        let shares: BTreeSet<_> = (1..=SYSTEMD_SHARES).map(systemd_share).collect();
        assert_eq!(shares.len(), SYSTEMD_PARTS.len() * vm::KERNELS.len());
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
