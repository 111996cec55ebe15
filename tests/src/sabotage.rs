//! Tests of the tests: with each guard taken out of the daemon in turn, the test that ought to notice has to fail, and
//! for that reason. The sabotaged daemon has to start and to inject first, and with every guard in place each of these
//! tests has to pass with the same build.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use chaos_daemon::sabotage::Guard;
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cells::Choice;
use crate::daemon::binary;
use crate::fault::Fault;
use crate::late::HANG;
use crate::measure::{Echo, udp_rtt};
use crate::process::wait_until;
use crate::runner::{Line, Verdict};
use crate::skip::kernel_release;
use crate::{Daemon, Error, Pair, Result, mounts};

/// What a normal build does not contain, and every sabotaged one does.
const VARIABLE: &str = "CHAOS_SABOTAGE";
const PINS: &str = "CHAOS_SABOTAGE_PINS";
/// What a sabotaged process says when it starts.
const CONFESSION: &str = "this process is sabotaged";

const KILLING_EVERYTHING: &str =
    "lifetime::killing_every_process_at_once_ends_a_partition_at_once_and_recover_leaves_nothing";

/// What notices that a guard is missing.
#[derive(Debug, Clone, Copy)]
struct Watch {
    /// A kernel test.
    test: &'static str,
    /// What it says when this guard is missing, in the first line.
    says: &'static str,
    /// Whether it needs netem, which few hosts' kernels have.
    needs_netem: bool,
}

/// Exhaustive on purpose: a guard that nothing watches does not compile.
fn watch(guard: Guard) -> Watch {
    let (test, says, needs_netem) = match guard {
        // Without an effect: what a pinned link jumps to has gone with its holder.
        Guard::NoPins => (KILLING_EVERYTHING, "residue after", false),
        Guard::Stub => (KILLING_EVERYTHING, "traffic", false),
        Guard::ArmLast => ("effects::a_delay_loses_no_packet_while_it_comes", "packets were lost", true),
        Guard::DisarmFirst => ("effects::a_delay_loses_no_packet_while_it_goes", "packets were lost", true),
        Guard::NoFork => {
            ("lifetime::a_fault_ends_at_its_time_without_anybody_asking", "residue after", false)
        }
        Guard::Deadline => (
            "lifetime::stopping_every_process_ends_a_partition_with_the_lease_and_recover_leaves_nothing",
            "traffic normal not within",
            false,
        ),
        Guard::Timer => (
            "lifetime::a_stopped_holder_is_killed_some_time_after_the_end_of_its_fault",
            "a stopped holder outlived its fault",
            false,
        ),
        Guard::DeathSignal => (
            "lifetime::a_stopped_holder_dies_with_its_injector",
            "a stopped holder outlived its injector",
            false,
        ),
        Guard::GuardUnit => {
            ("supervised::killing_the_daemon_ends_a_pause_and_a_link_down", "normal; now", false)
        }
        Guard::Exclusions => (
            "policy::a_protected_port_is_spared_by_a_partition_of_everything_else",
            "the protected port",
            false,
        ),
    };
    Watch { test, says, needs_netem }
}

/// Something to find out.
#[derive(Debug)]
pub struct Cell {
    /// Of what is taken out.
    pub name: String,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// There is nothing of it in a normal build.
    NormalBuild,
    /// A sabotage that nobody knows is refused.
    UnknownName,
    /// A test notices that this guard is missing.
    Guard(Guard),
}

/// What all rests on, and the guards that show in faults that need netem, or in those that do not.
pub fn cells(netem: bool) -> Vec<Cell> {
    let guards = Guard::ALL.iter().copied().filter(|guard| watch(*guard).needs_netem == netem);
    let guards = guards.map(|guard| (guard.absence(), What::Guard(guard)));
    let first = [("of a normal build", What::NormalBuild), ("by an unknown name", What::UnknownName)];
    let cell = |(name, what)| Cell { name: format!("sabotage {name}"), what };
    first.into_iter().chain(guards).map(cell).collect()
}

