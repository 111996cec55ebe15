//! `cargo xtask test`: every test there is, step by step, and one line at the end that says how it went.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::artifacts::{self, Artifacts};
use crate::error::Error;
use crate::kinds::Place;
use crate::said::{believe, read_console, read_libtest};
use crate::summary::Tally;
use crate::verdict::{self, Outcome, Results, Verdict};
use crate::{kills, kinds, kubernetes, run, tools, vm};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only this step; may be repeated
    #[arg(long, value_parser = steps().map(|step| step.name).collect::<Vec<_>>())]
    only: Vec<String>,
    /// Leave out what needs QEMU
    #[arg(long)]
    no_vm: bool,
    /// Also what takes long: more of what dies, and the package on systemd, on emulated machines
    #[arg(long)]
    long: bool,
}

struct Step {
    name: &'static str,
    run: fn() -> Result<Tally, Error>,
}

/// Steps that go one after the other.
type Lane = &'static [Step];

/// Every step, in phases that go one after the other, cheap ones first, and of which the lanes go side by side: what mostly waits
/// there, and measures nothing. A test that is not reached from here is not run.
const PHASES: &[&[Lane]] = &[
    &[&[Step { name: "unit", run: unit }]],
    &[
        &[Step { name: "host", run: host }],
        &[
            Step { name: "matrix", run: || program("matrix", &["--stride=64", &other_ones()]) },
            Step { name: "mcp-client", run: mcp_client },
            Step { name: "chaostoolkit", run: chaos_toolkit },
            Step { name: "report", run: report },
            Step { name: KUBERNETES, run: kubernetes_probes },
            Step { name: "vagrant", run: vagrant },
        ],
        &[
            Step { name: "sweep", run: || program("sweep", &["--stride=64", &other_ones()]) },
            Step { name: SERVERS, run: servers },
            Step { name: "sabotage", run: sabotage },
        ],
    ],
    &[&[
        Step { name: "soak", run: || program("soak", &["--steps=2000", "--minutes=10", "--cycles=1000"]) },
        Step { name: "kills", run: kill },
        Step { name: VM, run: kernels },
        Step { name: VM_SOAK, run: vm_soak },
        Step { name: VM_MATRIX, run: vm_matrix },
        Step { name: VM_SWEEP, run: vm_sweep },
        Step { name: KILLS_VM, run: kill_in_vm },
        Step { name: SABOTAGE_VM, run: sabotage_in_vm },
        Step { name: SYSTEMD, run: systemd },
        // Last, when all have said what they have to say.
        Step { name: "kinds", run: kinds::step },
    ]],
];

fn steps() -> impl Iterator<Item = &'static Step> {
    PHASES.iter().copied().flatten().copied().flatten()
}

const SERVERS: &str = "servers";
const KUBERNETES: &str = "kubernetes";
const VM: &str = "vm";
const VM_SOAK: &str = "vm-soak";
const VM_MATRIX: &str = "vm-matrix";
const VM_SWEEP: &str = "vm-sweep";
const SYSTEMD: &str = "systemd";
const KILLS_VM: &str = "kills-vm";
const SABOTAGE_VM: &str = "sabotage-vm";
/// What only `--long` does, or `--only`.
const LONG: &[&str] = &[VM_SOAK, VM_MATRIX, VM_SWEEP, KILLS_VM, SYSTEMD, KUBERNETES];
const IN_VM: &[&str] = &[VM, VM_SOAK, VM_MATRIX, VM_SWEEP, KILLS_VM, SYSTEMD, SABOTAGE_VM];

/// Rounds of each kind and end. `cargo xtask vm --kills 100` and `cargo xtask bench --only kills` do more.
const KILLS: u32 = 10;
const KILLS_IN_VM: u32 = 2;
/// How many seconds matrix, sweep and soak may take in each VM. On a slow machine the sweep does not end within 2,000.
const VM_LIMIT: u64 = 5400;

