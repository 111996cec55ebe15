//! `cargo xtask vm`: boots the test image under QEMU, on each kernel asked for, and prints a verdict per test.
//!
//! The kernels are Debian's, downloaded and unpacked but not installed. The image is an initramfs: busybox, a few
//! independent observers, our programs, and the modules that the faults need. PID 1 is `vm-init`.

mod cpio;
mod debian;
mod image;
mod kernel;
mod qemu;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, Parser};

use crate::artifacts::{self, Artifacts};
use crate::error::Error;
use crate::summary::Tally;
use crate::test::{Chosen, Share, quoted};
use crate::verdict::Results;
use crate::{dist, kills, kinds, run, tools};
use cpio::Archive;

/// Debian's stable kernel, without tcx, and its backported one, with tcx.
pub(crate) const KERNELS: [&str; 2] = ["6.1", "6.12"];

/// Whether a kernel attaches programs to devices by links (tcx, from 6.6 on), by its release or series.
pub(crate) fn has_links(release: &str) -> bool {
    version(release) >= vec![6, 6]
}

/// The numbers at the beginning of a kernel's release, so that 6.1 comes before 6.12.
pub(crate) fn version(release: &str) -> Vec<u32> {
    release.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
}

/// Whether a kernel's release is one of a series.
pub(crate) fn is_of(release: &str, series: &str) -> bool {
    version(release).starts_with(&version(series))
}

/// Where a program in a VM writes its results, a line of JSON each.
pub(crate) const RESULTS: &str = "/dev/ttyS1";

/// Machines that share the tests of one kernel, so that no processor is idle while another kernel's take longer.
const PARTITIONS: u32 = 2;
/// Wall-clock limit of the VM with systemd, in seconds, unless a longer one was given.
const LEAST_SYSTEMD_LIMIT: u64 = 4500;
/// The same of one kill under faults of every kind, and of the ends that are measured beside it: twice what each of a
/// hundred took on a slow machine.
const LEAST_LIMIT_OF_A_KILL: u64 = 240;
/// What booting takes, and what a program may be late, in seconds.
const BEFORE_AND_AFTER: u64 = 300;

/// Options of `cargo xtask vm`.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Kernel series, e.g. 6.1; may be repeated. Default: every series we test on
    #[arg(long)]
    kernel: Vec<String>,
    /// Only tests whose name contains this; may be repeated: any of them
    #[arg(long)]
    filter: Vec<String>,
    /// Wall-clock limit of one VM, in seconds, if --systemd or --kills needs no longer one; a hang of one test ends much
    /// earlier
    #[arg(long, env = "CHAOS_VM_TIMEOUT", default_value_t = 2400)]
    timeout: u64,
    /// Memory of one VM, in MiB
    #[arg(long, env = "CHAOS_VM_MEMORY", default_value_t = 1536)]
    memory: u32,
    /// Run the kernels one after the other instead of side by side
    #[arg(long)]
    sequential: bool,
    /// Boot Debian with systemd instead, install the package, and test it as a service
    #[arg(long, conflicts_with = "command")]
    systemd: bool,
    /// End faults of every kind so many times, and say how soon everything was normal; figures go to
    /// target/kills.json
    #[arg(long, conflicts_with_all = ["command", "systemd"])]
    kills: Option<u32>,
    /// Run this in the VM instead of the tests: a file of this machine, or a program of the image
    #[arg(last = true)]
    command: Vec<String>,
}

impl Options {
    fn defaults() -> Self {
        Defaults::parse_from(["vm"]).options
    }

    /// The same, with a limit of at least so many seconds.
    fn lasting(&self, least: u64) -> Self {
        Self { timeout: self.timeout.max(least), ..self.clone() }
    }

    /// The command that runs a test again, or a kind of kill, on a kernel.
    fn replay(&self, release: &str, test: &str) -> String {
        let kills = self.kills.map(|count| format!("--kills {count} "));
        let what = kills.or(self.systemd.then(|| "--systemd ".to_owned())).unwrap_or_default();
        format!("{} {what}--filter {}", command(release), quoted(test))
    }

