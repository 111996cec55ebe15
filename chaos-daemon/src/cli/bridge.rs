//! `chaosctl mcp`: pumps bytes between stdio and the daemon's socket, for clients that start a command. It knows
//! nothing of the protocol, so it serves every revision.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::client::{ClientError, advice, refusal};

/// How a bridge has ended.
pub(super) enum End {
    /// The client has ended, which is the good end.
    Client,
    /// The daemon has, for this reason, if it has said one.
    Daemon(Option<String>),
}

/// Pumps until one side has ended.
pub(super) fn run(path: &Path) -> Result<End, ClientError> {
    let broken = |source| ClientError::Connect { path: path.to_owned(), source };
    let socket = UnixStream::connect(path).map_err(broken)?;
    let to_daemon = socket.try_clone().map_err(broken)?;
    let ended = Arc::new(AtomicBool::new(false));
    let client_ended = Arc::clone(&ended);
    // It may stay blocked in a read of stdin when the daemon goes; the process ends all the same.
    thread::spawn(move || {
        drop(pump(io::stdin().lock(), &to_daemon));
        client_ended.store(true, Ordering::Release);
        // Half closed: answers that are under way still arrive.
        let _ = to_daemon.shutdown(Shutdown::Write);
    });
    let last = pump(&socket, io::stdout().lock());
    match ended.load(Ordering::Acquire) {
        true => Ok(End::Client),
        false => Ok(End::Daemon(refusal(&last))),
    }
}

/// Copies what comes as it comes, until either side has ended. Returns what came last.
fn pump(mut from: impl Read, mut to: impl Write) -> Vec<u8> {
    let mut buffer = vec![0; 64 * 1024];
    let mut last = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => {
                buffer.truncate(last);
                return buffer;
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                eprintln!("chaosctl mcp: reading: {}", advice(&error));
                buffer.truncate(last);
                return buffer;
            }
        };
        if let Err(error) = to.write_all(&buffer[..read]).and_then(|()| to.flush()) {
            eprintln!("chaosctl mcp: writing: {}", advice(&error));
            return Vec::new();
        }
        last = read;
    }
}
