//! One boot: starts QEMU, keeps its console, follows the results, and ends it at its time limit.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Boot;
use super::kernel::Kernel;
use crate::error::Error;
use crate::run;
use crate::verdict::{self, Results};

/// A VM about to be booted.
pub(super) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) initramfs: PathBuf,
    /// The root file system, never written to. A machine that has one may reboot; the others end instead.
    pub(super) disk: Option<PathBuf>,
    /// Where the console and the results are written.
    pub(super) dir: PathBuf,
    /// MiB.
    pub(super) memory: u32,
    /// Wall-clock limit.
    pub(super) limit: Duration,
}

/// What to print while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    Verdicts,
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
            Self::Verdicts => {}
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

/// Boots and waits for the end.
pub(super) fn boot(machine: &Machine, show: Show) -> Result<Boot, Error> {
    let results_path = machine.dir.join("results.jsonl");
    let console_path = machine.dir.join("console.log");
    fs::write(&results_path, "").map_err(Error::file("write", &results_path))?;
    let started = Instant::now();
    let mut command = command(machine, &results_path, show)?;
    let mut qemu = command.spawn().map_err(|source| run::start_error(&command, source))?;
    let console = qemu.stdout.take();
    let (results, timed_out) = std::thread::scope(|scope| {
        scope.spawn(|| console.map(|console| keep_console(console, &console_path, show)));
        verdict::follow(&mut qemu, &results_path, Some(started + machine.limit), |verdict| {
            if show == Show::Verdicts {
                println!("{}", verdict.line());
            }
        })
    })?;
    let console = fs::read_to_string(&console_path).unwrap_or_default();
    let failure = failure(&results, &console, timed_out.then_some(machine.limit), show);
    Ok(Boot { release: machine.kernel.release.clone(), results, failure, console, took: started.elapsed() })
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
    match &machine.disk {
        None => {
            let init = super::program("vm-init");
            command.args(["-no-reboot", "-append", &format!("{append} panic=-1 rdinit={init}")])
        }
        Some(disk) => command
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

fn failure(results: &Results, console: &str, limit: Option<Duration>, show: Show) -> Option<String> {
    if let Some(limit) = limit {
        return Some(format!("the VM was not done after {} s", limit.as_secs()));
    }
    let panicked = |line: &&str| line.contains("Kernel panic") && !line.contains(ASKED_FOR);
    if let Some(line) = console.lines().find(panicked) {
        return Some(line.trim().to_owned());
    }
    let doubt = if show == Show::Verdicts { results.doubt() } else { None };
    doubt.or_else(|| results.exit.is_none().then(|| "the VM ended without an exit status".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_that_a_test_has_asked_for_is_no_failure_and_any_other_is() {
        let results = Results { exit: Some(0), ..Results::default() };
        let judged = |console| failure(&results, console, None, Show::Program);
        assert_eq!(judged("[  1.5] Kernel panic - not syncing: sysrq triggered crash\n"), None);
        assert!(judged("[  1.5] Kernel panic - not syncing: Fatal exception\n").is_some());
    }

    #[test]
    fn the_kernels_chatter_is_noise_but_its_panic_is_not() {
        assert!(is_kernel_noise("[    1.234567] virtio_blk virtio0: 1/0/0 queues\r\n"));
        assert!(!is_kernel_noise("[    1.234567] Kernel panic - not syncing: Oops\r\n"));
        assert!(!is_kernel_noise("   3.2s  0.05 ms\r\n"));
        assert!(!is_kernel_noise("[x] done\r\n"));
    }
}
