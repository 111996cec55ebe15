//! What runs in VMs, on their kernels.

use super::{other_ones, results_of};
use crate::error::Error;
use crate::said::read_console;
use crate::summary::Tally;
use crate::verdict::{Outcome, Results, Verdict};
use crate::{artifacts, kinds, tools, vm};

const KILLS_IN_VM: u32 = 2;
/// How many seconds matrix, sweep and soak may take in each VM. On a slow machine the sweep does not end within 2,000.
const VM_LIMIT: u64 = 5400;

/// The kernel tests on both kernels of the VM, but for what has just passed on the host and does not depend on the kernel.
/// `cargo xtask vm` runs everything.
pub(super) fn kernels() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let passed = passed_on_host()?;
    let boots = vm::test_all(&artifacts::build()?, |series| not_repeated(&passed, series))?;
    boots.iter().for_each(|boot| tally.add_boot(boot));
    kinds::keep_boots(kinds::KERNEL_TESTS, &boots)?;
    Ok(tally)
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
    let path = results_of("host");
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(Error::file("read", &path))?,
    };
    let mut results = Results::default();
    text.lines().for_each(|line| results.read(line));
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

/// The soak on both kernels of the VM, where packets can be delayed, and where memory, files and clock are ours.
pub(super) fn vm_soak() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    // With 40 steps in each of two lanes every kind of step is among them.
    let argv = [vm::program("soak"), "--steps=80".to_owned(), "--minutes=12".to_owned()];
    for (release, text, failure) in vm::program_on_all(&artifacts::build()?, &argv, VM_LIMIT)? {
        read_console(&format!("soak on {release}"), &text, failure, &mut tally);
    }
    Ok(tally)
}

/// The crash matrix of every kind on both kernels of the VM: of its events a share, another one on each kernel, of each kind, and
/// each time, which it says.
pub(super) fn vm_matrix() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let options = ["--share=48".to_owned(), "--stride=90".to_owned(), format!("--limit={VM_LIMIT}")];
    let argv: Vec<_> = std::iter::once(vm::program("matrix")).chain(options).chain([other_ones()]).collect();
    for (release, text, failure) in vm::program_on_all(&artifacts::build()?, &argv, VM_LIMIT)? {
        read_console(&format!("matrix on {release}"), &text, failure, &mut tally);
    }
    Ok(tally)
}

/// The sweep over system calls on both kernels of the VM, of what few machines can do; other calls each time.
pub(super) fn vm_sweep() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let options = ["--rare".to_owned(), "--stride=90".to_owned(), format!("--limit={VM_LIMIT}")];
    let argv: Vec<_> = std::iter::once(vm::program("sweep")).chain(options).chain([other_ones()]).collect();
    for (release, text, failure) in vm::program_on_all(&artifacts::build()?, &argv, VM_LIMIT)? {
        read_console(&format!("sweep on {release}"), &text, failure, &mut tally);
    }
    Ok(tally)
}

pub(super) fn kill_in_vm() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    vm::test_kills(&artifacts::build()?, KILLS_IN_VM)?.iter().for_each(|boot| tally.add_boot(boot));
    Ok(tally)
}

/// The guards whose absence shows with a delay only, on the kernel where filters are filters.
pub(super) fn sabotage_in_vm() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    tally.add_boot(&vm::test_sabotage(&artifacts::build()?)?);
    Ok(tally)
}

/// The package on a real systemd, on every kernel. `cargo xtask vm --systemd` does it with the release programs.
pub(super) fn systemd() -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let boots = vm::test_systemd(&artifacts::build()?)?;
    boots.iter().for_each(|boot| tally.add_boot(boot));
    kinds::keep_boots(kinds::SYSTEMD_TESTS, &boots)?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

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
                figures: serde_json::Map::new(),
            });
            vm::KERNELS.map(|series| not_repeated(&passed, series))
        };
        let [policy, stuck] = [modules[1], modules[3]];
        assert_eq!(left_out("6.18.1-x"), [vec![policy], vec![policy, stuck]]);
        assert_eq!(left_out("6.1.0-9-amd64"), [vec![policy, stuck], vec![policy]]);
    }
}
