//! MCP spoken line by line over any socket, so that a test can say what no client library would.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::{Shutdown, setsockopt, shutdown, sockopt};
use nix::sys::time::TimeVal;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::late::HANG;

/// A connection on which nothing is checked before it is sent.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<File>,
    next: u64,
}

impl Wire {
    /// Connects to a unix socket.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream =
            UnixStream::connect(socket).map_err(Error::io("connect to", socket.display().to_string()))?;
        Self::over(stream.into())
    }

    /// Speaks over a connected stream socket.
    ///
    /// # Errors
    /// When it takes no time limit.
    pub fn over(socket: OwnedFd) -> Result<Self> {
        let limit = TimeVal::new(HANG.as_secs().cast_signed(), 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &limit)
            .and_then(|()| setsockopt(&socket, sockopt::SendTimeout, &limit))
            .map_err(Error::sys("set the time limit of", "a connection"))?;
        Ok(Self { stream: BufReader::new(File::from(socket)), next: 0 })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the other side has gone or does not read.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes).map_err(Error::io("write to", "a connection"))
    }

    /// Says that no more will come, and still listens.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn end(&mut self) -> Result<()> {
        shutdown(self.stream.get_ref().as_raw_fd(), Shutdown::Write)
            .map_err(Error::sys("half close", "a connection"))
    }

    /// The next line; `None` when the other side has closed.
    ///
    /// # Errors
    /// When nothing comes in time, or it is not JSON.
    pub fn answer(&mut self) -> Result<Option<Value>> {
        let mut line = String::new();
        match self.stream.read_line(&mut line).map_err(Error::io("read from", "a connection"))? {
            0 => Ok(None),
            _ => serde_json::from_str(&line)
                .map(Some)
                .map_err(|error| Error::Mcp { what: "answer".into(), problem: format!("{error}: {line}") }),
        }
    }

    /// Sends a request and returns the whole answer to it.
    ///
    /// # Errors
    /// When there is none, or it answers something else.
    pub fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.bytes(format!("{request}\n").as_bytes())?;
        let gone = || Error::Mcp { what: method.into(), problem: "the connection was closed".into() };
        let answer = self.answer()?.ok_or_else(gone)?;
        match answer["id"] == self.next {
            true => Ok(answer),
            false => Err(Error::Mcp { what: method.into(), problem: format!("answered by {answer}") }),
        }
    }

    /// Opens a session; returns what the server says of itself.
    ///
    /// # Errors
    /// As [`Wire::request`].
    pub fn open(&mut self) -> Result<Value> {
        let me = json!({"name": "wire", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": me});
        let answer = self.request("initialize", params)?;
        self.bytes(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(answer["result"].clone())
    }

    /// Calls a tool; returns its structured content.
    ///
    /// # Errors
    /// As [`Wire::request`].
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}))?;
        Ok(answer["result"]["structuredContent"].clone())
    }
}
