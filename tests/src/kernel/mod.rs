//! Tests that run on the host and on both kernels of the VM. Each module has a list; [`all`] joins them.

mod abilities;
mod advice;
mod ahead;
mod answers;
mod approvals;
mod audit;
mod bad_input;
mod by_route;
mod bystanders;
mod calls;
mod credentials;
mod dns;
mod dry_run_floods;
mod dry_runs;
mod effects;
mod evidence;
mod experiments;
mod file_calls;
mod gone;
mod guardian;
mod guards;
mod hoards;
mod hosts;
mod hub;
mod hung;
mod idle;
mod impairments;
mod lacks;
mod leases;
mod lifetime;
mod link_profiles;
mod live;
mod malice;
mod manager;
mod names;
mod needed;
mod oracle;
mod overlap;
mod owners;
mod policy;
mod probes;
mod processes;
mod programs;
mod sandbox;
mod scene;
mod scopes;
mod searches;
mod served;
mod services;
mod severed;
mod socket_calls;
mod stuck;
pub(crate) mod supervised;
mod taken_over;
mod targets;
mod transcripts;
mod trouble;
mod verdicts;
mod vsock;

use std::time::{Duration, Instant};

use crate::NetNs;
use crate::skip::{Environment, Reason, kernel_version};

/// What a test may ask about where it runs.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// Host or VM.
    pub environment: Environment,
    /// Major and minor number of the kernel.
    pub kernel: (u32, u32),
}

impl Context {
    /// Looks.
    pub fn new() -> Self {
        Self { environment: Environment::detect(), kernel: kernel_version() }
    }

    /// Whether calls about files can fail: `bpf` is among the kernel's security modules, and lockdown is off. So it is on every
    /// kernel of the VM.
    pub fn has_bpf_lsm(&self) -> bool {
        let said = |file| std::fs::read_to_string(format!("/sys/kernel/security/{file}")).unwrap_or_default();
        said("lsm").trim().split(',').any(|module| module == "bpf")
            && !said("lockdown").contains("[integrity]")
    }

    /// Every way to attach a program to a device.
    pub fn attachments(&self) -> &'static [Attach] {
        match self.kernel >= (6, 6) {
            true => &[Attach::Auto, Attach::Clsact],
            false => &[Attach::Auto],
        }
    }

    /// Whether packets can be delayed: netem is a part of every kernel of the VM, and of few containers' hosts.
    pub fn has_netem(&self) -> bool {
        let tried = NetNs::new().and_then(|netns| netns.tc(&["qdisc", "add", "dev", "lo", "root", "netem"]));
        tried.is_ok()
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

/// How a test ended, when it did not fail.
#[derive(Debug)]
pub enum Outcome {
    /// What was claimed holds.
    Pass,
    /// It cannot be shown here. The runner decides whether that is excused.
    Skip(Reason, String),
}

/// A failure is any error; a panic is one, too.
pub type TestResult = std::result::Result<Outcome, Box<dyn std::error::Error>>;

/// One test.
#[derive(Debug, Clone, Copy)]
pub struct KernelTest {
    /// A sentence.
    pub name: &'static str,
    /// What to do.
    pub run: fn(&Context) -> TestResult,
}

/// How the daemon is told to attach its programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// As it finds best: tcx where the kernel has it.
    Auto,
    /// As on kernels without tcx.
    Clsact,
}

impl Attach {
    /// Tells a daemon.
    pub(crate) fn configure(self, command: &mut std::process::Command) {
        if self == Self::Clsact {
            command.args(["--attach", "clsact"]);
        }
    }
}

/// Runs a test once for every way to attach that the kernel has.
fn on_every_attachment(
    context: &Context,
    mut test: impl FnMut(Attach) -> Result<(), Box<dyn std::error::Error>>,
) -> TestResult {
    for way in context.attachments() {
        test(*way).map_err(|error| format!("attached by {way:?}: {error}"))?;
    }
    Ok(Outcome::Pass)
}

/// So much later than on time something may be seen to end, or it is late: a machine that is shared or emulated stands still for
/// seconds. How soon everything ends is measured by `kills` and `bench`.
const STANDSTILL: Duration = Duration::from_secs(8);

/// Fails if a fault that was asked for at this time, to last so long, was over too early. To be called once its end has been
/// seen. It begins after it was asked for: a slow machine only makes it longer. One that stands still may let a lease run out,
/// but not of a fault that is no longer than a lease.
fn assert_lasted(asked: Instant, lasting: Duration) {
    let after = asked.elapsed();
    assert!(after >= lasting, "it was over after {after:?}, and was to last {lasting:?}");
}

/// What may come of a part of a test.
pub(crate) type Tried<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Runs a test that has packets queued, or skips it as a whole: one that leaves a part of itself out says nothing of that.
fn with_netem(context: &Context, test: impl FnOnce() -> TestResult) -> TestResult {
    match context.has_netem() {
        true => test(),
        false => Ok(Outcome::Skip(Reason::NoNetem, "packets cannot be queued without it".into())),
    }
}

/// Makes the list of a module: names come from the functions.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(super) const TESTS: &[$crate::kernel::KernelTest] = &[
            $($crate::kernel::KernelTest {
                name: concat!(module_path!(), "::", stringify!($name)),
                run: $name,
            }),*
        ];
    };
}
use tests;

/// Every test.
pub fn all() -> Vec<KernelTest> {
    let lists = [
        abilities::TESTS,
        advice::TESTS,
        ahead::TESTS,
        guards::TESTS,
        bad_input::TESTS,
        hosts::TESTS,
        policy::TESTS,
        gone::TESTS,
        guardian::TESTS,
        needed::TESTS,
        sandbox::TESTS,
        probes::TESTS,
        credentials::TESTS,
        programs::TESTS,
        evidence::TESTS,
        experiments::TESTS,
        hub::TESTS,
        verdicts::TESTS,
        vsock::TESTS,
        effects::TESTS,
        answers::TESTS,
        audit::TESTS,
        dns::TESTS,
        dry_runs::TESTS,
        impairments::TESTS,
        link_profiles::TESTS,
        live::TESTS,
        lacks::TESTS,
        calls::TESTS,
        file_calls::TESTS,
        socket_calls::TESTS,
        severed::TESTS,
        services::TESTS,
        stuck::TESTS,
        targets::TESTS,
        transcripts::TESTS,
        hung::TESTS,
        idle::TESTS,
        dry_run_floods::TESTS,
        scopes::TESTS,
        searches::TESTS,
        names::TESTS,
        overlap::TESTS,
        approvals::TESTS,
        malice::TESTS,
        owners::TESTS,
        taken_over::TESTS,
        by_route::TESTS,
        bystanders::TESTS,
        lifetime::TESTS,
        trouble::TESTS,
        leases::TESTS,
        manager::TESTS,
    ];
    let tests = lists
        .concat()
        .into_iter()
        .chain(oracle::all())
        .chain(hoards::all())
        .chain(supervised::all())
        .chain(processes::all());
    tests.map(shorten).collect()
}

fn shorten(test: KernelTest) -> KernelTest {
    KernelTest { name: test.name.trim_start_matches("chaos_tests::kernel::"), ..test }
}
