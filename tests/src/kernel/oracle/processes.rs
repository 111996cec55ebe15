//! Our processes in every state in which they can be left.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;

use super::super::{Attach, Context, Outcome, TestResult, on_every_attachment, tests};
use super::Verdict;
use crate::fault::{Fault, LONG};
use crate::late::HANG;
use crate::process::{Process, wait_until};
use crate::tools::Session;
use crate::worker::Program;
use crate::{Daemon, Error, Pair, Reason, Result};

tests![
    a_stopped_daemon_and_its_holder_act_until_the_lease_is_over_and_recover_ends_them,
    a_stopped_holder_whose_lease_runs_is_an_effect,
    a_stopped_holder_that_has_a_process_stand_still_is_an_effect,
    a_stopped_holder_of_a_connect_error_is_an_effect_on_its_control_group,
    a_stopped_holder_of_a_partition_of_a_service_is_an_effect_on_the_packets_of_its_control_group,
    a_stopped_holder_of_a_file_error_is_an_effect_on_its_control_group,
    a_stopped_holder_of_a_socket_error_is_an_effect_on_its_control_group,
    a_stopped_holder_of_an_mcp_error_is_an_effect_until_its_lease_is_over,
    a_stopped_server_is_named,
    a_holder_without_a_daemon_is_named_and_one_that_burns_is_an_effect,
    a_zombie_of_a_holder_is_named,
    a_holder_that_hangs_in_the_kernel_is_named,
];

/// How long one heartbeat keeps a fault.
const LEASE: Duration = Duration::from_secs(3);
/// How often an answer may come too late to say anything.
const TRIES: usize = 6;

/// Of what may fail by the test's own files as well.
type Tried<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Tries again until the oracle's answer came while a lease could not be over yet, which `attempt` tells by `false`: on a
/// busy machine the first may be late.
fn in_time(mut attempt: impl FnMut() -> Tried<bool>) -> Tried<()> {
    for _ in 0..TRIES {
        if attempt()? {
            return Ok(());
        }
    }
    Err(Error::in_vain("an answer of the oracle", LEASE / 2).into())
}