    /// The kernels that are asked for.
    fn series(&self) -> impl Iterator<Item = &str> {
        let all: &[&str] = if self.kernel.is_empty() { &KERNELS } else { &[] };
        all.iter().copied().chain(self.kernel.iter().map(String::as_str))
    }
}

/// The options without arguments: defaults and environment.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    options: Options,
}

/// What one VM did.
pub(crate) struct Boot {
    /// Kernel release.
    pub(crate) release: String,
    pub(crate) results: Results,
    /// Why the boot failed as a whole: time limit, panic, no verdict.
    pub(crate) failure: Option<String>,
    /// All that was on the console.
    pub(crate) console: String,
    /// From starting QEMU to its end.
    pub(crate) took: Duration,
}

impl Boot {
    /// Whether it came to its end, and what it ran was content.
    pub(crate) fn succeeded(&self) -> bool {
        self.failure.is_none() && self.results.exit == Some(0)
    }

    /// The last lines of the console.
    pub(crate) fn console_tail(&self) -> String {
        const LINES: usize = 40;
        let lines: Vec<_> = self.console.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::VM)?;
    let built = artifacts::build()?;
    if !options.command.is_empty() {
        return run_command(options, &built);
    }
    let boots = if options.systemd {
        boot_systemd(options, &built, &dist::build()?)?
    } else if let Some(count) = options.kills {
        boot_kills(options, &built, count, &[])?
    } else {
        boot_tests(options, &built)?
    };
    let suite = if options.systemd { kinds::SYSTEMD_TESTS } else { kinds::KERNEL_TESTS };
    kinds::keep_boots(suite, &boots, None)?;
    let mut tally = Tally::default();
    for boot in &boots {
        let replay = |test: &str| options.replay(&boot.release, test);
        tally.add_boot(boot, &replay);
    }
    tally.print_exceptions();
    println!("{}", tally.line());
    Ok(tally.exit_code())
}

/// The command that boots a kernel again, by its release.
pub(crate) fn command(release: &str) -> String {
    let series = KERNELS.into_iter().find(|series| is_of(release, series));
    format!("cargo xtask vm --kernel {}", series.unwrap_or(release))
}

/// Boots every kernel, with default options, for `cargo xtask test`, and leaves out tests by what `leave_out` says of it.
pub(crate) fn test_all(
    built: &Artifacts,
    chosen: &Chosen,
    leave_out: impl Fn(&str) -> Vec<String>,
) -> Result<Vec<Boot>, Error> {
    tools::require(tools::VM)?;
    let options = Options { filter: chosen.filters.clone(), ..Options::defaults() };
    boot_machines(&options, &test_machines(&options, built, chosen.share, &chosen.cells, leave_out)?)
}

/// Kills everything under faults of the kinds of a share so many times, on every kernel.
pub(crate) fn test_kills(built: &Artifacts, count: u32, chosen: &Chosen) -> Result<Vec<Boot>, Error> {
    tools::require(tools::VM)?;
    let filter = if chosen.filters.is_empty() { vec!["Kill".to_owned()] } else { chosen.filters.clone() };
    boot_kills(&Options { filter, ..Options::defaults() }, built, count, &chosen.arguments())
}

fn boot_kills(
    options: &Options,
    built: &Artifacts,
    count: u32,
    arguments: &[String],
) -> Result<Vec<Boot>, Error> {
    let options = &options.lasting(LEAST_LIMIT_OF_A_KILL.saturating_mul(count.into()));
    let mut argv = vec![program("kills"), "--results=/dev/ttyS1".to_owned(), format!("--count={count}")];
    argv.extend_from_slice(arguments);
    argv.extend(options.filter.iter().map(|filter| format!("--only={filter}")));
    let boots = boot_all(options, &image::base(built, &argv, None)?)?;
    boots.iter().try_for_each(|boot| kills::keep(&boot.results.verdicts))?;
    Ok(boots)
}