impl Options {
    fn wants(&self, step: &Step) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == step.name)
    }

    /// Why a step is not run, if so.
    fn leaves_out(&self, step: &Step) -> Option<&'static str> {
        let (in_vm, is_long) = (IN_VM.contains(&step.name), LONG.contains(&step.name));
        match self {
            Self { no_vm: true, .. } if in_vm => Some("--no-vm"),
            Self { long: false, .. } if is_long && self.only.is_empty() => Some("only with --long"),
            _ => None,
        }
    }
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    // What passed in another run says nothing of this one.
    let _ = std::fs::remove_file(results_of("host"));
    if options.only.is_empty() {
        kinds::begin(options.long)?;
    }
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for phase in PHASES {
        for (name, tally, took) in side_by_side(phase, options) {
            lines.push(format!("{name}: {} ({:.0} s)", tally.line(), took.as_secs_f64()));
            total.merge(tally);
        }
    }
    println!("== summary");
    total.print_exceptions();
    lines.iter().for_each(|line| println!("{line}"));
    println!("{}", total.line());
    Ok(total.exit_code())
}

/// What came of a step, and how long it took.
type Done = (&'static str, Tally, Duration);

fn side_by_side(lanes: &'static [Lane], options: &Options) -> Vec<Done> {
    std::thread::scope(|scope| {
        let running: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| one_by_one(lane, options))).collect();
        running
            .into_iter()
            .flat_map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

fn one_by_one(lane: Lane, options: &Options) -> Vec<Done> {
    lane.iter().filter(|step| options.wants(step)).map(|step| carry_out(step, options)).collect()
}

fn carry_out(step: &Step, options: &Options) -> Done {
    println!("== {}", step.name);
    let started = Instant::now();
    // A step that cannot be run is a failure of that step, not the end of the others.
    let tally = match options.leaves_out(step) {
        Some(why) => Tally::skipped(format!("{}: {why}", step.name)),
        None => (step.run)().unwrap_or_else(|error| {
            crate::error::report(&error);
            let mut tally = Tally::default();
            tally.fail(format!("{}: {error}", step.name));
            tally
        }),
    };
    (step.name, tally, started.elapsed())
}

/// Unit tests and doc tests of every crate. What chaos-tests has in `tests/` needs root: that is the next step.
fn unit() -> Result<Tally, Error> {
    let mut tally = Tally::default();
    cargo_test(&["test", "--no-fail-fast", "--workspace", "--exclude=chaos-tests"], &mut tally)?;
    cargo_test(&["test", "--no-fail-fast", "--package=chaos-tests", "--lib", "--bins"], &mut tally)?;
    Ok(tally)
}

fn cargo_test(args: &[&str], tally: &mut Tally) -> Result<(), Error> {
    let mut command = run::cargo();
    command.args(args).env("CARGO_TERM_COLOR", "never").stderr(Stdio::inherit());
    let output = command.output().map_err(|source| run::start_error(&command, source))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ran = read_libtest(&text, tally);
    if !output.status.success() {
        println!("{text}");
    }
    if ran.passed != ran.announced || output.status.success() == (ran.failed > 0) {
        tally.fail(format!("cargo {}: {}, {ran:?}", args.join(" "), output.status));
    }
    Ok(())
}

/// What is in `tests/` on this machine's kernel, inside namespaces of its own, but for what has a step of its own.
fn host() -> Result<Tally, Error> {
    unless_lacking("host", tools::root(), || {
        let mut tally = Tally::default();
        let verdicts = run_suites("host", |suite| suite != SERVERS, &mut tally)?;
        kinds::keep(Place::Host, kinds::KERNEL_TESTS, &verdicts)?;
        Ok(tally)
    })
}

/// Probes and experiments against Debian's own servers.
fn servers() -> Result<Tally, Error> {
    unless_lacking(SERVERS, tools::root(), || {
        let mut tally = Tally::default();
        run_suites(SERVERS, |suite| suite == SERVERS, &mut tally)?;
        Ok(tally)
    })
}

fn run_suites(step: &str, is_meant: impl Fn(&str) -> bool, tally: &mut Tally) -> Result<Vec<Verdict>, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::HOST)?;
    let built = artifacts::build()?;
    let kernel_tests = built.program(kinds::KERNEL_TESTS)?;
    let suites = built.tests.iter().map(PathBuf::as_path).chain([kernel_tests]);
    let mut command = built.command("test-runner")?;
    command.args(suites.filter(|path| is_meant(&artifacts::suite(path))));
    verdicts(step, &mut command, tally)
}

/// Whether a test notices each guard that is taken out of the daemon.
fn sabotage() -> Result<Tally, Error> {
    unless_lacking("sabotage", tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let mut tally = Tally::default();
        verdicts("sabotage", &mut artifacts::build()?.command("sabotage")?, &mut tally)?;
        Ok(tally)
    })
}