/// What one test of the tests has found that passed.
struct Found {
    what: String,
    /// What its verdict says beside that.
    reason: String,
    /// How often the test was tried.
    tries: u32,
}

impl Found {
    fn once(what: &str) -> Self {
        Self { what: what.to_owned(), reason: String::new(), tries: 1 }
    }
}

/// A folder in which `chaos-daemon` is the sabotaged build, beside a bpf file system for pins. Both go with it.
#[derive(Debug)]
pub struct Stage {
    folder: TempDir,
    programs: PathBuf,
}

impl Stage {
    /// Makes it from the folder of programs.
    ///
    /// # Errors
    /// When a program is missing, or the kernel refuses to mount.
    pub fn new() -> Result<Self> {
        let sabotaged = binary("chaos-daemon-sabotaged")?;
        let programs = sabotaged.parent().map(Path::to_path_buf).unwrap_or_default();
        let folder = TempDir::with_prefix("chaos-sabotage-").map_err(Error::io("create", "a folder"))?;
        // Tests run some programs as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
            .map_err(Error::io("set the mode of", folder.path().display().to_string()))?;
        for (name, target) in [("chaos-daemon", &sabotaged), ("chaosctl", &binary("chaosctl")?)] {
            symlink(target, folder.path().join(name)).map_err(Error::io("link", name))?;
        }
        let stage = Self { folder, programs };
        fs::create_dir(stage.pins()).map_err(Error::io("create", "a folder for pins"))?;
        mount(Some("bpf"), &stage.pins(), Some("bpf"), MsFlags::empty(), None::<&str>)
            .map_err(Error::sys("mount", "a bpf file system"))?;
        Ok(stage)
    }