/// Takes guards out of the daemon, on the oldest kernel.
pub(crate) fn test_sabotage(built: &Artifacts, chosen: &Chosen) -> Result<Boot, Error> {
    tools::require(tools::VM)?;
    let options = Options {
        kernel: KERNELS.first().map(ToString::to_string).into_iter().collect(),
        ..Options::defaults()
    };
    let mut argv = vec![program("sabotage"), "--results=/dev/ttyS1".to_owned(), "--netem".to_owned()];
    argv.extend(chosen.arguments());
    let boot = boot_all(&options, &image::base(built, &argv, None)?)?.pop();
    boot.ok_or_else(|| Error::Lacking("no kernel to boot".into()))
}

/// Boots Debian on these kernels, with the package of the programs that the other tests use, and runs what has one of these in its
/// name.
pub(crate) fn test_systemd(
    built: &Artifacts,
    kernels: &[&str],
    filters: &[String],
) -> Result<Vec<Boot>, Error> {
    tools::require(tools::VM)?;
    let kernel = kernels.iter().map(ToString::to_string).collect();
    let options = Options { kernel, filter: filters.to_vec(), ..Options::defaults() };
    boot_systemd(&options, built, built.bin_dir()?)
}

/// Boots Debian, with a package of the programs in a folder.
fn boot_systemd(options: &Options, built: &Artifacts, programs: &Path) -> Result<Vec<Boot>, Error> {
    // Six boots and five runs of dpkg.
    let options = &options.lasting(LEAST_SYSTEMD_LIMIT);
    let disk = debian::disk()?;
    let base = debian::base(built, programs, &options.filter)?;
    boot_machines(options, &machines(options, &base, Some(&disk))?)
}

/// Where a program of ours is in the image.
pub(crate) fn program(name: &str) -> String {
    format!("{}/{name}", image::BIN_DIR)
}

/// Runs a program of the image in one VM and shows what it writes as it writes it.
pub(crate) fn show(built: &Artifacts, kernel: &str, argv: &[String]) -> Result<Boot, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::VM)?;
    let options = Options { kernel: vec![kernel.to_owned()], ..Options::defaults() };
    let machines = machines(&options, &image::base(built, argv, None)?, None)?;
    let machine = machines.first().ok_or_else(|| Error::Lacking(format!("no kernel {kernel}")))?;
    let boot = qemu::boot(machine, qemu::Show::Program)?;
    if let Some(failure) = &boot.failure {
        eprintln!("the VM failed: {failure}\n{}", boot.console_tail());
    }
    Ok(boot)
}

/// Runs a program of the image, side by side on each kernel: its name for people, what the console said, and
/// why it did not end well. It may take so many seconds, and the machine a few minutes more.
pub(crate) fn program_on_all(
    built: &Artifacts,
    argv: &[String],
    limit: u64,
) -> Result<Vec<(String, String, Option<String>)>, Error> {
    tools::require(tools::VM)?;
    let options = Options::defaults().lasting(limit + BEFORE_AND_AFTER);
    let base = image::base(built, argv, None)?;
    let outcome = |machine: &qemu::Machine| {
        let boot = qemu::boot(machine, qemu::Show::Program)?;
        let failure = match boot.results.exit {
            Some(0) => boot.failure,
            exit => Some(boot.failure.unwrap_or_else(|| format!("exit {exit:?}"))),
        };
        Ok((boot.release, boot.console, failure))
    };
    let machines = machines(&options, &base, None)?;
    std::thread::scope(|scope| {
        let running: Vec<_> = machines.iter().map(|machine| scope.spawn(move || outcome(machine))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(Error::Lacking("the thread of a VM panicked".into())))
        };
        running.into_iter().map(join).collect()
    })
}

fn boot_tests(options: &Options, built: &Artifacts) -> Result<Vec<Boot>, Error> {
    boot_machines(options, &test_machines(options, built, None, &[], |_| Vec::new())?)
}