/// Whether the oracle said so. What it did not say so long after everything was stopped proves nothing: a lease may have been over.
fn said(verdict: Result<()>, after: Duration) -> Tried<bool> {
    match verdict {
        Ok(()) => Ok(true),
        Err(_) if after >= LEASE / 2 => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn a_stopped_daemon_and_its_holder_act_until_the_lease_is_over_and_recover_ends_them(
    context: &Context,
) -> TestResult {
    on_every_attachment(context, |attach| in_time(|| acts_until_its_lease_is_over(attach)))
}

fn acts_until_its_lease_is_over(attach: Attach) -> Tried<bool> {
    let pair = Pair::new()?;
    let mut daemon = Daemon::start_with(|command| attach.configure(command))?;
    let fault = Fault::new("network_partition").on(&pair.near, json!({"cidr": "10.77.0.2"}));
    fault.inject(&daemon.mcp()?)?;
    let (processes, holders) = (daemon.processes(), daemon.holders());
    let stopped = Instant::now();
    processes.iter().for_each(Process::stop);
    let verdict = Verdict::ask(&daemon.runtime_dir())?;
    let after = stopped.elapsed();
    verdict.names("inert", "daemon", &format!("process {} is stopped", daemon.injector_pid()))?;
    let acts = format!("eth0 egress in network namespace {}", pair.near.name());
    if !said(verdict.names("effect", "holder", &acts).map(drop), after)? {
        daemon.kill_everything();
        return Ok(false);
    }
    std::thread::sleep(LEASE);
    let verdict = Verdict::ask(&daemon.runtime_dir())?;
    for holder in &holders {
        verdict.names("inert", "holder", &format!("process {} is stopped", holder.pid))?;
    }
    verdict.names("inert", "journal", &daemon.runtime_dir().display().to_string())?;
    let mut recover = Command::new(crate::daemon::binary("chaos-daemon")?);
    crate::netns::output(recover.arg("recover").arg("--runtime-dir").arg(daemon.runtime_dir()))?;
    assert!(wait_until(HANG, || !processes.iter().any(Process::runs)), "somebody still runs");
    daemon.kill_everything();
    let verdict = Verdict::ask(&daemon.runtime_dir())?;
    verdict.is_silent_on(pair.near.name())?;
    verdict.is_silent_on(&daemon.runtime_dir().display().to_string())?;
    // Those that have ended may still be waiting to be collected, by whoever inherited them.
    for process in &processes {
        verdict.is_silent_on(&format!("process {} is stopped", process.pid))?;
    }
    Ok(true)
}

fn a_stopped_holder_whose_lease_runs_is_an_effect(context: &Context) -> TestResult {
    let pair = Pair::new()?;
    let link = super::packets::acting(&pair.near, LONG, context.kernel >= (6, 6))?;
    let holder = Fake::start_as("chaos-holder", "sleep", &["600"], link.into())?;
    kill(Pid::from_raw(holder.pid()), Signal::SIGSTOP)?;
    let is_stopped = || Process::read(holder.pid()).is_some_and(|process| process.state == 'T');
    assert!(wait_until(HANG, is_stopped));
    let verdict = Verdict::of_node()?;
    let left = verdict.names("effect", "holder", &format!("process {} is stopped", holder.pid()))?;
    let acts = format!("its fault acts on eth0 egress in network namespace {}", pair.near.name());
    assert!(left["what"].as_str().is_some_and(|what| what.contains(&acts)), "{left}");
    Ok(Outcome::Pass)
}

fn a_stopped_holder_that_has_a_process_stand_still_is_an_effect(_: &Context) -> TestResult {
    let program = Program::new()?;
    let worker = program.start(1, "traced")?;
    let mut daemon = Daemon::start()?;
    Fault::new("process_pause").aimed(json!({"exe": program.path()})).inject(&daemon.mcp()?)?;
    daemon.processes().iter().for_each(Process::stop);
    let verdict = Verdict::ask(&daemon.runtime_dir());
    daemon.kill_everything();
    let still = format!("it has process {} stand still", worker.pid());
    verdict?.names("effect", "holder", &still)?;
    assert!(worker.runs());
    Ok(Outcome::Pass)
}

fn a_stopped_holder_of_a_connect_error_is_an_effect_on_its_control_group(_: &Context) -> TestResult {
    is_an_effect_on("calls", Fault::new("connect_error"))
}

fn a_stopped_holder_of_a_partition_of_a_service_is_an_effect_on_the_packets_of_its_control_group(
    _: &Context,
) -> TestResult {
    is_an_effect_on("packets", Fault::new("network_partition"))
}

fn a_stopped_holder_of_a_file_error_is_an_effect_on_its_control_group(context: &Context) -> TestResult {
    at_security_hooks(context, Fault::new("file_error").with(json!({"path": "/"})))
}

fn a_stopped_holder_of_a_socket_error_is_an_effect_on_its_control_group(context: &Context) -> TestResult {
    at_security_hooks(context, Fault::new("socket_error"))
}

fn at_security_hooks(context: &Context, fault: Fault) -> TestResult {
    if !context.has_bpf_lsm() {
        return Ok(Outcome::Skip(
            Reason::NoBpfLsm,
            "no `bpf` in /sys/kernel/security/lsm, or lockdown".into(),
        ));
    }
    is_an_effect_on("calls", fault)
}

fn is_an_effect_on(what: &str, fault: Fault) -> TestResult {
    use std::os::unix::fs::MetadataExt;
    in_time(|| {
        let cgroup = super::files::Cgroup::new(&format!("ct{}-calls", std::process::id()))?;
        let id = fs::metadata(cgroup.path())?.ino();
        let daemon = Daemon::start()?;
        let name = cgroup.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        fault.clone().aimed(json!({"cgroup": name})).inject(&daemon.mcp()?)?;
        let processes = daemon.processes();
        let stopped = Instant::now();
        processes.iter().for_each(Process::stop);
        let verdict = Verdict::ask(&daemon.runtime_dir());
        let after = stopped.elapsed();
        processes.iter().for_each(|process| process.signal(Signal::SIGCONT));
        let acts = format!("its fault acts on the {what} of cgroup id {id}");
        said(verdict?.names("effect", "holder", &acts).map(drop), after)
    })?;
    Ok(Outcome::Pass)
}

fn a_stopped_holder_of_an_mcp_error_is_an_effect_until_its_lease_is_over(_: &Context) -> TestResult {
    in_time(|| {
        let session = Session::start()?;
        let mut daemon = Daemon::start()?;
        let fault = Fault::new("mcp_error").aimed(json!({"pid": session.pid()})).with(json!({"fail": 1}));
        fault.inject(&daemon.mcp()?)?;
        let holders = daemon.holders();
        let stopped = Instant::now();
        daemon.processes().iter().for_each(Process::stop);
        let verdict = Verdict::ask(&daemon.runtime_dir());
        let after = stopped.elapsed();
        std::thread::sleep(LEASE.saturating_sub(after));
        let over = Verdict::ask(&daemon.runtime_dir());
        daemon.kill_everything();
        let acted =
            said(verdict?.names("effect", "holder", "it holds 1 proxies of MCP servers").map(drop), after)?;
        let over = over?;
        for holder in &holders {
            over.names("inert", "holder", &format!("process {} is stopped", holder.pid))?;
        }
        Ok(acted)
    })?;
    Ok(Outcome::Pass)
}

fn a_stopped_server_is_named(_: &Context) -> TestResult {
    let daemon = Daemon::start()?;
    // Callers can connect before it has its name.
    let named = |process: &Process| {
        fs::read_to_string(format!("/proc/{}/comm", process.pid)).is_ok_and(|name| name == "chaos-server\n")
    };
    assert!(wait_until(HANG, || daemon.server().as_ref().is_some_and(named)));
    let server = daemon.server().ok_or("no server")?;
    server.stop();
    Verdict::of_node()?.names("inert", "server", &format!("process {} is stopped", server.pid))?;
    server.signal(Signal::SIGCONT);
    Ok(Outcome::Pass)
}

fn a_holder_without_a_daemon_is_named_and_one_that_burns_is_an_effect(_: &Context) -> TestResult {
    let stray = Fake::start("sleep", &["600"])?;
    let burner = Fake::start("sh", &["-c", "while :; do :; done"])?;
    let named = |fake: &Fake| format!("process {} is a fault without a daemon", fake.child.id());
    let verdict = Verdict::of_node()?;
    verdict.names("inert", "holder", &named(&stray))?;
    let left = verdict.names("effect", "holder", &named(&burner))?;
    assert!(left["what"].as_str().is_some_and(|what| what.contains("burns CPU time")), "{left}");
    Ok(Outcome::Pass)
}

fn a_zombie_of_a_holder_is_named(_: &Context) -> TestResult {
    let fake = Fake::start("sleep", &["0"])?;
    let pid = fake.child.id();
    let is_zombie = || Process::read(pid.cast_signed()).is_some_and(|process| process.state == 'Z');
    assert!(wait_until(HANG, is_zombie));
    Verdict::of_node()?.names("inert", "holder", &format!("process {pid} is a zombie"))?;
    Ok(Outcome::Pass)
}

fn a_holder_that_hangs_in_the_kernel_is_named(_: &Context) -> TestResult {
    let hung = Hung::start()?;
    let hangs = || Process::read(hung.0.as_raw()).is_some_and(|process| process.state == 'D');
    assert!(wait_until(HANG, hangs), "{:?}", Process::read(hung.0.as_raw()));
    Verdict::of_node()?.names("inert", "holder", &format!("process {} is hung in the kernel", hung.0))?;
    Ok(Outcome::Pass)
}

/// Another program under the name of a holder.
pub(in crate::kernel) struct Fake {
    child: Child,
    _folder: TempDir,
}

impl Fake {
    pub(in crate::kernel) fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        Self::start_as("chaos-holder", program, arguments, Stdio::null())
    }

    /// Called `name`, with something open that it never reads.
    pub(in crate::kernel) fn start_as(
        name: &str,
        program: &str,
        arguments: &[&str],
        input: Stdio,
    ) -> Result<Self> {
        let folder = TempDir::new().map_err(Error::io("create", "a folder"))?;
        // As those of systemd do, it lies in a folder of that name.
        let place = folder.path().join("systemd");
        fs::create_dir(&place).map_err(Error::io("create", place.display().to_string()))?;
        let path = place.join(name);
        let original = [PathBuf::from("/bin").join(program), PathBuf::from("/usr/bin").join(program)];
        let original = original.into_iter().find(|path| path.exists()).unwrap_or_default();
        fs::copy(&original, &path).map_err(Error::io("copy", original.display().to_string()))?;
        // By its own name, which one of many in one program knows itself by.
        let mut command = Command::new(&path);
        command.arg0(program).args(arguments).stdin(input);
        let child = command.spawn().map_err(Error::io("start", path.display().to_string()))?;
        Ok(Self { child, _folder: folder })
    }
}

impl Fake {
    /// Its number.
    pub(in crate::kernel) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Whether it has not ended.
    pub(in crate::kernel) fn runs(&self) -> bool {
        Process::read(self.pid()).is_some_and(|process| process.runs())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that waits in the kernel, where only SIGKILL reaches it: for a child that vfork(2) has made.
struct Hung(Pid);

impl Hung {
    #[expect(deprecated, reason = "what it does is exactly what is wanted here")]
    fn start() -> Result<Self> {
        // SAFETY: the children make async-signal-safe system calls only, and never return.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::prctl(libc::PR_SET_NAME, c"chaos-holder".as_ptr());
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::vfork() == 0 {
                    libc::prctl(libc::PR_SET_NAME, c"vforked".as_ptr());
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::alarm(30);
                    loop {
                        libc::pause();
                    }
                }
                libc::_exit(0);
            }
            pid
        };
        if pid < 0 {
            return Err(Error::io("fork", "a process")(std::io::Error::last_os_error()));
        }
        Ok(Self(Pid::from_raw(pid)))
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // It is our child, and not collected before.
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}
