//! `chaosctl mcp-proxy -- COMMAND…`: sits between an MCP client and a server that speaks over stdio, and delays, fails,
//! loses or spoils a share of the calls. It needs no daemon and no privilege, and ends with the client.
//!
//! Reference: Model Context Protocol, transport "stdio": one JSON-RPC message a line.

mod verdict;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use self::verdict::{Faults, Harm, Verdict};
use super::duration;
use crate::spec::SpecError;

/// After the client has gone, for the server to end by itself.
const SERVER_ENDS: Duration = Duration::from_secs(5);
/// Answers that wait for a client that does not read.
const WAITING: usize = 64;
/// JSON-RPC's "internal error".
const INTERNAL_ERROR: i32 = -32603;

/// Options of `chaosctl mcp-proxy`.
#[derive(Debug, Args)]
pub(super) struct ProxyArgs {
    #[command(flatten)]
    faults: Faults,
    /// Methods that meet faults; may be repeated
    #[arg(long = "method", value_name = "METHOD", default_value = "tools/call")]
    methods: Vec<String>,
    /// Only calls of this tool; may be repeated
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    /// Faults end after so long; calls pass from then on
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    lasting: Option<Duration>,
    /// The same seed, calls and version meet the same faults. Default: another one each time, which is printed at the end
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// The server's command line
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What became of the calls.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(super) struct Counts {
    calls: u64,
    delayed: u64,
    failed: u64,
    dropped: u64,
    truncated: u64,
    corrupted: u64,
}

/// What both directions know.
struct Proxy<'a> {
    args: &'a ProxyArgs,
    seed: u64,
    started: Instant,
    counts: RefCell<Counts>,
    /// What happens to the answers that the server has not given yet, by the call's id as JSON.
    pending: RefCell<HashMap<String, Verdict>>,
}

/// How it ended, and what it did.
#[derive(Debug, Serialize)]
pub(super) struct Ended {
    /// The server's exit code; 128 and the signal if one ended it.
    pub(super) code: u8,
    /// What replays it.
    pub(super) seed: u64,
    /// What became of the calls.
    pub(super) counts: Counts,
}

/// The parts of a JSON-RPC message that are looked at.
#[derive(Deserialize)]
struct Message {
    id: Option<Value>,
    method: Option<String>,
    params: Option<Value>,
}

/// Why there was no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    /// The options make no sense.
    #[error(transparent)]
    Usage(#[from] SpecError),
    /// The command cannot be started, or a pipe to it has broken.
    #[error("run {command:?}: {source}; give the server's command after --")]
    Server {
        /// As it was given.
        command: String,
        /// Why.
        source: io::Error,
    },
}

/// Runs the command between stdin and stdout until it ends, or the client does.
pub(super) async fn run(args: &ProxyArgs) -> Result<Ended, ProxyError> {
    args.faults.check()?;
    let proxy = Proxy {
        args,
        seed: args.seed.unwrap_or_else(rand::random),
        started: Instant::now(),
        counts: RefCell::default(),
        pending: RefCell::default(),
    };
    let broken = |source| ProxyError::Server { command: args.command.join(" "), source };
    let status = proxy.serve().await.map_err(broken)?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    let counts = *proxy.counts.borrow();
    Ok(Ended { code: u8::try_from(code).unwrap_or(u8::MAX), seed: proxy.seed, counts })
}