/// The machines that a share of the kernel tests run in, or those of these names, without what `leave_out` names for each kernel.
fn test_machines(
    options: &Options,
    built: &Artifacts,
    share: Option<Share>,
    names: &[String],
    leave_out: impl Fn(&str) -> Vec<String>,
) -> Result<Vec<qemu::Machine>, Error> {
    // What a filter lets through is not worth a second boot, nor is a share.
    let partitions =
        if options.filter.is_empty() && names.is_empty() && share.is_none() { PARTITIONS } else { 1 };
    let mut machines = Vec::new();
    for (number, part) in (1..).zip(Share::all(partitions)) {
        let argv = image::test_command(&options.filter, names, share.unwrap_or(part));
        let common = image::base(built, &argv, None)?;
        for series in options.series() {
            let mut base = common.clone();
            base.file(image::LEFT_OUT, leave_out(series).join("\n").as_bytes());
            machines.push(machine(options, series, number, &base, None)?);
        }
    }
    Ok(machines)
}

fn boot_all(options: &Options, base: &Archive) -> Result<Vec<Boot>, Error> {
    boot_machines(options, &machines(options, base, None)?)
}

/// Boots them, as many side by side as there are kernels.
fn boot_machines(options: &Options, machines: &[qemu::Machine]) -> Result<Vec<Boot>, Error> {
    let queue = Mutex::new(machines.iter());
    let lane = || {
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::iter::from_fn(next)
            .map(|machine| qemu::boot(machine, qemu::Show::Verdicts))
            .collect::<Result<Vec<_>, Error>>()
    };
    let lanes = if options.sequential { 1 } else { KERNELS.len() };
    let boots: Result<Vec<_>, Error> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        running
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::Lacking("the thread of a VM panicked".into())))
            })
            .collect()
    });
    Ok(boots?.into_iter().flatten().collect())
}

fn run_command(options: &Options, built: &Artifacts) -> Result<ExitCode, Error> {
    let (mut argv, extra) = (options.command.clone(), PathBuf::from(&options.command[0]));
    let extra = extra.is_file().then_some(extra);
    if let Some(name) = extra.as_ref().and_then(|path| path.file_name()) {
        argv[0] = format!("{}/{}", image::BIN_DIR, name.to_string_lossy());
    }
    let mut code = ExitCode::SUCCESS;
    let base = image::base(built, &argv, extra.as_deref())?;
    for machine in machines(options, &base, None)? {
        let boot = qemu::boot(&machine, qemu::Show::Console)?;
        let verdict = match (&boot.failure, boot.results.exit) {
            (None, Some(0)) => "exit 0".to_owned(),
            (None, Some(status)) => format!("exit {status}"),
            (failure, _) => failure.clone().unwrap_or_else(|| "no exit status".into()),
        };
        println!("{}: {verdict} ({:.1} s)", boot.release, boot.took.as_secs_f64());
        if boot.results.exit != Some(0) {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// The machine of each kernel.
fn machines(options: &Options, base: &Archive, disk: Option<&Path>) -> Result<Vec<qemu::Machine>, Error> {
    options.series().map(|series| machine(options, series, 1, base, disk)).collect()
}

/// Fetches a kernel, and writes its image into a folder of this one among the machines with that kernel.
fn machine(
    options: &Options,
    series: &str,
    number: usize,
    base: &Archive,
    disk: Option<&Path>,
) -> Result<qemu::Machine, Error> {
    let started = Instant::now();
    let kernel = kernel::obtain(series)?;
    let name = if number == 1 { kernel.release.clone() } else { format!("{}-{number}", kernel.release) };
    let dir = run::vm_dir().join(name);
    std::fs::create_dir_all(&dir).map_err(Error::file("create", &dir))?;
    let initramfs = dir.join(if disk.is_some() { "systemd.cpio" } else { "initramfs.cpio" });
    image::write(base, &kernel, &initramfs)?;
    eprintln!("image ready after {:.1} s", started.elapsed().as_secs_f64());
    Ok(qemu::Machine {
        kernel,
        initramfs,
        disk: disk.map(Path::to_path_buf),
        dir,
        memory: options.memory,
        limit: Duration::from_secs(options.timeout),
    })
}
