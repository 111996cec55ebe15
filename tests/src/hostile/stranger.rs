//! A process of another user that connects to a socket and hands the connection over: who is at its other end is this user, by the
//! kernel's word.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::error::{Error, Result};
use crate::process::Killed;

/// The argument by which a test executable becomes a stranger.
const ROLE: &str = "stranger";
/// The group that the socket of a daemon of these tests is of, and all that a stranger is a member of.
pub(super) const GROUP: &str = "nogroup";
pub(super) const GROUP_ID: u32 = 65_534;
/// What is said with a connection; instead of one, an error is told.
const CONNECTED: u8 = b'+';

/// A process of another user; killed with the guard.
#[derive(Debug)]
pub(super) struct Stranger {
    process: Killed,
    /// One connection is asked for at a time.
    way: Mutex<UnixStream>,
}

impl Stranger {
    /// Starts one.
    pub(super) fn start(user: u32) -> Result<Self> {
        let (way, theirs) = UnixStream::pair().map_err(Error::io("create", "a pair of sockets"))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(ROLE).uid(user).gid(GROUP_ID).current_dir("/").stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().map_err(Error::io("start", "a stranger"))?;
        Ok(Self { process: Killed(child), way: Mutex::new(way) })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Has it connect.
    pub(super) fn connect(&self, socket: &Path) -> Result<OwnedFd> {
        let subject = || format!("a stranger that connects to {}", socket.display());
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(way, "{}", socket.display()).map_err(Error::io("ask", subject()))?;
        let (mut said, mut space) = ([0; 256], nix::cmsg_space!([i32; 1]));
        let mut parts = [IoSliceMut::new(&mut said)];
        let heard = recvmsg::<()>(way.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
            .map_err(Error::sys("hear", subject()))?;
        let messages = heard.cmsgs().map_err(Error::sys("hear", subject()))?;
        let passed: Vec<_> = messages.filter_map(descriptor).collect();
        let bytes = heard.bytes;
        match passed.into_iter().next() {
            // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows of it.
            Some(number) => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
            None => {
                let why = String::from_utf8_lossy(&said[..bytes]).trim().to_owned();
                Err(Error::Different(format!("{}: {why}", subject())))
            }
        }
    }
}

fn descriptor(message: ControlMessageOwned) -> Option<i32> {
    match message {
        ControlMessageOwned::ScmRights(numbers) => numbers.first().copied(),
        _ => None,
    }
}

/// Lives a stranger's life, if the arguments of this process say so: one connection for each line.
pub(super) fn serve_if_asked() -> Option<ExitCode> {
    if std::env::args().nth(1).as_deref() != Some(ROLE) {
        return None;
    }
    for line in BufReader::new(io::stdin()).lines() {
        let told = match line.and_then(UnixStream::connect) {
            Ok(stream) => hand_over(&stream),
            Err(error) => tell(&format!("{error}\n"), &[]),
        };
        if told.is_err() {
            return Some(ExitCode::FAILURE);
        }
    }
    Some(ExitCode::SUCCESS)
}

fn hand_over(stream: &UnixStream) -> io::Result<()> {
    let numbers = [stream.as_raw_fd()];
    tell(&char::from(CONNECTED).to_string(), &[ControlMessage::ScmRights(&numbers)])
}

fn tell(text: &str, with: &[ControlMessage<'_>]) -> io::Result<()> {
    let parts = [IoSlice::new(text.as_bytes())];
    sendmsg::<()>(io::stdin().as_raw_fd(), &parts, with, MsgFlags::empty(), None)?;
    Ok(())
}
