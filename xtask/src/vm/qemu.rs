//! One boot: starts QEMU, keeps its console, follows the results, and ends it when it takes too long.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::jobs::{Job, Reader};
use super::kernel::Kernel;
use super::spent::Times;
use super::{Heard, SYSTEMD};
use crate::error::Error;
use crate::run;
use crate::verdict::{self, Results};

/// A VM about to be booted.
pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) initramfs: PathBuf,
    /// Where the console and the results are written.
    pub(super) dir: PathBuf,
    /// MiB.
    pub(super) memory: u32,
    pub(super) task: Task,
}

/// What a VM is for.
pub(super) enum Task {
    /// It does these, and powers off. It never reboots.
    Jobs {
        jobs: Vec<Job>,
        /// When the last of them begins no further cell, if the time is limited.
        until: Option<Instant>,
    },
    /// It boots from a disk, never written to, and may reboot. It may take so long.
    Systemd { disk: PathBuf, limit: Duration },
}

/// What of the console to print while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// Nothing: what there is to see comes with the results.
    Results,
    Console,
    /// What the program writes, each line with a mark before it; not what the kernel says of its start.
    Program,
}

impl Show {
    /// The least important messages that the kernel still prints on the console.
    fn kernel_log_level(self) -> u8 {
        if self == Self::Program { 4 } else { 6 }
    }

    fn line(self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        match self {
            Self::Results => {}
            Self::Console => print!("{text}"),
            Self::Program if is_kernel_noise(&text) => {}
            Self::Program => println!("vm | {}", text.trim_end()),
        }
    }
}

/// A line of the kernel's log, `[    0.123456] ...`, that is no cry for help.
fn is_kernel_noise(line: &str) -> bool {
    let stamped = line
        .trim_start()
        .strip_prefix('[')
        .is_some_and(|rest| rest.split_once(']').is_some_and(|(time, _)| time.trim().parse::<f64>().is_ok()));
    stamped && !["panic", "Oops", "BUG"].iter().any(|word| line.contains(word))
}

/// What the kernel calls a panic that a test has asked for.
const ASKED_FOR: &str = "sysrq triggered crash";
/// So many lines at the end of a console say why a VM has failed.
const LAST_LINES: usize = 40;

/// What one VM did.
pub(super) struct Boot {
    /// What was heard of each job; of a VM with systemd, of its tests.
    pub(super) heard: Vec<Heard>,
    pub(super) times: Times,
}

/// Boots, waits for the end, and shows what went wrong.
pub(super) fn boot(machine: &Machine, show: Show) -> Result<Boot, Error> {
    let (boot, console) = match &machine.task {
        Task::Jobs { jobs, .. } => boot_jobs(machine, jobs, show)?,
        Task::Systemd { limit, .. } => boot_systemd(machine, *limit, show)?,
    };
    let failed: Vec<_> = boot.heard.iter().filter(|heard| heard.failure.is_some()).collect();
    // Of a program whose console was shown its exit status says enough.
    if failed.iter().any(|heard| show == Show::Results || heard.results.exit.is_none()) {
        let lines: Vec<_> = console.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        println!("the console of {} ends with\n{last}", machine.kernel.release);
    }
    // Who asks for the console says it as well.
    for Heard { job, release, failure, .. } in failed.into_iter().filter(|_| show != Show::Console) {
        println!("{release}, {job}: {}", failure.as_deref().unwrap_or_default());
    }
    Ok(boot)
}

/// Also returns what was on the console.
fn boot_jobs(machine: &Machine, jobs: &[Job], show: Show) -> Result<(Boot, String), Error> {
    let release = &machine.kernel.release;
    let started = Instant::now();
    let reader = RefCell::new(Reader::new(release, jobs));
    let until = || Some(reader.borrow().until());
    let (console, killed) = follow(machine, show, until, |line| {
        if let Some(said) = reader.borrow_mut().read(line) {
            println!("{said}");
        }
    })?;
    let (reader, all) = (reader.into_inner(), started.elapsed());
    let hangs = || {
        format!("the VM hangs{}", reader.running().map(|job| format!(" in {}", job.name)).unwrap_or_default())
    };
    let broken = if killed { Some(hangs()) } else { panic_of(&console) };
    let failures = reader.failures(broken.as_deref());
    let spent: Vec<_> = jobs
        .iter()
        .zip(&reader.said)
        .filter_map(|(job, said)| Some((job.name.clone(), said.spent()?)))
        .collect();
    let image = fs::metadata(&machine.initramfs).map_err(Error::file("look at", &machine.initramfs))?.len();
    let power_off = reader.start.map(|_| reader.last_word.elapsed().as_secs_f64());
    let times = Times {
        release: release.clone(),
        image,
        start: reader.start,
        jobs: spent,
        power_off,
        all: all.as_secs_f64(),
    };
    let heard = jobs.iter().zip(reader.said).zip(failures).map(|((job, said), failure)| Heard {
        job: job.name.clone(),
        release: release.clone(),
        took: said.spent().map_or(all, |spent| Duration::from_secs_f64(spent.busy + spent.waited)),
        text: said.text,
        results: said.results,
        failure,
    });
    Ok((Boot { heard: heard.collect(), times }, console))
}

