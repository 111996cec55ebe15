//! `chaosctl mcp`: pumps bytes between stdio and the daemon's socket, for clients that start a command. It knows
//! nothing of the protocol, so it serves every revision.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::client::{ClientError, advice};

/// Pumps until one side has ended. Returns whether it was the client's side, which is the good end.
pub(super) fn run(path: &Path) -> Result<bool, ClientError> {
    let broken = |source| ClientError::Connect { path: path.to_owned(), source };
    let socket = UnixStream::connect(path).map_err(broken)?;
    let to_daemon = socket.try_clone().map_err(broken)?;
    let ended = Arc::new(AtomicBool::new(false));
    let client_ended = Arc::clone(&ended);
    // It may stay blocked in a read of stdin when the daemon goes; the process ends all the same.
    thread::spawn(move || {
        pump(io::stdin().lock(), &to_daemon);
        client_ended.store(true, Ordering::Release);
        // Half closed: answers that are under way still arrive.
        let _ = to_daemon.shutdown(Shutdown::Write);
    });
    pump(&socket, io::stdout().lock());
    Ok(ended.load(Ordering::Acquire))
}

/// Copies what comes as it comes, until either side has ended.
fn pump(mut from: impl Read, mut to: impl Write) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                eprintln!("chaosctl mcp: reading: {}", advice(&error));
                return;
            }
        };
        if let Err(error) = to.write_all(&buffer[..read]).and_then(|()| to.flush()) {
            eprintln!("chaosctl mcp: writing: {}", advice(&error));
            return;
        }
    }
}
