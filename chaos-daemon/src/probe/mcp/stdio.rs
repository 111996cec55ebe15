//! A session with a server that is started for it: a message a line on its standard streams.

use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::program::{Program, Running, keep};
use super::{LARGEST, request};

/// How long a server may take to end by itself when its input has ended, and its last words to come.
const GRACE: Duration = Duration::from_millis(250);
/// How much of its last words is told, in characters.
const SHOWN: usize = 200;

/// A session, and its server.
pub(super) struct Session {
    running: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Reads what it says to its operator.
    asides: JoinHandle<Vec<u8>>,
    asked: u64,
}

impl Session {
    pub(super) fn start(program: &Program) -> Result<Self, String> {
        let mut running = program.start(Stdio::piped())?;
        let child = &mut running.child;
        let (Some(input), Some(output), Some(mut errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("has no streams".to_owned());
        };
        let asides = tokio::spawn(async move {
            let mut kept = Vec::new();
            // What came before an error is what there is.
            let _ = keep(&mut errors, &mut kept).await;
            kept
        });
        Ok(Self { running, input, output: BufReader::new(output), asides, asked: 0 })
    }

    pub(super) async fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.asked += 1;
        self.tell(&request(self.asked, method, params)).await?;
        loop {
            let message = self.next().await?;
            // What else comes, such as progress and a request with a number of its own, is passed over.
            if message["id"] == self.asked && message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    pub(super) async fn tell(&mut self, message: &Value) -> Result<(), String> {
        let line = format!("{message}\n");
        let told = async {
            self.input.write_all(line.as_bytes()).await?;
            self.input.flush().await
        };
        match told.await {
            // One that has ended does not answer, which says more.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(format!("the server does not listen: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// The next line that is a message.
    async fn next(&mut self) -> Result<Value, String> {
        loop {
            let mut line = Vec::new();
            let mut reader = (&mut self.output).take(LARGEST);
            reader.read_until(b'\n', &mut line).await.map_err(|error| error.to_string())?;
            if line.last() != Some(&b'\n') {
                return Err(match line.len() as u64 {
                    LARGEST => format!("an answer of more than {LARGEST} bytes"),
                    _ => "the server ended without an answer".to_owned(),
                });
            }
            if let Ok(message @ Value::Object(_)) = serde_json::from_slice(&line) {
                return Ok(message);
            }
        }
    }

    /// Ends the server: by the end of its input if it minds that, else by SIGKILL; and whatever of its group is left then. Returns the last
    /// line that it said to its operator.
    pub(super) async fn leave(self) -> Option<String> {
        let Self { running, input, output, asides, .. } = self;
        drop((input, output));
        let _ = timeout(GRACE, running.ended()).await;
        if let Err(error) = running.collect().await {
            tracing::warn!(%error, "cannot collect a server over stdio");
        }
        let kept = timeout(GRACE, asides).await.ok()?.ok()?;
        let text = String::from_utf8_lossy(&kept);
        let last = text.lines().rfind(|line| !line.trim().is_empty())?;
        Some(last.trim().chars().take(SHOWN).collect())
    }
}