/// The same of a VM with systemd, where tests run in several boots.
fn boot_systemd(machine: &Machine, limit: Duration, show: Show) -> Result<(Boot, String), Error> {
    let release = machine.kernel.release.clone();
    let started = Instant::now();
    let mut results = Results::default();
    let (console, killed) = follow(
        machine,
        show,
        || Some(started + limit),
        |line| {
            results.read(line).iter().for_each(|verdict| println!("{}", verdict.line()));
        },
    )?;
    let late = || format!("the VM was not done after {} s", limit.as_secs());
    let failure = killed.then(late).or_else(|| panic_of(&console)).or_else(|| results.doubt());
    let failure =
        failure.or_else(|| results.exit.is_none().then(|| "the VM ended without an exit status".to_owned()));
    let took = started.elapsed();
    let heard = Heard {
        job: SYSTEMD.to_owned(),
        release: release.clone(),
        results,
        text: String::new(),
        failure,
        took,
    };
    let image = fs::metadata(&machine.initramfs).map_err(Error::file("look at", &machine.initramfs))?.len();
    let times =
        Times { release, image, start: None, jobs: Vec::new(), power_off: None, all: took.as_secs_f64() };
    Ok((Boot { heard: vec![heard], times }, console))
}

/// Runs QEMU, and hands over each line of the results. Returns what was on the console, and whether it was killed.
fn follow(
    machine: &Machine,
    show: Show,
    until: impl Fn() -> Option<Instant>,
    each: impl FnMut(&str),
) -> Result<(String, bool), Error> {
    let results_path = machine.dir.join("results.jsonl");
    let console_path = machine.dir.join("console.log");
    fs::write(&results_path, "").map_err(Error::file("write", &results_path))?;
    let mut command = command(machine, &results_path, show)?;
    let mut qemu = command.spawn().map_err(|source| run::start_error(&command, source))?;
    let console = qemu.stdout.take();
    let killed = std::thread::scope(|scope| {
        scope.spawn(|| console.map(|console| keep_console(console, &console_path, show)));
        verdict::follow_lines(&mut qemu, &results_path, until, each)
    })?;
    Ok((fs::read_to_string(&console_path).unwrap_or_default(), killed))
}

fn command(machine: &Machine, results: &Path, show: Show) -> Result<Command, Error> {
    let mut command = run::bound("qemu-system-x86_64");
    // The device node of KVM may exist and still hang every guest, so KVM is only ever asked for.
    if std::env::var("CHAOS_VM_ACCEL").is_ok_and(|accel| accel == "kvm") {
        command.args(["-accel", "kvm", "-cpu", "host"]);
    } else {
        command.args(["-accel", "tcg", "-cpu", if major_version()? >= 10 { "max" } else { "max,-cx16" }]);
    }
    command
        // One processor. With two, 6.12 once panicked within a jump of the packet path that the kernel patches while it
        // runs (text_poke_bp); that the emulation of two is the cause is inferred from the registers, not proved.
        .args(["-smp", "1", "-nodefaults", "-display", "none", "-monitor", "none"])
        .args(["-m", &machine.memory.to_string()])
        .args(["-serial", "stdio", "-serial"])
        .arg(format!("file:{}", results.display()))
        .arg("-kernel")
        .arg(&machine.kernel.vmlinuz)
        .arg("-initrd")
        .arg(&machine.initramfs)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    // An oops is a failure: panic, and then end before the results are complete, or stand still until the time limit.
    // Without the check of the timer: on a busy machine its interrupts come so late under emulation that the kernel takes the
    // timer for broken, and panics (`check_timer` in its `arch/x86/kernel/apic/io_apic.c`).
    let append = format!("console=ttyS0 loglevel={} oops=panic no_timer_check", show.kernel_log_level());
    match &machine.task {
        Task::Jobs { .. } => {
            let init = super::program("vm-init");
            command.args(["-no-reboot", "-append", &format!("{append} panic=-1 rdinit={init}")])
        }
        Task::Systemd { disk, .. } => command
            .args(["-append", &format!("{append} panic=0 rdinit=/init systemd.show_status=no")])
            .arg("-drive")
            .arg(format!("file={},if=virtio,format=raw,snapshot=on", disk.display())),
    };
    Ok(command)
}

/// Before 10, QEMU's emulation of `cmpxchg16b` corrupts the guest's allocator.
fn major_version() -> Result<u32, Error> {
    let text = run::text(Command::new("qemu-system-x86_64").arg("--version"))?;
    text.split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .and_then(|version| version.split('.').next()?.parse().ok())
        .ok_or_else(|| Error::Lacking(format!("no version in {text:?}")))
}

fn keep_console(console: impl std::io::Read, path: &Path, show: Show) -> Result<(), Error> {
    let mut file = File::create(path).map_err(Error::file("create", path))?;
    let mut reader = BufReader::new(console);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(Error::file("read", path))? > 0 {
        file.write_all(&line).map_err(Error::file("write", path))?;
        show.line(&line);
        line.clear();
    }
    Ok(())
}

/// The first panic on a console that no test has asked for.
fn panic_of(console: &str) -> Option<String> {
    let panicked = |line: &&str| line.contains("Kernel panic") && !line.contains(ASKED_FOR);
    console.lines().find(panicked).map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_a_test_has_asked_for_is_no_failure_and_any_other_is() {
        assert_eq!(panic_of("[  1.5] Kernel panic - not syncing: sysrq triggered crash\n"), None);
        assert!(panic_of("[  1.5] Kernel panic - not syncing: Fatal exception\n").is_some());
    }

    #[test]
    fn the_kernels_chatter_is_noise_but_its_panic_is_not() {
        assert!(is_kernel_noise("[    1.234567] virtio_blk virtio0: 1/0/0 queues\r\n"));
        assert!(!is_kernel_noise("[    1.234567] Kernel panic - not syncing: Oops\r\n"));
        assert!(!is_kernel_noise("   3.2s  0.05 ms\r\n"));
        assert!(!is_kernel_noise("[x] done\r\n"));
    }
}
