//! `chaosctl probe`: takes one sample, here or by the daemon.

use std::path::Path;

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::failure::Failure;
use super::interrupts::Interrupts;
use super::runs::object;
use crate::mcp::probe::ProbeOutput;
use crate::probe::{Probe, Sample, offspring};

/// Takes it. Returns text for people, the answer for programs, and whether it was as hoped for.
///
/// # Errors
/// When it cannot be taken, or the daemon cannot be reached.
pub(super) async fn carry_out(probe: &Probe, socket: &Path) -> Result<(String, Value, bool), Failure> {
    if probe.check.is_the_daemons() {
        return ask(socket).await;
    }
    let sample = take(probe).await?;
    let answer = json!({"ok": sample.ok, "detail": sample.detail, "seconds": sample.took.as_secs_f64(),
               "value": sample.value, "answer": sample.answer});
    Ok((format!("{}\n", sample.line()), answer, sample.ok))
}

/// A sample that this process takes, which leaves nothing of its program when it goes.
async fn take(probe: &Probe) -> Result<Sample, Failure> {
    if probe.check.program().is_none() {
        return Ok(probe.sample().await);
    }
    let system = |error: std::io::Error| Failure::Other(format!("watch a program: {error}"));
    // Whoever has become this process by exec(2) may have had children.
    let others = offspring::children();
    offspring::adopt().map_err(system)?;
    let mut interrupts = Interrupts::new().map_err(Failure::Other)?;
    let sample = tokio::select! {
        sample = probe.sample() => Ok(sample),
        signal = interrupts.next() => Err(signal),
    };
    offspring::end_all(&others);
    sample.map_err(|signal| Failure::Other(format!("{}: ended by {signal}", probe.check)))
}

/// A sample of what only the daemon sees: the words of this command line are its, too.
async fn ask(socket: &Path) -> Result<(String, Value, bool), Failure> {
    let words: Vec<_> = std::env::args().skip(1).skip_while(|word| word != "probe").skip(1).collect();
    let client = Client::connect(socket).await?;
    let answer = client.ask("chaos_probe", object(json!({"arguments": words}))).await;
    client.close().await;
    let Answer { json, read: ProbeOutput { ok, detail, seconds, .. } } = answer?;
    let word = if ok { "ok" } else { "failed" };
    Ok((format!("{word}: {detail} ({:.1} ms)\n", seconds * 1e3), json, ok))
}
