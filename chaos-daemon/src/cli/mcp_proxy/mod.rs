//! `chaosctl mcp-proxy -- COMMAND…`: sits between an MCP client and a server that speaks over stdio, and delays, fails,
//! loses or spoils a share of the calls, as its options say, or a fault of the daemon. It needs no daemon and no privilege, and
//! ends with the client.
//!
//! Reference: Model Context Protocol, transport "stdio": one JSON-RPC message a line.

mod options;
mod page;
mod verdict;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc::{Receiver, Sender, channel};

pub(super) use self::options::ProxyArgs;
use self::page::{Decision, Page};
use self::verdict::{Harm, Verdict};
use crate::spec::SpecError;
use crate::spec::mcp::Spoiling;

/// After the client has gone, for the server to end by itself.
const SERVER_ENDS: Duration = Duration::from_secs(5);
/// Answers that wait for a client that does not read.
const WAITING: usize = 64;
/// JSON-RPC's "internal error".
const INTERNAL_ERROR: i32 = -32603;
/// How often an answer that a fault delays looks whether the fault is over.
const LOOK: Duration = Duration::from_millis(10);

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
    spoiling: Spoiling,
    seed: u64,
    started: Instant,
    counts: RefCell<Counts>,
    /// Where faults find it; `None` where it cannot be found.
    page: Option<Arc<Page>>,
    /// What happens to the answers that the server has not given yet, by the call's id as JSON.
    pending: RefCell<HashMap<String, Fate>>,
}

/// What becomes of the answer to a call.
#[derive(Debug, Clone)]
struct Fate {
    /// By the options.
    own: Verdict,
    /// By a fault, while it is in force.
    ordered: Option<(Decision, Arc<Page>)>,
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
    params: Option<Params>,
}

/// What a request is about: a call of a tool, by its name, or anything else.
#[derive(Deserialize)]
#[serde(untagged)]
enum Params {
    Call { name: String },
    Other(IgnoredAny),
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
    let spoiling = args.spoiling()?;
    let page = Page::new().map(Arc::new);
    let page = page
        .inspect_err(|error| eprintln!("chaosctl mcp-proxy: no fault will find it: make its page: {error}"));
    let proxy = Proxy {
        args,
        spoiling,
        seed: args.seed.unwrap_or_else(rand::random),
        started: Instant::now(),
        counts: RefCell::default(),
        page: page.ok(),
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
                Some((failure, fate)) => send(&failures, failure, fate).await,
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
            let fate = self.fate_of(&answer);
            let Some(answer) = spoil(fate.harm(), answer) else { continue };
            send(&to, answer, fate).await;
        }
        Ok(())
    }

    /// Decides about a call. The answer in the server's place, and what becomes of that, when the call fails.
    fn judge(&self, line: &[u8]) -> Option<(Vec<u8>, Fate)> {
        let message: Message = serde_json::from_slice(line).ok()?;
        let id = message.id.as_ref()?;
        let own = self.own_verdict(&message);
        let decided = self.page.as_ref().and_then(|page| {
            let decision = page.decide(|spoiling| concerns(spoiling, &message))?;
            Some((decision, Arc::clone(page)))
        });
        if own.is_none() && decided.is_none() {
            return None;
        }
        let fate = Fate { own: own.unwrap_or(Verdict::NOTHING), ordered: decided };
        let failed_by = match &fate {
            Fate { own: Verdict { harm: Harm::Fail, .. }, .. } => "chaosctl mcp-proxy",
            Fate {
                ordered: Some((Decision { verdict: Verdict { harm: Harm::Fail, .. }, .. }, _)), ..
            } => "an mcp_error of chaos-daemon",
            Fate { .. } => {
                self.pending.borrow_mut().insert(id.to_string(), fate);
                return None;
            }
        };
        let error = json!({"code": INTERNAL_ERROR, "message": format!("failed by {failed_by}")});
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
        Some((format!("{answer}\n").into_bytes(), fate))
    }

    /// What the options say about a call, if they say anything.
    fn own_verdict(&self, message: &Message) -> Option<Verdict> {
        let over = self.args.lasting.is_some_and(|lasting| self.started.elapsed() >= lasting);
        if over || !concerns(&self.spoiling, message) {
            return None;
        }
        let mut counts = self.counts.borrow_mut();
        counts.calls += 1;
        let verdict = self.spoiling.verdict(self.seed, counts.calls);
        counts.count(verdict);
        Some(verdict)
    }

    fn fate_of(&self, line: &[u8]) -> Fate {
        let message: Option<Message> = serde_json::from_slice(line).ok();
        // A request of the server's own may have the same id.
        let id = message.filter(|message| message.method.is_none()).and_then(|message| message.id);
        let fate = id.and_then(|id| self.pending.borrow_mut().remove(&id.to_string()));
        fate.unwrap_or(Fate { own: Verdict::NOTHING, ordered: None })
    }
}

/// Whether a message is one of the calls that are meant.
fn concerns(spoiling: &Spoiling, message: &Message) -> bool {
    let Spoiling { methods, tools, .. } = spoiling;
    let tool_is_meant = matches!(&message.params, Some(Params::Call { name }) if tools.contains(name));
    message.method.as_ref().is_some_and(|method| methods.contains(method))
        && (tools.is_empty() || tool_is_meant)
}

impl Fate {
    /// What is done to an answer that is here now: what the options say comes first.
    fn harm(&self) -> Harm {
        match (self.own.harm, &self.ordered) {
            (Harm::None, Some((Decision { fault, verdict }, page))) if page.holds(*fault) => verdict.harm,
            (own, _) => own,
        }
    }

    /// Waits for as long as an answer is late. An end of the fault ends its delay.
    async fn pass(self) {
        tokio::time::sleep(self.own.delay).await;
        let Some((Decision { fault, verdict }, page)) = self.ordered else { return };
        let due = Instant::now() + verdict.delay;
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|_| page.holds(fault)) {
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    fn is_prompt(&self) -> bool {
        self.own.delay.is_zero()
            && self.ordered.as_ref().is_none_or(|(decision, _)| decision.verdict.delay.is_zero())
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
async fn send(to: &Sender<Vec<u8>>, line: Vec<u8>, fate: Fate) {
    // A client that has gone hears nothing any more.
    if fate.is_prompt() {
        let _ = to.send(line).await;
        return;
    }
    let to = to.clone();
    tokio::spawn(async move {
        fate.pass().await;
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