/// How soon everything is normal after every kind of end. What is asserted is generous, what is printed is not.
fn kill() -> Result<Tally, Error> {
    unless_lacking("kills", tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command("kills")?);
        command.arg(format!("--count={KILLS}"));
        kills::keep(&verdicts("kills", &mut command, &mut tally)?)?;
        Ok(tally)
    })
}

fn kill_in_vm() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    vm::test_kills(&artifacts::build()?, KILLS_IN_VM)?.iter().for_each(|boot| tally.add_boot(boot));
    Ok(tally)
}

/// The guards whose absence shows with a delay only, on the kernel where filters are filters.
fn sabotage_in_vm() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    tally.add_boot(&vm::test_sabotage(&artifacts::build()?)?);
    Ok(tally)
}

/// Runs a program that writes a verdict a line to the file that it is told.
fn verdicts(name: &str, command: &mut Command, tally: &mut Tally) -> Result<Vec<Verdict>, Error> {
    let path = results_of(name);
    std::fs::write(&path, "").map_err(Error::file("write", &path))?;
    command.arg(format!("--results={}", path.display())).env_remove("CHAOS_ENVIRONMENT");
    let mut process = command.spawn().map_err(|source| run::start_error(command, source))?;
    let (results, _) = verdict::follow(&mut process, &path, None, |verdict| {
        println!("{}", verdict.line());
        tally.add(verdict);
    })?;
    if let Some(doubt) = results.doubt() {
        tally.fail(format!("{name}: {doubt}"));
    }
    Ok(results.verdicts)
}