impl Proxy<'_> {
    async fn serve(&self) -> io::Result<ExitStatus> {
        let (program, arguments) = self.args.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = command.spawn()?;
        let (to_server, from_server) = (server.stdin.take(), server.stdout.take());
        let (Some(to_server), Some(from_server)) = (to_server, from_server) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (answers, outgoing) = channel(WAITING);
        let failures = answers.clone();
        let serving = async move {
            let asking = async move {
                self.ask(BufReader::new(tokio::io::stdin()), to_server, failures).await?;
                // Its stdin is closed by now, which ends a server; what it still answers is passed on.
                tokio::time::sleep(SERVER_ENDS).await;
                io::Result::Ok(())
            };
            tokio::select! {
                answered = self.answer(BufReader::new(from_server), answers) => answered,
                asked = asking => asked,
            }
        };
        let (served, ()) = tokio::join!(serving, write_lines(outgoing, tokio::io::stdout()));
        served?;
        if tokio::time::timeout(SERVER_ENDS, server.wait()).await.is_err() {
            server.kill().await?;
        }
        server.wait().await
    }

    /// From the client to the server, except for calls that fail.
    async fn ask(
        &self,
        mut from: impl AsyncBufRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        failures: Sender<Vec<u8>>,
    ) -> io::Result<()> {
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).await? > 0 {
            match self.judge(&line) {
                Some((failure, delay)) => send(&failures, failure, delay).await,
                None => {
                    to.write_all(&line).await?;
                    to.flush().await?;
                }
            }
            line.clear();
        }
        Ok(())
    }

    /// From the server to the client, as was decided when the call came.
    async fn answer(&self, mut from: impl AsyncBufRead + Unpin, to: Sender<Vec<u8>>) -> io::Result<()> {
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).await? > 0 {
            let answer = std::mem::take(&mut line);
            let verdict = self.verdict_on(&answer);
            let Some(answer) = spoil(verdict.harm, answer) else { continue };
            send(&to, answer, verdict.delay).await;
        }
        Ok(())
    }

    /// Decides about a call. The answer in the server's place, and how late it comes, when the call fails.
    fn judge(&self, line: &[u8]) -> Option<(Vec<u8>, Duration)> {
        let message: Message = serde_json::from_slice(line).ok()?;
        let id = message.id.as_ref().filter(|_| self.concerns(&message))?;
        let mut counts = self.counts.borrow_mut();
        counts.calls += 1;
        let verdict = self.args.faults.verdict(self.seed, counts.calls);
        counts.count(verdict);
        if verdict.harm != Harm::Fail {
            self.pending.borrow_mut().insert(id.to_string(), verdict);
            return None;
        }
        let error = json!({"code": INTERNAL_ERROR, "message": "failed by chaosctl mcp-proxy"});
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
        Some((format!("{answer}\n").into_bytes(), verdict.delay))
    }

    fn concerns(&self, message: &Message) -> bool {
        let ProxyArgs { methods, tools, lasting, .. } = self.args;
        let tool = message.params.as_ref().and_then(|params| params["name"].as_str());
        lasting.is_none_or(|lasting| self.started.elapsed() < lasting)
            && message.method.as_ref().is_some_and(|method| methods.contains(method))
            && (tools.is_empty() || tool.is_some_and(|tool| tools.iter().any(|name| name == tool)))
    }

    fn verdict_on(&self, line: &[u8]) -> Verdict {
        let message: Option<Message> = serde_json::from_slice(line).ok();
        // A request of the server's own may have the same id.
        let id = message.filter(|message| message.method.is_none()).and_then(|message| message.id);
        let verdict = id.and_then(|id| self.pending.borrow_mut().remove(&id.to_string()));
        verdict.unwrap_or(Verdict::NOTHING)
    }
}

impl Counts {
    fn count(&mut self, verdict: Verdict) {
        self.delayed += u64::from(!verdict.delay.is_zero());
        match verdict.harm {
            Harm::None => {}
            Harm::Fail => self.failed += 1,
            Harm::Drop => self.dropped += 1,
            Harm::Truncate(_) => self.truncated += 1,
            Harm::Corrupt(_) => self.corrupted += 1,
        }
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { calls, delayed, failed, dropped, truncated, corrupted } = self.counts;
        write!(
            f,
            "calls {calls}, delayed {delayed}, failed {failed}, dropped {dropped}, truncated {truncated}, corrupted \
             {corrupted}; --seed {} does the same again",
            self.seed
        )
    }
}

/// A spoilt line still ends as one: the next one is another message.
fn spoil(harm: Harm, mut line: Vec<u8>) -> Option<Vec<u8>> {
    let ended = line.pop_if(|last| *last == b'\n');
    let mut line = harm.apply(line)?;
    line.extend(ended);
    Some(line)
}

/// Sends a line at its time; others may overtake it.
async fn send(to: &Sender<Vec<u8>>, line: Vec<u8>, delay: Duration) {
    // A client that has gone hears nothing any more.
    if delay.is_zero() {
        let _ = to.send(line).await;
        return;
    }
    let to = to.clone();
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let _ = to.send(line).await;
    });
}

/// Writes until nobody has anything to send any more, or nobody reads.
async fn write_lines(mut lines: Receiver<Vec<u8>>, mut to: impl AsyncWrite + Unpin) {
    while let Some(line) = lines.recv().await {
        if to.write_all(&line).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}