    /// The folder for `CHAOS_BIN_DIR`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn pins(&self) -> PathBuf {
        self.folder.path().join("pins")
    }

    fn sabotage(&self, command: &mut Command, guard: Option<Guard>) {
        command.env("CHAOS_BIN_DIR", self.folder()).env(PINS, self.pins());
        if let Some(guard) = guard {
            command.env(VARIABLE, guard.absence());
        }
    }

    /// Carries out these cells, and hands over each verdict as it comes: of one that takes a guard out there is one before it, of
    /// its test with nothing taken out, but one for each test. Returns how many there were, and how many cells were not begun, since the time was over.
    pub fn run(&self, cells: &[Cell], choice: &Choice, mut report: impl FnMut(&Line)) -> (usize, usize) {
        let (mut count, mut passed) = (0, BTreeSet::new());
        let mut judge = |cell: &Cell, work: &dyn Fn() -> Result<Found>| {
            let started = Instant::now();
            let (outcome, test, reason, tries) = match work() {
                Ok(Found { what, reason, tries }) => {
                    (Verdict::Pass, format!("{} ... {what}", cell.name), reason, tries)
                }
                Err(error) => (Verdict::Fail, cell.name.clone(), error.to_string(), 1),
            };
            count += 1;
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            report(&Line { kernel: kernel_release(), test, outcome, reason, ms, cpu_ms: None, tries });
        };
        let left = choice.each(cells, |cell| match cell.what {
            What::NormalBuild => judge(cell, &|| self.normal_builds_have_none_of_it()),
            What::UnknownName => judge(cell, &|| self.an_unknown_name_is_refused()),
            What::Guard(guard) => {
                let test = watch(guard).test;
                if passed.insert(test) {
                    judge(cell, &|| self.passes(test));
                }
                judge(cell, &|| self.is_caught(guard));
            }
        });
        (count, left)
    }

    fn normal_builds_have_none_of_it(&self) -> Result<Found> {
        let has = |name: &str| {
            let path = self.programs.join(name);
            let bytes = fs::read(&path).map_err(Error::io("read", path.display().to_string()))?;
            Ok::<_, Error>(bytes.windows(VARIABLE.len()).any(|window| window == VARIABLE.as_bytes()))
        };
        match (has("chaos-daemon-sabotaged")?, has("chaos-daemon")?) {
            (true, false) => Ok(Found::once("none of it is in a normal build")),
            (sabotaged, normal) => Err(Error::Different(format!(
                "{VARIABLE} is in the sabotaged build: {sabotaged}, and in the normal one: {normal}"
            ))),
        }
    }

    fn an_unknown_name_is_refused(&self) -> Result<Found> {
        let mut command = Command::new(self.folder().join("chaos-daemon"));
        let output = command.arg("recover").env(VARIABLE, "nonsense").output();
        let output = output.map_err(Error::io("start", "the sabotaged daemon"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        match (output.status.code(), text.contains("no sabotage called \"nonsense\"")) {
            (Some(1), true) => Ok(Found::once("an unknown name is refused")),
            (code, _) => Err(Error::Different(format!("an unknown name gave {code:?}: {text}"))),
        }
    }

    fn passes(&self, test: &'static str) -> Result<Found> {
        let verdict = self.verdict(test, None)?;
        match verdict["outcome"].as_str() {
            Some("pass") => Ok(Found {
                what: format!("with nothing taken out, lets pass {test}"),
                reason: verdict["reason"].as_str().unwrap_or_default().to_owned(),
                tries: if verdict["tries"].is_null() { 1 } else { 2 },
            }),
            _ => Err(Error::Different(format!("with nothing taken out, {test}: {verdict}"))),
        }
    }

    /// Of what has to be late a second try says nothing, and is not counted.
    fn is_caught(&self, guard: Guard) -> Result<Found> {
        self.injects(guard)?;
        let Watch { test, says, .. } = watch(guard);
        let verdict = self.verdict(test, Some(guard))?;
        let reason = verdict["reason"].as_str().unwrap_or_default();
        match verdict["outcome"].as_str() {
            Some("fail") if reason.lines().next().is_some_and(|line| line.contains(says)) => {
                Ok(Found::once(&format!("caught by {test}")))
            }
            Some("fail") => Err(Error::Different(format!("{test} failed, not with {says:?}: {reason}"))),
            outcome => Err(Error::Different(format!("NOT CAUGHT by {test}: {outcome:?} {reason}"))),
        }
    }

    /// The sabotage reaches every process, and yet the daemon does its work.
    fn injects(&self, guard: Guard) -> Result<()> {
        const ROLES: usize = 3;
        let pair = Pair::new()?;
        let echo = Echo::start(&pair.far, Pair::FAR_V4, 7)?;
        let daemon = Daemon::start_with(|command| self.sabotage(command, Some(guard)))?;
        Fault::new("network_partition")
            .on(&pair.near, json!({"cidr": "10.77.0.2"}))
            .inject(&daemon.mcp()?)?;
        if udp_rtt(&pair.near, echo.address(), Duration::from_millis(100))?.is_some() {
            return Err(Error::Different(format!("without {guard:?}, a fault has no effect")));
        }
        let confessions = || daemon.log().matches(CONFESSION).count();
        if !wait_until(HANG, || confessions() >= ROLES) {
            let what =
                format!("word of injector, server and holder, but {}:\n{}", confessions(), daemon.log());
            return Err(Error::Hung { what });
        }
        Ok(())
    }

    /// One test, by the runner that runs it on every other day.
    fn verdict(&self, test: &str, guard: Option<Guard>) -> Result<Value> {
        let results = self.folder().join("results.jsonl");
        let _ = fs::remove_file(&results);
        let mut command = Command::new(self.programs.join("test-runner"));
        command.arg(format!("--results={}", results.display())).arg(format!("--filter={test}"));
        command.arg(self.programs.join("kernel-tests"));
        self.sabotage(&mut command, guard);
        command.status().map_err(Error::io("start", "test-runner"))?;
        let text = fs::read_to_string(&results).map_err(Error::io("read", "the runner's results"))?;
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        match lines.as_slice() {
            [verdict, done] if done["count"] == 1 => Ok(verdict.clone()),
            _ => Err(Error::Different(format!("{test} gave not one verdict: {text}"))),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Pins go with their file system.
        if let Err(error) = mounts::unmount(&self.pins()) {
            eprintln!("clean up: {error}");
        }
    }
}
