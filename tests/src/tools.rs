//! A client of a real MCP server that speaks over stdio (`chaos-tools`), with `chaosctl mcp-proxy` between them.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::binary;
use crate::error::{Error, Result};
use crate::late::HANG;
use crate::process::{self, look_patiently, wait_until};

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// What the server answered.
    Result,
    /// An error in its place.
    Error,
    /// A line that is no JSON.
    Garbage,
    /// Nothing so far.
    Nothing,
}

/// A session, and the processes that it goes through. Ended with the guard.
#[derive(Debug)]
pub struct Session {
    proxy: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    calls: u64,
}

impl Session {
    /// Starts one.
    ///
    /// # Errors
    /// When a program was not built, or there is no handshake.
    pub fn start() -> Result<Self> {
        Self::start_with(&binary("chaosctl")?, &binary("chaos-tools")?, |_| {})
    }

    /// As [`Session::start`], by these programs, with more for the proxy's command.
    ///
    /// # Errors
    /// As [`Session::start`].
    pub fn start_with(proxy: &Path, server: &Path, configure: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut command = Command::new(proxy);
        command.args(["mcp-proxy", "--"]).arg(server);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        configure(&mut command);
        let mut proxy = command.spawn().map_err(Error::io("start", "chaosctl mcp-proxy"))?;
        let (stdin, stdout) = (proxy.stdin.take(), proxy.stdout.take());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut session = Self { proxy, stdin, lines, calls: 0 };
        let parameters = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}});
        let id = session.say("initialize", &parameters)?;
        if session.hear(id, HANG)? != Came::Result {
            return Err(Error::Hung { what: "handshake of an MCP session".into() });
        }
        session.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(session)
    }

    /// The proxy's process id.
    pub fn pid(&self) -> i32 {
        self.proxy.id().cast_signed()
    }

    /// The ids of all its processes.
    pub fn pids(&self) -> Vec<i32> {
        let below = process::descendants(self.pid());
        below.iter().map(|process| process.pid).chain([self.pid()]).collect()
    }

    /// Calls a tool. The number of the call.
    ///
    /// # Errors
    /// When the proxy has ended.
    pub fn call(&mut self, tool: &str) -> Result<u64> {
        self.say("tools/call", &json!({"name": tool, "arguments": {}}))
    }

    /// What has come of a call within some time. Answers to earlier ones are passed over.
    ///
    /// # Errors
    /// When the proxy has ended.
    pub fn hear(&mut self, call: u64, patience: Duration) -> Result<Came> {
        loop {
            let heard = look_patiently(patience, |nap| match self.lines.recv_timeout(nap) {
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    Some(Err(Error::Different("the proxy has ended".into())))
                }
                Ok(line) => Some(Ok(line)),
            });
            match heard.transpose()? {
                None => return Ok(Came::Nothing),
                Some(line) => match serde_json::from_str::<Value>(&line) {
                    Err(_) => return Ok(Came::Garbage),
                    Ok(answer) if answer["id"] != json!(call) => {}
                    Ok(answer) if answer["error"].is_null() => return Ok(Came::Result),
                    Ok(_) => return Ok(Came::Error),
                },
            }
        }
    }

    /// Calls a tool, and waits for the answer.
    ///
    /// # Errors
    /// When the proxy has ended.
    pub fn ask(&mut self, tool: &str, patience: Duration) -> Result<Came> {
        let call = self.call(tool)?;
        self.hear(call, patience)
    }

    /// Asks which tools there are, and waits for the answer.
    ///
    /// # Errors
    /// When the proxy has ended.
    pub fn list(&mut self, patience: Duration) -> Result<Came> {
        let call = self.say("tools/list", &json!({}))?;
        self.hear(call, patience)
    }

    fn say(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.calls += 1;
        let id = self.calls;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).map(|()| id)
    }

    fn write(&mut self, message: &Value) -> Result<()> {
        let ended = || Error::Different("the proxy has no stdin".into());
        let stdin = self.stdin.as_mut().ok_or_else(ended)?;
        writeln!(stdin, "{message}").map_err(Error::io("write to", "the proxy"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if !wait_until(HANG, || matches!(self.proxy.try_wait(), Ok(Some(_)))) {
            let _ = self.proxy.kill();
            let _ = self.proxy.wait();
        }
    }
}