/// The kernel tests on both kernels of the VM, but for what has just passed on the host and does not depend on the kernel.
/// `cargo xtask vm` runs everything.
fn kernels() -> Result<Tally, Error> {
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

/// Where a step's verdicts are written.
fn results_of(step: &str) -> PathBuf {
    run::vm_dir().join(format!("{step}-results.jsonl"))
}

/// The soak on both kernels of the VM, where packets can be delayed, and where memory, files and clock are ours.
fn vm_soak() -> Result<Tally, Error> {
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
fn vm_matrix() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let options = ["--share=48".to_owned(), "--stride=90".to_owned(), format!("--limit={VM_LIMIT}")];
    let argv: Vec<_> = std::iter::once(vm::program("matrix")).chain(options).chain([other_ones()]).collect();
    for (release, text, failure) in vm::program_on_all(&artifacts::build()?, &argv, VM_LIMIT)? {
        read_console(&format!("matrix on {release}"), &text, failure, &mut tally);
    }
    Ok(tally)
}

/// Has share and stride choose others each time, as long as nobody looks for one that has failed: it is said which they were. As
/// many numbers as it takes for each event of a share to meet each call of a stride.
fn other_ones() -> String {
    let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("--offset={}", age.as_secs() / 60 % 10_000)
}

/// The sweep over system calls on both kernels of the VM, of what few machines can do; other calls each time.
fn vm_sweep() -> Result<Tally, Error> {
    tools::require(tools::OBSERVERS)?;
    let mut tally = Tally::default();
    let options = ["--rare".to_owned(), "--stride=90".to_owned(), format!("--limit={VM_LIMIT}")];
    let argv: Vec<_> = std::iter::once(vm::program("sweep")).chain(options).chain([other_ones()]).collect();
    for (release, text, failure) in vm::program_on_all(&artifacts::build()?, &argv, VM_LIMIT)? {
        read_console(&format!("sweep on {release}"), &text, failure, &mut tally);
    }
    Ok(tally)
}

/// The official Python client against a real daemon.
fn mcp_client() -> Result<Tally, Error> {
    let tools = tools::require(tools::PYTHON).and_then(|()| tools::require(tools::OBSERVERS));
    unless_lacking("mcp-client", tools, || script("tests/mcp/run.py"))
}

/// Documents under the real Chaos Toolkit, and the same ones natively.
fn chaos_toolkit() -> Result<Tally, Error> {
    let tools = tools::require(tools::PYTHON).and_then(|()| tools::require(tools::OBSERVERS));
    unless_lacking("chaostoolkit", tools, || script("tests/chaostoolkit/run.py"))
}

/// Reports on runs as a browser draws them, and as the reports of Chaos Toolkit read them.
fn report() -> Result<Tally, Error> {
    let tools = [tools::PYTHON, tools::BROWSER, tools::OBSERVERS].into_iter().try_for_each(tools::require);
    unless_lacking("report", tools, || script("tests/report/run.py"))
}

/// Probes of a real API server, which is built the first time.
fn kubernetes_probes() -> Result<Tally, Error> {
    let tools = [tools::PYTHON, tools::KUBERNETES, tools::OBSERVERS].into_iter().try_for_each(tools::require);
    let mut server = PathBuf::new();
    let there = tools.and_then(|()| kubernetes::server()).map(|path| server = path);
    unless_lacking(KUBERNETES, there, || {
        script_with("tests/kubernetes/run.py", &[("CHAOS_KUBE_APISERVER", &server)])
    })
}

/// The Vagrantfile with each provider: libvirt with its settings, VirtualBox without, which only VirtualBox itself can check.
fn vagrant() -> Result<Tally, Error> {
    unless_lacking("vagrant", tools::require(tools::VAGRANT), || {
        let mut tally = Tally::default();
        for (provider, options) in [("libvirt", [].as_slice()), ("virtualbox", &["--ignore-provider"])] {
            match validate(provider, options) {
                Ok(said) => {
                    println!("{provider}: {}", said.trim().lines().last().unwrap_or_default());
                    tally.pass(1);
                }
                Err(error) => tally.fail(format!("vagrant validate with {provider}: {error}")),
            }
        }
        Ok(tally)
    })
}

fn validate(provider: &str, options: &[&str]) -> Result<String, Error> {
    // Its state is ours to delete, and nobody is asked for a newer version.
    let state = run::vm_dir().join("vagrant");
    let mut command = Command::new("vagrant");
    command
        .arg("validate")
        .args(options)
        .current_dir(run::root().join("vagrant"))
        .env("VAGRANT_HOME", state.join("home"))
        .env("VAGRANT_DOTFILE_PATH", state.join("dot"))
        .env("VAGRANT_DEFAULT_PROVIDER", provider)
        .env("VAGRANT_CHECKPOINT_DISABLE", "1");
    run::text(&mut command)
}

/// Runs a step whose tools are there. Where they cannot be had, it is left out by name, but never in CI.
fn unless_lacking(
    name: &str,
    tools: Result<(), Error>,
    step: impl FnOnce() -> Result<Tally, Error>,
) -> Result<Tally, Error> {
    match tools {
        Err(Error::Lacking(what)) if std::env::var_os("CI").is_none() => {
            let mut tally = Tally::default();
            tally.skip(format!("{name}: {what}"));
            Ok(tally)
        }
        Err(error) => Err(error),
        Ok(()) => step(),
    }
}

/// The package on a real systemd, on every kernel. `cargo xtask vm --systemd` does it with the release programs.
fn systemd() -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let boots = vm::test_systemd(&artifacts::build()?)?;
    boots.iter().for_each(|boot| tally.add_boot(boot));
    kinds::keep_boots(kinds::SYSTEMD_TESTS, &boots)?;
    Ok(tally)
}

/// A test program in another language. It gets `CHAOS_BIN_DIR`, and its last line is
/// `N passed, N failed, N skipped`; lines that begin with `FAILED: ` or `skipped: ` say which.
fn script(path: &str) -> Result<Tally, Error> {
    script_with(path, &[])
}

/// The same, with more variables.
fn script_with(path: &str, variables: &[(&str, &Path)]) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let built: Artifacts = artifacts::build()?;
    let mut command = Command::new(run::root().join(path));
    command.current_dir(run::root()).env("CHAOS_BIN_DIR", built.bin_dir()?).stderr(Stdio::inherit());
    command.envs(variables.iter().copied());
    believe(path, &mut command, &mut tally)?;
    Ok(tally)
}

/// A test program of ours that needs root, and that reports as a script does.
fn program(name: &str, args: &[&str]) -> Result<Tally, Error> {
    unless_lacking(name, tools::root(), || {
        tools::require(tools::OBSERVERS)?;
        let (mut tally, mut command) = (Tally::default(), artifacts::build()?.command(name)?);
        command.args(args).stderr(Stdio::inherit());
        believe(name, &mut command, &mut tally)?;
        Ok(tally)
    })
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
