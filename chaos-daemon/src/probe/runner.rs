//! The runner: a process that has programs run for the samples of the server, which itself may start none.
//!
//! It believes the server as little as the injector does: it knows from its own start which programs the policy names, and looks at the
//! file again. Each sample is taken by a process of its own, which reads what the program says, and ends only when nothing is left of it.
//! All of that is in a namespace of process numbers whose first process does nothing but keep it: when the runner dies, so does that
//! one, and with it, by the kernel, every process that any program has started (pid_namespaces(7)).

use std::io::{self, Error, Read, Write};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::prober::Asked;
use super::python::Call;
use super::{Check, Probe, Sample, late, offspring};
use crate::host::allowed::Allowed;
use crate::host::program::trusted;
use crate::host::python::Python;
use crate::request::line::answer_questions;
use crate::request::wire::MAX_FRAME;

/// So many samples are taken at once; others wait, as long as they may take.
const AT_ONCE: usize = 16;
/// How much longer than its time limit a sample may take, until nothing is left of its program.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How often the first process of the namespace looks whether it has been left something, in milliseconds.
const ROUND: u16 = 1000;

/// Serves the server until it is gone; `allowed` is what the policy lets it run. What was started here is left to the caller to
/// collect, by [`offspring::end_all`].
///
/// # Errors
/// When the namespace cannot be kept.
pub async fn serve(stream: UnixStream, allowed: Allowed) -> io::Result<()> {
    // The way to the server is this process's alone.
    fcntl(&stream, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // The first child is the first process there.
    let mut keeper = own("keep").stdin(Stdio::piped()).spawn()?;
    // Its end is that of the keeper, also of one that comes too late for the parent-death signal.
    let held = keeper.stdin.take();
    let (allowed, places) = (Arc::new(allowed), Arc::new(Semaphore::new(AT_ONCE)));
    let answered = answer_questions(stream, move |Asked { probe, .. }: Asked| {
        let (allowed, places) = (Arc::clone(&allowed), Arc::clone(&places));
        async move {
            let what = probe.check.to_string();
            let sample = sample(probe, &allowed, &places).await;
            sample.unwrap_or_else(|why| Sample::failed(format!("{what}: {why}")))
        }
    });
    let served = tokio::select! {
        () = answered => Ok(()),
        how = keeper.wait() => Err(Error::other(format!("the keeper of the namespace has ended: {how:?}"))),
    };
    drop(held);
    served
}

async fn sample(mut probe: Probe, allowed: &Allowed, places: &Semaphore) -> Result<Sample, String> {
    if let Check::Python(call) = &mut probe.check {
        *call = interpreted(call.clone(), &allowed.python)?;
    } else {
        let program = probe.check.program_mut().ok_or("it runs no program")?;
        if !allowed.programs.contains(program.path()) {
            return Err(format!("{:?} is not among the programs that probes may run", program.path()));
        }
        let file = trusted(program.path()).map_err(|distrust| distrust.to_string())?;
        *program = program.clone().found(file);
    }
    let place = timeout(probe.timeout, places.acquire()).await;
    let Ok(Ok(_place)) = place else {
        return Err(format!("{AT_ONCE} programs run, and none ended within {:?}", probe.timeout));
    };
    let child = own("take").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("the process that takes samples: {error}"))?;
    let limit = probe.timeout + GRACE;
    let sample = timeout(limit, exchange(&mut child, &probe)).await;
    // One that has answered ends at once; what any other leaves behind, the keeper ends.
    let ended = sample.is_ok() && timeout(GRACE, child.wait()).await.is_ok();
    if !ended && let Err(error) = child.kill().await {
        tracing::warn!(%error, "cannot kill the process that takes a sample");
    }
    match sample {
        Ok(taken) => taken.map_err(|error| format!("the process that takes samples: {error}")),
        Err(_) => Err(late(limit)),
    }
}

/// A call that the policy allows, by its interpreter.
fn interpreted(call: Call, python: &Python) -> Result<Call, String> {
    let modules = call.modules().map_err(|error| error.to_string())?;
    if let Some(other) = modules.iter().find(|module| !python.allows(module)) {
        return Err(format!("{other:?} is not among the modules that probes may call"));
    }
    let interpreter = Call::interpreter(&python.interpreter).map_err(|error| error.to_string())?;
    let file = trusted(interpreter.path()).map_err(|distrust| distrust.to_string())?;
    Ok(call.by(interpreter.found(file)))
}

async fn exchange(child: &mut Child, probe: &Probe) -> io::Result<Sample> {
    let none = || Error::other("has no streams");
    let (mut question, answer) =
        (child.stdin.take().ok_or_else(none)?, child.stdout.take().ok_or_else(none)?);
    question.write_all(&serde_json::to_vec(probe)?).await?;
    drop(question);
    let mut bytes = Vec::new();
    answer.take(MAX_FRAME as u64).read_to_end(&mut bytes).await?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// This program again, as one of the runner's own processes, which dies with it.
fn own(part: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("runner").arg(part).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    // SAFETY: between fork and exec only an async-signal-safe call is made: prctl. The runner has one thread that starts processes,
    // which lives as long as it does. Whoever comes too late for the signal finds its standard input at its end.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?));
    }
    command
}

/// Keeps the namespace whose first process this is, and ends whatever a process has left behind that took a sample and was killed. Returns
/// when the standard input, which the runner has, is at its end.
pub fn keep() {
    let input = io::stdin();
    let mut input = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    while matches!(poll(&mut input, ROUND), Ok(0) | Err(Errno::EINTR)) {
        offspring::end_all(&[]);
    }
}

/// Takes the one sample that is asked for at the standard input, answers at the standard output, and returns when nothing is left of its
/// program.
///
/// # Errors
/// When nothing is asked, or nobody hears the answer.
pub async fn take() -> io::Result<()> {
    offspring::adopt()?;
    let mut question = Vec::new();
    io::stdin().read_to_end(&mut question)?;
    let probe: Probe = serde_json::from_slice(&question)?;
    let sample = probe.sample().await;
    offspring::end_all(&[]);
    let mut answer = io::stdout();
    answer.write_all(&serde_json::to_vec(&sample)?)?;
    answer.flush()
}
