//! `cargo xtask vm`: boots the test image under QEMU, on each kernel asked for, and prints a verdict per test. A VM is given a list
//! of jobs, which it does one after the other: of `cargo xtask test` all that a kernel has to do.
//!
//! The kernels are Debian's, downloaded and unpacked but not installed. The image is an initramfs: busybox, a few
//! independent observers, our programs, and the modules that the faults need. PID 1 is `vm-init`.

mod cpio;
mod debian;
mod image;
mod jobs;
mod kernel;
mod qemu;
mod spent;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, Parser};

use crate::artifacts::{self, Artifacts};
use crate::error::Error;
use crate::summary::Tally;
use crate::test::{Share, quoted};
use crate::verdict::Results;
use crate::{dist, kills, kinds, run, tools};
use cpio::Archive;
pub(crate) use jobs::{Job, Report};
use qemu::{Machine, Show, Task};

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
/// What a VM with systemd is called beside jobs.
const SYSTEMD: &str = "systemd";

/// Options of `cargo xtask vm`.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Kernel series, e.g. 6.1; may be repeated. Default: every series we test on
    #[arg(long)]
    kernel: Vec<String>,
    /// Only tests whose name contains this; may be repeated: any of them
    #[arg(long)]
    filter: Vec<String>,
    /// Wall-clock limit of what one VM does, in seconds, if --systemd or --kills needs no longer one; a hang of one test ends
    /// much earlier
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
    /// With `--systemd`, install the programs of `cargo xtask dist` instead of those of the other tests
    #[arg(long, requires = "systemd")]
    dist: bool,
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

/// What was heard of a job on one kernel, or of the tests in a VM with systemd.
pub(crate) struct Heard {
    /// Its name.
    pub(crate) job: String,
    /// Kernel release.
    pub(crate) release: String,
    pub(crate) results: Results,
    /// What it said, if it reports by a text.
    pub(crate) text: String,
    /// Why it failed as a whole: time limit, panic, no verdict, exit status.
    pub(crate) failure: Option<String>,
    pub(crate) took: Duration,
}

pub(crate) fn main(options: &Options) -> Result<ExitCode, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::VM)?;
    let built = artifacts::build()?;
    if !options.command.is_empty() {
        return command_of(options, &built);
    }
    let (suite, heard) = if options.systemd {
        let programs = if options.dist { dist::build()? } else { built.bin_dir()?.to_owned() };
        let asked: Vec<_> = options.series().map(|series| (series, options.filter.clone())).collect();
        (kinds::SYSTEMD_TESTS, boot_systemd(options, &built, &programs, &asked)?)
    } else {
        (kinds::KERNEL_TESTS, boot_jobs(options, &built, asked(options), None)?)
    };
    if options.kills.is_some() {
        heard.iter().try_for_each(|heard| kills::keep(&heard.results.verdicts))?;
    }
    kinds::keep_heard(suite, &heard, None)?;
    let mut tally = Tally::default();
    for heard in &heard {
        tally.add_heard(heard, &|test| options.replay(&heard.release, test));
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

/// How long a job may take, in seconds, if it needs no longer.
pub(crate) fn usual_limit() -> u64 {
    Options::defaults().timeout
}

/// A share of the kernel tests, or those of these names, without what is left out.
pub(crate) fn tests(filters: &[String], names: &[String], share: Share, left_out: &[String]) -> Job {
    Job {
        name: "tests".to_owned(),
        argv: image::test_command(filters, names, share),
        limit: usual_limit(),
        report: Report::Verdicts,
        files: vec![(image::LEFT_OUT, left_out.join("\n"))],
    }
}

/// Ends faults of these kinds so many times.
pub(crate) fn kills(count: u32, arguments: &[String], filters: &[String]) -> Job {
    let mut argv = vec![program("kills"), format!("--results={RESULTS}"), format!("--count={count}")];
    argv.extend_from_slice(arguments);
    argv.extend(filters.iter().map(|filter| format!("--only={filter}")));
    let limit = usual_limit().max(LEAST_LIMIT_OF_A_KILL.saturating_mul(count.into()));
    Job { name: "kills".to_owned(), argv, limit, report: Report::Verdicts, files: Vec::new() }
}

/// Does what each kernel is asked for in one VM of it, all VMs side by side, with default options. Says where their time went. With
/// `until` the jobs of a VM share the time until then, and begin no cell after it.
pub(crate) fn run_jobs(
    built: &Artifacts,
    asked: Vec<(&str, Vec<Job>)>,
    until: Option<Instant>,
) -> Result<Vec<Heard>, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::VM)?;
    boot_jobs(&Options::defaults(), built, asked, until)
}

/// Boots Debian once for each of these, side by side: on its kernel, with the package of the programs that the other tests use.
/// Runs there what has one of its filters in its name.
pub(crate) fn test_systemd(built: &Artifacts, asked: &[(&str, Vec<String>)]) -> Result<Vec<Heard>, Error> {
    tools::require(tools::VM)?;
    boot_systemd(&Options::defaults(), built, built.bin_dir()?, asked)
}

/// Boots Debian once for each kernel and its filters, with a package of the programs in a folder.
fn boot_systemd(
    options: &Options,
    built: &Artifacts,
    programs: &Path,
    asked: &[(&str, Vec<String>)],
) -> Result<Vec<Heard>, Error> {
    // Six boots and five runs of dpkg.
    let limit = Duration::from_secs(options.timeout.max(LEAST_SYSTEMD_LIMIT));
    let disk = debian::disk()?;
    let base = debian::base(built, programs)?;
    let mut machines = Vec::new();
    for (index, (series, filters)) in asked.iter().enumerate() {
        let number = 1 + asked[..index].iter().filter(|(other, _)| other == series).count();
        let base = debian::filtered(&base, filters);
        let task = Task::Systemd { disk: disk.clone(), limit };
        machines.push(machine(options, series, number, &base, task)?);
    }
    boot_machines(options, &machines, Show::Results)
}

/// Where a program of ours is in the image.
pub(crate) fn program(name: &str) -> String {
    format!("{}/{name}", image::BIN_DIR)
}

/// Runs a program of the image in one VM and shows what it writes as it writes it.
pub(crate) fn show(built: &Artifacts, kernel: &str, argv: &[String]) -> Result<Heard, Error> {
    tools::require(tools::OBSERVERS)?;
    tools::require(tools::VM)?;
    let options = Options { kernel: vec![kernel.to_owned()], ..Options::defaults() };
    let heard = run_command(&options, built, argv, None, Show::Program)?.pop();
    heard.ok_or_else(|| Error::Lacking(format!("no kernel {kernel}")))
}

/// What `cargo xtask vm` has each machine do. Of all the kernel tests each has a part.
fn asked(options: &Options) -> Vec<(&str, Vec<Job>)> {
    let jobs: Vec<_> = match options.kills {
        Some(count) => vec![kills(count, &[], &options.filter)],
        // What a filter lets through is not worth a second boot.
        None => Share::all(if options.filter.is_empty() { PARTITIONS } else { 1 })
            .map(|part| tests(&options.filter, &[], part, &[]))
            .collect(),
    };
    let lasting = |job: &Job| Job { limit: job.limit.max(options.timeout), ..job.clone() };
    jobs.iter().flat_map(|job| options.series().map(move |series| (series, vec![lasting(job)]))).collect()
}

/// Boots a machine for each, with the number that it has among those of its kernel.
fn boot_jobs(
    options: &Options,
    built: &Artifacts,
    asked: Vec<(&str, Vec<Job>)>,
    until: Option<Instant>,
) -> Result<Vec<Heard>, Error> {
    let base = image::base(built, None)?;
    let mut machines: Vec<Machine> = Vec::new();
    let mut series_of = Vec::new();
    for (series, jobs) in asked {
        series_of.push(series);
        let number = series_of.iter().filter(|other| **other == series).count();
        machines.push(machine(options, series, number, &base, Task::Jobs { jobs, until })?);
    }
    boot_machines(options, &machines, Show::Results)
}

/// Boots them, as many side by side as there are kernels, and says where the time went.
fn boot_machines(options: &Options, machines: &[Machine], show: Show) -> Result<Vec<Heard>, Error> {
    let queue = Mutex::new(machines.iter());
    let lane = || {
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::iter::from_fn(next).map(|machine| qemu::boot(machine, show)).collect::<Result<Vec<_>, Error>>()
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
    let mut boots: Vec<_> = boots?.into_iter().flatten().collect();
    boots.sort_by_key(|boot| version(&boot.times.release));
    if show == Show::Results {
        print!("{}", spent::table(&boots.iter().map(|boot| &boot.times).collect::<Vec<_>>()));
    }
    Ok(boots.into_iter().flat_map(|boot| boot.heard).collect())
}

/// Runs a program on each kernel, one after the other: one of the image, or the file `extra`.
fn run_command(
    options: &Options,
    built: &Artifacts,
    argv: &[String],
    extra: Option<&Path>,
    show: Show,
) -> Result<Vec<Heard>, Error> {
    let name = argv.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned();
    let job =
        Job { name, argv: argv.to_vec(), limit: options.timeout, report: Report::Status, files: Vec::new() };
    let base = image::base(built, extra)?;
    let task = || Task::Jobs { jobs: vec![job.clone()], until: None };
    let machines: Result<Vec<_>, Error> =
        options.series().map(|series| machine(options, series, 1, &base, task())).collect();
    boot_machines(&Options { sequential: true, ..options.clone() }, &machines?, show)
}

fn command_of(options: &Options, built: &Artifacts) -> Result<ExitCode, Error> {
    let (mut argv, extra) = (options.command.clone(), PathBuf::from(&options.command[0]));
    let extra = extra.is_file().then_some(extra);
    if let Some(name) = extra.as_ref().and_then(|path| path.file_name()) {
        argv[0] = format!("{}/{}", image::BIN_DIR, name.to_string_lossy());
    }
    let heard = run_command(options, built, &argv, extra.as_deref(), Show::Console)?;
    for Heard { release, failure, took, .. } in &heard {
        let verdict = failure.as_deref().unwrap_or("exit 0");
        println!("{release}: {verdict} ({:.1} s)", took.as_secs_f64());
    }
    let failed = heard.iter().any(|heard| heard.failure.is_some());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Fetches a kernel, and writes its image into a folder of this one among the machines with that kernel.
fn machine(
    options: &Options,
    series: &str,
    number: usize,
    base: &Archive,
    task: Task,
) -> Result<Machine, Error> {
    let started = Instant::now();
    let kernel = kernel::obtain(series)?;
    // One with systemd may run beside one with jobs of the same kernel.
    let (what, jobs, until): (_, &[Job], _) = match &task {
        Task::Jobs { jobs, until } => ("jobs", jobs, *until),
        Task::Systemd { .. } => ("systemd", &[], None),
    };
    let dir = run::vm_dir().join(format!("{}-{what}-{number}", kernel.release));
    std::fs::create_dir_all(&dir).map_err(Error::file("create", &dir))?;
    let initramfs = dir.join("initramfs.cpio");
    image::write(base, &kernel, jobs, until, &initramfs)?;
    eprintln!("image ready after {:.1} s", started.elapsed().as_secs_f64());
    Ok(Machine { kernel, initramfs, dir, memory: options.memory, task })
}
